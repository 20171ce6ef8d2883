"""Runs of the algorithms against the chapters' formulas."""

from __future__ import annotations

import numpy as np
import pytest
from fedluck_runs import BYTES, fedluck_world, rounds, simulate, small, times
from hypothesis import given, settings
from hypothesis import strategies as st

from fl_core.algorithms import FedAsync, FedLuck, FedPer, PeriodicAggregation
from fl_core.formulas.compression import TopK
from fl_core.formulas.fedluck import rounds_per_job
from fl_core.world import Network, TraceCompute, World
from fl_papers.fedluck.theory import timeline, uploads_until


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_the_staleness_of_a_round_is_the_ceiling_of_the_jobs_length_in_periods(data):
    devices = data.draw(st.integers(1, 6))
    number = st.sampled_from([0.1, 0.25, 0.3, 0.7, 1.0, 1.5, 3.1])
    alpha, beta = (data.draw(st.lists(number, min_size=devices, max_size=devices)) for _ in range(2))
    period, rate = data.draw(st.sampled_from([0.3, 0.5, 1.5])), data.draw(st.sampled_from([0.25, 0.5, 1.0]))
    fedper = FedPer(period_seconds=period, steps=3, compressor=TopK(delta=rate, wire="ideal_fraction"))
    network = Network(up_bits_per_second=tuple(8 * BYTES / b for b in beta))
    world = World(devices=devices, compute=TraceCompute(seconds_per_step=tuple(alpha)), network=network)
    run = simulate(fedper, world, small(devices), 40, learn=False)
    jobs = [3 * a + rate * b for a, b in zip(alpha, beta, strict=True)]
    expected = timeline(jobs, period, 40)
    assert [sorted(found) for found in rounds(run)] == [
        [(one.device, t - one.start_round) for one in found] for t, found in enumerate(expected)
    ]
    for device, d in enumerate(jobs):
        versions = [version for version, found in enumerate(rounds(run), 1) if device in dict(found)]
        assert set(np.diff([0, *versions])) <= {rounds_per_job(d, period)}
        assert len(versions) == 40 // rounds_per_job(d, period)
    outcomes = run.outcomes()
    assert outcomes["dispatched"] == outcomes["applied"] + outcomes["in_flight"]


@pytest.mark.parametrize(
    ("algorithm", "steps", "rates", "table"),
    [
        (FedLuck(), [3, 3, 4, 4, 5, 6, 24, 26, 31, 39], [0.07, 0.02, 0.11, 0.12, 0.14, 0.16, 1, 1, 1, 1],
         (1961, 17_722, 0.459)),
        (FedPer(steps=10), [10] * 10, [0.3] * 10, (1766, 17_659, 0.462)),
        (FedAsync(alpha=0.4, rho=0.001), [13] * 10, [1] * 10, (974, 12_661, 0.849)),
    ],
)  # fmt: skip
def test_the_load_of_800_seconds_follows_from_the_length_of_the_jobs(algorithm, steps, rates, table):
    alpha, beta = times("cnn")
    run = simulate(algorithm, fedluck_world(), small(), seconds=800.0, learn=False, steps=13)
    jobs = np.array(steps) * alpha + np.array(rates) * beta
    periodic = isinstance(algorithm, PeriodicAggregation)
    uploads = uploads_until(800.0, rounds_per_job(jobs, 1.5), 1.5) if periodic else np.floor(800 / jobs)
    assert np.bincount(run.history.updates["device"]).tolist() == uploads.tolist()
    measured = {name: run.history.evaluations[name][-1] for name in ("gradients", "bytes_up")}
    assert measured["gradients"] == uploads @ steps
    gigabytes = measured["bytes_up"] * 936_360 / BYTES / 2**30
    assert gigabytes == pytest.approx(uploads @ rates * 936_360 / 2**30)
    # Section 6.3 counts the parts of jobs that the end cuts off.
    assert (sum(uploads), measured["gradients"], gigabytes) == pytest.approx(table, rel=0.01)
