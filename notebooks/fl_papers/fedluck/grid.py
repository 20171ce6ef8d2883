"""The runs behind FedLuck's Figures 1 to 3 and Tables 1 and 2 (specification, section 6).

Seven methods on the paper's world of ten devices, with independent and with Dirichlet-distributed labels; FedPer on
five devices over local steps k and kept fraction delta (Figure 1); and FedLuck with other periods and in variants.
The seven methods have the paper's own setting on Fashion-MNIST from profile ``laptop`` on. Everything else has a
narrower network there, and the two larger tasks shorter horizons. A narrower network gets links as much slower, so
that every upload takes the paper's time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fl_core.algorithms import Algorithm, FedAsync, FedAvgTopK, FedBuff, FedLuck, FedPer
from fl_core.datasets import IID, Dirichlet
from fl_core.errors import unknown
from fl_core.experiments.spec import RunSpec
from fl_core.experiments.study import Entry
from fl_core.formulas.compression import Identity, TopK
from fl_core.formulas.staleness import Constant
from fl_core.models import num_parameters
from fl_core.runtime import Budget, Evaluation, LocalTraining
from fl_core.world import Network, World
from fl_papers.fedluck.scales import (
    HEAT_PERIODS_PER_EVALUATION,
    PERIODS_PER_EVALUATION,
    SCALES,
    Options,
)
from fl_papers.fedluck.setups import setup_of

DEVICES, FEWER_DEVICES = 10, 5
"""Devices of all experiments, and of Figure 1."""
TRAIN_FRACTION = 0.8
"""Part of its samples that a device trains on (A3)."""
MOMENTUM = 0.9
LABELS: dict[str, str] = {"iid": "independent labels", "dirichlet": "Dirichlet labels"}
"""The two partitions, as the tables and figures call them."""
BASELINES = ("FedPer", "FedBuff", "FedAsync", "FedAvg+TopK")
SINGLE = ("frequency only", "compression only")
"""Table 2's methods that optimise one variable, by what they optimise (E12)."""
METHODS = ("FedLuck", *BASELINES, *SINGLE)


CLASSES = 10


def comparison(
    partitions: Sequence[str],
    methods: Sequence[str],
    profile: str,
    dataset: str,
    seeds: Sequence[int] | None,
    **overrides: Any,
) -> list[Entry]:
    """Return the runs of `methods` on `partitions` (keys of :data:`LABELS`), seed after seed.

    Parameters
    ----------
    partitions, methods : sequence of str
    profile, dataset, seeds, **overrides
        As in :meth:`fl_core.experiments.artifacts.Artifact.grid`.
    """
    make = Maker(profile, dataset, seeds, Options.of(**overrides))
    return [
        make.compared(method, partition, seed)
        for seed in make.seeds
        for partition in partitions
        for method in methods
    ]


def heat_map(profile: str, dataset: str, seeds: Sequence[int] | None, **overrides: Any) -> list[Entry]:
    """Return the runs of Figure 1, seed after seed; each ends when its target is reached."""
    make = Maker(profile, dataset, seeds, Options.of(**overrides))
    steps = make.options.heat_steps or make.scale.heat_steps
    deltas = make.options.heat_deltas or make.scale.heat_deltas
    return [make.heat(k, delta, seed) for seed in make.seeds for k in steps for delta in deltas]


def periods(profile: str, dataset: str, seeds: Sequence[int] | None, **overrides: Any) -> list[Entry]:
    """Return FedLuck's runs with other periods, seed after seed, with independent labels."""
    make = Maker(profile, dataset, seeds, Options.of(**overrides))
    lengths = [make.period * factor for factor in make.scale.periods]
    return [make.with_period(length, seed) for seed in make.seeds for length in lengths]


def variants(profile: str, dataset: str, seeds: Sequence[int] | None, **overrides: Any) -> list[Entry]:
    """Return FedLuck's runs in the variants of :data:`VARIANTS`, seed after seed, with Dirichlet labels."""
    make = Maker(profile, dataset, seeds, Options.of(**overrides))
    return [make.variant(name, seed) for seed in make.seeds for name in VARIANTS]


VARIANTS: dict[str, dict[str, Any]] = {
    "as in the tables": {},
    "momentum reset": {"momentum_reset": True},
    "error feedback": {"error_feedback": True},
    "top-k of the whole vector": {"per_tensor": False},
    "weights by samples": {"weighting": "samples"},
    "positions sent": {"wire": "values+indices"},
    "exact plan": {"solver": "exact"},
    "plan with the ceiling": {"solver": "exact_ceil"},
}
"""What differs from FedLuck as the tables have it: A1, A8, A6, A5, section 2.8, and the solvers of section 2.5."""


class Maker:
    """Builds the entries of one profile, data set and choice of options."""

    def __init__(self, profile: str, dataset: str, seeds: Sequence[int] | None, chosen: Options) -> None:
        self.dataset, self.options, self.scale, self.setup = dataset, chosen, SCALES[profile], setup_of(dataset)
        full, width = self.setup.cell in self.scale.full, self.scale.width
        self.narrow = self.setup.model if width == 1 else f"{self.setup.model}(width={width})"
        self.model = self.setup.model if full else self.narrow
        self.seconds = chosen.seconds or (self.setup.seconds if full else self.scale.seconds[self.setup.cell])
        self.heat_target = chosen.heat_target or self.scale.heat_targets.get(self.setup.cell, self.setup.heat_target)
        self.period = chosen.period_seconds or self.setup.period_seconds
        self.seeds = tuple(self.scale.seeds if seeds is None else seeds)

    def compared(self, method: str, partition: str, seed: int) -> Entry:
        """Return a run of Figures 2 and 3 and of the tables."""
        algorithm, steps = self.method(method)
        seconds = self.seconds * self.setup.longer.get(method, 1.0)
        labels = {"method": method, "partition": partition, "role": "comparison"}
        return self._entry(algorithm, labels, partition, seed, seconds, steps)

    def method(self, name: str) -> tuple[Algorithm, int | None]:
        """Return a method with its settings, and the local steps that the run's settings give it.

        Raises
        ------
        SpecError
            If there is none of that name.
        """
        task, chosen = self.setup, self.options
        fedper_steps, fedper_delta = chosen.steps or task.fedper[0], chosen.delta or task.fedper[1]
        topk_steps, topk_delta = task.fedavg_topk
        match name:
            case "FedLuck":
                return self._fedluck(), None
            case "frequency only":
                return self._fedluck(fixed_compression=task.fixed_compression), None
            case "compression only":
                return self._fedluck(fixed_steps=task.fixed_steps), None
            case "FedPer":
                return self._fedper(fedper_steps, fedper_delta), None
            case "FedBuff":
                fedbuff = FedBuff(
                    buffer=8, global_lr=task.global_lr, weight=Constant(), compressor=Identity(), concurrency=DEVICES
                )
                return fedbuff, task.fedbuff
            case "FedAsync":
                return FedAsync(alpha=0.4, rho=0.001, concurrency=DEVICES), task.fedasync
            case "FedAvg+TopK":
                fedavg = FedAvgTopK(clients_per_round=DEVICES, compressor=self._topk(topk_delta))
                return fedavg, topk_steps
        raise unknown("method", name, METHODS)

    def heat(self, steps: int, delta: float, seed: int) -> Entry:
        """Return a run of Figure 1."""
        target = self.heat_target
        seconds = self.options.heat_seconds or self.scale.heat_seconds
        labels = {"method": "FedPer", "steps": steps, "delta": delta, "role": "heat map", "target": target}
        evaluation = Evaluation(every_updates=HEAT_PERIODS_PER_EVALUATION, test_samples=self.scale.test_samples)
        return self._entry(
            self._fedper(steps, delta), labels, "iid", seed, seconds, model=self.narrow, accuracy=target,
            devices=FEWER_DEVICES, evaluation=evaluation,
        )  # fmt: skip

    def with_period(self, period: float, seed: int) -> Entry:
        """Return a run of FedLuck with another period."""
        labels = {"method": "FedLuck", "period": period, "role": "period"}
        algorithm = self._fedluck(period_seconds=period)
        return self._entry(algorithm, labels, "iid", seed, self.scale.extra_seconds, model=self.narrow)

    def variant(self, name: str, seed: int) -> Entry:
        """Return a run of FedLuck in one of :data:`VARIANTS`."""
        settings = dict(VARIANTS[name])
        reset = settings.pop("momentum_reset", False)
        labels = {"method": "FedLuck", "variant": name, "role": "variant"}
        return self._entry(
            self._fedluck(**settings), labels, "dirichlet", seed, self.scale.extra_seconds,
            model=self.narrow, momentum_reset=reset,
        )  # fmt: skip

    def world(self, devices: int = DEVICES, model: str | None = None) -> World:
        """Return the paper's world; links are slower by as much as `model` is smaller than the paper's network."""
        world = World.named("fedluck", cell=self.setup.cell, devices=devices)
        size = num_parameters(model or self.model, self.setup.shape, CLASSES) / self.setup.parameters
        if size == 1:
            return world
        bits = world.network.up_bits_per_second
        assert isinstance(bits, tuple)
        return world.model_copy(update={"network": Network(up_bits_per_second=tuple(size * b for b in bits))})

    def _fedluck(self, **settings: Any) -> FedLuck:
        given = {"period_seconds": self.period, "solver": self.options.solver, "per_tensor": self.options.per_tensor}
        return FedLuck(**{**given, "global_lr": self.setup.global_lr, **settings})

    def _fedper(self, steps: int, delta: float) -> FedPer:
        return FedPer(
            period_seconds=self.period, global_lr=self.setup.global_lr, steps=steps, compressor=self._topk(delta)
        )

    def _topk(self, delta: float) -> TopK:
        return TopK(delta=delta, per_tensor=self.options.per_tensor, wire="ideal_fraction")

    def _entry(
        self,
        algorithm: Algorithm,
        labels: dict[str, Any],
        partition: str,
        seed: int,
        seconds: float,
        steps: int | None = None,
        *,
        model: str | None = None,
        accuracy: float | None = None,
        devices: int = DEVICES,
        momentum_reset: bool = False,
        evaluation: Evaluation | None = None,
    ) -> Entry:
        parts = {
            "iid": IID(remainder="drop", train_fraction=TRAIN_FRACTION),
            "dirichlet": Dirichlet(alpha=self.options.dirichlet, cuts="floor", train_fraction=TRAIN_FRACTION),
        }
        spec = RunSpec(
            dataset=self.dataset,
            partition=parts[partition],
            model=model or self.model,
            preprocessing=self.setup.preprocessing,
            initialisation="pytorch",
            world=self.world(devices, model),
            algorithm=algorithm,
            training=LocalTraining(
                lr=self.options.local_lr or self.setup.local_lr,
                batch_size=self.setup.batch_size,
                steps=steps,
                momentum=MOMENTUM,
                momentum_reset=momentum_reset,
                order="cyclic",
            ),
            budget=Budget(seconds=seconds, accuracy=accuracy),
            evaluation=evaluation or self._evaluation(algorithm, seconds),
            seed=seed,
        )
        return Entry(spec, {**labels, "seed": seed})

    def _evaluation(self, algorithm: Algorithm, seconds: float) -> Evaluation:
        """Return when a run is measured; one that goes on after the horizon is measured there on all images, too."""
        rare = isinstance(algorithm, FedBuff | FedAvgTopK)
        return Evaluation(
            every_updates=1 if rare else None,
            every_seconds=None if rare else PERIODS_PER_EVALUATION * self.setup.period_seconds,
            test_samples=self.scale.test_samples,
            at_seconds=(self.seconds,) if self.seconds < seconds else (),
        )
