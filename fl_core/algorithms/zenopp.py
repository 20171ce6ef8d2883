"""Zeno++: the server judges every gradient with clean data of its own (Xie, Koyejo & Gupta, 2020; BL-3.19 ff.)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from pydantic import Field, model_validator
from torch import Tensor

from fl_core.algorithms.base import register
from fl_core.algorithms.kasync import KAsynchronous, descend

if TYPE_CHECKING:
    from fl_core.runtime import ServerHandle


@register
class ZenoPP(KAsynchronous):
    """Accept a gradient if it would lower the loss on the server's samples, and descend along it (BL-3.19, BL-3.20).

    A version is an accepted gradient. Whoever sent it, accepted or not, gets the present model and goes on. If hardly
    any gradient is accepted, a budget of versions takes long to use up: give one of seconds as well. The defaults are
    those of WKAFL's supplement.
    """

    num_aggregated: int = Field(1, ge=1, le=1)
    """1: gradients are judged one by one."""
    lr: float = Field(5e-5, gt=0, allow_inf_nan=False)
    rho: float = Field(0.2, ge=0, allow_inf_nan=False)
    """Weight of the squared length in the score."""
    epsilon: float = Field(0.1, ge=0, allow_inf_nan=False)
    """How much below 0 a score may be."""
    score_gamma: float = Field(1.0, gt=0, allow_inf_nan=False)
    """gamma of the score; that of the step is `lr` (BL, 3.9)."""
    server_samples: int = Field(100, ge=1)
    """The server's samples: drawn uniformly, once, from those of all devices."""
    validation_batch: int = Field(50, ge=1)
    """How many of them, drawn anew, a validation gradient uses."""
    refresh_every: int = Field(5, ge=1)
    """A new validation gradient is made at each arrival while the accepted gradients are a multiple of this."""

    @model_validator(mode="after")
    def _batch_fits(self) -> ZenoPP:
        if self.validation_batch > (most := self.server_samples):
            what = f"validation_batch = {self.validation_batch} is larger than server_samples"
            raise ValueError(f"{what}; choose at most {most}")
        return self

    async def updater(self, server: ServerHandle) -> None:
        [upload] = await server.receive()
        if "validation" not in server.state or server.version % self.refresh_every == 0:
            server.state["validation"] = self.validation_gradient(server)
        judged = judge_gradient(upload.gradient, server.state["validation"], self.rho, self.epsilon, self.score_gamma)
        if judged.accepted:
            descend(server, judged.candidate, self.lr, torch.ones(1))
        else:
            server.discard(upload)

    def validation_gradient(self, server: ServerHandle) -> Tensor:
        """Return v ``[p]``, from a mini-batch of the server's samples."""
        if "samples" not in server.state:
            count = min(self.server_samples, server.num_samples)
            server.state["samples"] = server.rng.choice(server.num_samples, count, replace=False)
        samples = server.state["samples"]
        batch = server.rng.choice(samples, min(self.validation_batch, len(samples)), replace=False)
        return server.gradient(batch).gradient


class Judgement(NamedTuple):
    """What Zeno++ thinks of a gradient."""

    candidate: Tensor
    """The gradient, as long as the validation gradient, ``[p]``."""
    score: float
    accepted: bool


def judge_gradient(
    grad: Tensor, validation_grad: Tensor, rho: float = 0.2, epsilon: float = 0.1, score_gamma: float = 1.0
) -> Judgement:
    """Rescale g to the length of the validation gradient v ``[p]`` and judge it: Zeno++ (BL-3.19, BL-3.20).

    u = g ‖v‖ / ‖g‖ is accepted iff gamma <u, v> - rho ‖u‖^2 >= -gamma epsilon: its length never matters, as that is
    cos(g, v) >= rho / gamma - epsilon / ‖v‖^2 (BL-3.21). A gradient of zeros is rejected. The defaults are those of
    the authors' program.
    """
    norm, length = torch.linalg.vector_norm(grad), torch.linalg.vector_norm(validation_grad)
    if not norm:
        return Judgement(grad, 0.0, False)
    candidate = grad * (length / norm)
    score = float(score_gamma * (candidate @ validation_grad) - rho * (candidate @ candidate))
    return Judgement(candidate, score, score >= -score_gamma * epsilon)
