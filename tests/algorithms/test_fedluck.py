"""FedLuck and what it is compared with, on simulated runs: oracles of the specifications, timelines, bytes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from baseline_runs import TOY_B, TOY_B_WORLD
from fedluck_runs import BYTES, CELLS, fedluck_world, rounds, simulate, small, times

from fl_core.algorithms import FedAsync, FedAvgTopK, FedBuff, FedLuck, FedPer, PeriodicAggregation
from fl_core.experiments.spec import RunSpec
from fl_core.formulas.compression import Identity, TopK, kept_count
from fl_core.formulas.fedluck import plan_devices
from fl_core.runtime import Simulation
from fl_core.tasks import Quadratic
from fl_core.tasks.quadratic import QuadraticWorkspace
from fl_core.world import Network, TraceCompute, World

TOY = Quadratic([[1.0, 2.0, 0.5]] * 3, [[1, -1, 2], [-2, 0.5, 1], [0.5, 3, -1]], [0.0] * 3, samples=[1, 2, 3])
TOY_WORLD = World(
    devices=3,
    compute=TraceCompute(seconds_per_step=(0.2, 0.5, 0.3)),
    network=Network(up_bits_per_second=(96, 32, 64)),
)
"""Oracle 13 of FedLuck's specification: a model has 192 bits, so beta = 2, 6, 3 s."""


class Given(PeriodicAggregation):
    """Periodic aggregation with local steps and compression rate of each device."""

    plans: tuple[tuple[int, float], ...] = ((3, 1 / 3), (4, 2 / 3), (2, 1.0))

    def job(self, device, model_bytes):
        steps, rate = self.plans[device.id]
        return steps, TopK(delta=rate, wire="ideal_fraction")


def flat(run: Simulation) -> list[tuple[int, int]]:
    return [pair for found in rounds(run) for pair in found]


# Periodic aggregation


@pytest.mark.parametrize(
    ("updates", "fields", "training", "expected"),
    [
        (1, {}, {}, (0, -0.3416, 0)),
        (2, {}, {}, (0, -0.56650944, 0)),
        (3, {}, {}, (0.03325, -0.18850944, 0.0657125)),
        (4, {}, {}, (-0.20748, -0.2237920276479999, 0.0657125)),
        (6, {}, {}, (-0.061911647000000014, -0.08719248156344317, 0.029345060937499994)),
        (12, {}, {}, (-0.15910725394897313, -0.1842311926171174, -0.028399813798668124)),
        (12, {}, {"momentum": 0.9, "momentum_reset": False},
         (-0.23127074391763214, -0.5810072057791518, 0.8081022951043968)),
        (12, {}, {"momentum": 0.9}, (0.073605213054805, 0.037599276340570253, 0.27040058828251157)),
        (12, {"weighting": "samples"}, {}, (-0.40001278703224535, -0.006329349872787049, -0.13157891488217816)),
        (12, {"error_feedback": True}, {}, (0.6461212006106303, -0.27282583074934597, 0.934551547089382)),
    ],
)  # fmt: skip
def test_the_end_to_end_oracle_of_the_specification_with_its_variants(updates, fields, training, expected):
    run = simulate(Given(**fields), TOY_WORLD, TOY, updates, **training)
    np.testing.assert_allclose(run.server.model, expected, rtol=1e-10, atol=1e-15)


def test_a_job_of_whole_periods_ends_in_the_last_of_them():
    run = simulate(Given(), TOY_WORLD, TOY, 12)
    assert [sorted(device for device, _ in found) for found in rounds(run)] == [
        [0], [0], [0, 2], [0, 1], [0], [0, 2], [0], [0, 1], [0, 2], [0], [0], [0, 1, 2],
    ]  # fmt: skip
    bytes_up = 24 * np.cumsum([sum((1 / 3, 2 / 3, 1)[device] for device, _ in found) for found in rounds(run)])
    np.testing.assert_allclose(run.history.evaluations["bytes_up"][1:], bytes_up, rtol=1e-12)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [({}, (0.411057166765, 0.203631463195)), ({"weighting": "samples"}, (0.384193875941, 0.152061828299))],
)
def test_fedper_without_compression_gives_trace_p(fields, expected):
    fedper = FedPer(period_seconds=2.5, compressor=Identity(), **fields)
    run = simulate(fedper, TOY_B_WORLD, TOY_B, 4)
    assert [sorted(found) for found in rounds(run)] == [[(0, 0)], [(0, 0), (1, 1), (2, 1)]] * 2
    np.testing.assert_allclose(run.server.model, expected, rtol=1e-9)


def test_an_empty_tick_is_a_round_in_which_the_model_stays():
    run = simulate(FedPer(period_seconds=1.0, compressor=Identity()), TOY_B_WORLD, TOY_B, 5)
    assert rounds(run) == [[], [(0, 1)], [(1, 2)], [(0, 1)], [(2, 4)]]
    assert run.history.evaluations["train_loss"][0] == run.history.evaluations["train_loss"][1]
    np.testing.assert_allclose(run.server.model, (0.2120305, 0.187877), rtol=1e-9)


@pytest.mark.parametrize("beta", [0.0, 0.6])
def test_rounding_does_not_push_an_arrival_over_the_tick_but_a_real_delay_does(beta):
    assert 3 * 0.1 > 0.3
    network = Network(up_bits_per_second=8 * BYTES / beta) if beta else Network()
    for seconds, missed in ((0.1, 0), (0.1 + 1e-9, 1)):
        world = World(devices=1, compute=TraceCompute(seconds_per_step=(seconds,)), network=network)
        run = simulate(
            FedPer(period_seconds=0.3 + beta, steps=3, compressor=Identity()), world, small(1), 500, learn=False
        )
        assert set(run.history.updates["staleness"]) == {missed}
        assert len(run.history.updates["device"]) == 500 // (1 + missed)
        times = np.array(run.history.updates["seconds"])
        np.testing.assert_array_equal(times, (0.3 + beta) * np.array(run.history.updates["version"]))


# The plan


def planned(run: Simulation) -> tuple[list[int], list[float]]:
    plans = [run.device_state[device]["plan"] for device in run.server.devices]
    return [k for k, _ in plans], [delta for _, delta in plans]


@pytest.mark.parametrize(
    ("cell", "fields", "steps", "rates"),
    [
        ("cnn", {}, [3, 3, 4, 4, 5, 6, 24, 26, 31, 39], [0.07, 0.02, 0.11, 0.12, 0.14, 0.16, 1, 1, 1, 1]),
        ("vgg11s", {"period_seconds": 3.0}, [6, 7, 7, 8, 10, 11, 13, 15, 19, 26],
         [0.04, 0.01, 0.05, 0.06, 0.07, 0.08, 0.08, 0.09, 0.10, 0.11]),
        ("lstm", {}, [2, 2, 3, 3, 3, 14, 15, 16, 19, 24], [0.08, 0.02, 0.13, 0.14, 0.14, 1, 1, 1, 1, 1]),
        ("cnn", {"fixed_steps": 10}, [10] * 10, [0.21, 0.05, 0.25, 0.26, 0.26, 0.26, 0.24, 0.23, 0.21, 0.20]),
        ("cnn", {"fixed_compression": 0.3}, [7, 25, 7, 7, 7, 8, 9, 10, 12, 16], [0.3] * 10),
    ],
)  # fmt: skip
@pytest.mark.parametrize("measure", [False, True])
def test_the_plans_of_the_paper_follow_from_its_world_declared_or_measured(cell, fields, steps, rates, measure):
    run = simulate(FedLuck(measure=measure, **fields), fedluck_world(cell), small(), seconds=1e-3)
    assert planned(run) == (steps, pytest.approx(rates))


def test_a_model_of_the_papers_size_in_its_own_world_gets_the_exact_plan():
    task = Quadratic(np.ones((10, 1)), np.zeros((10, 1)), np.zeros(CELLS["cnn"] // 2))  # float64
    run = simulate(FedLuck(solver="exact"), World.named("fedluck"), task, seconds=1e-3)
    assert planned(run)[1][:6] == pytest.approx(
        [0.073566110676, 0.020188887291, 0.10673358974, 0.1155668774, 0.13838290271, 0.16017509041], rel=1e-9
    )


def test_where_speed_varies_the_measured_plan_differs_and_the_declared_one_does_not():
    declared, measured = (
        simulate(FedLuck(solver="exact", measure=measure), fedluck_world(jitter=0.5), small(), seconds=60)
        for measure in (False, True)
    )
    exact = FedLuck(solver="exact").plan(*times("cnn"))
    assert planned(declared) == (exact.local_steps.tolist(), pytest.approx(exact.compression_rate.tolist()))
    assert planned(measured)[0] != planned(declared)[0]
    for run in (declared, measured):  # made once: every task has as many steps as the plan says
        table, learned = run.history.updates, run.history.learned
        assert len(table["device"]) > 100
        assert dict(zip(learned["device"], learned["steps"], strict=True)) == dict(enumerate(planned(run)[0]))
        assert dict(zip(learned["device"], learned["kept"], strict=True)) == dict(enumerate(planned(run)[1]))
        assert all(planned(run)[0][d] == k for d, k in zip(table["device"], table["steps"], strict=True))


def test_with_the_tight_factor_every_device_compresses():
    """E10: k alpha = 2 T~ / sqrt(3) = 1.732 s, delta beta = 0.866 s, but for whole k."""
    printed, tight = (FedLuck(solver="exact", contraction=form).plan(*times("cnn")) for form in ("printed", "tight"))
    assert (printed.compression_rate == 1).sum() == 4
    assert (tight.compression_rate < 1).all()
    [k], [delta], [factor] = FedLuck(solver="exact", contraction="tight").plan(0.4, 9.0)
    u = 0.4 * k
    assert (k, delta) == (4, pytest.approx((np.sqrt(4 * u**2 + 3 * 1.5**2) - u) / (3 * 9.0)))
    assert 2.977935549 < factor < 1.01 * 2.977935549


def test_latency_can_be_told_from_bandwidth():
    network = {"up_bits_per_second": 8 * BYTES / 6.0, "latency_seconds": 1.0}
    world = World(devices=1, compute=TraceCompute(seconds_per_step=(0.4,)), network=network)
    for measure in (False, True):
        lumped, told = (
            planned(simulate(FedLuck(solver="exact", measure=measure, with_latency=w), world, small(1), seconds=1.1))
            for w in (False, True)
        )
        assert told[1] == pytest.approx(
            plan_devices(0.4, 6.0, 1.5, solver="exact", latency_seconds=1.0).compression_rate
        )
        if not measure:
            assert lumped[1] == pytest.approx(plan_devices(0.4, 7.0, 1.5, solver="exact").compression_rate)


def test_with_both_variables_fixed_fedluck_is_fedper_bit_for_bit():
    fedluck = FedLuck(fixed_steps=10, fixed_compression=0.3)
    fedper = FedPer(steps=10, compressor=TopK(delta=0.3, wire="ideal_fraction"))
    one, other = (simulate(algorithm, fedluck_world(), small(), 25).history for algorithm in (fedluck, fedper))
    assert one == other


# Time and bytes of the paper


@pytest.mark.parametrize(
    ("cell", "steps", "rate", "numbers"),
    [
        ("cnn", 20, 0.5, {4: (66.65, 0.02), 10: (199.95, 0.04), 49: (1066.39, 0.21)}),
        ("vgg11s", 13, 0.2, {101: (2677.70, 0.65), 168: (4471.76, 1.08), 223: (5944.50, 1.44)}),
        ("lstm", 8, 0.5, {156: (2813.85, 0.63), 254: (4592.93, 1.02), 299: (5409.86, 1.20)}),
    ],
)
def test_the_eighteen_numbers_of_table_1_for_fedavg_topk_come_from_the_simulated_clock(cell, steps, rate, numbers):
    algorithm = FedAvgTopK(compressor=TopK(delta=rate, wire="ideal_fraction"))
    table = simulate(
        algorithm, fedluck_world(cell), small(), max(numbers), learn=False, steps=steps
    ).history.evaluations
    gigabytes = np.array(table["bytes_up"]) * 4 * CELLS[cell] / BYTES / 2**30
    found = {n: (table["seconds"][n] - table["seconds"][1], gigabytes[n]) for n in numbers}
    assert {n: (round(s, 2), round(float(gb), 2)) for n, (s, gb) in found.items()} == numbers


# FedBuff


@pytest.mark.parametrize(
    ("weight", "expected"),
    [("polynomial(a=0.5)", (0.167486542289, 0.353122722023)), ("constant", (0.068703123617, 0.323125297507))],
)
def test_fedbuff_gives_trace_f(weight, expected):
    run = simulate(FedBuff(buffer=2, global_lr=0.7, weight=weight, concurrency=3), TOY_B_WORLD, TOY_B, 6)
    assert flat(run) == [
        (0, 0), (1, 0), (0, 1), (2, 1), (1, 1), (0, 1), (0, 0), (1, 1), (2, 2), (0, 1), (1, 1), (0, 0),
    ]  # fmt: skip
    np.testing.assert_allclose(run.server.model, expected, rtol=1e-9)
    weights = 0.35 * (1 + np.array(run.history.updates["staleness"])) ** (-0.5 if "poly" in weight else 0)
    np.testing.assert_allclose(run.history.updates["weight"], weights)


def test_fedbuff_divides_by_k_and_not_by_the_sum_of_weights_which_is_oracle_1():
    model, *deltas = torch.tensor([(1, 1), (0.2, -0.1), (0.4, 0.3)], dtype=torch.float64)
    made = FedBuff(buffer=2, global_lr=0.7).combine(model, deltas, [0, 3])
    np.testing.assert_allclose(made.model, (0.86, 0.9825), rtol=1e-12)


def test_a_buffer_of_one_is_fedasync_with_differences_and_with_one_device_fedasync_itself():
    fedbuff = FedBuff(buffer=1, global_lr=0.6, concurrency=3)
    run = simulate(fedbuff, TOY_B_WORLD, TOY_B, 6)
    np.testing.assert_allclose(run.server.model, (0.22526975785, 0.369547008766), rtol=1e-9)
    world = World(devices=1, compute=TraceCompute(seconds_per_step=(1.0,)))
    one, other = (
        simulate(algorithm, world, small(1), 20).server.model
        for algorithm in (FedBuff(buffer=1, global_lr=0.6, concurrency=1), FedAsync(alpha=0.6, concurrency=1))
    )
    np.testing.assert_allclose(one, other, rtol=1e-12)


def test_uploads_beyond_the_buffer_wait_and_their_devices_do_not():
    world = World(devices=10, compute=TraceCompute(seconds_per_step=(1.0,) * 10))
    run = simulate(FedBuff(buffer=8), world, small(), 5, learn=False)
    # all ten arrive at 2 s, 4 s, ...; those who wait then are the first of the next buffer
    assert run.history.updates["seconds"] == np.repeat([2.0, 4.0, 6.0, 8.0, 8.0], 8).tolist()
    assert [d for d, _ in flat(run)] == [*range(8), 8, 9, *range(6), *range(6, 10), *range(4),
                                                     *range(4, 10), 0, 1, *range(2, 10)]  # fmt: skip


# FedAvg + TopK


@pytest.mark.parametrize(
    ("updates", "feedback", "expected"),
    [
        (1, False, (0.32, 0.261875)),
        (3, False, (0.0670247777778, -0.0640022470703)),
        (3, True, (0.0360826666667, 0.0793992138672)),
    ],
)
def test_fedavg_topk_gives_the_oracles_of_the_baselines(updates, feedback, expected):
    algorithm = FedAvgTopK(clients_per_round=3, error_feedback=feedback)
    run = simulate(algorithm, TOY_B_WORLD, TOY_B, updates)
    np.testing.assert_allclose(run.server.model, expected, rtol=1e-9)
    if feedback:  # the signs are those of the received model minus the trained one
        residuals = [-run.device_state[device]["residual"] for device in range(3)]
        expected_residuals = [(0.122100333333, 0), (0, 0.324544492188), (-0.11479325, 0)]
        np.testing.assert_allclose(residuals, expected_residuals, rtol=1e-9, atol=1e-12)


# What holds for all


ALL = {
    "fedluck": FedLuck(),
    "fedper": FedPer(steps=4),
    "fedbuff": FedBuff(buffer=3, concurrency=10, compressor="topk(delta=0.5)"),
    "fedavg_topk": FedAvgTopK(),
}


@pytest.mark.parametrize("name", ALL)
def test_what_was_sent_and_what_is_kept_is_all_that_was_learned(name):
    class Watched(type(ALL[name])):
        """Adds up what its devices learn."""

        async def device(self, device):
            train = device.train

            async def watched(model, **options):
                trained = await train(model, **options)
                learned[device.id] = learned[device.id] + model - trained.model
                return trained

            upload = device.upload

            async def sending(**payload):
                sent[device.id] = sent[device.id] + payload["delta"]
                await upload(**payload)

            device.train, device.upload = watched, sending
            await super().device(device)

    learned, sent = torch.zeros(10, 2), torch.zeros(10, 2)
    learned, sent = learned.double(), sent.double()
    run = simulate(Watched(**{**dict(ALL[name]), "error_feedback": True}), fedluck_world(), small(), 12)
    kept = torch.stack([run.device_state.get(d, {}).get("residual", torch.zeros(2)) for d in range(10)])
    assert learned.abs().sum() > 0
    torch.testing.assert_close(sent + kept, learned)


def test_each_tensor_is_compressed_on_its_own():
    spec = RunSpec(
        algorithm={"name": "fedper", "compressor": {"kind": "topk", "delta": 0.07, "per_tensor": True}},
        model="linear", world={"devices": 10, "compute": {"kind": "constant"}},
        training={"steps": 1, "batch_size": 8}, budget={"seconds": 1.4}, evaluation={"every_updates": None},
    )  # fmt: skip
    run = spec.simulation()
    run.run("sequential")
    uploads = run.server.waiting
    assert uploads
    for upload in uploads:
        weights, bias = upload.delta[:7840], upload.delta[7840:]
        assert (int(weights.count_nonzero()), int(bias.count_nonzero())) == (kept_count(7840, 0.07), 1)
    compressor = TopK(delta=0.07, per_tensor=True)
    assert run.server.counters["bytes_up"] == len(uploads) * compressor.encoded_bytes(7850, segments=(7840, 10))


class Counting(QuadraticWorkspace):
    """Its last number is no parameter: it counts steps."""

    def __init__(self, task, place):
        super().__init__(task, place)
        self.whole = torch.zeros_like(self.vector)
        self.parameters, self.gradient = self.vector[:2], self.whole[:2]

    def backward(self, device, batch, noise=None):
        torch.mean(self._pull(self.vector, device)[1], 0, out=self.whole)
        self.vector[2] += 1
        return self.vector.sum()


class WithStatistics(Quadratic):
    def workspace(self):
        return Counting(self, torch.device("cpu"))


@pytest.mark.parametrize("feedback", [False, True])
def test_statistics_are_sent_and_counted_as_they_are(feedback):
    task = WithStatistics([[1.0, 1.0, 0.0]], [[5.0, 1.0, 0.0]], [0.0] * 3)
    world = World(devices=1, compute=TraceCompute(seconds_per_step=(1.0,)))
    compressor = TopK(delta=0.5, wire="ideal_fraction")
    fedper = FedPer(period_seconds=2.0, global_lr=1.0, compressor=compressor, error_feedback=feedback)
    run = simulate(fedper, world, task, 1, momentum=0.5, momentum_reset=False)
    assert run.server.model[1:].tolist() == [0.0, 2.0]  # one of two parameters, and the count of both steps
    assert run.server.counters["bytes_up"] == 8 + 8
    assert len(run.device_state[0]["velocity"]) == 2
