"""Chains of inequalities, evaluated: lists of numbers of which each must not be below the one before it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Chains: TypeAlias = Mapping[str, Sequence[NDArray[np.float64]]]
"""Step of a proof to the quantities that it orders from small to large; they broadcast."""


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
