"""Labelled runs, and the same runs with their results: what reductions, plots and claims are functions of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import pandas as pd

from fl_core.datasets import described, kind_of
from fl_core.experiments.run import Result
from fl_core.experiments.spec import RunSpec
from fl_core.experiments.store import Store, default_store
from fl_core.experiments.verify import in_words, standing


@dataclass(frozen=True)
class Entry:
    """One run of a grid."""

    spec: RunSpec
    labels: dict[str, Any]
    """What the run is in the artifact: method, parameters that are varied, and always ``seed``."""

    @cached_property
    def key(self) -> str:
        """The hash of the specification, computed once."""
        return self.spec.hash

    def __str__(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in self.labels.items() if value is not None)


@dataclass(frozen=True)
class Study:
    """A grid together with its results: what reductions, plots and claims are functions of."""

    profile: str
    dataset: str
    entries: tuple[Entry, ...]
    results: dict[str, Result]
    """By hash; entries whose run is missing are left out of everything below."""
    options: dict[str, Any] = field(default_factory=dict)
    """The overrides that the grid was made with."""

    def select(self, **labels: Any) -> list[tuple[Entry, Result]]:
        """Return the finished runs whose labels have the given values, by seed."""
        found = self._finished
        for name, value in labels.items():
            found = [pair for pair in found if pair[0].labels.get(name) == value]
        return list(found)

    @cached_property
    def _finished(self) -> list[tuple[Entry, Result]]:
        found = [(entry, self.results[entry.key]) for entry in self.entries if entry.key in self.results]
        return sorted(found, key=lambda pair: pair[0].labels["seed"])

    def by_seed(self, **labels: Any) -> dict[int, tuple[Entry, Result]]:
        """Return the same by their seeds, of which each should have one."""
        return {entry.labels["seed"]: (entry, result) for entry, result in self.select(**labels)}

    @property
    def overrides(self) -> dict[str, Any]:
        """The options besides the seeds."""
        return {name: value for name, value in self.options.items() if name != "seeds"}

    @property
    def specs(self) -> list[RunSpec]:
        """Specifications of all entries."""
        return [entry.spec for entry in self.entries]

    def with_results(self, results: dict[str, Result]) -> Study:
        """Return the same study with these results."""
        return replace(self, results=results)

    @property
    def seeds(self) -> list[int]:
        """Seeds of the grid, ascending."""
        return sorted({entry.labels["seed"] for entry in self.entries})

    @property
    def stored_seeds(self) -> list[int]:
        """Those of which no run is missing."""
        missing = {entry.labels["seed"] for entry in self.entries if entry.key not in self.results}
        return [seed for seed in self.seeds if seed not in missing]

    def of(self, seeds: Iterable[int]) -> Study:
        """Return the same study of some of its seeds."""
        kept = sorted(seeds)
        entries = tuple(entry for entry in self.entries if entry.labels["seed"] in kept)
        results = {entry.key: self.results[entry.key] for entry in entries if entry.key in self.results}
        return replace(self, entries=entries, results=results, options=self.options | {"seeds": kept})

    @property
    def complete(self) -> bool:
        """Whether no run is missing."""
        return all(entry.key in self.results for entry in self.entries)

    @property
    def data_kind(self) -> str:
        """``"real"``, ``"surrogate"`` and so on, as the runs recorded it."""
        kinds = {self.results[e.key].provenance["data"] for e in self.entries if e.key in self.results}
        return " and ".join(sorted(kinds)) or kind_of(self.dataset)

    @property
    def data(self) -> str:
        """The data set, its kind, and in what it differs from the one that it is a copy of."""
        return described(self.dataset, self.data_kind)

    @property
    def verification(self) -> str:
        """How many of the finished runs are verified by this code, in words."""
        return in_words({key: self.results[key] for e in self.entries if (key := e.key) in self.results}.values())

    def command(self, notebook: str) -> str:
        """Return the papermill command that regenerates `notebook` with this study's profile and options."""
        words = [f"papermill {notebook} out.ipynb -p PROFILE {self.profile}"]
        if self.dataset != "fashion-mnist":
            words.append(f"-p DATASET {self.dataset}")
        for name, value in self.options.items():
            if isinstance(value, list | tuple):
                words.append(f"-y '{name.upper()}: {list(value)}'")
            else:
                words.append(f"-p {name.upper()} {value}")
        return " ".join(words)


def load_study(study: Study, store: Store) -> Study:
    """Return `study` with all results that `store` has."""
    specs = {entry.key: entry.spec for entry in study.entries}
    found = {key: store.get(spec) for key, spec in specs.items()}
    results = {key: result for key, result in found.items() if result is not None}
    return study.with_results(results)


def load_frame(results: Iterable[Result] | None = None) -> pd.DataFrame:
    """Return one row per run, by default of the whole store: hash, flat specification, final metrics, provenance."""
    return pd.json_normalize(
        [
            {"hash": result.spec.hash, **result.spec.to_dict(),
             "final": result.history.evaluation_frame().iloc[-1].to_dict(), "provenance": result.provenance,
             "standing": standing(result)}
            for result in (default_store() if results is None else results)
        ]
    )  # fmt: skip


def listed(numbers: Sequence[int]) -> str:
    """Return numbers as words: ``"0 to 9"`` or ``"1, 4 and 7"``."""
    if len(numbers) > 2 and list(numbers) == list(range(numbers[0], numbers[-1] + 1)):
        return f"{numbers[0]} to {numbers[-1]}"
    words = [str(number) for number in numbers]
    return " and ".join([", ".join(words[:-1])] * (len(words) > 1) + words[-1:])
