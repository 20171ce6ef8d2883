"""How formulas refuse an argument and add up, and chains of inequalities that are counted."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, reduce
from typing import Any, TypeAlias

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


def require_range(valid: str, **values: Any) -> None:
    """Raise ValueError unless all `values`, also in sequences, are `valid`: "> 0", ">= 1", "in [0, 1)" or so."""
    for name, value in values.items():
        tried = np.asarray(value) if isinstance(value, Sequence) else value
        for compare, end in _ends(valid):
            require(compare(tried, end), name, value, valid)


@cache
def _ends(valid: str) -> list[tuple[Any, int]]:
    sign, low, *high = valid.split()
    if sign != "in":  # what follows the number is an explanation
        return [({">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}[sign], int(low))]
    above, below = operator.gt if low[0] == "(" else operator.ge, operator.lt if high[0][-1] == ")" else operator.le
    return [(above, int(low[1:-1])), (below, int(high[0][:-1]))]


def add_up(values: Iterable[Any]) -> Any:
    """Return the sum from left to right; ``sum`` of floats carries a correction from Python 3.12 on: other digits."""
    return reduce(operator.add, values, 0)


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
