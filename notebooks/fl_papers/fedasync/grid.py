"""The runs behind FedAsync's Figures 2 to 10.

Single-thread SGD, FedAvg, and FedAsync with constant, polynomial and hinge weights: as curves at a small and at a
large maximum staleness (Figures 2 to 7), and by their final values over the maximum staleness (Figure 8) or over
alpha (Figures 9 and 10). Staleness is sampled, not simulated (specification, section 2.6): these runs have no clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field, field_validator

from fl_core.algorithms import SGD, FedAsync, FedAvg
from fl_core.datasets import IID
from fl_core.errors import unknown
from fl_core.experiments.experiment import Options as Overrides
from fl_core.experiments.profiles import CONVERGENCE, ConvergenceScale
from fl_core.experiments.spec import RunSpec
from fl_core.experiments.study import Entry
from fl_core.formulas.staleness import Constant, Hinge, Polynomial
from fl_core.runtime import Budget, Evaluation, LocalTraining, Warmup
from fl_core.world import ConstantCompute, World

DEVICES, SAMPLES, BATCH, ROUND = 100, 500, 50, 10
"""Devices, images per device, images per mini-batch, FedAvg's devices per round: as in the paper."""
STEPS = SAMPLES // BATCH
"""Gradients per local task, and iterations between two versions of SGD."""
LOCAL_LR, WEIGHT_DECAY = 0.1, 1e-4


@dataclass(frozen=True)
class Setup:
    """What is trained on a data set.

    Attributes
    ----------
    model : str
        The network at profile ``paper``.
    reduced : str
        The network at the smaller profiles.
    preprocessing : str or dict
        As a run specification takes it.
    lrs : tuple of float or None
        Learning rates tried for FedAvg and SGD at profile ``laptop``, where a run is too long to try all.
    """

    model: str
    reduced: str
    preprocessing: Any
    lrs: tuple[float, ...] | None = None


_LENET = Setup("lenet5", "lenet5", {})
_CNN = Setup("fedasync_cnn", "fedasync_cnn(width=0.125)", "fedasync", lrs=(0.1, 0.2))
SETUPS = {"fashion-mnist": _LENET, "cifar10": _CNN, "cifar10-surrogate": _CNN}
"""By data set. CIFAR-10's is the paper's; a width of 1/8 makes the specification's network ``lite``."""
ADAPTIVE = ("FedAsync", "FedAsync+Poly", "FedAsync+Hinge")


class Options(Overrides):
    """What a reader may change besides profile, data set and seeds.

    Attributes
    ----------
    alphas : tuple of float or None
        Mixing weights of the curves; None: the profile's.
    max_staleness : (int, int)
        The small and the large maximum staleness K.
    poly_a, hinge_a, hinge_b : float
        Parameters of the adaptive weights.
    rho : float
        Proximal weight (0: Option I).
    lrs : tuple of float or None
        Learning rates tried for FedAvg and SGD; None: the profile's.
    sweep_staleness : tuple of int or None
        Maximum staleness K of each point of Figure 8, ascending; None: the profile's.
    sweep_alpha : float
        Mixing weight of Figure 8.
    sweep_alphas : tuple of float or None
        Mixing weight of each point of Figures 9 and 10, ascending; None: the profile's.
    sweep_hinge_a : float
        The hinge's a in Figures 9 and 10, where the paper prints another one (specification, E19).
    """

    alphas: tuple[Annotated[float, Field(gt=0, le=1)], ...] | None = Field(None, min_length=1)
    max_staleness: tuple[int, int] = (4, 16)
    poly_a: float = Field(0.5, gt=0, allow_inf_nan=False)
    hinge_a: float = Field(10.0, gt=0, allow_inf_nan=False)
    hinge_b: float = Field(4.0, ge=0, allow_inf_nan=False)
    rho: float = Field(0.1, ge=0, allow_inf_nan=False)
    lrs: tuple[Annotated[float, Field(gt=0, allow_inf_nan=False)], ...] | None = Field(None, min_length=1)
    sweep_staleness: tuple[Annotated[int, Field(ge=1)], ...] | None = Field(None, min_length=1)
    sweep_alpha: float = Field(0.8, gt=0, le=1)
    sweep_alphas: tuple[Annotated[float, Field(gt=0, le=1)], ...] | None = Field(None, min_length=1)
    sweep_hinge_a: float = Field(4.0, gt=0, allow_inf_nan=False)

    @field_validator("sweep_staleness", "sweep_alphas")
    @classmethod
    def _sorted(cls, value: tuple[float, ...] | None) -> tuple[float, ...] | None:
        if value is not None and list(value) != sorted(set(value)):
            raise ValueError(f"{list(value)} must ascend, without repetitions")
        return value

    @field_validator("max_staleness")
    @classmethod
    def _ascending(cls, value: tuple[int, int]) -> tuple[int, int]:
        if not 1 <= value[0] < value[1]:
            raise ValueError(f"{list(value)} must be two ascending numbers, the smaller at least 1")
        return value


def convergence(
    axis: str, which: int, profile: str, dataset: str, seeds: Sequence[int] | None, **overrides: Any
) -> list[Entry]:
    """Return the runs of one of Figures 2 to 7.

    Parameters
    ----------
    axis : str
        A key of :data:`~fl_papers.fedasync.curves.AXES`; SGD has gradients only.
    which : int
        0: the small maximum staleness, 1: the large one.
    profile, dataset, seeds, **overrides
        As in :meth:`fl_core.experiments.artifacts.Artifact.grid`.
    """
    make = _Maker(profile, dataset, seeds, Options.of(**overrides))
    chosen, scale = make.options, make.scale
    entries = []
    for seed in make.seeds:
        for lr in make.lrs:
            if axis == "gradients":
                entries.append(make.sgd(lr, seed))
            entries += [make.fedavg(lr, seed), make.fedavg_start(lr, seed)]
        staleness = chosen.max_staleness[which]
        for alpha in make.alphas:
            entries += [make.fedasync(method, alpha, staleness, seed) for method in ADAPTIVE]
        if which == 1 and axis == "gradients":
            alphas = [alpha for alpha in scale.claim_alphas if alpha not in make.alphas]
            entries += [make.fedasync("FedAsync", alpha, staleness, seed, role="claim") for alpha in alphas]
    if which == 0 and axis == "gradients":
        entries += make.identities(make.alphas[0], make.seeds[0])
    return entries


def staleness_sweep(profile: str, dataset: str, seeds: Sequence[int] | None, **overrides: Any) -> list[Entry]:
    """Return the runs of Figure 8: one for each maximum staleness, method and seed."""
    make = _Maker(profile, dataset, seeds, Options.of(**overrides))
    return [
        make.swept("staleness sweep", method, make.options.sweep_alpha, staleness, seed)
        for seed in make.seeds
        for staleness in make.options.sweep_staleness or make.scale.sweep_staleness
        for method in ADAPTIVE
    ]


def alpha_sweep(which: int, profile: str, dataset: str, seeds: Sequence[int] | None, **overrides: Any) -> list[Entry]:
    """Return the runs of Figure 9 (`which` 0, small maximum staleness) or 10 (1): by alpha, method and seed."""
    make = _Maker(profile, dataset, seeds, Options.of(**overrides))
    return [
        make.swept("alpha sweep", method, alpha, make.options.max_staleness[which], seed)
        for seed in make.seeds
        for alpha in make.options.sweep_alphas or make.scale.sweep_alphas
        for method in ADAPTIVE
    ]


def network(dataset: str, profile: str) -> tuple[str, Any]:
    """Return the network and the preprocessing for a data set at a profile.

    Raises
    ------
    SpecError
        If the experiment is not laid out for that data set.
    """
    if dataset not in SETUPS:
        raise unknown("data set of this experiment", dataset, SETUPS)
    setup = SETUPS[dataset]
    return (setup.model if profile == "paper" else setup.reduced), setup.preprocessing


def learning_rates(profile: str, dataset: str, chosen: Options) -> tuple[float, ...]:
    """Return the learning rates among which FedAvg's and SGD's are chosen."""
    fewer = SETUPS[dataset].lrs if profile == "laptop" else None
    return chosen.lrs or fewer or CONVERGENCE[profile].lrs


class _Maker:
    """Builds the entries of one profile, data set and choice of options."""

    def __init__(self, profile: str, dataset: str, seeds: Sequence[int] | None, chosen: Options) -> None:
        self.dataset, self.options = dataset, chosen
        self.scale: ConvergenceScale = CONVERGENCE[profile]
        self.model, self.preprocessing = network(dataset, profile)
        self.seeds = tuple(self.scale.seeds if seeds is None else seeds)
        self.alphas = chosen.alphas or self.scale.alphas
        self.lrs = learning_rates(profile, dataset, chosen)
        self.weights: dict[str, Any] = {
            "FedAsync": Constant(),
            "FedAsync+Poly": Polynomial(a=chosen.poly_a),
            "FedAsync+Hinge": Hinge(a=chosen.hinge_a, b=chosen.hinge_b),
        }

    def sgd(self, lr: float, seed: int) -> Entry:
        return self._entry("SGD", SGD(block=STEPS), seed, lr)

    def fedavg(self, lr: float, seed: int) -> Entry:
        return self._entry("FedAvg", FedAvg(clients_per_round=ROUND), seed, lr)

    def fedavg_start(self, lr: float, seed: int) -> Entry:
        """FedAvg's first tenth again, measured ten times as often.

        A round costs ten times the gradients and communications of a FedAsync epoch, so on these two axes
        FedAvg's curve ends after a tenth of its epochs and needs as many points there as the others. The same seed
        gives the same models, however often they are measured, so both runs are one curve.
        """
        updates = max(1, self.scale.updates // ROUND)
        every = max(1, self.scale.eval_every // ROUND)
        return self._entry("FedAvg", FedAvg(clients_per_round=ROUND), seed, lr, updates, every, part="start")

    def fedasync(self, method: str, alpha: float, staleness: int, seed: int, role: str = "curve") -> Entry:
        algorithm = self._fedasync(alpha, self.weights[method], "missed_updates")
        return self._entry(method, algorithm, seed, alpha=alpha, max_staleness=staleness, role=role)

    def swept(self, role: str, method: str, alpha: float, staleness: int, seed: int) -> Entry:
        """One point of Figures 8 to 10, which need the final model only.

        Nothing is run twice: a weight that is 1 at every staleness of the point makes a run of plain FedAsync (the
        same bits: FEDASYNC-C07), and where the same algorithm is run as a curve, the point is that curve's end.
        """
        weight = self.weights[method]
        if role == "alpha sweep" and method == "FedAsync+Hinge":
            weight = Hinge(a=self.options.sweep_hinge_a, b=self.options.hinge_b)
        if all(weight(missed) == 1 for missed in range(staleness)):
            weight = Constant()
        labels: dict[str, Any] = {"alpha": alpha, "max_staleness": staleness, "role": role}
        small, large = self.options.max_staleness
        a_curve = (
            staleness in (small, large) and alpha in self.alphas and weight in (Constant(), self.weights[method])
        )
        for_claim = staleness == large and alpha in self.scale.claim_alphas and weight == Constant()
        every = None if a_curve or for_claim else self.scale.updates
        return self._entry(method, self._fedasync(alpha, weight, "missed_updates"), seed, every=every, **labels)

    def identities(self, alpha: float, seed: int) -> list[Entry]:
        """Return the further runs that must equal plain FedAsync at the small staleness (FEDASYNC-C07)."""
        variants: list[tuple[Hinge, str]] = [
            (Hinge(a=self.options.hinge_a, b=self.options.hinge_b), "paper"),
            (Hinge(a=4.0, b=self.options.hinge_b), "missed_updates"),
            (Hinge(a=4.0, b=self.options.hinge_b), "paper"),
        ]
        return [
            self._entry(
                f"{weight}, {convention}",
                self._fedasync(alpha, weight, convention),
                seed,
                alpha=alpha,
                max_staleness=self.options.max_staleness[0],
                role="identity",
            )
            for weight, convention in variants
        ]

    def _fedasync(self, alpha: float, weight: Any, convention: Any) -> FedAsync:
        return FedAsync(
            alpha=alpha,
            weight=weight,
            rho=self.options.rho,
            schedule="step",
            step_epoch=self.scale.decay_epoch,
            convention=convention,
        )

    def _entry(
        self,
        method: str,
        algorithm: Any,
        seed: int,
        lr: float = LOCAL_LR,
        updates: int | None = None,
        every: int | None = None,
        *,
        alpha: float | None = None,
        max_staleness: int | None = None,
        role: str = "curve",
        part: str = "whole",
    ) -> Entry:
        scale = self.scale
        spec = RunSpec(
            dataset=self.dataset,
            partition=IID(samples_per_device=SAMPLES),
            model=self.model,
            preprocessing=self.preprocessing,
            world=World(devices=DEVICES, compute=ConstantCompute(), max_staleness=max_staleness),
            algorithm=algorithm,
            training=LocalTraining(lr=lr, batch_size=BATCH, weight_decay=WEIGHT_DECAY),
            warmup=Warmup(epochs=5, lr=0.01),
            budget=Budget(updates=updates or scale.updates),
            evaluation=Evaluation(every_updates=every or scale.eval_every, train_samples=scale.train_samples),
            seed=seed,
        )
        labels = {
            "method": method,
            "alpha": alpha,
            "max_staleness": max_staleness,
            "lr": lr,
            "role": role,
            "part": part,
            "seed": seed,
        }
        return Entry(spec, labels)
