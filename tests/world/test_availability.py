"""Devices come and go in half-open windows."""

from __future__ import annotations

from itertools import pairwise
from math import inf, nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from refusals import refuses

from fl_core.errors import SpecError
from fl_core.tasks import POOLED
from fl_core.world import Devices, PeriodicAvailability, TraceAvailability, World
from fl_core.world.availability import Calendar


def realise(*windows: tuple[tuple[float, float], ...], period: float | None = None) -> Devices:
    availability = TraceAvailability(windows=windows, period_seconds=period)
    return World(devices=len(windows), availability=availability).realise(0)


@st.composite
def traces(draw: st.DrawFn) -> tuple[tuple[tuple[float, float], ...], float | None]:
    """Windows with whole numbers, some of which touch, and a period or none."""
    edges = draw(st.lists(st.integers(0, 12), max_size=8).map(sorted))
    windows = [(float(a), float(b)) for a, b in zip(edges[::2], edges[1::2], strict=False) if a < b]
    period = draw(st.none() | st.integers(12, 16).map(float))
    return tuple(windows), period


@st.composite
def worlds(draw: st.DrawFn) -> Devices:
    if draw(st.booleans()):
        windows, period = draw(traces())
        return realise(windows, period=period)
    period, part = draw(st.floats(0.1, 1000)), draw(st.floats(0.01, 0.99))
    phase = draw(st.sampled_from(["random", "zero"]))
    availability = PeriodicAvailability(period_seconds=period, available=part, phase=phase)
    return World(devices=1, availability=availability).realise(draw(st.integers(0, 100)))


TIMES = st.floats(0, 1e5) | st.integers(0, 60).map(float)


@given(worlds(), TIMES, st.floats(0, 1))
def test_between_a_departure_and_the_return_nobody_is_there_and_before_nobody_leaves(devices, t, part):
    back = devices.resume_at(0, t)
    assert back >= t
    if back > t:
        assert devices.leaves_at(0, t) == t
        between = t + part * (min(back, t + 100) - t)
        assert devices.resume_at(0, between) == (back if between < back else between)
    if back == inf:
        return
    assert devices.resume_at(0, back) == back
    gone = devices.leaves_at(0, back)
    assert gone > back
    between = back + part * (min(gone, back + 100) - back)
    if between < gone:
        assert devices.resume_at(0, between) == between
        assert devices.leaves_at(0, between) == gone
    if gone < inf:
        assert devices.resume_at(0, gone) > gone


@given(traces())
def test_a_trace_is_there_exactly_in_its_windows(trace):
    windows, period = trace
    devices = realise(windows, period=period)
    for half in range(100):
        t = half / 2
        inside = t % period if period else t
        there = any(start <= inside < stop for start, stop in windows)
        assert (devices.resume_at(0, t) == t) == there
        assert (devices.leaves_at(0, t) > t) == there


def test_repeated_windows_by_hand():
    devices = realise(((0, 1), (3, 4), (9, 10)), period=10)
    assert [devices.resume_at(0, t) for t in (0.5, 1, 4, 9.5, 10.5, 11, 1002, 1014)] == [
        *(0.5, 3, 9, 9.5, 10.5, 13, 1003, 1019)
    ]
    assert [devices.leaves_at(0, t) for t in (0.5, 3, 9, 10, 10.9, 103)] == [1, 4, 11, 11, 11, 104]


@pytest.mark.parametrize("windows", [((0, 10),), ((0, 4), (4, 10))])
def test_windows_that_fill_the_period_never_end(windows):
    devices = realise(windows, period=10)
    assert devices.always_available
    assert (devices.resume_at(0, 123.4), devices.leaves_at(0, 123.4)) == (123.4, inf)


def test_periodic_windows_by_hand():
    availability = PeriodicAvailability(period_seconds=10, available=0.3, phase="zero")
    devices = World(devices=2, availability=availability).realise(0)
    for device in (0, 1):
        assert [devices.resume_at(device, t) for t in (0, 2.9, 3, 9.9, 10, 25)] == [0, 2.9, 10, 10, 10, 30]
        assert [devices.leaves_at(device, t) for t in (0, 2.9, 10, 31)] == [3, 3, 13, 33]


def test_random_phases_are_uniform_and_everybody_is_there_for_the_same_part():
    availability = PeriodicAvailability(period_seconds=10, available=0.3)
    devices = World(devices=500, availability=availability).realise(1)
    gone = [devices.leaves_at(device, devices.resume_at(device, 0)) for device in range(500)]
    assert np.histogram(np.array(gone) % 10, bins=5, range=(0, 10))[0] == pytest.approx(100, abs=30)
    assert np.mean([devices.resume_at(device, 77.0) == 77 for device in range(500)]) == pytest.approx(0.3, abs=0.05)
    turns = [gone[7]]
    while turns[-1] < 1000:
        back = devices.resume_at(7, turns[-1])
        turns += [back, devices.leaves_at(7, back)]
    spans = [b - a for a, b in pairwise(turns)]
    assert spans[::2] == pytest.approx([7] * (len(spans) // 2))
    assert spans[1::2] == pytest.approx([3] * (len(spans) // 2))


def test_by_default_and_for_the_pooled_machine_everybody_is_always_there():
    for world in (World(), World(availability=PeriodicAvailability(period_seconds=1, available=1))):
        devices = world.realise(0)
        assert devices.always_available
        assert (devices.resume_at(3, 5), devices.leaves_at(3, 5)) == (5, inf)
    devices = realise(((1, 2),))
    assert (devices.resume_at(POOLED, 0), devices.leaves_at(POOLED, 5)) == (0, inf)


test_windows_that_cannot_be_are_refused = refuses(
    ValidationError,
    ({"windows": [[[2, 1]]]}, r"windows of device 0: \[2, 1\) must have its stop after its start"),
    ({"windows": [[], [[0, 2], [1, 3]]]}, r"windows of device 1: \[1, 3\) must .* which stops at 2 s"),
    ({"windows": [[[0, 5]]], "period_seconds": 4}, "reach to 5 s, beyond period_seconds = 4"),
    ({"windows": [[[-1, 5]]]}, "greater than or equal to 0"),
    by=lambda fields: TraceAvailability(**fields),
)


@pytest.mark.parametrize("windows", [((5, 1),), ((0, 3), (2, 4)), ((nan, 3),)])
def test_windows_of_one_s_own_are_in_order(windows):
    with pytest.raises(SpecError, match="must begin after the one before it, and end after that"):
        Calendar([windows], None)


def test_a_trace_must_fit_the_devices():
    with pytest.raises(ValidationError, match="availability trace has 1 entries for devices = 2"):
        World(devices=2, availability=TraceAvailability(windows=(((0, 1),),)))
