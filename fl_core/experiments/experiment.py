"""What the experiments of all papers have in common: profiles, set-ups, labelled runs, and a reader's parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from pydantic import ValidationError

from fl_core.config import Config
from fl_core.datasets import names, stands_for
from fl_core.errors import SpecError, known, nearest, unknown
from fl_core.experiments.explain import explain
from fl_core.experiments.study import Entry

PROFILES = {
    "smoke": "seconds per run: shows that everything works, proves nothing about accuracy",
    "laptop": "two processor cores and about an hour: the published results",
    "paper": "the paper's own budget and repetitions: days on two cores",
}
"""The three sizes of every experiment, and what they are for. A profile scales budgets, never the method."""


def in_order(value: tuple[float, ...] | None) -> tuple[float, ...] | None:
    """Refuse an option that does not ascend."""
    if value is not None and list(value) != sorted(set(value)):
        raise ValueError(f"{list(value)} must ascend, without repetitions")
    return value


class Options(Config):
    """What a reader may change besides profile, data set and seeds; a subclass has the fields and their defaults."""

    @classmethod
    def of(cls, **overrides: Any) -> Self:
        """Return validated options; an unknown name or a wrong value is a SpecError that names what is valid."""
        for name in overrides:
            if name not in cls.model_fields:
                valid = ", ".join(cls.model_fields)
                raise SpecError(f"unknown override {name!r}{nearest(name, cls.model_fields)} (valid: {valid})")
        try:
            return cls(**overrides)
        except ValidationError as error:
            raise SpecError(explain(error, cls)) from None

    @classmethod
    def changed(cls, **overrides: Any) -> dict[str, Any]:
        """Return those of `overrides` that differ from the defaults, so that a study names only what was changed."""
        return {name: value for name, value in overrides.items() if cls.of(**{name: value}) != cls()}


class Experiment:
    """One paper's experiment at one profile, on one data set, with one reader's options.

    A subclass is three tables and the methods that yield runs from them; ``Subclass.made(Subclass.method)`` is what
    an artifact takes as its grid.
    """

    OPTIONS: ClassVar[type[Options]] = Options
    PROFILES: ClassVar[Mapping[str, Any]]
    """What each profile decides; every value has `seeds`."""
    SETUPS: ClassVar[Mapping[str, Any]]
    """What is trained on each data set that the experiment is laid out for."""

    def __init__(self, profile: str, dataset: str, seeds: Sequence[int] | None = None, **overrides: Any) -> None:
        self.options: Any = self.OPTIONS.of(**overrides)
        self.profile, self.dataset = known("profile", profile, PROFILES), dataset
        self.setup, self.scale = self.setup_of(dataset), self.PROFILES[profile]
        self.seeds = tuple(self.default_seeds() if seeds is None else seeds)

    @classmethod
    def setup_of(cls, dataset: str) -> Any:
        """Return what is trained on `dataset`; a surrogate or copy without its own entry has its real data set's."""
        for name in (dataset, stands_for(dataset)):
            if name in cls.SETUPS:
                return cls.SETUPS[name]
        raise unknown("data set of this experiment", dataset, cls.SETUPS)

    def default_seeds(self) -> Sequence[int]:
        """Return the profile's seeds."""
        seeds: Sequence[int] = self.scale.seeds
        return seeds

    @classmethod
    def made(cls, *parts: Callable[[Self], Iterable[Entry]]) -> Callable[..., list[Entry]]:
        """Return a grid, ``(profile, dataset, seeds, **overrides) -> entries``: what the `parts` yield, in order."""

        def grid(profile: str, dataset: str, seeds: Sequence[int] | None = None, **overrides: Any) -> list[Entry]:
            if not parts:  # made from formulas, on whatever data: only the options are checked
                cls.OPTIONS.of(**overrides)
                return []
            experiment = cls(profile, dataset, seeds, **overrides)
            return [entry for part in parts for entry in part(experiment)]

        return grid

    @classmethod
    def shown(cls, table: Callable[[Self], Any]) -> Callable[..., Any]:
        """Return ``(profile, dataset, seeds, **overrides) -> table(experiment)``: an artifact's `paper_setting`."""

        def make(
            profile: str, dataset: str = "fashion-mnist", seeds: Sequence[int] | None = None, **overrides: Any
        ) -> Any:
            return table(cls(profile, dataset, seeds, **overrides))

        return make


@dataclass(frozen=True)
class Interval:
    """Numbers from `low` to `high`, or whole numbers, with the ends."""

    low: float
    high: float
    integer: bool = False

    def holds(self, value: Any) -> bool:
        """Return whether `value` is a number in the interval."""
        kinds = int if self.integer else int | float
        return isinstance(value, kinds) and not isinstance(value, bool) and self.low <= value <= self.high

    def __str__(self) -> str:
        return f"{'an integer' if self.integer else 'a number'} in [{self.low:.12g}, {self.high:.12g}]"


@dataclass(frozen=True)
class OrNone:
    """What `rule` allows, or None, which leaves the choice to the profile."""

    rule: Any


Valid = Interval | Iterable[Any] | type | OrNone


def check_parameters(namespace: Mapping[str, Any], **valid: Valid) -> None:
    """Check a notebook's ``globals()``, so that a wrong parameter stops it with one sentence, a SpecError.

    `valid` says what each may be: a tuple of choices, an :class:`Interval`, a type, a list with one Interval, meaning
    a non-empty list of such numbers, or one of these in :class:`OrNone`. A name that looks like a misspelt parameter,
    or is one in lower case, is wrong, too: papermill accepts any name, and it would silently change nothing.
    """
    for name, value in namespace.items():
        injected = isinstance(value, str | int | float | list | dict | None) and value is not PROFILES  # is imported
        misspelt = nearest(name, valid, cutoff=0.75) if name.isupper() else name.upper() in valid
        if injected and misspelt and name not in valid:
            raise SpecError(f"unknown parameter {name!r}{nearest(name.upper(), valid)} (valid: {', '.join(valid)})")
    for name, rule in valid.items():
        words, holds = _rule(rule)
        if name not in namespace:
            raise SpecError(f"parameter {name} is missing; it should be {words}")
        if not holds(namespace[name]):
            hint = nearest(namespace[name], map(str, rule)) if isinstance(rule, tuple | dict) else ""
            raise SpecError(f"parameter {name} = {namespace[name]!r} is not valid: it should be {words}{hint}")


def chosen_options(namespace: Mapping[str, Any], experiment: type[Experiment]) -> dict[str, Any]:
    """Check a replication chapter's parameters, and return which of the experiment's options they change."""
    options = {name.upper(): name for name in experiment.OPTIONS.model_fields if name.upper() in namespace}
    datasets = tuple(name for name in names() if name in experiment.SETUPS or stands_for(name) in experiment.SETUPS)
    check_parameters(
        namespace, PROFILE=PROFILES, SHOW=("published", "this run"), DATASET=datasets,
        SEEDS=OrNone([Interval(0, 2**31, integer=True)]), RECOMPUTE=(True, False), **dict.fromkeys(options, object),
    )  # fmt: skip
    given = {field: namespace[name] for name, field in options.items()}
    for field, value in experiment.OPTIONS.of(**given):
        if isinstance(given.get(field), str) and not isinstance(value, str):  # cells compute with what was given
            raise SpecError(f"parameter {field.upper()} = {given[field]!r} is text; it should be {value!r}, unquoted")
    return experiment.OPTIONS.changed(**given)


def _is_listed(value: Any) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, str) and bool(list(value))


def _rule(rule: Any) -> tuple[str, Callable[[Any], bool]]:
    """Return what a rule allows, in words, and whether a value is that."""
    match rule:
        case OrNone():
            words, holds = _rule(rule.rule)
            return f"None, or {words}", lambda value: value is None or holds(value)
        case Interval():
            return str(rule), rule.holds
        case list():
            return f"a list, each {rule[0]}", lambda value: _is_listed(value) and all(map(_rule(rule[0])[1], value))
        case type():
            return f"a value of type {rule.__name__}", lambda value: isinstance(value, rule)
    return "one of " + ", ".join(map(repr, rule)), lambda value: value in list(rule)
