"""SD-FEEL in formulas: normalised updates, mixing, graphs, consensus, clocks and latency."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from refusals import refuses

from fl_core.formulas import sdfeel
from fl_core.formulas.checks import add_up
from fl_core.models import build_network
from fl_core.world import GapCompute

close = partial(pytest.approx, rel=1e-10)
digits = partial(pytest.approx, rel=1e-11, abs=1e-12)
RING = [(5, 1), (0, 2), (1, 3), (2, 4), (3, 5), (4, 0)]
SHARES = (0.10, 0.12, 0.15, 0.18, 0.20, 0.25)
Y = np.arange(1.0, 7.0)


def test_shares_add_up_to_the_same_digits_in_every_python() -> None:
    """From Python 3.12 on the built-in sum gives 1.0 here, and runs of another version had other last digits."""
    assert add_up([0.1] * 10) == 0.9999999999999999


# Updates: Eqs. 2 and 3


test_what_is_out_of_range_is_refused = refuses(
    ValueError,
    (lambda: sdfeel.normalized_update(1.0, 0.0, 0), "steps must be >= 1"),
    (lambda: sdfeel.effective_steps([0.5, 0.6], [1, 1]), "weights must be shares with sum 1"),
    (lambda: sdfeel.effective_steps([1.0], [1, 1]), "weights must be as many as there are step counts, 2"),
    (lambda: sdfeel.staleness_discount(-1), "staleness must be >= 0"),
    (lambda: sdfeel.gossip_weights(0, {1: 0}), "staleness must be given for the trigger 0 too"),
    (lambda: sdfeel.gossip_weights(0, {0: 0}, rule="right"), "rule must be derived, printed or data_weighted"),
    (lambda: sdfeel.gossip_weights(0, {0: 0}, rule="data_weighted"), "cluster_weight must be a share > 0 for each"),
    (lambda: sdfeel.synchronous_mixing_matrix([(1,), (0,), ()]), "neighbors must be those of a connected graph"),
    (lambda: sdfeel.synchronous_mixing_matrix([(1,), ()]), "neighbors must be mutual"),
    (lambda: sdfeel.consensus_phase([1, 2], np.eye(2), 0), "tolerance must be > 0"),
    (lambda: sdfeel.plan_cluster([1.0, 3.0], rule="fixed", deadline_seconds=0.5), "deadline_seconds must be >= 1.0"),
    (lambda: sdfeel.plan_cluster([]), "step_seconds must be > 0 for each client"),
)


# Mixing: Eqs. 4 and 5 (as matrices, and in all graphs: tests/fl_papers/sdfeel/test_formulas.py)


@pytest.mark.parametrize(
    ("options", "column", "given_away", "model"),
    [
        ({}, (8 / 35, 24 / 35, 3 / 35), (24 / 35, 3 / 35), 2.4),
        ({"self_staleness": "fresh"}, (8 / 17, 8 / 17, 1 / 17), (8 / 17, 1 / 17), 2.58823529412),
        ({"rule": "printed"}, (8 / 35, 8 / 35, 8 / 35), (8 / 35, 8 / 35), 2.05714285714),
        ({"rule": "printed", "self_staleness": "fresh"}, [8 / 17] * 3, [8 / 17] * 2, 72 / 17),  # sum 24 / 17
        (
            {"rule": "data_weighted", "cluster_weight": SHARES},
            (0.365714285714, 0.548571428571, 0.0857142857143),
            (0.685714285714, 0.0714285714286),
            2.53714285714,
        ),
    ],
)
def test_o5_o6_the_weights_of_an_event(options, column, given_away, model) -> None:
    weights = sdfeel.gossip_weights(2, {1: 0, 2: 2, 3: 7}, **options)
    assert [weights.column[j] for j in (2, 1, 3)] == digits(column)
    assert [weights.given[j] for j in (1, 3)] == digits(given_away)
    assert sdfeel.gossip_average(dict(enumerate(Y)), weights.column) == digits(model)
    after = sdfeel.gossip_towards(Y[1], Y[2], weights.given[1])
    assert after == digits(Y[1] + given_away[0])  # the two models are 1 apart


# Constant matrices and consensus


def test_the_uniform_matrix_of_a_path() -> None:
    matrix = sdfeel.synchronous_mixing_matrix([(1,), (0, 2), (1,)], kind="uniform")
    np.testing.assert_allclose(3 * matrix, [[2, 1, 0], [1, 1, 1], [0, 1, 2]], atol=1e-15)


def test_o12_the_consensus_phase() -> None:
    matrix, start = sdfeel.synchronous_mixing_matrix(RING, kind="laplacian"), np.array([1.0, 4, 9, 16, 25, 36])
    rows = [start]
    for _ in range(10):
        rows.append(rows[-1] @ matrix)
    assert rows[1] == digits([16.2, 4.8, 9.8, 16.8, 25.8, 17.6])
    assert rows[2] == digits([12.2, 11.36, 10.6, 17.6, 18.92, 20.32])
    printed = [15.121316352, 15.1031771136, 15.08503808, 15.212015616, 15.2301560832, 15.2482967552]
    assert rows[10] == digits(printed)
    found = sdfeel.consensus_phase(start, matrix, 1e-9)
    assert found.models == pytest.approx([91 / 6] * 6, abs=1e-9)
    assert found.spreads[10] == close(sdfeel.spread(rows[10]))
    assert found.rounds == len(found.spreads) - 1
    assert found.spreads[-1] <= 1e-9 < found.spreads[-2]


# Latency, deadlines, clocks


def test_o2_the_printed_cost_of_a_step_is_that_of_a_hundred_images() -> None:
    """E-19: forward operations of ResNet-18, counted layer by layer."""
    network, macs, normalised = build_network("resnet18", (3, 32, 32), 10).eval(), [], []
    for module in network.modules():
        if isinstance(module, torch.nn.Conv2d):
            size = module.in_channels * module.kernel_size[0] * module.kernel_size[1]
            module.register_forward_hook(lambda m, i, out, size=size: macs.append(size * out.numel()))
        elif isinstance(module, torch.nn.Linear):
            module.register_forward_hook(lambda m, i, out: macs.append(m.in_features * out.numel()))
        elif isinstance(module, torch.nn.BatchNorm2d):
            module.register_forward_hook(lambda m, i, out: normalised.append(out.numel()))
    with torch.inference_mode():
        network(torch.zeros(1, 3, 32, 32))
    assert (sum(macs), sum(normalised)) == (555_422_720, 614_400)
    image = sum(macs) + 2 * sum(normalised)
    assert image == 556_651_520
    assert round(100 * image / 1e9, 2) == 55.67
    for step, share in ((55.67, 0.0189046405149), (10 * image / 1e9, 0.161570345713)):
        plan = sdfeel.plan_cluster([step], 71.5133568, 35.7566784)
        assert 1 - plan.deadline_seconds / plan.iteration_seconds == digits(share)


def test_o3_deadlines_and_step_counts() -> None:
    class Given:
        def random(self, count: int) -> np.ndarray:
            return np.array([0.2, 0.9, 0.5, 0.1, 0.7, 0.4])

    seconds = GapCompute(ratio=10, seconds_per_step=55.67).draw(6, Given())
    first, second = (sdfeel.plan_cluster(part, 71.5133568, 35.7566784) for part in (seconds[:3], seconds[3:]))
    assert (first.deadline_seconds, second.deadline_seconds) == pytest.approx((13426.2941176, 28530.875), rel=1e-11)
    assert (first.local_steps, second.local_steps) == ((100, 470, 258), (100, 775, 437))
    iterations = (first.iteration_seconds, second.iteration_seconds)
    assert iterations == pytest.approx((13533.5641528, 28638.1450352), rel=1e-11)


def test_other_deadlines() -> None:
    mean = sdfeel.plan_cluster([1.0, 4.0], min_batches=10, rule="mean_min_batches")
    assert mean == (close(16.0), (16, 4), close(16.0))
    fixed = sdfeel.plan_cluster([1.0, 4.0], 0.5, 0.25, rule="fixed", deadline_seconds=3.0)
    assert fixed == (3.0, (3, 0), 3.75)
