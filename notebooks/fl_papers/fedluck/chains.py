"""The proofs of FedLuck's Theorem 1 and of its repair, evaluated step by step on problems without noise.

Source: the authors' proof supplement to FedLuck (Song et al., Euro-Par 2024), corrected (E6, E7), and (L-b), which is
derived in this book. Symbols as in `fedluck_theory`; rounds without uploads change nothing and are left out of all
means (E2).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from fl_core.formulas.checks import Chains
from fl_core.formulas.compression import top_k
from fl_papers.fedluck.bounds import Moments, lemma1_bound, q_local, rescaled_bound, theorem1_bound
from fl_papers.fedluck.toys import LogCosh, Upload, periodic_models

Array = NDArray[np.float64]


class Job(NamedTuple):
    """An upload, and how it came about."""

    device: int
    path: Array
    """The received model and the k models after it, ``[k + 1, d]``."""
    sent: Array
    """C(g), ``[d]``."""


@dataclass(frozen=True, eq=False)
class Trial:
    """A run of Algorithm 1 with exact gradients, no momentum, and the same k and delta on every device.

    Attributes
    ----------
    problem : LogCosh
    start : ndarray
        w^0, ``[d]``.
    rounds : sequence
        What `fedluck_toys.timeline` returns.
    local_lr, global_lr : float
        eta_l and eta_g, in (0, 1 / L].
    local_steps : int
        k >= 1.
    compression_rate : float
        delta in (0, 1] of top-k.
    """

    problem: LogCosh
    start: Array
    rounds: Sequence[Sequence[Upload]]
    local_lr: float
    global_lr: float
    local_steps: int
    compression_rate: float

    @property
    def models(self) -> list[Array]:
        """w^0 .. w^T."""
        return self._run[0]

    @property
    def jobs(self) -> list[Job]:
        """What became every upload, in the order of rounds and devices."""
        return self._run[1]

    @property
    def measured(self) -> float:
        """Mean of ‖grad F(w^t)‖² over the rounds with uploads."""
        gradients = [self.problem.gradient(w) for w, found in zip(self.models, self.rounds, strict=False) if found]
        return float(np.mean([g @ g for g in gradients]))

    @property
    def max_staleness(self) -> int:
        """tau_max by Eq. 7."""
        return max(one.round_staleness for found in self.rounds for one in found)

    @property
    def moments(self) -> Moments:
        """sigma^2 = 0, zeta^2 and G^2."""
        return Moments(0.0, self.problem.heterogeneity, self.problem.gradient_bound)

    @property
    def theorem1(self) -> float:
        """The bound of Theorem 1, Eq. 12; eta_l k must lie in its window."""
        return float(theorem1_bound(self._gap, self.moments, **self._settings).total)

    @property
    def rescaled(self) -> float:
        """The bound (L-b)."""
        return float(
            rescaled_bound(self._gap, self.moments, **self._settings, smoothness=self.problem.smoothness).total
        )

    @property
    def _gap(self) -> float:
        return self.problem.loss(self.start) - self.problem.minimum

    @property
    def _settings(self) -> dict[str, Any]:
        names = ("local_lr", "global_lr", "local_steps", "compression_rate")
        counted = {"num_rounds": sum(map(bool, self.rounds)), "max_staleness": self.max_staleness}
        return {name: getattr(self, name) for name in names} | counted

    @cached_property
    def _run(self) -> tuple[list[Array], list[Job]]:
        jobs = []

        def upload(device: int, w: Array) -> Array:
            path = self.problem.local_path(device, w, self.local_steps, self.local_lr)
            sent = top_k(torch.from_numpy(path[0] - path[-1]), self.compression_rate).numpy()
            jobs.append(Job(device, path, sent))
            return np.asarray(sent)

        return periodic_models(self.start, self.rounds, upload, self.global_lr), jobs


def theorem1_chains(trial: Trial) -> Chains:
    """Return, for every step of the proof of Theorem 1, the quantities that it orders from small to large.

    One number per round with uploads, of which those of a round's uploads are means; the last step has one number.

    Raises
    ------
    ValueError
        eta_l k is outside the window of Theorem 1.
    """
    f, L, eta, a = trial.problem, trial.problem.smoothness, trial.global_lr, trial.local_lr * trial.local_steps
    k, delta, tau, moments = trial.local_steps, trial.compression_rate, trial.max_staleness, trial.moments
    M, zeta, q = moments.second_moment, moments.heterogeneity, q_local(trial.local_lr, k)
    floor = a**2 * ((1 - delta) * moments.bias_1 + moments.bias_2)
    last = (a**2 * k**2) * (2 * tau**2 * (2 - delta) + 1) * moments.bias_1  # with L eta_l <= 1
    columns: list[dict[str, tuple[float, ...]]] = []
    for t, jobs, lemma1 in _rounds(trial):
        w, after = trial.models[t], trial.models[t + 1]
        grad, mean = f.gradient(w), np.mean([job.sent for job in jobs], axis=0)
        square, sent = float(grad @ grad), float(np.mean([job.sent @ job.sent for job in jobs]))
        x3 = float(np.mean([np.sum((grad - job.sent) ** 2) for job in jobs]))
        pieces = np.mean(
            [[np.sum(piece**2) for piece in _pieces(trial, w, job, scaled=False)] for job in jobs], axis=0
        )
        moved, drift, own = np.mean([_distances(trial, w, job) for job in jobs], axis=0)
        bounded = (
            (1 - a) ** 2 * square, L**2 * a**2 * moved, a**2 * zeta,
            L**2 * trial.local_lr**2 * k * drift, (1 - delta) * own,
        )  # fmt: skip
        columns.append(
            {
                "1-3 descent": (
                    f.loss(after),
                    f.loss(w) - eta * grad @ mean + L * eta**2 / 2 * mean @ mean,
                    f.loss(w) - eta / 2 * square + eta / 2 * (L * eta - 1) * sent + eta / 2 * x3,
                    f.loss(w) - eta / 2 * square + eta / 2 * x3,
                ),
                "4 six pieces": (x3, 6 * float(pieces.sum()), 6 * sum(bounded)),
                "5 Lemma 2": (own, 3 * a**2 * M),
                "6 drift": (L**2 * trial.local_lr**2 * k * drift, 3 * L**2 * trial.local_lr**4 * k**4 * M),
                "7 Lemma 1": (moved, lemma1, eta**2 * tau**2 * 2 * (2 - delta) * 3 * a**2 * M),
                "8 collected": (x3, 6 * (1 - a) ** 2 * square + floor + L**2 * trial.local_lr**2 * last),
                "9 one round": (f.loss(after), f.loss(w) - eta / 2 * q * square + eta / 2 * (floor + last)),
            }
        )
    return {**_stack(columns), "9 whole run": [np.asarray(trial.measured), np.asarray(trial.theorem1)]}


def rescaled_chains(trial: Trial) -> Chains:
    """Return, for every step of the proof of (L-b), the quantities that it orders, as `theorem1_chains` does."""
    f, L, eta, a = trial.problem, trial.problem.smoothness, trial.global_lr, trial.local_lr * trial.local_steps
    delta, tau, M, zeta = trial.compression_rate, trial.max_staleness, trial.moments.second_moment, f.heterogeneity
    total = 5 * (zeta + 3 * (1 - delta) * M + L**2 * a**2 * M + 3 * L**2 * eta**2 * a**2 * tau**2 * M)
    columns: list[dict[str, tuple[float, ...]]] = []
    for t, jobs, lemma1 in _rounds(trial):
        w, after = trial.models[t], trial.models[t + 1]
        grad = f.gradient(w)
        square = float(grad @ grad)
        apart = float(np.mean([np.sum((grad - job.sent / a) ** 2) for job in jobs]))
        pieces = np.mean(
            [[np.sum(piece**2) for piece in _pieces(trial, w, job, scaled=True)] for job in jobs], axis=0
        )
        moved, drift, own = np.mean([_distances(trial, w, job) for job in jobs], axis=0)
        columns.append(
            {
                "1 descent": (f.loss(after), f.loss(w) - eta * a / 2 * square + eta * a / 2 * apart),
                "2 five pieces": (
                    apart,
                    5 * float(pieces.sum()),
                    5 * (L**2 * moved + zeta + L**2 / trial.local_steps * drift + (1 - delta) * own / a**2),
                    total,
                ),
                "3 drift": (drift / trial.local_steps, a**2 * M),
                "4 staleness": (moved, lemma1, 3 * eta**2 * a**2 * tau**2 * M),
                "5 one round": (f.loss(after), f.loss(w) - eta * a / 2 * square + eta * a / 2 * total),
            }
        )
    return {**_stack(columns), "5 whole run": [np.asarray(trial.measured), np.asarray(trial.rescaled)]}


def _rounds(trial: Trial) -> Iterator[tuple[int, list[Job], float]]:
    """Yield number and jobs of each round with uploads, and what Lemma 1 says of them on average."""
    squares, jobs = [0.0] * len(trial.rounds), iter(trial.jobs)
    for t, uploads in enumerate(trial.rounds):
        if uploads:
            own = [next(jobs) for _ in uploads]
            bounds = [lemma1_bound(trial.global_lr, squares[one.start_round : t]) for one in uploads]
            squares[t] = float(np.mean([job.sent @ job.sent for job in own]))
            yield t, own, float(np.mean(bounds))


def _pieces(trial: Trial, w: Array, job: Job, *, scaled: bool) -> list[Array]:
    """Return the pieces whose sum is grad F(w) - C(g), or grad F(w) - C(g) / (eta_l k)."""
    f, lr, a = trial.problem, trial.local_lr, trial.local_lr * trial.local_steps
    now, base, g = f.gradient(w), f.gradient(job.path[0]), job.path[0] - job.path[-1]
    own = f.smoothness * np.tanh(job.path - f.centres[job.device])
    five = [a * (now - base), a * (base - own[0]), lr * np.sum(own[0] - own[:-1], axis=0), g - job.sent]
    whole = [piece / a for piece in five] if scaled else [(1 - a) * now, *five]
    target = now - job.sent / a if scaled else now - job.sent
    if not np.allclose(sum(whole), target, atol=1e-10):
        raise ArithmeticError("the pieces do not add up")
    return whole


def _distances(trial: Trial, w: Array, job: Job) -> tuple[float, float, float]:
    """Return ‖w - w^s‖², sum_j ‖w^s - w_i^j‖² over the steps, and ‖g‖²."""
    path = job.path
    return (
        float(np.sum((w - path[0]) ** 2)),
        float(np.sum((path[:-1] - path[0]) ** 2)),
        float(np.sum((path[0] - path[-1]) ** 2)),
    )


def _stack(columns: list[dict[str, tuple[float, ...]]]) -> dict[str, list[Array]]:
    return {
        name: [np.array(values) for values in zip(*(row[name] for row in columns), strict=True)]
        for name in columns[0]
    }
