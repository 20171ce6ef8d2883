"""Periodic aggregation, and FedPer: the same local steps and the same compression on every device (Hu et al., 2023).

FedPer is what FedLuck (Song et al., 2024) calls it; the name has nothing to do with personalisation layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pydantic import Field
from torch import Tensor

from fl_core.algorithms.base import Algorithm, Step, Weighting, register, upload_update, weighted_step
from fl_core.config import Seconds
from fl_core.formulas.compression import Compressor, TopK
from fl_core.formulas.fedluck import TIE
from fl_core.world.triggers import Contributors

if TYPE_CHECKING:
    from fl_core.runtime import DeviceHandle, ServerHandle, Upload


class PeriodicAggregation(Algorithm):
    """Aggregate at fixed times whatever has arrived, and hand the new model to those who have contributed.

    Each tick makes a version, also one at which nothing has arrived: the version is FedLuck's round t, the staleness
    counts rounds, and the paper's (Eq. 7) is one more (E1).
    """

    period_seconds: Seconds = 1.5
    """Time T~ between two aggregations."""
    global_lr: float = Field(0.7, gt=0, allow_inf_nan=False)
    """Step size eta_g of the server."""
    weighting: Weighting = "uniform"
    """Of the uploads of a round: "uniform" (Eq. 6), or by "samples" (A5)."""
    error_feedback: bool = False
    """Whether a device adds to its next update what the last one lost in compression (A8)."""

    handover_seconds: float = Field(0.0, ge=0, allow_inf_nan=False)
    """How long after a tick its devices get the new model: FedLuck's authors' program evaluates it first (E19)."""

    async def scheduler(self, server: ServerHandle) -> None:
        """Trigger all devices at first, then at each tick those whose uploads it has used."""
        if not self.handover_seconds:
            await Contributors(order="id").turn(server)
            return
        released = await server.released()
        await server.sleep(self.handover_seconds if server.version else 0.0)
        server.dispatch(device for device in sorted(released) if device in server.idle)  # some may have left

    async def updater(self, server: ServerHandle) -> None:
        """Aggregate at the next tick; what arrives at that very time belongs to it."""
        tick = (server.version + 1) * self.period_seconds
        uploads = await server.receive(until=tick, tolerance=TIE * self.period_seconds)
        made = self.combine_round(server, uploads)
        server.commit(made.model, weight=made.weight)

    def combine_round(self, server: ServerHandle, uploads: Sequence[Upload]) -> Step:
        """Return the step that the uploads of a round make."""
        return self.combine(server.model, [u.delta for u in uploads], [u.num_samples for u in uploads])

    def combine(self, model: Tensor, deltas: Sequence[Tensor], num_samples: Sequence[int]) -> Step:
        """Return the step along the mean of `deltas`, FedLuck's Eq. 6, BL-3.22; without any the model (E2)."""
        return weighted_step(model, deltas, num_samples, self.global_lr, self.weighting)

    async def device(self, device: DeviceHandle) -> None:
        """Train k steps and upload the compressed difference (Eqs. 3, 4 and L-a)."""
        snapshot = await device.download()
        steps, compressor = self.job(device, snapshot.model.nbytes)
        trained = await device.train(snapshot.model, steps=steps)
        kept = getattr(compressor, "delta", 1.0)
        await upload_update(device, snapshot, trained, compressor, error_feedback=self.error_feedback, kept=kept)

    def job(self, device: DeviceHandle, model_bytes: int) -> tuple[int | None, Compressor]:
        """Return the local steps of `device` (None: as the run's settings say) and its compressor."""
        raise NotImplementedError


@register
class FedPer(PeriodicAggregation):
    """Periodic aggregation with the same work for everybody."""

    steps: int | None = Field(None, ge=1)
    """Local steps k; None: as the run's settings say."""
    compressor: Compressor = TopK(delta=0.3, wire="ideal_fraction")
    """How uploads are compressed; "topk(delta=0.3)" counts the positions of what is kept, and the default, like
    FedLuck's tables, does not."""

    def job(self, device: DeviceHandle, model_bytes: int) -> tuple[int | None, Compressor]:
        return self.steps, self.compressor
