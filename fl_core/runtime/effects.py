"""What the effects of a device program take: virtual time, with faults and absences; and their record.

A resumed run brings a new coroutine to where the old one waited by answering its effects from that record: see
:mod:`fl_core.runtime.checkpoint`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from copy import deepcopy
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from fl_core.errors import RunError
from fl_core.runtime.executors import Ticket
from fl_core.runtime.kernel import Crashed, Kind, sleep_until
from fl_core.runtime.local import Job
from fl_core.runtime.messages import Snapshot
from fl_core.tasks import POOLED
from fl_core.world import DeviceProfile
from fl_core.world.faults import Fault, Interruption, Message

if TYPE_CHECKING:
    from fl_core.runtime.server import ServerHandle
    from fl_core.runtime.simulation import Simulation

MOST_WINDOWS = 10_000
"""So many windows of availability may a device need for one activity."""


class Effects:
    """One task of one device, as the runtime sees it."""

    _snapshot: Snapshot | None
    _calls = _steps = _samples = 0
    _loss = float("nan")
    _sent = False
    _saved_bytes = 0.0
    _velocity: Tensor | None = None
    _struck: Sequence[tuple[Fault, np.random.Generator]] = ()
    # What a resumed run needs to bring a new coroutine to where this one waits.
    _journal: list[tuple[Any, ...]]
    _replay: deque[tuple[Any, ...]] = deque()
    _resuming = False
    _state_before: dict[str, Any] | None = None

    def __init__(
        self,
        run: Simulation,
        server: ServerHandle,
        device: int,
        trigger: int,
        task: int,
        snapshot: Snapshot,
        seconds: float | None,
        reserved: bool,
    ) -> None:
        self._run, self._server, self.id, self.trigger, self._task = run, server, device, trigger, task
        self._snapshot = self._trigger_snapshot = snapshot
        self._seconds, self._reserved = seconds, reserved
        self._triggered_at = run.kernel.now
        self.profile: DeviceProfile = run.devices.profile(device, trigger)
        if not run.plain:
            self._struck = run.strike(device, trigger)
            if run.checkpointing:
                self._journal = []
                self._state_before = run.copy_of_state(device)

    def end(self) -> None:
        """Note that the program is over."""
        del self._run.running[self._task]
        self._server.ended(self)

    def __str__(self) -> str:
        return "the pooled device" if self.id == POOLED else f"device {self.id}"

    @property
    def now(self) -> float:
        """Virtual time, seconds."""
        return self._run.kernel.now

    @property
    def state(self) -> dict[str, Any]:
        """Plain data that the device keeps between triggers."""
        return self._run.device_state.setdefault(self.id, {})

    async def _send(self, payload: dict[str, Any], seconds: float, size: float) -> dict[str, Any] | None:
        """Let the transfer pass, with what goes wrong; return what arrives, or None if that is nothing (any more)."""
        messages = [Message(payload)]
        for fault, rng in self._struck:
            if not messages:
                break
            sent = fault.send(messages, rng)
            if sent is not messages:
                self._log(fault, self._run.kernel.now)
            messages = sent
        messages.sort(key=lambda message: message.delay)
        if messages:
            seconds += messages[0].delay
            if len(messages) > 1:
                first = self._intervals(seconds, ())[-1][1]
                for number, copy in enumerate(messages[1:]):
                    self._send_again(first + (copy.delay - messages[0].delay), size, number)
        if not self._replay:
            await self._pass("upload", seconds, Kind.ARRIVAL)
        self._sent = True
        if self._replay:
            self._replayed()
        elif messages:
            return messages[0].payload
        else:
            self._server.lose(self)
            self._record()
        return None

    async def _request(self, than: int = -1) -> Any:
        """Ask the server for a model newer than version `than`, or return None.

        It answers after the arrivals of that instant, and when it is up.
        """
        if self._replay:
            return self._replayed()
        kernel = self._run.kernel
        self._resuming = False
        await sleep_until(max(kernel.now, self._server.up_at), Kind.REQUEST)
        while kernel.now < self._server.up_at:  # it went down again meanwhile
            await sleep_until(self._server.up_at, Kind.REQUEST)
        snapshot = self._server.send_snapshot(than)
        self._record(snapshot)
        return snapshot

    async def _work(self, job: Job, seconds: float, newest: bool = False) -> Any:
        """Have `job` computed while its virtual `seconds` pass, with what interrupts it.

        With `newest` it is computed when they have passed, and starts from the server's model of that time.
        """
        run = self._run
        if run.plain:
            finish = run.kernel.now + seconds
            ticket = None if newest else run.executor.submit(job, finish)
            await sleep_until(finish, Kind.PROGRESS)
            return run.executor.result(ticket or self._on_newest(job))
        pauses = []
        for fault, rng in self._struck if seconds else ():
            pause = fault.interrupt(seconds, rng)
            if pause is not None:
                pauses.append((pause, fault))
        if self._replay:
            return self._replayed()
        if not pauses and run.devices.always_available:
            ticket = None if newest else run.executor.submit(job, run.kernel.now + seconds)
            await self._pass("train", seconds, Kind.PROGRESS)
            result = run.executor.result(ticket or self._on_newest(job))
        else:
            result = await self._interrupted(job, seconds, pauses, newest)
        self._record(result)
        return result

    def _on_newest(self, job: Any) -> Ticket:
        """Submit `job` with the server's present model as its start."""
        job.start = self._server.model
        return self._run.executor.submit(job, self._run.kernel.now)

    async def _interrupted(
        self, job: Job, seconds: float, struck: list[tuple[Interruption, Fault]], newest: bool
    ) -> Any:
        """Have `job` computed although its device is called away, or crashes before it is done."""
        run = self._run
        struck.sort(key=lambda pair: pair[0].after)
        pauses: list[Interruption] = []
        crash = None
        for pause, fault in struck:
            if pause.fatal:
                crash, seconds = (pause, fault), pause.after
                break
            begins = self._intervals(pause.after, pauses)[-1][1]
            if begins < inf:
                self._log(fault, begins)
            pauses.append(pause)
        finish = self._intervals(seconds, pauses)[-1][1]
        submitted = crash is None and finish < inf and not newest
        ticket = run.executor.submit(job, finish) if submitted else None
        await self._pass("train", seconds, Kind.PROGRESS, pauses)
        if crash is not None:
            self._log(crash[1], run.kernel.now)
            self._server.lose(self)
            if self._reserved and crash[0].seconds > 0:
                run.timers.keep_away(self.id, crash[0].seconds)
                if run.tracing:
                    until = run.kernel.now + crash[0].seconds
                    run.trace(self._task, self.id, "down", run.kernel.now, until, self._trigger_snapshot.version)
            raise Crashed
        return run.executor.result(ticket or self._on_newest(job))

    async def _spend(self, activity: str, seconds: float) -> None:
        """Let virtual time pass, if it is any."""
        if seconds > 0:
            if self._replay:
                self._replayed()
                return
            await self._pass(activity, seconds, Kind.PROGRESS)
            self._record()

    async def _pass(self, activity: str, seconds: float, kind: Kind, pauses: Sequence[Interruption] = ()) -> None:
        """Let the time of an activity pass; a device that goes away for good never ends it."""
        run = self._run
        intervals = self._intervals(seconds, pauses)
        finish = intervals[-1][1]
        if run.tracing and not self._resuming and finish > run.kernel.now:
            before = run.kernel.now
            for start, stop in intervals:
                for what, first, last in (("down", before, start), (activity, start, stop)):
                    if first < last < inf:
                        run.trace(self._task, self.id, what, first, last, self._trigger_snapshot.version)
                before = stop
        self._resuming = False
        if finish == inf:
            await sleep_until(max([run.kernel.now, *(stop for _, stop in intervals if stop < inf)]), Kind.PROGRESS)
            self._server.lose(self)
            raise Crashed
        await sleep_until(finish, kind)

    def _intervals(self, seconds: float, pauses: Sequence[Interruption]) -> list[tuple[float, float]]:
        """Return from when to when the device works on something that takes `seconds` and begins now.

        Raises
        ------
        RunError
            If it comes and goes more than :data:`MOST_WINDOWS` times meanwhile.
        """
        run, intervals = self._run, []
        time, done = run.kernel.now, 0.0
        windows = not run.devices.always_available and self.id != POOLED and self._seconds is None
        for after, away in [*((pause.after, pause.seconds) for pause in pauses), (seconds, 0.0)]:
            left = after - done
            if windows:
                time = run.devices.resume_at(self.id, time)
                while (stop := run.devices.leaves_at(self.id, time)) < time + left:
                    intervals.append((time, stop))
                    left -= stop - time
                    time = run.devices.resume_at(self.id, stop)
                    if len(intervals) > MOST_WINDOWS:
                        raise RunError(
                            f"{self} is there for more than {MOST_WINDOWS:,} windows of time during {seconds:g} s of "
                            "work: give its availability in longer ones, or slow its computing down instead"
                        )
            intervals.append((time, time + left))
            time, done = time + left + away, after
        return intervals

    def _record(self, value: Any = None) -> None:
        """Keep what the program has just been given, and when."""
        if self._run.checkpointing:
            kept = value if type(value) is Snapshot else deepcopy(value)
            state = None if self._reserved else self._run.copy_of_state(self.id)
            self._journal.append((self._run.kernel.now, kept, state))

    def _replayed(self) -> Any:
        """Return what the next effect of a resumed task gave, and set the clock to when that was."""
        self._run.kernel.now, value, state = self._replay.popleft()
        if not self._reserved:
            self.state.clear()
            self.state.update(state or {})
        return value

    def _log(self, fault: Fault, seconds: float) -> None:
        if not self._replay and not self._resuming:
            self._run.log_fault(self.id, self._task, fault.kind, seconds)

    def _send_again(self, seconds: float, size: float, number: int) -> None:
        if not self._replay and not self._resuming:
            arguments = (self._server.number, self._task, self.id, size, number)
            self._run.timers.add(seconds, Kind.ARRIVAL, self._task, "duplicate", *arguments)
