"""Synchronous SD-FEEL (Sun et al., arXiv 2104.12678): edge servers average their devices, then gossip.

The matrix and the periods are reconstructed in section 2.5 of the asynchronous paper's specification.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from pydantic import Field
from torch import Tensor

from fl_core.algorithms.base import Algorithm, register
from fl_core.algorithms.edge_updates import aggregated, cluster_weights, shares, upload_normalized
from fl_core.formulas.sdfeel import mix
from fl_core.formulas.sdfeel_graphs import ConstantMixing, synchronous_mixing_matrix
from fl_core.world.triggers import Rounds

if TYPE_CHECKING:
    from fl_core.runtime import Cluster, DeviceHandle, ServerHandle
    from fl_core.world import Devices


class Lockstep(Algorithm):
    """Edge servers that work in step: nobody aggregates before the slowest device of all clusters has finished.

    Attributes
    ----------
    local_steps : int
        Mini-batches that every device does between two aggregations of its cluster.
    """

    local_steps: int = Field(100, ge=1)

    async def scheduler(self, server: ServerHandle) -> None:
        """Trigger all devices whenever there is a new version."""
        await Rounds(devices=len(server.devices)).turn(server)

    async def updater(self, server: ServerHandle) -> None:
        """Average the cluster when all have come back; at the end of a cycle, exchange with other servers."""
        uploads = await server.receive_round()
        cycle, seconds = self.cycle(server)
        exchange = (server.version + 1) % cycle == 0
        if exchange and seconds:
            await server.sleep(seconds)
        models = await server.meet(aggregated(server, uploads))
        model = self.mixed(server, models) if exchange else models[server.number]
        server.commit(model, weight=shares(uploads))

    async def device(self, device: DeviceHandle) -> None:
        """Do the same number of local steps as everybody else."""
        snapshot = await device.download()
        await upload_normalized(device, snapshot, await device.train(snapshot.model, steps=self.local_steps))

    def mini_batches(self, devices: Devices, seconds: float) -> float:
        """Return that number as if transfers took no time."""
        return len(devices) * seconds / float(devices.seconds.max())

    def cycle(self, server: ServerHandle) -> tuple[int, float]:
        """Return every how many aggregations servers exchange models, and the time that it takes."""
        raise NotImplementedError

    def mixed(self, server: ServerHandle, models: list[Tensor]) -> Tensor:
        """Return what `server` holds after an exchange of `models`, those of all servers."""
        raise NotImplementedError


@register
class SyncSDFeel(Lockstep):
    """Rounds of `intra_rounds` aggregations and an exchange of `gossip_rounds` steps with a constant matrix (2.5).

    Every aggregation of a cluster makes a version, so a round of D clusters makes D times `intra_rounds`.

    Attributes
    ----------
    local_steps : int
        tau_1; as many as the slowest device does in the asynchronous method (A-15).
    intra_rounds : int
        tau_2, aggregations inside the clusters for each exchange.
    gossip_rounds : int
        alpha, repetitions of the exchange; each takes the world's server-to-server time.
    mixing : str
        Matrix P: ``"laplacian_safe"``, ``"laplacian"``, ``"uniform"`` or ``"metropolis"``; see
        :func:`fl_core.formulas.sdfeel_graphs.synchronous_mixing_matrix`. The first two keep the data-weighted mean.
    """

    name: ClassVar[str] = "sync_sdfeel"

    intra_rounds: int = Field(1, ge=1)
    gossip_rounds: int = Field(1, ge=1)
    mixing: ConstantMixing = "laplacian_safe"

    def cycle(self, server: ServerHandle) -> tuple[int, float]:
        """Return tau_2 and alpha T_sr-sr."""
        return self.intra_rounds, self.gossip_rounds * server.backhaul_seconds

    def mixed(self, server: ServerHandle, models: list[Tensor]) -> Tensor:
        """Return the server's column of Y P^alpha."""
        column = self.matrix(server.clusters)[:, server.number]
        return mix(dict(enumerate(models)), dict(enumerate(column.tolist())))

    def matrix(self, clusters: tuple[Cluster, ...]) -> np.ndarray:
        """Return P^alpha ``[D, D]``."""
        neighbours = tuple(cluster.neighbours for cluster in clusters)
        return _power(neighbours, tuple(cluster_weights(clusters)), self.mixing, self.gossip_rounds)


@lru_cache(maxsize=64)
def _power(
    neighbours: tuple[tuple[int, ...], ...], weights: tuple[float, ...], kind: ConstantMixing, exponent: int
) -> np.ndarray:
    return np.linalg.matrix_power(synchronous_mixing_matrix(neighbours, weights, kind), exponent)
