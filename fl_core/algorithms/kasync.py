"""The K-asynchronous server of WKAFL's comparison, and what differs only in how its gradients are weighted (2.5).

Plain K-asynchronous SGD, TWAFL, SASGD and GSGM in the forms of Zhou et al., "Towards Efficient and Stable
K-Asynchronous Federated Learning ..." (IEEE TPDS, 2022), Eq. 2 and Section 6. (W-x) and E-n are those of the
project's specification of WKAFL, (BL-x) those of its specification of baselines.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

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
    """

    at_once: ClassVar[str] = "num_aggregated"
    num_aggregated: int = Field(10, ge=1)
    """Gradients K that make a version; those beyond wait for the next one."""
    lr: float = Field(0.005, gt=0, allow_inf_nan=False)
    """Learning rate eta_0 of the server."""
    client_snapshot: Literal["copy", "aliased"] = "copy"
    """``"copy"``: a device computes on the model that it was sent. "aliased": as in WKAFL's authors' programs, it
    shares the server's memory once it has been sent a model a second time, so that it always computes on the newest
    one; its staleness is counted as before, and only devices that were never used are stale (E30)."""

    async def scheduler(self, server: ServerHandle) -> None:
        """Trigger all devices at first, then those whose gradients were used, in order of arrival."""
        await Contributors().turn(server)

    async def device(self, device: DeviceHandle) -> None:
        """Upload the gradient of one mini-batch (Algorithm 1)."""
        snapshot = await device.download()
        shared = self.client_snapshot == "aliased" and device.trigger > 0
        found = await device.gradient(None if shared else snapshot.model)
        await device.upload(gradient=found.gradient, batch_size=found.samples, based_on=snapshot)


class WeightedKAsynchronous(KAsynchronous):
    """Descend along a weighted sum of the K gradients, Eq. 3."""

    async def updater(self, server: ServerHandle) -> None:
        uploads = await server.receive(self.num_aggregated)
        staleness, sizes = [u.staleness for u in uploads], [u.batch_size for u in uploads]
        direction, weights = self.combine(stacked(uploads), staleness, sizes)
        descend(server, direction, self.lr, weights)

    def combine(self, gradients: Tensor, staleness: Sequence[int], sizes: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Return the weighted sum of `gradients` ``[K, p]``, and the weights."""
        weights = self.weights(staleness, sizes)
        return weights.to(gradients.dtype) @ gradients, weights

    def weights(self, staleness: Sequence[int], batch_sizes: Sequence[int]) -> Tensor:
        """Return the weights ``[K]``, float64."""
        raise NotImplementedError


@register
class KAsync(WeightedKAsynchronous):
    """Plain K-asynchronous SGD: the mean of the first K gradients, Eq. 2."""

    def weights(self, staleness: Sequence[int], batch_sizes: Sequence[int]) -> Tensor:
        return kasync_weights(len(staleness))


@register
class TWAFL(WeightedKAsynchronous):
    """Weights (e / 2)^(-staleness), as WKAFL's authors modified TWAFL (Chen, Sun & Jin, 2020; W-d)."""

    weighting: TWAFLWeighting = "normalised"
    """``"normalised"`` to the sum 1, as in the authors' programs, or "printed": then the step shrinks with staleness,
    to 1 % of it at P / K = 300 (E8)."""
    staleness_offset: Literal[0, 1] = 0
    """1: a fresh gradient counts as one update old."""

    def weights(self, staleness: Sequence[int], batch_sizes: Sequence[int]) -> Tensor:
        return twafl_weights(staleness, batch_sizes, self.weighting, self.staleness_offset)


@register
class SASGD(WeightedKAsynchronous):
    """Each gradient's learning rate is divided by its staleness, counted from 1, as WKAFL compares it (W-e, E7)."""

    divide: bool = True
    """Whether the sum is divided by K; in three of the authors' four programs it is not (E35)."""

    def weights(self, staleness: Sequence[int], batch_sizes: Sequence[int]) -> Tensor:
        return sasgd_weights(staleness, self.divide)


@register
class SoftsyncSASGD(WeightedKAsynchronous):
    """SASGD as its authors print it: a gradient that has missed one update counts as much as a fresh one (BL-3.15).

    Zhang, Gupta, Lian & Liu, "Staleness-aware Async-SGD for Distributed Deep Learning" (IJCAI 2016): n-softsync with
    P devices uses K = floor(P / n) gradients.
    """

    name: ClassVar[str] = "sasgd_softsync"

    def weights(self, staleness: Sequence[int], batch_sizes: Sequence[int]) -> Tensor:
        return softsync_weights(staleness)


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
    """

    momentum_alpha: float = Field(0.1, ge=0, lt=1)
    """Weight alpha of the last round's mean direction; 0 leaves the rounds alone, which is what the authors' programs
    apply (E9)."""
    restart: Literal["use", "round"] = "use"
    """What a device computes on in the next round: the model made from its last gradient ("use"; staleness has the
    mean P / K - 1, as without rounds), or the newest when the round begins ("round", BL-3.17; half of that)."""
    momentum_scale: Literal["mean", "code"] = "mean"
    """``"mean"`` of the round's directions (BL-3.18), or "code": K times less (E9)."""

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
            direction, partial = self.combine(stacked(uploads), momentum, partial, len(server.devices))
        server.state["momentum"], server.state["partial"] = (partial, zero) if over else (momentum, partial)
        if uploads:
            descend(server, direction, self.lr, kasync_weights(len(uploads)))

    def combine(
        self, gradients: Tensor, momentum: Tensor, partial: Tensor, num_clients: int
    ) -> tuple[Tensor, Tensor]:
        """Return the direction of `gradients` ``[K, p]`` and the next momentum as far as the round has gone."""
        direction = gsgm_direction(gradients.mean(0), momentum, self.momentum_alpha)
        by_commit = self.momentum_scale == "code"
        return direction, gsgm_accumulate(partial, direction, len(gradients), num_clients, by_commit=by_commit)


def kasync_weights(count: int) -> Tensor:
    """Return 1 / K for each of `count` gradients, with which Eq. 3 is Eq. 2: plain K-asynchronous SGD."""
    require(count >= 1, "count", count, ">= 1")
    return torch.full((count,), 1 / count, dtype=torch.float64)


def twafl_weights(
    staleness: Sequence[float], batch_sizes: Sequence[float], weighting: TWAFLWeighting = "normalised",
    staleness_offset: int = 0,
) -> Tensor:  # fmt: skip
    """Return TWAFL's weights (m_i / m) (e / 2)^(-tau_i), W-d (BL-3.14), of mini-batches of m_i samples.

    As printed they add up to less than 1 unless all gradients are fresh: the step shrinks with staleness (E8).
    "normalised" divides by their sum, as the authors' programs do, so that `staleness_offset` has no effect.
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

    Three of the authors' four programs do not divide by K (E35).
    """
    tau = _missed(staleness)
    return 1 / ((tau + 1) * (len(tau) if divide else 1))


def softsync_weights(staleness: Sequence[float]) -> Tensor:
    """Return the original SASGD's weights 1 / (K max(tau_i, 1)), BL-3.15."""
    tau = _missed(staleness)
    return 1 / (tau.clamp(min=1) * len(tau))


def _missed(staleness: Sequence[float]) -> Tensor:
    tau = torch.as_tensor(staleness, dtype=torch.float64)
    require(tau >= 0, "staleness", staleness, ">= 0 (missed updates)")
    return tau


def gsgm_direction(mean_grad: Tensor, round_momentum: Tensor, momentum_alpha: float) -> Tensor:
    """Return u = mean gradient + alpha M, GSGM's corrected gradient (BL-3.17)."""
    require(momentum_alpha >= 0, "momentum_alpha", momentum_alpha, ">= 0")
    return mean_grad + momentum_alpha * round_momentum


def gsgm_accumulate(
    partial: Tensor, direction: Tensor, count: int, num_clients: int, *, by_commit: bool = False
) -> Tensor:
    """Return A + (K / P) u, which at the end of a round is the next M, the mean of the round's u (BL-3.18).

    `by_commit` adds u / P, as the authors' programs do: M is then K times smaller (E9).
    """
    require(1 <= count <= num_clients, "count", count, f"in 1..{num_clients}")
    return partial + (1 if by_commit else count) / num_clients * direction
