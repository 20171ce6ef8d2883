"""FedASMU's theorem on problems whose constants are known: each step of the proof, and what goes wrong (D11, E13).

No network is trained; every number follows from :mod:`fl_core.formulas`. The derivation chapter shows them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fl_core.formulas.fedasmu import blend
from fl_papers.fedasmu.bounds import Problem, corrected_bound, drift_bound, printed_bound, printed_drift
from fl_papers.fedasmu.toys import Quadratics, Trace, random_run

Vector = NDArray[np.float64]

STALENESS, EPOCHS, LR, BETA = 5, 4, 0.05, 0.3
"""tau, local steps, learning rate, and largest weight of a fresh model in the random runs."""
WEIGHTS = (0.02, 0.08)
"""Range of their mixing weights; with it kappa of `drift_bound` is 0.42."""
SLACK = 1e-12
"""Rounding that an inequality is allowed."""

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


class Task(NamedTuple):
    """What one device does, from the model it starts at to its upload."""

    start: Vector
    points: list[Vector]
    """Where gradients are taken."""
    nexts: list[Vector]
    """Where each of these steps leads."""
    slot: int
    """Steps before the merge; 0: no merge."""
    before: Vector
    """w^b; without a merge the start."""
    fresh: Vector
    """w_g; without a merge the start."""
    beta: float

    @property
    def upload(self) -> Vector:
        """w_o^i."""
        return self.nexts[-1]


def random_problem(seed: int, rounds: int = 300) -> tuple[Quadratics, Trace]:
    """Return four random devices with losses in three dimensions, and a random run on them."""
    rng = np.random.default_rng(seed)
    losses = Quadratics(rng.uniform(0.3, 2, (4, 3)), rng.normal(size=(4, 3)))
    start = 3 * rng.normal(size=3)
    return losses, random_run(
        losses, start, rng, rounds=rounds, staleness_bound=STALENESS, epochs=EPOCHS, lr=LR, alpha=WEIGHTS,
        beta_max=BETA,
    )  # fmt: skip


def proof_steps(seeds: Sequence[int], rounds: int = 300) -> pd.DataFrame:
    """Evaluate every step of the proof that holds, on random runs.

    Returns
    -------
    DataFrame
        A row for each of `STEPS`: how many inequalities, how many violated, and the largest left - right relative to
        the size of the two.
    """
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in STEPS}
    for seed in seeds:
        losses, trace = random_problem(seed, rounds)
        problem, drift = trace.problem(losses), trace.drift(STALENESS)
        for t in range(rounds):
            task = _task(losses, trace, t)
            for name, pairs in _inequalities(losses, trace, problem, drift, t, task).items():
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
        losses, trace = random_problem(seed, rounds)
        problem, drift = trace.problem(losses), trace.drift(STALENESS)
        sums, values = trace.squared_gradients(losses), [losses.mean_loss(w) for w in trace.models]

        def bound(gap: float, weights: Sequence[float], problem: Problem = problem, drift: float = drift) -> float:
            epochs = [EPOCHS] * len(weights)
            return corrected_bound(gap, problem, lr=LR, weights=weights, epochs=epochs, beta_max=BETA, drift=drift)

        failed = sum(
            square / EPOCHS > bound(values[t] - values[t + 1], [alpha])
            for t, (square, alpha) in enumerate(zip(sums, trace.weights, strict=True))
        )
        limit = drift_bound(
            problem, lr=LR, alpha_max=WEIGHTS[1], beta_max=BETA, staleness_bound=STALENESS, epochs_max=EPOCHS
        )
        rows.append(
            {
                "seed": seed,
                "mean of |grad F|²": np.dot(trace.weights, sums) / (EPOCHS * sum(trace.weights)),
                "bound": bound(values[0] - values[-1], trace.weights),
                "V²": problem.deviation,
                "rounds violated": failed,
                "D": drift,
                "bound of D": limit,
            }
        )
    return pd.DataFrame(rows)


def one_reporter(epochs: Sequence[int], curvature: float = 0.1, centre: float = 1.0) -> pd.DataFrame:
    """Two devices, of which only the one reports whose minimum is where the run begins (E13a): nothing ever moves.

    Returns
    -------
    DataFrame
        For each number of local steps: |grad F|^2, the printed bound, and the corrected one for the same run.
    """
    losses = Quadratics(np.array([[curvature], [curvature]]), np.array([[0.0], [centre]]))
    problem = Problem(curvature, curvature * centre, (curvature * centre / 2) ** 2)
    rows = []
    for count in epochs:
        lr, w = count**-3.0, np.zeros(1)
        for _ in range(count):
            w = w - lr * losses.gradient(0, w)
        w = blend(np.zeros(1), w, 0.1)
        printed = printed_bound(
            0.0, problem, alpha_min=0.1, staleness_bound=1, epochs_min=count, epochs_max=count
        )  # fmt: skip
        derived = corrected_bound(0.0, problem, lr=lr, weights=[0.1], epochs=[count], beta_max=0.0, drift=0.0)
        rows.append((count, count**6, float(losses.mean_gradient(w)[0] ** 2), printed, derived))
    return pd.DataFrame(rows, columns=["steps", "rounds", "|grad F|²", "printed", "corrected"])


def tug(alpha: float, staleness_bound: int = 10) -> pd.DataFrame:
    """One device pulls to the right tau - 1 times, then another one's old uploads pull to the left (E13b).

    Gradients are +-G, and eta l G = 1, so that an upload is the model it started from, plus or minus 1.

    Returns
    -------
    DataFrame
        For each version after the turn: its distance from the model at the turn, and the printed bound for it.
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


def _task(losses: Quadratics, trace: Trace, t: int) -> Task:
    """Return what the device of round t has done; the merge is where its path jumps."""
    points, start = trace.points[t], trace.models[trace.origins[t]]
    nexts = [w - LR * losses.gradient(trace.devices[t], w) for w in points]
    beta = trace.merges[t]
    slot = next((k for k in range(1, len(points)) if beta > 0 and (points[k] != nexts[k - 1]).any()), 0)
    if not slot:
        return Task(start, points, nexts, 0, start, start, 0.0)
    before = nexts[slot - 1]
    return Task(start, points, nexts, slot, before, before + (points[slot] - before) / beta, beta)


def _inequalities(
    losses: Quadratics, trace: Trace, problem: Problem, drift: float, t: int, task: Task
) -> dict[str, list[tuple[float, float]]]:
    """Return (left, right) of the inequalities left <= right of round t, by step."""
    smooth, square, deviation = problem.smoothness, problem.gradient**2, problem.deviation
    value, beta, alpha = losses.mean_loss, task.beta, trace.weights[t]
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in STEPS}
    for w, after in zip(task.points, task.nexts, strict=True):
        full, own = losses.mean_gradient(w), losses.gradient(trace.devices[t], w)
        product, saved = float(full @ own), value(w) - value(after)
        found["1"].append((-saved, -LR * product + smooth * LR**2 / 2 * square))
        found["2"].append((float(full @ full - deviation + own @ own) / 2, product))
        found["3"].append((float(full @ full), 2 / LR * saved + smooth * LR * square + deviation))
    start, now, mixed = value(task.start), value(trace.models[t]), value(trace.models[t + 1])
    b = start - value(task.upload)
    c, d = start - value(task.before), value(task.fresh) - start
    if task.slot:
        merged = value(task.points[task.slot])
        found["4"].append((merged, (1 - beta) * value(task.before) + beta * value(task.fresh)))
        found["8"].append((c, task.slot * (2 * LR + smooth * LR**2) / 2 * square))
    total = sum(float(losses.mean_gradient(w) @ losses.mean_gradient(w)) for w in task.points)
    rest = len(task.points) * (smooth * LR * square + deviation)
    found["5"].append((total, 2 / LR * b + 2 * beta / LR * (c + d) + rest))
    found["6"].append((b, (now - mixed) / alpha + start - now))
    moved = float(np.linalg.norm(task.upload - task.start))
    found["drift"].append((moved, LR * len(task.points) * problem.gradient + beta * drift))
    return found
