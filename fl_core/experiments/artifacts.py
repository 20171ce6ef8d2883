"""Artifacts: the papers' tables and figures as grids of runs (or formulas), with a reduction, a view and claims."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pandas as pd

from fl_core.datasets import names, stands_for
from fl_core.errors import SpecError, known
from fl_core.experiments.claims import claims
from fl_core.experiments.evidence import LOOKS
from fl_core.experiments.experiment import PROFILES
from fl_core.experiments.store import Store
from fl_core.experiments.study import Entry, Study, listed, load_study
from fl_core.plugins import paper_modules


@dataclass(frozen=True)
class Panel:
    """One panel of a figure: which column, what to call it, and whether its axis is logarithmic."""

    column: str
    label: str
    log: bool = False


@dataclass(frozen=True)
class Curves:
    """A figure of curves, as data; :func:`fl_core.report.figures.draw` draws it."""

    x_label: str
    """What the abscissa (column ``x`` of the reduced frame) counts."""
    panels: tuple[Panel, ...]
    parameter: str = "alpha"
    """Column whose values are told apart by dash patterns, and in `symbol` its name in the legend."""
    symbol: str = "α"
    points: bool = False
    """Whether every row is a measurement of its own, to be marked: final values over a swept parameter."""


@dataclass(frozen=True)
class Columns:
    """A table, as data, with the arguments of :class:`fl_core.report.tables.Table`."""

    names: dict[str, str] = field(default_factory=dict)
    digits: int = 3
    wrap: dict[str, float] = field(default_factory=dict)


View = Curves | Columns | Callable[[pd.DataFrame], Any]
"""How a frame is shown: as curves, as a table, or as what a drawing function makes of it."""


def no_runs(profile_name: str, dataset: str, seeds: Sequence[int] | None, **overrides: Any) -> list[Entry]:
    """Return the grid of an artifact that formulas make."""
    if overrides:
        raise SpecError(f"this artifact has no parameters, so not {next(iter(overrides))!r}")
    return []


def computed(make: Callable[[], pd.DataFrame]) -> Callable[[Study], pd.DataFrame]:
    """Return the reduction of an artifact that is the same whatever ran."""
    return lambda study: make()


@dataclass(frozen=True)
class Artifact:
    """One figure or table of a paper."""

    id: str
    """E.g. ``"fedasync-fig2"``."""
    title: str
    reference: str
    """Where it is in the paper."""
    description: str
    """What to look at."""
    notebook: str
    """The chapter that shows it; a path in the repository."""
    reduce: Callable[[Study], pd.DataFrame]
    """From the runs to what is shown, with mean, standard deviation and number over seeds."""
    view: View
    make_grid: Callable[..., list[Entry]] = no_runs
    """``(profile, dataset, seeds, **overrides) -> entries``."""
    paper_setting: Callable[..., pd.DataFrame] | None = None
    """Same arguments: the paper's setting beside ours."""
    claims: tuple[str, ...] = ()
    """Ids of the claims that it carries."""
    over_seeds: str = "mean and standard deviation over"
    """What it shows of several seeds, before the word "seeds"."""
    panels_on: tuple[str, ...] = ()
    """Data sets of its panels in the paper, where it shows others on what is there; empty: any."""

    def is_on(self, dataset: str) -> bool:
        """Return whether the paper has it on `dataset`."""
        return not self.panels_on or stands_for(dataset) in self.panels_on

    def grid(
        self, profile_name: str, dataset: str = "fashion-mnist", seeds: Sequence[int] | None = None, **overrides: Any
    ) -> list[Entry]:
        """Return the labelled runs; `seeds` replace the profile's, overrides that are None leave its values.

        A profile, data set, seed or override that is not valid is a SpecError that says what would be.
        """
        known("profile", profile_name, PROFILES)
        known("data set", dataset, names())
        if seeds is not None and (not seeds or len(set(seeds)) != len(seeds)):
            raise SpecError(f"seeds = {list(seeds)} must be a non-empty list without repetitions")
        given = {name: value for name, value in overrides.items() if value is not None}
        return self.make_grid(profile_name, dataset, seeds, **given)

    def caption(self, study: Study) -> str:
        """Return, as a paragraph of Markdown, what the figure of `study` rests on and the command that makes it."""
        if not study.entries:
            return f"{self.reference}, {self.title}. Computed from formulas, no runs. Made by `{self.command()}`."
        seeds = study.seeds
        runs = f"seed {seeds[0]}" if len(seeds) == 1 else f"{self.over_seeds} seeds {listed(seeds)}"
        strange = "" if self.is_on(study.dataset) else " None of the paper's panels is on these data."
        return (
            f"{self.reference}, {self.title}. {study.data}, profile {study.profile}, "
            f"{runs}; {study.verification}. Made by `{study.command(self.notebook)}`.{strange}"
        )

    def command(self) -> str:
        """Return the command that writes the artifact to files."""
        return f"fl-core regenerate {self.id}"


@dataclass(frozen=True)
class Paper:
    """What the artifacts of one paper have in common."""

    name: str
    """E.g. ``"fedasync"``: of its folder, and what ids begin with."""
    cited: str
    setting: Callable[..., pd.DataFrame]
    """`paper_setting` of the artifacts that have runs."""

    def artifact(
        self, name: str, where: str, title: str, description: str, reduce: Callable[[Study], pd.DataFrame],
        view: View, make_grid: Callable[..., list[Entry]] = no_runs, claims: str = "", chapter: str = "replication",
        **more: Any,
    ) -> Artifact:  # fmt: skip
        """Return an artifact that is `where` in the paper ("": nowhere), with `claims` as in "C01 C02"."""
        given: dict[str, Any] = {} if make_grid is no_runs else {"paper_setting": self.setting}
        return Artifact(
            f"{self.name}-{name}", title, f"{where} of {self.cited}" if where else "Beyond the paper", description,
            f"notebooks/fl_papers/{self.name}/{chapter}.ipynb", reduce, view, make_grid,
            claims=tuple(f"{self.name.upper()}-{number}" for number in claims.split()), **{**given, **more},
        )  # fmt: skip


ARTIFACTS: dict[str, Artifact] = {}


def artifacts() -> dict[str, Artifact]:
    """Return all artifacts by id."""
    for module in paper_modules("artifacts"):
        ARTIFACTS.update({each.id: each for each in getattr(module, "ARTIFACTS", [])})
    claims()
    return dict(ARTIFACTS)


def find_artifact(name: str) -> Artifact:
    """Return the artifact with id `name`."""
    every = ARTIFACTS if name in ARTIFACTS else artifacts()
    return every[known("artifact", name, every)]


def find_artifacts(names: Iterable[str]) -> list[Artifact]:
    """Return the artifacts with these ids; an id that ends in ``-*`` stands for all that begin so."""
    every, found = artifacts(), dict[str, Artifact]()
    for name in names:
        matches = [key for key in every if name.endswith("*") and key.startswith(name[:-1])]
        found |= {key: every[key] for key in matches or [known("artifact", name, every)]}
    return list(found.values())


def make_study(
    chosen: Artifact | Iterable[Artifact], profile_name: str, dataset: str = "fashion-mnist",
    seeds: Sequence[int] | None = None, **overrides: Any,
) -> Study:  # fmt: skip
    """Return the union of the grids of `chosen`, each run once, as a study without results."""
    chosen = [chosen] if isinstance(chosen, Artifact) else chosen
    grids = [artifact.grid(profile_name, dataset, seeds, **overrides) for artifact in chosen]
    entries = {entry.key + repr(entry.labels): entry for grid in grids for entry in grid}
    given = overrides | {"seeds": seeds and list(seeds)}
    options = {name: value for name, value in given.items() if value is not None}
    return Study(profile_name, dataset, tuple(entries.values()), {}, options)


def larger_stored(
    chosen: Sequence[Artifact], store: Store, than: str, dataset: str = "fashion-mnist",
    seeds: Sequence[int] | None = None, *, some_seeds: bool = False, **overrides: Any,
) -> Study | None:  # fmt: skip
    """Return the study of the largest profile above `than` all of whose runs are in `store`, or None.

    It has all seeds that claims look at, where more than the profile's are stored. With `some_seeds` a profile also
    counts with those of its seeds whose runs are all stored.
    """
    profiles = list(PROFILES)
    for name in reversed(profiles[profiles.index(than) + 1 :]):
        study = stored_study(chosen, store, name, dataset, seeds, **overrides)
        if study.complete or (some_seeds and (study := study.of(study.stored_seeds)).results):
            return study
    return None


stored_seeds = partial(larger_stored, some_seeds=True)
"""The same, with those seeds whose runs are all stored."""


def stored_study(
    chosen: Sequence[Artifact], store: Store, profile: str, dataset: str = "fashion-mnist",
    seeds: Sequence[int] | None = None, **overrides: Any,
) -> Study:  # fmt: skip
    """Return the study with what `store` has, of the largest look that it has if it has the profile's seeds."""
    study = load_study(make_study(chosen, profile, dataset, seeds, **overrides), store)
    if seeds is None and study.results and study.complete:
        more = load_study(make_study(chosen, profile, dataset, range(max(LOOKS)), **overrides), store)
        look = max((n for n in LOOKS if {*range(n)} <= {*more.stored_seeds}), default=0)
        return more.of(range(look)) if {*study.seeds} < {*range(look)} else study
    return study
