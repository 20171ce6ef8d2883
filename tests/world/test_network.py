"""Transfers cost what bandwidth and latency say."""

from __future__ import annotations

import numpy as np
import pytest
from pydantic import ValidationError
from refusals import refuses

from fl_core.tasks import POOLED
from fl_core.world import Network, UniformBandwidth, World


def network(devices: int, **fields: object) -> World:
    return World.model_validate({"devices": devices, "network": fields})


def test_by_default_nothing_costs_anything():
    profile = World().realise(0).profile(3, 0)
    assert profile.down_seconds(10**9) == profile.up_seconds(10**9) == 0


def test_a_transfer_takes_bits_over_bandwidth_and_the_latency():
    devices = network(2, down_bits_per_second=8000, up_bits_per_second=[800, 1600], latency_seconds=0.25).realise(0)
    assert [devices.profile(device, 0).down_seconds(1000) for device in (0, 1, POOLED)] == [1.25, 1.25, 1.25]
    assert [devices.profile(device, 0).up_seconds(1000) for device in (0, 1)] == [10.25, 5.25]
    assert devices.profile(POOLED, 0).up_bits_per_second == 1200
    assert devices.profile(0, 0).up_seconds(0.5) == 0.255


def test_one_number_reaches_every_device_unchanged():
    devices = network(7, up_bits_per_second=0.1).realise(0)
    assert {devices.profile(device, 0).up_bits_per_second for device in range(-1, 7)} == {0.1}
    assert {devices.profile(device, 0).down_bits_per_second for device in range(-1, 7)} == {None}


def test_bandwidths_in_equal_steps():
    devices = network(4, down_bits_per_second={"kind": "linspace", "first": 10, "last": 40}).realise(0)
    assert [devices.profile(device, 0).down_bits_per_second for device in range(4)] == [10, 20, 30, 40]


def test_uniform_bandwidths_stay_in_their_bounds_and_differ_by_direction_and_seed():
    spread = UniformBandwidth(slowest=1, fastest=3)
    world = World(devices=1000, network=Network(down_bits_per_second=spread, up_bits_per_second=spread))
    drawn = [
        [getattr(world.realise(seed).profile(device, 0), f"{way}_bits_per_second") for device in range(1000)]
        for seed in (0, 1)
        for way in ("down", "up")
    ]
    assert all(min(speeds) >= 1 and max(speeds) <= 3 for speeds in drawn)
    assert np.mean(drawn, axis=1) == pytest.approx(2, abs=0.1)
    assert len({tuple(speeds) for speeds in drawn}) == 4


test_what_is_no_bandwidth_is_refused_with_what_would_be_one = refuses(
    ValidationError,
    (-1, "-1 is not valid: it should be a number > 0, a list with one for each device, null"),
    ([1, 0], r"\[1, 0\] is not valid"),
    ("fast", "'fast' is not valid"),
    (float("inf"), "inf is not valid"),
    ({"kind": "unifrm"}, "{'kind': 'unifrm'} is not valid"),
    ({"kind": "uniform", "slowest": 2, "fastest": 1}, "fastest = 1.0 bits per second must not be below slowest"),
    ([1, 2, 3], "up_bits_per_second has 3 entries for devices = 2"),
    by=lambda value: network(2, up_bits_per_second=value),
)
