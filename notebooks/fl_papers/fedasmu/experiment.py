"""The runs behind FedASMU's Tables 1 and 2, Figures 2 to 7, and what its text reports.

A column of the tables is a network on a data set; an experiment on a data set has that data set's columns. All
methods begin with the same model in the same world and get as many uploads: 500 rounds of 10, or 5,000 single ones
(E20).

The smaller profiles have fewer uploads and use a part of each device's samples; the virtual time of a local epoch,
and with it the order of events, stays. Large networks are narrower there, and the ResNet's images smaller, on a link
as much slower, so that a transfer takes the same time. Step sizes are larger, as so few uploads would not leave the
beginning otherwise: 0.03 on Fashion-MNIST instead of 0.005 (A02), about 3.5 times the paper's on images in colour.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field, TypeAdapter, field_validator

from fl_core import algorithms as known
from fl_core.algorithms import Algorithm, FedASMU
from fl_core.config import Seconds
from fl_core.datasets import Dirichlet
from fl_core.experiments.experiment import Experiment, Options
from fl_core.experiments.spec import RunSpec
from fl_core.experiments.study import Entry
from fl_core.formulas.fedasmu import matched_lambda
from fl_core.formulas.staleness import Polynomial
from fl_core.models import num_parameters
from fl_core.runtime import Budget, Evaluation, LocalTraining
from fl_core.world import NamedWorld, Network, RatioCompute, World
from fl_core.world.compute import Ratio
from fl_core.world.triggers import Timed

matched = cache(matched_lambda)
"""Each grid asks for the same few again: a root that is searched for took a third of its time."""

# Columns


@dataclass(frozen=True)
class Column:
    """A column of Table 1 or 2, with the rates of Tables 5 and 6; what begins with small is for smaller profiles."""

    table: int
    model: str
    data: str  # As the paper calls them; `dataset` and `network`: their names here.
    dataset: str
    network: str
    parameters: int
    classes: int
    shape: tuple[int, ...]  # Of an input.
    target: float  # Accuracy whose time the table gives.
    samples: int  # Of a device, on average.
    lr: float  # eta_i.
    rates: tuple[float, ...]  # Learning rates of lambda, sigma, iota, gamma and upsilon.
    initial: str
    """How initial values are drawn, in every profile. With PyTorch's, eight layers and more without normalisation do
    not leave chance within some hundred steps."""
    small_width: float
    small_share: float  # Times as many samples of a device are used as the profile says, if it has them.
    small_longer: int
    """Times as many uploads as the profile gives its data set: with fewer the network does not leave chance."""
    small_lr: float | None = None
    small_side: int | None = None  # Of the images.
    small_target: float | None = None
    """If the target is out of reach: three quarters of the way from guessing to what FedAvg ends with there, in
    hundredths."""

    def __str__(self) -> str:
        return f"{self.model}, {self.data}"


def _columns() -> Iterator[tuple[str, Column]]:
    """Read ``columns.csv``; several numbers in a cell stand with spaces."""
    for row in csv.DictReader(Path(__file__).with_name("columns.csv").read_text(encoding="utf-8").splitlines()):
        given: dict[str, Any] = {name: text for name, text in row.items() if text}
        given |= {name: given[name].split() for name in ("shape", "rates")}
        yield given.pop("column"), TypeAdapter(Column).validate_python(given)


COLUMNS = dict(_columns())
"""By the name of the cell in the world ``fedasmu``."""

# World


class FedASMUWorld(NamedWorld):
    """FedASMU: a few devices at every tick of a clock, at most a tenth of all at once (A15, A16, E20).

    Local training takes 100 s on the fastest device, whatever its data, and a transfer 1 s at normal bandwidth.
    """

    name: ClassVar[str] = "fedasmu"
    ratio: Ratio = 5.0
    """Slowest to fastest device, exactly: 5, and 110 to 440 in one figure."""
    distribution: Literal["uniform", "loguniform"] = "uniform"
    """Of the durations in between."""
    slower_network: float = Field(1.0, gt=0, allow_inf_nan=False)
    """How many times lower the bandwidth is: 1, 50 or 100."""
    ticks: Literal["tables", "text"] = "tables"
    """Up to 10 devices every 10 s, or one every 5 s."""
    epochs: int = Field(5, ge=1)
    """Local epochs E of a task, among which its time is divided equally; the run has to use as many."""
    fastest_seconds: Seconds = 100.0
    """Local training of the fastest device."""
    cell: Literal[
        "lenet-cifar10", "lenet-cifar100", "cnn-cifar10", "cnn-cifar100", "resnet-cifar100", "resnet-tiny-imagenet",
        "alexnet-cifar10", "alexnet-cifar100", "vgg-cifar10", "vgg-cifar100", "textcnn-imdb", "lenet-fmnist",
    ] = "lenet-fmnist"  # fmt: skip
    """Model and data set, for the size of the model."""

    def world(self) -> World:
        bandwidth = 32 * COLUMNS[self.cell].parameters / (0.01 * self.fastest_seconds * self.slower_network)
        period, per_tick = {"tables": (10.0, 10), "text": (5.0, 1)}[self.ticks]
        fastest, most = self.fastest_seconds / self.epochs, max(1, self.devices // IN_FLIGHT)
        return World(
            devices=self.devices,
            compute=RatioCompute(fastest=fastest, ratio=self.ratio, distribution=self.distribution, per="epoch"),
            network=Network(down_bits_per_second=bandwidth, up_bits_per_second=bandwidth),
            trigger=Timed(period_seconds=period, per_tick=per_tick, concurrency=most),
        )


# Methods

BUFFER = 5  # Uploads that FedBuff collects, and that PORT waits for.
ALGORITHMS: dict[str, tuple[type[Algorithm], dict[str, Any]]] = {
    "FedASMU": (FedASMU, {}),
    "FedAvg": (known.FedAvg, {"weighting": "samples"}),
    "FedProx": (known.FedProx, {}),
    "MOON": (known.MOON, {}),
    "FedDyn": (known.FedDyn, {}),
    "FedAsync": (known.FedAsync, {"weight": Polynomial(a=0.5)}),
    "PORT": (known.PORT, {"min_uploads": BUFFER}),
    "ASO-Fed": (known.ASOFed, {}),
    "FedBuff": (known.FedBuff, {"buffer": BUFFER}),
    "FedSA": (known.FedSA, {}),
    "FedDelay": (known.FedDelay, {}),
    "SyncDrop": (known.SyncDrop, {}),
    "AsyncPart": (known.AsyncPart, {}),
    "FedASMU-DA": (known.FedASMUDA, {}),
    "FedASMU-FA": (known.FedASMUFA, {}),
    "FedASMU-0": (known.FedASMU0, {}),
    "H1": (known.FedASMUH1, {}),
    "H2": (known.FedASMUH2, {}),
    "slot 3": (FedASMU, {"slot": 3}),
    "H3": (known.FedASMUH3, {}),
}
"""Every method of the tables and of the text, with what differs from its own defaults."""
METHODS = tuple(ALGORITHMS)[:10]  # Rows of Tables 1 and 2.
BASELINES = METHODS[1:]
SYNCHRONOUS, ASYNCHRONOUS = BASELINES[:4], BASELINES[4:]
EXTRA = ("FedDelay", "SyncDrop", "AsyncPart")  # Further baselines, which only the paper's text reports.
ABLATIONS = ("FedASMU-DA", "FedASMU-FA", "FedASMU-0")
HEURISTICS = ("H1", "H2", "slot 3", "H3")  # Fixed slots 1 to 4; the paper has no name for the third (C44).

RATES = ("lr_lambda", "lr_sigma", "lr_iota", "lr_gamma", "lr_upsilon")
VARIANTS: dict[str, dict[str, Any]] = {
    "staleness bound 12": {"staleness_bound": 12},
    "printed gradients": {"server_grad": "printed"},
    "exact propagation": {"propagation": "exact"},
    "producer's aggregation": {"history": "producer"},
    "merge correction": {"merge_correction": True},
    "frozen weights": {"server_weight": "frozen_xi"},
    "initial values 1": {"lambda_0": 1.0, "gamma_0": 1.0},
    "largest rates": {"lr_lambda": 1e-3, "lr_sigma": 1e-3, "lr_iota": 0.1, "lr_gamma": 0.1, "lr_upsilon": 1e-3},
}
"""What differs from FedASMU as the tables have it: E17, E01, E06, A07, E09, weights that do not learn, A02, and the
rates of Table 5's column of LeNet on CIFAR-10 (E16)."""
TUNED: dict[str, tuple[str, tuple[float, ...]]] = {
    "FedProx": ("mu", (0.001, 0.1)),
    "MOON": ("mu", (0.1, 5.0)),
    "FedDyn": ("alpha", (0.1,)),
    "FedAsync": ("alpha", (0.3, 0.9)),
    "FedBuff": ("buffer", (3, 10)),
    "FedDelay": ("global_lr", (0.1, 0.3)),
    "ASO-Fed": ("step_factor", (0.2,)),
}
"""Baselines with a value that the paper tunes without printing it: its name, and others than that of the tables.

`step_factor` is one of the local step size. ASO-Fed multiplies that by the logarithm of a device's mean duration in
seconds, 4.6 to 6.2 in this world (BL-3.8): with a fifth its steps are about as long as those of the others."""

# Profiles and options


@dataclass(frozen=True)
class Scale:
    """What a profile decides."""

    uploads: int
    """T on Fashion-MNIST, in single uploads, and `other_uploads` on the other data sets; 5,000 in the paper."""
    other_uploads: int
    samples: int | None
    """At most so many samples of a device, on average; None: all."""
    test_samples: int
    """Of the periodic evaluations; 0: all."""
    seeds: tuple[int, ...]
    """On Fashion-MNIST, and `other_seeds` elsewhere and for what is varied on one column only, Figure 7 above all."""
    other_seeds: tuple[int, ...]
    conditions: dict[str, tuple[float, ...]]
    """What Figure 7 varies, and its values beside the standard one; `condition_methods`: its curves."""
    condition_methods: tuple[str, ...] = METHODS
    periods: tuple[float, ...] = (5.0, 20.0)
    """Trigger periods, and `factors` of the learning rates of lambda, sigma and iota, beside the standard one."""
    factors: tuple[float, ...] = (0.1, 10.0)
    extra: int | None = None
    """So many of :data:`VARIANTS` and of :data:`TUNED`; None: all."""
    whole: bool = False
    """Whether networks, images and step sizes are the paper's."""


_ENDS = {"bandwidth": (50.0, 100.0), "heterogeneity": (110.0, 440.0), "devices": (200.0,)}
PROFILES = {
    "smoke": Scale(
        30, 30, 20, 500, (0,), (0,), {"bandwidth": (50.0,)}, ("FedASMU", "FedAvg", "FedAsync"), (20.0,), (10.0,), 1
    ),
    "laptop": Scale(600, 300, 200, 2_000, (0, 1, 2), (0,), _ENDS),
    "paper": Scale(
        5_000, 5_000, None, 0, (0, 1, 2), (0, 1, 2), _ENDS | {"heterogeneity": (110.0, 220.0, 330.0, 440.0)},
        whole=True,
    ),
}  # fmt: skip
STANDARD = {"bandwidth": 1.0, "heterogeneity": 5.0, "devices": 100.0}
"""What Figure 7 varies, with the values of the standard runs."""
IN_THE_WORLD = (*STANDARD, "trigger_period")
"""What is varied of the world; anything else is a field of the algorithm, or the step size."""
CONDITION_TARGET = 0.60  # Accuracy of Figure 7.

BATCH, MIN_SAMPLES = 64, 10
LR_DECAY = 0.998  # Factor of the step size after ten uploads, a round of the synchronous methods (A06).
IN_FLIGHT = 10
"""One of so many devices trains at a time; ten uploads are a round, and from one evaluation to the next (A18)."""
TRANSFER_SECONDS = 1.0  # Of a model, at the standard bandwidth (A16).


class FedASMUOptions(Options):
    """What a reader may change beside profile, data set and seeds; None leaves the paper's or the profile's value."""

    columns: tuple[str, ...] | None = Field(None, min_length=1)
    """Columns of the tables, of any data set; None: those of the data set."""
    uploads: int | None = Field(None, ge=10, multiple_of=10)
    """T, in single uploads; a multiple of ten, a round of the synchronous methods."""
    epochs: int = Field(5, ge=1)  # E.
    dirichlet: float = Field(0.5, gt=0, allow_inf_nan=False)  # Concentration of the labels.
    lr: float | None = Field(None, gt=0, le=1, allow_inf_nan=False)  # eta_i. With far more no upload is finite.
    ratio: float = Field(5.0, ge=1, allow_inf_nan=False)  # Slowest to fastest device.
    slower_network: float = Field(1.0, gt=0, allow_inf_nan=False)  # How many times lower the bandwidth is.
    ticks: Literal["tables", "text"] = "tables"
    """Who is triggered when: up to ten every 10 s, or one every 5 s (E20)."""
    lambda_0: float | None = Field(None, ge=0, allow_inf_nan=False)
    """Of FedASMU; gamma_0 is the same. None: from T and the devices in flight (A02)."""
    staleness_bound: int = Field(99, ge=1)  # tau of FedASMU.

    @field_validator("columns")
    @classmethod
    def _known(cls, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        for name in names or ():
            if name not in COLUMNS:
                raise ValueError(f"there is no column {name!r} (valid: {', '.join(COLUMNS)})")
        return names


def changes(table: Mapping[str, Iterable[Any]]) -> list[tuple[str | None, Any]]:
    """Return what is varied and its values, one at a time, after the standard setting."""
    return [(None, None), *((what, value) for what, values in table.items() for value in values)]


def target_of(profile: str, column: str) -> float:
    """Return the accuracy whose time a column gives in a profile; Figure 7 has one of its own."""
    own = COLUMNS[column]
    return own.target if PROFILES[profile].whole or own.small_target is None else own.small_target


class FedASMUExperiment(Experiment):
    """The columns of a data set, each with the methods that a table or figure compares."""

    OPTIONS = FedASMUOptions
    PROFILES = PROFILES
    SETUPS = {
        column.dataset: tuple(name for name, own in COLUMNS.items() if own.dataset == column.dataset)
        for column in COLUMNS.values()
    }

    options: FedASMUOptions
    scale: Scale
    setup: tuple[str, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns, in the order of the tables."""
        return self.options.columns or self.setup

    def default_seeds(self) -> Sequence[int]:
        """Return the profile's seeds on Fashion-MNIST or elsewhere."""
        few = any(COLUMNS[name].dataset != "fashion-mnist" for name in self.columns)
        return self.scale.other_seeds if few else self.scale.seeds

    def comparison(self, only: Sequence[str] = ()) -> list[Entry]:
        """Return Tables 1 and 2, Figures 3 to 6: those of the columns `only` that the data set has, or else all."""
        return self.standard([name for name in self.columns if name in only] or self.columns, METHODS)

    def others(self) -> list[Entry]:
        """Return FedASMU and the baselines that only the text reports, on the first column."""
        return self.standard(self.columns[:1], ("FedASMU", *EXTRA))

    def ablations(self) -> list[Entry]:
        """Return Figure 2: LeNet and CNN, if the data set has columns with them, else the first one."""
        columns = [name for name in self.columns if COLUMNS[name].model in ("LeNet", "CNN")] or self.columns[:1]
        return self.standard(columns, ("FedASMU", *ABLATIONS, "FedAvg"))

    def heuristics(self) -> list[Entry]:
        """Return FedASMU and its fixed slots, as far as E has them, on the first column."""
        slots = [name for name in HEURISTICS if name != "slot 3" or self.options.epochs > 3]
        return self.standard(self.columns[:1], ("FedASMU", *slots))

    def sensitivity(self) -> list[Entry]:
        """Return FedASMU with other trigger periods and learning rates, one changed at a time."""
        rates = zip(RATES[:3], COLUMNS[self.columns[0]].rates, strict=False)
        factors = {rate: [standard * factor for factor in self.scale.factors] for rate, standard in rates}
        return self.varied(["FedASMU"], {"trigger_period": self.scale.periods, **factors})

    def standard(self, columns: Iterable[str], methods: Sequence[str]) -> list[Entry]:
        """Return standard runs, seed after seed."""
        return [self.entry(method, name, seed) for seed in self.seeds for name in columns for method in methods]

    def varied(self, methods: Iterable[str], table: Mapping[str, Iterable[Any]]) -> list[Entry]:
        """Return runs on the first column with :func:`changes`, seed after seed."""
        varied = [(change, method) for change in changes(table) for method in methods]
        return [self.entry(m, self.columns[0], seed, *change) for seed in self.seeds for change, m in varied]

    def uploads(self, name: str) -> int:
        """Return T of a column, in single uploads."""
        own = self.scale.uploads if COLUMNS[name].dataset == "fashion-mnist" else self.scale.other_uploads
        return self.options.uploads or (own if self.scale.whole else own * COLUMNS[name].small_longer)

    def network(self, name: str) -> str:
        """Return the network that is trained."""
        column = COLUMNS[name]
        whole = self.scale.whole or column.small_width == 1
        return column.network if whole else f"{column.network}(width={column.small_width})"

    def side(self, name: str) -> int | None:
        """Return the side of the images if they are made smaller."""
        return None if self.scale.whole else COLUMNS[name].small_side

    def parameters(self, name: str) -> int:
        """Return the number of parameters of the network that is trained."""
        column, side = COLUMNS[name], self.side(name)
        shape = (column.shape[0], side, side) if side else column.shape
        return num_parameters(self.network(name), shape, column.classes)

    def algorithm(
        self, method: str, name: str, in_flight: int, varied: str | None = None, value: Any = None
    ) -> tuple[Algorithm, int]:
        """Return a method with its settings, and how many uploads make a version."""
        kind, fields = ALGORITHMS[method]
        own = varied in kind.model_fields and varied not in IN_THE_WORLD
        changed = VARIANTS[value] if varied == "variant" else {str(varied): value} if own else {}
        uploads, start = self.uploads(name), self.options.lambda_0
        if method in SYNCHRONOUS:
            return kind(**{**fields, "clients_per_round": in_flight, **changed}), in_flight
        fields = {**fields, "concurrency": in_flight}
        if method == "FedSA":
            fields["initial_versions"] = uploads // 5
        if issubclass(kind, FedASMU):
            start = matched(uploads, in_flight) if start is None else start
            fields |= {"lambda_0": start, "gamma_0": start, "staleness_bound": self.options.staleness_bound}
            fields |= dict(zip(RATES, COLUMNS[name].rates, strict=True))
        fields |= changed
        return kind(**fields), fields.get("buffer", fields.get("min_uploads", 1))

    def entry(self, method: str, name: str, seed: int, varied: str | None = None, value: Any = None) -> Entry:
        """Return a run, in the standard setting or with a value that is varied."""
        column, chosen = COLUMNS[name], self.options
        devices = int(value) if varied == "devices" else 100
        in_flight, uploads = devices // IN_FLIGHT, self.uploads(name)
        algorithm, per_version = self.algorithm(method, name, in_flight, varied, value)
        counted = "updates" if per_version == 1 else "uploads"
        if method in SYNCHRONOUS:
            counted, uploads = "updates", max(1, uploads // in_flight)
        samples = column.samples * 100 / devices
        most = min(self.scale.samples * column.small_share if self.scale.samples else samples, samples)
        every = max(1, 10 // per_version)
        lr = chosen.lr or (column.lr if self.scale.whole else column.small_lr or column.lr)
        few: Any = "top_up" if column.classes == 2 or chosen.dirichlet < 0.1 else "redraw"
        parts = {"alpha": chosen.dirichlet, "min_samples": MIN_SAMPLES, "train_fraction": most / samples}
        spec = RunSpec(
            dataset=column.dataset if chosen.columns else self.dataset,
            partition=Dirichlet(**parts, below_minimum=few), model=self.network(name), initialisation=column.initial,
            preprocessing={"resize": side} if (side := self.side(name)) else {}, algorithm=algorithm, seed=seed,
            world=self.world(name, devices, varied, value), budget=Budget(**{counted: uploads}),
            training=LocalTraining(
                lr=lr * value if varied == "step_factor" else lr, lr_decay=LR_DECAY ** (every * per_version / 10),
                lr_decay_versions=every, batch_size=BATCH, epochs=chosen.epochs,
            ),
            evaluation=Evaluation(every_updates=every, test_samples=self.scale.test_samples),
        )  # fmt: skip
        return Entry(spec, {"method": method, "column": name, "varied": varied, "value": value, "seed": seed})

    def world(self, name: str, devices: int, varied: str | None, value: Any) -> World:
        """Return the paper's world; a smaller network gets a link as much slower."""
        column, chosen = COLUMNS[name], self.options
        slower = value if varied == "bandwidth" else chosen.slower_network
        given: dict[str, Any] = {}
        if self.network(name) != column.network:
            bits = 32 * self.parameters(name) / (TRANSFER_SECONDS * slower)
            given["network"] = Network(down_bits_per_second=bits, up_bits_per_second=bits)
        if varied == "trigger_period":
            given["trigger"] = Timed(period_seconds=value, per_tick=10, concurrency=devices // IN_FLIGHT)
        return World.named(
            "fedasmu", devices=devices, ratio=value if varied == "heterogeneity" else chosen.ratio,
            slower_network=slower, ticks=chosen.ticks, epochs=chosen.epochs, cell=name, **given,
        )  # fmt: skip


class FirstColumn(FedASMUExperiment):
    """What is varied on the first column of a data set, with fewer seeds."""

    def default_seeds(self) -> Sequence[int]:
        """Return the profile's fewer seeds."""
        return self.scale.other_seeds

    def conditions(self) -> list[Entry]:
        """Return Figure 7: other bandwidths, speeds and numbers of devices, beside the standard ones."""
        return self.varied(self.scale.condition_methods, self.scale.conditions)

    def variants(self) -> list[Entry]:
        """Return FedASMU in the variants of :data:`VARIANTS`."""
        return self.varied(["FedASMU"], {"variant": list(VARIANTS)[: self.scale.extra]})

    def tuning(self) -> list[Entry]:
        """Return baselines with the values of :data:`TUNED`."""
        return [
            self.entry(method, self.columns[0], seed, *change)
            for seed in self.seeds
            for method, (what, values) in list(TUNED.items())[: self.scale.extra]
            for change in changes({what: values})
        ]
