"""PORT: semi-asynchronous aggregation by data, age and direction, with notices to stragglers (BL-3.4, BL-3.5).

Source: Su & Li, "How Asynchronous can Federated Learning Be?" (IWQoS 2022), in the form of the code of the authors'
group with one change: the similarity is that to the way the global model has gone since the update's own base.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from pydantic import Field, model_validator
from torch import Tensor

from fl_core.algorithms.base import Algorithm, Step, mean_step, register
from fl_core.formulas.checks import add_up
from fl_core.world.triggers import Hold

if TYPE_CHECKING:
    from fl_core.runtime import DeviceHandle, ServerHandle


@register
class PORT(Algorithm):
    """Aggregate when enough devices have reported and nobody is too late; weigh by data, age and direction (BL-3.4).

    Those who have reported wait; then as many idle devices take their places, unless the world declares a trigger.
    """

    name: ClassVar[str] = "port"
    at_once: ClassVar[str] = "concurrency"
    min_uploads: int = Field(5, ge=1)
    """Uploads K_min that are waited for."""
    staleness_bound: int = Field(10, ge=1)
    """B: while a task in flight has missed more versions, nothing is aggregated. So no upload has missed more than B
    + 1."""
    staleness_factor: float = Field(3.0, gt=0, allow_inf_nan=False)
    """lambda_s: how much age counts."""
    similarity_factor: float = Field(1.0, ge=0, allow_inf_nan=False)
    """lambda_d: how much the direction counts."""
    urgent: bool = True
    """Whether a task that the next version would put beyond the bound is told so: it uploads at the end of its epoch.
    The notice takes the latency of a transfer, and no bytes are counted for it."""
    concurrency: int = Field(10, ge=1)
    """Tasks in flight and uploads that wait, together."""

    @model_validator(mode="after")
    def _can_be_reached(self) -> PORT:
        if self.min_uploads > (most := self.concurrency):
            what = f"min_uploads = {self.min_uploads} would wait for ever with concurrency = {most}"
            raise ValueError(f"{what}; choose at most {most}")
        return self

    async def scheduler(self, server: ServerHandle) -> None:
        """Trigger as many idle devices as have reported."""
        await server.keep_busy(Hold(concurrency=self.concurrency))

    async def updater(self, server: ServerHandle) -> None:
        """Apply the weighted mean (BL-3.5) of all uploads that are there, and tell who will be late."""
        uploads = await server.receive(self.min_uploads)
        while any(missed > self.staleness_bound for missed in _missed(server).values()):
            uploads += await server.receive()
        trained = slice(server.num_parameters)
        weights = [
            self.weigh(server.model[trained] - u.start.model[trained], -u.delta[trained], u.num_samples, u.staleness)
            for u in uploads
        ]
        made = self.combine(server.model, [upload.delta for upload in uploads], weights)
        server.commit(made.model, weight=made.weight)
        if self.urgent:
            told, server.state["told"] = server.state.get("told", {}), {}
            for device, missed in _missed(server).items():
                if missed >= self.staleness_bound:
                    base = server.iteration - missed
                    before = told.get(device, (None, inf))
                    server.state["told"][device] = before if before[0] == base else (base, server.now)

    async def device(self, device: DeviceHandle) -> None:
        """Train epoch by epoch, until all is done or the server is in a hurry."""
        snapshot = await device.download()
        model: Tensor = snapshot.model
        left = device.local_steps
        while left:
            trained = await device.train(model, steps=min(left, device.steps_per_epoch) if self.urgent else left)
            model, left = trained.model, left - trained.steps
            if left and await device.ask(snapshot.version):
                break
        # The base is a version that the server knows: named, not sent.
        await device.upload(delta=snapshot.model - model, start=snapshot, based_on=snapshot)

    def answer(self, server: ServerHandle, device: DeviceHandle, question: Any) -> bool:
        """Return whether a notice about the task from version `question` has reached `device`."""
        base, sent = server.state.get("told", {}).get(device.id, (None, inf))
        return base == question and device.now >= sent + device.profile.latency_seconds

    def weigh(self, moved: Tensor, progress: Tensor, num_samples: int, staleness: int) -> float:
        """Return gamma_k (BL-3.4), not normalised, of an update whose base has since `moved` to the present model."""
        return update_weight(
            num_samples, staleness, agreement(progress, moved), staleness_factor=self.staleness_factor,
            similarity_factor=self.similarity_factor, staleness_bound=self.staleness_bound,
        )  # fmt: skip

    def combine(self, model: Tensor, deltas: Sequence[Tensor], weights: Sequence[float]) -> Step:
        """Return the step along the mean of `deltas`, weighted by the gamma_k (BL-3.5)."""
        total = add_up(weights)
        return Step(mean_step(model, torch.stack(list(deltas)), 1.0, weights), [weight / total for weight in weights])


def _missed(server: ServerHandle) -> dict[int, int]:
    """Return, for each device at work, how many versions its task has missed so far."""
    return {device: server.iteration - base for device, base in server.base_versions.items()}


def agreement(progress: Tensor, moved: Tensor) -> float:
    """Return cos(Delta_k, w_t - w_b), the similarity of BL-3.4 ``[p]``; 1 where one of the two is zero (if fresh)."""
    if not progress.any() or not moved.any():
        return 1.0
    if not all(1e-8 < float(vector.norm()) < math.inf for vector in (progress, moved)):  # PyTorch's own limit
        progress, moved = (vector.double() / vector.double().abs().max() for vector in (progress, moved))
    return float(torch.cosine_similarity(progress, moved, 0))


def update_weight(
    num_samples: float, staleness: float, agreement: float, *, staleness_factor: float = 3.0,
    similarity_factor: float = 1.0, staleness_bound: float = 10.0,
) -> float:  # fmt: skip
    """Return gamma_k = n_k (lambda_s B / (tau_k + B) + lambda_d (cos + 1) / 2), BL-3.4; not normalised."""
    age = staleness_bound / (staleness + staleness_bound)
    return num_samples * (staleness_factor * age + similarity_factor * (agreement + 1) / 2)
