"""WKAFL's arguments on problems whose constants are known: what the chapter on its derivation shows and draws.

No network is trained; every number follows from :mod:`fl_core.formulas`. D-n, E-n, T1 and T2 are those of the
project's specification of WKAFL.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from fl_core.algorithms import KAsync
from fl_core.formulas.wkafl import DECAY, aggregate, estimate, estimation_weights
from fl_core.runtime import Budget, Evaluation, LocalTraining, Simulation
from fl_core.tasks import Quadratic
from fl_core.world import World
from fl_papers.wkafl.bounds import (
    lr_limit_estimate,
    lr_limit_noise,
    lr_limit_staleness,
    theorem51_bound,
    theorem53,
    weighted_gradient_mean,
)
from fl_papers.wkafl.staleness import (
    Schedule,
    average_num_gradients,
    average_staleness,
    k_asynchronous,
    round_robin,
    uniform_draws,
)
from fl_papers.wkafl.toys import StaleQuadratic, clipped_path, stale_cloud

Floats = NDArray[np.float64]

DECAYS = (0.02, 0.03, 0.04, 0.06, 0.1, 0.2, DECAY, 0.5, 1.0)
"""lambda of weights e^(-lambda tau) in the sweep behind Figure 2 (b); (e / 2)^(-tau) is among them."""
THEOREM_51 = (
    ("noise and non-IID data", 0.25, 0.3, 0.1, 0.1293),
    ("neither", 0.0, 0.0, 0.1, 0.1293),
    ("much noise", 1.0, 0.0, 0.1, 0.1293),
    ("much momentum", 0.25, 0.3, 0.5, 0.053),
)
"""Name, sigma_c^2 / m, spread of the offsets, alpha and eta of the runs on T1."""
THEOREM_53 = (
    ("small errors", 0.05, 0.02, 0.1),
    ("no errors", 0.0, 0.0, 0.1),
    ("errors tenfold", 0.5, 0.2, 0.1),
    ("much momentum", 0.05, 0.02, 0.4),
)
"""Name, standard deviations of the two errors, and alpha of the paths of T2."""


def schedules(num_clients: int, num_aggregated: int, num_iterations: int, seed: int = 0) -> dict[str, Schedule]:
    """Return K-asynchronous schedules under five laws of arrival, mean duration 1 where there is a clock (D7)."""
    rng = np.random.default_rng(seed)
    speeds = rng.uniform(0.4, 1.6, num_clients)
    laws: dict[str, Callable[[int, int], float]] = {
        "exponential": lambda client, job: rng.exponential(),
        "0.5 + exponential / 2": lambda client, job: 0.5 + 0.5 * rng.exponential(),
        "constant, unequal": lambda client, job: float(speeds[client]),
    }
    sizes = num_clients, num_aggregated, num_iterations
    return {
        "round robin": round_robin(*sizes),
        "uniform draws": uniform_draws(*sizes, rng),
        **{name: k_asynchronous(law, *sizes) for name, law in laws.items()},
    }


def decay_weights(staleness: NDArray[np.int64], decay: float) -> Floats:
    """Return e^(-lambda tau), normalised, for every update: ``[J, K]`` from ``[J, K]`` (Eq. 5 with another base)."""
    return estimation_weights(torch.from_numpy(np.asarray(staleness, float)).T, decay).T.numpy()


def conflict(schedule: Schedule, mu: float = 10.0, decays: Sequence[float] = DECAYS) -> pd.DataFrame:
    """Return how many gradients count (W-g) and how stale they are (W-f), a row for each lambda (D9)."""
    rows = []
    for decay in decays:
        weights = decay_weights(schedule.staleness, decay)
        number = average_num_gradients(weights, mu)
        rows.append((decay, number, average_staleness(weights, np.asarray(schedule.staleness, float))))
    return pd.DataFrame(rows, columns=["decay", "gradients", "staleness"])


def error_parts(
    decays: Sequence[float], num_clients: int, num_aggregated: int, *, lr: float, spread: float, seed: int = 0
) -> pd.DataFrame:
    """Return the mean squares of the two errors of a weighted mean of K gradients, over lambda (Section 4.3.1).

    F_i(w) = w'Aw / 2 + c_i'w with sum c_i = 0, on the path of gradient descent, with uniform draws of K of the P
    clients: the error sum_i p_i g_i - grad F(w_j) is sum_i p_i A (w_{j - tau_i} - w_j), of staleness, plus
    sum_i p_i c_i, of non-IID data.

    Parameters
    ----------
    decays : sequence of float
        lambda of the weights e^(-lambda tau).
    num_clients, num_aggregated : int
        P and K.
    lr, spread : float
        Learning rate of the path; standard deviation of each entry of c_i.
    seed : int, optional

    Returns
    -------
    DataFrame
        ``decay``, ``staleness``, ``non_iid`` and ``total``, each divided by the mean of ‖grad F(w_j)‖².
    """
    rng = np.random.default_rng(seed)
    curvatures, count = np.linspace(0.05, 1, 20), 20 * num_clients // num_aggregated
    offsets = spread * rng.standard_normal((num_clients, len(curvatures)))
    offsets -= offsets.mean(0)
    start = rng.standard_normal(len(curvatures))
    gradients = curvatures * start * (1 - lr * curvatures) ** np.arange(count)[:, None]
    drawn = uniform_draws(num_clients, num_aggregated, count, rng)
    behind = np.arange(count)[:, None] - drawn.staleness
    size, rows = (gradients**2).sum(1).mean(), []
    for decay in decays:
        weights = decay_weights(drawn.staleness, decay)[:, :, None]
        stale = (weights * (gradients[behind] - gradients[:, None])).sum(1)
        foreign = (weights * offsets[drawn.clients]).sum(1)
        parts = [(part**2).sum(1).mean() / size for part in (stale, foreign, stale + foreign)]
        rows.append((decay, *parts))
    return pd.DataFrame(rows, columns=["decay", "staleness", "non_iid", "total"])


def clipping(bounds: Sequence[float], draws: int, *, size: int = 50, count: int = 5, seed: int = 0) -> pd.DataFrame:
    """Return the mean cosine of Figure 4's estimate with the true gradient before and after clipping, over CB.

    The noise of a gradient has the root mean square *length* 0.3 + 0.5 tau, in `size` dimensions. ``improved`` is the
    share of the draws in which clipping brings the estimate closer; the same draws for every bound.
    """
    truth, rows = torch.zeros(size, dtype=torch.float64), []
    truth[0] = 1
    spread = 0.3 / np.sqrt(size), 0.5 / np.sqrt(size)
    for bound in bounds:
        rng = np.random.default_rng(seed)
        clouds = [stale_cloud(truth, count, bound, rng, spread) for _ in range(draws)]
        before, after = (
            np.array([_cosine(getattr(cloud, name), truth) for cloud in clouds])
            for name in ("estimate", "clipped_estimate")
        )
        rows.append((bound, before.mean(), after.mean(), float((after > before).mean())))
    return pd.DataFrame(rows, columns=["bound", "before", "after", "improved"])


def turning(
    speeds: Sequence[float],
    draws: int,
    *,
    num_aggregated: int = 10,
    mean_staleness: float = 9.0,
    noise: float = 0.5,
    sim_beta: float = 10.0,
    sim_min: float = 0.3,
    seed: int = 0,
) -> pd.DataFrame:
    """Return the mean cosine with the true gradient of four ways to use K gradients that turn with staleness.

    A gradient of staleness tau has turned by omega tau radians, in a direction of its own, and each client adds an
    error of length `noise`: cos(omega tau) u + sin(omega tau) v_i + noise. Staleness is geometric.

    Parameters
    ----------
    speeds : sequence of float
        omega, radians for each missed update.
    draws : int
        Repetitions; the same draws for every omega.
    num_aggregated, mean_staleness, noise : optional
        K, P / K - 1, and the root mean square length of the clients' errors.
    sim_beta, sim_min : float, optional
        beta and the threshold of the selection.
    seed : int, optional

    Returns
    -------
    DataFrame
        Indexed by omega: ``mean``, ``freshest``, ``estimate`` (Eq. 5), ``selection`` (Eqs. 6 to 8), and the number of
        gradients ``selected``.
    """
    size, rows = 50, []
    truth = torch.zeros(size, dtype=torch.float64)
    truth[0] = 1
    for omega in speeds:
        rng, found = np.random.default_rng(seed), []
        for _ in range(draws):
            staleness = rng.geometric(1 / (1 + mean_staleness), num_aggregated) - 1.0
            sideways = rng.standard_normal((num_aggregated, size))
            sideways[:, 0] = 0
            sideways /= np.linalg.norm(sideways, axis=1, keepdims=True)
            errors = noise / np.sqrt(size) * rng.standard_normal(sideways.shape)
            angle = omega * staleness[:, None]
            turned = np.cos(angle) * truth.numpy() + np.sin(angle) * sideways
            grads, tau = torch.from_numpy(turned + errors), torch.from_numpy(staleness)
            weights = estimation_weights(tau)
            made = aggregate(grads, weights, sim_beta=sim_beta, sim_min=sim_min)
            four = grads.mean(0), grads[int(tau.argmin())], estimate(grads, weights), made.gradient
            found.append([*(_cosine(vector, truth) for vector in four), int((made.similarities >= sim_min).sum())])
        rows.append(np.mean(found, axis=0))
    columns = ["mean", "freshest", "estimate", "selection", "selected"]
    return pd.DataFrame(rows, pd.Index(speeds, name="omega"), columns)


def theorem51_on_quadratics(runs: int, num_iterations: int = 60) -> pd.DataFrame:
    """Return both sides of (13) on T1, round robin with P = 12 and K = 3; the left one is a mean over `runs`."""
    rows, limits = [], {}
    for name, noise, spread, alpha, lr in THEOREM_51:
        rng = np.random.default_rng(0)
        offsets = spread * rng.standard_normal((12, 4))
        start = 2 * rng.standard_normal(4)
        problem = StaleQuadratic(np.linspace(0.2, 1, 4), offsets - offsets.mean(0), start, noise)
        if alpha not in limits:
            c1 = lr_limit_noise(num_iterations, alpha, problem.smoothness)
            limits[alpha] = min(c1, lr_limit_staleness(num_iterations, alpha, 3, problem.smoothness))
        norms = problem.run(round_robin(12, 3, num_iterations), lr, alpha, runs, np.random.default_rng(1))
        eta = np.full(num_iterations, lr)
        right = theorem51_bound(
            eta, np.full(num_iterations, 1 / 3), momentum_alpha=alpha, smoothness=problem.smoothness, noise=noise,
            dissimilarity_sq=problem.dissimilarity_sq, max_staleness=3, gap=problem.gap,
        )  # fmt: skip
        rows.append((name, alpha, lr, limits[alpha], weighted_gradient_mean(eta, alpha, norms), right))
    return pd.DataFrame(rows, columns=["problem", "alpha", "lr", "limit", "left", "right"])


def theorem53_on_paths(num_iterations: int = 80, lr: float = 0.02) -> pd.DataFrame:
    """Return both sides of (14) on T2, with the constants of (11) and (12) that each path turns out to have."""
    rows = []
    for name, est, spread, alpha in THEOREM_53:
        rng = np.random.default_rng(2)
        curvatures, start = np.linspace(0.2, 1, 5), 3 * rng.standard_normal(5)
        path = clipped_path(
            curvatures, start, lr=lr, momentum_alpha=alpha, stage2_clip_factor=2.0, num_aggregated=4,
            num_iterations=num_iterations, est_std=est, spread_std=spread, rng=rng,
        )  # fmt: skip
        made = theorem53(
            np.full(num_iterations, lr), momentum_alpha=alpha, smoothness=1.0, stage2_clip_factor=2.0,
            est_error_sq=path.est_error_sq, spread_var=path.spread_var, spread_slope=0.0,
            gap=float((curvatures * start**2).sum() / 2),
        )  # fmt: skip
        limit = lr_limit_estimate(num_iterations, alpha, 1.0)
        left = float((made.coefficients * path.gradient_norms_sq).mean())
        rows.append((name, alpha, lr, limit, made.coefficients.min(), left, made.bound))
    return pd.DataFrame(rows, columns=["problem", "alpha", "lr", "limit", "smallest V", "left", "right"])


def true_and_aliased(lr: float, num_updates: int, *, devices: int = 40, num_aggregated: int = 4) -> pd.DataFrame:
    """Return runs of plain K-asynchronous SGD with true and with aliased staleness (E30), a row for each gradient.

    Both have the same arrivals, and so the same counted staleness. All devices hold the same function: the loss that
    one reports is that of a version of the global model, and tells which.

    Returns
    -------
    DataFrame
        ``mode``; ``update``, from 1; ``counted`` and ``actual`` staleness; ``loss`` of the model that is made.
    """
    curvature, centre = np.linspace(0.25, 1, 6), np.zeros(6)
    task = Quadratic(np.tile(curvature, (devices, 1)), np.tile(centre, (devices, 1)), [3.0] * 6)
    frames = []
    for mode in ("copy", "aliased"):
        run = Simulation(
            task, World.named("wkafl", devices=devices),
            KAsync(num_aggregated=num_aggregated, lr=lr, client_snapshot=mode),
            budget=Budget(updates=num_updates), evaluation=Evaluation(every_updates=1), seed=1,
            training=LocalTraining(batch_size=1),
        )  # fmt: skip
        history = run.run("sequential")
        losses, used = np.array(history.evaluations["train_loss"]), pd.DataFrame(history.updates)
        version = used["version"].to_numpy()
        away = np.abs(losses - used["loss"].to_numpy()[:, None]) / losses
        away[np.arange(len(losses)) >= version[:, None]] = np.inf  # a device cannot know a later model
        computed_on = away.argmin(1)
        columns = {"update": version, "counted": used["staleness"], "actual": version - 1 - computed_on}
        frames.append(pd.DataFrame({"mode": mode, **columns, "loss": losses[version]}))
    return pd.concat(frames, ignore_index=True)


def _cosine(vector: Tensor, other: Tensor) -> float:
    return float(torch.cosine_similarity(vector, other, dim=0))
