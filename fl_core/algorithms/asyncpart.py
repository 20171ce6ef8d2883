"""AsyncPart (Wang, Zhang & Wang, 2021), reconstructed: every device counts by its data, however fast it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from fl_core.algorithms.base import Algorithm, register
from fl_core.formulas.checks import require
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


def influence(freshness: float, total_freshness: float, share: float, pseudo_uploads: float) -> float:
    """Return q_k = (C_k + kappa p_k) / (sum_j C_j + kappa): the device's part of all influence so far, BL-3.28.

    Parameters
    ----------
    freshness, total_freshness : float
        C_k and the sum of all C_j: the staleness factors s of the uploads so far, the present one included.
    share : float
        p_k in (0, 1], the device's part of all samples.
    pseudo_uploads : float
        kappa > 0: uploads at the right shares that are thought to have come before.

    Raises
    ------
    ValueError
        An argument is out of range.
    """
    require(0 <= freshness <= total_freshness * (1 + 1e-9), "freshness", freshness, f"in 0..{total_freshness}")
    require(0 < share <= 1, "share", share, "in (0, 1]")
    require(pseudo_uploads > 0, "pseudo_uploads", pseudo_uploads, "> 0")
    return (freshness + pseudo_uploads * share) / (total_freshness + pseudo_uploads)


def fair_weight(alpha: float, factor: float, share: float, influence: float) -> float:
    """Return alpha_t = min(1, alpha s p_k / q_k), the mixing weight of BL-3.28.

    Parameters
    ----------
    alpha : float
        Weight of a fresh upload of a device with the influence that it should have, in (0, 1].
    factor : float
        s in [0, 1], the upload's staleness factor.
    share, influence : float
        p_k and q_k, see `influence`.

    Raises
    ------
    ValueError
        An argument is out of range.
    """
    require(0 < alpha <= 1, "alpha", alpha, "in (0, 1]")
    require(0 <= factor <= 1, "factor", factor, "in [0, 1]")
    require(influence > 0, "influence", influence, "> 0")
    return min(1.0, alpha * factor * share / influence)
