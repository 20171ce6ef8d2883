"""What becomes of tasks: uploads that arrive, are looked at, and wait until a server program takes them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from fl_core.errors import RunError
from fl_core.runtime.history import COUNTERS, OUTCOMES
from fl_core.runtime.idle import Fleet
from fl_core.runtime.kernel import park
from fl_core.runtime.messages import Upload
from fl_core.runtime.programs import Program

if TYPE_CHECKING:
    from fl_core.runtime.device import DeviceHandle
    from fl_core.runtime.simulation import Simulation

Select = Callable[[Any], "list[Upload] | None"]


class Inbox(Fleet):
    """The uploads of a server's devices.

    Attributes
    ----------
    counters, outcomes : dict
        Transfers and gradients so far, and how tasks have ended.
    failed_in_a_row : int
        Tasks since the last usable upload that brought none, although the server was up.
    """

    def __init__(self, run: Simulation, number: int) -> None:
        super().__init__(run, number)
        self.in_flight = 0
        self.counters: dict[str, Any] = dict.fromkeys(COUNTERS, 0)
        self.outcomes = dict.fromkeys(OUTCOMES, 0)
        self.failed_in_a_row = 0
        self._inbox: deque[Upload] = deque()
        self._taken: list[Upload] = []
        self._receiver: tuple[Program, Select, Any] | None = None
        self._answered = 0
        self._failed: set[int] = set()

    @property
    def waiting(self) -> list[Upload]:
        """Uploads that have arrived and belong to no version yet."""
        return [*self._inbox, *self._taken]

    async def receive(
        self,
        count: int = 1,
        *,
        until: float | None = None,
        tolerance: float = 0.0,
        from_: Sequence[int] | None = None,
    ) -> list[Upload]:
        """Wait for uploads and take them.

        Parameters
        ----------
        count : int
            Take the first `count` uploads in order of arrival.
        until : float, optional
            Instead: wait until this virtual time and take all that have arrived, possibly none. An arrival exactly
            then is included.
        tolerance : float
            With `until`: what devices do within so many seconds after it counts as done then. Tasks that should fill
            a period exactly may end after it because of rounding.
        from_ : sequence of int, optional
            Instead: wait for one upload of each of these devices, and return them in this order. A device whose
            last upload was lost or rejected, and that has not been triggered since, is not waited for.
        """
        if until is not None:
            await self._sleep("until", float(until), tolerance)
            uploads, self._inbox = list(self._inbox), deque()
            self._taken.extend(uploads)
        elif from_ is not None:
            wanted = tuple(from_)
            ready = self._select("from", self._from, wanted)
            uploads = await park() if ready is None else ready
        else:
            if count < 1:
                raise RunError(f"receive(count={count}) is not valid: wait for at least 1 upload")
            ready = self._select("count", self._first, count)
            uploads = await park() if ready is None else ready
        return uploads

    async def receive_round(self, most: int | None = None) -> list[Upload]:
        """Wait until every triggered device has answered or failed; take the answers, in order of dispatch.

        Parameters
        ----------
        most : int, optional
            Take the first `most` answers in order of arrival as soon as they are there, and fewer only when nobody
            else can answer (blocked rounds).
        """
        uploads = self._select("round", self._round, (most,))
        if uploads is None:
            uploads = await park()
        if not self.in_flight:
            self._answered = self.outcomes["dispatched"]
        return uploads

    def discard(self, upload: Upload) -> None:
        """Drop an upload that was received, e.g. because it is too stale; it counts as discarded.

        Raises
        ------
        RunError
            If this server has not received it since its last commit, or has discarded it already.
        """
        self._run.kernel.current.acted = True  # type: ignore[union-attr]
        if upload not in self._taken:
            raise RunError(
                f"cannot discard the upload of device {upload.device} (task {upload.task}): it was discarded or "
                "committed already, or not received here"
            )
        self._taken.remove(upload)
        self.outcomes["discarded"] += 1
        self._release(upload.device)
        self._run.dealt_with()

    def deliver(self, upload: Upload, size: float, sent: dict[str, Any] | None = None) -> None:
        """Take in `upload` of `size` bytes (called by the device that sent it, with what it sent)."""
        if self._down:
            self._drop("lost", upload.device)
            return
        self.counters["models_received"] += 1
        self.counters["bytes_up"] += size
        problem = _problem(upload.payload, self._run.lengths)
        if sent is not None and not problem:
            problem = _misshapen(upload.payload, sent)
        if problem:
            self._run.log_fault(upload.device, upload.task, f"rejected: {problem}")
            self._drop("rejected", upload.device)
            return
        self.failed_in_a_row = 0
        self._inbox.append(upload)
        self._offer()

    def lose(self, handle: DeviceHandle) -> None:
        """Note that the task of `handle` will bring no upload."""
        handle._sent = True
        self._drop("lost", handle.id)

    def duplicate(self, task: int, device: int, size: float) -> None:
        """Take in a second copy of an upload: it costs its bytes and changes nothing."""
        if not self._down:
            self.counters["bytes_up"] += size
            self.outcomes["duplicates"] += 1

    def ended(self, handle: DeviceHandle) -> None:
        """Note that a device program is over."""
        self.in_flight -= 1
        if not handle._sent:
            self.lose(handle)
        if handle._reserved:
            self.free(handle.id)
        else:
            self._changed()
            self._look()

    def free(self, device: int) -> None:
        """Put `device` back among the idle ones, unless it is away, and tell who waits for that."""
        if device not in self._run.away:
            self.idle.add(device)
            if self._released is not None and not self._waits_here(device):
                self._release(device)
        self._changed()
        self._look()

    def go_down(self, until: float) -> None:
        """Lose what has not been applied and answer nobody before virtual time `until`."""
        self.up_at = max(self.up_at, until)
        self._down = self.up_at > self.now
        lost, self._inbox = self._inbox, deque()
        for upload in lost:
            self._give_up("lost", upload.device)
        self._offer()

    def come_up(self) -> None:
        """Let the programs that wait for what has happened in the meantime go on."""
        self._down = self.up_at > self.now
        if not self._down:
            missed, self._missed = self._missed, set()
            if "idle" in missed:
                self.changes += 1
            for signal in sorted(missed):
                self._wake(signal)
            self._offer()

    def _drop(self, outcome: str, device: int) -> None:
        """Note that a task has failed, and count it if that was not this server's doing."""
        if not self._down:
            self.failed_in_a_row += 1
        self._give_up(outcome, device)
        if not self._down:
            self._run.failed(outcome, self.failed_in_a_row)

    def _give_up(self, outcome: str, device: int) -> None:
        """Note that a task has failed."""
        self.outcomes[outcome] += 1
        self._failed.add(device)
        if self._released is not None and device in self.idle:
            self._release(device)

    def _waits_here(self, device: int) -> bool:
        return any(upload.device == device for upload in self.waiting)

    def _select(self, name: str, select: Select, wanted: Any) -> list[Upload] | None:
        """Return what is there already, or None: then the calling program is resumed with what it wants."""
        program = self._program()
        ready = None if self._down else select(wanted)
        if ready is None:
            self._register(program, (name, wanted))
            if self._receiver is not None:
                raise RunError(f"{program.name} and {self._receiver[0].name} both wait for uploads")
            self._receiver = (program, select, wanted)
        else:
            self._taken.extend(ready)
        return ready

    def _look(self) -> None:
        """Let who waits for certain devices see that one of them may no longer be waited for."""
        if self._receiver is not None and self._receiver[2].__class__ is not int:
            self._offer()

    def _offer(self) -> None:
        """Let who waits for uploads see what there is."""
        if self._receiver is not None and not self._down:
            program, select, wanted = self._receiver
            ready = select(wanted)
            if ready is not None:
                self._receiver = None
                self._taken.extend(ready)  # now: their devices end before the program goes on
                self._run.kernel.resume(program, ready)

    def _first(self, count: int) -> list[Upload] | None:
        if len(self._inbox) < count:
            return None
        return [self._inbox.popleft()] if count == 1 else [self._inbox.popleft() for _ in range(count)]

    def _from(self, devices: Sequence[int]) -> list[Upload] | None:
        found: dict[int, Upload] = {}
        for upload in self._inbox:
            found.setdefault(upload.device, upload)
        if any(device not in found and device not in self._failed for device in devices):
            return None
        uploads = [found[device] for device in devices if device in found]
        for upload in uploads:
            self._inbox.remove(upload)
        return uploads

    def _round(self, wanted: tuple[int | None]) -> list[Upload] | None:
        if wanted[0] is not None and len(self._inbox) >= wanted[0]:
            return self._first(wanted[0])
        if self.in_flight or self.outcomes["dispatched"] == self._answered:
            return None
        uploads, self._inbox = sorted(self._inbox, key=lambda upload: upload.task), deque()
        return uploads


def _problem(payload: dict[str, Any], lengths: dict[str, int]) -> str:
    """Say why an upload is not usable, whose parts should have `lengths`; empty if it is."""
    for name, value in payload.items():
        if (value.__class__ is Tensor or isinstance(value, Tensor)) and value.is_floating_point():
            expected = lengths.get(name)
            if expected is not None and value.numel() != expected:
                return f"length {value.numel()} instead of {expected}"
            # The cheapest test; the squares may overflow although every entry is finite.
            plain = value.dtype in (torch.float32, torch.float64) and not value.requires_grad
            entries = (value if plain else value.detach().double()).numpy().ravel()
            with np.errstate(over="ignore", invalid="ignore"):
                square = entries.dot(entries)
            if not isfinite(square) and not bool(torch.isfinite(value).all()):
                return "not finite"
    return ""


def _misshapen(payload: dict[str, Any], sent: dict[str, Any]) -> str:
    """Say in which other shape than it was sent in a tensor has arrived; empty if there is none."""
    for name, value in payload.items():
        before = sent.get(name)
        if isinstance(value, Tensor) and isinstance(before, Tensor) and value.shape != before.shape:
            if value.dim() == before.dim() == 1:
                return f"length {len(value)} instead of {len(before)}"
            return f"shape {list(value.shape)} instead of {list(before.shape)}"
    return ""
