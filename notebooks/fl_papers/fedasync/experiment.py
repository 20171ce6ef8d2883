"""The runs behind FedAsync's Figures 2 to 10, and one comparison with a clock beyond the paper.

Single-thread SGD, FedAvg, and FedAsync with constant, polynomial and hinge weights: as curves at a small and at a
large maximum staleness (Figures 2 to 7), and by their final values over the maximum staleness (Figure 8) or over
alpha (Figures 9 and 10). Staleness is sampled, not simulated (specification, section 2.6): these runs have no clock.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Annotated, Any, ClassVar

import pandas as pd
from pydantic import Field, field_validator

from fl_core.algorithms import SGD, Algorithm, FedAsync, FedAvg
from fl_core.datasets import IID, load_dataset
from fl_core.experiments.experiment import Experiment, Options, in_order
from fl_core.experiments.rounding import SIZES, perturbed
from fl_core.experiments.spec import RunSpec
from fl_core.experiments.study import Entry, Study
from fl_core.formulas.staleness import Constant, Hinge, Polynomial
from fl_core.runtime import Budget, Evaluation, LocalTraining, Warmup
from fl_core.world import ConstantCompute, NamedWorld, TraceCompute, World

DEVICES, SAMPLES, BATCH, ROUND = 100, 500, 50, 10
"""Devices, images per device, images per mini-batch, FedAvg's devices per round: as in the paper."""
STEPS = SAMPLES // BATCH  # Gradients per local task, and iterations between two versions of SGD.
LOCAL_LR, WEIGHT_DECAY = 0.1, 1e-4
ADAPTIVE = ("FedAsync", "FedAsync+Poly", "FedAsync+Hinge")
AXES = {"gradients": "gradients", "epochs": "version", "communications": "communications"}
"""Abscissa of a figure and the column that counts it."""
SLOWER = 10  # With a clock: the slow client needs so many times the others' time for a mini-batch.
SECONDS_PER_STEP = 0.1
"""With a clock: a local task of ten mini-batches takes a virtual second, on the slow client ten."""


class FedAsyncWorld(NamedWorld):
    """FedAsync: staleness is drawn, time plays no part (specification, section 2.6)."""

    name: ClassVar[str] = "fedasync"
    max_staleness: int = Field(4, ge=1)
    """Number K of versions that a task may start from: 4 or 16 in the paper. Staleness is 0..K-1 in missed updates;
    give K + 1 for 0..K (A2)."""

    def world(self) -> World:
        return World(devices=self.devices, compute=ConstantCompute(), max_staleness=self.max_staleness)


@dataclass(frozen=True)
class Scale:
    """What a profile decides."""

    updates: int  # Global epochs T of FedAsync and of FedAvg; SGD gets FedAsync's gradients.
    decay_epoch: int  # Global epoch after which alpha is halved: 0.4 T.
    eval_every: int  # Global epochs between two measurements of the global model.
    train_samples: int  # Training images that the training loss is averaged over.
    seeds: tuple[int, ...]
    alphas: tuple[float, ...]  # Mixing weights of the plotted curves.
    claim_alphas: tuple[float, ...]
    """Mixing weights that only a claim needs, run without adaptivity at the larger staleness."""
    lrs: tuple[float, ...]  # Learning rates among which FedAvg's and SGD's are chosen.
    sweep_staleness: tuple[int, ...]  # Maximum staleness of each point of Figure 8.
    sweep_alphas: tuple[float, ...]  # Mixing weight of each point of Figures 9 and 10.
    seconds: tuple[float, float] = (1.0, 1.0)
    """With a clock: budget and time between two evaluations; about ten FedAsync updates a second at most profiles."""


# smoke has one alpha and one learning rate, so that the whole grid takes well under a minute on two cores;
# claims that compare values of alpha, and all that need an interval, stay undecided there.
_ALPHAS, _STALENESS = (0.2, 0.4, 0.6, 0.8, 0.9), (1, 4, 8, 12, 16)
PROFILES = {
    "smoke": Scale(20, 8, 5, 1_000, (0,), (0.6,), (), (0.1,), (4, 16), (0.2, 0.9)),
    "laptop": Scale(
        400, 160, 20, 10_000, (0, 1, 2), (0.6, 0.9), (0.2,), (0.05, 0.1, 0.2), _STALENESS, _ALPHAS, (60.0, 3.0)
    ),
    "paper": Scale(
        2000, 800, 10, 50_000, tuple(range(10)), (0.6, 0.9), (0.2,), (0.01, 0.02, 0.05, 0.1, 0.2), _STALENESS,
        _ALPHAS, (200.0, 2.0),
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Setup:
    """What is trained on a data set."""

    model: str  # The network at profile ``paper``; `reduced` at the smaller ones.
    reduced: str
    preprocessing: Any  # As a run specification takes it.
    lrs: tuple[float, ...] | None = None
    """Learning rates tried for FedAvg and SGD at profile ``laptop``, where a run is too long to try all."""


_LENET = Setup("lenet5", "lenet5", {})
_CNN = Setup("fedasync_cnn", "fedasync_cnn(width=0.125)", "fedasync", lrs=(0.1, 0.2))
SETUPS = {"fashion-mnist": _LENET, "cifar10": _CNN, "cifar10-surrogate": _CNN}
"""By data set. CIFAR-10's is the paper's; a width of 1/8 makes the specification's network ``lite``."""


class FedAsyncOptions(Options):
    """What a reader may change; None leaves the profile's value."""

    alphas: tuple[Annotated[float, Field(gt=0, le=1)], ...] | None = Field(None, min_length=1)
    """Mixing weights of the curves."""
    max_staleness: tuple[int, int] = (4, 16)
    """The small and the large maximum staleness K."""
    poly_a: float = Field(0.5, gt=0, allow_inf_nan=False)
    hinge_a: float = Field(10.0, gt=0, allow_inf_nan=False)
    hinge_b: float = Field(4.0, ge=0, allow_inf_nan=False)
    rho: float = Field(0.1, ge=0, le=1 / LOCAL_LR, allow_inf_nan=False)
    """Proximal weight (0: Option I). With more, steps pull beyond the received model, and no upload may be finite."""
    lrs: tuple[Annotated[float, Field(gt=0, allow_inf_nan=False)], ...] | None = Field(None, min_length=1)
    """Learning rates tried for FedAvg and SGD."""
    sweep_staleness: tuple[Annotated[int, Field(ge=1)], ...] | None = Field(None, min_length=1)
    """Maximum staleness K of each point of Figure 8, ascending, whose mixing weight is `sweep_alpha`."""
    sweep_alpha: float = Field(0.8, gt=0, le=1)
    sweep_alphas: tuple[Annotated[float, Field(gt=0, le=1)], ...] | None = Field(None, min_length=1)
    """Mixing weight of each point of Figures 9 and 10, ascending."""
    sweep_hinge_a: float = Field(4.0, gt=0, allow_inf_nan=False)
    """The hinge's a in Figures 9 and 10, where the paper prints another one (specification, E19)."""

    _sorted = field_validator("sweep_staleness", "sweep_alphas")(in_order)

    @field_validator("max_staleness")
    @classmethod
    def _ascending(cls, value: tuple[int, int]) -> tuple[int, int]:
        if not 1 <= value[0] < value[1]:
            raise ValueError(f"{list(value)} must be two ascending numbers, the smaller at least 1")
        return value


def options_of(study: Study) -> FedAsyncOptions:
    """Return the options that `study` was made with."""
    return FedAsyncOptions.of(**study.overrides)


class FedAsyncExperiment(Experiment):
    """FedAsync against FedAvg and SGD: curves, sweeps, and a comparison in virtual time."""

    OPTIONS = FedAsyncOptions
    PROFILES = PROFILES
    SETUPS = SETUPS

    def __init__(self, profile: str, dataset: str, seeds: Sequence[int] | None = None, **overrides: Any) -> None:
        super().__init__(profile, dataset, seeds, **overrides)
        self.model = self.setup.model if profile == "paper" else self.setup.reduced
        self.alphas = self.options.alphas or self.scale.alphas
        self.lrs = self.options.lrs or (self.setup.lrs if profile == "laptop" else None) or self.scale.lrs
        self.weights: dict[str, Any] = {
            "FedAsync": Constant(),
            "FedAsync+Poly": Polynomial(a=self.options.poly_a),
            "FedAsync+Hinge": Hinge(a=self.options.hinge_a, b=self.options.hinge_b),
        }

    def convergence(self, axis: str, which: int) -> Iterator[Entry]:
        """Yield the runs of one of Figures 2 to 7: `axis` of :data:`AXES` (SGD has gradients only), and a staleness.

        `which` is 0 for the small maximum staleness, 1 for the large one.
        """
        staleness = self.options.max_staleness[which]
        for seed in self.seeds:
            for lr in self.lrs:
                if axis == "gradients":
                    yield self._entry("SGD", SGD(block=STEPS), seed, lr)
                yield self._entry("FedAvg", FedAvg(clients_per_round=ROUND), seed, lr)
                yield self._fedavg_start(lr, seed)
            for alpha, method in product(self.alphas, ADAPTIVE):
                yield self._fedasync(method, alpha, staleness, seed)
            if which == 1 and axis == "gradients":
                for alpha in self.scale.claim_alphas:
                    if alpha not in self.alphas:
                        yield self._fedasync("FedAsync", alpha, staleness, seed, role="claim")
        if which == 0 and axis == "gradients":
            yield from self._identities(self.alphas[0], self.seeds[0])

    def staleness_sweep(self) -> Iterator[Entry]:
        """Yield the runs of Figure 8: one for each maximum staleness, method and seed."""
        points = self.options.sweep_staleness or self.scale.sweep_staleness
        for seed, staleness, method in product(self.seeds, points, ADAPTIVE):
            yield self._swept("staleness sweep", method, self.options.sweep_alpha, staleness, seed)

    def alpha_sweep(self, which: int) -> Iterator[Entry]:
        """Yield the runs of Figure 9 (`which` 0, small maximum staleness) or 10 (1): by alpha, method and seed."""
        points = self.options.sweep_alphas or self.scale.sweep_alphas
        for seed, alpha, method in product(self.seeds, points, ADAPTIVE):
            yield self._swept("alpha sweep", method, alpha, self.options.max_staleness[which], seed)

    def clocked(self) -> Iterator[Entry]:
        """Yield the runs with a clock: FedAvg, and FedAsync for each alpha, with one slow client of a hundred.

        Both have ten clients at work, with the same local training, and the same budget of virtual seconds.
        """
        seconds, every = self.scale.seconds
        per_step = (SECONDS_PER_STEP,) * (DEVICES - 1) + (SLOWER * SECONDS_PER_STEP,)
        world = World(devices=DEVICES, compute=TraceCompute(seconds_per_step=per_step))
        methods: list[tuple[str, float | None, Algorithm]] = [("FedAvg", None, FedAvg(clients_per_round=ROUND))]
        asynchronous = partial(FedAsync, rho=self.options.rho, concurrency=ROUND)
        methods += [("FedAsync", alpha, asynchronous(alpha=alpha)) for alpha in self.alphas]
        evaluation = Evaluation(every_updates=None, every_seconds=every, train_samples=self.scale.train_samples)
        for seed, (method, alpha, algorithm) in product(self.seeds, methods):
            spec = self._spec(algorithm, world, Budget(seconds=seconds), evaluation, LOCAL_LR, seed)
            yield Entry(spec, {"method": method, "alpha": alpha, "lr": LOCAL_LR, "role": "event", "seed": seed})

    def luck(self) -> Iterator[Entry]:
        """Yield plain FedAsync's curves at the small staleness, and again from perturbed initial models."""
        small, _ = self.options.max_staleness
        for seed in self.seeds:
            yield from perturbed([self._fedasync("FedAsync", self.alphas[0], small, seed)], SIZES[:1])

    def own_rates(self) -> Iterator[Entry]:
        """Yield plain FedAsync at the small staleness with each learning rate that SGD tries, and SGD."""
        for seed, lr in product(self.seeds, self.lrs):
            yield self._entry("SGD", SGD(block=STEPS), seed, lr)
            for alpha in self.alphas:
                yield self._fedasync("FedAsync", alpha, self.options.max_staleness[0], seed, lr=lr)

    def setting(self) -> pd.DataFrame:
        """Return the paper's setting beside that of the runs, one row per quantity; "not stated" is its silence."""
        chosen, scale = self.options, self.scale
        data = load_dataset(self.dataset)
        pixels = (24, 24) if self.setup.preprocessing == "fedasync" else data.shape[1:]
        shape = "×".join(map(str, (*pixels, data.shape[0]))) + (", cropped" if pixels != data.shape[1:] else "")
        small, large = chosen.max_staleness
        lrs, alphas, weights = (
            ", ".join(f"{value:g}" for value in values)
            for values in (self.lrs, self.alphas, chosen.sweep_alphas or scale.sweep_alphas)
        )
        swept = ", ".join(map(str, chosen.sweep_staleness or scale.sweep_staleness))
        rows = [
            ("data", "CIFAR-10, cropped to 24×24×3", f"{data.name} ({data.kind}), {shape}"),
            ("training / test images", "50,000 / 10,000", f"{DEVICES * SAMPLES:,} / {len(data.test):,}"),
            ("devices × images", "100 × 500", f"{DEVICES} × {SAMPLES}, independent and identically distributed"),
            ("network", "4 convolutions, 2 dense layers; 2.6 million parameters", self.model),
            ("mini-batch; local work", "50; one pass = 10 gradients", f"{BATCH}; one pass = {STEPS} gradients"),
            ("global epochs T", "2,000", f"{scale.updates:,}"),
            ("mixing weight α", "several, not stated", alphas),
            ("decay of α", "halved at epoch 800 = 0.4 T", f"halved after epoch {scale.decay_epoch}"),
            ("maximum staleness K", "4 and 16, uniform", f"{small} and {large}, uniform over the last K versions"),
            ("FedAsync+Poly", "a = 0.5", f"a = {chosen.poly_a:g}"),
            ("FedAsync+Hinge", "a = 10, b = 4", f"a = {chosen.hinge_a:g}, b = {chosen.hinge_b:g}"),
            ("Figure 8: K; α", "grid not stated; not stated", f"{swept}; {chosen.sweep_alpha:g}"),
            ("Figures 9, 10: α; hinge", "grid not stated; a = 4, b = 4",
             f"{weights}; a = {chosen.sweep_hinge_a:g}, b = {chosen.hinge_b:g}"),
            ("local learning rate", "not stated (authors' code: 0.1)", f"{LOCAL_LR:g}"),
            ("proximal weight ρ", "not stated (authors' code: 0.1)", f"{chosen.rho:g}"),
            ("weight decay", "not stated (authors' code: 0.0001)", f"{WEIGHT_DECAY:g}, all methods"),
            ("initial model", "not stated (authors' code: 5 passes, one device)",
             "5 passes over device 0, rate 0.01"),
            ("FedAvg", f"k = {ROUND}; learning rate by grid search", f"k = {ROUND}; rate from {lrs}"),
            ("SGD", "learning rate by grid search", f"rate from {lrs}; mini-batch {BATCH}"),
            ("choice of those rates", "best test accuracy", "best mean final test accuracy"),
            ("training loss", "whole training set", f"first {scale.train_samples:,} training images"),
            ("evaluation", "every 10 epochs (authors' code)", f"every {scale.eval_every} epochs"),
            ("repetitions", "10", f"{len(self.seeds)}"),
        ]  # fmt: skip
        return pd.DataFrame(rows, columns=["setting", "the paper", f"here, profile {self.profile}"])

    def clocked_setting(self) -> pd.DataFrame:
        """Return what the runs of :meth:`clocked` are, one row per quantity; the paper has no such experiment."""
        seconds, every = self.scale.seconds
        alphas = ", ".join(f"{alpha:g}" for alpha in self.alphas)
        work = f"one pass, mini-batches of {BATCH}, rate {LOCAL_LR:g}, weight decay {WEIGHT_DECAY:g}"
        rows = [
            ("data, network", f"{self.dataset}, {self.model}"),
            ("devices × images", f"{DEVICES} × {SAMPLES}, independent and identically distributed"),
            ("local work of both", work),
            ("a local task takes", f"1 s; {SLOWER} s on one device; transfers take no time"),
            ("FedAsync", f"{ROUND} tasks in flight, α = {alphas}, ρ = {self.options.rho:g}, no decay of α"),
            ("FedAvg", f"{ROUND} devices per round"),
            ("budget", f"{seconds:g} virtual seconds, measured every {every:g} s"),
            ("training loss", f"first {self.scale.train_samples:,} training images"),
            ("repetitions", f"{len(self.seeds)}"),
        ]
        table = pd.DataFrame(rows, columns=["setting", f"here, profile {self.profile}"])
        table.insert(1, "the paper", "no such experiment")
        return table

    def _fedavg_start(self, lr: float, seed: int) -> Entry:
        """FedAvg's first tenth, where its curve ends by gradients and communications, measured ten times as often.

        The same seed gives the same models, however often they are measured, so both runs are one curve.
        """
        updates, every = (max(1, number // ROUND) for number in (self.scale.updates, self.scale.eval_every))
        return self._entry("FedAvg", FedAvg(clients_per_round=ROUND), seed, lr, updates, every, part="start")

    def _fedasync(self, method: str, alpha: float, staleness: int, seed: int, **labels: Any) -> Entry:
        algorithm = self._algorithm(alpha, self.weights[method])
        return self._entry(method, algorithm, seed, alpha=alpha, max_staleness=staleness, **labels)

    def _swept(self, role: str, method: str, alpha: float, staleness: int, seed: int) -> Entry:
        """One point of Figures 8 to 10, which need the final model only.

        Nothing is run twice: a weight that is 1 at every staleness of the point makes a run of plain FedAsync
        (FEDASYNC-C07), and where the same algorithm is run as a curve, the point is that curve's end.
        """
        weight = self.weights[method]
        if role == "alpha sweep" and method == "FedAsync+Hinge":
            weight = Hinge(a=self.options.sweep_hinge_a, b=self.options.hinge_b)
        if all(weight(missed) == 1 for missed in range(staleness)):
            weight = Constant()
        is_plain = weight == Constant()
        own = is_plain or weight == self.weights[method]
        a_curve = staleness in self.options.max_staleness and alpha in self.alphas and own
        for_claim = staleness == self.options.max_staleness[1] and alpha in self.scale.claim_alphas and is_plain
        every = None if a_curve or for_claim else self.scale.updates
        labels: dict[str, Any] = {"alpha": alpha, "max_staleness": staleness, "role": role}
        return self._entry(method, self._algorithm(alpha, weight), seed, every=every, **labels)

    def _identities(self, alpha: float, seed: int) -> Iterator[Entry]:
        """Yield the further runs that must equal plain FedAsync at the small staleness (FEDASYNC-C07)."""
        printed, official = (Hinge(a=a, b=self.options.hinge_b) for a in (self.options.hinge_a, 4.0))
        for weight, convention in ((printed, "paper"), (official, "missed_updates"), (official, "paper")):
            algorithm = self._algorithm(alpha, weight, convention)
            labels: dict[str, Any] = {"alpha": alpha, "max_staleness": self.options.max_staleness[0]}
            yield self._entry(f"{weight}, {convention}", algorithm, seed, role="identity", **labels)

    def _algorithm(self, alpha: float, weight: Any, convention: Any = "missed_updates") -> FedAsync:
        decay: dict[str, Any] = {"schedule": "step", "step_epoch": self.scale.decay_epoch}
        return FedAsync(alpha=alpha, weight=weight, rho=self.options.rho, convention=convention, **decay)

    def _entry(
        self, method: str, algorithm: Algorithm, seed: int, lr: float = LOCAL_LR, updates: int | None = None,
        every: int | None = None, *, alpha: float | None = None, max_staleness: int | None = None,
        role: str = "curve", part: str = "whole",
    ) -> Entry:  # fmt: skip
        scale = self.scale
        world = World(devices=DEVICES, compute=ConstantCompute(), max_staleness=max_staleness)
        evaluation = Evaluation(every_updates=every or scale.eval_every, train_samples=scale.train_samples)
        spec = self._spec(algorithm, world, Budget(updates=updates or scale.updates), evaluation, lr, seed)
        known = {"method": method, "alpha": alpha, "max_staleness": max_staleness, "lr": lr, "role": role}
        return Entry(spec, {**known, "part": part, "seed": seed})

    def _spec(
        self, algorithm: Algorithm, world: World, budget: Budget, evaluation: Evaluation, lr: float, seed: int
    ) -> RunSpec:
        return RunSpec(
            dataset=self.dataset, partition=IID(samples_per_device=SAMPLES), model=self.model,
            preprocessing=self.setup.preprocessing, world=world, algorithm=algorithm,
            training=LocalTraining(lr=lr, batch_size=BATCH, weight_decay=WEIGHT_DECAY),
            warmup=Warmup(epochs=5, lr=0.01), budget=budget, evaluation=evaluation, seed=seed,
        )  # fmt: skip


FIGURES = {
    number: FedAsyncExperiment.made(partial(FedAsyncExperiment.convergence, axis=axis, which=which))
    for number, (axis, which) in enumerate(product(AXES, (0, 1)), start=2)
}
"""Grids of Figures 2 to 7."""
