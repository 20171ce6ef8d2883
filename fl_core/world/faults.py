"""What goes wrong: faults are declared in a world, drawn for every task, and act by hooks that the runtime calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from pydantic import Field, ValidationInfo, field_validator, model_validator
from torch import Tensor

from fl_core.config import Duration, Family, Seconds


class Interruption(NamedTuple):
    """Local work stops for a while, or for good."""

    after: float
    """Seconds of work done before it, from 0 to the whole work."""
    seconds: float
    """How long the device is away."""
    fatal: bool
    """Whether the task is lost; otherwise the work goes on where it stopped."""


@dataclass
class Message:
    """One copy of an upload on its way."""

    payload: dict[str, Any]
    """What the server would read, by name."""
    delay: float = 0.0
    """Seconds after the time at which it would have arrived."""


class Fault(Family):
    """Something that goes wrong, by chance, in single tasks.

    It is declared in a world, ``World(faults=[{"kind": "lost", "probability": 0.2}])``, and whatever it does to a
    task gets a row in ``history.faults``. Several faults may strike the same task, in the order of declaration.

    A new one is one class with a ``kind``, anywhere, which overrides the hook that it needs. For example, an upload
    of which a quarter of the entries is set to zero::

        class Erased(Fault):
            kind: Literal["erased"] = "erased"

            def send(self, messages, rng):
                model = messages[0].payload["model"]
                kept = torch.from_numpy(rng.random(len(model)) > 0.25)
                return [Message({"model": model * kept}, message.delay) for message in messages]
    """

    probability: float = Field(0.1, ge=0, le=1)
    """Chance that it strikes a task, in [0, 1]; drawn for each task from its own random stream."""
    devices: tuple[int, ...] | None = None
    """Only these devices; None: all."""
    start_seconds: Duration = 0.0
    """Only tasks that are triggered from this virtual time on."""
    stop_seconds: Duration | None = None
    """Only tasks that are triggered before this virtual time; None: no end."""

    @model_validator(mode="after")
    def _strikes_somebody(self) -> Fault:
        if self.devices == ():
            raise ValueError("devices = [] strikes nobody; leave it out for all devices")
        if (stop := self.stop_seconds) is not None and stop <= self.start_seconds:
            raise ValueError(f"stop_seconds = {stop:g} should be larger than start_seconds = {self.start_seconds:g}")
        return self

    def concerns(self, device: int, seconds: float) -> bool:
        """Say whether a task that `device` begins at virtual time `seconds` may be struck."""
        within = self.start_seconds <= seconds and (self.stop_seconds is None or seconds < self.stop_seconds)
        return within and (self.devices is None or device in self.devices)

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


FAULTS: dict[str, type[Fault]] = Fault.kinds


class Crash(Fault):
    """The device crashes at a uniformly drawn moment of local training; the task is lost.

    A device that trains in several parts crashes in the first one. What it keeps in ``device.state`` is on its disk.
    """

    kind: Literal["crash"] = "crash"
    down_seconds: Duration = 0.0
    """How long it takes until the device can be triggered again; 0: at once."""

    def interrupt(self, seconds: float, rng: np.random.Generator) -> Interruption:
        return Interruption(seconds * rng.random(), self.down_seconds, fatal=True)


class Unavailable(Fault):
    """Local training pauses at a uniformly drawn moment, for an exponentially distributed time; nothing is lost.

    For devices that come and go by a calendar, see the world's ``availability``.
    """

    kind: Literal["unavailable"] = "unavailable"
    mean_seconds: Seconds = 1.0
    """Mean of the pause."""

    def interrupt(self, seconds: float, rng: np.random.Generator) -> Interruption:
        return Interruption(seconds * rng.random(), rng.exponential(self.mean_seconds), fatal=False)


class Lost(Fault):
    """The device spends the time of sending, but nothing reaches the server; then it is free again."""

    kind: Literal["lost"] = "lost"

    def send(self, messages: list[Message], rng: np.random.Generator) -> list[Message]:
        return []


class Delayed(Fault):
    """The upload arrives later by an exponentially distributed time; its sender stays busy until then."""

    kind: Literal["delayed"] = "delayed"
    mean_seconds: Seconds = 1.0
    """Mean of the delay, of the uploads that are delayed."""

    def send(self, messages: list[Message], rng: np.random.Generator) -> list[Message]:
        later = rng.exponential(self.mean_seconds)
        return [Message(message.payload, message.delay + later) for message in messages]


class Duplicated(Fault):
    """A second copy arrives later; the server recognises it by its task and applies an upload once.

    The copy costs its bytes and is counted in ``history.outcomes["duplicates"]``; it never takes the place of a first
    one that was rejected, or lost at a server that was down. The sender is free when the first one has arrived.
    """

    kind: Literal["duplicated"] = "duplicated"
    mean_seconds: Duration = 1.0
    """Mean of the exponentially distributed time between the copies; 0: at the same instant."""

    def send(self, messages: list[Message], rng: np.random.Generator) -> list[Message]:
        later = rng.exponential(self.mean_seconds) if self.mean_seconds else 0.0
        return messages + [Message(message.payload, message.delay + later) for message in messages]


class Corrupted(Fault):
    """The tensors of the upload are changed on the way.

    The server rejects what is not finite or of the wrong length, and counts it; the model stays as it is.
    """

    kind: Literal["corrupted"] = "corrupted"
    how: Literal["nan", "inf", "length", "scaled"] = "nan"
    """``"nan"``, ``"inf"``: one entry of each tensor, uniformly drawn, is no finite number; ``"length"``: the last
    entry is missing; ``"scaled"``: all entries are multiplied by `factor` (finite and of the right length, so a
    server can't tell: a Byzantine device)."""
    factor: float = Field(-10.0, allow_inf_nan=False)
    """For ``"scaled"``; negative values turn an update's direction round."""

    def send(self, messages: list[Message], rng: np.random.Generator) -> list[Message]:
        return [
            Message({name: self._wrong(value, rng) for name, value in message.payload.items()}, message.delay)
            for message in messages
        ]

    def _wrong(self, tensor: Any, rng: np.random.Generator) -> Any:
        if not isinstance(tensor, Tensor) or not tensor.is_floating_point() or not tensor.numel():
            return tensor
        if self.how == "length":
            return tensor.reshape(-1)[:-1].clone()
        if self.how == "scaled":
            return tensor * self.factor
        wrong = tensor.clone()
        wrong.view(-1)[int(rng.integers(tensor.numel()))] = torch.nan if self.how == "nan" else torch.inf
        return wrong


class ServerRestart(Fault):
    """Every server stops at given times: uploads not yet applied, and those that arrive meanwhile, are lost.

    The global model, its version and the algorithm's state are durable. While the server is down it triggers nobody
    and answers no request; devices go on with what they have. What was due meanwhile (a tick, the end of a period, a
    request for a fresh model) happens when it is up again, once.

    It happens at given times and to the server, so what selects the tasks of other faults does not apply.
    """

    kind: Literal["server_restart"] = "server_restart"
    probability: float = 0.0
    """Does not apply: it happens at given times."""
    at_seconds: tuple[Duration, ...]
    """Virtual times of the restarts."""
    down_seconds: Duration = 0.0
    """How long each one takes; 0: only what was not yet applied is lost."""

    @field_validator("probability", "devices", "start_seconds", "stop_seconds")
    @classmethod
    def _not_drawn(cls, value: Any, info: ValidationInfo) -> Any:
        if value != cls.model_fields[str(info.field_name)].default:
            raise ValueError(f"{info.field_name} does not apply to server_restart, which happens at at_seconds")
        return value

    @field_validator("at_seconds")
    @classmethod
    def _at_some_time(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        if not value:
            raise ValueError("at_seconds = [] is no restart; give at least one time")
        return value

    def outages(self) -> tuple[tuple[float, float], ...]:
        return tuple((seconds, self.down_seconds) for seconds in self.at_seconds)
