"""SD-FEEL's experiment: asynchronous and synchronous training at three gaps between device speeds (Figure 2).

Thirty devices in six clusters on a ring, Dirichlet-distributed classes, one horizon of virtual time for all curves
(A-11). Beside them: hierarchical FedAvg as a reference, variants of the mixing, fewer classes on each device (C17),
and a horizon on which synchronous training catches up (C05).

The clock is the paper's at every profile: with a tenth of the mini-batches and of the time of both transfers every
event keeps its place in the order (D12), and a tenfold step size keeps step size times steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import pandas as pd
from pydantic import Field, field_validator

from fl_core.algorithms import Algorithm, AsyncSDFeel, HierarchicalFedAvg, SyncSDFeel
from fl_core.datasets import Dirichlet
from fl_core.datasets.registry import actual, kind_of, sizes
from fl_core.experiments import experiment
from fl_core.experiments.measures import BySeed, Printed
from fl_core.experiments.run import Result
from fl_core.experiments.spec import RunSpec
from fl_core.experiments.study import Entry, Study
from fl_core.models import num_parameters
from fl_core.runtime import Budget, Evaluation, LocalTraining
from fl_core.world import Clusters, GapCompute, NamedWorld, Network, World
from fl_core.world.compute import Ratio

PRINTED = Printed(__file__)
"""The paper's setting and its latency model; `origin`: ``printed``, ``derived`` from what is printed, ``resolved`` by
choice, or ``not stated``. There is no table of results."""
PAPER_BATCHES, PAPER_LR, BATCH = 100, 0.001, 10
"""Mini-batches of the slowest device in an iteration, step size, images per mini-batch: as in the paper."""
RESNET18 = 11_173_962  # Parameters of the paper's network.
UP, BACKHAUL = 5e6, 10e6  # Bits per second from device to server and from server to server.
ROUND_SECONDS = {5: 17578.052826, 10: 32457.781315, 30: 91976.695269}
"""A synchronous round at each gap H, for the specification's draw of speeds: what horizons are measured in."""
LONG_ROUNDS, LONG_GAP = 300, 30.0  # Horizon of the long runs, in synchronous rounds at this gap (C05).
BEGINNING, SOONER = 1 / 3, 3.0  # Part of the horizon with every version measured, at most the latter over H (C01).
BEGINNING_SAMPLES = 500  # Test images of such a measurement; it is about the training loss.
FEWER = 5  # What the Dirichlet concentration is divided by in the runs with fewer classes on each device (C17).


class SDFeelWorld(NamedWorld):
    """SD-FEEL: six edge servers in a ring, each with five devices; speeds with a gap of exactly H (2.4, section 6).

    The times are those of the paper's ResNet-18 on CIFAR-10: 55.67 s for a step at the mean speed, 71.5 s for an
    upload over 5 Mb/s, 35.8 s from server to server over 10 Mb/s, downloads free.
    """

    name: ClassVar[str] = "sdfeel"
    devices: int = Field(30, ge=1)
    servers: int = Field(6, ge=1)
    heterogeneity_gap: Ratio = 5.0
    """Fastest to slowest speed H: 5, 10 or 30 in the paper."""
    step_cost: Literal["printed", "flop_consistent"] = "printed"
    """The latter is a tenth, as a step has 10 samples and not 100 (E-19)."""
    parameters: int = Field(RESNET18, ge=1)
    """Size of the model that is really sent. The bandwidth follows, so that an upload takes the paper's time."""
    communication: float = Field(1.0, gt=0, allow_inf_nan=False)
    """Factor of both communication times; scale it together with the least number of mini-batches (D12)."""

    def world(self) -> World:
        seconds = {"printed": 55.67, "flop_consistent": 5.5665152}[self.step_cost]
        backhaul = model_bits(RESNET18) / BACKHAUL * self.communication
        return World(
            devices=self.devices, compute=GapCompute(ratio=self.heterogeneity_gap, seconds_per_step=seconds),
            network=Network(up_bits_per_second=UP * self.parameters / RESNET18 / self.communication),
            clusters=Clusters(servers=self.servers, backhaul_seconds=backhaul),
        )  # fmt: skip


def model_bits(num_params: int) -> int:
    """Return M_bit = 32 M, the size of a model on the wire; not 32 Mbit (E-18)."""
    return 32 * num_params


class Options(experiment.Options):
    """What a reader may change besides profile, data set and seeds."""

    gaps: tuple[Annotated[float, Field(ge=1, allow_inf_nan=False)], ...] = Field((5.0, 10.0, 30.0), min_length=1)
    """Fastest to slowest device H of each pair of curves, ascending."""
    alpha: float = Field(0.5, gt=0, allow_inf_nan=False)
    """Dirichlet concentration of the classes."""
    lr: float | None = Field(None, gt=0, allow_inf_nan=False)
    """Step size; None: the paper's, times as many as iterations are shorter than the paper's."""
    rounds: float | None = Field(None, gt=0, allow_inf_nan=False)
    """Horizon, in synchronous rounds at H = 10; None: the profile's."""

    _sorted = field_validator("gaps")(experiment.in_order)


@dataclass(frozen=True)
class Scale:
    """What a profile decides."""

    min_batches: int  # Mini-batches of the slowest device in an iteration: 100 in the paper.
    rounds: float
    """Horizon, in synchronous rounds at H = 10 (A-11)."""
    points: int  # Measurements of the global model.
    train_samples: int  # Training images that the training loss is averaged over.
    seeds: tuple[int, ...]
    test_samples: int = 0  # Test images of a measurement, but for the last one; 0: all.


@dataclass(frozen=True)
class Setup:
    """What is trained on a data set."""

    model: str  # The network at profile ``paper``; `reduced` is the one at the smaller profiles.
    reduced: str
    shape: tuple[int, ...]  # Of an image; all these data sets have ten classes.
    part: float = 1.0  # At profile ``laptop``, how much shorter still an iteration is, for networks that take long.
    samples: int | None = None
    """At profile ``laptop``, images of a measurement, but for the last one on test data; None: the profile's."""


RESNET = Setup("resnet18", "resnet18(width=0.125)", (3, 32, 32), part=0.3, samples=2_000)
"""The paper's network; at the smaller profiles its channels are an eighth."""


@dataclass(frozen=True)
class Method:
    """An algorithm, the parameter that says how many mini-batches its slowest device makes, and other parameters."""

    algorithm: type[Algorithm]
    steps: str = "local_steps"
    parameters: Mapping[str, Any] = field(default_factory=dict)


ASYNC, SYNC, CLOUD = "Async. SD-FEEL", "Sync. SD-FEEL", "Hierarchical FedAvg"
FRESH, WEIGHTED = f"{ASYNC}, fresh", f"{ASYNC}, data_weighted"
METHODS = {
    ASYNC: Method(AsyncSDFeel, "min_batches"),
    SYNC: Method(SyncSDFeel),
    CLOUD: Method(HierarchicalFedAvg),  # what synchronous SD-FEEL would be with a cloud
    FRESH: Method(AsyncSDFeel, "min_batches", {"self_staleness": "fresh"}),
    WEIGHTED: Method(AsyncSDFeel, "min_batches", {"mixing": "data_weighted"}),  # E-05
}


class SDFeel(experiment.Experiment):
    """The runs of Figure 2 and beside it; each of them is laid out by :meth:`entry`."""

    OPTIONS = Options
    PROFILES = {
        "smoke": Scale(1, 3, 3, 500, (0,), 500),
        "laptop": Scale(10, 50, 30, 5_000, (0, 1, 2)),
        "paper": Scale(100, 50, 60, 10_000, (0, 1, 2)),
    }
    SETUPS = {"fashion-mnist": Setup("lenet5", "lenet5", (1, 28, 28)), "cifar10": RESNET, "cifar10-surrogate": RESNET}

    def __init__(self, profile: str, dataset: str, seeds: Sequence[int] | None = None, **overrides: Any) -> None:
        super().__init__(profile, dataset, seeds, **overrides)
        if profile == "laptop" and self.setup.samples:
            self.scale = replace(self.scale, train_samples=self.setup.samples, test_samples=self.setup.samples)
        self.model = self.setup.model if profile == "paper" else self.setup.reduced
        self.min_batches = round(self.scale.min_batches * (self.setup.part if profile == "laptop" else 1))
        self.part = self.min_batches / PAPER_BATCHES
        self.rounds = self.options.rounds or self.scale.rounds
        self.long_rounds = LONG_ROUNDS * (self.rounds / self.PROFILES["paper"].rounds)
        self.middle = self.options.gaps[len(self.options.gaps) // 2]

    def figure2(self) -> Iterator[Entry]:
        """Yield both methods at every gap."""
        return self.entries((ASYNC, SYNC), self.options.gaps)

    def beginning(self) -> Iterator[Entry]:
        """Yield Figure 2, and the beginning of asynchronous training with the loss of every version (C01, C06)."""
        yield from self.figure2()
        dense = {"every_updates": 1, "every_seconds": None, "test_samples": BEGINNING_SAMPLES}
        for entry in self.entries((ASYNC,), self.options.gaps, role="early"):
            changed = {"budget.seconds": horizon(entry) * min(BEGINNING, SOONER / entry.labels["gap"])}
            changed |= {f"evaluation.{name}": value for name, value in dense.items()}
            yield Entry(entry.spec.changed(**changed), entry.labels)

    def reference(self) -> Iterator[Entry]:
        """Yield synchronous SD-FEEL, and hierarchical FedAvg beside it."""
        yield from self.entries((SYNC,), self.options.gaps)
        yield from self.entries((CLOUD,), self.options.gaps, role="reference")

    def variants(self) -> Iterator[Entry]:
        """Yield asynchronous SD-FEEL, and with other mixing, at the middle gap."""
        yield from self.entries((ASYNC,), (self.middle,))
        yield from self.entries((FRESH, WEIGHTED), (self.middle,), role="variant")

    def non_iid(self) -> Iterator[Entry]:
        """Yield both methods at the middle gap, and with fewer classes on each device (C17)."""
        yield from self.entries((ASYNC, SYNC), (self.middle,))
        yield from self.entries((ASYNC, SYNC), (self.middle,), role="non-IID", alpha=self.options.alpha / FEWER)

    def long_runs(self) -> Iterator[Entry]:
        """Yield both methods with a linear model on a horizon of :data:`LONG_ROUNDS` synchronous rounds (C05)."""
        rounds = self.long_rounds * ROUND_SECONDS[30] / ROUND_SECONDS[10]
        return self.entries((ASYNC, SYNC), (LONG_GAP,), role="long", model="linear", rounds=rounds)

    def entries(self, methods: Sequence[str], gaps: Sequence[float], **changed: Any) -> Iterator[Entry]:
        """Yield the runs of some methods at some gaps for every seed; `changed` as in :meth:`entry`."""
        return (self.entry(m, gap, seed, **changed) for seed in self.seeds for gap in gaps for m in methods)

    def entry(
        self, method: str, gap: float, seed: int, *, role: str = "curve", alpha: float | None = None,
        model: str | None = None, rounds: float | None = None,
    ) -> Entry:  # fmt: skip
        """Return one run with its labels."""
        chosen, model = METHODS[method], model or self.model
        horizon = (rounds or self.rounds) * ROUND_SECONDS[10] * self.part
        concentration = self.options.alpha if alpha is None else alpha
        sent = parameters_of(model, self.dataset)
        few: Any = "redraw" if concentration >= 0.5 else "top_up"
        spec = RunSpec(
            dataset=self.dataset, model=model, initialisation="pytorch", seed=seed, budget=Budget(seconds=horizon),
            partition=Dirichlet(alpha=concentration, min_samples=BATCH, cuts="floor", below_minimum=few),
            world=World.named("sdfeel", heterogeneity_gap=gap, parameters=sent, communication=self.part),
            algorithm=chosen.algorithm(**{chosen.steps: self.min_batches}, **chosen.parameters),
            training=LocalTraining(lr=self.options.lr or PAPER_LR / self.part, batch_size=BATCH),
            evaluation=Evaluation(
                every_updates=None, every_seconds=horizon / self.scale.points,
                train_samples=self.scale.train_samples, test_samples=self.scale.test_samples,
            ),
        )  # fmt: skip
        labels = {"method": method, "gap": gap, "alpha": concentration, "role": role, "seed": seed}
        return Entry(spec, labels)

    def setting(self) -> pd.DataFrame:
        """Return the paper's setting beside ours, one row per quantity; what the paper does not say is marked."""
        spec = next(self.figure2()).spec
        clusters, horizon, scale = spec.world.clusters, spec.budget.seconds, self.scale
        assert clusters is not None
        assert horizon is not None
        gaps = ", ".join(f"{gap:g}" for gap in self.options.gaps)
        shorter = "the paper's" if self.part == 1 else f"{self.part:g} times the paper's"
        scaled = f"{PAPER_LR:g}/{self.part:g} = " if self.options.lr is None and self.part != 1 else ""
        rows = [
            ("data", "CIFAR-10", f"{actual(self.dataset, notify=False)} ({kind_of(self.dataset)})"),
            ("network", f"ResNet-18, {RESNET18:,} parameters",
             f"{self.model}, {parameters_of(self.model, self.dataset):,} parameters"),
            ("devices; clusters; graph", "; ".join(map(_set, ("num_clients", "num_clusters", "topology"))),
             f"{spec.world.devices}; {clusters.servers}; {clusters.graph.kind}"),
            ("heterogeneity gap H", "5, 10, 30", gaps),
            ("speeds", "not stated how they are drawn", "uniform, rescaled to exactly H, mean 1 GFLOPS"),
            ("labels", f"Dirichlet, concentration {_set('dirichlet_concentration')}",
             f"Dirichlet, concentration {self.options.alpha:g}; with fewer classes {self.options.alpha / FEWER:g}"),
            ("batch; rate", f"{_set('batch_size')}; {_set('learning_rate')}, constant",
             f"{BATCH}; {scaled}{spec.training.lr:g}, constant"),
            ("momentum, augmentation", "not stated", "none"),
            ("local steps of the slowest device", _set("min_minibatches_per_client"), f"{self.min_batches}"),
            ("a local step at mean speed", "55.67 s (E-19)", "55.67 s"),
            ("upload; server to server", "71.5 s; 35.8 s", f"{shorter}, whatever the network's size (D12)"),
            ("staleness discount ψ", "1/(2(δ+1))", "1/(δ+1): the 1/2 cancels (E-04)"),
            ("weights of (5)", "as printed do not add up to one (E-01)", "corrected"),
            ("Sync.: local steps, exchanges", "not stated", f"{self.min_batches}, 1, matrix 'laplacian_safe' (2.5)"),
            ("horizon", "not stated", f"{horizon:,.0f} s, {self.rounds:g} synchronous rounds at H = 10"),
            ("long runs", "–", f"linear model, H = {LONG_GAP:g}, {self.long_rounds:g} synchronous rounds"),
            ("measured", "not stated", f"{scale.points} times; on {scale.train_samples:,} training images and "
             f"{scale.test_samples or sizes(self.dataset)[1]:,} test images"),
            ("repetitions", "not stated", f"{len(self.seeds)}"),
        ]  # fmt: skip
        return pd.DataFrame(rows, columns=["setting", "the paper", f"here, profile {self.profile}"])


def differences(first: Study, second: Study) -> pd.DataFrame:
    """Return the rows of :meth:`SDFeel.setting` in which two studies differ, with a column for each."""
    one, other = (setting_of(study) for study in (first, second))
    here, there = one.iloc[:, 2], other.iloc[:, 2]
    found = one.iloc[:, :2].assign(**{first.dataset: here, second.dataset: there})
    return found[here != there].reset_index(drop=True)


def setting_of(study: Study) -> pd.DataFrame:
    """Return the paper's setting beside that of a study."""
    return SDFeel(study.profile, study.dataset, study.seeds or None, **study.overrides).setting()


def parameters_of(model: str, dataset: str) -> int:
    """Return how many parameters `model` has on `dataset`."""
    return num_parameters(model, SDFeel.SETUPS[dataset].shape, 10)


def _set(quantity: str) -> str:
    """Return what the paper prints of its setting."""
    return str(PRINTED.rows(table="setup", quantity=quantity)["value"].iloc[0])


# What is read off runs. It is the data-weighted mean of the servers' models that is measured (A-12).

Run = tuple[Entry, Result]


def runs(study: Study, method: str, gap: float, role: str = "curve") -> dict[int, Run]:
    """Return the runs of a curve by seed."""
    return study.by_seed(method=method, gap=gap, role=role)


def gaps(study: Study, method: str = ASYNC, role: str = "curve") -> list[float]:
    """Return the gaps H that `study` has finished runs of, ascending."""
    return sorted({entry.labels["gap"] for entry, _ in study.select(method=method, role=role)})


def horizon(entry: Entry) -> float:
    """Return the virtual seconds of a run."""
    seconds = entry.spec.budget.seconds
    assert seconds is not None
    return seconds


def value_at(run: Run, metric: str, part: float) -> float:
    """Return a metric at a part of the horizon, interpolated between measurements."""
    table = run[1].history.evaluations
    return float(np.interp(part * horizon(run[0]), table["seconds"], table[metric]))


def values_at(study: Study, method: str, gap: float, metric: str, part: float = 1.0, role: str = "curve") -> BySeed:
    """Return :func:`value_at` of the runs of a curve, by seed."""
    return BySeed.of(runs(study, method, gap, role).values(), lambda *run: value_at(run, metric, part))
