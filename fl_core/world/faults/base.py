"""What can go wrong in a task, as hooks that the runtime calls."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from pydantic import Field, model_validator

from fl_core.part import Duration, Part


class Interruption(NamedTuple):
    """Local work stops for a while, or for good.

    Attributes
    ----------
    after : float
        Seconds of work done before it, from 0 to the whole work.
    seconds : float
        How long the device is away.
    fatal : bool
        Whether the task is lost; otherwise the work goes on where it stopped.
    """

    after: float
    seconds: float
    fatal: bool


@dataclass
class Message:
    """One copy of an upload on its way.

    Attributes
    ----------
    payload : dict
        What the server would read, by name.
    delay : float
        Seconds after the time at which it would have arrived.
    """

    payload: dict[str, Any]
    delay: float = field(default=0.0)


class Fault(Part):
    """Something that goes wrong, by chance, in single tasks.

    It is declared in a world, ``World(faults=[{"kind": "lost", "probability": 0.2}])``, and whatever it does to a
    task gets a row in ``history.faults``. Several faults may strike the same task, in the order of declaration.

    A new one is one class in one file of this package: it has a ``kind``, a sentence for each setting, and overrides
    the hook that it needs. Nothing else changes, as the package is searched for its files. For example, an upload of
    which a quarter of the entries is set to zero::

        class Erased(Fault):
            kind: Literal["erased"] = "erased"

            def send(self, messages, rng):
                model = messages[0].payload["model"]
                kept = torch.from_numpy(rng.random(len(model)) > 0.25)
                return [Message({"model": model * kept}, message.delay) for message in messages]

    Attributes
    ----------
    probability : float
        Chance that it strikes a task, in [0, 1]; drawn for each task from its own random stream.
    devices : tuple of int or None
        Only these devices; None: all.
    start_seconds, stop_seconds : float
        Only tasks that are triggered in this interval of virtual time, its end excluded; no end by default.
    """

    probability: float = Field(0.1, ge=0, le=1)
    devices: tuple[int, ...] | None = None
    start_seconds: Duration = 0.0
    stop_seconds: Duration | None = None

    @model_validator(mode="after")
    def _strikes_somebody(self) -> Fault:
        if self.devices == ():
            raise ValueError("devices = [] strikes nobody; leave it out for all devices")
        if self.stop_seconds is not None and self.stop_seconds <= self.start_seconds:
            raise ValueError(
                f"stop_seconds = {self.stop_seconds:g} should be larger than start_seconds = {self.start_seconds:g}"
            )
        return self

    def concerns(self, device: int, seconds: float) -> bool:
        """Say whether a task that `device` begins at virtual time `seconds` may be struck."""
        return (
            (self.devices is None or device in self.devices)
            and self.start_seconds <= seconds
            and (self.stop_seconds is None or seconds < self.stop_seconds)
        )

    def interrupt(self, seconds: float, rng: np.random.Generator) -> Interruption | None:
        """Return when a struck task's local work of `seconds` is interrupted, if this fault does that.

        Called once for each stretch of work: for a device that trains, asks for a fresh model and trains again,
        twice. None: not interrupted.
        """
        return None

    def send(self, messages: list[Message], rng: np.random.Generator) -> list[Message]:
        """Return what becomes of a struck task's upload, which faults declared earlier may have changed already.

        No message is a loss; of several, the server uses the first and recognises the others. Content is replaced in
        new messages and new tensors: the device may still hold the old ones.
        """
        return messages

    def outages(self) -> tuple[tuple[float, float], ...]:
        """Return ``(seconds, duration)`` of each time that the servers are down, if this fault does that."""
        return ()
