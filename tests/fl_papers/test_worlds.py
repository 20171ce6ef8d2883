"""The papers' worlds have the numbers of their specifications."""

from __future__ import annotations

import numpy as np
import pytest

from fl_core.experiments.spec import RunSpec
from fl_core.world import World
from fl_core.world.triggers import Continuous, Timed

MIB = 2**20
CNN, RESNET18 = 4 * 234_090, 4 * 11_173_962
"""Bytes of the papers' models."""


def test_fedlucks_lists_are_the_official_ones():
    ten = World.named("fedluck").realise(0)
    assert ten.seconds == pytest.approx([0.4, 1.1 / 3, 1 / 3, 0.3, 0.8 / 3, 0.7 / 3, 0.2, 0.5 / 3, 0.4 / 3, 0.1])
    full = [8.929824829, 29.76608276, 6.697368622, 5.953216553, 5.357894897]
    full += [4.870813543, 4.464912415, 4.121457613, 3.827067784, 3.571929932]
    assert [ten.profile(device, 0).up_seconds(CNN) for device in range(10)] == pytest.approx(full, rel=1e-9)
    assert ten.profile(1, 0).down_seconds(CNN) == 0
    five = World.named("fedluck", devices=5, cell="lstm").realise(0)
    assert five.seconds == pytest.approx(0.15 * np.array([4, 3.25, 2.5, 1.75, 1]))
    speeds = [five.profile(device, 0).up_bits_per_second for device in range(5)]
    assert np.array(speeds) / 8 / MIB == pytest.approx([0.1, 0.03, 0.175, 0.2125, 0.25])
    assert World.named("fedluck", devices=5).trigger == Continuous(concurrency=5)


def test_fedlucks_random_variant_draws_from_the_printed_ranges():
    world = World.named("fedluck", lists="random", devices=200)
    devices = world.realise(0)
    speeds = np.array([devices.profile(device, 0).up_bits_per_second for device in range(200)])
    assert 0.1 <= devices.seconds.min() < 0.12 < 0.38 < devices.seconds.max() <= 0.4
    assert 0.25e6 <= speeds.min() < 0.3e6 < 1.9e6 < speeds.max() <= 2e6
    assert abs(np.corrcoef(speeds, devices.seconds)[0, 1]) < 0.2
    assert not np.array_equal(world.realise(1).seconds, devices.seconds)


def test_sdfeels_upload_and_exchange_last_as_long_as_the_specification_says():
    """Iterations, for the specification's draw of speeds, are the table sdfeel-latency."""
    devices = World.named("sdfeel", heterogeneity_gap=5).realise(0)
    link = devices.profile(0, 0).up_seconds(RESNET18) + devices.backhaul_seconds
    assert link == pytest.approx(107.2700352, rel=1e-12)


def test_sdfeel_is_a_ring_of_six_with_the_gap_asked_for():
    devices = World.named("sdfeel", heterogeneity_gap=30).realise(4)
    assert [devices.neighbours(server) for server in (0, 3)] == [(1, 5), (2, 4)]
    assert [devices.members(server) for server in (0, 5)] == [range(0, 5), range(25, 30)]
    assert devices.seconds.max() / devices.seconds.min() == pytest.approx(30, rel=1e-12)
    assert np.mean(55.67 / devices.seconds) == pytest.approx(1, rel=1e-12)
    assert devices.profile(0, 0).down_seconds(RESNET18) == 0


def test_sdfeel_shrinks_without_changing_its_order():
    """D12: a tenth of the mini-batches and of both communication times, for a model of another size."""
    devices = World.named("sdfeel", parameters=61_706, communication=0.1).realise(0)
    assert devices.profile(0, 0).up_seconds(4 * 61_706) == pytest.approx(7.15133568, rel=1e-12)
    assert devices.backhaul_seconds == pytest.approx(3.57566784, rel=1e-12)
    cheap = World.named("sdfeel", step_cost="flop_consistent").realise(0)
    assert np.mean(5.5665152 / cheap.seconds) == pytest.approx(1, rel=1e-12)


@pytest.mark.parametrize("ratio", [5, 110, 220, 330, 440])
def test_fedasmus_slowest_device_takes_exactly_that_much_longer(ratio):
    devices = World.named("fedasmu", ratio=ratio).realise(2)
    sessions = [devices.profile(device, 0).train_seconds(5 * 12, 12) for device in range(100)]
    assert (min(sessions), max(sessions)) == (pytest.approx(100), pytest.approx(100 * ratio))
    assert sessions == [devices.profile(device, 9).train_seconds(5 * 3, 3) for device in range(100)]


@pytest.mark.parametrize(("slower", "seconds"), [(1, 1), (50, 50), (100, 100)])
@pytest.mark.parametrize(("cell", "parameters"), [("lenet-fmnist", 61_706), ("vgg-cifar100", 9_271_780)])
def test_fedasmus_transfers_take_a_hundredth_of_the_fastest_training(slower, seconds, cell, parameters):
    profile = World.named("fedasmu", slower_network=slower, cell=cell).realise(0).profile(0, 0)
    assert profile.down_seconds(4 * parameters) == pytest.approx(seconds, rel=1e-12)
    assert profile.up_seconds(4 * parameters) == pytest.approx(seconds, rel=1e-12)


@pytest.mark.parametrize(("devices", "cap"), [(5, 1), (50, 5), (100, 10), (200, 20)])
def test_fedasmu_has_a_tenth_of_its_devices_at_work(devices, cap):
    assert World.named("fedasmu", devices=devices).trigger == Timed(period_seconds=10, per_tick=10, concurrency=cap)


def test_fedasmus_text_starts_one_device_every_five_seconds():
    assert World.named("fedasmu", ticks="text").trigger == Timed(period_seconds=5, per_tick=1, concurrency=10)


@pytest.mark.parametrize("law", ["exponential", "shifted_exponential", "uniform", "constant"])
def test_wkafls_durations_have_mean_one(law):
    devices = World.named("wkafl", devices=3000, law=law).realise(0)
    times = [devices.profile(device, 0).train_seconds(1, 8) for device in range(3000)]
    assert np.mean(times) == pytest.approx(1, rel=0.05)
    # The factor a, uniform on [0.2, 0.8], has the second moment 0.28, and 1 + exponential(1) has 5.
    variance = {"exponential": 1, "shifted_exponential": 0.28 * 5 - 1, "uniform": 1 / 3, "constant": 0}
    assert np.var(times) == pytest.approx(variance[law], rel=0.1)


@pytest.mark.parametrize("staleness", [4, 16])
def test_fedasyncs_world_is_the_one_of_the_published_runs(staleness):
    world = {"compute": {"kind": "constant", "seconds_per_step": 1.0}, "max_staleness": staleness}
    named = RunSpec(algorithm="fedasync", world={"name": "fedasync", "max_staleness": staleness})
    assert named.hash == RunSpec(algorithm="fedasync", world=world).hash
