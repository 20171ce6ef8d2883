"""AsyncPart (Wang, Zhang & Wang, 2021), reconstructed: every device counts by its data, however fast it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from fl_core.algorithms.base import Algorithm, register
from fl_core.formulas.asyncpart import fair_weight, influence
from fl_core.formulas.fedasync import mix
from fl_core.formulas.staleness import Polynomial, StalenessWeight

if TYPE_CHECKING:
    from fl_core.runtime import ServerHandle


@register
class AsyncPart(Algorithm):
    """Mix each arrival with a weight by its freshness, and by how much its device has counted so far (BL-3.28).

    A reconstruction: no source gives the paper's formulas.

    Attributes
    ----------
    alpha : float
        Mixing weight of a fresh model from a device that has counted as much as it should.
    weight : StalenessWeight
        Factor s(staleness).
    pseudo_uploads : float or None
        kappa: so many uploads at the right shares are thought to have come before. None: one for each device.
    concurrency : int
        Devices in flight.
    """

    alpha: float = Field(0.6, gt=0, le=1)
    weight: StalenessWeight = Polynomial(a=0.5)
    pseudo_uploads: float | None = Field(None, gt=0, allow_inf_nan=False)
    concurrency: int = Field(10, ge=1)

    async def scheduler(self, server: ServerHandle) -> None:
        """Trigger idle devices so that `concurrency` of them work."""
        await server.keep_busy(self.concurrency)

    async def updater(self, server: ServerHandle) -> None:
        """Count the arrival first, and then mix it in."""
        [upload] = await server.receive()
        factor, share = float(self.weight(upload.staleness)), server.share(upload.device)
        freshness = server.state.setdefault("freshness", {})
        freshness[upload.device] = freshness.get(upload.device, 0.0) + factor
        total = server.state["total"] = server.state.get("total", 0.0) + factor
        counted = influence(freshness[upload.device], total, share, self.pseudo_uploads or len(server.devices))
        weight = fair_weight(self.alpha, factor, share, counted)
        server.commit(mix(server.model, upload.model, weight), weight=weight)

    def most_in_flight(self) -> int:
        """Return the concurrency."""
        return self.concurrency
