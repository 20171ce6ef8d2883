"""What travels between server and devices: global models and uploads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor

if TYPE_CHECKING:
    from fl_core.runtime.server import ServerHandle


class Snapshot(NamedTuple):
    """A global model as it was handed to a device; nothing may change it.

    Attributes
    ----------
    model : Tensor
        ``[d]``, read only.
    version : int
        How many commits had happened.
    """

    model: Tensor
    version: int


class Upload:
    """What has arrived at the server.

    Attributes
    ----------
    device, task : int
        Sender, and dispatch sequence number.
    base_version : int
        Version that the content was made from.
    arrived_seconds : float
        Virtual time of arrival.
    num_samples, steps : int
        The device's data size, and its local steps in this task.
    loss : float
        Mean local training loss.
    payload : dict
        The content by name; also reachable as attributes (``upload.model``).
    """

    __slots__ = (
        "arrived_seconds", "base_version", "device", "loss", "num_samples", "payload", "server", "steps", "task",
    )  # fmt: skip

    def __init__(
        self,
        server: ServerHandle,
        device: int,
        task: int,
        base_version: int,
        arrived_seconds: float,
        num_samples: int,
        steps: int,
        loss: float,
        payload: dict[str, Any],
    ) -> None:
        self.server, self.device, self.task, self.base_version = server, device, task, base_version
        self.arrived_seconds, self.num_samples, self.steps, self.loss = arrived_seconds, num_samples, steps, loss
        self.payload = payload

    @property
    def staleness(self) -> int:
        """Commits since the model it is based on was sent: 0 for a fresh upload, if used now."""
        return self.server.iteration - self.base_version

    def __getattr__(self, name: str) -> Any:
        if name != "payload" and name in self.payload:
            return self.payload[name]
        raise AttributeError(f"the upload of device {self.device} has no {name!r}; it has {sorted(self.payload)}")
