"""How formulas refuse an argument, and chains of inequalities that are counted."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

Chains: TypeAlias = Mapping[str, Sequence[NDArray[np.float64]]]
"""Step of a proof to the quantities that it orders from small to large; they broadcast."""


def require(ok: object, name: str, value: object, valid: str) -> None:
    """Raise ValueError unless `ok` holds (everywhere, where it is an array or a tensor of booleans).

    A SymPy relation that cannot be decided passes, so that a proof may put symbols into a formula.
    """
    if isinstance(ok, np.ndarray | torch.Tensor):
        ok = bool(ok.all())
    if ok == False:  # noqa: E712 -- "not ok" would ask an undecided relation for its truth value
        raise ValueError(f"{name} = {value!r}; {name} must be {valid}")


def violations(chains: Chains, tolerance: float = 1e-12) -> int:
    """Return how many inequalities between neighbours in `chains` are violated by more than rounding."""
    return sum(
        int(np.count_nonzero(low > high + tolerance * (1 + np.abs(high))))
        for parts in chains.values()
        for low, high in itertools.pairwise(parts)
    )


def inequalities(chains: Chains) -> int:
    """Return how many inequalities between neighbours in `chains` there are."""
    return sum(
        int(np.broadcast(low, high).size) for parts in chains.values() for low, high in itertools.pairwise(parts)
    )
