"""The K-asynchronous server of WKAFL's comparison, and the methods that only weight its gradients differently."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import torch
from pydantic import Field
from torch import Tensor

from fl_core.algorithms.base import Algorithm, register
from fl_core.formulas.checks import require
from fl_core.formulas.wkafl import temporal_weight
from fl_core.world.triggers import BlockedRounds, Contributors

if TYPE_CHECKING:
    from fl_core.runtime import DeviceHandle, ServerHandle, Upload

TWAFLWeighting = Literal["normalised", "printed"]


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


@register
class GSGM(KAsynchronous):
    """K gradients make a version, and every device gives one in each round (BL-3.17, BL-3.18; WKAFL, 2.5).

    The next task of a device that was used begins with the next round, together with all others. With equal devices
    and exponential times the next K are then a uniform draw from those not yet used, as in the authors' programs; a
    round lasts as long as its slowest device.

    Attributes
    ----------
    momentum_alpha : float
        Weight alpha of the last round's mean direction; 0 leaves the rounds alone, which is what the authors'
        programs apply (E9).
    restart : str
        What a device computes on in the next round: the model made from its last gradient (``"use"``; staleness has
        the mean P / K - 1, as without rounds), or the newest when the round begins (``"round"``, BL-3.17; half of
        that).
    momentum_scale : str
        ``"mean"`` of the round's directions (BL-3.18), or ``"code"``: K times less (E9).
    """

    momentum_alpha: float = Field(0.1, ge=0, lt=1)
    restart: Literal["use", "round"] = "use"
    momentum_scale: Literal["mean", "code"] = "mean"

    async def scheduler(self, server: ServerHandle) -> None:
        """Begin a round when everybody has contributed."""
        if self.restart == "round":
            await BlockedRounds().turn(server)
            return
        released = await server.released()
        parked = {**server.state.get("parked", {}), **dict.fromkeys(released, server.snapshot)}
        if not server.in_flight and parked.keys() >= set(server.idle):
            for device in sorted(server.idle):
                server.dispatch([device], snapshot=parked[device])
            parked = {}
        server.state["parked"] = parked

    async def updater(self, server: ServerHandle) -> None:
        """Use the next K gradients of the round, at its end as many as are left."""
        uploads = await server.receive_round(most=self.num_aggregated)
        zero = torch.zeros_like(server.model[: server.num_parameters])
        momentum, partial = server.state.get("momentum", zero), server.state.get("partial", zero)
        over = not server.in_flight and len(server.waiting) == len(uploads)
        if uploads:
            direction = gsgm_direction(stacked(uploads).mean(0), momentum, self.momentum_alpha)
            by_commit = self.momentum_scale == "code"
            partial = gsgm_accumulate(partial, direction, len(uploads), len(server.devices), by_commit=by_commit)
        server.state["momentum"], server.state["partial"] = (partial, zero) if over else (momentum, partial)
        if uploads:
            descend(server, direction, self.lr, kasync_weights(len(uploads)))


def kasync_weights(count: int) -> Tensor:
    """Return 1 / K for each of `count` gradients: plain K-asynchronous SGD, Eq. 2.

    Raises
    ------
    ValueError
        There is no gradient.
    """
    require(count >= 1, "count", count, ">= 1")
    return torch.full((count,), 1 / count, dtype=torch.float64)


def twafl_weights(
    staleness: Sequence[float],
    batch_sizes: Sequence[float],
    weighting: TWAFLWeighting = "normalised",
    staleness_offset: int = 0,
) -> Tensor:
    """Return TWAFL's weights (m_i / m) (e / 2)^(-tau_i), W-d (BL-3.14).

    As printed they add up to less than 1 unless all gradients are fresh: the step shrinks with staleness (E8).

    Parameters
    ----------
    staleness : sequence of float
        tau_i >= 0, fresh = 0.
    batch_sizes : sequence of float
        m_i > 0, the samples behind each gradient.
    weighting : {"normalised", "printed"}, optional
        Whether the weights are divided by their sum, as the authors' programs do.
    staleness_offset : int, optional
        Added to the staleness; of no effect on normalised weights.

    Raises
    ------
    ValueError
        An argument is out of range.
    """
    require(weighting in ("normalised", "printed"), "weighting", weighting, "'normalised' or 'printed'")
    sizes = torch.as_tensor(batch_sizes, dtype=torch.float64)
    require(sizes > 0, "batch_sizes", batch_sizes, "> 0")
    tau = torch.as_tensor(staleness, dtype=torch.float64) + staleness_offset
    if weighting == "normalised":
        tau = tau - tau.min()
    weights = sizes / sizes.sum() * temporal_weight(tau)
    return weights / weights.sum() if weighting == "normalised" else weights


def sasgd_weights(staleness: Sequence[float], divide: bool = True) -> Tensor:
    """Return SASGD's weights 1 / (K (tau_i + 1)), W-e (BL-3.16); the printed 1 / tau is infinite if fresh (E7).

    Parameters
    ----------
    staleness : sequence of float
        tau_i >= 0, fresh = 0.
    divide : bool, optional
        By K; three of the authors' four programs do not (E35).

    Raises
    ------
    ValueError
        A staleness is negative.
    """
    tau = torch.as_tensor(staleness, dtype=torch.float64)
    require(tau >= 0, "staleness", staleness, ">= 0 (missed updates)")
    return 1 / ((tau + 1) * (len(tau) if divide else 1))


def gsgm_direction(mean_grad: Tensor, round_momentum: Tensor, momentum_alpha: float) -> Tensor:
    """Return u = mean gradient + alpha M, GSGM's corrected gradient (BL-3.17).

    Raises
    ------
    ValueError
        alpha is negative.
    """
    require(momentum_alpha >= 0, "momentum_alpha", momentum_alpha, ">= 0")
    return mean_grad + momentum_alpha * round_momentum


def gsgm_accumulate(
    partial: Tensor, direction: Tensor, count: int, num_clients: int, *, by_commit: bool = False
) -> Tensor:
    """Return A + (K / P) u, which at the end of a round is the next M, the mean of the round's u (BL-3.18).

    Parameters
    ----------
    partial, direction : Tensor
        A and u, ``[p]``.
    count, num_clients : int
        Gradients behind u, and P.
    by_commit : bool, optional
        Add u / P, as the authors' programs do: M is then K times smaller (E9).

    Raises
    ------
    ValueError
        `count` is not in 1 .. P.
    """
    require(1 <= count <= num_clients, "count", count, f"in 1..{num_clients}")
    return partial + (1 if by_commit else count) / num_clients * direction
