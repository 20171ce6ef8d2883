"""FedLuck's published seconds and gigabytes, from its devices alone: nothing is trained here."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from fedluck_runs import CELLS
from refusals import refuses

from fl_core.formulas.fedluck import Box, job_seconds, plan_devices, rounds_per_job
from fl_papers.fedluck.figures import speeds
from fl_papers.fedluck.theory import (
    BYTES_PER_GB,
    periodic_totals,
    rounds_at,
    synchronous_round_seconds,
    synchronous_totals,
    upload_bytes,
    uploads_until,
)

close = partial(pytest.approx, rel=1e-10)
PERIODS = {"cnn": 1.5, "vgg11s": 3.0, "lstm": 1.5}
SYNCHRONOUS = {"cnn": (20, 0.5), "vgg11s": (13, 0.2), "lstm": (8, 0.5)}  # k, delta of FedAvg+Topk
HORIZONS = {"cnn": 800, "vgg11s": 6000, "lstm": 6000}


def test_the_rounds_behind_the_quoted_iid_results() -> None:
    """Those behind Table 1 are the table fedluck-x6."""
    lengths = {cell: synchronous_round_seconds(*SYNCHRONOUS[cell], *speeds(cell)) for cell in CELLS}
    lstm = synchronous_totals(339, lengths["lstm"], 0.5, CELLS["lstm"], 10)
    vgg11s = synchronous_totals(np.arange(265, 269), lengths["vgg11s"], 0.2, CELLS["vgg11s"], 10)
    assert f"{lstm.elapsed_seconds:.2f}" == "6136.02"
    assert [f"{gigabytes:.2f}" for gigabytes in vgg11s.gigabytes] == ["1.71", "1.72", "1.72", "1.73"]  # printed: 1.72


@pytest.mark.parametrize(
    ("cell", "method", "uploads", "steps", "gigabytes"),
    [
        ("cnn", "fedluck", 1961, 17_722, 0.459),
        ("cnn", (10, 0.3), 1766, 17_659, 0.462),
        ("cnn", Box().fixed_compression(0.3), 1863, 18_848, 0.487),
        ("cnn", Box().fixed_steps(10), 1867, 18_667, 0.356),
        ("vgg11s", "fedluck", 10_000, 122_000, 2.225),
        ("vgg11s", (8, 0.1), 12_067, 96_533, 3.891),
        ("vgg11s", Box().fixed_compression(0.1), 8917, 131_417, 2.875),
        ("vgg11s", Box().fixed_steps(7), 15_000, 105_000, 3.095),
        ("lstm", "fedluck", 13_505, 89_067, 3.646),
        ("lstm", (5, 0.2), 18_333, 91_667, 2.955),
        ("lstm", Box().fixed_compression(0.16), 18_000, 81_333, 2.321),
        ("lstm", Box().fixed_steps(20), 5062, 101_244, 3.836),
    ],
)
def test_load_of_the_periodic_methods_over_their_horizon(cell, method, uploads, steps, gigabytes) -> None:
    """The specification's figures count parts of jobs; a device loses less than one job to whole ones."""
    (alpha, beta), period, horizon = speeds(cell), PERIODS[cell], HORIZONS[cell]
    if isinstance(method, tuple):
        k, delta = (np.full(10, value) for value in method)
    else:
        k, delta, _ = plan_devices(alpha, beta, period, box=method if isinstance(method, Box) else Box())
    c = rounds_per_job(job_seconds(k, delta, alpha, beta), period)
    parts = horizon / (c * period)
    sent = parts @ upload_bytes(delta, CELLS[cell]) / BYTES_PER_GB
    assert (round(parts.sum()), round(parts @ k)) == (uploads, steps)
    assert sent == pytest.approx(gigabytes, abs=5.1e-4)
    whole = uploads_until(horizon, c, period)
    assert ((whole <= parts + 1e-9) & (parts - whole < 1)).all()


def test_an_aggregation_at_the_horizon_counts() -> None:
    assert uploads_until(6.0, [1, 2, 4], 1.5).tolist() == [4, 2, 1]
    assert uploads_until(0.6, [1], 0.2).tolist() == [3]  # although 0.6 / 0.2 < 3 in floating point
    assert periodic_totals(0.0, [2, 3], [0.5, 0.5], 1.0, 2**28) == (0, 0.5)  # the first aggregation, one device


test_each_formula_names_what_is_wrong = refuses(
    ValueError,
    (lambda: upload_bytes(0, 5), "compression_rate = 0"),
    (lambda: upload_bytes(1.5, 5), "compression_rate = 1.5"),
    (lambda: upload_bytes(1, 0), "num_parameters = 0"),
    (lambda: synchronous_totals(0, 1.0, 1, 1, 1), "num_rounds = 0"),
    (lambda: synchronous_totals(1, 0.0, 1, 1, 1), "round_seconds = 0.0"),
    (lambda: synchronous_totals(1, 1.0, 1, 1, 0), "num_devices = 0"),
    (lambda: rounds_at(-1, 1.0), "elapsed_seconds = -1"),
    (lambda: rounds_at(1, 0.0), "round_seconds = 0.0"),
    (lambda: uploads_until(-1, [1], 1.0), "seconds = -1"),
    (lambda: uploads_until(1, [0], 1.0), r"rounds_per_job = \[0\]"),
    (lambda: uploads_until(1, [1], 0.0), "period_seconds = 0.0"),
    (lambda: periodic_totals(-1.0, [1], [1], 1.0, 1), "elapsed_seconds = -1.0"),
)
