"""FedDelay: asynchronous SGD with shorter steps only where the delay is large (Koloskova, Stich & Jaggi, 2022)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from fl_core.algorithms.base import Algorithm, mean_step, register
from fl_core.formulas.checks import require

if TYPE_CHECKING:
    from fl_core.runtime import DeviceHandle, ServerHandle

Mode = Literal["continuous", "inverse", "drop"]


@register
class FedDelay(Algorithm):
    """Add each arriving update, less of it if its staleness exceeds the concurrency (BL-3.25).

    Attributes
    ----------
    global_lr : float
        Step size eta_g of the server.
    threshold : int or None
        Staleness tau_C up to which an update counts in full. None: `concurrency`.
    mode : str
        Beyond it an update counts tau_C / tau, ``"continuous"``; 1 / tau, ``"inverse"``; or not at all, ``"drop"``.
    count_dropped : bool
        Whether a dropped update makes a version all the same; if not, it is discarded.
    concurrency : int
        Devices in flight.
    """

    global_lr: float = Field(1.0, gt=0, allow_inf_nan=False)
    threshold: int | None = Field(None, ge=1)
    mode: Mode = "continuous"
    count_dropped: bool = True
    concurrency: int = Field(10, ge=1)

    async def scheduler(self, server: ServerHandle) -> None:
        """Trigger idle devices so that `concurrency` of them work."""
        await server.keep_busy(self.concurrency)

    async def updater(self, server: ServerHandle) -> None:
        """Apply each arrival with its factor."""
        [upload] = await server.receive()
        step = self.global_lr * delay_factor(upload.staleness, self.threshold or self.concurrency, self.mode)
        if step:
            server.commit(mean_step(server.model, upload.delta[None], step), weight=step)
        elif self.count_dropped:
            server.commit(server.model, weight=0.0)
        else:
            server.discard(upload)

    async def device(self, device: DeviceHandle) -> None:
        """Train, and upload the difference."""
        snapshot = await device.download()
        trained = await device.train(snapshot.model)
        await device.upload(delta=snapshot.model - trained.model, based_on=snapshot)

    def most_in_flight(self) -> int:
        """Return the concurrency."""
        return self.concurrency


def delay_factor(staleness: float, threshold: float, mode: Mode = "continuous") -> float:
    """Return what the server's step is multiplied by: 1 up to the threshold tau_C, BL-3.24 and BL-3.25.

    Parameters
    ----------
    staleness : float
        tau >= 0, versions missed.
    threshold : float
        tau_C >= 1, in the paper the number of devices in flight.
    mode : {"continuous", "inverse", "drop"}
        Beyond it: tau_C / tau, which with a step of 1 / (4 L tau_C) is the bound 1 / (4 L tau) of the theorem;
        1 / tau, the paper's advice, with a jump at tau_C; or 0.

    Raises
    ------
    ValueError
        An argument is out of range or `mode` is unknown.
    """
    require(staleness >= 0, "staleness", staleness, ">= 0 (missed updates)")
    require(threshold >= 1, "threshold", threshold, ">= 1")
    known = mode in ("continuous", "inverse", "drop")
    require(known, "mode", mode, "'continuous', 'inverse' or 'drop'")
    if staleness <= threshold:
        return 1.0
    return {"continuous": threshold / staleness, "inverse": 1 / staleness, "drop": 0.0}[mode]
