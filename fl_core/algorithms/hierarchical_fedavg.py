"""Hierarchical FedAvg (Liu, Zhang, Song & Letaief, 2020): edge servers average often, a cloud all of them seldom."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import Field
from torch import Tensor

from fl_core.algorithms.base import register
from fl_core.algorithms.edge_updates import cluster_weights
from fl_core.algorithms.sync_sdfeel import Lockstep
from fl_core.formulas.sdfeel import mix
from fl_core.part import Duration

if TYPE_CHECKING:
    from fl_core.runtime import ServerHandle


@register
class HierarchicalFedAvg(Lockstep):
    """What synchronous SD-FEEL approximates without a cloud: exact averaging of all edge models.

    With one edge round it is FedAvg of all devices, weighted by their data. Every aggregation of a cluster makes a
    version.

    Attributes
    ----------
    local_steps : int
        kappa_1, mini-batches between two aggregations at the edge.
    edge_rounds : int
        kappa_2, aggregations at the edge for each at the cloud.
    cloud_seconds : float or None
        Time that models take to the cloud; None: as from one edge server to another.
    """

    name: ClassVar[str] = "hierarchical_fedavg"

    edge_rounds: int = Field(1, ge=1)
    cloud_seconds: Duration | None = None

    def cycle(self, server: ServerHandle) -> tuple[int, float]:
        """Return kappa_2 and the time to the cloud."""
        return self.edge_rounds, server.backhaul_seconds if self.cloud_seconds is None else self.cloud_seconds

    def mixed(self, server: ServerHandle, models: list[Tensor]) -> Tensor:
        """Return the mean of all edge models, weighted by the data of their clusters."""
        return mix(dict(enumerate(models)), dict(enumerate(cluster_weights(server.clusters))))
