"""FedASMU on simulated runs: the event trace of the specification, its reductions, what it costs, what it keeps."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import pytest
import runs
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from fl_core.algorithms import FedASMU, FedASMU0, FedASMUDA, FedASMUFA, FedASMUH1, FedASMUH2, FedASMUH3, FedAsync
from fl_core.algorithms.fedasmu import on_disk
from fl_core.errors import RunError
from fl_core.formulas import fedasmu
from fl_core.formulas.fedasmu import LEAST_PRINTED_SIGMA, Controls, FreshControls, PastAggregation
from fl_core.runtime import Simulation, watchdog
from fl_core.tasks import Quadratic
from fl_core.world import ConstantCompute, Network, TraceCompute, World

RNG = np.random.default_rng(0)
TASK = Quadratic(RNG.uniform(0.5, 2, (20, 6)), RNG.normal(size=(20, 6)), 3 * np.ones(6))
RATES = dict.fromkeys(("lr_lambda", "lr_sigma", "lr_iota", "lr_gamma", "lr_upsilon"), 0.1)
LIVELY = {"lambda_0": 5.0, "gamma_0": 5.0, **RATES}
"""Control parameters that move within a short run."""
STILL = {**LIVELY, **dict.fromkeys(("lr_lambda", "lr_sigma", "lr_iota"), 0.0)}
"""Those of the server do not."""

NAN = float("nan")


def world(devices: int = 20, concurrency: int = 6, **fields: Any) -> World:
    trigger = {"kind": "timed", "period_seconds": 1.0, "per_tick": 3, "concurrency": concurrency}
    compute = {"kind": "ratio", "fastest": 1.0, "ratio": 5.0, "per": "epoch"}
    return World(**{"devices": devices, "compute": compute, "trigger": trigger, **fields})


def simulate(
    algorithm: Any, updates: int | None = 100, *, where: World | None = None, task: Any = TASK, **settings: Any
) -> Simulation:
    settings = {"updates": updates, "every_updates": 1, "lr": 0.05, "epochs": 4, **settings}
    return runs.simulate(algorithm, where or world(), task, threads=2, **settings)


@cache
def lively() -> Simulation:
    """Return the run that others are compared with."""
    return simulate(FedASMU(**LIVELY))


def log(run: Simulation) -> dict[str, np.ndarray]:
    """What was logged; NaN of what never was."""
    rows = len(run.history.learned["version"])
    found = {name: np.array(column) for name, column in run.history.learned.items()}
    return {
        name: np.full(rows, np.nan) for name in ("inner_product", "score", "lambda_", "slot", "fresh_weight")
    } | found


TRACE_TASK = Quadratic([[1.0], [2.0]], [[1.0], [-1.0]], [0.2])
TRACE_WORLD = World(
    devices=2,
    compute=TraceCompute(seconds_per_step=(1.0, 1.5)),
    trigger={"kind": "timed", "period_seconds": 1.0, "per_tick": 2, "concurrency": 2},
)


def trace_run(updates: int = 5, **fields: Any) -> Simulation:
    start = {"lambda_0": 1.0, "sigma_0": 0.5, "iota_0": 0.0, "gamma_0": 1.0, "upsilon_0": 0.5}
    algorithm = FedASMU(slot=1, **{**RATES, **start, **fields})
    return simulate(algorithm, updates, where=TRACE_WORLD, task=TRACE_TASK, lr=0.1, epochs=2)


def test_o15_the_event_trace_of_the_specification():
    run = trace_run()
    table, found = run.history.updates, log(run)
    assert table["seconds"] == [2, 3, 4, 6, 6]
    assert table["device"] == [0, 1, 0, 1, 0]
    assert [missed + 1 for missed in table["staleness"]] == [1, 2, 2, 2, 2]
    weights = [0.5, 0.333333333333, 0.290831839343, 0.286412826711, 0.247642342518]
    np.testing.assert_allclose(table["weight"], weights, rtol=1e-9)
    models = [float(trace_run(n).server.model) for n in range(1, 6)]
    np.testing.assert_allclose(
        models, [0.276, 0.106666666667, 0.176071623795, 0.0601919561877, 0.127656183623], rtol=1e-9
    )
    expected = {
        "inner_product": [NAN, NAN, -0.0526752800103, -0.85136914023, -0.186793433858],
        "lambda_": [1, 1, 1.001316882, 1.01891931423, 1.0051520504],
        "sigma": [0.5, 0.5, 0.5, 0.486886130685, 0.49733816312],
        "iota": [0, 0, 0.00131688200026, 0.0378386284547, 0.0107110876643],
        "slot": [NAN, NAN, 1, 1, NAN],
        "fresh_weight": [NAN, NAN, 0.313708498985, 0.271787812252, NAN],
        "reward": [NAN, NAN, -0.0522886875311, -0.146160550666, NAN],
        "gamma": [NAN, NAN, 0.996214136744, 0.988901713276, NAN],
        "upsilon": [NAN, NAN, 0.504141114737, 0.512139709124, NAN],
    }
    for name, column in expected.items():
        np.testing.assert_allclose(found[name], column, rtol=1e-9, err_msg=name)
    assert run.server.counters["models_received"] == 5
    # Dispatched at 0 (both), 2, 3 and 4; the run ends at 6 before that tick. Two of five requests had an answer.
    assert run.server.counters["models_sent"] == 5 + 2


def test_o5_a_first_upload_is_mixed_with_the_controls_as_they_are():
    w, uploaded = torch.tensor([(0.9, -1.8, 0.6), (0.7, -1.6, 0.9)], dtype=torch.float64)
    made = FedASMU().combine(w, uploaded, 40, 8, Controls(1.2, 0.5, 0.1))
    assert made.controls == (1.2, 0.5, 0.1)
    expected = (0.166258915645, 0.142557465941, 0.871488506812, -1.77148850681, 0.642767239782)
    np.testing.assert_allclose([made.score, made.weight, *made.model], expected, rtol=1e-9)


# Reductions


@pytest.mark.parametrize("bound", [99, 4])
@pytest.mark.parametrize("seed", [0, 1])
def test_c34_without_its_dynamic_parts_it_is_fedasync_with_a_staleness_bound_bit_for_bit(bound, seed):
    where = world(network=Network(down_bits_per_second=400.0, up_bits_per_second=300.0), jitter=0.4)
    fedasync = FedAsync(alpha=0.6, weight="polynomial(a=0.5)", drop_above=bound - 1)
    expected = simulate(fedasync, where=where, seed=seed).history
    assert (expected.outcomes["discarded"] > 5) == (bound == 4)
    zero = FedASMU0(staleness_bound=bound)
    spelled_out = FedASMU(slot="none", server_weight="fedasync_poly", staleness_bound=bound)
    for algorithm in (zero, spelled_out):
        assert simulate(algorithm, where=where, seed=seed).history == expected


def test_the_static_weight_is_fedasyncs_with_its_parameters():
    expected = simulate(FedAsync(alpha=0.3, weight="hinge(a=4, b=1)")).history
    assert simulate(FedASMU0(static_alpha=0.3, static_weight="hinge(a=4, b=1)")).history == expected


def test_dynamic_weights_that_do_not_learn_are_frozen_ones_bit_for_bit():
    still = dict.fromkeys(RATES, 0.0)
    weights = ("dynamic", "frozen_xi")
    histories = [simulate(FedASMU(server_weight=w, **{**LIVELY, **still})).history for w in weights]
    assert histories[0] == histories[1] != lively().history


def test_each_ablation_leaves_out_what_it_says():
    found = {kind: log(simulate(kind(**LIVELY))) for kind in (FedASMU, FedASMUDA, FedASMUFA, FedASMU0)}
    for kind, columns in found.items():
        assert np.isfinite(columns["inner_product"]).any() == (kind in (FedASMU, FedASMUFA))
        assert np.isfinite(columns["fresh_weight"]).any() == (kind in (FedASMU, FedASMUDA))


@pytest.mark.parametrize(("kind", "slot"), [(FedASMUH1, 1), (FedASMUH2, 2), (FedASMUH3, 3)])
def test_the_heuristics_ask_after_the_first_half_and_last_but_one_epoch(kind, slot):
    slots = log(simulate(kind(**LIVELY)))["slot"]
    assert set(slots[np.isfinite(slots)]) == {slot}


# Staleness bound


@pytest.mark.parametrize(
    ("version", "origin", "kept"), [(98, 0, True), (99, 0, False), (120, 21, False), (120, 22, True)]
)
def test_o14_an_upload_beyond_the_bound_is_dropped(version, origin, kept):
    assert FedASMU().keeps(version - origin) == kept


def test_a_dropped_upload_changes_nothing_and_its_device_is_free_again():
    run = simulate(FedASMU(staleness_bound=4, **LIVELY))
    outcomes = run.outcomes()
    assert outcomes["discarded"] > 5
    assert outcomes["applied"] == run.version == 100
    assert max(run.history.updates["staleness"]) <= 3
    assert len(run.history.learned["device"]) == 100
    assert outcomes["dispatched"] == 100 + outcomes["discarded"] + outcomes["in_flight"]
    assert lively().outcomes()["discarded"] == 0


def test_e05_dropped_uploads_may_count_as_rounds():
    run = simulate(FedASMU(staleness_bound=4, **LIVELY), None, uploads=80)
    outcomes = run.outcomes()
    assert outcomes["discarded"] > 5
    assert run.version == outcomes["applied"] == 80 - outcomes["discarded"]


# What the server learns


class Recorded(FedASMU):
    """Keeps all uploads and models, to compute again what the server has computed."""

    name = "recorded"

    def weigh(self, server, upload):
        before = server.model
        made = super().weigh(server, upload)
        entry = (upload.device, upload.base_version, upload.model, before, made.weight, upload.start.model, upload.lr)
        server.state.setdefault("past", []).append(entry)
        server.state.setdefault("jumps", []).append(upload.payload.get("jump", torch.zeros(6, dtype=torch.float64)))
        return made


@pytest.mark.parametrize(("mu", "offset"), [(1.0, 1), (1.7, 1), (0.6, 0)])
def test_every_weight_follows_from_the_whole_record_of_the_run(mu, offset):
    rates = Controls(0.1, 0.05, 0.2)
    algorithm = Recorded(
        **{**LIVELY, "lr_lambda": rates.lambda_, "lr_sigma": rates.sigma, "lr_iota": rates.iota},
        mu_alpha=mu, sqrt_offset_server=offset,
    )  # fmt: skip
    run = simulate(algorithm, 120, lr_decay=0.9, lr_decay_versions=7)
    past, found = run.server.state["past"], log(run)
    kept = [1 - entry[4] for entry in past]
    controls = {device: Controls(5.0, 0.5, 0.0) for device in range(20)}
    last: dict[int, int] = {}
    learned = 0
    for t, (device, origin, model, _, weight, start, lr) in enumerate(past):
        assert torch.equal(start, past[origin][3])
        assert lr == pytest.approx(0.05 * 0.9 ** (origin // 7))
        if device in last:
            p = last[device]
            direction = past[p][2] - past[p][3]
            q = fedasmu.inner_product(start - model, direction, lr, 4)
            assert found["inner_product"][t] == pytest.approx(q, rel=1e-12)
            assert fedasmu.propagation(kept, p, origin) == math.prod(kept[p + 1 : origin])
            record = PastAggregation(p, p - past[p][1] + 1, controls[device])
            step = fedasmu.descend_controls(
                controls[device], fedasmu.control_gradient(q, record, mu, sqrt_offset=offset), rates
            )
            controls[device] = fedasmu.project_controls(step)
            assert found["projected"][t] == sum(a != b for a, b in zip(step, controls[device], strict=True))
            learned += 1
        expected = fedasmu.mixing_weight(t, t - origin + 1, controls[device], mu, sqrt_offset=offset)
        assert weight == pytest.approx(expected, rel=1e-12)
        last[device] = t
    assert learned > 80


def test_a_direction_is_gone_when_its_product_has_been_formed():
    class Looking(FedASMU):
        name = "looking"

        def _inner_product(self, server, upload, direction):
            seen.append("direction" in server.state["devices"][upload.device])
            return super()._inner_product(server, upload, direction)

    seen: list[bool] = []
    simulate(Looking(**LIVELY))
    assert len(seen) > 20
    assert not any(seen)


def test_propagation_scales_each_step_by_what_later_versions_have_left():
    algorithms = [Recorded(slot="none", **{**LIVELY, "propagation": p}) for p in ("none", "exact")]
    plain, exact = (simulate(algorithm, 40) for algorithm in algorithms)
    first = next(t for t, q in enumerate(log(plain)["inner_product"]) if np.isfinite(q))
    past = exact.server.state["past"]
    device, origin = past[first][:2]
    p = next(t for t, entry in enumerate(past) if entry[0] == device)
    factor = fedasmu.propagation(exact.server.state["kept"], p, origin)
    steps = [log(run)["lambda_"][first] - 5.0 for run in (plain, exact)]
    assert 0 < factor < 1
    assert steps[1] == pytest.approx(factor * steps[0], rel=1e-9)


def test_what_is_left_counts_the_versions_of_the_own_server_and_nothing_mixed_in_after_the_start():
    run = simulate(FedASMUFA(propagation="exact", **LIVELY), 60, where=world(clusters={"servers": 2}))
    table = run.history.updates
    for server in run.servers:
        kept = [1 - w if d in server.devices else 1 for d, w in zip(table["device"], table["weight"], strict=True)]
        assert server.state["kept"] == kept[: len(server.state["kept"])]
        assert sum(left != 1 for left in kept) == server.version > 20
    drawn = log(simulate(FedASMUFA(propagation="exact", **LIVELY), 80, where=World(devices=2, max_staleness=9)))
    learned = np.isfinite(drawn["inner_product"])
    assert learned.sum() > 60
    last: dict[float, float] = {}
    still = 0
    for device, lambda_ in zip(drawn["device"], drawn["lambda_"], strict=True):
        still += last.get(device) == lambda_
        last[device] = lambda_
    assert still > 10


def test_dividing_by_epochs_instead_of_steps_scales_the_product():
    many = Quadratic(TASK.curvature, TASK.centre, TASK.start, samples=[3] * 20)
    by_steps, by_epochs = (
        log(simulate(FedASMU(grad_divisor=divisor, **STILL), task=many, batch_size=1))["inner_product"]
        for divisor in ("steps", "epochs")
    )
    np.testing.assert_allclose(by_epochs, 3 * by_steps, rtol=1e-12)


def test_correcting_for_the_merge_costs_upload_bytes_and_takes_it_out_of_the_gradient():
    plain, corrected = (simulate(Recorded(merge_correction=c, slot=2, **STILL)) for c in (False, True))
    assert torch.equal(plain.server.model, corrected.server.model)
    merges = np.isfinite(log(corrected)["slot"]).sum()
    more = corrected.server.counters["bytes_up"] - plain.server.counters["bytes_up"]
    assert more == merges * 6 * 8 > 0
    directions: dict[int, torch.Tensor] = {}
    products, past = log(corrected)["inner_product"], corrected.server.state["past"]
    for t, (device, _, model, before, _, start, lr) in enumerate(past):
        if device in directions:
            gradient = (start - model + corrected.server.state["jumps"][t]) / (lr * 4)  # D3, E09
            assert products[t] == pytest.approx(float(gradient @ directions[device]), rel=1e-9)
        directions[device] = model - before
    assert (log(plain)["inner_product"] != products).any()


# What the server keeps


class Passes(TorchDispatchMode):
    """Counts the operations that go over a whole vector."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.length, self.seen = length, []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        vectors = [x for x in (*args, result) if isinstance(x, torch.Tensor) and x.numel() == self.length]
        if vectors and func is not torch.ops.aten.slice.Tensor:
            self.seen.append(func.overloadpacket.__name__)
        return result


class Counted(FedASMU):
    """Counts the passes of each update of the server."""

    name = "counted"

    async def updater(self, server):
        [upload] = await server.receive()
        with Passes(6) as passes:
            made = self.weigh(server, upload)
        server.state.setdefault("passes", []).append(passes.seen)
        server.commit(made.model, weight=made.weight)


def test_an_update_of_the_server_takes_at_most_four_passes_over_vectors():
    run = simulate(Counted(**LIVELY))
    passes, first = run.server.state["passes"], np.isnan(log(run)["inner_product"])
    for seen, is_first in zip(passes, first, strict=True):
        assert sorted(seen) == sorted(["lerp", "sub"] if is_first else ["sub", "dot", "sub", "lerp"])


def test_directions_on_disk_are_the_same_bits_and_leave_no_file(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert simulate(FedASMU(directions="memmap", **LIVELY)).history == lively().history
    vector = torch.randn(1000)
    assert torch.equal(on_disk(vector), vector)
    assert list(tmp_path.iterdir()) == []


WIDE = Quadratic(np.ones((20, 400)), np.random.default_rng(1).normal(size=(20, 400)), np.zeros(400))


def products(directions: str, **fields: Any) -> tuple[np.ndarray, Simulation]:
    run = simulate(Recorded(directions=directions, **{**STILL, **fields}), task=WIDE)
    return log(run)["inner_product"], run


def pairs(run: Simulation) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Gradient estimate and direction of each upload of a device that was not its first."""
    last, found = {}, []
    for device, _, model, before, _, start, lr in run.server.state["past"]:
        if device in last:
            found.append(((start - model) / (lr * 4), last[device]))
        last[device] = model - before
    return found


def test_half_precision_and_sketches_are_as_near_as_they_say():
    exact, run = products("ram")
    known = np.isfinite(exact)
    vectors = pairs(run)
    halved, other = products("float16")
    assert run.history == other.history  # with rates 0 the products change nothing
    for found, true, (g, d) in zip(halved[known], exact[known], vectors, strict=True):
        assert 0 < abs(found - true) <= 2.0**-11 * float((g * d).abs().sum()) < 1e-2 * abs(true)
    sketched = products("sketch", sketch_size=64)[0]
    deviations = [(g @ g * (d @ d) + (g @ d) ** 2 - 2 * (g * d) @ (g * d)) / 64 for g, d in vectors]
    scaled = (sketched[known] - exact[known]) / np.sqrt(deviations)
    assert 0.3 < np.sqrt((scaled**2).mean()) < 2
    assert np.abs(scaled).max() < 6


# Fresh models: time, bytes, slots


def test_c39_every_fresh_model_is_counted_in_time_and_bytes_and_a_no_costs_nothing():
    network = Network(down_bits_per_second=6 * 64 * 2.0, up_bits_per_second=6 * 64 * 4.0)  # 0.5 s and 0.25 s
    run = simulate(FedASMUH1(**LIVELY), where=world(network=network), trace=True)
    spans = run.history.span_frame()
    downloads = spans[spans.activity == "download"]
    counters, outcomes = run.server.counters, run.outcomes()
    np.testing.assert_allclose(downloads.end - downloads.start, 0.5)
    assert counters["models_sent"] == len(downloads)
    assert counters["bytes_down"] == 48 * len(downloads)
    assert counters["bytes_up"] == 48 * counters["models_received"]
    assert outcomes["dispatched"] < counters["models_sent"] <= 2 * outcomes["dispatched"]
    merged = [task for task, one in downloads.groupby("task") if len(one) == 2]
    once = [task for task, one in downloads.groupby("task") if len(one) == 1]
    assert merged
    assert once
    for task in merged:  # download, one epoch, download, three epochs, upload; nothing in between
        one = spans[spans.task == task]
        assert list(one.activity)[:4] == ["download", "train", "download", "train"][: len(one)]
        np.testing.assert_allclose(one.start.to_numpy()[1:], one.end.to_numpy()[:-1])
        lengths = (one.end - one.start)[one.activity == "train"].to_numpy()
        np.testing.assert_allclose(lengths[1:], 3 * lengths[:1][: len(lengths) - 1])


def test_a_request_that_brings_nothing_leaves_no_trace_in_what_is_learned():
    alone = World(devices=1, compute=ConstantCompute(per="epoch"))
    task = Quadratic([[1.0] * 6], [[0.0] * 6], [3.0] * 6)
    run = simulate(FedASMU(concurrency=1, trigger_period=1.0, **LIVELY), 6, where=alone, task=task)
    assert np.isnan(log(run)["slot"]).all()
    assert run.device_state.get(0, {}) == {}
    assert run.server.counters["models_sent"] == 6


@pytest.mark.parametrize(("semantics", "count"), [("after_epoch", 3), ("before_epoch", 4)])
def test_first_slots_come_from_the_meta_model_and_later_ones_from_the_q_table(semantics, count):
    """Before the first epoch there is never anything newer, as downloads take no time here."""
    slots = set(range(1 + count - 3, count + 1))
    run = simulate(FedASMU(slot_semantics=semantics, lr_rl=0.0, **LIVELY), 200)
    columns = log(run)
    seen: dict[int, list[int]] = {}
    for device, slot in zip(columns["device"], columns["slot"], strict=True):
        if np.isfinite(slot):
            seen.setdefault(int(device), []).append(int(slot))
    firsts = [mine[0] for mine in seen.values()]
    assert set(firsts) == slots
    assert set().union(*seen.values()) == slots
    assert all(abs(a - b) <= 1 for mine in seen.values() for a, b in zip(mine[1:], mine, strict=False))
    for device, mine in seen.items():
        table = run.device_state[device]["q_table"]
        assert table.shape == (count, 3)
        assert table.any() == (len(mine) > 1 or run.device_state[device]["last_slot"] != mine[-1])


class Merges(FedASMU):
    """Keeps what each merge on a device began with and came to."""

    name = "merges"

    async def merge(self, device, choice, before, start, fresh, report):
        peek = device.peek

        async def watched(model, others=()):
            found = await peek(model, others=others)
            looked.append(found)
            return found

        looked: list[Any] = []
        device.peek = watched
        after = await super().merge(device, choice, before, start, fresh, report)
        device.peek = peek
        MERGES.append((device.id, choice, before, start.version, fresh, after, looked[0], dict(report)))
        return after

    def learn_meta(self, server, upload):
        super().learn_meta(server, upload)
        if "num_slots" in upload.payload:
            FIRSTS.append((upload.payload["slot"], upload.payload["num_slots"], upload.payload["reward"]))


MERGES: list[Any] = []
FIRSTS: list[Any] = []


def merges(**fields: Any) -> tuple[Simulation, dict[int, list[Any]]]:
    MERGES.clear()
    FIRSTS.clear()
    run = simulate(Merges(**{**LIVELY, **fields}), 200)
    by_device: dict[int, list[Any]] = {}
    for device, *what in MERGES:
        by_device.setdefault(device, []).append(what)
    return run, by_device


@pytest.mark.parametrize("project", [True, False])
@pytest.mark.parametrize(("mu", "offset"), [(1.0, 0), (1.6, 1)])
def test_every_merge_follows_from_the_controls_of_its_device(mu, offset, project):
    rates = FreshControls(2.0, 0.8)
    run, found = merges(
        mu_beta=mu, sqrt_offset_device=offset, project=project, lr_gamma=rates.gamma, lr_upsilon=rates.upsilon,
        gamma_0=0.5, slot="uniform",
    )  # fmt: skip
    moved = 0
    for device, mine in found.items():
        controls = FreshControls(0.5, 1.0)
        for _, before, origin, fresh, after, _, report in mine:
            weight = fedasmu.fresh_weight(fresh.version, origin, controls, mu, sqrt_offset=offset)
            assert report["fresh_weight"] == pytest.approx(weight, rel=1e-12)
            torch.testing.assert_close(after, fedasmu.blend(before, fresh.model, weight))
            pull = TASK.curvature[device] * (after - TASK.centre[device])
            losses = [0.5 * float(TASK.curvature[device] @ (w - TASK.centre[device]) ** 2) for w in (before, after)]
            assert report["reward"] == pytest.approx(losses[0] - losses[1], rel=1e-9, abs=1e-12)
            slope = float(pull @ (fresh.model - before))
            by_controls = fedasmu.fresh_weight_gradient(fresh.version, origin, controls, mu, sqrt_offset=offset)
            step = fedasmu.fresh_descend(controls, by_controls, rates, slope)
            controls = fedasmu.fresh_project(step) if project else step
            moved += controls != step if project else controls != fedasmu.fresh_project(step)
            assert (report["gamma"], report["upsilon"]) == pytest.approx(tuple(controls), rel=1e-9)
    assert moved > 0  # the projection would bind
    slots = log(run)["slot"]
    assert set(slots[np.isfinite(slots)]) == {1, 2, 3}


def test_every_q_table_follows_from_the_merges_of_its_device():
    run, found = merges(epsilon=0.0, q_lr=0.3, q_discount=0.6)
    updates = 0
    for device, mine in found.items():
        table, last = np.zeros((3, 3)), mine[0][0].slot
        assert mine[0][0].action is None
        for choice, *_, report in mine[1:]:
            values = table[last - 1]
            assert values[choice.action] >= values.max() - 1e-9  # nothing is left to chance
            assert choice.slot == fedasmu.next_slot(last, choice.action, 3)
            table = fedasmu.q_update(table, last, choice.action, choice.slot, report["reward"], 0.3, 0.6)
            last = choice.slot
            updates += 1
        assert np.array_equal(run.device_state[device]["q_table"], table)
        assert run.device_state[device]["last_slot"] == last
    assert updates > 80


def test_the_meta_model_follows_from_the_first_merges():
    run, _ = merges(lr_rl=0.1, baseline_rate=0.3)
    firsts = list(FIRSTS)
    meta, baseline = merges(lr_rl=0.0)[0].server.state["meta"], 0.0
    assert len(firsts) > 10
    for slot, count, gained in firsts:
        baseline = fedasmu.moving_baseline(baseline, gained, 0.3)
        meta = fedasmu.reinforce(meta, slot, count, gained - baseline, 0.1)
    assert torch.equal(run.server.state["meta"], meta)


def test_a_meta_model_trained_beforehand_sends_first_slots_to_the_best_one():
    records = tuple((k, 0.5 if k == 3 else 0.0) for k in (1, 2, 3) * 5)
    run = simulate(FedASMU(meta_records=records, epsilon=0.0, lr_rl=0.0, **LIVELY), 40)
    columns, firsts = log(run), {}
    for device, slot in zip(columns["device"], columns["slot"], strict=True):
        if np.isfinite(slot):
            firsts.setdefault(device, slot)
    assert set(firsts.values()) == {3}


# Convergence on convex problems


def test_every_executor_gives_the_same_run():
    reference = lively().history
    assert simulate(FedASMU(**LIVELY), executor="threads").history == reference
    batched = simulate(FedASMU(**LIVELY), executor="batched").history
    assert batched.updates["device"] == reference.updates["device"]
    np.testing.assert_allclose(batched.model, reference.model, rtol=1e-9)


@pytest.mark.parametrize("form", ["derived", "printed"])
@pytest.mark.parametrize("lr", [50.0, 1e15, 1e60])
def test_training_that_diverges_ends_as_rejected_uploads_and_nothing_else_fails(lr, form, monkeypatch):
    monkeypatch.setattr(watchdog, "MOST_FAILED", 100)
    run = simulate(FedASMU(server_grad=form, **LIVELY), 3000, lr=lr)
    assert run.history.ended == "rejected"
    for state in run.device_state.values():
        assert np.isfinite(state.get("controls", ())).all()
        assert np.isfinite(state.get("q_table", ())).all()
    assert all(np.isfinite(own["controls"]).all() for own in run.server.state["devices"].values())


def test_controls_that_diverge_without_projection_are_named():
    with pytest.raises(RunError, match="(sigma|score) = "):
        simulate(FedASMU(**LIVELY, project=False), 3000, lr=2.5)


def test_printed_steps_keep_sigma_above_zero_where_its_logarithm_is_taken():
    fields = {**LIVELY, "sigma_0": 0.05, "lr_sigma": 10.0}
    columns = log(simulate(FedASMU(server_grad="printed", **fields), 300))
    assert columns["sigma"].min() == LEAST_PRINTED_SIGMA
    assert log(simulate(FedASMU(server_grad="derived", **fields), 300))["sigma"].min() == 0


# What is refused


@pytest.mark.parametrize(
    ("algorithm", "training", "message"),
    [
        (FedASMU(slot=4), {}, "slot = 4 is not valid: with 4 local epochs it is 1..3"),
        (FedASMU(), {"steps": 5}, "counts local training in epochs, but the run has steps = 5"),
    ],
)
def test_a_slot_that_does_not_exist_is_refused(algorithm, training, message):
    with pytest.raises(RunError, match=message):
        simulate(algorithm, 5, **training)


def test_where_staleness_is_drawn_nobody_can_ask_but_weights_can_learn():
    drawn = World(devices=20, max_staleness=4)
    with pytest.raises(RunError, match="draws staleness"):
        simulate(FedASMU(), 5, where=drawn)
    assert simulate(FedASMUFA(**LIVELY), 50, where=drawn).version == 50


def test_without_a_trigger_of_the_world_its_own_ticks_start_devices():
    run = simulate(
        FedASMUFA(trigger_period=2.0, trigger_size=2, concurrency=3), 20,
        where=World(devices=20, compute=ConstantCompute(per="epoch", seconds_per_step=1.25)), trace=True,
    )  # fmt: skip
    spans = run.history.span_frame()
    starts = spans.groupby("start").size()
    assert (starts.index % 2 == 0).all()
    assert starts.max() == 2
    assert starts.iloc[:3].tolist() == [2, 1, 2]
