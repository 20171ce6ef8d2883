"""A world is one value: what it does not say is as it always was, and what cannot be is refused."""

from __future__ import annotations

import json
import lzma
import tracemalloc

import pytest

from fl_core.datasets import data_folder
from fl_core.errors import SpecError
from fl_core.experiments.spec import RunSpec
from fl_core.world import World


def test_a_published_run_from_before_these_fields_keeps_its_name_and_its_world():
    """That every published run can be read: tests/experiments/test_store.py."""
    names, older = set(), []
    for path in (data_folder() / "results").glob("*.jsonl.xz"):
        index, *records = lzma.decompress(path.read_bytes()).splitlines()
        names |= json.loads(index)["runs"].keys()
        older += [json.loads(line)["content"]["spec"] for line in records if b'"availability"' not in line]
    assert len(older) >= 51
    for spec in map(RunSpec.model_validate, older):
        world = spec.world
        assert (world.availability, world.clusters, world.trigger, world.faults) == (None, None, None, ())
        assert world.compute.per == "step"
        assert spec.hash in names


TROUBLE = [
    {"kind": "lost", "probability": 0.2},
    {"kind": "crash", "devices": [1, 2], "down_seconds": 3.0, "start_seconds": 1.0, "stop_seconds": 9.0},
    {"kind": "server_restart", "at_seconds": [5.0, 8.0]},
]


def test_every_field_changes_the_name_of_a_run_and_a_default_that_is_written_down_does_not():
    parts = [
        {},
        {"availability": {"kind": "periodic", "period_seconds": 9, "available": 0.5}},
        {"clusters": {}},
        {"clusters": {"graph": {"kind": "star"}}},
        {"compute": {"kind": "uniform", "per": "epoch"}},
        {"compute": {"kind": "ratio"}},
        {"network": {"up_bits_per_second": {"kind": "uniform", "slowest": 1, "fastest": 2}}},
        {"network": {"up_bits_per_second": [1e6] * 100}},
        *({"trigger": {"kind": kind}} for kind in ("timed", "rounds")),
        {"trigger": {"kind": "timed", "period_seconds": 5}},
        *({"faults": [{"kind": kind}]} for kind in ("lost", "delayed")),
        *({"faults": some} for some in (TROUBLE[:1], TROUBLE, TROUBLE[::-1])),
    ]
    specs = [RunSpec(algorithm="sgd", world=part) for part in parts]
    assert len({spec.hash for spec in specs}) == len(specs)
    assert all(RunSpec.from_json(spec.to_json()) == spec for spec in specs)
    timed, lost = {"kind": "timed", "period_seconds": 10.0}, {"kind": "lost", "probability": 0.1}
    for written in ({"faults": []}, {"trigger": timed}, {"faults": [lost]}):
        assert RunSpec(algorithm="sgd", world=written).hash in {spec.hash for spec in specs}


def test_a_million_devices_are_small():
    spread = {"kind": "uniform", "slowest": 1e6, "fastest": 1e7}
    world = World(
        devices=10**6,
        compute={"kind": "ratio"},
        network={"down_bits_per_second": 1e6, "up_bits_per_second": spread},
        availability={"kind": "periodic", "period_seconds": 60, "available": 0.5},
        clusters={"servers": 1000},
    )
    tracemalloc.start()
    devices = world.realise(0)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 30e6
    last = devices.profile(10**6 - 1, 0)
    assert last.up_seconds(1000) == 8000 / last.up_bits_per_second
    assert devices.server_of(10**6 - 1) == 999


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"max_staleness": 4, "trigger": {"kind": "timed"}}, "max_staleness draws the staleness and so excludes "),
        ({"devices": 5, "trigger": {"kind": "rounds"}}, "trigger wants 10 devices at once, but the world has"),
        ({"trigger": {"kind": "continuous", "concurrency": 101}}, "trigger wants 101 devices at once, but the world"),
        ({"trigger": {"kind": "timed", "period_seconds": 0}}, "world.trigger.period_seconds = 0 is not valid: it"),
        ({"trigger": {"kind": "rounds", "devices": 2.5}}, "devices = 2.5 is not valid: it should be an integer >= 1"),
        ({"availability": {"kind": "perodic"}}, "world.availability.kind = 'perodic' is not valid; did you mean "),
        ({"availability": {"kind": "periodic"}}, "world.availability.available is missing: it should be a number in"),
        ({"clusters": {"graph": {"kind": "rng"}}}, "world.clusters.graph.kind = 'rng' is not valid; did you mean"),
        ({"compute": {"kind": "gap", "ratio": 0.5}}, "world.compute.ratio = 0.5 is not valid: it should be a number"),
        ({"compute": {"kind": "gap", "per": "task"}}, "world.compute.per = 'task' is not valid: it should be one of"),
        ({"network": {"up_bits_per_second": -1}}, "world.network.up_bits_per_second: -1 is not valid: it should be"),
        ({"clusters": {}, "max_staleness": 4}, "max_staleness = 4: drawn staleness has one server; set cluster"),
        ({"clusters": {}, "trigger": {"kind": "sampled"}}, "trigger: drawn staleness has one server; set cluster"),
        (3, "world = 3 is not valid: it should be an object with the fields devices, compute, "),
        *(({"faults": [fault]}, says) for fault, says in (
            ({"kind": "crash", "down": 1}, "unknown field 'world.faults[0].down' of kind 'crash'; did you mean 'd"),
            ({"kind": "crash", "down_seconds": -1}, "world.faults[0].down_seconds = -1 is not valid"),
            ({"kind": "delayed", "mean_seconds": 0}, "world.faults[0].mean_seconds = 0 is not valid: it should be"),
            ({"kind": "corrupted", "how": "nann"}, "one of 'nan', 'inf', 'length', 'scaled'; did you mean 'nan'?"),
            ({"kind": "corrupted", "factor": float("inf")}, "factor = inf is not valid: it should be a finite"),
            ({"kind": "lost", "devices": [3, 100]}, "faults: there is no device 100 for devices = 100"),
            ({"kind": "lost", "devices": []}, "devices = [] strikes nobody; leave it out for all devices"),
            ({"kind": "lost", "start_seconds": 5, "stop_seconds": 2},
             "world.faults[0]: stop_seconds = 2 should be larger than start_seconds = 5"),
            ({"kind": "server_restart"}, "world.faults[0].at_seconds is missing"),
            ({"kind": "server_restart", "at_seconds": []}, "at_seconds = [] is no restart; give at least one time"),
            ({"kind": "server_restart", "at_seconds": [1], "probability": 0.5},
             "probability does not apply to server_restart, which happens at at_seconds"),
        )),
    ],
)  # fmt: skip
def test_a_world_that_cannot_be_is_refused_in_one_line(fields, says):
    with pytest.raises(SpecError) as caught:
        RunSpec(algorithm="sgd", world=fields)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
