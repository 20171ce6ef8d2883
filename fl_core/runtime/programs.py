"""Server programs, which the runtime repeats turn by turn, and how they wait."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from math import ceil
from typing import TYPE_CHECKING, Any

from fl_core.errors import RunError
from fl_core.runtime.kernel import Kind, Process, park

if TYPE_CHECKING:
    from fl_core.runtime.simulation import Simulation


class Program(Process):
    """A server program: its coroutine is begun again whenever a turn has ended.

    Attributes
    ----------
    began : float
        When the present turn began, virtual seconds.
    waits : int
        Waits of the present turn so far; `acted` too is about the present turn.
    wait : tuple
        What it waits for, and with which arguments.
    place : int
        Grows with every wait of the run: the order in which programs came to wait.
    seen : dict
        What it has been told already: versions, changes of the idle set, ticks.
    """

    __slots__ = ("began", "begin", "kernel", "place", "seen", "wait", "waits")

    def __init__(self, begin: Callable[[], Coroutine[Any, Any, Any]], name: str, order: int, kernel: Any) -> None:
        super().__init__(begin(), name, order)
        self.begin, self.kernel = begin, kernel
        self.began, self.waits, self.place = 0.0, 0, 0
        self.wait: tuple[Any, ...] = ()
        self.seen: dict[str, int] = {}

    def next(self) -> bool:
        """Begin the next turn; a program that did not wait for anything is over."""
        if not self.waits:
            return False
        self.coroutine = self.begin()
        self.send = self.coroutine.send
        self.began, self.waits, self.acted = self.kernel.now, 0, False
        return True

    @property
    def at_rest(self) -> bool:
        """Whether the present turn has done nothing but come to its first wait."""
        return self.waits == 1 and not self.acted


class Waiting:
    """What programs of a server wait for: a time, or a signal that somebody gives.

    While the server is down, nobody goes on; what they have missed they are told when it is up again.
    """

    def __init__(self, run: Simulation, number: int) -> None:
        self._run, self.number = run, number
        self.up_at = 0.0
        self._down = False
        self._waiters: dict[str, list[Program]] = {"idle": [], "version": [], "released": []}
        self._missed: set[str] = set()

    @property
    def now(self) -> float:
        """Virtual time, seconds."""
        return self._run.kernel.now

    async def sleep(self, seconds: float) -> None:
        """Wait for `seconds` of virtual time (a trigger tick)."""
        await self._sleep("until", self.now + seconds)

    async def every(self, seconds: float) -> None:
        """Wait for the next of the times 0, `seconds`, 2 `seconds`, ... (a trigger tick)."""
        program = self._program()
        program.waits -= 1  # counted again by the sleep
        count = max(program.seen.get("ticks", 0), ceil(self.now / seconds))
        await self._sleep("until", count * seconds)
        program.seen["ticks"] = count + 1

    def _program(self) -> Program:
        program = self._run.kernel.current
        if program.__class__ is not Program:
            raise RunError("only the scheduler and the updater may wait for the server")
        program.waits += 1
        return program

    def _register(self, program: Program, wait: tuple[Any, ...]) -> None:
        program.wait = wait
        self._run.waits += 1
        program.place = self._run.waits

    def _enlist(self, program: Program, signal: str) -> None:
        self._register(program, (signal,))
        self._waiters[signal].append(program)

    def _wake(self, signal: str) -> None:
        if self._down:
            self._missed.add(signal)
        elif waiters := self._waiters[signal]:
            self._waiters[signal] = []
            for program in waiters:
                self._run.kernel.resume(program)

    async def _sleep(self, name: str, until: float, tolerance: float = 0.0) -> None:
        program = self._program()
        until = max(until, self.now)
        self._register(program, (name, until))
        self._wake_at(max(until, self.up_at), program, tolerance)
        await park()

    def _wake_at(self, time: float, program: Program, tolerance: float) -> None:
        """Resume `program` at a tick, or, if the server is down then, when it is up again."""

        def wake() -> None:
            if self._down:
                self._wake_at(self.up_at, program, tolerance)
            else:
                self._run.timers.idle_tick()
                if tolerance:
                    self._run.kernel.bring_forward(time + tolerance)
                self._run.kernel.resume(program)

        program.pending = self._run.kernel.at(time, Kind.TICK, self.number, wake)
