"""FedAsync, PORT, ASO-Fed, FedSA, FedDelay, SyncDrop and AsyncPart on simulated runs: oracles, reductions, bytes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from baseline_runs import TOY_B, TOY_B_WORLD, close, pictures, simulate
from hypothesis import given, settings
from hypothesis import strategies as st

from fl_core.algorithms import (
    MOON,
    PORT,
    ASOFed,
    AsyncPart,
    FedAsync,
    FedAvg,
    FedBuff,
    FedDelay,
    FedDyn,
    FedProx,
    FedSA,
    SyncDrop,
)
from fl_core.runtime import Budget, LocalTraining, Simulation
from fl_core.tasks import Quadratic
from fl_core.world import Network, RatioCompute, TraceCompute, World

TRACE_I = [(0, 0), (1, 1), (0, 1), (2, 3), (1, 2), (0, 2), (0, 0), (1, 2)]


def applied(run: Simulation) -> list[tuple[int, int]]:
    table = run.history.updates
    return list(zip(table["device"], table["staleness"], strict=True))


@pytest.mark.parametrize(
    ("algorithm", "expected"),
    [
        (FedAsync(alpha=0.6, concurrency=3), (0.35677778, 0.401222624)),
        (FedAsync(alpha=0.6, weight="polynomial(a=0.5)", concurrency=3), (0.345171084676, 0.422172633902)),
        (FedAsync(alpha=0.6, weight="hinge(a=4, b=1)", concurrency=3), (0.40216589328, 0.41929826432)),
        (FedAsync(alpha=0.6, weight="polynomial(a=0.5)", rho=0.5, concurrency=3), (0.349127610584, 0.424063823183)),
        (FedDelay(threshold=1, concurrency=3), (0.00826475, 0.395411)),
        (FedDelay(threshold=1, mode="drop", concurrency=3), (0.13195, 0.4898)),
        (FedDelay(threshold=2, mode="inverse", concurrency=3), (-0.0991705, 0.439772)),
        (FedDelay(threshold=10**6, concurrency=3), (-0.1316705, 0.162272)),
        (AsyncPart(concurrency=3), (0.253510812372, 0.478963829644)),
    ],
)
def test_trace_i_with_the_models_of_the_specification(algorithm, expected):
    run = simulate(algorithm)
    assert applied(run) == TRACE_I[:6]
    close(run.server.model, expected)


# PORT


def test_port_gives_oracle_2_with_its_weights():
    run = simulate(PORT(min_uploads=2, concurrency=3), updates=3)
    assert applied(run) == [(0, 0), (1, 0), (2, 1), (0, 0), (1, 1), (0, 0)]
    close(run.server.model, (-0.00383350973678, 0.386468997511))
    raw = np.array([40, 80, 92.9559625984, 40, 58.9833477136, 40]).reshape(3, 2)
    close(np.reshape(run.history.updates["weight"], (3, 2)), raw / raw.sum(1, keepdims=True))


STRAGGLER = World(devices=4, compute=TraceCompute(seconds_per_step=(1.0, 1.0, 1.0, 10.0)))


@pytest.mark.parametrize("urgent", [True, False])
def test_a_straggler_is_told_and_uploads_after_its_epoch_or_everybody_waits_for_it(urgent):
    task = Quadratic(np.ones((4, 1)), np.arange(4.0)[:, None], [0.0])
    port = PORT(min_uploads=2, concurrency=4, staleness_bound=3, urgent=urgent)
    run = simulate(port, task, STRAGGLER, updates=8, epochs=5, steps=None)
    table = run.history.updates
    last = table["device"].index(3)
    # A version every 5 s. Told at the third one, it uploads after its second epoch; else the fourth is the last one
    # before its upload is there.
    expected = (20.0, 2, 3) if urgent else (50.0, 5, 4)
    assert tuple(table[column][last] for column in ("seconds", "steps", "staleness")) == expected
    assert sorted(set(table["seconds"]))[:4] == [5.0, 10.0, 15.0, 20.0]
    if not urgent:
        assert sorted(d for d, s in zip(table["device"], table["seconds"], strict=True) if s == 50.0) == [0, 1, 2, 3]


def test_the_notice_takes_the_latency_of_a_transfer():
    task = Quadratic(np.ones((4, 1)), np.arange(4.0)[:, None], [0.0])
    port = PORT(min_uploads=3, concurrency=4, staleness_bound=1)
    for latency, epochs in ((0.4, 1), (0.6, 2)):
        # The first version appears at 9 + 2 latency and the straggler is told; its first epoch ends at 10 + latency.
        world = STRAGGLER.model_copy(update={"network": Network(latency_seconds=latency)})
        run = simulate(port, task, world, updates=3, epochs=9, steps=None)
        row = run.history.updates["device"].index(3)
        assert run.history.updates["steps"][row] == epochs


@settings(max_examples=8, deadline=None)
@given(st.integers(1, 4), st.integers(0, 3), st.integers(1, 4), st.integers(0, 10**6))
def test_no_upload_of_port_has_missed_more_than_the_bound_and_one(count, more, bound, seed):
    world = World(
        devices=8, compute=RatioCompute(ratio=8.0), jitter=0.3, faults=[{"kind": "lost", "probability": 0.2}]
    )
    task = Quadratic(np.ones((8, 1)), np.arange(8.0)[:, None], [0.0])
    port = PORT(min_uploads=count, concurrency=count + more, staleness_bound=bound)
    run = Simulation(task, world, port, budget=Budget(updates=15), training=LocalTraining(epochs=3), seed=seed)
    run.run("sequential")
    table = run.history.updates
    assert max(table["staleness"]) <= bound + 1
    assert set(table["steps"]) <= {1, 2, 3}
    assert min(np.bincount(table["version"])[1:]) >= count
    assert run.outcomes()["in_flight"] <= count + more


# ASO-Fed


def test_asofed_gives_oracle_1_with_the_memory_of_the_second_device():
    run = simulate(ASOFed(rho=1.0, beta=0.5, concurrency=3), updates=8)
    assert applied(run) == TRACE_I
    close(run.server.model, (0.194232027187, 0.525976654078))
    previous, memory = run.device_state[1]["memory"]
    close(memory, (2.42949355374, -1.37273156728))
    close(previous, (1.69220045989, -1.18361923334))
    assert run.device_state[1]["tasks"] == (3, 3.0)


def test_going_on_from_the_devices_own_models_their_weighted_mean_is_the_global_one():
    run = simulate(ASOFed(rho=1.0, beta=0.5, start="own", concurrency=3), updates=8)
    close(run.server.model, (0.222808250358, 0.523610909981))
    world = World(devices=3, compute=TraceCompute(seconds_per_step=(1.0, 1.37, 2.71)))  # no two arrive at once
    for updates in (1, 2, 7, 30):
        run = simulate(ASOFed(rho=1.0, start="own", concurrency=2), world=world, updates=updates)
        latest = [run.device_state.get(device, {}).get("model", TOY_B.start) for device in range(3)]
        close(run.server.model, (latest[0] + 2 * latest[1] + 3 * latest[2]) / 6, rtol=1e-12)


def test_attention_is_paid_to_the_rows_of_the_first_layer():
    task = pictures()
    plain, paper, rescaled = (
        simulate(ASOFed(concurrency=3, feature_learning=how), task, updates=1, batch_size=8).server.model
        for how in ("off", "paper", "rescaled")
    )
    assert torch.equal(plain[150:], paper[150:])
    torch.testing.assert_close(rescaled[:150], 25 * paper[:150])
    weights = torch.softmax(plain[:150].view(6, 25).abs(), 1)
    torch.testing.assert_close(paper[:150].view(6, 25), weights * plain[:150].view(6, 25))


# FedSA


class Punctual(FedSA):
    """Each task takes the time of two local steps, as in Trace I."""

    async def device(self, device):
        train = device.train

        async def timed(model, *, steps, epochs):
            return await train(model, steps=steps, cost=2 / steps)

        device.train = timed
        await super().device(device)


def test_fedsa_gives_oracle_1():
    fedsa = {"alpha_convergence": 0.6, "initial_versions": 3, "initial_epochs": 4, "convergence_epochs": 2}
    run = simulate(Punctual(concurrency=3, **fedsa))
    assert applied(run) == TRACE_I[:6]
    assert run.history.updates["steps"] == [4, 4, 4, 4, 3, 2]
    close(run.server.model, (0.271990020218, 0.410884779589))


def test_fedsa_without_its_stages_is_fedasync_with_polynomial_weights_bit_for_bit():
    fedsa = FedSA(alpha_convergence=0.6, convergence_epochs=2, min_epochs=2, concurrency=3)
    fedasync = FedAsync(alpha=0.6, weight="polynomial(a=0.5)", concurrency=3)
    one, other = (simulate(algorithm, updates=30).history for algorithm in (fedsa, fedasync))
    assert one == other


# FedDelay


def test_a_buffer_of_one_without_weights_is_feddelay_without_a_threshold_bit_for_bit():
    for task, world in ((TOY_B, TOY_B_WORLD), (pictures(), TOY_B_WORLD)):
        fedbuff = FedBuff(buffer=1, weight="constant", concurrency=3)
        one, other = (
            simulate(algorithm, task, world, updates=20, batch_size=8).history
            for algorithm in (fedbuff, FedDelay(threshold=10**6, concurrency=3))
        )
        assert one == other


# SyncDrop


class Masks(SyncDrop):
    """The masks of oracle 3."""

    def chosen(self, server, device, units, rng):
        return [[0], [1], [0, 1]][device]


def test_syncdrop_gives_oracle_3():
    world = World(devices=3, compute=TraceCompute(seconds_per_step=(2.0, 3.0, 2.5)))  # half a model, half the time
    run = simulate(Masks(concurrency=3), world=world)
    assert applied(run) == TRACE_I[:6]
    close(run.server.model, (0.5945818125, 0.631775))
    kept = (1, 1, 2)
    assert run.server.counters["bytes_up"] == 8 * sum(kept[device] for device, _ in TRACE_I[:6])


def test_with_all_units_syncdrop_is_fedasync_with_a_constant_weight_bit_for_bit():
    network = Network(down_bits_per_second=1e6, up_bits_per_second=5e5)
    world = TOY_B_WORLD.model_copy(update={"network": network})
    for task in (TOY_B, pictures()):
        one, other = (
            simulate(algorithm, task, world, updates=15, batch_size=8).history
            for algorithm in (SyncDrop(keep=1.0, concurrency=3), FedAsync(alpha=0.5, concurrency=3))
        )
        assert one == other


@pytest.mark.parametrize("assignment", ["random", "hetero"])
def test_a_quarter_of_the_hidden_units_of_lenet_costs_its_bytes_and_its_time(assignment):
    entries = 156 + (4 * 150 + 4) + (30 * 4 * 25 + 30) + (21 * 30 + 21) + (3 * 21 + 3)
    whole = 156 + 2416 + 48120 + 10164 + 255
    network = Network(down_bits_per_second=8e4, up_bits_per_second=4e4)
    world = World(devices=3, compute={"kind": "constant"}, network=network)
    run = simulate(SyncDrop(assignment=assignment, concurrency=3), pictures(), world, updates=9, batch_size=10)
    table = run.history.evaluations
    assert table["bytes_up"][-1] == 9 * 4 * entries
    assert table["bytes_down"][-1] == 4 * entries * table["models_sent"][-1]
    task = 8 * 4 * entries / 8e4 + 2 * entries / whole + 8 * 4 * entries / 4e4
    np.testing.assert_allclose(run.history.updates["seconds"], np.repeat([1, 2, 3], 3) * task)


def test_what_a_device_has_not_got_stays_as_it_is_and_every_unit_gets_its_turn():
    task = pictures()
    models, masks = [], []

    class Watched(SyncDrop):
        async def updater(self, server):
            models.append(server.model)
            await super().updater(server)

        def answer(self, server, device, question):
            kept, size = super().answer(server, device, question)
            masks.append(kept)
            return kept, size

    run = simulate(Watched(concurrency=1, keep=0.5), task, updates=24, batch_size=8)
    for before, after, kept in zip(models, [*models[1:], run.server.model], masks, strict=False):
        assert torch.equal(before[~kept], after[~kept])
        assert not torch.equal(before[kept], after[kept])
        assert float(kept.float().mean()) == pytest.approx(0.25, abs=0.05)  # mostly weights between two hidden layers
    ever = torch.stack(masks).any(0)
    biases = [place for units in run.hidden_units for place in units.places if len(place.shape) == 1]
    assert [place.shape for place in biases] == [(16,), (120,), (84,)]
    assert all(ever[place.start : place.start + place.shape[0]].all() for place in biases)


def test_hetero_gives_the_units_that_have_moved_most_to_the_fastest_devices():
    task, world = pictures(), TOY_B_WORLD
    run = simulate(SyncDrop(assignment="hetero", ranks=3, concurrency=3), task, world, updates=8, batch_size=8)
    server, algorithm = run.server, run.algorithm
    units = server.hidden_units[1]
    moved = units.moved(server.model, server.state["reference"])
    order = moved.argsort(descending=True, stable=True).tolist()
    rng = np.random.default_rng(0)
    assert [algorithm.chosen(server, device, units, rng) for device in range(3)] == [
        order[:30], order[40:70], order[80:110],
    ]  # fmt: skip


# AsyncPart


def test_asyncpart_gives_the_weights_of_oracle_1():
    run = simulate(AsyncPart(concurrency=3))
    close(run.history.updates["weight"], (0.266666666667, 0.389949493661, 0.173459080339,
                                          0.443566017178, 0.328122266514, 0.146572182121))  # fmt: skip


# One clock for all

WORK = {"lr": 0.03, "lr_decay": 0.998, "batch_size": 64, "steps": None, "epochs": 5, "momentum": 0.0}
"""FedASMU's Tables 5 and 6, with what they leave open (A05, A06)."""

PER_ARRIVAL = [
    FedAsync(alpha=0.6, weight="polynomial(a=0.5)", drop_above=98), ASOFed(), FedDelay(), AsyncPart(),
    FedSA(convergence_epochs=5, min_epochs=5), FedBuff(buffer=1), SyncDrop(keep=1.0),
]  # fmt: skip
ROUNDS = [FedAvg(weighting="samples"), FedProx(), MOON(), FedDyn()]


@pytest.mark.parametrize("algorithms", [PER_ARRIVAL, ROUNDS], ids=["per arrival", "rounds"])
def test_in_the_world_of_fedasmu_methods_with_the_same_work_have_the_same_times_and_bytes(algorithms):
    """A model takes 1 s each way, training 100 to 500 s: whatever a method computes, the world decides when."""
    network = {"down_bits_per_second": 128.0, "up_bits_per_second": 128.0}
    world = World.named("fedasmu", devices=100, network=network)
    task = Quadratic(np.ones((100, 2)), np.arange(200.0).reshape(100, 2), [0.0, 0.0], samples=range(100, 200))
    runs = [simulate(algorithm, task, world, updates=6, **WORK) for algorithm in algorithms]
    first = runs[0].history
    for run in runs[1:]:
        for column in ("seconds", "device", "staleness", "steps"):
            assert run.history.updates[column] == first.updates[column]
        for column in ("seconds", "bytes_up", "bytes_down", "gradients"):
            assert run.history.evaluations[column] == first.evaluations[column]
    durations = np.array(first.updates["seconds"])
    assert 102 <= durations[0] <= 502 if algorithms is ROUNDS else 102 <= durations[0] < durations[-1]
    assert runs[0].history.evaluations["bytes_up"][-1] == 16 * len(first.updates["device"])
