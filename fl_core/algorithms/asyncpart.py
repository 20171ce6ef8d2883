"""AsyncPart, reconstructed: fresh uploads count more, and no device more than its data in the long run (BL-3.28).

The method is Wang, Zhang & Wang, "Asynchronous Federated Learning over Wireless Communication Networks" (ICC 2021;
IEEE Transactions on Wireless Communications 21(9), 2022). Its weights are in no source that could be read. These are
this project's, with the property that its abstract names: in the long run the summed weights of a device are
proportional to its samples, however fast it is (but for the bound of 1, which slow devices with many samples meet).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field
from torch import Tensor

from fl_core.algorithms.base import ContinuousAlgorithm, Step, register
from fl_core.formulas.fedasync import mix
from fl_core.formulas.staleness import Polynomial, StalenessWeight

if TYPE_CHECKING:
    from fl_core.runtime import ServerHandle


@register
class AsyncPart(ContinuousAlgorithm):
    """Mix each arrival with a weight by its freshness, and by how much its device has counted so far (BL-3.28).

    A reconstruction: no source gives the paper's formulas.
    """

    alpha: float = Field(0.6, gt=0, le=1)
    """Mixing weight of a fresh model from a device that has counted as much as it should."""
    weight: StalenessWeight = Polynomial(a=0.5)
    """Factor s(staleness)."""
    pseudo_uploads: float | None = Field(None, gt=0, allow_inf_nan=False)
    """kappa: so many uploads at the right shares are thought to have come before. None: one for each device."""

    async def updater(self, server: ServerHandle) -> None:
        """Count the arrival first, and then mix it in."""
        [upload] = await server.receive()
        factor, share = float(self.weight(upload.staleness)), server.share(upload.device)
        freshness = server.state.setdefault("freshness", {})
        freshness[upload.device] = freshness.get(upload.device, 0.0) + factor
        total = server.state["total"] = server.state.get("total", 0.0) + factor
        counted = influence(freshness[upload.device], total, share, self.pseudo_uploads or len(server.devices))
        made = self.combine(server.model, upload.model, factor, share, counted)
        server.commit(made.model, weight=made.weight)

    def combine(self, model: Tensor, uploaded: Tensor, factor: float, share: float, counted: float) -> Step:
        """Return the mixture where the device has had the part `counted` of all influence."""
        weight = fair_weight(self.alpha, factor, share, counted)
        return Step(mix(model, uploaded, weight), weight)


def influence(freshness: float, total_freshness: float, share: float, pseudo_uploads: float) -> float:
    """Return q_k = (C_k + kappa p_k) / (sum_j C_j + kappa): the device's part of all influence so far, BL-3.28.

    C_k is the sum of the staleness factors of its uploads so far, the present one included; p_k its share of all
    samples; kappa `pseudo_uploads` at the right shares that are thought to have come before.
    """
    return (freshness + pseudo_uploads * share) / (total_freshness + pseudo_uploads)


def fair_weight(alpha: float, factor: float, share: float, influence: float) -> float:
    """Return alpha_t = min(1, alpha s p_k / q_k), BL-3.28, for an upload with the staleness factor s."""
    return min(1.0, alpha * factor * share / influence)
