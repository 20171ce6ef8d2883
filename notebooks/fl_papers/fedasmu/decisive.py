"""The decisive experiment on FedASMU, declared before it runs: a setting, equal tuning, fresh seeds.

(A) FedAvg and FedAsync alone look for a setting of what the paper leaves open in which both of their printed rows
come out. (B) In the nearest setting, and if it is none, in that of the tables, too, every method gets as many trials,
of which the training loss chooses. (C) Fresh seeds judge the winners, and FedASMU's parts one by one. A and B are by
successive halving: what is laid out next follows from the records of what was, so that nobody chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from math import ceil, inf, log
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pandas as pd

from fl_core.experiments.evidence import POINTS, RATIO, Effect
from fl_core.experiments.grid import plan
from fl_core.experiments.measures import BySeed, passage, passages
from fl_core.experiments.run import Result
from fl_core.experiments.store import Store, default_store
from fl_core.experiments.study import Entry, Study
from fl_papers.fedasmu.experiment import BATCH, COLUMNS, LR_DECAY, METHODS, SYNCHRONOUS, FedASMUExperiment
from fl_papers.fedasmu.figures import WIDTH, final_accuracy, readings
from fl_papers.fedasmu.tables import number

COLUMN, SEARCHED = "lenet-fmnist", ("FedAvg", "FedAsync")
RATIO_OF_TIMES = "time, FedAvg over FedAsync"
COMPARED = tuple(method for method in METHODS if method != "FedSA")  # FedSA is a reconstruction.
SEARCH_SEED, TRIAL_SEED, FRESH_SEEDS = 100, 101, (110, 111, 112, 113, 114)  # No seed chooses and judges.
SEARCH = (24, 0.1), (12, 0.3), (3, 1.0)
"""Candidates of each step of A, and the part of all uploads that they get; `TRIALS`: of B."""
TRIALS = (9, 0.1), (3, 0.3)
CLOSE, ALIKE = 0.02, 1.25  # An accuracy, and a ratio of times, that count as the printed ones.
LOSS_IMAGES = 5_000  # Training images on which B's trials are compared: no test image chooses.
OWN: Mapping[str, tuple[str, tuple[float, ...]]] = {
    "FedProx": ("mu", (0.001, 0.01, 0.1)),
    "MOON": ("mu", (0.1, 1.0, 5.0)),
    "FedDyn": ("alpha", (0.001, 0.01, 0.1)),
    "FedAsync": ("alpha", (0.3, 0.6, 0.9)),
    "PORT": ("min_uploads", (3, 5, 10)),
    "FedBuff": ("buffer", (3, 5, 10)),
    "FedASMU": ("scale", (0.25, 1.0, 4.0)),
}
"""What is tried of a method, three values with each of three step sizes; one without gets nine step sizes. `scale` is
one of lambda_0 and gamma_0, which make a Latin square with the step sizes."""
FIXED: dict[str, Any] = {"lr_gamma": 0.0, "lr_upsilon": 0.0, "slot": "middle"}
LADDER: dict[str, dict[str, Any]] = {
    "weights of FedAsync": {"server_weight": "fedasync_poly", "slot": "none"},
    "and the schedule": {"server_weight": "frozen_xi", "slot": "none"},
    "and fresh models": {"server_weight": "frozen_xi", **FIXED},
    "and weights that learn": {"slot": "middle"},
}
"""FedASMU's winner without its parts, each with one more; with slots that learn it is FedASMU."""

T = TypeVar("T", bound=Hashable)


class Place(NamedTuple):
    """A setting of what the paper leaves open; the defaults are those of the tables."""

    epochs: int = 5
    batch: int = BATCH
    dirichlet: float = 0.5
    ticks: str = "tables"
    decay: float = LR_DECAY

    def __str__(self) -> str:
        own = f"E = {self.epochs}, batch {self.batch}, Dirichlet {self.dirichlet:g}"
        return f"{own}, ticks as in the {self.ticks}, decay {self.decay:g}"


class Trial(NamedTuple):
    """What is tried: a factor of the step size; the method's own value, or factors of lambda_0 and gamma_0."""

    lr: float = 1.0
    value: float | None = None
    gamma: float = 1.0


TICKS = "tables", "text"  # They change the time by less than 1 % (E20): what is left after a step is tried with both.
PLACES = tuple(Place(*values) for values in product((2, 5, 10), (16, BATCH), (0.1, 0.5), TICKS[:1], (0.99, LR_DECAY)))
"""Candidates that A begins with."""


def trials(method: str) -> list[Trial]:
    """Return the nine trials of a method."""
    if method not in OWN:
        return [Trial(3 ** (power / 2)) for power in range(-4, 5)]
    rates, (name, values) = (1 / 3, 1.0, 3.0), OWN[method]
    square = [(i, j) for i in range(3) for j in range(3)]
    return [Trial(rates[i], values[j], values[(i + j) % 3] if name == "scale" else 1.0) for i, j in square]


class Decisive(FedASMUExperiment):
    """The three stages, each as far as the records of the one before say what is next.

    With `assumed` the first candidates are taken to win where records are lacking, so that all of it can be counted.
    """

    assumed = False

    def default_seeds(self) -> Sequence[int]:
        """Return the seeds that judge."""
        return FRESH_SEEDS[: 1 if self.profile == "smoke" else None]

    def search(self) -> Iterator[Entry]:
        """Yield A."""
        yield from self._searched()[1]

    def tuning(self) -> Iterator[Entry]:
        """Yield B."""
        for place in self.places():
            for method in self.methods:
                yield from self._tuned(place, method)[1]

    def judged(self) -> Iterator[Entry]:
        """Yield C."""
        for place, seed in product(self.places(), self.seeds):
            won = {method: self._tuned(place, method)[0][:1] for method in self.methods}
            for method, found in won.items():
                yield from (self._run(place, method, seed, 1.0, trial, "C") for trial in found)
            for name, changed in LADDER.items() if self.profile != "smoke" else ():
                for trial in won["FedASMU"]:
                    yield self._run(place, "FedASMU", seed, 1.0, trial, "C", name, **changed)

    @property
    def methods(self) -> tuple[str, ...]:
        """Return what is compared."""
        return COMPARED[:2] if self.profile == "smoke" else COMPARED

    def places(self) -> list[Place]:
        """Return where B and C are: in the nearest setting, and in the tables' unless that has the printed rows."""
        left, entries = self._searched()
        if not left:
            return []
        best = [self._result(e) for e in entries if e.labels["place"] == str(left[0]) and e.labels["part"] == 1.0]
        found = None not in best and comes_out([result for result in best if result])
        return [left[0]] if found else list(dict.fromkeys([left[0], Place()]))

    def _searched(self) -> tuple[list[Place], list[Entry]]:
        left, first = self._halved(PLACES, SEARCH[:1], self._pair, distance)
        both = [place._replace(ticks=ticks) for place in left[: SEARCH[1][0] // len(TICKS)] for ticks in TICKS]
        left, entries = self._halved(both, SEARCH[1:], self._pair, distance) if both else (both, [])
        return left, first + entries

    def _pair(self, place: Place, part: float) -> list[Entry]:
        return [self._run(place, method, SEARCH_SEED, part, Trial(), "A") for method in SEARCHED]

    def _tuned(self, place: Place, method: str) -> tuple[list[Trial], list[Entry]]:
        def one(trial: Trial, part: float) -> list[Entry]:
            return [self._run(place, method, TRIAL_SEED, part, trial, "B")]

        return self._halved(trials(method), TRIALS, one, loss)

    def _halved(
        self, candidates: Sequence[T], steps: Iterable[tuple[int, float]],
        runs: Callable[[T, float], list[Entry]], score: Callable[[Sequence[Result]], float],
    ) -> tuple[list[T], list[Entry]]:  # fmt: skip
        """Return what is left in the end, best first (nothing before all runs are there), and all runs so far."""
        left, entries = list(candidates)[: 2 if self.profile == "smoke" else None], list[Entry]()
        for count, part in steps:
            made = {each: runs(each, part) for each in left[:count]}
            entries += [entry for each in made.values() for entry in each]
            found = {each: [self._result(entry) for entry in own] for each, own in made.items()}
            if any(result is None for own in found.values() for result in own):
                if not self.assumed:
                    return [], entries
                left = list(made)
            else:
                scores = {each: score([result for result in own if result]) for each, own in found.items()}
                left = sorted(scores, key=lambda each: scores[each])
        return left, entries

    def _result(self, entry: Entry) -> Result | None:
        return default_store().get(entry.spec)

    def _run(
        self, place: Place, method: str, seed: int, part: float, trial: Trial, stage: str, rung: str = "",
        **algorithm: Any,
    ) -> Entry:  # fmt: skip
        """Return one run: `method` in a setting with what is tried, for a part of the uploads."""
        ticks = Place().ticks if method in SYNCHRONOUS else place.ticks  # A round waits for none; one run is for both
        chosen = {"epochs": place.epochs, "dirichlet": place.dirichlet, "ticks": ticks}
        there = FedASMUExperiment(self.profile, self.dataset, [seed], **{**dict(self.options), **chosen})
        own = None if method == "FedASMU" or trial.value is None else OWN[method][0]
        spec = there.entry(method, COLUMN, seed, own, trial.value).spec
        training, kind, budget = spec.training, type(spec.algorithm), spec.budget
        if method == "FedASMU":
            start = dict(spec.algorithm)["lambda_0"]
            scaled = {"lambda_0": start * (trial.value or 1.0), "gamma_0": start * trial.gamma}
            algorithm = {name: value for name, value in (scaled | algorithm).items() if name in kind.model_fields}
        counted, total = next((name, value) for name, value in budget if value)
        spec = spec.changed(
            **{f"algorithm.{name}": value for name, value in algorithm.items()},
            **{
                "training.batch_size": place.batch, "training.lr": training.lr * trial.lr,
                "training.lr_decay": place.decay ** (log(training.lr_decay) / log(LR_DECAY)),
                f"budget.{counted}": max(1, round(part * total)),
                "evaluation.train_samples": LOSS_IMAGES if stage == "B" else 0,
            },
        )  # fmt: skip
        labels = {"method": method, "stage": stage, "rung": rung, "place": str(place), "part": part, "seed": seed}
        return Entry(spec, labels | trial._asdict())


# What A and B choose by


def measured(results: Sequence[Result]) -> tuple[float, float, float]:
    """Return both accuracies of A at the end, and the times to what both get to: FedAvg's over FedAsync's."""
    ends = [final_accuracy(result) for result in results]
    at = [passage(*readings(result), min(ends) - POINTS.delta, width=WIDTH).at for result in results]
    return ends[0], ends[1], at[0] / at[1] if at[1] else inf


def expected() -> tuple[float, float, float]:
    """Return what is printed of them."""
    accuracy, time = ([number(COLUMN, method, what) or inf for method in SEARCHED] for what in ("accuracy", "time"))
    return accuracy[0], accuracy[1], time[0] / time[1]


def distance(results: Sequence[Result]) -> float:
    """Return how far FedAsync's lead is from the printed one, in accuracy and in time, in units of what is close.

    Not how far the accuracies are: a part of the uploads cannot get to them.
    """
    (avg, own, ratio), (printed_avg, printed_own, printed_ratio) = measured(results), expected()
    lead = abs((own - avg) - (printed_own - printed_avg)) / CLOSE
    return lead + abs(log(max(ratio, 1e-9)) - log(printed_ratio)) / log(ALIKE)


def comes_out(results: Sequence[Result]) -> bool:
    """Return whether both printed rows come out: each accuracy, and the ratio of times."""
    found, printed = measured(results), expected()
    accurate = all(abs(a - b) <= CLOSE for a, b in zip(found[:2], printed[:2], strict=True))
    return accurate and abs(log(max(found[2], 1e-9) / printed[2])) <= log(ALIKE)


def loss(results: Sequence[Result]) -> float:
    """Return the mean training loss of the last tenth of the measurements."""
    values = np.array(results[0].history.evaluations["train_loss"], dtype=float)
    mean = float(values[-ceil(len(values) / 10) :].mean())
    return mean if np.isfinite(mean) else inf


# What is shown


def declared(profile: str = "paper", store: Store | None = None) -> pd.DataFrame:
    """Return all stages, as if the first candidates won what has no records: runs, and the cost of those to go."""
    experiment, rows = Decisive(profile, "fashion-mnist"), []
    experiment.assumed = True
    for stage, make in (("A", experiment.search), ("B", experiment.tuning), ("C", experiment.judged)):
        entries = list(make())
        for part in dict.fromkeys(entry.labels["part"] for entry in entries):
            specs = {entry.spec.hash: entry.spec for entry in entries if entry.labels["part"] == part}.values()
            rows.append((stage, part, len(specs), round(plan(specs, store).core_seconds / 3600, 1)))
    return pd.DataFrame(rows, columns=["stage", "part of the uploads", "runs", "core-hours to go"])


def search_table(study: Study) -> pd.DataFrame:
    """Return what A has found, the nearest settings of the longest runs first."""
    rows = []
    for place, part in dict.fromkeys((entry.labels["place"], entry.labels["part"]) for entry, _ in study.select()):
        found = [study.select(stage="A", place=place, part=part, method=method) for method in SEARCHED]
        if all(found):
            results = [own[0][1] for own in found]
            values: dict[str, Any] = dict(zip((*SEARCHED, RATIO_OF_TIMES), measured(results), strict=True))
            out = "yes" if part == 1.0 and comes_out(results) else "no"
            values |= {"distance": distance(results), "printed rows": out}
            rows.append({"setting": place, "part": part, **values})
    columns = ["setting", "part", *SEARCHED, RATIO_OF_TIMES, "distance", "printed rows"]
    return pd.DataFrame(rows, columns=columns).sort_values(["part", "distance"], ascending=[False, True])


def outcome(study: Study) -> str:
    """Return in words what A has found so far, step by step, with what is printed."""
    table, (avg, own, ratio) = search_table(study), expected()
    words = "FedAsync's lead in accuracy, and FedAvg's time over FedAsync's: "
    words += f"{100 * (own - avg):+.1f} points, {ratio:.2f} times (printed)"
    for part in sorted({*table["part"]}):
        found = table[table["part"] == part]
        leads, times = 100 * (found["FedAsync"] - found["FedAvg"]), found[RATIO_OF_TIMES]
        words += f"; {leads.min():+.1f} to {leads.max():+.1f} points, {times.min():.2f} to {times.max():.2f} times"
        words += f" ({len(found)} settings, {100 * part:g} % of the uploads)"
    if len(whole := table[table["part"] == 1.0]):
        out = "; ".join(whole[whole["printed rows"] == "yes"]["setting"])
        words += f". The printed rows come out {f'with {out}' if out else 'in none of the last'}"
    return words + "."


def tuning_table(study: Study) -> pd.DataFrame:
    """Return B's trials by setting and method, the lowest loss of the longest runs first."""
    own = ["place", "method", "part", "lr", "value", "gamma"]
    runs = study.select(stage="B")
    rows = [(*(entry.labels[name] for name in own), loss([run]), final_accuracy(run)) for entry, run in runs]
    frame = pd.DataFrame(rows, columns=[*own, "training loss", "accuracy"])
    return frame.sort_values([*own[:3], "training loss"], ascending=[True, True, False, True])


def effects(study: Study) -> list[Effect]:
    """Return C: FedASMU against each winner, and each rung against the one before, in three endpoints.

    Accuracy after as many uploads, accuracy when FedASMU has finished, and the time to the table's target.
    """
    found = []
    for place in dict.fromkeys(entry.labels["place"] for entry, _ in study.select(stage="C")):
        runs = {
            key: study.by_seed(stage="C", place=place, method=key[0], rung=key[1])
            for key in [*((method, "") for method in COMPARED), *(("FedASMU", rung) for rung in LADDER)]
        }
        ends = {seed: readings(result)[0][-1] for seed, (_, result) in runs["FedASMU", ""].items()}
        steps = [("FedASMU", rung) for rung in LADDER] + [("FedASMU", "")]
        pairs = [(("FedASMU", ""), (method, "")) for method in COMPARED[1:]]
        for left, right in [*pairs, *zip(steps[1:], steps, strict=False)]:
            names = [" ".join(filter(None, key)) for key in (left, right)]
            both = [runs[left], runs[right]]
            full = [BySeed.of(side.values(), lambda _, result: final_accuracy(result)) for side in both]
            part = [
                BySeed({s: final_accuracy(r, ends[s]) for s, (_, r) in side.items() if s in ends}) for side in both
            ]
            times = [passages(list(side.values()), readings, COLUMNS[COLUMN].target, width=WIDTH) for side in both]
            name = f"{place}: {{}}, {names[0]} against {names[1]}"
            found += [
                Effect(name.format("accuracy, equal uploads"), full[0], full[1], POINTS),
                Effect(name.format("accuracy, equal time"), part[0], part[1], POINTS),
                Effect(name.format("time"), times[0], times[1], RATIO, "less"),
            ]
    return [effect for effect in found if effect.seeds]


def judged_table(study: Study) -> pd.DataFrame:
    """Return C's effects, each alone by its planned look."""
    rows = []
    for effect in effects(study):
        value, interval, claimed = effect.words()
        row = {"compared": effect.name, "effect": value, "interval": interval, "claimed": claimed}
        rows.append(row | {"direction": effect.direction, "seeds": effect.look or len(effect.seeds)})
    return pd.DataFrame(rows, columns=["compared", "effect", "interval", "claimed", "direction", "seeds"])
