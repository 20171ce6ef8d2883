"""The runs behind SD-FEEL's Figure 2: asynchronous and synchronous training, at three gaps between device speeds.

Thirty devices in six clusters on a ring, Dirichlet-distributed classes, one horizon of virtual time for all curves
(specification, section 6 and A-11). Beside them: hierarchical FedAvg as a reference, variants of the mixing, fewer
classes on each device (C17), and a horizon on which synchronous training catches up (C05).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from pydantic import Field

from fl_core.algorithms import Algorithm, AsyncSDFeel, HierarchicalFedAvg, SyncSDFeel
from fl_core.datasets import Dirichlet
from fl_core.errors import unknown
from fl_core.experiments.experiment import Options as Overrides
from fl_core.experiments.profiles import CLUSTERS
from fl_core.experiments.spec import RunSpec
from fl_core.experiments.study import Entry
from fl_core.models import num_parameters
from fl_core.runtime import Budget, Evaluation, LocalTraining
from fl_core.world import World

PAPER_BATCHES, PAPER_LR, BATCH = 100, 0.001, 10
"""Mini-batches of the slowest device in an iteration, step size, images per mini-batch: as in the paper."""
ROUND_SECONDS = {5: 17578.052826, 10: 32457.781315, 30: 91976.695269}
"""A synchronous round at each gap H, for the specification's draw of speeds: what horizons are measured in."""
LONG_ROUNDS, LONG_GAP = 300, 30.0
"""Horizon of the long runs, in synchronous rounds at this gap (C05)."""
NON_IID = 0.1
"""Dirichlet concentration of the runs with fewer classes on each device (C17)."""
ASYNC, SYNC, CLOUD = "Async. SD-FEEL", "Sync. SD-FEEL", "Hierarchical FedAvg"
VARIANTS: dict[str, dict[str, Any]] = {
    "fresh": {"self_staleness": "fresh"},
    "data_weighted": {"mixing": "data_weighted"},
}
"""Parameters of the variants of asynchronous SD-FEEL (A-02, E-05)."""


@dataclass(frozen=True)
class Setup:
    """What is trained on a data set.

    Attributes
    ----------
    model : str
        The network at profile ``paper``.
    reduced : str
        The network at the smaller profiles.
    shape : tuple of int
        Of an image; all these data sets have ten classes.
    part : float
        At profile ``laptop``, how much shorter still an iteration is, for networks that take long.
    samples : int or None
        At profile ``laptop``, images of a measurement, but for the last one on test data; None: the profile's.
    """

    model: str
    reduced: str
    shape: tuple[int, ...]
    part: float = 1.0
    samples: int | None = None


_RESNET = Setup("resnet18", "resnet18(width=0.125)", (3, 32, 32), part=0.3, samples=2_000)
SETUPS = {"fashion-mnist": Setup("lenet5", "lenet5", (1, 28, 28)), "cifar10": _RESNET, "cifar10-surrogate": _RESNET}
"""By data set. CIFAR-10's is the paper's; at the smaller profiles its channels are an eighth."""


class Options(Overrides):
    """What a reader may change besides profile, data set and seeds.

    Attributes
    ----------
    gaps : tuple of float
        Fastest to slowest device H of each pair of curves, ascending.
    alpha : float
        Dirichlet concentration of the classes.
    lr : float or None
        Step size; None: the paper's, times as many as iterations are shorter than the paper's.
    rounds : float or None
        Horizon, in synchronous rounds at H = 10; None: the profile's.
    """

    gaps: tuple[Annotated[float, Field(ge=1, allow_inf_nan=False)], ...] = Field((5.0, 10.0, 30.0), min_length=1)
    alpha: float = Field(0.5, gt=0, allow_inf_nan=False)
    lr: float | None = Field(None, gt=0, allow_inf_nan=False)
    rounds: float | None = Field(None, gt=0, allow_inf_nan=False)


def figure2(profile: str, dataset: str, seeds: Sequence[int] | None = None, **overrides: Any) -> list[Entry]:
    """Return the runs of Figure 2: both methods at every gap, for every seed.

    Parameters
    ----------
    profile, dataset, seeds, **overrides
        As in :meth:`fl_core.experiments.artifacts.Artifact.grid`.
    """
    make = _Maker(profile, dataset, Options.of(**overrides))
    return [
        make.entry(method, algorithm, gap, seed)
        for seed in make.chosen_seeds(seeds)
        for gap in make.options.gaps
        for method, algorithm in ((ASYNC, make.asynchronous()), (SYNC, make.synchronous()))
    ]


def reference(profile: str, dataset: str, seeds: Sequence[int] | None = None, **overrides: Any) -> list[Entry]:
    """Return hierarchical FedAvg at every gap: what synchronous SD-FEEL would be with a cloud."""
    make = _Maker(profile, dataset, Options.of(**overrides))
    return [
        make.entry(CLOUD, HierarchicalFedAvg(local_steps=make.min_batches), gap, seed, role="reference")
        for seed in make.chosen_seeds(seeds)
        for gap in make.options.gaps
    ]


def variants(profile: str, dataset: str, seeds: Sequence[int] | None = None, **overrides: Any) -> list[Entry]:
    """Return asynchronous SD-FEEL with each of :data:`VARIANTS` at the middle gap."""
    make = _Maker(profile, dataset, Options.of(**overrides))
    return [
        make.entry(f"{ASYNC}, {name}", make.asynchronous(**parameters), make.middle, seed, role="variant")
        for seed in make.chosen_seeds(seeds)
        for name, parameters in VARIANTS.items()
    ]


def non_iid(profile: str, dataset: str, seeds: Sequence[int] | None = None, **overrides: Any) -> list[Entry]:
    """Return both methods at the middle gap with fewer classes on each device (C17)."""
    make = _Maker(profile, dataset, Options.of(**overrides))
    return [
        make.entry(method, algorithm, make.middle, seed, role="non-IID", alpha=NON_IID)
        for seed in make.chosen_seeds(seeds)
        for method, algorithm in ((ASYNC, make.asynchronous()), (SYNC, make.synchronous()))
    ]


def long_runs(profile: str, dataset: str, seeds: Sequence[int] | None = None, **overrides: Any) -> list[Entry]:
    """Return both methods with a linear model on a horizon of :data:`LONG_ROUNDS` synchronous rounds (C05)."""
    make = _Maker(profile, dataset, Options.of(**overrides))
    rounds = LONG_ROUNDS * (make.rounds / CLUSTERS["paper"].rounds) * ROUND_SECONDS[30] / ROUND_SECONDS[10]
    return [
        make.entry(method, algorithm, LONG_GAP, seed, role="long", model="linear", rounds=rounds)
        for seed in make.chosen_seeds(seeds)
        for method, algorithm in ((ASYNC, make.asynchronous()), (SYNC, make.synchronous()))
    ]


GRIDS = {
    "figure2": figure2, "reference": reference, "variants": variants, "non_iid": non_iid, "long": long_runs,
}  # fmt: skip
"""All grids by name."""


def parameters_of(model: str, dataset: str) -> int:
    """Return how many parameters `model` has on `dataset`."""
    return num_parameters(model, SETUPS[dataset].shape, 10)


class _Maker:
    """Builds the entries of one profile, data set and choice of options."""

    def __init__(self, profile: str, dataset: str, chosen: Options) -> None:
        if dataset not in SETUPS:
            raise unknown("data set of this experiment", dataset, SETUPS)
        setup, scale = SETUPS[dataset], CLUSTERS[profile]
        if profile == "laptop" and setup.samples:
            scale = replace(scale, train_samples=setup.samples, test_samples=setup.samples)
        self.dataset, self.options, self.scale = dataset, chosen, scale
        self.model = setup.model if profile == "paper" else setup.reduced
        self.min_batches = round(self.scale.min_batches * (setup.part if profile == "laptop" else 1))
        self.part = self.min_batches / PAPER_BATCHES
        self.rounds = chosen.rounds or self.scale.rounds
        self.middle = chosen.gaps[len(chosen.gaps) // 2]

    def chosen_seeds(self, seeds: Sequence[int] | None) -> Sequence[int]:
        return self.scale.seeds if seeds is None else seeds

    def asynchronous(self, **parameters: Any) -> AsyncSDFeel:
        return AsyncSDFeel(min_batches=self.min_batches, **parameters)

    def synchronous(self) -> SyncSDFeel:
        return SyncSDFeel(local_steps=self.min_batches)

    def entry(
        self,
        method: str,
        algorithm: Algorithm,
        gap: float,
        seed: int,
        *,
        role: str = "curve",
        alpha: float | None = None,
        model: str | None = None,
        rounds: float | None = None,
    ) -> Entry:
        model, chosen = model or self.model, self.options
        horizon = (rounds or self.rounds) * ROUND_SECONDS[10] * self.part
        concentration = chosen.alpha if alpha is None else alpha
        world = World.named(
            "sdfeel",
            heterogeneity_gap=gap,
            parameters=parameters_of(model, self.dataset),
            communication=self.part,
        )
        spec = RunSpec(
            dataset=self.dataset,
            partition=Dirichlet(
                alpha=concentration,
                min_samples=BATCH,
                cuts="floor",
                below_minimum="redraw" if concentration >= 0.5 else "top_up",
            ),
            model=model,
            initialisation="pytorch",
            world=world,
            algorithm=algorithm,
            training=LocalTraining(lr=chosen.lr or PAPER_LR / self.part, batch_size=BATCH),
            budget=Budget(seconds=horizon),
            evaluation=Evaluation(
                every_updates=None,
                every_seconds=horizon / self.scale.points,
                train_samples=self.scale.train_samples,
                test_samples=self.scale.test_samples,
            ),
            seed=seed,
        )
        labels = {"method": method, "gap": gap, "alpha": concentration, "role": role, "seed": seed}
        return Entry(spec, labels)
