"""Measured worlds: what a link of changing speed carries, the phones' world, and files of traces."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from killing import Killed, killed_at
from pydantic import ValidationError
from typer.testing import CliRunner

from fl_core.algorithms import FedAsync
from fl_core.cli import app
from fl_core.datasets import registry
from fl_core.errors import DataError, SpecError
from fl_core.runtime import Budget, Checkpoints, LocalTraining, Simulation
from fl_core.tasks import Quadratic
from fl_core.world import (
    Network,
    Trace,
    World,
    read_availability,
    read_bandwidth,
    read_compute,
    read_throughput,
    traces,
)
from fl_core.world.traces import LinkSet, phones

SPEEDS = st.lists(st.floats(0, 1e7).map(lambda speed: 0.0 if speed < 1 else speed), min_size=1, max_size=12).filter(
    any
)


@given(SPEEDS, st.floats(0.1, 10), st.floats(0, 100), st.lists(st.floats(1, 1e7), min_size=1, max_size=5))
def test_what_is_sent_one_after_the_other_adds_up_to_what_the_link_can_carry(speeds, step, start, sizes):
    link, now = Trace.of(speeds, step), start
    for bits in sizes:
        seconds = link.seconds(bits, now)
        assert seconds >= bits / max(speeds) * (1 - 1e-9) - 1e-9 * max(1, now)  # never above the link's speed
        now += seconds
    carried = link.carried(now) - link.carried(start)
    tolerance = 1e-9 * (link.carried(now) + max(speeds) * now) + 1e-6
    assert carried == pytest.approx(sum(sizes), abs=tolerance)


def test_a_link_of_one_speed_is_a_constant_one_and_an_outage_is_waited_for():
    assert Trace.of([2e6]).seconds(3e6, 7.3) == pytest.approx(1.5)
    assert Trace.of([8.0, 0.0, 0.0, 8.0]).seconds(12, 0.0) == 3.5
    assert Trace.of([8.0, 0.0]).seconds(8, 0.0) == 1.0  # the last bit has gone before the outage
    assert Trace.of([8.0, 0.0]).seconds(8, 1.5) == 1.5
    assert Trace.of([8.0, 4.0]).mean == 6


def simulation(trace=False, **world):
    rng = np.random.default_rng(0)
    task = Quadratic(rng.uniform(0.5, 2, (6, 3)), rng.normal(size=(6, 3)), [5.0, 5.0, 5.0])
    settings = {"budget": Budget(updates=25), "training": LocalTraining(lr=0.1, steps=2)}
    return Simulation(task, World(devices=6, **world), FedAsync(concurrency=4), **settings, seed=3, trace=trace)


COURSE = {"kind": "trace", "bits_per_second": [[100.0, 0.0, 30.0], [50.0], [7.0, 80.0], [9.0], [90.0, 1.0], [60.0]]}
NETWORK = {
    "down_bits_per_second": COURSE,
    "up_bits_per_second": {**COURSE, "step_seconds": 0.7},
    "latency_seconds": 0.1,
}


@pytest.mark.parametrize("kind", [{"network": NETWORK}, {"compute": "phones", "network": NETWORK}])
def test_a_run_under_traces_is_deterministic_and_goes_on_from_any_event(kind, tmp_path: Path):
    whole = simulation(**kind)
    history = whole.run()
    assert simulation(**kind).run("threads", 2) == history
    for stop in range(1, whole.kernel.events, whole.kernel.events // 6):
        folder = tmp_path / str(stop)
        with pytest.raises(Killed):
            simulation(**kind).run(checkpoints=Checkpoints(folder, when=killed_at(stop)))
        assert simulation(**kind).run(checkpoints=Checkpoints(folder, when=lambda events: False)) == history


def test_every_transfer_of_a_run_carries_its_bytes():
    run = simulation(trace=True, network=NETWORK)
    spans = run.run().span_frame()
    size = 8 * run.global_model().nbytes
    for direction, step in (("download", 1.0), ("upload", 0.7)):
        rows = spans[(spans["activity"] == direction) & (spans["end"] <= run.kernel.now)]
        assert len(rows) > 20
        for row in rows.itertuples():
            link = Trace.of(COURSE["bits_per_second"][row.device], step)
            assert link.carried(row.end) - link.carried(row.start + 0.1) == pytest.approx(size, rel=1e-6)


def test_the_phones_world_has_the_speeds_of_the_table_and_one_link_for_both_ways():
    devices = World.named("phones", devices=2000, median=2.0).realise(0)
    scores = np.array(phones()["scores"])
    assert (len(scores), len(phones()["models"]), len(phones()["networks"])) == (307, 307, 19)
    assert np.median(devices.seconds) == pytest.approx(2.0, rel=0.15)
    assert devices.seconds.max() / devices.seconds.min() == pytest.approx(scores.max() / scores.min())
    pairs = {(down, up) for down, _, up, _ in phones()["networks"]}
    for number in range(100):
        profile = devices.profile(number, 0)
        assert (round(profile.down_bits_per_second / 8192, 1), round(profile.up_bits_per_second / 8192, 1)) in pairs


def test_measured_links_are_those_of_the_file_each_from_a_second_of_its_own(tmp_path, monkeypatch):
    devices = World.named("measured-links", devices=50).realise(0)
    links = [devices.profile(number, 0).down_link for number in range(50)]
    assert len({link.offset for link in links}) > 20
    assert all(link.offset == int(link.offset) and 0.1e6 < link.mean < 4e6 for link in links)
    monkeypatch.setenv(registry.SEARCH, str(tmp_path))
    monkeypatch.setenv(registry.FOLDER, str(tmp_path / "own"))
    network = Network(down_bits_per_second={"kind": "measured", "set": "oboe"})
    with pytest.raises(DataError, match="links of 'oboe' are not on this machine; 'fl-core data import"):
        World(devices=3, network=network).realise(0)


def test_links_from_elsewhere_are_verified_by_their_speeds_and_kept(tmp_path, monkeypatch):
    monkeypatch.setenv(registry.FOLDER, str(tmp_path / "own"))
    path = tmp_path / "given/network-traces.jsonl.gz"
    path.parent.mkdir()
    monkeypatch.setenv(registry.SEARCH, str(path.parent))
    network = Network(down_bits_per_second={"kind": "measured", "set": "oboe"})
    link = {"set": "oboe", "name": "x", "dt": 1.0, "down": [1.0, 3.0]}
    for count, words in ((1, "has 1 links of 'oboe' instead of 2"), (2, "does not hold the links of 'oboe'")):
        monkeypatch.setattr(traces, "SETS", {"oboe": LinkSet(2, "links", "none", "0" * 64)})
        path.write_bytes(gzip.compress("\n".join([json.dumps(link)] * count).encode()))
        traces._links.cache_clear()
        with pytest.raises(DataError, match=words):
            World(devices=3, network=network).realise(0)
    right = traces._digest([link, link])
    monkeypatch.setattr(traces, "SETS", {"oboe": LinkSet(2, "links", "none", right)})
    found = CliRunner().invoke(app, ["data", "import", str(path.parent)])
    assert found.output == f"measured links: 1 sets verified, kept as {tmp_path}/own/network-traces.jsonl.gz\n"
    path.unlink()
    assert World(devices=3, network=network).realise(0).profile(0, 0).down_bits_per_second == pytest.approx(2e6)
    up = Network(up_bits_per_second={"kind": "measured", "set": "oboe"})
    with pytest.raises(DataError, match="has no speeds up"):
        World(devices=3, network=up).realise(0)


def test_files_become_kinds(tmp_path: Path):
    (tmp_path / "link.csv").write_text("second,Mbit/s\n0,1.5\n1,0\n2,4\n")
    assert read_throughput(tmp_path / "link.csv").bits_per_second == ((1.5e6, 0.0, 4e6),)
    (tmp_path / "speed.csv").write_text("0.5\n2\n1e-1\n")
    assert read_compute(tmp_path / "speed.csv").seconds_per_step == (0.5, 2.0, 0.1)
    (tmp_path / "speed.csv").write_text("\ufeff.5\n+2\n", encoding="utf-8")
    assert read_compute(tmp_path / "speed.csv").seconds_per_step == (0.5, 2.0)
    (tmp_path / "phones.json").write_text('{"A": 100, "B": 200, "C": 400}')
    assert read_compute(tmp_path / "phones.json").seconds_per_step == (2.0, 1.0, 0.5)
    (tmp_path / "links.json").write_text('{"x": {"down_u": 2.0, "down_sigma": 1, "up_u": 0.5, "up_sigma": 1}}')
    links = read_bandwidth(tmp_path / "links.json")
    assert (links.down_bits_per_second, links.up_bits_per_second) == ((16384.0,), (4096.0,))
    users = {"a": {"active": [0, 50], "inactive": [10, 70], "finish_time": 100, "model": "X"},
             "b": {"active": [5], "inactive": [95], "finish_time": 96}}  # fmt: skip
    (tmp_path / "users.json").write_text(json.dumps(users))
    kind = read_availability(tmp_path / "users.json", devices=3)
    assert kind.windows == (((0, 10), (50, 70)), ((5, 95),), ((0, 10), (50, 70)))
    assert kind.period_seconds == 100
    World(devices=3, availability=kind).realise(0)


@pytest.mark.parametrize(
    ("reader", "content"),
    [
        (read_throughput, ""), (read_throughput, "a\nb\n"), (read_throughput, "1\n-2\n"),
        (read_throughput, "1\nnan\n"), (read_throughput, "nan\n1\n"), (read_throughput, "-1\n2\n"),
        (read_throughput, "1\ninf\n"), (read_throughput, "0\n0\n"), (read_compute, "0\n"), (read_compute, "\x00\xff"),
        (read_bandwidth, "{}"), (read_bandwidth, '{"x": {"down_u": 1}}'),
        (lambda path: read_availability(path, 2), "[1]"), (lambda path: read_availability(path, 2), "[" * 99_999),
        (lambda path: read_availability(path, 2), '{"a": {"active": [5], "inactive": [1], "finish_time": 9}}'),
        (lambda path: read_availability(path, 2), "{}"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_trace_is_refused_in_one_line(reader, content, tmp_path: Path):
    path = tmp_path / "given"
    path.write_text(content, encoding="latin-1")
    with pytest.raises(DataError) as refusal:
        reader(path)
    assert "\n" not in str(refusal.value)
    with pytest.raises(DataError, match="there is no"):
        reader(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("read", "said"),
    [
        (lambda path: read_throughput(path, step_seconds=-1), "step_seconds = -1 is not valid: it should be a num"),
        (lambda path: read_throughput(path, unit_bits=0), "unit_bits = 0 is not valid"),
        (lambda path: read_compute(path, per="hour"), "unknown unit 'hour' .valid: epoch, step"),
        (lambda path: read_availability(path, devices=0), "devices = 0 is not valid"),
    ],
)
def test_a_wrong_argument_is_not_laid_to_the_file(read, said, tmp_path: Path):
    (tmp_path / "speed.csv").write_text("1\n2\n")
    with pytest.raises(SpecError, match=said):
        read(tmp_path / "speed.csv")


def test_a_trace_that_fits_no_device_or_carries_nothing_is_refused():
    for speeds, words in (
        ([[1.0], [2.0]], "has 2 entries for devices = 3"),
        ([[0.0]], "one above 0"),
        ([[]], "trace 0"),
    ):
        with pytest.raises(ValidationError, match=words):
            World(devices=3, network={"up_bits_per_second": {"kind": "trace", "bits_per_second": speeds}})
