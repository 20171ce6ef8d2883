"""What a measurement is, how much of it is wanted, and what it yields."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fl_core.errors import SpecError


@dataclass(frozen=True)
class Effort:
    """How much to measure.

    Attributes
    ----------
    quick : bool
        Sizes that show that everything works; their numbers mean little.
    pairs : int or None
        Repetitions of what is repeated (the longest parts stop at 3); None: 5, or 1 if quick.
    threads : int
        Workers of the ``threads`` executor.
    """

    quick: bool = False
    pairs: int | None = None
    threads: int = 2

    def __post_init__(self) -> None:
        for name, value in (("pairs", self.pairs), ("threads", self.threads)):
            if value is not None and value < 1:
                raise SpecError(f"{name} = {value} must be at least 1")

    @property
    def repetitions(self) -> int:
        """How often to repeat."""
        return self.pairs or self.pick(5, 1)

    @property
    def test_samples(self) -> int | None:
        """Test images per evaluation: all, or in a quick run as many as keep the share of evaluations the same."""
        return 800 if self.quick else None

    def pick(self, full: int, quick: int) -> int:
        """Return the one of two sizes that is meant."""
        return quick if self.quick else full


@dataclass(frozen=True)
class Target:
    """What one quantity should be on the reference machine, two free cores.

    Attributes
    ----------
    quantity : str
    sense : str
        ``">="`` or ``"<="``.
    bound : float
        In the unit of the quantity.
    size : int or None
        The size that it holds for, if the part has several.
    """

    quantity: str
    sense: str
    bound: float
    size: int | None = None

    def met(self, value: float) -> bool:
        """Return whether `value` is good enough."""
        return value >= self.bound if self.sense == ">=" else value <= self.bound

    def __str__(self) -> str:
        return f"{'≥' if self.sense == '>=' else '≤'} {self.bound:,g}"


@dataclass(frozen=True)
class Row:
    """One measured quantity.

    Attributes
    ----------
    quantity, unit : str
    values : sequence of float
        One per repetition.
    size : int or None
        What it was measured at, counted in the part's ``sizes``.
    """

    quantity: str
    unit: str
    values: Sequence[float]
    size: int | None = None


@dataclass(frozen=True)
class Outcome:
    """What a measurement yields: rows, and a sentence that no number says."""

    rows: list[Row]
    note: str = ""


@dataclass(frozen=True)
class Part:
    """A named measurement.

    Attributes
    ----------
    name, sentence : str
        What it is called, and what it measures.
    measure : callable
        Does it, with the given :class:`Effort`.
    targets : tuple of Target
    sizes : str
        What the sizes of its rows count, e.g. ``"devices"``.
    """

    name: str
    sentence: str
    measure: Callable[[Effort], Outcome]
    targets: tuple[Target, ...] = ()
    sizes: str = ""

    def report(self, outcome: Outcome, **circumstances: Any) -> dict[str, Any]:
        """Return `outcome` as plain data, every row with its median, range and target."""
        rows = []
        for row in outcome.rows:
            median = statistics.median(row.values)
            target = next((t for t in self.targets if (t.quantity, t.size) == (row.quantity, row.size)), None)
            rows.append(
                {
                    "quantity": row.quantity,
                    "size": row.size,
                    "unit": row.unit,
                    "median": _rounded(median),
                    "low": _rounded(min(row.values)),
                    "high": _rounded(max(row.values)),
                    "values": [_rounded(value) for value in row.values],
                    "target": str(target) if target else None,
                    "reached": target.met(median) if target else None,
                }
            )
        head = {"name": self.name, "sentence": self.sentence, "sizes": self.sizes}
        return {**head, **circumstances, "note": outcome.note, "rows": rows}


def part(sentence: str, *targets: Target, sizes: str = "") -> Callable[[Callable[[Effort], Outcome]], Part]:
    """Decorator: make a function the part of its name."""

    def make(measure: Callable[[Effort], Outcome]) -> Part:
        return Part(measure.__name__, sentence, measure, targets, sizes)

    return make


def _rounded(value: float) -> float:
    """Return `value` with six significant digits: more would be noise in a record."""
    return float(f"{value:.6g}")
