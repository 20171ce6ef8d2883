"""The runs behind FedLuck's Figures 1 to 3 and Tables 1 and 2 (specification, section 6).

Seven methods on the paper's world of ten devices, with independent and with Dirichlet-distributed labels; FedPer on
five devices over local steps k and kept fraction delta (Figure 1); and FedLuck with other periods and in variants.
The seven methods have the paper's own setting on Fashion-MNIST from profile ``laptop`` on. Everything else has a
narrower network there, and the two larger tasks shorter horizons. A narrower network gets links as much slower, so
that every upload takes the paper's time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from itertools import product
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
import pandas as pd
from pydantic import Field, field_validator

from fl_core.algorithms import Algorithm, FedAsync, FedAvgTopK, FedBuff, FedLuck, FedPer
from fl_core.datasets import IID, PRESETS, Dirichlet, load_dataset
from fl_core.experiments.experiment import Experiment, Options, in_order
from fl_core.experiments.rounding import SIZES, perturbed
from fl_core.experiments.run import Result
from fl_core.experiments.spec import RunSpec
from fl_core.experiments.store import default_store
from fl_core.experiments.study import Entry
from fl_core.formulas.compression import Identity, TopK
from fl_core.formulas.staleness import Constant
from fl_core.models import num_parameters
from fl_core.runtime import Budget, Evaluation, LocalTraining
from fl_core.world import Compute, NamedWorld, Network, TraceCompute, UniformBandwidth, UniformCompute, World
from fl_core.world.triggers import Continuous

DEVICES, FEWER_DEVICES = 10, 5  # Devices of all experiments, and of Figure 1.
TRAIN_FRACTION = 0.8  # Part of its samples that a device trains on (A3).
MOMENTUM = 0.9
LABELS: dict[str, str] = {"iid": "independent labels", "dirichlet": "Dirichlet labels"}
"""The two partitions, as the tables and figures call them."""
BASELINES = ("FedPer", "FedBuff", "FedAsync", "FedAvg+TopK")
SINGLE = ("frequency only", "compression only")
"""Table 2's methods that optimise one variable, by what they optimise (E12)."""
METHODS = ("FedLuck", *BASELINES, *SINGLE)
CLASSES = 10
BITS_PER_MIB = 8 * 2**20


class FedLuckWorld(NamedWorld):
    """FedLuck: few devices, always training, slow to compute and to send; downloads are free (6.2, A10 to A12)."""

    name: ClassVar[str] = "fedluck"
    devices: int = Field(10, ge=2)
    """Number of devices, at least 2: 10, and 5 in one figure."""
    cell: Literal["cnn", "vgg11s", "lstm"] = "cnn"
    """``"cnn"``, ``"vgg11s"``: 0.1 s for a step of the fastest device; ``"lstm"``: 0.15 s."""
    lists: Literal["official", "random"] = "official"
    """``"official"``: the lists of the official code, in which device 0 computes slowest and device 1 has by far the
    slowest link; ``"random"``: the ranges of the paper's text, 1 to 4 times the fastest step and 0.25 to 2 Mb/s,
    drawn independently."""

    def world(self) -> World:
        fastest = {"cnn": 0.1, "vgg11s": 0.1, "lstm": 0.15}[self.cell]
        compute: Compute = UniformCompute(fastest=fastest, slowest=4 * fastest)
        network = Network(up_bits_per_second=UniformBandwidth(slowest=0.25e6, fastest=2e6))
        if self.lists == "official":
            compute = TraceCompute(seconds_per_step=tuple(reversed(linspace(fastest, 4 * fastest, self.devices))))
            mebibytes = linspace(0.1, 0.25, self.devices)
            mebibytes[1] = 0.03
            network = Network(up_bits_per_second=tuple(BITS_PER_MIB * speed for speed in mebibytes))
        trigger = Continuous(concurrency=self.devices)
        return World(devices=self.devices, compute=compute, network=network, trigger=trigger)


def linspace(first: float, last: float, count: int) -> list[float]:
    """Return `count` numbers in equal steps from `first` to `last`."""
    return [first + (last - first) * index / (count - 1) for index in range(count)]


@dataclass(frozen=True)
class Setup:
    """A task of the paper (sections 2.6 and 6.3)."""

    cell: Literal["cnn", "vgg11s", "lstm"]  # Its name in the world ``fedluck``.
    model: str
    parameters: int
    shape: tuple[int, int, int]  # What the network reads.
    preprocessing: Any
    local_lr: float  # eta_l; `global_lr`: eta_g; `period_seconds`: T~.
    batch_size: int
    global_lr: float
    period_seconds: float
    seconds: float  # Horizon of Figure 2 and Table 2.
    longer: dict[str, float]  # Methods that run so many times longer, for the targets of Figure 3 and Table 1.
    targets: dict[str, tuple[float, ...]]  # Accuracies of Figure 3 (``"iid"``) and Table 1 (``"dirichlet"``).
    fedper: tuple[int, float]
    """Local steps k and kept fraction delta, as `fedavg_topk`; `fedbuff` and `fedasync` have local steps only."""
    fedbuff: int
    fedasync: int
    fedavg_topk: tuple[int, float]
    fixed_compression: float  # What the methods that optimise one variable do not, as `fixed_steps`.
    fixed_steps: int
    heat_target: float
    """Accuracy whose rounds Figure 1 counts; CIFAR-10, which the figure lacks, has the first target of Figure 3."""


_CNN = Setup(
    "cnn", "fedluck_cnn", 234_090, (1, 32, 32), "fedluck-grey",
    0.01, 64, 0.7, 1.5, 800.0, {"FedAsync": 1.5, "FedAvg+TopK": 2.0},
    {"iid": (0.65, 0.75, 0.85), "dirichlet": (0.65, 0.75, 0.85)},
    (10, 0.3), 20, 13, (20, 0.5), 0.3, 10, 0.85,
)  # fmt: skip
_VGG = Setup(
    "vgg11s", "vgg11s", 865_482, (3, 32, 32), "fedluck-colour",
    0.01, 32, 1.0, 3.0, 6000.0, {"FedBuff": 1.5, "FedAvg+TopK": 1.5},
    {"iid": (0.50, 0.60, 0.70), "dirichlet": (0.50, 0.60, 0.65)},
    (8, 0.1), 13, 20, (13, 0.2), 0.1, 7, 0.50,
)  # fmt: skip
_LSTM = Setup(
    "lstm", "lstm", 216_330, (1, 32, 32), {},
    0.016, 64, 1.0, 1.5, 6000.0, {"FedAvg+TopK": 1.5},
    {"iid": (0.50, 0.56, 0.62), "dirichlet": (0.50, 0.60, 0.63)},
    (5, 0.2), 10, 5, (8, 0.5), 0.16, 20, 0.50,
)  # fmt: skip
SETUPS = {
    "fashion-mnist": _CNN,
    "cifar10": _VGG,
    "cifar10-surrogate": _VGG,
    "speech-commands": _LSTM,
    "speech-commands-surrogate": _LSTM,
}

TASKS: dict[str, tuple[str, Setup]] = {
    "cnn": ("CNN, Fashion-MNIST", _CNN),
    "vgg11s": ("VGG11s, CIFAR-10", _VGG),
    "lstm": ("LSTM, Speech Commands", _LSTM),
}
"""The paper's tasks by network."""


@dataclass(frozen=True)
class Scale:
    """What a profile decides."""

    seeds: tuple[int, ...]
    full: tuple[str, ...]  # Cells whose Figures 2 and 3 and tables have the paper's network, horizon and targets.
    width: float  # Width of the network in all other runs, relative to the paper's.
    seconds: Mapping[str, float]  # Horizon of the cells that are not in `full`.
    test_samples: int  # Of the evaluations that targets are looked for in (A16); 0: all. The horizon always has all.
    heat_steps: tuple[int, ...]
    """Local steps k and, in `heat_deltas`, kept fractions delta of Figure 1; `heat_seconds`: its longest run."""
    heat_deltas: tuple[float, ...]
    heat_seconds: float
    extra_seconds: float  # Length of the runs with other periods and of the variants.
    periods: tuple[float, ...]  # T~ of those with other periods, as multiples of the task's.
    target_factor: float = 1.0
    """Accuracies that are looked for in the cells that are not in `full`, as a part of the paper's."""
    heat_targets: Mapping[str, float] = field(default_factory=dict)
    """Accuracy of Figure 1 by cell, where it is not the paper's."""


_STEPS, _DELTAS = (10, 20, 30, 40, 50, 60), (0.001, 0.005, 0.01, 0.05, 0.1, 0.5)
_PERIODS = (1 / 3, 1 / 2, 2 / 3, 1.0, 4 / 3, 2.0, 4.0)
_CELLS = ("cnn", "vgg11s", "lstm")
PROFILES = {
    "smoke": Scale((0,), (), 0.125, dict.fromkeys(_CELLS, 13.0), 500, (10, 60), (0.01, 0.5), 7.0, 7.0, (1.0, 2.0)),
    "laptop": Scale(
        (0, 1, 2), ("cnn",), 0.25, {"vgg11s": 900.0, "lstm": 1_500.0}, 2_000, _STEPS, _DELTAS, 360.0, 200.0, _PERIODS,
        target_factor=0.5, heat_targets={"cnn": 0.8, "vgg11s": 0.25, "lstm": 0.25},
    ),
    "paper": Scale((0, 1, 2, 3, 4), _CELLS, 1.0, {}, 0, _STEPS, _DELTAS, 1_500.0, 800.0, _PERIODS),
}  # fmt: skip
RACE_PERIODS = 80  # Length of FedLuck's race with FedPer.
PERIODS_PER_EVALUATION, HEAT_PERIODS_PER_EVALUATION = 2, 4
"""Periods T~ from one evaluation to the next (A16); FedBuff and FedAvg+TopK are measured at each version instead."""


class Target(NamedTuple):
    """An accuracy that the paper's tables look for, and the one that is looked for here."""

    printed: float
    here: float

    def __str__(self) -> str:
        paper = "" if self.printed == self.here else f" (paper: {100 * self.printed:g} %)"
        return f"{100 * self.here:g} %{paper}"


def targets(profile: str, dataset: str, partition: str) -> list[Target]:
    """Return the targets of Figure 3 (``"iid"``) or Table 1 (``"dirichlet"``), ascending."""
    setup, scale = FedLuckExperiment.setup_of(dataset), PROFILES[profile]
    factor = 1.0 if setup.cell in scale.full else scale.target_factor
    return [Target(printed, factor * printed) for printed in setup.targets[partition]]


class FedLuckOptions(Options):
    """What a reader may change beside profile, data set and seeds; None leaves the paper's or the profile's value."""

    mode: Literal["as_written", "as_released"] = "as_written"
    """What the authors' program does and the paper does not say (:data:`RELEASED`) is "as_released"."""
    steps: int | None = Field(None, ge=1)  # k of FedPer, with its `delta`.
    delta: float | None = Field(None, gt=0, le=1)
    dirichlet: float = Field(1.0, gt=0, allow_inf_nan=False)  # Concentration of the labels.
    solver: Literal["official_grid", "exact", "exact_ceil"] = "official_grid"
    period_seconds: float | None = Field(None, gt=0, allow_inf_nan=False)  # T~ of all periodic methods.
    seconds: float | None = Field(None, gt=0, allow_inf_nan=False)  # Horizon of Figures 2 and 3 and of both tables.
    local_lr: float | None = Field(None, gt=0, allow_inf_nan=False)
    per_tensor: bool = True  # Scope of top-k (A6).
    heat_steps: tuple[Annotated[int, Field(ge=1)], ...] | None = Field(None, min_length=1)
    """Grid of Figure 1, ascending, with `heat_deltas`; its accuracy `heat_target`, its longest run `heat_seconds`."""
    heat_deltas: tuple[Annotated[float, Field(gt=0, le=1)], ...] | None = Field(None, min_length=1)
    heat_target: float | None = Field(None, gt=0, lt=1)
    heat_seconds: float | None = Field(None, gt=0, allow_inf_nan=False)

    _sorted = field_validator("heat_steps", "heat_deltas")(in_order)


VARIANTS: dict[str, dict[str, Any]] = {
    "as in the tables": {},
    "momentum reset": {"momentum_reset": True},
    "error feedback": {"error_feedback": True},
    "top-k of the whole vector": {"per_tensor": False},
    "weights by samples": {"weighting": "samples"},
    "positions sent": {"wire": "values+indices"},
    "exact plan": {"solver": "exact"},
    "plan with the ceiling": {"solver": "exact_ceil"},
    "plan by the tight factor": {"contraction": "tight"},
}
"""What differs from FedLuck as the tables have it: A1, A8, A6, A5, section 2.8, the solvers of section 2.5, E10."""
SEARCHED = tuple(product((3, 5, 10, 20), (0.01, 0.03, 0.1, 0.3, 1.0)))
"""Local steps k and kept fractions delta among which FedPer's best are looked for."""
SEARCH_SEED = 100  # It judges nothing.


class Released(NamedTuple):
    """What the authors' program does otherwise, each of which can be taken alone (E19)."""

    pixels: bool = True  # Images are inverted, zeros apart (a).
    weights: bool = True  # Uploads of a round weigh by samples (A5).
    images: bool = True
    """Asynchronous methods are measured on a tenth of the test images, at every aggregation alike (c)."""
    handover: bool = True  # Devices start when the new model has been evaluated (e).


RELEASED, WRITTEN = Released(), Released(*[False] * 4)
EVALUATION_SECONDS = 0.3
"""What an evaluation is taken to last in the program: with this the gigabytes of Table 1 come out (`lockstep`)."""
DEVIATIONS: dict[str, Released] = {
    "as written": WRITTEN,
    "inverted pixels": WRITTEN._replace(pixels=True),
    "weights by samples": WRITTEN._replace(weights=True),
    "1,000 test images": WRITTEN._replace(images=True),
    "evaluation before dispatch": WRITTEN._replace(handover=True),
    "as released": RELEASED,
}


class FedLuckExperiment(Experiment):
    """FedLuck's comparison, its heat map, and its runs with other periods and in variants."""

    OPTIONS = FedLuckOptions
    PROFILES = PROFILES
    SETUPS = SETUPS

    def __init__(self, profile: str, dataset: str, seeds: Sequence[int] | None = None, **overrides: Any) -> None:
        super().__init__(profile, dataset, seeds, **overrides)
        chosen, task, scale = self.options, self.setup, self.scale
        full, width = task.cell in scale.full, scale.width
        self.narrow = task.model if width == 1 else f"{task.model}(width={width})"
        self.model = task.model if full else self.narrow
        self.seconds = chosen.seconds or (task.seconds if full else scale.seconds[task.cell])
        self.heat_target = chosen.heat_target or scale.heat_targets.get(task.cell, task.heat_target)
        self.heat_steps = chosen.heat_steps or scale.heat_steps
        self.heat_deltas = chosen.heat_deltas or scale.heat_deltas
        self.heat_seconds = chosen.heat_seconds or scale.heat_seconds
        self.period = chosen.period_seconds or task.period_seconds
        self.released = RELEASED if chosen.mode == "as_released" else WRITTEN

    def comparison(self, partitions: Sequence[str], methods: Sequence[str] = METHODS) -> Iterator[Entry]:
        """Yield the runs of Figures 2 and 3 and of the tables on `partitions` (keys of :data:`LABELS`)."""
        for seed, partition, method in product(self.seeds, partitions, methods):
            algorithm, steps = self.methods[method](self)
            seconds = self.seconds * self.setup.longer.get(method, 1.0)
            labels = {"method": method, "partition": partition, "role": "comparison"}
            yield self._entry(algorithm, labels, partition, seed, seconds, steps)

    def heat_map(self) -> Iterator[Entry]:
        """Yield the runs of Figure 1; each ends when its target is reached."""
        evaluation = Evaluation(every_updates=HEAT_PERIODS_PER_EVALUATION, test_samples=self.scale.test_samples)
        settings: dict[str, Any] = {"model": self.narrow, "devices": FEWER_DEVICES, "evaluation": evaluation}
        for seed, k, delta in product(self.seeds, self.heat_steps, self.heat_deltas):
            labels = {"method": "FedPer", "steps": k, "delta": delta, "role": "heat map", "target": self.heat_target}
            yield self._entry(self._fedper(k, delta), labels, "iid", seed, self.heat_seconds,
                              accuracy=self.heat_target, **settings)  # fmt: skip

    def periods(self) -> Iterator[Entry]:
        """Yield FedLuck's runs with other periods, with independent labels."""
        for seed, factor in product(self.seeds, self.scale.periods):
            algorithm = self._fedluck(period_seconds=self.period * factor)
            labels = {"method": "FedLuck", "period": algorithm.period_seconds, "role": "period"}
            yield self._entry(algorithm, labels, "iid", seed, self.scale.extra_seconds, model=self.narrow)

    def variants(self) -> Iterator[Entry]:
        """Yield FedLuck's runs in :data:`VARIANTS`, with Dirichlet labels."""
        for seed, (name, changed) in product(self.seeds, VARIANTS.items()):
            settings, labels = dict(changed), {"method": "FedLuck", "variant": name, "role": "variant"}
            reset = settings.pop("momentum_reset", False)
            yield self._entry(
                self._fedluck(**settings), labels, "dirichlet", seed, self.scale.extra_seconds, model=self.narrow,
                momentum_reset=reset,
            )  # fmt: skip

    def deviations(self) -> Iterator[Entry]:
        """Yield FedLuck's and FedPer's runs with each of :data:`DEVIATIONS`, with independent labels."""
        for seed, (name, released), method in product(self.seeds, DEVIATIONS.items(), ("FedLuck", "FedPer")):
            labels, other = {"method": method, "deviation": name, "role": "deviation"}, self.as_in(released)
            yield other._entry(self.methods[method](other)[0], labels, "iid", seed, self.seconds)

    def race(self) -> Iterator[Entry]:
        """Yield FedLuck's and FedPer's first seconds, measured at every aggregation, by partition and weighting."""
        ways = {"uniform": False, "samples": True}
        for seed, partition, way, method in product(self.seeds, LABELS, ways, ("FedLuck", "FedPer")):
            other = self.as_in(WRITTEN._replace(weights=ways[way]))
            algorithm, _ = self.methods[method](other)
            labels = {"method": method, "partition": partition, "weighting": way, "role": "race"}
            yield other._raced(algorithm, labels, partition, seed)

    def search(self) -> Iterator[Entry]:
        """Yield FedPer's part of the race with uniform weights, with each of :data:`SEARCHED`."""
        for partition, (k, delta) in product(LABELS, SEARCHED[: 2 if self.profile == "smoke" else None]):
            labels = {"method": "FedPer", "partition": partition, "role": "search", "steps": k, "delta": delta}
            yield self._raced(self._fedper(k, delta), labels, partition, SEARCH_SEED)

    def plans(self) -> Iterator[Entry]:
        """Yield the race of FedLuck's plan, of the tight factor's, and of two for all: the authors' and the best.

        The last is there once all runs of :meth:`search` are stored.
        """
        found = {partition: self._found(partition) for partition in LABELS}
        for seed, partition in product(self.seeds, LABELS):
            k, delta = self.setup.fedper
            made = {"printed": self._fedluck(), "tight": self._fedluck(contraction="tight"),
                    "authors'": self._fedper(k, delta)}  # fmt: skip
            if best := found[partition]:
                made["found"] = self._fedper(*best)
            for plan, algorithm in made.items():
                method = "FedLuck" if isinstance(algorithm, FedLuck) else "FedPer"
                labels = {"method": method, "partition": partition, "role": "plan", "plan": plan}
                yield self._raced(algorithm, labels, partition, seed)

    def _found(self, partition: str) -> tuple[int, float] | None:
        """Return k and delta with the highest mean accuracy on the seed of the search."""
        tried = [entry for entry in self.search() if entry.labels["partition"] == partition]
        scores = {(e.labels["steps"], e.labels["delta"]): default_store().get(e.spec) for e in tried}
        known = {setting: mean_accuracy(result) for setting, result in scores.items() if result is not None}
        return max(known, key=lambda setting: known[setting]) if len(known) == len(tried) else None

    def _raced(self, algorithm: Algorithm, labels: dict[str, Any], partition: str, seed: int) -> Entry:
        evaluation = Evaluation(every_updates=1, test_samples=self.scale.test_samples)
        seconds = min(self.seconds, RACE_PERIODS * self.period)
        return self._entry(algorithm, labels, partition, seed, seconds, evaluation=evaluation)

    def luck(self) -> Iterator[Entry]:
        """Yield FedLuck's part of the race with independent labels, and again from a perturbed initial model."""
        chosen = (entry for entry in self.race() if list(entry.labels.values())[:3] == ["FedLuck", "iid", "uniform"])
        yield from perturbed(chosen, SIZES[:1])

    def as_released(self, partition: str) -> Iterator[Entry]:
        """Yield the runs of Table 1, or with ``"iid"`` of Figures 2 and 3, as the authors' program does them."""
        for entry in self.as_in(RELEASED).comparison([partition], ("FedLuck", *BASELINES)):
            yield Entry(entry.spec, {**entry.labels, "role": "as released"})

    def as_in(self, released: Released) -> Self:
        """Return the same experiment with these deviations."""
        other = copy(self)
        other.released = released
        return other

    methods: ClassVar[dict[str, Callable[[Any], tuple[Algorithm, int | None]]]] = {
        "FedLuck": lambda e: (e._fedluck(), None),
        "FedPer": lambda e: (
            e._fedper(e.options.steps or e.setup.fedper[0], e.options.delta or e.setup.fedper[1]), None
        ),
        "FedBuff": lambda e: (
            FedBuff(buffer=8, global_lr=e.setup.global_lr, concurrency=DEVICES, weight=Constant(),
                    compressor=Identity()), e.setup.fedbuff
        ),
        "FedAsync": lambda e: (FedAsync(alpha=0.4, rho=0.001, concurrency=DEVICES), e.setup.fedasync),
        "FedAvg+TopK": lambda e: (
            FedAvgTopK(clients_per_round=DEVICES, compressor=e._topk(e.setup.fedavg_topk[1])), e.setup.fedavg_topk[0]
        ),
        "frequency only": lambda e: (e._fedluck(fixed_compression=e.setup.fixed_compression), None),
        "compression only": lambda e: (e._fedluck(fixed_steps=e.setup.fixed_steps), None),
    }  # fmt: skip
    """Each method with its settings, and the local steps that the run's settings give it."""

    def setting(self) -> pd.DataFrame:
        """Return the paper's setting beside ours, one row per quantity; "code": stated by the authors' code only."""
        chosen, scale, setup, data = self.options, self.scale, self.setup, load_dataset(self.dataset)
        title = TASKS[setup.cell][0]
        parameters = num_parameters(self.model, setup.shape, CLASSES)
        fedper, topk, every = setup.fedper, setup.fedavg_topk, PERIODS_PER_EVALUATION * setup.period_seconds
        measured = f"{scale.test_samples:,} of them, all at the horizon" if scale.test_samples else "all"
        longest = ", ".join(f"{method} {factor:g} times that" for method, factor in setup.longer.items())
        k, delta = chosen.steps or fedper[0], chosen.delta or fedper[1]
        rows = [
            ("data", title.partition(", ")[2], f"{data.name} ({data.kind})"),
            ("network", f"{title.partition(', ')[0]}, {setup.parameters:,} parameters (code)",
             f"{self.model}, {parameters:,} parameters" + (f"; figures over k, δ and T̃, and variants: {self.narrow}"
                                                           if self.narrow != self.model else "")),
            ("a full upload takes", "model size over bandwidth", "as with the paper's network"),
            ("devices", f"{DEVICES}; Figure 1: {FEWER_DEVICES}", f"{DEVICES}; Figure 1: {FEWER_DEVICES}"),
            ("bandwidth", "0.25 to 2 Mb/s; code: fixed lists", "the code's lists"),
            ("labels", "independent; Dirichlet, concentration 1.0", f"the same, {chosen.dirichlet:g}"),
            ("local training uses", "80 % of a device's samples (code)", "the same"),
            ("local rate, momentum, batch", f"{setup.local_lr:g}, {MOMENTUM:g}, {setup.batch_size}",
             f"{chosen.local_lr or setup.local_lr:g}, {MOMENTUM:g}, {setup.batch_size}"),
            ("global rate η_g", f"{setup.global_lr:g} (code)", f"{setup.global_lr:g}; FedAvg+TopK: 1"),
            ("period T̃", f"{setup.period_seconds:g} s (code)", f"{self.period:g} s"),
            ("FedLuck's plan", "minimum of φ; code: grid search", chosen.solver),
            ("FedPer (k, δ)", f"{fedper[0]}, {fedper[1]:g} (code)", f"{k}, {delta:g}"),
            ("FedBuff", f"k = {setup.fedbuff}, 8 uploads (code)", f"k = {setup.fedbuff}, 8 uploads"),
            ("FedAsync", f"k = {setup.fedasync}, weight 0.4, ρ = 0.001 (code)",
             f"k = {setup.fedasync}, weight 0.4, ρ = 0.001"),
            ("FedAvg+TopK (k, δ)", f"{topk[0]}, {topk[1]:g} (code)", f"{topk[0]}, {topk[1]:g}"),
            ("frequency only; compression only", f"δ = {setup.fixed_compression:g}; k = {setup.fixed_steps} (code)",
             f"δ = {setup.fixed_compression:g}; k = {setup.fixed_steps}"),
            ("top-k", "of the update; code: of each tensor",
             "of each tensor" if chosen.per_tensor else "of the update"),
            ("horizon", f"{setup.seconds:g} s", f"{self.seconds:g} s; to look for targets, {longest}"),
            ("targets", _targets(setup.targets),
             _targets({p: [t.here for t in targets(self.profile, self.dataset, p)] for p in setup.targets})),
            ("test images", "a random tenth at each evaluation, FedAvg+TopK: all (code)",
             f"{len(data.test):,}; for targets {measured}"),
            ("measured", "each aggregation; FedAsync: each tenth (code)",
             f"every {every:g} s; FedBuff, FedAvg+TopK: each"),
            ("Figure 1: k; δ", "10 to 60; 0.001 to 0.5",
             f"{', '.join(map(str, self.heat_steps))}; {', '.join(f'{d:g}' for d in self.heat_deltas)}"),
            ("Figure 1: accuracy; at most", f"{100 * setup.heat_target:.0f} %; –",
             f"{100 * self.heat_target:g} %; {self.heat_seconds:g} s, "
             f"measured every {HEAT_PERIODS_PER_EVALUATION} T̃"),
            ("repetitions", "not stated (code: 1)", f"{len(self.seeds)}"),
        ]  # fmt: skip
        return pd.DataFrame(rows, columns=["setting", "the paper", f"here, profile {self.profile}"])

    def world(self, devices: int = DEVICES, model: str | None = None) -> World:
        """Return the paper's world; links are slower by as much as `model` is smaller than the paper's network."""
        world = World.named("fedluck", cell=self.setup.cell, devices=devices)
        size = num_parameters(model or self.model, self.setup.shape, CLASSES) / self.setup.parameters
        if size == 1:
            return world
        bits = world.network.up_bits_per_second
        assert isinstance(bits, tuple)
        return world.model_copy(update={"network": Network(up_bits_per_second=tuple(size * b for b in bits))})

    def preprocessing(self) -> Any:
        """Return that of the task; as released, images are inverted first."""
        if not self.released.pixels or self.setup.cell == "lstm":
            return self.setup.preprocessing
        given = self.setup.preprocessing
        return {**(PRESETS[given] if isinstance(given, str) else given), "invert": True}

    def _fedluck(self, **settings: Any) -> FedLuck:
        given = {**self._periodic(), "solver": self.options.solver, "per_tensor": self.options.per_tensor}
        return FedLuck(**{**given, **settings})

    def _periodic(self) -> dict[str, Any]:
        given: dict[str, Any] = {"period_seconds": self.period, "global_lr": self.setup.global_lr}
        if self.released.weights:
            given["weighting"] = "samples"
        if self.released.handover:
            given["handover_seconds"] = EVALUATION_SECONDS
        return given

    def _fedper(self, steps: int, delta: float) -> FedPer:
        return FedPer(**self._periodic(), steps=steps, compressor=self._topk(delta))

    def _topk(self, delta: float) -> TopK:
        return TopK(delta=delta, per_tensor=self.options.per_tensor, wire="ideal_fraction")

    def _entry(
        self, algorithm: Algorithm, labels: dict[str, Any], partition: str, seed: int, seconds: float,
        steps: int | None = None, *, model: str | None = None, accuracy: float | None = None, devices: int = DEVICES,
        momentum_reset: bool = False, evaluation: Evaluation | None = None,
    ) -> Entry:  # fmt: skip
        parts = {
            "iid": IID(remainder="drop", train_fraction=TRAIN_FRACTION),
            "dirichlet": Dirichlet(alpha=self.options.dirichlet, cuts="floor", train_fraction=TRAIN_FRACTION),
        }
        training = LocalTraining(
            lr=self.options.local_lr or self.setup.local_lr, batch_size=self.setup.batch_size, steps=steps,
            momentum=MOMENTUM, momentum_reset=momentum_reset, order="cyclic",
        )  # fmt: skip
        spec = RunSpec(
            dataset=self.dataset, partition=parts[partition], model=model or self.model, initialisation="pytorch",
            preprocessing=self.preprocessing(), world=self.world(devices, model), algorithm=algorithm, seed=seed,
            training=training, budget=Budget(seconds=seconds, accuracy=accuracy),
            evaluation=evaluation or self._evaluation(algorithm, seconds),
        )  # fmt: skip
        return Entry(spec, {**labels, "seed": seed})

    def _evaluation(self, algorithm: Algorithm, seconds: float) -> Evaluation:
        """Return when a run is measured; one that goes on after the horizon is measured there on all images, too."""
        rare = isinstance(algorithm, FedBuff | FedAvgTopK)
        test_samples = self.scale.test_samples
        if self.released.images:
            test_samples = 0 if isinstance(algorithm, FedAvgTopK) else 600 if self.setup.cell == "lstm" else 1000
        return Evaluation(
            every_updates=1 if rare else None, test_samples=test_samples,
            every_seconds=None if rare else PERIODS_PER_EVALUATION * self.setup.period_seconds,
            at_seconds=(self.seconds,) if self.seconds < seconds else (),
        )  # fmt: skip


def measured(result: Result) -> tuple[np.ndarray, np.ndarray]:
    """Return seconds and accuracy at each aggregation of a race."""
    table = pd.DataFrame(result.history.evaluations).drop_duplicates("seconds", keep="first")
    return table["seconds"].to_numpy(), table["test_accuracy"].to_numpy()


def mean_accuracy(result: Result) -> float:
    """Return the mean accuracy over the aggregations of a race."""
    return float(measured(result)[1].mean())


def _targets(found: Mapping[str, Sequence[float]]) -> str:
    return "; ".join(f"{LABELS[p]}: {', '.join(f'{100 * t:g} %' for t in values)}" for p, values in found.items())
