"""FedASMU's theorem and mechanisms, on problems whose answers are known: no network is trained here.

Source: Liu et al., "FedASMU" (AAAI 2024), Theorem 1 and its proof in the appendix; functions marked "derived" are
this book's. Symbols: L `smoothness`, G `gradient` (a bound on the norm of stochastic gradients), V^2 `deviation` (a
bound on the squared distance of a device's stochastic gradient from that of the mean loss), tau `staleness_bound`,
eta `lr`, l_min and l_max `epochs_min`, `epochs_max` (local steps: an epoch is one step in the proof).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import Tensor

from fl_core.algorithms import FedASMU, FedASMU0, FedAsync
from fl_core.formulas import fedasmu as formulas
from fl_core.formulas.checks import require, require_range
from fl_core.formulas.fedasmu import Controls, Form, FreshControls, PastAggregation, blend, matched_lambda
from fl_core.formulas.staleness import Polynomial
from fl_core.runtime import Budget, Evaluation, History, LocalTraining, Simulation
from fl_core.tasks import Quadratic, QuadraticLosses
from fl_core.world import World

if TYPE_CHECKING:
    from fl_core.algorithms import Algorithm
    from fl_core.algorithms.fedasmu import Mixture
    from fl_core.runtime import ServerHandle, Upload

Vector = NDArray[np.float64]


# Formulas that the chapter and the claims use, and no algorithm


def grad_estimate(start: Any, uploaded: Any, lr: float, divisor: float, jump: Any = 0.0) -> Any:
    """Return g_i = (w_o - w_o^i + jump) / (eta_i K), the mean gradient along the path of (4), D3.

    The paper prints the opposite sign, which turns the descent of (3) into an ascent (E01). `divisor` is the local
    steps K, local epochs as printed (E08); `jump` is w^a - w^b, what the merge with a fresh model added (E09).
    """
    require_range("> 0", lr=lr, divisor=divisor)
    return (start - uploaded + jump) / (lr * divisor)


HALF_BITS, HALF_SMALLEST = 11, 2.0**-24
"""Significant bits of a float16, with the hidden one, and the smallest float16 above 0."""


def half_error(vector: Tensor, direction: Tensor) -> float:
    """Return a bound on the error of `half_product`: 2^-11 sum |g_j d_j|, and half a step for tiny entries."""
    unit = formulas.to_half(direction).unit
    rounding = float((vector * direction).abs().sum()) * 2.0**-HALF_BITS
    return rounding + float(vector.abs().sum()) * HALF_SMALLEST / 2 * unit


def sketch_error(vector: Tensor, direction: Tensor, size: int) -> float:
    """Return the standard deviation of the product of two sketches, over all seeds.

    Its square is (|g|^2 |d|^2 + <g, d>^2 - 2 sum g_j^2 d_j^2) / k.
    """
    vector, direction = vector.double(), direction.double()
    squares = float(vector @ vector) * float(direction @ direction)
    products = vector * direction
    variance = (squares + float(products.sum()) ** 2 - 2 * float(products @ products)) / size
    return math.sqrt(max(0.0, variance))


# Theorem 1 as printed, the bound that holds instead, and the drift on which both depend (D11, E13)

EXPLICIT = (1.5, 1.0, 3.0, 2.0, 1.5)
"""What multiplies the five O-terms of the printed bound. The statement leaves it open; with these numbers, as with
others, the values of E13 come out: there the first and the fourth term have one form, and so have the two between."""


@dataclass(frozen=True)
class Problem:
    """The constants that the theorem assumes about the losses: L > 0, G and V^2."""

    smoothness: float
    gradient: float
    deviation: float  # It contains how much the devices' data differ.

    def __post_init__(self) -> None:
        require_range("> 0", smoothness=self.smoothness)
        require_range(">= 0", gradient=self.gradient, deviation=self.deviation)


def printed_bound(
    initial_gap: float, problem: Problem, *, alpha_min: float, staleness_bound: int, epochs_min: int, epochs_max: int,
    constants: Sequence[float] = EXPLICIT,
) -> float:  # fmt: skip
    """Return the right-hand side of Theorem 1, with T = l_min^6 rounds and eta = l_min^-3; it does not hold (E13).

    `initial_gap` is F(w_0) - F(w_T), `alpha_min` the smallest mixing weight.
    """
    require_range("in (0, 1]", alpha_min=alpha_min)
    require_range(">= 1", staleness_bound=staleness_bound)
    require(1 <= epochs_min <= epochs_max, "epochs_min", epochs_min, f"in 1..{epochs_max}")
    smoothness, square = problem.smoothness, problem.gradient**2
    cube, seventh = epochs_min**3, epochs_min**7
    terms = (
        smoothness * square * epochs_max / cube,
        problem.deviation * epochs_max / seventh,
        staleness_bound * square * epochs_max / seventh,
        square * epochs_max / cube,
        smoothness * staleness_bound**2 * square * epochs_max**2 / cube,
    )
    rest = sum(constant * term for constant, term in zip(constants, terms, strict=True))
    return 2 * initial_gap / (alpha_min * cube) + rest


def corrected_bound(
    initial_gap: float, problem: Problem, *, lr: float, weights: Sequence[float], epochs: Sequence[int],
    beta_max: float, drift: float,
) -> float:  # fmt: skip
    """Return a bound on the mean of |grad F|^2 where gradients are taken, each round weighted by alpha_t (derived).

    It does not vanish: what remains is V^2, the drift, and beta (2 + L eta) G^2. It needs convex losses, and alpha in
    [0, 1] and beta in [0, beta_max] that ignore noise. `weights` and `epochs`: alpha_t and local steps of each round,
    `drift`: D_tau, the largest distance between two global models that are less than tau versions apart.
    """
    require_range("> 0", lr=lr)
    require_range("in [0, 1]", beta_max=beta_max)
    require(len(weights) > 0 and all(0 <= a <= 1 for a in weights), "weights", weights, "not empty, each in [0, 1]")
    require(sum(weights) > 0, "weights", weights, "not all 0")
    require(all(count >= 1 for count in epochs), "epochs", epochs, "each >= 1")
    require_range(">= 0", drift=drift)
    mass = sum(alpha * count for alpha, count in zip(weights, epochs, strict=True))
    smoothness, g = problem.smoothness, problem.gradient
    moved = 2 * (1 + beta_max) / (lr * min(epochs)) * (g * drift + smoothness / 2 * drift**2)
    noise = problem.deviation + smoothness * lr * g**2
    return 2 * initial_gap / (lr * mass) + noise + moved + beta_max * (2 + smoothness * lr) * g**2


def drift_bound(
    problem: Problem, *, lr: float, alpha_max: float, beta_max: float, staleness_bound: int, epochs_max: int
) -> float:
    """Return a bound on D_tau: (tau - 1) alpha eta l_max G / (1 - kappa), kappa = (tau - 1) alpha (1 + beta).

    Derived. Infinite where kappa >= 1.
    """
    require_range("> 0", lr=lr)
    require_range("in [0, 1]", alpha_max=alpha_max, beta_max=beta_max)
    require_range(">= 1", staleness_bound=staleness_bound, epochs_max=epochs_max)
    reach = alpha_max * (staleness_bound - 1)
    kappa = reach * (1 + beta_max)
    return reach * lr * epochs_max * problem.gradient / (1 - kappa) if kappa < 1 else math.inf


def printed_drift(problem: Problem, *, lr: float, alpha: float, staleness: int, epochs: int) -> float:
    """Return s eta alpha l G, the printed bound on |w_o - w_t|: as if no upload were stale or held a merge (E13)."""
    require_range("> 0", lr=lr)
    require_range("in [0, 1]", alpha=alpha)
    require_range(">= 1 (a fresh upload has 1)", staleness=staleness)
    require_range(">= 1", epochs=epochs)
    return staleness * lr * alpha * epochs * problem.gradient


# Random runs on convex losses, with all that the bounds speak of

STALENESS, EPOCHS, LR, BETA = 5, 4, 0.05, 0.3
"""tau, local steps, learning rate, and largest weight of a fresh model in the random runs."""
WEIGHTS = (0.02, 0.08)  # Range of their mixing weights; with it kappa of `drift_bound` is 0.42.


class Task(NamedTuple):
    """What one device does, from the model it starts at to its upload, and what the upload weighs."""

    device: int
    start: Vector
    points: list[Vector]  # Where gradients are taken.
    nexts: list[Vector]  # Where each of these steps leads; the last one is the upload w_o^i.
    slot: int  # Steps before the merge; 0: no merge.
    before: Vector  # w^b; without a merge the start.
    fresh: Vector  # w_g; without a merge the start.
    beta: float
    alpha: float


@dataclass
class Trace:
    """What a run has done: w_0, w_1, ..., each ``[d]``, and the task that made each of them but the first."""

    losses: QuadraticLosses[Vector]
    models: list[Vector]
    tasks: list[Task] = field(default_factory=list)

    @property
    def drift(self) -> float:
        """D_tau, the largest distance of models that are at most tau - 1 versions apart."""
        models = np.array(self.models)
        return max(float(np.linalg.norm(models[gap:] - models[:-gap], axis=1).max()) for gap in range(1, STALENESS))

    def problem(self) -> Problem:
        """Return L, and the G and V^2 that hold at all points of this run."""
        pairs = [(task.device, w) for task in self.tasks for w in task.points]
        own = [self.losses.gradient(d, w) for d, w in pairs]
        means = [self.losses.mean_gradient(w) for w in [*(w for _, w in pairs), *self.models]]
        norms = [float(np.linalg.norm(g)) for g in [*own, *means]]
        apart = [float(((g - mean) ** 2).sum()) for g, mean in zip(own, means, strict=False)]
        return Problem(float(self.losses.curvature.max()), max(norms), max(apart))


def random_run(seed: int, rounds: int = 300) -> Trace:
    """Return a run of four random devices with losses in three dimensions.

    Device, origin, weights, slot and fresh version of each round are drawn at random: staleness t - o + 1 is uniform
    in 1 .. tau, the mixing weight in :data:`WEIGHTS`, that of a fresh model in [0, BETA].
    """
    rng = np.random.default_rng(seed)
    losses = QuadraticLosses(rng.uniform(0.3, 2, (4, 3)), rng.normal(size=(4, 3)))
    trace = Trace(losses, [3 * rng.normal(size=3)])
    for t in range(rounds):
        device, origin = int(rng.integers(4)), max(0, t - int(rng.integers(STALENESS)))
        slot, start = int(rng.integers(1, EPOCHS)), trace.models[origin]
        w, before, fresh, beta, points, nexts = start, start, start, 0.0, [], []
        for step in range(EPOCHS):
            if step == slot and origin < t:
                beta = BETA * rng.random()
                before, fresh = w, trace.models[int(rng.integers(origin + 1, t + 1))]
                w = (1 - beta) * w + beta * fresh
            points.append(w)
            w = w - LR * losses.gradient(device, w)
            nexts.append(w)
        alpha = rng.uniform(*WEIGHTS)
        trace.models.append((1 - alpha) * trace.models[-1] + alpha * w)
        trace.tasks.append(Task(device, start, points, nexts, slot if beta else 0, before, fresh, beta, alpha))
    return trace


# Each step of the proof, the corrected theorem, and what goes wrong with the printed one

SLACK = 1e-12  # Rounding that an inequality is allowed.
STEPS = {
    "1": "smoothness along a local step",
    "2": "polarisation",
    "3": "squared gradient by the loss it saves",
    "4": "convexity at the merge",
    "5": "sum over a task",
    "6": "convexity of mixing",
    "8": "progress before the merge",
    "drift": "distance of an upload from its start",
}
"""Steps of the proof that hold, with the numbers of the chapter."""


def proof_steps(seeds: Sequence[int], rounds: int = 300) -> pd.DataFrame:
    """Evaluate on random runs every step of the proof that holds.

    A row for each of `STEPS`: how many inequalities, how many violated, and the largest left - right relative to the
    size of the two.
    """
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in STEPS}
    for trace in (random_run(seed, rounds) for seed in seeds):
        problem, drift = trace.problem(), trace.drift
        for t in range(rounds):
            for name, pairs in _inequalities(trace, problem, drift, t).items():
                found[name] += pairs
    rows = []
    for name, pairs in found.items():
        left, right = np.array(pairs).T
        excess = (left - right) / np.maximum(np.maximum(abs(left), abs(right)), 1e-300)
        rows.append((name, STEPS[name], len(left), int((left > right + SLACK).sum()), float(excess.max())))
    return pd.DataFrame(rows, columns=["step", "says", "inequalities", "violated", "largest excess"])


def corrected_theorem(seeds: Sequence[int], rounds: int = 300) -> pd.DataFrame:
    """Evaluate the corrected theorem on random runs: a row each, with what is bounded, the bound, and its parts."""
    rows = []
    for seed in seeds:
        trace = random_run(seed, rounds)
        problem, drift, full = trace.problem(), trace.drift, trace.losses.mean_gradient
        sums = [sum(float(full(w) @ full(w)) for w in task.points) for task in trace.tasks]
        alphas, values = [task.alpha for task in trace.tasks], [trace.losses.loss(w) for w in trace.models]

        def bound(gap: float, weights: Sequence[float], problem: Problem = problem, drift: float = drift) -> float:
            epochs = [EPOCHS] * len(weights)
            return corrected_bound(gap, problem, lr=LR, weights=weights, epochs=epochs, beta_max=BETA, drift=drift)

        failed = sum(
            square / EPOCHS > bound(values[t] - values[t + 1], [alpha])
            for t, (square, alpha) in enumerate(zip(sums, alphas, strict=True))
        )
        limit = drift_bound(
            problem, lr=LR, alpha_max=WEIGHTS[1], beta_max=BETA, staleness_bound=STALENESS, epochs_max=EPOCHS
        )
        rows.append(
            {"seed": seed, "mean of |grad F|²": np.dot(alphas, sums) / (EPOCHS * sum(alphas)),
             "bound": bound(values[0] - values[-1], alphas), "V²": problem.deviation, "rounds violated": failed,
             "D": drift, "bound of D": limit}
        )  # fmt: skip
    return pd.DataFrame(rows)


def one_reporter(epochs: Sequence[int], curvature: float = 0.1, centre: float = 1.0) -> pd.DataFrame:
    """Two devices, of which only the one reports whose minimum is where the run begins (E13, a): nothing ever moves.

    A row for each number of local steps: |grad F|^2, the printed bound, and the corrected one for the same run.
    """
    losses = QuadraticLosses(np.array([[curvature], [curvature]]), np.array([[0.0], [centre]]))
    problem = Problem(curvature, curvature * centre, (curvature * centre / 2) ** 2)
    rows = []
    for count in epochs:
        lr, w = count**-3.0, np.zeros(1)
        for _ in range(count):
            w = w - lr * losses.gradient(0, w)
        w = blend(np.zeros(1), w, 0.1)
        printed = printed_bound(0.0, problem, alpha_min=0.1, staleness_bound=1, epochs_min=count, epochs_max=count)
        derived = corrected_bound(0.0, problem, lr=lr, weights=[0.1], epochs=[count], beta_max=0.0, drift=0.0)
        rows.append((count, count**6, float(losses.mean_gradient(w)[0] ** 2), printed, derived))
    return pd.DataFrame(rows, columns=["steps", "rounds", "|grad F|²", "printed", "corrected"])


def tug(alpha: float, staleness_bound: int = 10) -> pd.DataFrame:
    """One device pulls to the right tau - 1 times, then another one's old uploads pull to the left (E13, b).

    Gradients are +-G, and eta l G = 1, so that an upload is the model it started from, plus or minus 1. A row for
    each version after the turn: its distance from the model at the turn, and the printed bound for it.
    """
    models = [0.0]
    for _ in range(staleness_bound - 1):
        models.append(blend(models[-1], models[-1] + 1, alpha))
    turn, rows = len(models) - 1, []
    problem = Problem(1.0, 1.0, 0.0)
    for origin in range(turn):
        models.append(blend(models[-1], models[origin] - 1, alpha))
        gap = len(models) - 1 - turn
        printed = printed_drift(problem, lr=1.0, alpha=alpha, staleness=gap + 1, epochs=1)
        rows.append((gap, abs(models[-1] - models[turn]), printed))
    return pd.DataFrame(rows, columns=["versions", "distance", "printed"])


def _inequalities(trace: Trace, problem: Problem, drift: float, t: int) -> dict[str, list[tuple[float, float]]]:
    """Return (left, right) of the inequalities left <= right of round t, by step."""
    smooth, square, deviation = problem.smoothness, problem.gradient**2, problem.deviation
    losses, task, value = trace.losses, trace.tasks[t], trace.losses.loss
    beta, upload = task.beta, task.nexts[-1]
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in STEPS}
    for w, after in zip(task.points, task.nexts, strict=True):
        full, own = losses.mean_gradient(w), losses.gradient(task.device, w)
        product, saved = float(full @ own), value(w) - value(after)
        found["1"].append((-saved, -LR * product + smooth * LR**2 / 2 * square))
        found["2"].append((float(full @ full - deviation + own @ own) / 2, product))
        found["3"].append((float(full @ full), 2 / LR * saved + smooth * LR * square + deviation))
    start, now, mixed = value(task.start), value(trace.models[t]), value(trace.models[t + 1])
    b = start - value(upload)
    c, d = start - value(task.before), value(task.fresh) - start
    if task.slot:
        merged = value(task.points[task.slot])
        found["4"].append((merged, (1 - beta) * value(task.before) + beta * value(task.fresh)))
        found["8"].append((c, task.slot * (2 * LR + smooth * LR**2) / 2 * square))
    total = sum(float(losses.mean_gradient(w) @ losses.mean_gradient(w)) for w in task.points)
    rest = len(task.points) * (smooth * LR * square + deviation)
    found["5"].append((total, 2 / LR * b + 2 * beta / LR * (c + d) + rest))
    found["6"].append((b, (now - mixed) / task.alpha + start - now))
    moved = float(np.linalg.norm(upload - task.start))
    found["drift"].append((moved, LR * len(task.points) * problem.gradient + beta * drift))
    return found


# Who uploads when under FedASMU's trigger (E06, E17)

TRANSFERS = 3  # Of a task: the model, the fresh model, the upload.


def arrivals(
    aggregations: int = 5000, *, devices: int = 100, concurrency: int = 10, ratio: float = 5.0, per_tick: int = 10,
    period_seconds: float = 10.0, fastest_seconds: float = 100.0, transfer_seconds: float = 1.0,
    loguniform: bool = False, staleness_bound: int | None = None, seed: int = 0,
) -> pd.DataFrame:  # fmt: skip
    """Return a row for each upload that arrives until so many have been mixed in; only times count, none trains.

    At each tick up to `per_tick` idle devices start, drawn at random, and no more than `concurrency` are in flight.
    Local training takes from `fastest_seconds` to `ratio` times that; both ends occur. Columns: seconds, device,
    staleness s = t - o + 1, whether it was mixed in, and ``between``: how many other uploads were mixed in between
    the device's previous one and the version it started from (-1: there is none).
    """
    rng = np.random.default_rng(seed)
    place = rng.permutation(np.concatenate([[0.0, 1.0], rng.random(devices - 2)]))
    seconds = fastest_seconds * (ratio**place if loguniform else 1 + (ratio - 1) * place)
    flights: list[tuple[float, int, int, int]] = []
    idle, last = set(range(devices)), dict[int, int]()
    rows: list[tuple[float, int, int, bool, int]] = []
    version, started, now = 0, 0, 0.0
    while True:
        while flights and flights[0][0] <= now:
            arrived, _, device, origin = heapq.heappop(flights)
            idle.add(device)
            staleness = version - origin + 1
            used = staleness_bound is None or staleness <= staleness_bound
            between = origin - last[device] - 1 if device in last else -1
            rows.append((arrived, device, staleness, used, between))
            if used:
                last[device] = version
                version += 1
            if version == aggregations:
                return pd.DataFrame(rows, columns=["seconds", "device", "staleness", "used", "between"])
        count = min(per_tick, concurrency - len(flights))
        for device in rng.choice(sorted(idle), count, replace=False) if count else ():
            idle.remove(int(device))
            end = now + TRANSFERS * transfer_seconds + seconds[device]
            heapq.heappush(flights, (end, started, int(device), version))
            started += 1
        now += period_seconds


@cache
def dropped(staleness_bound: int) -> tuple[int, int]:
    """Return how many uploads a staleness bound drops until 5,000 are mixed in, and the largest staleness (E17)."""
    found = arrivals(5000, staleness_bound=staleness_bound)
    return int((~found["used"]).sum()), int(found["staleness"].max())


# The choice of a slot, on a device whose best slot is known

START = FreshControls(29.66013673, 1.0)
"""gamma_0 and upsilon_0 of a run of 5,000 versions with ten devices in flight (A04)."""


@dataclass(frozen=True)
class SlotToy:
    """A device on F(w) = w^2 / 2 that starts at 1, while the global model gets better faster than it does."""

    epochs: int = 5  # E; the slots are 1 .. E - 1.
    local: float = 0.9  # What an epoch leaves of the device's own w, and `fleet` of the global model meanwhile.
    fleet: float = 0.4
    origin: int = 100
    versions: int = 2  # Made per epoch.
    controls: FreshControls = START
    noise: float = 0.02  # Standard deviation of a reward, as mini-batches differ.

    @property
    def slots(self) -> int:
        """K_s."""
        return self.epochs - 1

    def merged(self, slot: int) -> float:
        """Return w^a after a merge in `slot`; in slot 0 there is nothing newer to merge."""
        now, weight = self.origin + self.versions * slot, formulas.fresh_weight
        beta = 0.0 if slot == 0 else weight(now, self.origin, self.controls)
        return float(blend(self.local**slot, self.fleet**slot, beta))

    def rewards(self) -> Vector:
        """Return R of each slot without noise, ``[K_s]``."""
        pairs = ((self.local ** (2 * k) / 2, self.merged(k) ** 2 / 2) for k in range(1, self.epochs))
        return np.array([formulas.reward(*pair) for pair in pairs])

    def uploads(self) -> Vector:
        """Return the uploaded w of each slot, ``[K_s]``."""
        return np.array([self.merged(k) * self.local ** (self.epochs - k) for k in range(1, self.epochs)])

    def draw(self, slot: int, rng: np.random.Generator) -> float:
        """Return a reward of `slot` with noise."""
        return float(self.rewards()[slot - 1] + self.noise * rng.normal())


def table_slots(
    toy: SlotToy, tasks: int, epsilon: float, seed: int, *, first: int = 1, shift: float = 0.0
) -> list[int]:
    """Return the slots of so many tasks of one device that learns by its Q-table (6), with `shift` taken from R."""
    rng, table, slot, used = np.random.default_rng(seed), np.zeros((toy.slots, 3)), first, []
    for _ in range(tasks):
        action = formulas.epsilon_greedy(table[slot - 1], epsilon, rng)
        new = formulas.next_slot(slot, action, toy.slots)
        table = formulas.q_update(table, slot, action, new, toy.draw(new, rng) - shift)
        slot = new
        used.append(slot)
    return used


def meta_probabilities(toy: SlotToy, devices: int, lr: float, seed: int, *, sampled: bool) -> Vector:
    """Return the meta-model's probabilities of the slots before and after each device's first merge (5).

    Each device draws one slot and brings one reward: with `sampled` by their probabilities, as the identity of
    REINFORCE asks for, else epsilon-greedily, as printed. ``[devices + 1, K_s]``.
    """
    rng = np.random.default_rng(seed)
    theta, baseline, found = formulas.initial_meta(rng), 0.0, []
    for _ in range(devices):
        logs = formulas.log_probabilities(formulas.meta_logits(theta, toy.slots)).numpy()
        found.append(np.exp(logs))
        slot = 1 + (int(rng.choice(toy.slots, p=found[-1])) if sampled else formulas.epsilon_greedy(logs, 0.1, rng))
        brought = toy.draw(slot, rng)
        baseline = formulas.moving_baseline(baseline, brought)
        theta = formulas.reinforce(theta, slot, toy.slots, brought - baseline, lr)
    found.append(formulas.log_probabilities(formulas.meta_logits(theta, toy.slots)).exp().numpy())
    return np.array(found)


# FedASMU in its world, on quadratic losses of 50 devices with different curvatures and minima

DEVICES, PARALLEL = 50, 5


def simulate(task: Quadratic, algorithm: Algorithm, updates: int, seed: int = 0) -> Simulation:
    """Return a finished run in FedASMU's world, whose speeds and triggers depend on `seed`."""
    run = Simulation(
        task, World.named("fedasmu", devices=DEVICES), algorithm, budget=Budget(updates=updates), seed=seed,
        training=LocalTraining(lr=LR, epochs=5), evaluation=Evaluation(every_updates=updates),
    )  # fmt: skip
    run.run("sequential")
    return run


class Recorded(FedASMU):
    """FedASMU that keeps, for each upload, what q is made of (E15, E16)."""

    name: ClassVar[str] = "fedasmu_recorded"

    def weigh(self, server: ServerHandle, upload: Upload) -> Mixture:
        """Return the mixture; keep the gradient estimate g_i and the direction of this aggregation."""
        gradient = grad_estimate(upload.start.model, upload.model, upload.lr, upload.steps)
        server.state.setdefault("vectors", []).append((upload.device, gradient, upload.model - server.model))
        return super().weigh(server, upload)


def control_run(updates: int, rates: dict[str, float], *, size: int = 20, **fields: Any) -> Simulation:
    """Return a run with these learning rates of control parameters and further fields of FedASMU, w ``[size]``.

    lambda_0 and gamma_0 match the number of updates (A02, A04).
    """
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(DEVICES, size))  # drawn before the curvatures, unlike those of `quadratics`
    task = Quadratic(rng.uniform(0.5, 2, (DEVICES, size)), centres, 3 * np.ones(size))
    start = matched_lambda(updates, PARALLEL)
    return simulate(task, Recorded(**{"lambda_0": start, "gamma_0": start, **rates, **fields}), updates)


def control_log(run: Simulation) -> pd.DataFrame:
    """Return a row for each aggregation: device, weight, q, score, and the control parameters after it."""
    return pd.DataFrame(run.history.learned).assign(weight=run.history.updates["weight"])


def pairs(run: Simulation) -> list[tuple[Tensor, Tensor]]:
    """Return (g_i, d_i) of each q of a run, in order."""
    last: dict[int, Tensor] = {}
    found = []
    for device, gradient, direction in run.server.state["vectors"]:
        if device in last:
            found.append((gradient, last[device]))
        last[device] = direction
    return found


@cache
def quadratics(size: int = 20) -> tuple[Vector, Vector, Quadratic]:
    """Return curvatures and minima of random losses of the devices, ``[m, d]`` each, and the task."""
    rng = np.random.default_rng(0)
    curvature, centre = rng.uniform(0.5, 2, (DEVICES, size)), rng.normal(size=(DEVICES, size))
    return curvature, centre, Quadratic(curvature, centre, 3 * np.ones(size))


class Paired(FedASMU):
    """FedASMU that measures how far each merged upload is from the global model, and its twin without the merge."""

    name: ClassVar[str] = "fedasmu_paired"

    def weigh(self, server: ServerHandle, upload: Upload) -> Mixture:
        """Return the mixture; log the two distances of :func:`distances`."""
        if "fresh_weight" in upload.payload:
            curvature, centre, _ = quadratics()
            c, start = centre[upload.device], upload.start.model.numpy()
            alone = c + (1 - upload.lr * curvature[upload.device]) ** upload.steps * (start - c)
            now = server.model.numpy()
            row = (np.linalg.norm(now - upload.model.numpy()), np.linalg.norm(now - alone))
            server.state.setdefault("distances", []).append(tuple(map(float, row)))
        return super().weigh(server, upload)


@cache
def distances(seed: int, updates: int = 300) -> pd.DataFrame:
    """Return ``merged`` and ``alone``: ‖w_t - w_o^i‖ at arrival, of each upload with a merge and of its twin without.

    The twin starts from the same model and does the same local steps, full gradients of a quadratic loss.
    """
    start = matched_lambda(updates, PARALLEL)
    run = simulate(quadratics()[2], Paired(lambda_0=start, gamma_0=start), updates, seed)
    return pd.DataFrame(run.server.state["distances"], columns=["merged", "alone"])


@cache
def without_both_parts(updates: int = 200, bound: int = 6) -> tuple[History, History]:
    """Return the histories of FedASMU-0 and of FedAsync+Poly with a staleness bound, which drops some uploads."""
    methods = (FedASMU0(staleness_bound=bound), FedAsync(weight=Polynomial(a=0.5), drop_above=bound - 1))
    zero, fedasync = (simulate(quadratics()[2], method, updates).history for method in methods)
    return zero, fedasync


@cache
def steps_of_the_controls(form: Form, problems: int = 200, rate: float = 0.01) -> pd.DataFrame:
    """Return ``before`` and ``after`` one step (3) with these rates, on random problems: the device's loss F_i(w_o).

    w_o is the product of the device's previous upload: w_o = w_p + alpha (w_o'^i - w_p), as the appendix assumes.
    ``mean before`` and ``mean after`` are the loss of the global model, with a second device as large (E15).
    """
    rng, second = np.random.default_rng(0), np.random.default_rng(1)
    rows = []
    for _ in range(problems):
        curvature, centre = rng.uniform(0.5, 2, 7), rng.normal(size=7)
        w_p, upload = 2 * rng.normal(size=7), 2 * rng.normal(size=7)
        version, staleness = int(rng.integers(1, 100)), int(rng.integers(2, 15))
        controls = Controls(rng.uniform(0.5, 5), rng.uniform(0.2, 0.9), rng.uniform(0, 0.3))

        w = blend(w_p, upload, formulas.mixing_weight(version, staleness, controls))
        g = grad_estimate(w, w - 1e-6 * curvature * (w - centre), 1e-6, 1)  # of one tiny local step
        q = formulas.inner_product(g, upload - w_p, 1.0, 1)
        slope = formulas.control_gradient(q, PastAggregation(version, staleness, controls), form=form)
        changed = formulas.descend_controls(controls, slope, Controls(rate, rate, rate))
        after = blend(w_p, upload, formulas.mixing_weight(version, staleness, changed))
        other, far = second.uniform(0.5, 2, 7), 2 * second.normal(size=7)
        own, mean = (
            [0.5 * curvature @ (point - centre) ** 2 + share * other @ (point - far) ** 2 for point in (w, after)]
            for share in (0.0, 0.5)
        )
        rows.append([*own, *(value / 2 for value in mean)])
    return pd.DataFrame(rows, columns=["before", "after", "mean before", "mean after"])
