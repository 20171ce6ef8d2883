"""The virtual clock: a deterministic discrete-event kernel that runs coroutines.

A process is a coroutine. It suspends by awaiting :func:`suspend` with a function that arranges its return, for
example by putting it into the event queue. Events are ordered by (time, kind, order): ``order`` is the dispatch
sequence number of the task that an event belongs to. Nothing else decides, so the same inputs give the same
history. At one instant, device progress that the server cannot see comes first; then arrivals, requests for a fresh
model, trigger ticks, and evaluations last.
"""

from __future__ import annotations

import heapq
import types
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from enum import IntEnum
from typing import Any

from fl_core.errors import FlCoreError, RunError


class Kind(IntEnum):
    """What an event is; at equal times the smaller kind comes first."""

    PROGRESS = 0
    ARRIVAL = 1
    REQUEST = 2
    TICK = 3
    EVALUATION = 4


class StopRun(BaseException):
    """Raised inside a process to end the whole run normally: the budget is used up."""


Arrange = Callable[["Process"], None]


@types.coroutine
def suspend(arrange: Arrange) -> Generator[Arrange, Any, Any]:
    """Suspend the calling process; `arrange` gets it and must see to its being resumed."""
    return (yield arrange)


class Process:
    """A coroutine under the kernel's control.

    Attributes
    ----------
    name : str
        What error messages call it, e.g. ``"device 3"``.
    order : int
        Its place among events of equal time and kind.
    """

    __slots__ = ("coroutine", "name", "on_end", "order")

    def __init__(
        self,
        coroutine: Coroutine[Arrange, Any, Any],
        name: str,
        order: int = 0,
        on_end: Callable[[], None] | None = None,
    ) -> None:
        self.coroutine, self.name, self.order, self.on_end = coroutine, name, order, on_end


class Kernel:
    """Event queue, virtual time and ready processes.

    Attributes
    ----------
    now : float
        Virtual time in seconds; never decreases.
    events : int
        Events handled so far.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.events = 0
        self._queue: list[tuple[float, int, int, int, Callable[[], None]]] = []
        self._ready: deque[tuple[Process, Any]] = deque()
        self._alive: dict[Process, None] = {}
        self._scheduled = 0

    def spawn(self, process: Process) -> None:
        """Start `process` as soon as the processes that are ready now have run."""
        self._alive[process] = None
        self._ready.append((process, None))

    def at(self, time: float, kind: Kind, order: int, action: Callable[[], None]) -> None:
        """Call `action` at virtual `time` (not before now), in the kernel's order.

        Raises
        ------
        ValueError
            If `time` lies in the past or is not a number.
        """
        if not time >= self.now:
            raise ValueError(f"cannot schedule an event at t = {time} s: it is already t = {self.now} s")
        self._scheduled += 1
        heapq.heappush(self._queue, (time, kind, order, self._scheduled, action))

    async def sleep_until(self, time: float, kind: Kind, order: int) -> None:
        """Suspend the calling process until virtual `time`."""
        await suspend(lambda process: self.at(time, kind, order, lambda: self.step(process)))

    def resume(self, process: Process, value: Any = None) -> None:
        """Let a suspended process go on with `value`, after those that are ready already."""
        self._ready.append((process, value))

    def step(self, process: Process, value: Any = None) -> None:
        """Run `process` to its next suspension, now.

        Raises
        ------
        RunError
            If the process fails; names it, the virtual time and the cause.
        """
        try:
            arrange = process.coroutine.send(value)
        except StopIteration:
            del self._alive[process]
            if process.on_end:
                process.on_end()
        except (StopRun, RunError):
            raise
        except Exception as error:
            cause = str(error) if isinstance(error, FlCoreError) else f"{type(error).__name__}: {error}"
            raise RunError(f"{process.name} failed at t = {self.now:g} s: {cause}") from error
        else:
            arrange(process)

    def run(self) -> None:
        """Handle events in order until a process raises :class:`StopRun`.

        Raises
        ------
        RunError
            If a process fails, or if nothing is left to happen while processes still wait.
        """
        try:
            self._drain()
            while self._queue:
                self.now, _, _, _, action = heapq.heappop(self._queue)
                self.events += 1
                action()
                self._drain()
        except StopRun:
            return
        finally:
            self._close()
        raise RunError(f"nothing is left to happen at t = {self.now:g} s, but the run has not reached its budget")

    def _drain(self) -> None:
        while self._ready:
            self.step(*self._ready.popleft())

    def _close(self) -> None:
        for process in self._alive:
            process.coroutine.close()
        self._alive.clear()
