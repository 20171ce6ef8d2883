"""SD-FEEL's theory as numbers: its clock, toys, lemmas, Theorem 1 as printed and as it follows, what replaces it.

Source: Sun et al. (IEEE ICC 2022), Eqs. 11 to 16. A-n, E-n and D-n are the paper's readings, errata and derivations
(chapter "readings"); "derived" constants follow the steps of the paper's own sketch. What can be saved of Lemma 2 and
Theorem 1 is about the objective that the algorithm really minimises (E-10, E-11, D11): :func:`lemma2_bound` and
:func:`surrogate_bound`, and with more than one local step and noise, new in each iteration, these with 2 L for L.

Symbols: eta `lr`, L `smoothness`, tau_max and tau_min `tau_max`, `tau_min` (their ratio `gap` stands for H, E-09),
x = eta^2 L^2 U_2, sigma^2 `noise`, kappa^2 `dissimilarity`, sum_i m_i^2 `square_weights`, m-hat_i `weights`,
m-tilde_d `cluster_weight`, tau-bar_d `effective_steps`, T_iter `iteration_seconds`, s_i `step_seconds`, P_k `matrix`,
rho_{s,k-1} the distance of P_s ... P_{k-1} from exact averaging.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, partial, reduce
from itertools import islice
from math import ceil
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fl_core.algorithms import AsyncSDFeel
from fl_core.experiments.spec import RunSpec
from fl_core.formulas import sdfeel as formulas
from fl_core.formulas.checks import require, require_range
from fl_core.formulas.sdfeel import ClusterPlan, Discount, Mixing, gossip_weights, plan_cluster, staleness_discount
from fl_core.world import World
from fl_papers.sdfeel.experiment import BACKHAUL, PAPER_BATCHES, RESNET18, UP, model_bits, parameters_of

Variant = Literal["derived", "printed"]
VARIANTS: tuple[Variant, ...] = ("derived", "printed")
RING = [(5, 1), (0, 2), (1, 3), (2, 4), (3, 5), (4, 0)]  # Neighbours of each of the paper's six servers.


# The clock, without any learning: who computes when, who waits, how stale the clusters get


def transfer_seconds(bits: Any, bits_per_second: Any) -> Any:
    """Return T_comm = M_bit / R."""
    require_range("> 0", bits_per_second=bits_per_second)
    return bits / bits_per_second


def synchronous_round_seconds(
    step_seconds: ArrayLike, upload_seconds: float, exchange_seconds: float, *, local_steps: int = 100,
    intra_rounds: int = 1, gossip_rounds: int = 1,
) -> float:  # fmt: skip
    """Return T_round = tau_2 (tau_1 max_i s_i + T_ct-sr) + alpha T_sr-sr, which everybody waits for (2.5, BL-2.15).

    tau_1 is `local_steps`, tau_2 `intra_rounds`, alpha `gossip_rounds`.
    """
    require_range(">= 1", local_steps=local_steps, intra_rounds=intra_rounds, gossip_rounds=gossip_rounds)
    slowest = float(np.max(np.asarray(step_seconds, dtype=float)))
    return intra_rounds * (local_steps * slowest + upload_seconds) + gossip_rounds * exchange_seconds


def utilisation(step_seconds: ArrayLike, local_steps: ArrayLike, iteration_seconds: ArrayLike) -> float:
    """Return the mean over clients of tau_i s_i / T_iter: the part of the time in which they compute (C07).

    The iteration time is that of a client's cluster, or of the synchronous round.
    """
    return float(np.mean(np.asarray(step_seconds) * np.asarray(local_steps) / np.asarray(iteration_seconds)))


class ClusterEvent(NamedTuple):
    """A cluster has completed an iteration."""

    iteration: int  # k, which counts the events of all clusters.
    seconds: float
    cluster: int
    staleness: tuple[int, ...]  # delta^(j)_k of every cluster, in global iterations.


def cluster_event_clock(iteration_seconds: Sequence[float]) -> Iterator[ClusterEvent]:
    """Yield the events of independent clusters, for ever; those of equal time in the order of their numbers (2.2).

    Times are n T in fractions, never sums: what ties must tie exactly, or D4 does not hold for 0.1 s and 0.3 s.
    """
    periods = _periods(iteration_seconds)
    queue = sorted((period, cluster) for cluster, period in enumerate(periods))  # a heap
    pulled, completed = [0] * len(periods), [0] * len(periods)
    k = 0
    while True:
        seconds, d = queue[0]
        yield ClusterEvent(k, float(seconds), d, tuple(k - since for since in pulled))
        k += 1
        pulled[d] = k
        completed[d] += 1
        heapq.heapreplace(queue, ((completed[d] + 1) * periods[d], d))


def staleness_bound(iteration_seconds: Sequence[float]) -> NDArray[np.int64]:
    """Return sum_{j != d} ceil(T_d / T_j) ``[D]``, which the staleness of cluster d never exceeds (Lemma 1, D4)."""
    periods = _periods(iteration_seconds)
    return np.array([sum(ceil(own / other) for other in periods) - 1 for own in periods])  # less that of d itself


def _periods(iteration_seconds: Sequence[float]) -> list[Fraction]:
    periods = [Fraction(float(period)) for period in iteration_seconds]
    require(periods and min(periods) > 0, "iteration_seconds", list(iteration_seconds), "> 0 for each cluster")
    return periods


def printed_staleness_bound(num_clusters: int, heterogeneity_gap: float) -> float:
    """Return (D - 1) H, the bound that the sketch of Lemma 1 suggests; wrong, as T_d / T_j is not whole (E-08)."""
    return (num_clusters - 1) * heterogeneity_gap


@dataclass(frozen=True)
class Clock:
    """When clusters of given devices end their iterations, and the synchronous rounds of the same devices."""

    clusters: tuple[tuple[float, ...], ...]  # Seconds of a local step of each device, by cluster.
    upload: float
    exchange: float  # Seconds from device to server, and from server to server.
    min_batches: int = PAPER_BATCHES
    """Mini-batches of the slowest device of a cluster, and of every device in a synchronous round."""

    @property
    def plans(self) -> list[ClusterPlan]:
        """Deadline, local steps and iteration time of each cluster."""
        return [plan_cluster(c, self.upload, self.exchange, min_batches=self.min_batches) for c in self.clusters]

    @property
    def periods(self) -> list[float]:
        """T_iter of each cluster, seconds."""
        return [plan.iteration_seconds for plan in self.plans]

    @property
    def seconds(self) -> NDArray[np.float64]:
        """``[C]`` seconds of a local step of each device."""
        return np.array([s for cluster in self.clusters for s in cluster])

    @property
    def local_steps(self) -> NDArray[np.int64]:
        """``[C]`` tau_i of each device."""
        return np.array([n for plan in self.plans for n in plan.local_steps])

    @property
    def round_seconds(self) -> float:
        """T_round of synchronous SD-FEEL."""
        return synchronous_round_seconds(self.seconds, self.upload, self.exchange, local_steps=self.min_batches)

    @property
    def busy(self) -> tuple[float, float]:
        """Part of the time in which devices compute, mean over devices: in synchronous rounds, in clusters (C07)."""
        periods = np.repeat(self.periods, [len(cluster) for cluster in self.clusters])
        synchronous = utilisation(self.seconds, self.min_batches, self.round_seconds)
        return synchronous, utilisation(self.seconds, self.local_steps, periods)

    def events(self, count: int) -> list[ClusterEvent]:
        """Return the first `count` asynchronous events."""
        return list(islice(cluster_event_clock(self.periods), count))


@cache
def paper_clock(gap: float, seed: int = 0) -> Clock:
    """Return the clock of ResNet-18 on 30 devices in six clusters, the speeds from numpy's ``default_rng(seed)``."""
    seconds = World.named("sdfeel", heterogeneity_gap=gap).compute.draw(30, np.random.default_rng(seed))
    bits = model_bits(RESNET18)
    clusters = tuple(tuple(seconds[5 * d : 5 * d + 5].tolist()) for d in range(6))
    return Clock(clusters, transfer_seconds(bits, UP), transfer_seconds(bits, BACKHAUL))


@cache
def run_clock(spec: RunSpec) -> Clock:
    """Return the clock of the world of a run."""
    devices = spec.world.realise(spec.seed)
    members = [list(devices.members(server)) for server in range(devices.num_servers)]
    upload = devices.profile(members[0][0], None).up_seconds(model_bits(parameters_of(spec.model, spec.dataset)) / 8)
    steps = "min_batches" if isinstance(spec.algorithm, AsyncSDFeel) else "local_steps"
    clusters = tuple(tuple(devices.seconds[own].tolist()) for own in members)
    return Clock(clusters, upload, devices.backhaul_seconds, getattr(spec.algorithm, steps))


# Mixing matrices


def staleness_aware_mixing_matrix(
    neighbors: Sequence[Sequence[int]],
    trigger: int,
    staleness: Sequence[int],
    discount: Discount = staleness_discount,
    **variant: Any,
) -> NDArray[np.float64]:
    """Return P_k ``[D, D]`` of an event of cluster `trigger`, Eq. 5; `staleness` is that of all clusters.

    `discount` and `variant` go to :func:`fl_core.formulas.sdfeel.gossip_weights`.
    """
    closed = {j: staleness[j] for j in (trigger, *neighbors[trigger])}
    column, given = gossip_weights(trigger, closed, discount, **variant)
    matrix = np.eye(len(neighbors))
    for i, weight in column.items():
        matrix[i, trigger] = weight
    for j, weight in given.items():
        matrix[trigger, j], matrix[j, j] = weight, 1 - weight
    return matrix


def joint_mixing_matrix(
    neighbors: Sequence[Sequence[int]],
    staleness: Sequence[int],
    discount: Discount = staleness_discount,
    cluster_weight: Sequence[Any] | None = None,
) -> NDArray[np.float64]:
    """Return P_k ``[D, D]`` when all clusters mix at once; see :func:`joint_gossip_weights`."""
    psi = [discount(late) for late in staleness]
    sums = [psi[j] + sum(psi[i] for i in others) for j, others in enumerate(neighbors)]
    matrix = np.zeros((len(neighbors), len(neighbors)))
    for j, others in enumerate(neighbors):
        closed = (j, *others)
        own = {i: psi[i] for i in closed}, {i: sums[i] for i in closed}
        for i, weight in formulas.joint_gossip_weights(j, *own, cluster_weight).items():
            matrix[i, j] = weight
    return matrix


def zeta(matrix: ArrayLike) -> float:
    """Return the second-largest modulus of an eigenvalue of P: each round averages better by it (BL-2.14)."""
    moduli = np.sort(np.abs(np.linalg.eigvals(np.asarray(matrix, dtype=float))))
    return float(moduli[-2]) if len(moduli) > 1 else 0.0


def perron_vector(matrix: ArrayLike) -> NDArray[np.float64]:
    """Return v ``[D]`` with P v = v and sum 1: gossip ends at sum_d v_d y^(d) (E-06)."""
    values, vectors = np.linalg.eig(np.asarray(matrix, dtype=float))
    vector = np.real(vectors[:, np.argmin(np.abs(values - 1))])
    return vector / vector.sum()


def consensus_rounds(second_eigenvalue: float, factor: float) -> int:
    """Return q, the least number of rounds with zeta^q <= `factor`: 28 for 0.6 and 1e-6."""
    require_range("in (0, 1)", second_eigenvalue=second_eigenvalue, factor=factor)
    return int(np.ceil(np.log(factor) / np.log(second_eigenvalue) - 1e-9))  # a whole quotient may come out above it


def paper_matrices(gap: float, events: int, **variant: Any) -> NDArray[np.float64]:
    """Return the mixing matrices ``[events, 6, 6]`` of the paper's clock."""
    made = paper_clock(gap).events(events)
    return np.array([staleness_aware_mixing_matrix(RING, e.cluster, e.staleness, **variant) for e in made])


# Toys: quadratics F_i(w) = (w - c_i)^2 / 2 with full gradients, one minimiser c_i (`centres`) for each client


def local_model(start: Any, centre: Any, lr: float, steps: int) -> Any:
    """Return the model after `steps` local steps, each of which comes nearer to c: c + (1 - eta)^tau (w - c)."""
    return centre + (1 - lr) ** steps * (start - centre)


def fixed_point(
    centres: Sequence[float], weights: Sequence[float], steps: Sequence[int], lr: float, *, normalized: bool = True
) -> float:
    """Return where repeated aggregation of one cluster ends: near the optimum only if normalised as in Eq. 3 (D1)."""
    pairs = zip(weights, steps, strict=True)
    pull = [weight * (1 - (1 - lr) ** step) / (step if normalized else 1) for weight, step in pairs]
    return sum(p * c for p, c in zip(pull, centres, strict=True)) / sum(pull)


class QuadraticRun(NamedTuple):
    """Asynchronous SD-FEEL on scalar quadratics."""

    models: NDArray[np.float64]  # ``[K + 1, D]``, the servers' models before the first event and after each.
    triggers: list[int]
    seconds: list[float]
    staleness: list[tuple[int, ...]]


def quadratic_run(
    centres: ArrayLike, clusters: Sequence[Sequence[int]], neighbors: Sequence[Sequence[int]], steps: Sequence[int],
    sizes: ArrayLike, iteration_seconds: Sequence[float], lr: float, events: int, start: float = 0.0, **variant: Any,
) -> QuadraticRun:  # fmt: skip
    """Run so many events of the procedure in plain Python, the shortest way, all models from `start`.

    `centres`, `steps` and `sizes` are of each client, `iteration_seconds` of each cluster; `variant` goes to
    :func:`fl_core.formulas.sdfeel.gossip_weights`.
    """
    centres, sizes = np.asarray(centres, dtype=float), np.asarray(sizes, dtype=float)
    server, started = [float(start)] * len(clusters), [float(start)] * len(clusters)
    models, seen = [list(server)], list(islice(cluster_event_clock(iteration_seconds), events))
    for event in seen:
        d = event.cluster
        members = list(clusters[d])
        shares, counts = sizes[members] / sizes[members].sum(), [steps[i] for i in members]
        ends = [local_model(started[d], centres[i], lr, steps[i]) for i in members]
        updates = [formulas.normalized_update(e, started[d], n) for e, n in zip(ends, counts, strict=True)]
        own = formulas.intra_cluster_aggregate(server[d], updates, list(shares), counts)
        late = {j: event.staleness[j] for j in (d, *neighbors[d])}
        weights = gossip_weights(d, late, **variant)
        before = dict(enumerate(server)) | {d: own}
        server[d] = formulas.gossip_average(before, weights.column)
        for j, weight in weights.given.items():
            server[j] = formulas.gossip_towards(before[j], own, weight)
        started[d] = server[d]
        models.append(list(server))
    return QuadraticRun(
        np.array(models), [e.cluster for e in seen], [e.seconds for e in seen], [e.staleness for e in seen]
    )


def cluster_steps(clusters: Sequence[Sequence[int]], sizes: ArrayLike, steps: Sequence[int]) -> list[float]:
    """Return tau-bar_d of each cluster."""
    data = [np.asarray(sizes, dtype=float)[list(members)] for members in clusters]
    own = [[steps[i] for i in members] for members in clusters]
    return [float(formulas.effective_steps(list(d / d.sum()), n)) for d, n in zip(data, own, strict=True)]


def surrogate_weights(
    effective_steps: ArrayLike, iteration_seconds: ArrayLike, cluster_weight: Sequence[float] | None = None
) -> NDArray[np.float64]:
    """Return omega ``[D]``, the weights of the clusters' objectives in what is really minimised (D10).

    `cluster_weight` is for mixing that keeps the data-weighted mean; with Eq. 5 (None) data sizes play no part.
    """
    pace = np.asarray(effective_steps, dtype=float) / np.asarray(iteration_seconds, dtype=float)
    if cluster_weight is not None:
        pace = pace * np.asarray(cluster_weight, dtype=float)
    return pace / pace.sum()


def surrogate_minimiser(
    centres: ArrayLike, clusters: Sequence[Sequence[int]], sizes: ArrayLike, omega: ArrayLike
) -> float:
    """Return the minimiser of sum_d omega_d F^(d), F^(d) the data-weighted mean of the cluster's objectives (D10)."""
    centres, sizes = np.asarray(centres, dtype=float), np.asarray(sizes, dtype=float)
    means = [np.average(centres[list(members)], weights=sizes[list(members)]) for members in clusters]
    return float(np.dot(np.asarray(omega, dtype=float), means))


@cache
def inconsistency(events: int = 3000) -> dict[str, NDArray[np.float64]]:
    """Return the mean model ``[events + 1]`` of asynchronous runs on quadratics, predictions and the optimum (D10).

    Thirty devices with the paper's clock at H = 10, a tenth of its steps, clusters with unequal data.
    """
    rng, clock = np.random.default_rng(0), paper_clock(10)
    clusters = [tuple(range(5 * d, 5 * d + 5)) for d in range(6)]
    centres, sizes = rng.normal(size=30), rng.integers(100, 900, 30)
    steps = (clock.local_steps // 10).tolist()
    share = np.array([sizes[list(own)].sum() for own in clusters]) / sizes.sum()
    taus, found = cluster_steps(clusters, sizes, steps), {}
    optimum = surrogate_minimiser(centres, clusters, sizes, share)
    rules: dict[str, tuple[Mixing, Any]] = {
        "Eq. 5": ("derived", None), "data-weighted mixing": ("data_weighted", share),
    }  # fmt: skip
    for name, (rule, weight) in rules.items():
        target = surrogate_minimiser(centres, clusters, sizes, surrogate_weights(taus, clock.periods, weight))
        problem = centres, clusters, RING, steps, sizes, clock.periods
        run = quadratic_run(*problem, 5e-4, events, rule=rule, cluster_weight=share)
        found[name] = run.models @ (np.full(6, 1 / 6) if weight is None else weight)
        found[f"{name}: prediction"] = np.full(events + 1, target)
    return {**found, "optimum of F": np.full(events + 1, optimum)}


# One iteration: Eq. 11, Lemma 2, local drift


def round_step(
    lr: Any, cluster_weight: Sequence[Any], effective_steps: Sequence[Any], gradients: Sequence[Any]
) -> Any:
    """Return y-bar_{k+1} - y-bar_k of Eq. 11, by which a *synchronous* round moves the data-weighted mean (E-07).

    `gradients` ``[D, p]``: of each cluster, sum_i m-hat_i times the mean gradient along the local steps of client i.
    """
    terms = zip(cluster_weight, effective_steps, gradients, strict=True)
    return -lr * sum(weight * steps * gradient for weight, steps, gradient in terms)


def event_step(lr: Any, num_clusters: int, effective_steps: Any, gradient: Any) -> Any:
    """Return by how much an *asynchronous* event moves the uniform mean: -eta / D tau-bar_d g-hat^(d) (D3).

    Only the trigger's gradient is in it, taken along steps from the model that its clients were sent (E-07).
    """
    return -lr * effective_steps / num_clusters * gradient


def step_ratio(tau_max: Any, tau_min: Any) -> Any:
    """Return tau_max / tau_min, which stands for the gap H (E-09)."""
    require_range("> 0", tau_min=tau_min)
    require(tau_max >= tau_min, "tau_max", tau_max, f">= tau_min = {tau_min}")
    return tau_max / tau_min


def printed_lemma2_bound(
    *, lr: Any, smoothness: Any, tau_max: Any, tau_min: Any, gradient: Any, delayed: Any, error: Any,
    noise: Any = 0.0, square_weights: Any = 0.0,
) -> Any:  # fmt: skip
    """Return the right side of Lemma 2, Eq. 12, as printed; false if effective step counts differ (E-10).

    `gradient` is E ‖grad F(y-bar_k)‖², `delayed` J_k, the mean square of the delayed gradients' data-weighted mean,
    `error` the mean squared distance of the two.
    """
    gap = step_ratio(tau_max, tau_min)
    return (
        -lr * tau_min * gradient / 2
        - lr / 2 * (tau_min - lr * smoothness * tau_max**2) * delayed
        + lr**2 * smoothness * tau_max * gap * square_weights * noise / 2
        + lr * tau_min * error / 2
    )


def lemma2_bound(
    *, lr: Any, smoothness: Any, tau_max: Any, tau_min: Any, effective_steps: Any, gradient: Any, delayed: Any,
    error: Any, noise: Any = 0.0, square_weights: Any = 0.0,
) -> Any:  # fmt: skip
    """Return the bound on the change of the surrogate objective that replaces Lemma 2 (D11); for 2 L with noise.

    `effective_steps` is tau_eff = sum_d m-tilde_d tau-bar_d; `gradient`, `delayed` and `error` are those of
    :func:`printed_lemma2_bound` for the surrogate objective, with weights m-tilde_d tau-bar_d; noise must be new.
    """
    gap = step_ratio(tau_max, tau_min)
    return (
        -lr * effective_steps * gradient / 2
        - lr * effective_steps * (1 - lr * smoothness * effective_steps) * delayed / 2
        + lr**2 * smoothness * tau_max * gap * square_weights * noise / 2
        + lr * effective_steps * error / 2
    )


def local_drift_bound(lr: Any, smoothness: Any, steps: Any, noise: Any, gradient: Any) -> Any:
    """Return a bound on the mean of E ‖y - w_l‖² over the tau local steps of one client (D6).

    `gradient` is ‖grad F_i(y)‖² at the start.
    """
    U2 = steps * (steps - 1)
    x = lr**2 * smoothness**2 * U2
    require(1 - 2 * x > 0, "lr", lr, "small enough: eta² L² tau (tau - 1) < 1/2")
    return (lr**2 * noise * (steps - 1) + 2 * lr**2 * U2 * gradient) / (1 - 2 * x)


# How far products of mixing matrices are from averaging


class MixingSums(NamedTuple):
    """The sums over mixing errors in Lemma 3."""

    squares: Any  # 1/K sum_k sum_s rho_{s,k-1}^2.
    squared_sums: Any  # 1/K sum_k (sum_s rho_{s,k-1})^2.
    products: Any  # max_s sum_{k>s} rho_{s,k-1} sum_l rho_{l,k-1}.


EXACT = MixingSums(0, 0, 0)  # Servers that average exactly.


def mixing_errors(matrices: ArrayLike, limit: ArrayLike | None = None) -> NDArray[np.float64]:
    """Return rho ``[K, K]`` of P_0 to P_{K-2} ``[K - 1, D, D]``: rho_{s,k-1} at ``[s, k]`` for s < k, 0 elsewhere.

    `limit` ``[D]`` is the vector v of exact averaging v 1^T (E-15), uniform by default.
    """
    matrices = np.asarray(matrices, dtype=float)
    count, servers = len(matrices) + 1, matrices.shape[-1]
    v = np.full(servers, 1 / servers) if limit is None else np.asarray(limit, dtype=float)
    average, rho = np.outer(v, np.ones(servers)), np.zeros((count, count))
    products = np.tile(np.eye(servers), (count, 1, 1))
    for k in range(1, count):
        products[:k] = products[:k] @ matrices[k - 1]
        rho[:k, k] = np.linalg.norm(products[:k] - average, 2, axis=(1, 2))
    return rho


def constant_mixing_errors(zeta: float, count: int) -> NDArray[np.float64]:
    """Return rho ``[K, K]`` of a constant symmetric matrix: zeta^(k - s)."""
    lag = np.arange(count)[None, :] - np.arange(count)[:, None]
    return np.where(lag > 0, float(zeta) ** np.maximum(lag, 0), 0.0)


def mixing_error_sums(rho: ArrayLike) -> MixingSums:
    """Return the sums of Lemma 3 for rho ``[K, K]`` as :func:`mixing_errors` makes it."""
    rho = np.asarray(rho, dtype=float)
    sums, count = rho.sum(0), len(rho)
    found = (rho**2).sum() / count, (sums**2).sum() / count, (rho * sums).sum(1).max()
    return MixingSums(*map(float, found))


def window_contraction(matrices: ArrayLike, window: int) -> float:
    """Return rho_W, the largest distance from uniform averaging of a product of W successive matrices ``[K, D, D]``.

    In W = delta_max + 1 events every cluster is the trigger at least once (D5).
    """
    matrices = np.asarray(matrices, dtype=float)
    average = np.full(matrices.shape[1:], 1 / matrices.shape[-1])
    products = (reduce(np.matmul, matrices[s : s + window]) for s in range(len(matrices) - window + 1))
    return max(float(np.linalg.norm(product - average, 2)) for product in products)


def window_sum_bound(window: int, contraction: float) -> float:
    """Return W / (1 - rho_W), a bound on sum_s rho_{s,k-1} for matrices of asynchronous events (D5)."""
    require_range("in [0, 1)", contraction=contraction)
    return window / (1 - contraction)


def printed_sum_bound(second_eigenvalue: float) -> float:
    """Return 1 / (1 - rho_max); infinite for every asynchronous event that leaves a server out (E-14)."""
    return float("inf") if second_eigenvalue >= 1 - 1e-12 else 1 / (1 - second_eigenvalue)


# Lemma 3 and Theorem 1


class Constants(NamedTuple):
    """What Lemma 3 and Theorem 1 are made of."""

    A: Any  # Factor of sigma^2.
    B: Any  # Factor of kappa^2.
    C: Any  # Factor of J.
    U1: Any
    U2: Any
    U3: Any
    U4: Any
    x: Any  # eta^2 L^2 U_2.


def constants(
    lr: Any, smoothness: Any, tau_max: Any, gap: Any, delta_max: Any, sums: MixingSums, num_iterations: Any = None, *,
    variant: Variant = "derived",
) -> Constants:  # fmt: skip
    """Return the constants of Lemma 3, Eq. 13, and U_1 of Theorem 1, with H = tau_max / tau_min as `gap`.

    The printed ones have other powers of tau_max in B and C, divide C by K (`num_iterations`, E-13), and have a
    smaller factor in U_1 (E-12).
    """
    require_range("> 0", lr=lr, smoothness=smoothness)
    require_range(">= 1", tau_max=tau_max, gap=gap)
    require_range(">= 0", delta_max=delta_max)
    require(variant in ("derived", "printed"), "variant", variant, "'derived' or 'printed'")
    e, t, U2 = lr**2 * smoothness**2, tau_max, tau_max * (tau_max - 1)
    x = e * U2
    U3, U4 = (1 + 4 * x) / (1 - 2 * x), (1 + 22 * x) / (1 - 2 * x)
    A = 4 * e * delta_max**2 * t * gap * U4 + 4 * e * (t - 1) / (1 - 2 * x) + 8 * e * t * gap * U3 * sums.squares
    drift = 24 * x / (1 - 2 * x)
    if variant == "derived":
        B = 8 * e * delta_max**2 * t**2 * U4 + drift + 16 * e * t**2 * U3 * sums.squared_sums
        C = 8 * e * delta_max**2 * t**2 * U4 + 16 * e * t**2 * U3 * sums.products
        return Constants(A, B, C, (1 - 50 * x) / (1 - 2 * x), U2, U3, U4, x)
    require(num_iterations is not None, "num_iterations", num_iterations, "given for the printed constants")
    B = 8 * e * delta_max**2 * t * gap * U4 + drift + 16 * e * t * gap * U3 * sums.squared_sums
    C = 8 * e * delta_max**2 * t * U4 + 16 * e * t**2 * U3 * sums.products / num_iterations
    return Constants(A, B, C, (1 - 14 * x) / (1 - 2 * x), U2, U3, U4, x)


class Conditions(NamedTuple):
    """What has to be >= 0, > 0 and > 0 for Theorem 1."""

    step: Any
    """1 - eta L H tau_max - C, Eq. 15."""
    drift: Any
    """1 - 2 x, Eq. 15."""
    leading: Any
    """U_1, by which Eq. 16 divides (E-16)."""

    @property
    def hold(self) -> bool:
        """Whether the theorem applies."""
        return bool(self.step >= 0 and self.drift > 0 and self.leading > 0)


def conditions(lr: Any, smoothness: Any, tau_max: Any, gap: Any, found: Constants) -> Conditions:
    """Return the left sides of the conditions of Theorem 1, Eq. 15 and E-16."""
    return Conditions(1 - lr * smoothness * gap * tau_max - found.C, 1 - 2 * found.x, found.U1)


class BoundTerms(NamedTuple):
    """The terms of Eq. 16."""

    progress: Any  # Falls with K.
    noise: Any  # Of the aggregated updates.
    drift_noise: Any  # A sigma^2 / U_1.
    dissimilarity: Any  # B kappa^2 / U_1.

    @property
    def total(self) -> Any:
        """The right side of Eq. 16."""
        return self.progress + self.noise + self.drift_noise + self.dissimilarity


def surrogate_bound(
    found: Constants, *, lr: Any, smoothness: Any, tau_max: Any, tau_min: Any, effective_steps: Any,
    num_iterations: Any, decrease: Any, noise: Any, dissimilarity: Any, square_weights: Any,
) -> BoundTerms:  # fmt: skip
    """Return the terms of what replaces Theorem 1, for the gradient of the surrogate objective (D11).

    As :func:`theorem1_bound`, with tau_eff = sum_d m-tilde_d tau-bar_d for tau_min in the first term and
    eta L tau_max H / tau_eff in the second. `decrease` and `dissimilarity` (to 4 kappa^2) are of that objective.
    """
    gap = step_ratio(tau_max, tau_min)
    require_range(">= 1", num_iterations=num_iterations)
    require_range("> 0", effective_steps=effective_steps)
    return BoundTerms(
        2 * decrease / (lr * effective_steps * found.U1 * num_iterations),
        lr * smoothness * tau_max * gap / effective_steps * square_weights * noise / found.U1,
        found.A * noise / found.U1,
        found.B * dissimilarity / found.U1,
    )


def theorem1_bound(found: Constants, *, tau_max: Any, tau_min: Any, **setting: Any) -> BoundTerms:
    """Return the terms of Theorem 1, Eq. 16, with `found` and the setting of :func:`surrogate_bound`.

    `decrease` is E F(y_0) - E F(y_K); tau_min may be below the integers, as tau_max / H. The theorem does not hold
    for grad F if clusters make different effective numbers of steps (E-11).
    """
    lowest = tau_max / step_ratio(tau_max, tau_min)
    return surrogate_bound(found, tau_max=tau_max, tau_min=lowest, effective_steps=tau_min, **setting)


BOUND = {"lr": 0.002, "tau_max": 20, "iterations": 50, "zeta": 0.6, "noise": 0.5, "dissimilarity": 0.3}
"""The setting of claim C12."""


def bound(variant: Variant, **varied: float) -> BoundTerms:
    """Return the terms of (16) in the setting of claim C12, with some of it changed."""
    now = {**BOUND, "gap": 1, "delta_max": 0, **varied}
    tau_max, count = int(now["tau_max"]), int(now["iterations"])
    sums = mixing_error_sums(constant_mixing_errors(now["zeta"], count))
    found = constants(now["lr"], 1.0, tau_max, now["gap"], now["delta_max"], sums, count, variant=variant)
    return theorem1_bound(
        found, lr=now["lr"], smoothness=1.0, tau_max=tau_max, tau_min=tau_max / now["gap"], num_iterations=count,
        decrease=2.0, noise=now["noise"], dissimilarity=now["dissimilarity"], square_weights=1 / 30,
    )  # fmt: skip


# Problems on which the printed statements fail, and the corrected ones are sharp or hold


class Sides(NamedTuple):
    """Both sides of an inequality on one problem, as it is printed and as it is corrected."""

    left: float
    printed: float  # Right side as printed.
    corrected_left: float
    corrected: float


TWO = np.array((1, 5)), np.array((1.0, -1.0))
"""Two clusters of one device and equal data: F_d = w²/2 + slope w, tau = (1, 5); F = w²/2, its surrogate has the
weights (1, 5)/6 and its minimum at 2/3."""


def lemma2_example(start: float = 0.1, lr: float = 1e-3, smoothness: float = 1.0) -> Sides:
    """Return the change of F and of the surrogate in one iteration of `TWO`, and what Lemma 2 allows (E-10, D11)."""
    steps, slopes = TWO
    ends = np.array([local_model(start, -s, lr, n) for s, n in zip(slopes, steps, strict=True)])
    means, after, sides = (start - ends) / (lr * steps), float(ends.mean()), []
    common = {"lr": lr, "smoothness": smoothness, "tau_max": 5, "tau_min": 1}
    for weights, lemma in (
        (np.full(2, 0.5), printed_lemma2_bound),
        (steps / steps.sum(), partial(lemma2_bound, effective_steps=3)),
    ):
        tilt, delayed = weights @ slopes, weights @ means
        change = (after**2 / 2 + tilt * after) - (start**2 / 2 + tilt * start)
        sides += [change, lemma(**common, gradient=(start + tilt) ** 2, delayed=delayed**2,
                                error=(start + tilt - delayed) ** 2)]  # fmt: skip
    return Sides(*map(float, sides))


def theorem1_example(lr: float = 1e-4, count: int = 200_000) -> Sides:
    """Return the mean squared gradients of F and of the surrogate on `TWO` from 0, and what Theorem 1 allows (E-11).

    Servers average exactly, nothing is late and there is no noise.
    """
    steps, slopes = TWO
    keep = (1 - lr) ** steps
    limit = -(slopes * (1 - keep)).mean() / (1 - keep.mean())
    models = limit * (1 - keep.mean() ** np.arange(count + 1))
    setting = {"lr": lr, "smoothness": 1, "tau_max": 5, "tau_min": 1, "num_iterations": count, "noise": 0,
               "dissimilarity": 1, "square_weights": 0.5}  # fmt: skip
    printed, derived = (constants(lr, 1, 5, 5, 0, EXACT, count, variant=v) for v in ("printed", "derived"))
    if not conditions(lr, 1, 5, 5, printed).hold:
        raise ValueError(f"lr = {lr} is too large for the conditions of Theorem 1")
    decrease, distant = (2 / 3) ** 2 / 2 - (models[-1] - 2 / 3) ** 2 / 2, setting | {"dissimilarity": (5 / 3) ** 2}
    return Sides(
        float(np.mean(models[:-1] ** 2)),
        float(theorem1_bound(printed, decrease=-(models[-1] ** 2) / 2, **setting).total),
        float(np.mean((models[:-1] - 2 / 3) ** 2)),
        float(surrogate_bound(derived, effective_steps=3, decrease=decrease, **distant).total),
    )


def lemma3_example(servers: int = 24, steps: int = 2000, span: float = 0.005, rounds: int = 1500) -> Sides:
    """Return the mean error on a ring whose clusters pull in different directions, and what Lemma 3 allows (E-13).

    F_d = slope w + curved log cosh w with kappa = 1.5, L = 1. So many short steps (`span` is eta times their number)
    follow the gradient flow, which one Runge-Kutta step of a round computes.
    """
    slope = -np.cos(2 * np.pi * np.arange(servers) / servers)
    curved = (slope < 0).astype(float)

    def descent(w: NDArray[np.float64]) -> NDArray[np.float64]:
        return -(slope + curved * np.tanh(w))

    ring = [((d - 1) % servers, (d + 1) % servers) for d in range(servers)]
    matrix = formulas.synchronous_mixing_matrix(ring, kind="laplacian")
    models, errors, squares = np.zeros(servers), [], []
    for _ in range(rounds):
        k1 = descent(models)
        k2 = descent(models + span / 2 * k1)
        k3 = descent(models + span / 2 * k2)
        ends = models + span / 6 * (k1 + 2 * k2 + 2 * k3 + descent(models + span * k3))
        delayed = (models - ends).mean() / span
        errors.append((-descent(np.array(models.mean())).mean() - delayed) ** 2)
        squares.append(delayed**2)
        models = ends @ matrix
    sums, right = mixing_error_sums(constant_mixing_errors(zeta(matrix), rounds)), []
    for variant in VARIANTS:
        found = constants(span / steps, 1, steps, 1, 0, sums, rounds, variant=variant)
        right.append(float(found.B * 1.5**2 + found.C * max(squares)))
    derived, printed = right
    return Sides(float(np.mean(errors)), printed, float(np.mean(errors)), derived)
