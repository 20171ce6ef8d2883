"""An upload arrives with wrong numbers."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fl_core.world.faults.base import Fault, Message


class Corrupted(Fault):
    """The tensors of the upload are changed on the way.

    The server rejects what is not finite or of the wrong length, and counts it; the model stays as it is.

    Attributes
    ----------
    how : str
        ``"nan"``, ``"inf"``: one entry of each tensor, uniformly drawn, is no finite number; ``"length"``: the last
        entry is missing; ``"scaled"``: all entries are multiplied by `factor` (finite and of the right length, so a
        server can't tell: a Byzantine device).
    factor : float
        For ``"scaled"``; negative values turn an update's direction round.
    """

    kind: Literal["corrupted"] = "corrupted"
    how: Literal["nan", "inf", "length", "scaled"] = "nan"
    factor: float = Field(-10.0, allow_inf_nan=False)

    def send(self, messages: list[Message], rng: np.random.Generator) -> list[Message]:
        """Replace the payload of every copy."""
        payloads = (
            {name: self._wrong(value, rng) if isinstance(value, Tensor) else value for name, value in items}
            for items in (message.payload.items() for message in messages)
        )
        return [Message(payload, m.delay) for payload, m in zip(payloads, messages, strict=True)]

    def _wrong(self, tensor: Tensor, rng: np.random.Generator) -> Tensor:
        if not tensor.is_floating_point() or not tensor.numel():
            return tensor
        if self.how == "length":
            return tensor.reshape(-1)[:-1].clone()
        if self.how == "scaled":
            return tensor * self.factor
        wrong = tensor.clone()
        wrong.view(-1)[int(rng.integers(tensor.numel()))] = torch.nan if self.how == "nan" else torch.inf
        return wrong
