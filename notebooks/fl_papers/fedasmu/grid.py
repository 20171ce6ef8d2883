"""The runs behind FedASMU's Tables 1 and 2, Figures 2 to 7, and what its text reports (specification, section 6).

A column of the tables is a network on a data set; an experiment on a data set has that data set's columns. All
methods begin with the same model in the same world and get as many uploads: 500 rounds of 10, or 5,000 single ones
(E20).

The smaller profiles have fewer uploads and use a part of each device's samples; the virtual time of a local epoch,
and with it the order of events, stays. Large networks are narrower there, and the ResNet's images smaller, on a link
as much slower, so that a transfer takes the same time. Step sizes are larger, as so few uploads would not leave the
beginning otherwise: 0.03 on Fashion-MNIST instead of 0.005, which is that of the specification's reduced setting
(A02), and about 3.5 times the paper's on images in colour.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from pydantic import Field, field_validator

from fl_core.datasets import Dirichlet
from fl_core.experiments.experiment import Options as Overrides
from fl_core.experiments.spec import RunSpec
from fl_core.experiments.study import Entry
from fl_core.models import num_parameters
from fl_core.runtime import Budget, Evaluation, LocalTraining
from fl_core.world import Network, World
from fl_core.world.triggers import Timed
from fl_papers.fedasmu.columns import COLUMNS, columns_of
from fl_papers.fedasmu.methods import (
    ABLATIONS,
    EXTRA,
    HEURISTICS,
    METHODS,
    RATES,
    SYNCHRONOUS,
    TUNED,
    VARIANTS,
    make_method,
)
from fl_papers.fedasmu.scales import SCALES

BATCH, MIN_SAMPLES = 64, 10
LR_DECAY = 0.998
"""Factor of the step size after ten uploads, a round of the synchronous methods (A06)."""
IN_FLIGHT = 10
"""One of so many devices trains at a time; ten uploads are a round, and from one evaluation to the next (A18)."""
TRANSFER_SECONDS = 1.0
"""Of a model, at the standard bandwidth (A16)."""
CONDITION_TARGET = 0.60
"""Accuracy of Figure 7."""
CONDITIONS = ("bandwidth", "heterogeneity", "devices")
"""What Figure 7 varies."""


class Options(Overrides):
    """What a reader may change besides profile, data set and seeds; None leaves the paper's or the profile's value.

    Attributes
    ----------
    columns : tuple of str or None
        Columns of the tables, of any data set; None: those of the data set.
    uploads : int or None
        T, in single uploads; a multiple of ten, a round of the synchronous methods.
    epochs : int
        E.
    dirichlet : float
        Concentration of the labels.
    lr : float or None
        eta_i.
    ratio : float
        Slowest to fastest device.
    slower_network : float
        How many times lower the bandwidth is.
    ticks : str
        Who is triggered when: ``"tables"``, up to ten every 10 s, or ``"text"``, one every 5 s (E20).
    lambda_0 : float or None
        Of FedASMU; gamma_0 is the same. None: from T and the devices in flight (A02).
    staleness_bound : int
        tau of FedASMU.
    """

    columns: tuple[str, ...] | None = Field(None, min_length=1)
    uploads: int | None = Field(None, ge=10, multiple_of=10)
    epochs: int = Field(5, ge=1)
    dirichlet: float = Field(0.5, gt=0, allow_inf_nan=False)
    lr: float | None = Field(None, gt=0, allow_inf_nan=False)
    ratio: float = Field(5.0, ge=1, allow_inf_nan=False)
    slower_network: float = Field(1.0, gt=0, allow_inf_nan=False)
    ticks: Literal["tables", "text"] = "tables"
    lambda_0: float | None = Field(None, ge=0, allow_inf_nan=False)
    staleness_bound: int = Field(99, ge=1)

    @field_validator("columns")
    @classmethod
    def _known(cls, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        for name in names or ():
            if name not in COLUMNS:
                raise ValueError(f"there is no column {name!r} (valid: {', '.join(COLUMNS)})")
        return names


def comparison(profile: str, dataset: str, seeds: Sequence[int] | None, **overrides: Any) -> list[Entry]:
    """Return the runs of Tables 1 and 2 and of Figures 3 to 6 on the columns of a data set, seed after seed.

    Parameters
    ----------
    profile, dataset, seeds, **overrides
        As in :meth:`fl_core.experiments.artifacts.Artifact.grid`.
    """
    make = Maker(profile, dataset, seeds, Options.of(**overrides))
    return make.entries(make.columns, METHODS)


def others(profile: str, dataset: str, seeds: Sequence[int] | None, **overrides: Any) -> list[Entry]:
    """Return the runs of FedASMU and of the baselines that only the text reports, on the data set's first column."""
    make = Maker(profile, dataset, seeds, Options.of(**overrides))
    return make.entries(make.columns[:1], ("FedASMU", *EXTRA))


def ablations(profile: str, dataset: str, seeds: Sequence[int] | None, **overrides: Any) -> list[Entry]:
    """Return the runs of Figure 2: LeNet and CNN, if the data set has columns with them, else the first one."""
    make = Maker(profile, dataset, seeds, Options.of(**overrides))
    columns = [name for name in make.columns if COLUMNS[name].model in ("LeNet", "CNN")] or make.columns[:1]
    return make.entries(columns, ("FedASMU", *ABLATIONS, "FedAvg"))


def heuristics(profile: str, dataset: str, seeds: Sequence[int] | None, **overrides: Any) -> list[Entry]:
    """Return the runs of FedASMU and of its fixed slots, as far as E has them, on the data set's first column."""
    make = Maker(profile, dataset, seeds, Options.of(**overrides))
    slots = [name for name in HEURISTICS if name != "slot 3" or make.options.epochs > 3]
    return make.entries(make.columns[:1], ("FedASMU", *slots))


def sensitivity(profile: str, dataset: str, seeds: Sequence[int] | None, **overrides: Any) -> list[Entry]:
    """Return FedASMU's runs with other trigger periods and learning rates, one changed at a time."""
    make = Maker(profile, dataset, seeds, Options.of(**overrides))
    name = make.columns[0]
    changes: list[tuple[str | None, Any]] = [(None, None)]
    changes += [("trigger_period", period) for period in make.scale.periods]
    for rate, standard in zip(RATES[:3], COLUMNS[name].rates, strict=False):
        changes += [(rate, standard * factor) for factor in make.scale.factors]
    return [make.entry("FedASMU", name, seed, *change) for seed in make.seeds for change in changes]


def conditions(profile: str, dataset: str, seeds: Sequence[int] | None, **overrides: Any) -> list[Entry]:
    """Return the runs of Figure 7: other bandwidths, speeds and numbers of devices, beside the standard ones."""
    make = Maker(profile, dataset, seeds, Options.of(**overrides), varied=True)
    changes = [(None, None), *((what, value) for what, values in make.scale.conditions.items() for value in values)]
    return [
        make.entry(method, make.columns[0], seed, *change)
        for seed in make.seeds
        for change in changes
        for method in make.scale.condition_methods
    ]


def variants(profile: str, dataset: str, seeds: Sequence[int] | None, **overrides: Any) -> list[Entry]:
    """Return FedASMU's runs in the variants of :data:`VARIANTS`, beside the standard one."""
    make = Maker(profile, dataset, seeds, Options.of(**overrides), varied=True)
    changes = [(None, None), *(("variant", name) for name in list(VARIANTS)[: make.scale.extra])]
    return [make.entry("FedASMU", make.columns[0], seed, *change) for seed in make.seeds for change in changes]


def tuning(profile: str, dataset: str, seeds: Sequence[int] | None, **overrides: Any) -> list[Entry]:
    """Return baselines with the values of :data:`TUNED`, beside the standard ones."""
    make = Maker(profile, dataset, seeds, Options.of(**overrides), varied=True)
    return [
        make.entry(method, make.columns[0], seed, *change)
        for seed in make.seeds
        for method, (what, values) in list(TUNED.items())[: make.scale.extra]
        for change in [(None, None), *((what, value) for value in values)]
    ]


GRIDS: dict[str, Callable[..., list[Entry]]] = {
    each.__name__: each
    for each in (comparison, others, ablations, heuristics, sensitivity, conditions, variants, tuning)
}


class Maker:
    """Builds the entries of one profile, data set and choice of options."""

    def __init__(
        self, profile: str, dataset: str, seeds: Sequence[int] | None, chosen: Options, *, varied: bool = False
    ) -> None:
        self.dataset, self.options, self.scale = dataset, chosen, SCALES[profile]
        self.columns = chosen.columns or columns_of(dataset)
        few = varied or any(COLUMNS[name].dataset != "fashion-mnist" for name in self.columns)
        self.seeds = tuple((self.scale.other_seeds if few else self.scale.seeds) if seeds is None else seeds)

    def entries(self, columns: Sequence[str], methods: Sequence[str]) -> list[Entry]:
        """Return standard runs, seed after seed."""
        return [self.entry(method, name, seed) for seed in self.seeds for name in columns for method in methods]

    def uploads(self, name: str) -> int:
        """Return T of a column, in single uploads."""
        own = self.scale.uploads if COLUMNS[name].dataset == "fashion-mnist" else self.scale.other_uploads
        return self.options.uploads or (own if self.scale.whole else own * COLUMNS[name].longer)

    def network(self, name: str) -> str:
        """Return the network that is trained."""
        column = COLUMNS[name]
        whole = self.scale.whole or column.width == 1
        return column.network if whole else f"{column.network}(width={column.width})"

    def side(self, name: str) -> int | None:
        """Return the side of the images if they are made smaller."""
        return None if self.scale.whole else COLUMNS[name].small_side

    def parameters(self, name: str) -> int:
        """Return the number of parameters of the network that is trained."""
        column, side = COLUMNS[name], self.side(name)
        shape = (column.shape[0], side, side) if side else column.shape
        return num_parameters(self.network(name), shape, column.classes)

    def entry(self, method: str, name: str, seed: int, varied: str | None = None, value: Any = None) -> Entry:
        """Return a run, in the standard setting or with a value that is varied."""
        column, chosen = COLUMNS[name], self.options
        devices = int(value) if varied == "devices" else 100
        in_flight, uploads = devices // IN_FLIGHT, self.uploads(name)
        settings: dict[str, Any] = {}
        if varied == "variant":
            settings = VARIANTS[value]
        elif varied in RATES or varied in ("mu", "alpha", "buffer", "global_lr"):
            settings = {varied: value}
        algorithm, per_version = make_method(
            method, column, uploads, in_flight, settings, lambda_0=chosen.lambda_0,
            staleness_bound=chosen.staleness_bound,
        )  # fmt: skip
        counted = "updates" if per_version == 1 else "uploads"
        if method in SYNCHRONOUS:
            counted, uploads = "updates", max(1, uploads // in_flight)
        samples = column.samples * 100 / devices
        most = min(self.scale.samples * column.share if self.scale.samples else samples, samples)
        every = max(1, 10 // per_version)
        whole = self.scale.whole
        lr = chosen.lr or (column.lr if whole else column.small_lr or column.lr)
        spec = RunSpec(
            dataset=column.dataset if chosen.columns else self.dataset,
            partition=Dirichlet(
                alpha=chosen.dirichlet,
                min_samples=MIN_SAMPLES,
                below_minimum="top_up" if column.classes == 2 else "redraw",
                train_fraction=most / samples,
            ),
            model=self.network(name),
            initialisation=column.initial,
            preprocessing={"resize": side} if (side := self.side(name)) else {},
            world=self.world(name, devices, varied, value),
            algorithm=algorithm,
            training=LocalTraining(
                lr=lr * value if varied == "step_factor" else lr,
                lr_decay=LR_DECAY ** (every * per_version / 10),
                lr_decay_versions=every,
                batch_size=BATCH,
                epochs=chosen.epochs,
            ),
            budget=Budget(**{counted: uploads}),
            evaluation=Evaluation(every_updates=every, test_samples=self.scale.test_samples),
            seed=seed,
        )
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
            "fedasmu",
            devices=devices,
            ratio=value if varied == "heterogeneity" else chosen.ratio,
            slower_network=slower,
            ticks=chosen.ticks,
            epochs=chosen.epochs,
            cell=name,
            **given,
        )
