"""What a chapter needs at its top: validated parameters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fl_core.datasets import names, stands_for
from fl_core.errors import SpecError, nearest
from fl_core.experiments.experiment import PROFILES as SIZES
from fl_core.experiments.experiment import Experiment

PROFILES = tuple(SIZES)


@dataclass(frozen=True)
class Interval:
    """Numbers from `low` to `high`, or whole numbers; the ends count as valid unless `open` is set."""

    low: float
    high: float
    integer: bool = False
    open: bool = False

    def holds(self, value: Any) -> bool:
        """Return whether `value` is a number in the interval."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        if self.integer and value != int(value):
            return False
        return self.low < value < self.high if self.open else self.low <= value <= self.high

    def __str__(self) -> str:
        kind = "an integer" if self.integer else "a number"
        return f"{kind} in {'(' if self.open else '['}{self.low:g}, {self.high:g}{')' if self.open else ']'}"


@dataclass(frozen=True)
class OrNone:
    """What `rule` allows, or None, which leaves the choice to the profile."""

    rule: Any


Valid = Interval | tuple[Any, ...] | type | OrNone


def check_parameters(namespace: Mapping[str, Any], **valid: Valid | list[Interval]) -> None:
    """Check a notebook's ``globals()``, so that a wrong parameter stops it with one sentence, a SpecError.

    `valid` says what each may be: a tuple of choices, an :class:`Interval`, a type, a list with one Interval, meaning
    a non-empty list of such numbers, or one of these in :class:`OrNone`. An upper-case name that looks like a
    misspelt parameter is wrong, too: papermill accepts any name, and a misspelt one would silently change nothing.
    """
    for name, value in namespace.items():
        if name.isupper() and name not in valid and _is_plain(value) and nearest(name, valid, cutoff=0.75):
            raise SpecError(f"unknown parameter {name!r}{nearest(name, valid)} (valid: {', '.join(valid)})")
    for name, rule in valid.items():
        if name not in namespace:
            raise SpecError(f"parameter {name} is missing; it should be {_words(rule)}")
        if not _holds(rule, namespace[name]):
            hint = nearest(namespace[name], map(str, rule)) if isinstance(rule, tuple) else ""
            raise SpecError(f"parameter {name} = {namespace[name]!r} is not valid: it should be {_words(rule)}{hint}")


@dataclass(frozen=True)
class Chosen:
    """The checked parameters of a replication chapter; `overrides` are the options that differ from the default."""

    profile: str
    show: str
    dataset: str
    seeds: list[int] | None
    overrides: dict[str, Any]
    recompute: bool


def chosen_parameters(namespace: Mapping[str, Any], experiment: type[Experiment]) -> Chosen:
    """Return a replication chapter's parameters; the options among them are checked by the experiment's rules."""
    options = {name.upper(): name for name in experiment.OPTIONS.model_fields if name.upper() in namespace}
    known = tuple(name for name in names() if name in experiment.SETUPS or stands_for(name) in experiment.SETUPS)
    check_parameters(
        namespace, PROFILE=PROFILES, SHOW=("published", "this run"), DATASET=known,
        SEEDS=OrNone([Interval(0, 2**31, integer=True)]), RECOMPUTE=(True, False), **dict.fromkeys(options, object),
    )  # fmt: skip
    overrides = experiment.OPTIONS.changed(**{field: namespace[name] for name, field in options.items()})
    given = {name.lower(): namespace[name] for name in ("PROFILE", "SHOW", "DATASET", "SEEDS", "RECOMPUTE")}
    return Chosen(overrides=overrides, **given)


def _is_plain(value: Any) -> bool:
    """Return whether `value` is of a type that papermill injects."""
    return value is None or isinstance(value, str | int | float | list | dict)


def _holds(rule: Any, value: Any) -> bool:
    if isinstance(rule, OrNone):
        return value is None or _holds(rule.rule, value)
    if isinstance(rule, Interval):
        return rule.holds(value)
    if isinstance(rule, list):
        listed = isinstance(value, Iterable) and not isinstance(value, str) and bool(list(value))
        return listed and all(_holds(rule[0], item) for item in value)
    if isinstance(rule, type):
        return isinstance(value, rule)
    return value in rule


def _words(rule: Any) -> str:
    if isinstance(rule, OrNone):
        return f"None, or {_words(rule.rule)}"
    if isinstance(rule, Interval):
        return str(rule)
    if isinstance(rule, list):
        return f"a list, each {rule[0]}"
    if isinstance(rule, type):
        return f"a value of type {rule.__name__}"
    return "one of " + ", ".join(repr(choice) for choice in rule)
