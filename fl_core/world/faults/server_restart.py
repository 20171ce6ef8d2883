"""The server goes down and comes back with what it had committed."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ValidationInfo, field_validator

from fl_core.part import Duration
from fl_core.world.faults.base import Fault


class ServerRestart(Fault):
    """Every server stops at given times: uploads not yet applied, and those that arrive meanwhile, are lost.

    The global model, its version and the algorithm's state are durable. While the server is down it triggers nobody
    and answers no request; devices go on with what they have. What was due meanwhile (a tick, the end of a period, a
    request for a fresh model) happens when it is up again, once.

    It happens at given times and to the server, so what selects the tasks of other faults does not apply.

    Attributes
    ----------
    at_seconds : tuple of float
        Virtual times of the restarts.
    down_seconds : float
        How long each one takes; 0: only what was not yet applied is lost.
    """

    kind: Literal["server_restart"] = "server_restart"
    probability: float = 0.0
    at_seconds: tuple[Duration, ...]
    down_seconds: Duration = 0.0

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
        """Return the times as given."""
        return tuple((seconds, self.down_seconds) for seconds in self.at_seconds)
