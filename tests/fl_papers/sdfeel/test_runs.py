"""Runs of the algorithms against the chapters' formulas."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
from sdfeel_runs import CENTRES, SIZES, SPEEDS, models, simulate

from fl_core.algorithms import AsyncSDFeel, SyncSDFeel
from fl_core.formulas.sdfeel import synchronous_mixing_matrix
from fl_papers.sdfeel.theory import (
    cluster_event_clock,
    staleness_bound,
    surrogate_minimiser,
    surrogate_weights,
    synchronous_round_seconds,
    zeta,
)


def test_staleness_and_order_are_those_of_the_event_clock_and_stay_within_the_bound():
    run = simulate(AsyncSDFeel(min_batches=2), updates=120)
    periods = [2 + 0.75, 4 / 3 + 0.75, 4 + 0.75, 1 + 0.75]
    clock = list(islice(cluster_event_clock(periods), 120))
    frame = run.history.update_frame().drop_duplicates("version")
    assert (frame["device"] // 2).tolist() == [event.cluster for event in clock]
    assert frame["staleness"].tolist() == [event.staleness[event.cluster] for event in clock]
    assert frame["staleness"].max() <= staleness_bound(periods).max()
    assert run.servers[0].iteration == 120


@pytest.mark.parametrize("mixing", ["derived", "data_weighted"])
def test_a_convex_problem_ends_at_the_minimum_of_what_is_minimised(mixing):
    """D10: each cluster's objective counts by its pace, and by its data if mixing keeps the weighted mean."""
    run = simulate(AsyncSDFeel(min_batches=2, mixing=mixing), updates=1500, every=None, lr=4e-3)
    m = np.array([40, 40, 50, 20]) / 150
    steps = [3.5, 3.5, 2.4, 2.75]
    weighted = mixing == "data_weighted"
    omega = surrogate_weights(steps, [2.75, 4 / 3 + 0.75, 4.75, 1.75], m if weighted else None)
    clusters = [(0, 1), (2, 3), (4, 5), (6, 7)]
    target = surrogate_minimiser(CENTRES, clusters, SIZES, omega)
    found = models(run) @ (m if weighted else np.full(4, 0.25))
    optimum = np.average(CENTRES, weights=SIZES)
    assert abs(found - target) < 0.06 * abs(target - optimum)


def test_a_synchronous_round_lasts_as_long_as_the_formula_says():
    algorithm = SyncSDFeel(local_steps=3, intra_rounds=2, gossip_rounds=3)
    run = simulate(algorithm, updates=16)
    seconds = sorted(set(run.history.updates["seconds"]))
    slowest = [1 / speed for speed in SPEEDS]
    whole = synchronous_round_seconds(slowest, 0.5, 0.25, local_steps=3, intra_rounds=2, gossip_rounds=3)
    assert seconds == pytest.approx([6.5, whole, whole + 6.5, 2 * whole])
    assert set(run.history.updates["staleness"]) == {0}


def test_gossip_repeated_comes_as_near_to_the_mean_as_the_second_eigenvalue_says():
    m = np.array([40, 40, 50, 20]) / 150
    ring = [(3, 1), (0, 2), (1, 3), (2, 0)]
    matrix = synchronous_mixing_matrix(ring, m)
    first = simulate(SyncSDFeel(local_steps=3), updates=4)
    start = np.array([np.average([c * (1 - 0.9**3) for c in CENTRES[i : i + 2]], weights=SIZES[i : i + 2])
                      for i in range(0, 8, 2)])  # fmt: skip
    assert models(first) == pytest.approx(start @ matrix)
    for rounds in (4, 12):
        found = models(simulate(SyncSDFeel(local_steps=3, gossip_rounds=rounds), updates=4))
        error = np.linalg.norm((found - start @ m) * np.sqrt(m))
        assert error <= zeta(matrix) ** rounds * np.linalg.norm((start - start @ m) * np.sqrt(m)) * (1 + 1e-9)
        assert found @ m == pytest.approx(start @ m)
