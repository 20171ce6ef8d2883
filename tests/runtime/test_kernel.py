"""The virtual clock: nothing lost, nothing twice, time never goes back, one order of events."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fl_core.errors import RunError, SpecError
from fl_core.runtime.kernel import Kernel, Kind, Process, StopRun, park, sleep_until

EVENTS = st.lists(
    st.tuples(st.integers(0, 5), st.sampled_from(list(Kind)), st.integers(0, 3)), min_size=1, max_size=60
)


def run_to_the_end(kernel: Kernel) -> None:
    with pytest.raises(RunError, match="nothing is left to happen"):
        kernel.run()


@given(EVENTS)
def test_every_event_happens_once_in_order_of_time_kind_and_dispatch(events):
    kernel, seen = Kernel(), []
    for number, (time, kind, order) in enumerate(events):
        kernel.at(float(time), kind, order, lambda key=(time, kind, order, number): seen.append((kernel.now, key)))
    run_to_the_end(kernel)
    assert [key for _, key in seen] == sorted((t, k, o, n) for n, (t, k, o) in enumerate(events))
    assert [now for now, _ in seen] == [float(key[0]) for _, key in seen]
    assert kernel.events == len(events)


@given(st.permutations(list(Kind)))
def test_at_one_instant_kinds_come_in_the_documented_order(kinds):
    kernel, seen = Kernel(), []
    for kind in kinds:
        kernel.at(1.0, kind, 0, lambda kind=kind: seen.append(kind))
    run_to_the_end(kernel)
    assert seen == [Kind.PROGRESS, Kind.ARRIVAL, Kind.REQUEST, Kind.TICK, Kind.EVALUATION]


@settings(max_examples=30)
@given(st.integers(0, 20), st.floats(0, 5))
def test_a_failing_process_stops_the_run_and_the_message_names_it_the_time_and_the_cause(bystanders, when):
    kernel, closed = Kernel(), []

    async def bystander() -> None:
        try:
            await park()
        finally:
            closed.append(1)

    async def failing() -> None:
        await sleep_until(when, Kind.PROGRESS)
        raise ZeroDivisionError("speed is zero")

    for _ in range(bystanders):
        kernel.spawn(Process(bystander(), "bystander"))
    kernel.spawn(Process(failing(), "device 7"))
    with pytest.raises(RunError) as caught:
        kernel.run()
    assert str(caught.value) == f"device 7 failed at t = {when:g} s: ZeroDivisionError: speed is zero"
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert len(closed) == bystanders


def test_an_error_that_is_already_a_sentence_is_not_dressed_up():
    kernel = Kernel()

    async def failing() -> None:
        raise SpecError("lr = -1 must be positive")

    kernel.spawn(Process(failing(), "the updater"))
    with pytest.raises(RunError, match=r"^the updater failed at t = 0 s: lr = -1 must be positive$"):
        kernel.run()


def test_stop_ends_the_run_at_once():
    kernel, seen = Kernel(), []

    async def stopper() -> None:
        await sleep_until(1.0, Kind.TICK)
        raise StopRun

    kernel.spawn(Process(stopper(), "stopper"))
    kernel.at(2.0, Kind.TICK, 0, lambda: seen.append("late"))
    kernel.run()
    assert kernel.now == 1.0
    assert seen == []


@pytest.mark.parametrize("time", [-1.0, float("nan")])
def test_the_past_cannot_be_scheduled(time):
    with pytest.raises(ValueError, match="already t = 0"):
        Kernel().at(time, Kind.TICK, 0, lambda: None)
