"""Asynchronous SD-FEEL: clusters with deadlines of their own, normalised updates, staleness-aware mixing.

Sun, Shao, Mao & Zhang (IEEE ICC 2022); section, E and A numbers are those of the project's specification.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field, model_validator
from torch import Tensor

from fl_core.algorithms.base import Algorithm, register
from fl_core.algorithms.edge_updates import aggregated, cluster_weights, shares, upload_normalized
from fl_core.formulas.sdfeel import Mixing, SelfStaleness, joint_weights, mix, mixing_weights, take
from fl_core.formulas.sdfeel_system import ClusterPlan, DeadlineRule, plan_cluster
from fl_core.formulas.staleness import Polynomial, StalenessWeight
from fl_core.part import Seconds

if TYPE_CHECKING:
    from fl_core.runtime import Cluster, DeviceHandle, ServerHandle, Snapshot
    from fl_core.world import Devices

TIE = 1e-9
"""What arrives within this part of an iteration after its end still belongs to it."""

_plan = lru_cache(maxsize=4096)(plan_cluster)


@register
class AsyncSDFeel(Algorithm):
    """Each cluster aggregates at its own deadline, mixes with its neighbours and goes on at once (2.2).

    Every iteration of a cluster makes a version: the version of all servers together is the paper's k. What is
    measured is the mean of the servers' models, weighted by their data (A-12).

    Attributes
    ----------
    min_batches : int
        n_min, the mini-batches that the slowest device of a cluster does in an iteration (A-05).
    deadline : str
        ``"slowest_min_batches"``; ``"mean_min_batches"``: a device of the cluster's mean speed does n_min;
        ``"fixed"``: `deadline_seconds`. A device that cannot do a single step until then takes no part.
    deadline_seconds : float or None
        Time for training, for ``"fixed"``.
    discount : StalenessWeight
        psi; the paper's 1 / (2 (delta + 1)) is ``"polynomial(a=1)"``, as the 1/2 has no effect (E-04).
    mixing : str
        ``"derived"``: Eq. 5 corrected; ``"printed"``: as printed, with which models grow or vanish (E-01);
        ``"data_weighted"``: keeps the data-weighted mean of the models (E-05).
    self_staleness : str
        ``"gap"``: a cluster counts its own staleness too; ``"fresh"``: it counts itself as fresh (A-02).
    staleness_origin : int
        Staleness of a fresh model: 0, or 1 (E-03).
    simultaneous : str
        What happens where all clusters have the same iteration time: ``"in_order"``: they end one after the other,
        in the order of their numbers (2.2); ``"together"``: all aggregate, then all mix at once, which is
        synchronous SD-FEEL (E-17).
    """

    name: ClassVar[str] = "async_sdfeel"

    min_batches: int = Field(100, ge=1)
    deadline: DeadlineRule = "slowest_min_batches"
    deadline_seconds: Seconds | None = None
    discount: StalenessWeight = Polynomial(a=1.0)
    mixing: Mixing = "derived"
    self_staleness: SelfStaleness = "gap"
    staleness_origin: Literal[0, 1] = 0
    simultaneous: Literal["in_order", "together"] = "in_order"

    @model_validator(mode="after")
    def _consistent(self) -> AsyncSDFeel:
        if (self.deadline == "fixed") != (self.deadline_seconds is not None):
            raise ValueError(
                f"deadline = {self.deadline!r} with deadline_seconds = {self.deadline_seconds}: "
                "a fixed deadline, and no other, needs its seconds"
            )
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
        plans = [self.plan(c, c.upload_seconds(size), server.backhaul_seconds) for c in self._watched(server)]
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

    def plan(self, cluster: Cluster, upload_seconds: float = 0.0, exchange_seconds: float = 0.0) -> ClusterPlan:
        """Return the deadline and the step counts of `cluster`, and the time of an iteration with these transfers."""
        return _plan(
            cluster.step_seconds, upload_seconds, exchange_seconds,
            min_batches=self.min_batches, rule=self.deadline, deadline_seconds=self.deadline_seconds,
        )  # fmt: skip

    def mini_batches(self, devices: Devices, seconds: float) -> float:
        """Return that number as if transfers took no time."""
        total = 0.0
        for server in range(devices.num_servers):
            plan = _plan(
                tuple(devices.seconds[list(devices.members(server))].tolist()),
                min_batches=self.min_batches, rule=self.deadline, deadline_seconds=self.deadline_seconds,
            )  # fmt: skip
            total += seconds / plan.iteration_seconds * sum(plan.local_steps)
        return total

    def _watched(self, server: ServerHandle) -> list[Cluster]:
        """Return the clusters whose iteration times matter here, that of `server` last."""
        others = server.clusters if self.simultaneous == "together" else ()
        return [*others, server.clusters[server.number]]

    async def _alone(self, server: ServerHandle, own: Tensor) -> tuple[Tensor, dict[int, Tensor]]:
        """Return what `server` and its neighbours hold after this cluster's event."""
        snapshots = await server.exchange()
        weights = mixing_weights(
            server.number,
            self._staleness(server, snapshots),
            self.discount,
            rule=self.mixing,
            self_staleness=self.self_staleness,
            cluster_weight=cluster_weights(server.clusters) if self.mixing == "data_weighted" else None,
        )
        models = {number: snapshot.model for number, snapshot in snapshots.items()} | {server.number: own}
        return mix(models, weights.column), {j: take(models[j], own, p) for j, p in weights.given.items()}

    async def _together(self, server: ServerHandle, own: Tensor) -> Tensor:
        """Return what `server` holds after an event of all clusters."""
        snapshots = await server.exchange()
        discounts = {j: self.discount(late) for j, late in self._staleness(server, snapshots).items()}
        met = await server.meet((own, sum(discounts.values())))
        weights = joint_weights(
            server.number,
            discounts,
            {j: met[j][1] for j in discounts},
            cluster_weights(server.clusters) if self.mixing == "data_weighted" else None,
        )
        return mix({j: met[j][0] for j in weights}, weights)

    def _staleness(self, server: ServerHandle, snapshots: dict[int, Snapshot]) -> dict[int, int]:
        k = server.iteration + self.staleness_origin
        return {number: k - snapshot.version for number, snapshot in snapshots.items()}
