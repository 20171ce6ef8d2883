"""WKAFL's experiment: K-asynchronous learning with thousands of devices, by level of staleness and by label skew.

The runs behind Figures 2 and 5 to 10, Tables 2 and 3, and Appendix A: comparisons on data divided by Algorithm 4,
with true staleness, on shared memory (E30) and as released; ablations and comparison on data divided by writer or
celebrity; Zeno++, and Byzantine uploads. The paper prints few settings; those here stand in the authors' programs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import product
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
import pandas as pd
from pydantic import Field, field_validator

from fl_core.algorithms import GSGM, SASGD, TWAFL, WKAFL, KAsynchronous, ZenoPP
from fl_core.datasets import Natural, WKAFLPartition, all_sources, kind_of, stands_for
from fl_core.datasets.registry import state
from fl_core.experiments import calibration, experiment
from fl_core.experiments.measures import BySeed, Printed, remembered, unevenness
from fl_core.experiments.rounding import perturbed
from fl_core.experiments.run import Result
from fl_core.experiments.spec import RunSpec
from fl_core.experiments.study import Entry, Study
from fl_core.runtime import Budget, Evaluation, LocalTraining
from fl_core.world import Compute, ConstantCompute, ExponentialCompute, NamedWorld, UniformTaskCompute, World
from fl_papers.wkafl.theory import expected_run_staleness, stability

PRINTED = Printed(__file__)
"""Tables 2 and 3: the cell (task, P, K, labels per client), the method, the quantity, the number.

Accuracies are fractions; stability is the spread of the logarithm of the last ten accuracies, whose base the paper
does not give (A9). Two numbers of Table 2 occur again in another cell of Table 3, and one experiment has two values
(E24, E25).
"""
TASKS = {"fashion-mnist": "digits", "emnist-mnist": "digits", "cifar10": "cifar10"}
"""The task of the tables that a data set, real or surrogate, stands for."""
NAMES = {
    "cifar10": "CIFAR-10", "emnist-byclass": "EMNIST ByClass", "mnist-writers": "EMNIST ByClass", "celeba": "CelebA",
}  # fmt: skip
"""The paper's data sets; for any other it has EMNIST MNIST."""
MAIN = "fashion-mnist"  # Takes the place of EMNIST MNIST (E30).
MODES = {"copy": "true staleness", "aliased": "shared memory", "released": "as released"}
"""The paper's algorithm with true staleness and on shared memory (E30), and the authors' programs."""
SHARED: Mapping[str, Any] = {"client_snapshot": "aliased"}
RELEASED: dict[str, Mapping[str, Any]] = {
    "WKAFL": {
        **SHARED, "momentum_source": "aggregated", "selection_score": "similarity_times_staleness",
        "staleness_offset": 1, "stage_threshold": None,
    },
    "TWAFL": SHARED,
    "SASGD": SHARED,
    "GSGM": {**SHARED, "momentum_alpha": 0.0},
}  # fmt: skip
"""What the authors' programs for EMNIST MNIST do and the paper does not say (E2, E7, E9, E30, E31, E33); that this is
all is shown by `lockstep`."""
GSGM_FACTORS = (1.0, 0.1, 0.01)
TRIALS = (0.3, 1.0, 3.0)
"""Factors of its learning rate that each method is given where all are tuned alike."""
LAST = 10
"""Evaluations at the end that a final accuracy is the mean of (A19), and whose spread is the stability (A9)."""
IMAGE = 1e-4 / np.sqrt(12)  # Standard deviation that counting whole images of 10,000 adds to an accuracy.
EARLY = 0.2  # Part of the evaluations that training speed is measured on.
PLACE = ("clients", "aggregated", "labels")  # What says where in a table a run stands.

Snapshot = Literal["copy", "aliased", "released"]
Cell = Mapping[str, Any]
"""A place in a table, by the labels of its runs: P, K and labels per device, in one mode of staleness."""
Measure = Callable[[Result], float]


class Level(NamedTuple):
    """P and K; the paper calls P / K the level of staleness."""

    clients: int
    aggregated: int


class WKAFLWorld(NamedWorld):
    """WKAFL: thousands of equal devices; the time of a mini-batch gradient is random (A1, D8). Mean duration 1.

    `law`: "exponential" has the law of arrivals of the authors' programs; "shifted_exponential" is
    a (1 + exponential) with a factor a of each device, uniform on [0.2, 0.8]; "uniform" is on [0, 2].
    """

    name: ClassVar[str] = "wkafl"
    devices: int = Field(1000, ge=1)
    law: Literal["exponential", "shifted_exponential", "uniform", "constant"] = "exponential"

    def world(self) -> World:
        laws: dict[str, Compute] = {
            "exponential": ExponentialCompute(),
            "shifted_exponential": ExponentialCompute(shift=1.0, factors=(0.2, 0.8)),
            "uniform": UniformTaskCompute(),
            "constant": ConstantCompute(),
        }
        return World(devices=self.devices, compute=laws[self.law])


class Options(experiment.Options):
    """What a reader may change besides profile, data set and seeds."""

    mode: Literal["as_written", "as_released"] = "as_written"
    """``"as_released"``: what the authors' programs for EMNIST MNIST do, in place of the paper's algorithm."""
    snapshots: tuple[Snapshot, ...] | None = Field(None, min_length=1)
    """Modes of staleness; None: the profile's."""
    labels: tuple[Annotated[int, Field(ge=1, le=10)], ...] = Field((1, 5, 10), min_length=1)
    """Labels per device, ascending, where label skew is varied; the first one where staleness is."""
    lr_factors: tuple[Annotated[float, Field(ge=0.001, le=1000)], ...] = Field((1.0,), min_length=1)
    """Factors of all learning rates (A17)."""
    byzantine: float = Field(0.1, ge=0, le=1)
    """Share of uploads that are turned round and made ten times as long, where there are such."""
    model: str | None = None  # Another network.

    _sorted = field_validator("labels")(experiment.in_order)


@dataclass(frozen=True)
class Scale:
    """What a profile decides."""

    updates: int | None  # J; None: the paper's.
    shrink: int  # P is divided by this.
    evaluations: int  # Measurements of a run, evenly spaced.
    seeds: tuple[int, ...]
    zeno_updates: int  # Accepted gradients of Appendix A.
    snapshots: tuple[Snapshot, ...] = ("copy", "aliased")  # Modes of staleness.


SHORTER = Scale(1000, 1, 50, (0, 1, 2), 1500, ("copy",))
"""Profile ``laptop`` on the data sets beside the main one, which take hours: fewer updates, true staleness alone."""


@dataclass(frozen=True)
class Setup:
    """What the authors' programs do on a data set."""

    model: str  # The network at profile ``paper``; `reduced` is that at ``laptop``, and ``smoke`` has a linear model.
    reduced: str
    batch_size: int
    wkafl: Mapping[str, float]  # WKAFL's parameters.
    others: Mapping[str, Mapping[str, float]]  # Parameters of the other methods.
    updates: int  # J of the paper.
    stage2_share: float  # Part of J after which the second stage begins (A3, E32).
    levels: tuple[Level, ...]  # By rising staleness; more than one where Algorithm 4 divides the data.
    skew_level: Level  # The level at which label skew is varied.
    min_samples: int | None = None  # Devices are owners with so many samples; None: Algorithm 4.
    test_samples: int = 0  # Test samples of a measurement at the smaller profiles, spread evenly; 0: all.


def _wkafl(lr: float, gamma: float, bound: float, factor: float, beta: float) -> dict[str, float]:
    given = {"lr": lr, "lr_staleness_factor": gamma, "clip_bound": bound, "stage2_clip_factor": factor}
    return {**given, "sim_beta": beta, "sim_min": 0.3, "momentum_alpha": 0.1}


def _others(twafl: float, sasgd: float, gsgm: float, alpha: float) -> dict[str, dict[str, float]]:
    return {"TWAFL": {"lr": twafl}, "SASGD": {"lr": sasgd}, "GSGM": {"lr": gsgm, "momentum_alpha": alpha}}


DIGITS = Setup(
    "wkafl_cnn", "wkafl_cnn(width=0.25)", 4, _wkafl(0.005, 0.1, 100, 10, 10), _others(0.0005, 0.005, 0.005, 0.1),
    5000, 0.2, (Level(1000, 10), Level(3000, 20), Level(3000, 10)), Level(3000, 10),
)  # fmt: skip


class Method(NamedTuple):
    """An algorithm, for an ablation of WKAFL with what it lacks."""

    algorithm: type[KAsynchronous]
    without: str | None = None


METHODS = {
    "WKAFL": Method(WKAFL),
    "TWAFL": Method(TWAFL),
    "SASGD": Method(SASGD),
    "GSGM": Method(GSGM),
    "Zeno++": Method(ZenoPP),
    "No Grad-Sel": Method(WKAFL, "selection"),
    "No Staleness": Method(WKAFL, "staleness"),
    "No Non-IIDness": Method(WKAFL, "non_iidness"),
}
COMPARED = ("WKAFL", "TWAFL", "SASGD", "GSGM")
ABLATIONS = tuple(name for name, method in METHODS.items() if method.without)


class WKAFLExperiment(experiment.Experiment):
    """The runs of all figures and tables; each of them is laid out by :meth:`entry`."""

    OPTIONS = Options
    PROFILES = {
        "smoke": Scale(30, 10, 10, (0,), 30),
        "laptop": Scale(1500, 1, 60, (0, 1, 2), 1500),
        "paper": Scale(None, 1, 100, (0, 1, 2), 1500),
    }
    SETUPS = {
        MAIN: DIGITS,
        "emnist-mnist": DIGITS,
        "cifar10": Setup(
            "lenet5", "lenet5", 8, _wkafl(0.0005, 0.01, 70, 5, 50), _others(0.0005, 0.0005, 0.0005, 0.1),
            10_000, 0.35, (Level(1000, 20), Level(3000, 20), Level(3000, 10)), Level(3000, 20),
        ),
        "emnist-byclass": Setup(
            "wkafl_cnn", "wkafl_cnn(width=0.25)", 16, _wkafl(0.005, 0.1, 100, 10, 10),
            _others(0.001, 0.001, 0.001, 0.9), 10_000, 0.5, (Level(3000, 20),), Level(3000, 20), 16, 10_000,
        ),
        "mnist-writers": Setup(  # a companion of EMNIST ByClass, with its parameters: fewer writers, ten digits
            "wkafl_cnn", "wkafl_cnn(width=0.25)", 16, _wkafl(0.005, 0.1, 100, 10, 10),
            _others(0.001, 0.001, 0.001, 0.9), 10_000, 0.5, (Level(500, 10),), Level(500, 10), 16,
        ),
        "celeba": Setup(
            "celeba_cnn", "celeba_cnn", 4, _wkafl(0.0001, 0.05, 500, 5, 20), _others(0.0001, 0.00001, 1e-7, 0.9),
            5000, 0.2, (Level(2000, 15),), Level(2000, 15), 1,
            2_000,  # with a quarter of its ten filters no method left guessing in 1,000 updates
        ),
    }  # fmt: skip

    def __init__(self, profile: str, dataset: str, seeds: Sequence[int] | None = None, **overrides: Any) -> None:
        super().__init__(profile, dataset, seeds, **overrides)
        if profile == "laptop" and dataset != MAIN:
            self.scale = SHORTER
        networks = {"paper": self.setup.model, "laptop": self.setup.reduced, "smoke": "linear"}
        self.model = self.options.model or networks[profile]
        self.snapshots = self.options.snapshots or self.scale.snapshots
        if self.options.mode == "as_released":
            self.snapshots = ("released",)
        self.updates = self.scale.updates or self.setup.updates
        self.owners = self.setup.min_samples is not None

    def comparison(self) -> Iterator[Entry]:
        """Yield the runs of Tables 2 and 3 and Figures 7 to 10: by level, by labels per device, in both modes.

        Where devices are owners of data there is one cell, that of Figure 6; on CIFAR-10 also its network on pooled
        data, the run by which the surrogate was calibrated (C30).
        """
        if self.setup is self.SETUPS["cifar10"]:
            [known] = [each for each in calibration.REFERENCES if each.dataset == "cifar10"]
            spec = calibration.entries(known)[0].spec.changed(dataset=self.dataset)
            yield Entry(spec, {"method": "SGD", "role": "reference", "seed": self.seeds[0]})
        skewed, first = self.setup.skew_level, self.options.labels[0]
        cells = [(level, first) for level in self.setup.levels]
        cells += [] if self.owners else [(skewed, labels) for labels in self.options.labels]
        varied = product(self.seeds, self.snapshots, self.options.lr_factors, dict.fromkeys(cells), COMPARED)
        for seed, snapshot, factor, (level, labels), method in varied:
            if method != "GSGM" or level == skewed:  # as in Table 3 and Figure 6
                yield self.entry(method, level, labels, seed, snapshot=snapshot, factor=factor)

    def ablations(self) -> Iterator[Entry]:
        """Yield the runs of Figure 5: WKAFL and, one by one, without its three components."""
        level, labels = self.setup.skew_level, self.options.labels[0]
        for seed, snapshot, method in product(self.seeds, self.snapshots, ("WKAFL", *ABLATIONS)):
            yield self.entry(method, level, labels, seed, snapshot=snapshot)

    def motivation(self) -> Iterator[Entry]:
        """Yield the runs of Figure 2 a: staleness weights and momentum alone, at a constant learning rate (A13)."""
        level, constant = self.setup.levels[0], {"lr_staleness_factor": 0.0}
        yield from (self.entry("No Grad-Sel", level, 1, s, role="motivation", changed=constant) for s in self.seeds)

    def byzantine(self) -> Iterator[Entry]:
        """Yield the runs of Appendix A (P = 100, one label), without and with Byzantine uploads."""
        both = ("WKAFL", Level(100, 10)), ("Zeno++", Level(100, 1))
        for seed, share, (method, level) in product(self.seeds, dict.fromkeys((0.0, self.options.byzantine)), both):
            yield self.entry(method, level, 1, seed, role="byzantine", share=share)

    def gsgm_rates(self) -> Iterator[Entry]:
        """Yield GSGM's runs of Table 3 with true staleness, at its learning rate and at smaller ones (A17)."""
        varied = self.options.labels[: 1 if self.owners else None]
        for seed, labels, factor in product(self.seeds, varied, GSGM_FACTORS):
            yield self.entry("GSGM", self.setup.skew_level, labels, seed, factor=factor)

    def tuned(self) -> Iterator[Entry]:
        """Yield all methods with true staleness and the fewest labels, with equally many learning rates each."""
        for seed, factor, method in product(self.seeds, TRIALS, COMPARED):
            yield self.entry(method, self.setup.skew_level, self.options.labels[0], seed, factor=factor)

    def luck(self) -> Iterator[Entry]:
        """Yield WKAFL's runs of the first cell with true staleness, and again from perturbed initial models."""
        level, labels = self.setup.levels[0], self.options.labels[0]
        yield from perturbed(self.entry("WKAFL", level, labels, seed) for seed in self.seeds)

    def in_all_modes(self) -> Iterator[Entry]:
        """Yield the runs of :meth:`comparison` in all of :data:`MODES`."""
        other = copy(self)
        other.snapshots = ("copy", "aliased", "released")
        yield from other.comparison()

    def scaled(self, level: Level) -> Level:
        """Return a level with as many clients as the profile has."""
        return Level(max(level.aggregated, level.clients // self.scale.shrink), level.aggregated)

    def entry(
        self, method: str, level: Level, labels: int, seed: int, *, snapshot: str = "copy", factor: float = 1.0,
        role: str = "curve", share: float = 0.0, changed: Mapping[str, float] | None = None,
    ) -> Entry:  # fmt: skip
        """Return one run with its labels; `share` of the uploads is Byzantine, `changed` are parameters of WKAFL."""
        clients, count = self.scaled(level)
        kind = METHODS[method].algorithm
        mode = RELEASED[kind.__name__] if snapshot == "released" else {"client_snapshot": snapshot}
        updates = self.scale.zeno_updates if role == "byzantine" else self.updates
        faults = [{"kind": "corrupted", "how": "scaled", "factor": -10.0, "probability": share}] if share else []
        owned = Natural(min_samples=self.setup.min_samples) if self.owners else None
        seconds = 20.0 * updates / clients if role == "byzantine" else None  # Zeno++ may reject without end
        parameters = {**self.parameters(method, updates, factor, changed or {}), **mode}
        spec = RunSpec(
            dataset=self.dataset, partition=owned or WKAFLPartition(labels_per_device=labels), model=self.model,
            initialisation="pytorch", preprocessing="wkafl", seed=seed,
            world=World.named("wkafl", devices=clients, faults=faults),
            algorithm=kind(num_aggregated=count, **parameters), budget=Budget(updates=updates, seconds=seconds),
            training=LocalTraining(batch_size=self.setup.batch_size),
            evaluation=Evaluation(
                every_updates=max(1, updates // self.scale.evaluations),
                test_samples=0 if self.profile == "paper" else self.setup.test_samples,
            ),
        )  # fmt: skip
        given = {"method": method, "clients": clients, "aggregated": count, "level": clients / count, "role": role}
        where = {"labels": None if self.owners else labels, "snapshot": snapshot, "lr_factor": factor}
        return Entry(spec, {**given, **where, "byzantine": share, "seed": seed})

    def parameters(self, method: str, updates: int, factor: float, changed: Mapping[str, float]) -> dict[str, Any]:
        """Return the parameters of a method besides K and mode, with `factor` times its learning rate."""
        algorithm, without = METHODS[method]
        if algorithm is WKAFL:
            begins = max(1, round(self.setup.stage2_share * updates))
            stage = {"without": without, "stage_rule": "iteration", "stage_threshold": begins}
            return {**self.setup.wkafl, **changed, "lr": factor * self.setup.wkafl["lr"], **stage}
        own = self.setup.others.get(method, {})  # Zeno++ has its own defaults
        return {name: factor * value if name == "lr" else value for name, value in own.items()}

    def setting(self) -> pd.DataFrame:
        """Return the paper's setting beside ours, by quantity; "code": stated by the authors' programs only."""
        chosen, setup, scale, updates = self.options, self.setup, self.scale, self.updates
        parameters, skewed = setup.wkafl, setup.skew_level
        others = ", ".join(f"{name} {own['lr']:g}" for name, own in setup.others.items())
        factors = "" if chosen.lr_factors == (1.0,) else f", times {', '.join(map(str, chosen.lr_factors))}"
        here, source = [self.scaled(level) for level in setup.levels], all_sources().get(self.dataset)
        devices = [
            ("division", "one owner per client", f"owners with at least {setup.min_samples} images"),
        ] if self.owners else [
            ("division", "Algorithm 4, 10 to 49 images per client", "the same"),
            ("labels per client", "1, 5, 10; Table 2: not stated",
             f"{', '.join(map(str, chosen.labels))}; Table 2: {chosen.labels[0]}"),
            ("label skew is varied at", f"P = {skewed.clients:,}, K = {skewed.aggregated}",
             f"P = {self.scaled(skewed).clients:,}, K = {skewed.aggregated}"),
        ]  # fmt: skip
        rows = [
            ("data", NAMES.get(stands_for(self.dataset), "EMNIST MNIST"),
             f"{self.dataset} ({state(source) if source else kind_of(self.dataset)})"),
            ("pixels", "0 to 255 (code)", "0 to 255"),
            ("network", setup.model, self.model),
            ("P/K (P, K)",
             *("; ".join(f"{p // k:,} ({p:,}, {k})" for p, k in each) for each in (setup.levels, here))),
            *devices,
            ("time of a gradient", "none: K of P at random (code)", "exponential, mean 1 s: the same process"),
            ("mini-batch", f"{setup.batch_size} (code)", f"{setup.batch_size}"),
            ("learning rate η₀ of WKAFL", f"{parameters['lr']:g} (code)", f"{parameters['lr']:g}{factors}"),
            ("of the others", f"{others} (code)", f"{others}{factors}"),
            ("γ, CB, B, β", "{lr_staleness_factor:g}, {clip_bound:g}, {stage2_clip_factor:g}, {sim_beta:g} (code)"
             .format(**parameters), "the same"),
            ("α, sim_min", "{momentum_alpha:g}, {sim_min:g} (code)".format(**parameters), "the same"),
            ("α of GSGM", *(f"{setup.others['GSGM']['momentum_alpha']:g}{code}" for code in (" (code)", ""))),
            ("updates J", f"{setup.updates:,} (code)", f"{updates:,}"),
            ("second stage from", f"update {round(setup.stage2_share * setup.updates):,} (code; text: a loss)",
             f"update {max(1, round(setup.stage2_share * updates)):,}"),
            ("mean staleness of a run",
             *("; ".join(f"{expected_run_staleness(p, k, length):.0f}" for p, k in each)
               for each, length in ((setup.levels, setup.updates), (here, updates)))),
            ("measured", "100 times, on CelebA 50 (code)",
             f"{scale.evaluations} times; final accuracy and stability: the last 10"),
            ("test images", "all (code: but the last partial batch)",
             f"{setup.test_samples:,} of them" if setup.test_samples and self.profile != "paper" else "all"),
            ("staleness", "true; the programs share memory", " and ".join(MODES[mode] for mode in self.snapshots)),
            ("Appendix A", "P = 100, 1,500 accepted gradients (code)",
             f"P = {self.scaled(Level(100, 10)).clients}, {scale.zeno_updates:,} updates; "
             f"Byzantine: {100 * chosen.byzantine:g}% of the uploads, times −10"),
            ("repetitions", "not stated (code: 1)", f"{len(self.seeds)}"),
        ]  # fmt: skip
        return pd.DataFrame(rows, columns=["setting", "the paper", f"here, profile {self.profile}"])


def task_of(dataset: str) -> str | None:
    """Return the paper's task that a data set stands for, or None."""
    return TASKS.get(stands_for(dataset))


# Readings of runs


def measurements(result: Result) -> pd.DataFrame:
    """Return the evaluations, one for each version; of two of the last one, that on the usual test samples."""
    return pd.DataFrame(result.history.evaluations).drop_duplicates("version")


@remembered
def accuracies(result: Result) -> list[float]:
    """Return the measured accuracies, without that of the initial model."""
    return measurements(result)["test_accuracy"].tolist()[1:]


@remembered
def final(result: Result) -> float:
    """Return the final accuracy: the mean of the last ten (A19)."""
    return float(np.mean(accuracies(result)[-LAST:]))


@remembered
def early(result: Result) -> float:
    """Return the mean accuracy over the first fifth of the evaluations: the speed of training (2.8)."""
    values = accuracies(result)
    return float(np.mean(values[: max(1, round(EARLY * len(values)))]))


def unrest(result: Result) -> float:
    """Return the stability, which is large where training is not stable (2.8); NaN for fewer than ten evaluations."""
    values = accuracies(result)[-LAST:]
    if len(set(values)) == 1 and len(values) == LAST:
        return 0.0  # not the rounding error of a mean
    return stability(values, LAST) if len(values) == LAST and min(values) > 0 else float("nan")


@remembered
def uneven(result: Result) -> float:
    """Return the same without the trend: about a rising fit, and never below what rounding to test images makes."""
    values = np.array(accuracies(result)[-LAST:])
    if len(values) < LAST or values.min() <= 0:
        return float("nan")
    return float(np.hypot(unevenness(np.log(values)), IMAGE / values.mean()))


def measured(study: Study, measure: Measure, method: str, cell: Cell, factor: float = 1.0) -> BySeed:
    """Return `measure` by seed of the runs of `method` in `cell`, at so many times the authors' learning rates."""
    found = study.select(method=method, lr_factor=factor, **cell)
    return BySeed.of(found, lambda entry, result: measure(result))


def levels(study: Study, snapshot: str) -> list[Cell]:
    """Return the cells of Table 2 that `study` has, by rising staleness: those with the fewest labels per device."""
    found = _cells(study, snapshot, "WKAFL")
    fewest = min((cell["labels"] or 0 for cell in found), default=0)
    return sorted((c for c in found if (c["labels"] or 0) == fewest), key=lambda c: c["clients"] / c["aggregated"])


def skews(study: Study, snapshot: str) -> list[Cell]:
    """Return the cells of Table 3, where GSGM is run, by rising number of labels per device."""
    return sorted(_cells(study, snapshot, "GSGM"), key=lambda cell: cell["labels"] or 0)


def _cells(study: Study, snapshot: str, method: str) -> list[Cell]:
    runs = study.select(method=method, role="curve", snapshot=snapshot)
    places = dict.fromkeys(tuple(entry.labels[name] for name in PLACE) for entry, _ in runs)
    return [{**dict(zip(PLACE, place, strict=True)), "snapshot": snapshot, "role": "curve"} for place in places]


def name_of(cell: Cell) -> str:
    """Return a cell in words."""
    if cell["role"] == "byzantine":
        return f"{100 * cell['byzantine']:g}% Byzantine uploads" if cell["byzantine"] else "no Byzantine uploads"
    level = f"P/K = {cell['clients'] / cell['aggregated']:g}"
    return level if cell["labels"] is None else f"{level}, {cell['labels']} label{'s' if cell['labels'] > 1 else ''}"
