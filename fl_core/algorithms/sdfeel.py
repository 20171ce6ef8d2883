"""SD-FEEL: edge servers that train their clusters and gossip; asynchronous, in lockstep, and with a cloud.

Sun, Shao, Mao & Zhang (IEEE ICC 2022), Sun et al. (arXiv 2104.12678), whose matrix and periods are reconstructed in
section 2.5 of the project's specification, and Liu, Zhang, Song & Letaief (2020); section, E and A numbers are those
of the specification.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, model_validator
from torch import Tensor

from fl_core.algorithms.base import Algorithm, register
from fl_core.config import Duration, Seconds
from fl_core.formulas import sdfeel as formulas
from fl_core.formulas.checks import add_up
from fl_core.formulas.sdfeel import ClusterPlan, ConstantMixing, DeadlineRule, Mixing, SelfStaleness, gossip_average
from fl_core.formulas.staleness import Polynomial, StalenessWeight
from fl_core.world.triggers import Rounds

if TYPE_CHECKING:
    from fl_core.runtime import Cluster, DeviceHandle, ServerHandle, Simulation, Snapshot, Trained, Upload
    from fl_core.world import Devices

TIE = 1e-9
"""What arrives within this part of an iteration after its end still belongs to it."""

_plan = lru_cache(maxsize=4096)(formulas.plan_cluster)


@register
class AsyncSDFeel(Algorithm):
    """Each cluster aggregates at its own deadline, mixes with its neighbours and goes on at once (2.2).

    Every iteration of a cluster makes a version: the version of all servers together is the paper's k. What is
    measured is the mean of the servers' models, weighted by their data (A-12).
    """

    name: ClassVar[str] = "async_sdfeel"
    min_batches: int = Field(100, ge=1)
    """n_min, the mini-batches that the slowest device of a cluster does in an iteration (A-05)."""
    deadline: DeadlineRule = "slowest_min_batches"
    """``"slowest_min_batches"``; "mean_min_batches": a device of the cluster's mean speed does n_min; "fixed":
    `deadline_seconds`. A device that cannot do a single step until then takes no part."""
    deadline_seconds: Seconds | None = None
    """Time for training, for "fixed"."""
    discount: StalenessWeight = Polynomial(a=1.0)
    """psi; the paper's 1 / (2 (delta + 1)) is "polynomial(a=1)", as the 1/2 has no effect (E-04)."""
    mixing: Mixing = "derived"
    """``"derived"``: Eq. 5 corrected; "printed": as printed, with which models grow or vanish (E-01);
    "data_weighted": keeps the data-weighted mean of the models (E-05)."""
    self_staleness: SelfStaleness = "gap"
    """``"gap"``: a cluster counts its own staleness too; "fresh": it counts itself as fresh (A-02)."""
    staleness_origin: Literal[0, 1] = 0
    """Staleness of a fresh model: 0, or 1 (E-03)."""
    simultaneous: Literal["in_order", "together"] = "in_order"
    """What happens where all clusters have the same iteration time: "in_order": they end one after the other, in the
    order of their numbers (2.2); "together": all aggregate, then all mix at once, as synchronous SD-FEEL does
    with Metropolis weights (E-17)."""

    @model_validator(mode="after")
    def _consistent(self) -> AsyncSDFeel:
        if (self.deadline == "fixed") != (self.deadline_seconds is not None):
            given = f"deadline = {self.deadline!r} with deadline_seconds = {self.deadline_seconds}"
            raise ValueError(f"{given}: a fixed deadline, and no other, needs its seconds")
        if self.simultaneous == "together" and self.mixing == "printed":
            raise ValueError("simultaneous = 'together' has no printed form: mixing must be derived or data_weighted")
        return self

    async def scheduler(self, server: ServerHandle) -> None:
        """Send the newest model to the devices whose uploads have been used, if they can do a step with it."""
        released = await server.released()
        cluster = server.clusters[server.number]
        steps = self.plan(cluster).local_steps
        server.dispatch(device for device in sorted(released) if steps[device - cluster.devices.start])

    async def updater(self, server: ServerHandle) -> None:
        """At the end of an iteration aggregate (Eq. 3), mix with the neighbours (Eqs. 4, 5), and go on (Eq. 6)."""
        size = server.num_parameters * server.model.element_size()
        # Of the clusters whose iteration times matter here, that of `server` last.
        others = server.clusters if self.simultaneous == "together" else ()
        watched = [*others, server.clusters[server.number]]
        plans = [self.plan(c, c.upload_seconds(size), server.backhaul_seconds) for c in watched]
        period = plans[-1].iteration_seconds
        uploads = await server.receive(until=(server.version + 1) * period, tolerance=TIE * period)
        own = aggregated(server, uploads)
        neighbours: dict[int, Tensor] = {}
        if self.simultaneous == "together" and all(plan.iteration_seconds == period for plan in plans):
            model = await self._together(server, own)
        else:
            model, neighbours = await self._alone(server, own)
        server.commit(model, neighbours=neighbours, weight=shares(uploads))

    async def device(self, device: DeviceHandle) -> None:
        """Do as many local steps as fit before the deadline (Eq. 1), and upload what one of them changed (Eq. 2)."""
        snapshot = await device.download()
        cluster = device.cluster
        steps = self.plan(cluster).local_steps[device.id - cluster.devices.start]
        await upload_normalized(device, snapshot, await device.train(snapshot.model, steps=steps))

    def plan(self, cluster: Cluster, *transfers: float) -> ClusterPlan:
        """Return deadline and steps of `cluster`, and its iteration time with these times of upload and exchange."""
        return self._plan(cluster.step_seconds, *transfers)

    def _plan(self, step_seconds: tuple[float, ...], *transfers: float) -> ClusterPlan:
        how: dict[str, Any] = {"rule": self.deadline, "deadline_seconds": self.deadline_seconds}
        return _plan(step_seconds, *transfers, min_batches=self.min_batches, **how)

    def mini_batches(self, devices: Devices, seconds: float) -> float:
        """Return that number as if transfers took no time."""
        clusters = map(devices.members, range(devices.num_servers))
        plans = [self._plan(tuple(devices.seconds[list(cluster)].tolist())) for cluster in clusters]
        return add_up(seconds / plan.iteration_seconds * sum(plan.local_steps) for plan in plans)

    async def _alone(self, server: ServerHandle, own: Tensor) -> tuple[Tensor, dict[int, Tensor]]:
        """Return what `server` and its neighbours hold after this cluster's event."""
        snapshots = await server.exchange()
        models = {number: snapshot.model for number, snapshot in snapshots.items()} | {server.number: own}
        shares_of_data = cluster_weights(server.clusters) if self.mixing == "data_weighted" else None
        return self.combine(server.number, models, self._staleness(server, snapshots), shares_of_data)

    def combine(
        self, trigger: int, models: dict[int, Tensor], staleness: dict[int, int],
        cluster_weight: Sequence[float] | None = None,
    ) -> tuple[Tensor, dict[int, Tensor]]:  # fmt: skip
        """Return what the trigger and its neighbours hold after its event (Eqs. 4, 5), given the models of both."""
        weights = formulas.gossip_weights(
            trigger, staleness, self.discount, rule=self.mixing, self_staleness=self.self_staleness,
            cluster_weight=cluster_weight,
        )  # fmt: skip
        own = models[trigger]
        neighbours = {j: formulas.gossip_towards(models[j], own, part) for j, part in weights.given.items()}
        return gossip_average(models, weights.column), neighbours

    async def _together(self, server: ServerHandle, own: Tensor) -> Tensor:
        """Return what `server` holds after an event of all clusters."""
        snapshots = await server.exchange()
        discounts = {j: self.discount(late) for j, late in self._staleness(server, snapshots).items()}
        met = await server.meet((own, add_up(discounts.values())))
        data = cluster_weights(server.clusters) if self.mixing == "data_weighted" else None
        sums = {j: met[j][1] for j in discounts}
        weights = formulas.joint_gossip_weights(server.number, discounts, sums, data)
        return gossip_average({j: met[j][0] for j in weights}, weights)

    def _staleness(self, server: ServerHandle, snapshots: dict[int, Snapshot]) -> dict[int, int]:
        k = server.iteration + self.staleness_origin
        return {number: k - snapshot.version for number, snapshot in snapshots.items()}


class Lockstep(Algorithm):
    """Edge servers that work in step: nobody aggregates before the slowest device of all clusters has finished."""

    local_steps: int = Field(100, ge=1)
    """Mini-batches that every device does between two aggregations of its cluster."""

    async def scheduler(self, server: ServerHandle) -> None:
        await Rounds(devices=len(server.devices)).turn(server)

    async def updater(self, server: ServerHandle) -> None:
        """Average the cluster when all have come back; at the end of a cycle, exchange with other servers."""
        uploads = await server.receive_round()
        cycle, seconds = self.cycle(server)
        exchange = (server.version + 1) % cycle == 0
        if exchange and seconds:
            await server.sleep(seconds)
        models = await server.meet(aggregated(server, uploads))
        model = self.combine(server.number, models, server.clusters) if exchange else models[server.number]
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

    def combine(self, server: int, models: Sequence[Tensor], clusters: Sequence[Cluster]) -> Tensor:
        """Return what `server` holds after an exchange of `models`, those of all servers."""
        raise NotImplementedError


@register
class SyncSDFeel(Lockstep):
    """Rounds of `intra_rounds` aggregations and an exchange of `gossip_rounds` steps with a constant matrix (2.5).

    Every aggregation of a cluster makes a version, so a round of D clusters makes D times `intra_rounds`.
    `local_steps` is tau_1, as many as the slowest device does in the asynchronous method (A-15).
    """

    name: ClassVar[str] = "sync_sdfeel"
    intra_rounds: int = Field(1, ge=1)
    """tau_2, aggregations inside the clusters for each exchange."""
    gossip_rounds: int = Field(1, ge=1)
    """alpha, repetitions of the exchange; each takes the world's server-to-server time."""
    mixing: ConstantMixing = "laplacian_safe"
    """Matrix P: "laplacian_safe", "laplacian", "uniform" or "metropolis"; see
    `fl_core.formulas.sdfeel.synchronous_mixing_matrix`. The first two keep the data-weighted mean."""

    def cycle(self, server: ServerHandle) -> tuple[int, float]:
        """Return tau_2 and alpha T_sr-sr."""
        return self.intra_rounds, self.gossip_rounds * server.backhaul_seconds

    def combine(self, server: int, models: Sequence[Tensor], clusters: Sequence[Cluster]) -> Tensor:
        """Return the server's column of Y P^alpha."""
        column = self.matrix(clusters)[:, server]
        return gossip_average(dict(enumerate(models)), dict(enumerate(column.tolist())))

    def matrix(self, clusters: Sequence[Cluster]) -> np.ndarray:
        neighbours = tuple(cluster.neighbours for cluster in clusters)
        return _power(neighbours, tuple(cluster_weights(clusters)), self.mixing, self.gossip_rounds)


@lru_cache(maxsize=64)
def _power(
    neighbours: tuple[tuple[int, ...], ...], weights: tuple[float, ...], kind: ConstantMixing, exponent: int
) -> np.ndarray:
    return np.linalg.matrix_power(formulas.synchronous_mixing_matrix(neighbours, weights, kind), exponent)


@register
class HierarchicalFedAvg(Lockstep):
    """What synchronous SD-FEEL approximates without a cloud: exact averaging of all edge models.

    With one edge round it is FedAvg of all devices, weighted by their data. Every aggregation of a cluster makes a
    version. `local_steps` is kappa_1.
    """

    name: ClassVar[str] = "hierarchical_fedavg"
    edge_rounds: int = Field(1, ge=1)
    """kappa_2, aggregations at the edge for each at the cloud."""
    cloud_seconds: Duration | None = None
    """Time that models take to the cloud; None: as from one edge server to another."""

    def cycle(self, server: ServerHandle) -> tuple[int, float]:
        """Return kappa_2 and the time to the cloud."""
        return self.edge_rounds, server.backhaul_seconds if self.cloud_seconds is None else self.cloud_seconds

    def combine(self, server: int, models: Sequence[Tensor], clusters: Sequence[Cluster]) -> Tensor:
        """Return the mean of all edge models, weighted by the data of their clusters."""
        return gossip_average(dict(enumerate(models)), dict(enumerate(cluster_weights(clusters))))


async def upload_normalized(device: DeviceHandle, start: Snapshot, trained: Trained) -> None:
    """Upload Delta_i (SD-FEEL, Eq. 2) as ``delta`` ``[d]``.

    Statistics (batch normalisation) are sent as they are, for a plain mean: differences that are scaled up could
    make a variance negative (A-06). As in the paper, they are not counted in bytes.
    """
    count = device.num_parameters
    update = formulas.normalized_update(trained.model[:count], start.model[:count], trained.steps)
    delta = torch.cat([update, trained.model[count:]]) if len(trained.model) > count else update
    await device.upload(delta=delta, based_on=start, bytes_up=update.nbytes)


def aggregated(server: ServerHandle, uploads: Sequence[Upload]) -> Tensor:
    """Return the server's model ``[d]`` with the cluster's `uploads` applied by their shares (Eq. 3)."""
    if not uploads:
        return server.model
    ordered = sorted(uploads, key=lambda upload: upload.device)
    deltas, steps = [upload.delta for upload in ordered], [upload.steps for upload in ordered]
    return aggregate(server.model, deltas, shares(ordered), steps, server.num_parameters)


def aggregate(
    model: Tensor, deltas: Sequence[Tensor], weights: Sequence[float], steps: Sequence[int], num_parameters: int
) -> Tensor:
    """Return `model` ``[d]`` after the normalised updates of parameters (Eq. 3); statistics are averaged (A-06)."""
    parameters = [delta[:num_parameters] for delta in deltas]
    updated = formulas.intra_cluster_aggregate(model[:num_parameters], parameters, weights, steps)
    if len(model) == num_parameters:
        return updated
    statistics = [weight * delta[num_parameters:] for weight, delta in zip(weights, deltas, strict=True)]
    return torch.cat([updated, sum(statistics[1:], statistics[0])])


def shares(uploads: Sequence[Upload]) -> list[float]:
    """Return m-hat_i for each of `uploads`, in their order."""
    total = sum(upload.num_samples for upload in uploads)
    return [upload.num_samples / total for upload in uploads]


def cluster_weights(clusters: Sequence[Cluster]) -> list[float]:
    """Return m-tilde_d of all clusters."""
    total = sum(cluster.samples for cluster in clusters)
    return [cluster.samples / total for cluster in clusters]


class Agreement(NamedTuple):
    """What the servers hold after the consensus phase, and what it took."""

    models: NDArray[np.float64]
    """``[D, d]``, each server's model."""
    rounds: int
    seconds: float
    """Virtual time of the exchanges, which are not part of the run."""


def gossip_consensus(
    simulation: Simulation, tolerance: float = 1e-6, *, relative: bool = False,
    mixing: ConstantMixing = "laplacian_safe",
) -> Agreement:  # fmt: skip
    """Let the servers of a finished run exchange models until no two are further apart than `tolerance` (2.3).

    With Laplacian matrices they come without a cloud to ``history.model``, the data-weighted mean; others lead to the
    plain mean (E-06). With `relative` the tolerance is a part of the distance at the end; the run's models stay.
    """
    servers, weights = simulation.servers, cluster_weights(simulation.clusters)
    matrix = formulas.synchronous_mixing_matrix([server.neighbours for server in servers], weights, mixing)
    models = np.stack([server.model.numpy().astype(float) for server in servers])
    found = formulas.consensus_phase(models, matrix, tolerance, relative=relative)
    return Agreement(found.models, found.rounds, found.rounds * servers[0].backhaul_seconds)
