"""The K-asynchronous server of WKAFL's comparison, and the methods that only weight its gradients differently."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch
from pydantic import Field
from torch import Tensor

from fl_core.algorithms.base import Algorithm, register
from fl_core.formulas.wkafl_baselines import TWAFLWeighting, kasync_weights, sasgd_weights, twafl_weights
from fl_core.world.triggers import Contributors

if TYPE_CHECKING:
    from fl_core.runtime import DeviceHandle, ServerHandle, Upload


class KAsynchronous(Algorithm):
    """All devices always compute one mini-batch gradient; the first K that arrive make a version (Algorithm 1).

    Their devices get the new model and go on; the others go on with what they have, however old it is.

    Attributes
    ----------
    num_aggregated : int
        Gradients K that make a version; those beyond wait for the next one.
    lr : float
        Learning rate eta_0 of the server.
    client_snapshot : str
        ``"copy"``: a device computes on the model that it was sent. ``"aliased"``: as in the authors' programs, a
        device shares the server's memory once it has been sent a model a second time, so that it always computes on
        the newest one; its staleness is counted as before, and only devices that were never used are stale (E30).
    """

    num_aggregated: int = Field(10, ge=1)
    lr: float = Field(0.005, gt=0, allow_inf_nan=False)
    client_snapshot: Literal["copy", "aliased"] = "copy"

    async def scheduler(self, server: ServerHandle) -> None:
        """Trigger all devices at first, then those whose gradients were used, in order of arrival."""
        await Contributors().turn(server)

    async def device(self, device: DeviceHandle) -> None:
        """Upload the gradient of one mini-batch (Algorithm 1)."""
        snapshot = await device.download()
        shared = self.client_snapshot == "aliased" and device.trigger > 0
        found = await device.gradient(None if shared else snapshot.model)
        await device.upload(gradient=found.gradient, batch_size=found.samples, based_on=snapshot)

    def most_in_flight(self) -> int:
        """Return K."""
        return self.num_aggregated


class WeightedKAsynchronous(KAsynchronous):
    """Descend along a weighted sum of the K gradients, Eq. 3."""

    async def updater(self, server: ServerHandle) -> None:
        """Use the first K gradients."""
        uploads = await server.receive(self.num_aggregated)
        weights, gradients = self.weights(uploads), stacked(uploads)
        descend(server, weights.to(gradients.dtype) @ gradients, self.lr, weights)

    def weights(self, uploads: list[Upload]) -> Tensor:
        """Return the weights ``[K]``, float64."""
        raise NotImplementedError


@register
class KAsync(WeightedKAsynchronous):
    """Plain K-asynchronous SGD: the mean of the first K gradients, Eq. 2."""

    def weights(self, uploads: list[Upload]) -> Tensor:
        """Return 1 / K for each."""
        return kasync_weights(len(uploads))


@register
class TWAFL(WeightedKAsynchronous):
    """Weights (e / 2)^(-staleness), as WKAFL's authors modified TWAFL (Chen, Sun & Jin, 2020; W-d).

    Attributes
    ----------
    weighting : str
        ``"normalised"`` to the sum 1, as in the authors' programs, or ``"printed"``: then the step shrinks with
        staleness, to 1 % of it at P / K = 300 (E8).
    staleness_offset : int
        1: a fresh gradient counts as one update old.
    """

    weighting: TWAFLWeighting = "normalised"
    staleness_offset: Literal[0, 1] = 0

    def weights(self, uploads: list[Upload]) -> Tensor:
        """Return the weights by staleness and size of the mini-batch."""
        staleness, sizes = [u.staleness for u in uploads], [u.batch_size for u in uploads]
        return twafl_weights(staleness, sizes, self.weighting, self.staleness_offset)


@register
class SASGD(WeightedKAsynchronous):
    """Each gradient's learning rate is divided by its staleness, counted from 1 (Zhang et al., 2016; W-e, E7).

    Attributes
    ----------
    divide : bool
        Whether the sum is divided by K; in three of the authors' four programs it is not (E35).
    """

    divide: bool = True

    def weights(self, uploads: list[Upload]) -> Tensor:
        """Return the weights by staleness."""
        return sasgd_weights([upload.staleness for upload in uploads], self.divide)


def stacked(uploads: list[Upload]) -> Tensor:
    """Return the uploaded gradients as the rows of a matrix ``[K, p]``."""
    return torch.stack([upload.gradient for upload in uploads])


def descend(server: ServerHandle, direction: Tensor, lr: float, weights: Tensor) -> None:
    """Commit w - lr * `direction` ``[p]``; what is no parameter (statistics) stays."""
    model = server.model.clone()
    model[: server.num_parameters].add_(direction, alpha=-lr)
    server.commit(model, weight=weights.tolist())
