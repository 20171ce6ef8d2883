"""The virtual clock: a deterministic discrete-event kernel that runs coroutines.

A process is a coroutine. It suspends by awaiting :func:`sleep_until`, or :func:`park` after having arranged that
somebody resumes it. Events are ordered by (time, kind, order): ``order`` is the dispatch sequence number of the task
that an event belongs to. Nothing else decides, so the same inputs give the same history.
"""

from __future__ import annotations

import heapq
import types
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from enum import IntEnum
from typing import Any

from fl_core.errors import FlCoreError, RunError

Action = Callable[[], None]
MOST_AT_ONCE = 1 << 16
"""So many turns of a program, or versions, between two events end a run (a power of two)."""


class Kind(IntEnum):
    """What an event is; at equal times the smaller kind comes first."""

    PROGRESS = 0
    ARRIVAL = 1
    REQUEST = 2
    TICK = 3
    EVALUATION = 4


class StopRun(BaseException):
    """Raised inside a process to end the whole run normally: the budget is used up."""


class Crashed(BaseException):
    """Raised inside a process to end that process alone."""


class Process:
    """A coroutine under the kernel's control, which error messages call by its `name`, such as ``"device 3"``.

    `order` is its place among events of equal time and kind; `pending` the event that it waits for while it sleeps;
    it has `acted` if it has done anything but wait.
    """

    __slots__ = ("acted", "coroutine", "name", "on_end", "order", "pending", "send")

    def __init__(
        self, coroutine: Coroutine[Any, Any, Any], name: object, order: int = 0, on_end: Action | None = None
    ) -> None:
        self.coroutine, self.send = coroutine, coroutine.send
        self.name, self.order, self.on_end = name, order, on_end
        self.pending: Event | None = None
        self.acted = False

    def next(self) -> bool:
        """Begin again after the coroutine has ended; False if the process is over."""
        return False


class Program(Process):
    """A server program: its coroutine is begun again whenever a turn has ended, of which there were `turns`.

    About the present turn are `began`, virtual seconds, `waits`, how many so far, and `acted`. It waits for `wait`,
    with arguments; `place`, which grows with every wait of the run, is the order in which programs came to wait; it
    has been told what is `seen`: versions, changes of the idle set, ticks.
    """

    __slots__ = ("began", "begin", "crowded", "kernel", "place", "seen", "turns", "wait", "waits")

    def __init__(self, begin: Callable[[], Coroutine[Any, Any, Any]], name: str, order: int, kernel: Any) -> None:
        coroutine = begin()
        if not hasattr(coroutine, "send"):
            kind = type(coroutine).__name__
            raise RunError(f"{name} gives a {kind}: it is to be written with async def, without yield")
        super().__init__(coroutine, name, order)
        self.begin, self.kernel = begin, kernel
        self.began, self.waits, self.place, self.turns, self.crowded = 0.0, 0, 0, 0, -1
        self.wait: tuple[Any, ...] = ()
        self.seen: dict[str, int] = {}

    def next(self) -> bool:
        """Begin the next turn; a program that did not wait for anything is over."""
        if not self.waits:
            self.kernel.over.append(self.name)
            return False
        self.turns += 1
        if not self.turns % MOST_AT_ONCE:
            if self.kernel.events == self.crowded:
                raise too_many(self.name, self.kernel.now)
            self.crowded = self.kernel.events
        self.coroutine = self.begin()
        self.send = self.coroutine.send
        self.began, self.waits, self.acted = self.kernel.now, 0, False
        return True

    @property
    def at_rest(self) -> bool:
        """Whether the present turn has done nothing but come to its first wait."""
        return self.waits == 1 and not self.acted


def too_many(name: object, now: float) -> RunError:
    """Build the error for what goes on and on although nothing happens."""
    what = f"{name} has gone on {MOST_AT_ONCE:,} times at t = {now:g} s without anything happening meanwhile"
    return RunError(f"{what}: what it waits for is there already, each time")


def nothing_left(kernel: Kernel) -> RunError:
    """Build the error for a run that ends before its budget is used up."""
    what = f"nothing is left to happen at t = {kernel.now:g} s, but the run has not reached its budget"
    return RunError(what + "".join(f"; {name} returned without waiting and is over" for name in kernel.over))


Event = tuple[float, int, int, int, Process | Action]


@types.coroutine
def sleep_until(time: float, kind: Kind) -> Generator[Any, Any, None]:
    """Suspend the calling process until virtual `time`."""
    yield (time, kind)


@types.coroutine
def park() -> Generator[None, Any, Any]:
    """Suspend the calling process until somebody resumes it, and return what they hand over."""
    return (yield None)


class Kernel:
    """Event queue, virtual time `now` in seconds, which never decreases, and ready processes.

    `events` have been handled so far; `current` is the process that runs. After `due` events, `boundary` is called
    before each one, when all that could happen at the last one has happened. Programs that are `over` did not wait.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.events = 0
        self.current: Process | None = None
        self.boundary: Action = lambda: None
        self.due: float = float("inf")
        self.scheduled = 0
        self._queue: list[Event] = []
        self._ready: deque[tuple[Process, Any]] = deque()
        self._alive: dict[Process, None] = {}
        self.over: list[object] = []

    def spawn(self, process: Process) -> None:
        """Start `process` as soon as the processes that are ready now have run."""
        self._alive[process] = None
        self._ready.append((process, None))

    def at(self, time: float, kind: Kind, order: int, action: Process | Action) -> Event:
        """Call `action` (or run it, if it is a process) at virtual `time` (not before now), in the kernel's order."""
        if not time >= self.now:
            raise ValueError(f"cannot schedule an event at t = {time} s: it is already t = {self.now} s")
        self.scheduled += 1
        event = (time, kind, order, self.scheduled, action)
        heapq.heappush(self._queue, event)
        return event

    def put(self, event: Event) -> None:
        """Put back an event of a run that is resumed, with its old place in the order."""
        heapq.heappush(self._queue, event)

    def bring_forward(self, until: float) -> None:
        """Let the processes that sleep until then, or less, go on now."""
        others, gone_on = [], set()
        while self._queue and self._queue[0][0] <= until:
            event = heapq.heappop(self._queue)
            if isinstance(event[4], Process) and event[:3] not in gone_on:  # a shared link may want to look again
                gone_on.add(event[:3])
                self.events += 1
                self.step(event[4])
            else:
                others.append(event)
        for event in others:
            heapq.heappush(self._queue, event)

    def resume(self, process: Process, value: Any = None) -> None:
        """Let a suspended process go on with `value`, after those that are ready already."""
        self._ready.append((process, value))

    def step(self, process: Process, value: Any = None) -> None:
        """Run `process` to its next suspension, now; if it fails, the error says which, when and why."""
        self.current = process
        while True:
            try:
                wish = process.send(value)
            except (StopIteration, Crashed):
                if process.next():
                    value = None
                    continue
                del self._alive[process]
                process.pending = None  # the event names the process: a cycle would keep all that it holds
                if process.on_end is not None:
                    process.on_end()
            except (StopRun, RunError):
                raise
            except (Exception, SystemExit) as error:
                cause = str(error) if isinstance(error, FlCoreError) else f"{type(error).__name__}: {error}"
                raise RunError(f"{process.name} failed at t = {self.now:g} s: {cause}") from error
            else:
                if wish is not None:
                    time, kind = wish
                    if not time >= self.now:
                        raise RunError(f"{process.name} waits for t = {time} s, but it is already t = {self.now} s")
                    self.scheduled += 1
                    process.pending = event = (time, kind, process.order, self.scheduled, process)
                    heapq.heappush(self._queue, event)
            return

    def run(self) -> None:
        """Handle events in order until a process raises :class:`StopRun`."""
        queue, ready, step, pop = self._queue, self._ready, self.step, heapq.heappop
        try:
            while True:
                while ready:
                    step(*ready.popleft())
                if not queue:
                    break
                if self.events >= self.due:
                    self.boundary()
                self.now, _, _, _, action = pop(queue)
                self.events += 1
                if isinstance(action, Process):
                    step(action)
                else:
                    action()
        except StopRun:
            return
        finally:
            for process in self._alive:
                process.coroutine.close()
            self._alive.clear()
        raise nothing_left(self)
