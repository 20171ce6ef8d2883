"""One way for every formula to refuse an argument."""

from __future__ import annotations

import numpy as np
import torch


def require(ok: object, name: str, value: object, valid: str) -> None:
    """Raise ValueError unless `ok` holds (everywhere, where it is an array or a tensor of booleans).

    A SymPy relation that cannot be decided passes, so that a proof may put symbols into a formula.
    """
    if isinstance(ok, np.ndarray | torch.Tensor):
        ok = bool(ok.all())
    if ok == False:  # noqa: E712 -- "not ok" would ask an undecided relation for its truth value
        raise ValueError(f"{name} = {value!r}; {name} must be {valid}")
