"""A world's name stands for its fields, wherever the name was given and wherever its class is defined."""

from __future__ import annotations

import subprocess
import sys
from typing import ClassVar

import pytest

from fl_core.cli.catalogue import text_of
from fl_core.errors import SpecError
from fl_core.experiments.spec import RunSpec
from fl_core.world import NamedWorld, PeriodicAvailability, World, named_worlds


@pytest.mark.parametrize("name", named_worlds())
def test_a_name_stands_for_fields_and_nothing_else(name):
    sgd = {"algorithm": "sgd"}
    spec = RunSpec(**sgd, world=name)
    assert spec.world == World.named(name) == World(name=name) == RunSpec(**sgd, world=f"{name}()").world
    assert "name" not in spec.to_dict()["world"]
    assert RunSpec(**sgd, world=spec.to_dict()["world"]).hash == spec.hash == RunSpec.from_json(spec.to_json()).hash
    assert len(spec.world.realise(0)) == spec.world.devices


def test_settings_and_fields_can_be_given_with_the_name():
    by_text = World.model_validate("fedasmu(devices=50, ratio=110, cell=vgg-cifar10)")
    assert by_text == World.named("fedasmu", devices=50, ratio=110, cell="vgg-cifar10")
    away = PeriodicAvailability(period_seconds=60, available=0.5)
    changed = World.named("fedasmu", devices=50, jitter=0.1, availability=away, trigger=None)
    assert (changed.trigger, changed.jitter, changed.availability) == (None, 0.1, away)
    assert changed.compute == World.named("fedasmu").compute
    spec = RunSpec(algorithm="sgd").changed(**{"world.name": "fedasmu", "world.devices": 50})
    away = '{"kind": "periodic", "period_seconds": 60, "available": 0.5}'
    faults = '[{"kind": "lost"}, {"kind": "crash", "down_seconds": 2}]'
    trigger = '"timed(period_seconds=5, per_tick=2)"'
    fields = World.model_validate(f"fedasmu(availability={away}, devices=50 , faults={faults}, trigger={trigger})")
    assert (fields.devices, [fault.kind for fault in fields.faults]) == (50, ["lost", "crash"])
    assert fields.availability == PeriodicAvailability(period_seconds=60, available=0.5)
    assert (fields.trigger.period_seconds, fields.trigger.per_tick) == (5, 2)
    assert spec.world == World.named("fedasmu", devices=50)


@pytest.mark.parametrize(
    ("world", "says"),
    [
        ("fedasmo", "unknown world 'fedasmo'; did you mean 'fedasmu'? (valid: fedasmu, fedasync, fedluck, "),
        ({"name": 3}, "unknown world 3 (valid: "),
        ("fedasmu(50)", "cannot read the world 'fedasmu(50)': '50' is not name=value; write for example"),
        ("fedasmu(devices=50", "cannot read the world 'fedasmu(devices=50'"),
        ("fedasmu(50, ratio=3)", "cannot read the world 'fedasmu(50, ratio=3)'"),
        ("fedasmu(ratio=, devices=50)", "cannot read the world 'fedasmu(ratio=, devices=50)'"),
        ({"name": "fedasmu", "ratoi": 9}, "unknown setting 'ratoi' of world fedasmu; did you mean 'ratio'? (valid: "),
        ({"name": "fedasmu", "ratio": 0.5}, "world fedasmu: ratio = 0.5 is not valid: it should be greater than "),
        ("fedluck(cell=cn)", "world fedluck: cell = 'cn' is not valid: it should be 'cnn', 'vgg11s' or 'lstm'"),
        ("fedluck(devices=1)", "world fedluck: devices = 1 is not valid: it should be greater than or equal to 2"),
        ("sdfeel(devices=3)", "world sdfeel: clusters: servers = 6 must not exceed devices = 3"),
        ({"name": "wkafl", "jitter": -1}, "world wkafl: jitter = -1 is not valid"),
        ({"name": "wkafl", "network": {"up_bits_per_second": 0}}, "world wkafl: network.up_bits_per_second: 0 is "),
    ],
)
def test_a_wrong_name_or_setting_is_one_clear_line(world, says):
    for make in (
        lambda: RunSpec(algorithm="sgd", world=world),
        lambda: RunSpec(algorithm="sgd").changed(world=world),
    ):
        with pytest.raises(SpecError) as caught:
            make()
        assert says in str(caught.value)
        assert "\n" not in str(caught.value)


def test_the_command_line_lists_them_with_their_settings():
    text = text_of("worlds", 100)
    for name, settings in named_worlds().items():
        assert f"\n{name} " in f"\n{text}"
        assert all(f"    {field} " in text for field in settings.model_fields)
    assert "server_restart" in text_of("faults")
    assert "most tasks in flight" in " ".join(text_of("triggers", 100).lower().split())
    assert all(kind in text_of(None) for kind in ("uniform_per_task", "erdos_renyi", "periodic"))


def test_a_class_with_a_name_is_known_as_soon_as_it_is_defined(monkeypatch):
    monkeypatch.setattr("fl_core.world.world.REGISTERED", dict(named_worlds()))

    class Pair(NamedWorld):
        name: ClassVar[str] = "pair"
        devices: int = 2

        def world(self) -> World:
            return World(devices=self.devices, jitter=0.5)

    assert World.named("pair") == World(devices=2, jitter=0.5) == World.model_validate("pair(devices=2)")
    assert "pair" in named_worlds()


@pytest.mark.thorough
def test_no_paper_is_imported_before_a_name_is_looked_up():
    program = """
import sys
import fl_core
from fl_core.world import World
assert not any("fl_papers" in name for name in sys.modules)
World.named("fedluck")
assert "fl_papers.fedluck.experiment" in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
