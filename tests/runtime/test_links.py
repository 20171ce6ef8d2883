"""The server's finite link: fair shares, no bit lost or invented, never above its rate."""

from __future__ import annotations

from math import inf
from pathlib import Path

import numpy as np
import pytest
import runs
from hypothesis import given, settings
from hypothesis import strategies as st
from killing import Killed, killed_at
from pydantic import ValidationError

from fl_core.algorithms import FedAsync, FedAvg
from fl_core.runtime import Checkpoints
from fl_core.runtime.messages import SharedLink, fair_shares
from fl_core.tasks import Quadratic
from fl_core.world import World

LIMITS = st.lists(st.one_of(st.floats(0.1, 100), st.just(inf)), min_size=1, max_size=8)
JOBS = st.lists(st.tuples(st.floats(0, 50), st.floats(1, 500), st.floats(0.5, 50)), min_size=1, max_size=8)


@given(LIMITS, st.floats(0.1, 100))
def test_shares_use_the_link_up_and_only_a_transfer_at_its_own_limit_has_less(limits, rate):
    shares = fair_shares(limits, rate)
    assert sum(shares) == pytest.approx(min(rate, sum(limits)))
    assert sum(shares) <= rate * (1 + 1e-12)
    for share, limit in zip(shares, limits, strict=True):
        assert share <= limit
        assert share == limit or share == pytest.approx(max(shares))


def played(jobs, rate):
    """Return when each of `jobs` (start, bits, limit) ends, and what the link carried between any two looks."""
    link, ends, carried = SharedLink(rate), {}, []
    looks = [(start, number) for number, (start, _, _) in enumerate(jobs)]
    while looks:
        now, number = min(looks)
        looks.remove((now, number))
        before, since = {task: left for task, (left, _, _) in link.open.items()}, link.since
        _, bits, limit = jobs[number]
        end = link.look(number, bits, limit, now)
        sent = {task: before[task] - link.open[task][0] for task in before if task in link.open}
        carried.append((since, now, sent))
        ends.setdefault(number, now) if end is None else looks.append((end, number))
        assert len(carried) < 1000
    return ends, carried


@settings(max_examples=200)
@given(JOBS, st.floats(0.5, 100))
def test_every_transfer_ends_when_the_fluid_of_the_whole_course_says(jobs, rate):
    ends, carried = played(jobs, rate)
    assert ends.keys() == set(range(len(jobs)))
    for since, now, sent in carried:
        room = (now - since) * (1 + 1e-9) + 1e-9 * max(1.0, now)
        assert sum(sent.values()) <= rate * room + 1e-6
        assert all(bits <= jobs[task][2] * room + 1e-6 for task, bits in sent.items())
    # The same by small steps of time, without looks: what is left of each job when its end has come.
    time, left = 0.0, {n: bits for n, (_, bits, _) in enumerate(jobs)}
    moments = sorted({start for start, _, _ in jobs} | set(ends.values()))
    for moment in moments:
        present = [n for n in left if jobs[n][0] <= time and left[n] > 0]
        for n, share in zip(present, fair_shares([jobs[n][2] for n in present], rate), strict=True):
            left[n] = max(0.0, left[n] - share * (moment - time))
        time = moment
        for n in [n for n in left if ends[n] <= moment]:
            assert left.pop(n) <= 1e-6 * jobs[n][1] + 1e-6
    assert not left


def test_equal_transfers_share_equally_and_a_slow_device_leaves_its_rest_to_the_others():
    ends, _ = played([(0, 100, inf), (0, 100, inf)], 10.0)
    assert ends == {0: 20.0, 1: 20.0}
    ends, _ = played([(0, 20, 2.0), (0, 80, inf)], 10.0)
    assert ends == {0: pytest.approx(10.0), 1: pytest.approx(10.0)}
    ends, _ = played([(0, 100, inf), (5, 100, inf)], 10.0)
    assert ends == {0: pytest.approx(15.0), 1: pytest.approx(20.0)}


SIZE = 24 * 8.0  # bits of a model


def simulation(algorithm=None, trace=False, devices=8, network=None, **world):
    rng = np.random.default_rng(0)
    task = Quadratic(rng.uniform(0.5, 2, (devices, 3)), rng.normal(size=(devices, 3)), [5.0, 5.0, 5.0])
    link = {"down_bits_per_second": {"kind": "uniform", "slowest": 40, "fastest": 400}, "latency_seconds": 0.2}
    link |= {"server_down_bits_per_second": 300.0, "server_up_bits_per_second": 150.0} | (network or {})
    where = World(devices=devices, network=link, **world)
    settings = {"updates": 30, "lr": 0.1, "steps": 1, "every_updates": 10}
    return runs.simulation(algorithm or FedAsync(concurrency=6), where, task, seed=3, trace=trace, **settings)


def test_a_run_never_sends_more_than_its_link_and_every_transfer_is_whole():
    run = simulation(trace=True)
    history = run.run()
    spans = history.span_frame()
    for way, rate in (("download", 300.0), ("upload", 150.0)):
        rows = spans[(spans["activity"] == way) & (spans["end"] <= run.kernel.now)]
        rows = rows[rows["end"] - rows["start"] > 0.21]  # without the spans of latency
        assert len(rows) >= 20
        for end in rows["end"]:
            for start in rows["start"]:
                inside = rows[(rows["start"] >= start) & (rows["end"] <= end)]
                assert len(inside) * SIZE <= rate * max(0.0, end - start) * (1 + 1e-9) + 1e-6


POWER = {"compute_watts": [2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0], "radio_watts": 1.3, "down_joules_per_byte": 0.5,
         "up_joules_per_byte": 4.0, "source": "made up for a test"}  # fmt: skip
FAULTS = [{"kind": "crash", "probability": 0.2, "down_seconds": 2}, {"kind": "lost", "probability": 0.1},
          {"kind": "duplicated", "probability": 0.2}, {"kind": "delayed", "probability": 0.2}]  # fmt: skip


@pytest.mark.parametrize(
    ("algorithm", "world"),
    [
        (FedAsync(concurrency=6), {"faults": FAULTS, "power": POWER}),
        (FedAvg(clients_per_round=4), {"clusters": {"servers": 1}}),
    ],
    ids=["faults and joules", "clusters"],
)
def test_a_run_goes_on_from_any_event_and_threads_change_nothing(algorithm, world, tmp_path: Path):
    whole = simulation(algorithm, **world)
    history = whole.run()
    assert simulation(algorithm, **world).run("threads", 2) == history
    for stop in range(5, whole.kernel.events, whole.kernel.events // 6):
        folder = tmp_path / str(stop)
        with pytest.raises(Killed):
            simulation(algorithm, **world).run(checkpoints=Checkpoints(folder, when=killed_at(stop + 1, every=False)))
        again = simulation(algorithm, **world).run(checkpoints=Checkpoints(folder, when=lambda events: False))
        assert again == history


def test_what_does_not_go_with_a_finite_link_is_refused():
    with pytest.raises(ValidationError, match="does not pause: set availability to null"):
        simulation(availability={"kind": "periodic", "period_seconds": 5, "available": 0.5})
    with pytest.raises(ValidationError, match="has no fair share of a finite server link"):
        simulation(network={"down_bits_per_second": {"kind": "trace", "bits_per_second": [[1.0]]}})


def test_joules_are_those_of_the_work_and_the_bytes_that_the_run_has_seen():
    run = simulation(trace=True, power=POWER)
    history = run.run()
    last = {name: values[-1] for name, values in history.evaluations.items()}
    spans = history.span_frame()
    over = spans[spans["end"] <= run.kernel.now]
    seconds = over["end"] - over["start"]
    trained, sent = over["activity"] == "train", over["activity"] != "train"
    watts = over["device"].map(dict(enumerate(POWER["compute_watts"])))
    assert last["joules_compute"] == pytest.approx((watts * seconds)[trained].sum())
    uploads = last["models_received"]
    least = 24 * (0.5 + 4.0) * uploads
    assert last["joules_transfer"] >= least + 0.8 * 1.3 * seconds[sent].sum()
    assert (
        last["joules_transfer"] <= 24 * (0.5 * last["models_sent"] + 4.0 * uploads) + 1.3 * seconds[sent].sum() + 1e-6
    )
    plain = simulation().run()
    assert not {"joules_compute", "joules_transfer"} & plain.evaluations.keys()
    assert {name: history.evaluations[name] for name in plain.evaluations} == plain.evaluations


def test_power_that_fits_no_world_is_refused():
    for world, words in (
        ({"power": POWER | {"compute_watts": [1.0]}}, "has 1 entries for devices = 8"),
        ({"power": POWER | {"source": ""}}, "source"),
        ({"power": POWER | {"compute_watts": 0}}, "compute_watts"),
        ({"power": POWER, "max_staleness": 3}, "has no time in which power is drawn"),
    ):
        with pytest.raises(ValidationError, match=words):
            simulation(**world)
