"""How stale gradients are when the first K of P make an update: identities, and the law of equal devices (D7 to D9).

Source: Zhou et al., "Towards Efficient and Stable K-Asynchronous Federated Learning ..." (IEEE TPDS, 2022), Section
6.3.1 for P / (2 K), Section 5 for P / K as the level of staleness, Section 6.2 for the metrics; the derivations are
this book's. D-n and (W-x) are those of the project's specification.

`staleness` of a gradient that is used: updates missed since its device received the model (fresh = 0). `age` of any
device at any update: the same, whether it is used or not. Without memory means: durations independent and
exponential, so that each update uses a uniform draw of K of the P devices.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fl_core.formulas.checks import require

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def mean_staleness(num_clients: int, num_aggregated: int) -> float:
    """Return P / K - 1: the mean staleness of the gradients used, for every schedule that uses everybody (D7 i).

    Raises
    ------
    ValueError
        K is not in 1 .. P.
    """
    _require_sizes(num_clients, num_aggregated)
    return num_clients / num_aggregated - 1


def min_mean_age(num_clients: int, num_aggregated: int) -> float:
    """Return (P / K - 1) / 2, about P / (2 K): the least mean age, reached by round robin alone (D7 ii).

    Raises
    ------
    ValueError
        K is not in 1 .. P.
    """
    return mean_staleness(num_clients, num_aggregated) / 2


def mean_age_of_gaps(gaps: Sequence[float]) -> float:
    """Return sum T (T - 1) / 2 over sum T, the mean age of devices whose uses are T updates apart (D7 ii).

    Raises
    ------
    ValueError
        A gap is below 1, or there is none.
    """
    lengths = np.asarray(gaps, float)
    require(lengths.size > 0, "gaps", gaps, "at least one number")
    require(lengths >= 1, "gaps", gaps, ">= 1")
    return float((lengths * (lengths - 1)).sum() / (2 * lengths.sum()))


def staleness_probability(staleness: int, num_clients: int, num_aggregated: int) -> float:
    """Return q (1 - q)^n with q = K / P, the chance of staleness n without memory (D7 iii).

    Raises
    ------
    ValueError
        `staleness` is negative or K not in 1 .. P.
    """
    require(staleness >= 0, "staleness", staleness, ">= 0")
    q = _share(num_clients, num_aggregated)
    return q * (1 - q) ** staleness


def expected_run_staleness(num_clients: int, num_aggregated: int, num_iterations: int) -> float:
    """Return the mean staleness of all K J gradients of a run without memory, which begins with fresh ones.

    By the identity of D7 it is P / K (1 - A / J) - 1, where the mean age A of the clients after J updates is the sum
    of (1 - q)^n over n = 1 .. J; it rises to P / K - 1 with J.

    Raises
    ------
    ValueError
        K is not in 1 .. P, or J < 1.
    """
    require(num_iterations >= 1, "num_iterations", num_iterations, ">= 1")
    q = _share(num_clients, num_aggregated)
    age = (1 - q) * (1 - (1 - q) ** num_iterations) / q
    return (1 - age / num_iterations) / q - 1


def expected_min_staleness(num_clients: int, num_aggregated: int) -> float:
    """Return E tau_min = (1 - q)^K / (1 - (1 - q)^K), of the freshest of K gradients without memory (D7 iii).

    It takes the K as independent draws of the geometric law, which for small K / P they nearly are.

    Raises
    ------
    ValueError
        K is not in 1 .. P.
    """
    all_stale = (1 - _share(num_clients, num_aggregated)) ** num_aggregated
    return all_stale / (1 - all_stale)


def expected_staleness_weight(num_clients: int, num_aggregated: int) -> float:
    """Return E (e / 2)^(-tau) = q / (1 - (1 - q) 2 / e): TWAFL's total weight as printed, without memory (D7, D14).

    Raises
    ------
    ValueError
        K is not in 1 .. P.
    """
    q = _share(num_clients, num_aggregated)
    return q / (1 - (1 - q) * 2 / np.e)


def expected_inverse_staleness(num_clients: int, num_aggregated: int) -> float:
    """Return E 1 / (tau + 1) = -q ln q / (1 - q): SASGD's total weight without memory (D7, D14); 1 for K = P.

    Raises
    ------
    ValueError
        K is not in 1 .. P.
    """
    q = _share(num_clients, num_aggregated)
    return 1.0 if q == 1 else float(-q * np.log(q) / (1 - q))


def expected_live_versions(num_clients: int, num_aggregated: int) -> float:
    """Return P / K times the K-th harmonic number: model versions that some device still uses, without memory (2.2).

    Raises
    ------
    ValueError
        K is not in 1 .. P.
    """
    _require_sizes(num_clients, num_aggregated)
    return float(num_clients / num_aggregated * (1 / np.arange(1, num_aggregated + 1)).sum())


def conflict_slope(num_clients: int, num_aggregated: int, mu: float) -> float:
    """Return P / (K^2 ln mu): how fast the average staleness grows with the average number of gradients (D9).

    Weights e^(-lambda tau) are meant, as lambda falls; see `average_staleness` and `average_num_gradients`.

    Raises
    ------
    ValueError
        mu <= 1 or K not in 1 .. P.
    """
    _require_sizes(num_clients, num_aggregated)
    require(mu > 1, "mu", mu, "> 1")
    return float(num_clients / (num_aggregated**2 * np.log(mu)))


def average_staleness(weights: Floats, staleness: Floats) -> float:
    """Return tau_ave, the mean over updates of sum_i p_i tau_i, W-f; both arguments are ``[J, K]``."""
    return float((np.asarray(weights) * np.asarray(staleness)).sum(axis=1).mean())


def average_num_gradients(weights: Floats, mu: float = 10.0) -> float:
    """Return N_ave, the mean number of gradients with at least 1 / mu of the largest weight, W-g.

    Parameters
    ----------
    weights : ndarray
        p, ``[J, K]``.
    mu : float, optional
        > 0; 10 is this book's (A13).

    Raises
    ------
    ValueError
        mu <= 0.
    """
    require(mu > 0, "mu", mu, "> 0")
    p = np.asarray(weights)
    return float((p >= p.max(axis=1, keepdims=True) / mu).sum(axis=1).mean())


def predominated(weights: Floats, threshold: float = 0.1) -> Ints:
    """Return how many gradients of each update weigh more than `threshold` (2.8): ``[J]`` from p ``[J, K]``."""
    return (np.asarray(weights) > threshold).sum(axis=1)


def stability(accuracies: Sequence[float], last: int = 10, log: bool = True, ddof: int = 0) -> float:
    """Return the standard deviation of the logarithm of the `last` accuracies: small is stable (2.8, A9).

    Parameters
    ----------
    accuracies : sequence of float
        In (0, 1], in the order of measurement.
    last : int, optional
        A_num >= 2.
    log : bool, optional
        Natural logarithms; False: the accuracies themselves.
    ddof : int, optional
        0: population, 1: sample.

    Raises
    ------
    ValueError
        There are fewer than `last` accuracies, or one whose logarithm does not exist.
    """
    require(len(accuracies) >= last >= 2, "len(accuracies)", len(accuracies), f">= last = {last}, which is >= 2")
    values = np.asarray(accuracies[-last:], float)
    if log:
        require(values > 0, "accuracies", accuracies, "> 0")
        values = np.log(values)
    return float(values.std(ddof=ddof))


class Schedule(NamedTuple):
    """A K-asynchronous schedule without any training."""

    clients: Ints
    """Who was used in each update, in order of arrival, ``[J, K]``."""
    staleness: Ints
    """Of each gradient used, ``[J, K]``."""
    mean_age: Floats
    """Mean age of all P clients at each update, ``[J]``."""
    seconds: Floats
    """Virtual time of each update, ``[J]``; its number where there is no clock."""


def k_asynchronous(
    duration: Callable[[int, int], float], num_clients: int, num_aggregated: int, num_iterations: int
) -> Schedule:
    """Return the schedule of section 2.2: the first K arrivals make an update, then their clients go on.

    Parameters
    ----------
    duration : callable
        Seconds > 0 of a client's job with that number (from 0).
    num_clients, num_aggregated, num_iterations : int
        P, K in 1 .. P, and J >= 1.

    Raises
    ------
    ValueError
        A size is out of range.
    """
    _require_sizes(num_clients, num_aggregated)
    jobs = [0] * num_clients
    running = [(duration(client, 0), client) for client in range(num_clients)]
    heapq.heapify(running)
    used, seconds, clock = [], [], 0.0
    for _ in range(num_iterations):
        arrived = [heapq.heappop(running) for _ in range(num_aggregated)]
        clock = max(clock, arrived[-1][0])
        used.append([client for _, client in arrived])
        seconds.append(clock)
        for _, client in arrived:
            jobs[client] += 1
            heapq.heappush(running, (clock + duration(client, jobs[client]), client))
    return _schedule(np.array(used), num_clients, np.array(seconds))


def uniform_draws(num_clients: int, num_aggregated: int, num_iterations: int, rng: np.random.Generator) -> Schedule:
    """Return the schedule of the authors' programs: each update uses a uniform draw of K of the P clients (A1).

    Raises
    ------
    ValueError
        A size is out of range.
    """
    _require_sizes(num_clients, num_aggregated)
    draws = [rng.choice(num_clients, num_aggregated, replace=False) for _ in range(num_iterations)]
    return _schedule(np.array(draws), num_clients, np.arange(1.0, num_iterations + 1))


def round_robin(num_clients: int, num_aggregated: int, num_iterations: int) -> Schedule:
    """Return the schedule that uses the clients in turn.

    Raises
    ------
    ValueError
        A size is out of range.
    """
    _require_sizes(num_clients, num_aggregated)
    turns = np.arange(num_iterations * num_aggregated) % num_clients
    return _schedule(turns.reshape(-1, num_aggregated), num_clients, np.arange(1.0, num_iterations + 1))


def k_synchronous_seconds(durations: Floats, num_aggregated: int) -> float:
    """Return the mean time of the K-th arrival where all clients begin anew at each update (D8).

    Parameters
    ----------
    durations : ndarray
        ``[J, P]``.
    num_aggregated : int
        K in 1 .. P.

    Raises
    ------
    ValueError
        K is out of range.
    """
    _require_sizes(durations.shape[1], num_aggregated)
    return float(np.partition(durations, num_aggregated - 1, axis=1)[:, num_aggregated - 1].mean())


def _schedule(clients: Ints, num_clients: int, seconds: Floats) -> Schedule:
    stamps, total = np.ones(num_clients, np.int64), num_clients
    staleness, ages = np.empty_like(clients), np.empty(len(clients))
    for j, used in enumerate(clients, 1):
        staleness[j - 1] = j - stamps[used]
        ages[j - 1] = j - total / num_clients
        total += (j + 1) * len(used) - int(stamps[used].sum())
        stamps[used] = j + 1
    return Schedule(clients, staleness, ages, seconds)


def _share(num_clients: int, num_aggregated: int) -> float:
    _require_sizes(num_clients, num_aggregated)
    return num_aggregated / num_clients


def _require_sizes(num_clients: int, num_aggregated: int) -> None:
    require(1 <= num_aggregated <= num_clients, "num_aggregated", num_aggregated, f"in 1..{num_clients}")
