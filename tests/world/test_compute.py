"""Computing times have exactly the ranges and means that they are asked to have."""

from __future__ import annotations

from math import isnan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from refusals import refuses

from fl_core.streams import stream
from fl_core.tasks import POOLED
from fl_core.world import (
    ConstantCompute,
    ExponentialCompute,
    GapCompute,
    LogNormalCompute,
    RatioCompute,
    TraceCompute,
    UniformCompute,
    UniformTaskCompute,
    World,
)

RATIOS = st.floats(1, 1000)
SEEDS = st.integers(0, 2**32)


class Given:
    """A generator that draws what it is given."""

    def __init__(self, values: list[float]) -> None:
        self.values = values

    def random(self, count: int) -> np.ndarray:
        assert count == len(self.values)
        return np.array(self.values)


def test_sdfeel_speeds_are_those_of_the_specification():
    u = Given([0.2, 0.9, 0.5, 0.1, 0.7, 0.4])
    speeds = 1 / GapCompute(ratio=10).draw(6, u)
    printed = [0.414634146341, 1.9512195122, 1.07317073171, 0.19512195122, 1.51219512195, 0.853658536585]
    assert speeds == pytest.approx(printed, rel=1e-11)
    speeds = 1 / GapCompute(ratio=10, fixed="mean_time").draw(6, u)
    printed = [0.747295245078, 3.51668350625, 1.93417592844, 0.351668350625, 2.72542971734, 1.53854903398]
    assert speeds == pytest.approx(printed, rel=1e-11)


@given(RATIOS, st.sampled_from(["uniform", "loguniform", "two_class"]), st.integers(2, 50), SEEDS)
def test_a_gap_is_exact_and_the_mean_speed_fixed(ratio, distribution, devices, seed):
    compute = GapCompute(ratio=ratio, seconds_per_step=55.67, distribution=distribution)
    speeds = 55.67 / compute.draw(devices, np.random.default_rng(seed))
    assert speeds.max() / speeds.min() == pytest.approx(ratio, rel=1e-12)
    assert speeds.mean() == pytest.approx(1, rel=1e-12)
    seconds = compute.model_copy(update={"fixed": "fastest"}).draw(devices, np.random.default_rng(seed))
    assert seconds.min() == pytest.approx(55.67, rel=1e-12)


def test_two_classes_are_two_and_never_one():
    compute = GapCompute(ratio=4, distribution="two_class", fixed="fastest")
    assert (1 / compute.draw(5, Given([0.1, 0.2, 0.49, 0.3, 0.7]))).tolist() == [0.25, 0.25, 0.25, 0.25, 1]
    assert (1 / compute.draw(5, Given([0.1, 0.2, 0.49, 0.3, 0.4]))).tolist() == [0.25, 0.25, 1, 0.25, 0.25]
    assert (1 / compute.draw(4, Given([0.9, 0.5, 0.6, 0.7]))).tolist() == [1, 0.25, 1, 1]


@given(RATIOS, st.sampled_from(["uniform", "loguniform"]), st.integers(2, 50), SEEDS)
def test_a_ratio_is_exact(ratio, distribution, devices, seed):
    compute = RatioCompute(fastest=20, ratio=ratio, distribution=distribution)
    seconds = compute.draw(devices, np.random.default_rng(seed))
    assert seconds.min() == 20
    assert seconds.max() == pytest.approx(20 * ratio, rel=1e-14)


def test_the_fastest_and_the_slowest_device_are_drawn():
    draws = [RatioCompute().draw(10, stream(seed, "compute-speed")) for seed in range(200)]
    for extreme in (np.argmin, np.argmax):
        assert len({int(extreme(draw)) for draw in draws}) == 10
    middle = np.concatenate([np.sort(draw)[1:-1] for draw in draws])
    assert middle.mean() == pytest.approx(3, abs=0.1)


@pytest.mark.parametrize(("compute", "seconds"), [(GapCompute(seconds_per_step=7), 7), (RatioCompute(fastest=3), 3)])
def test_a_single_device_has_no_gap(compute, seconds):
    assert compute.draw(1, np.random.default_rng(0)).tolist() == [seconds]


@pytest.mark.parametrize(
    ("compute", "mean"),
    [
        (ExponentialCompute(mean=2), 2),
        (ExponentialCompute(shift=1, factors=(0.2, 0.8)), 1),
        (UniformTaskCompute(fastest=1, slowest=2), 1.5),
    ],
)
def test_times_drawn_anew_have_their_mean_and_depend_on_nothing_but_the_task(compute, mean):
    devices = World(devices=2000, compute=compute).realise(5)
    times = [devices.profile(device, trigger).seconds_per_step for device in range(2000) for trigger in (0, 1)]
    assert len(set(times)) == 4000
    assert np.mean(times) == pytest.approx(mean, rel=0.05)
    again = World(devices=2000, compute=compute).realise(5)
    assert [again.profile(device, 1).seconds_per_step for device in range(1999, -1, -1)] == times[::-2]


def test_what_was_there_before_draws_what_it_drew_before():
    rng = stream(3, "compute-speed")
    assert np.array_equal(World().realise(3).seconds, rng.uniform(1, 5, 100))
    world = World(devices=4, compute=LogNormalCompute(), jitter=0.3)
    seconds = np.exp(0.5 * stream(3, "compute-speed").standard_normal(4))
    factor = float(np.exp(0.3 * stream(3, "jitter", 2, 7).standard_normal()))
    assert world.realise(3).profile(2, 7).seconds_per_step == float(seconds[2]) * factor
    pooled = float(np.exp(0.3 * stream(3, "jitter", POOLED, 7).standard_normal()))
    assert world.realise(3).profile(POOLED, 7).seconds_per_step == float(seconds.mean()) * pooled


def test_a_cost_is_per_step_or_per_epoch():
    step = World(devices=1, compute=ConstantCompute(seconds_per_step=2)).realise(0).profile(0, 0)
    assert [step.train_seconds(steps, 4) for steps in (0, 1, 4, 8)] == [0, 2, 8, 16]
    epoch = World(devices=1, compute=ConstantCompute(seconds_per_step=20, per="epoch")).realise(0).profile(0, 0)
    assert [epoch.train_seconds(steps, 4) for steps in (0, 1, 4, 20)] == [0, 5, 20, 100]
    assert epoch.train_seconds(5 * 7, 7) == epoch.train_seconds(5 * 900, 900) == 100
    assert isnan(epoch.seconds_per_step)


def test_the_pooled_machine_works_at_the_mean_speed():
    devices = World(devices=3, compute=TraceCompute(seconds_per_step=(1, 2, 6))).realise(0)
    assert devices.profile(POOLED, 0).seconds_per_step == 3


test_impossible_times_are_refused = refuses(
    ValidationError,
    (lambda: GapCompute(ratio=0.9), "greater than or equal to 1"),
    (lambda: UniformCompute(fastest=3, slowest=2), "slowest = 2.0 seconds must not be below fastest = 3.0"),
    (lambda: UniformTaskCompute(fastest=3), "slowest = 2.0 seconds must not be below fastest = 3.0"),
    (lambda: ExponentialCompute(factors=(2, 1)), "a lower and an upper bound"),
    (lambda: World(devices=3, compute=TraceCompute(seconds_per_step=(1, 2))), "2 entries for devices = 3"),
)
