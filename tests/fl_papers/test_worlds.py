"""What the papers' worlds have that no grid of tests/frozen holds: other options, and times in seconds."""

from __future__ import annotations

import numpy as np
import pytest

from fl_core.experiments.spec import RunSpec
from fl_core.world import World
from fl_core.world.triggers import Timed

RESNET18 = 4 * 11_173_962
"""Bytes of the model."""


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


def test_sdfeels_steps_may_cost_what_ten_samples_do():
    cheap = World.named("sdfeel", step_cost="flop_consistent").realise(0)
    assert np.mean(5.5665152 / cheap.seconds) == pytest.approx(1, rel=1e-12)


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
