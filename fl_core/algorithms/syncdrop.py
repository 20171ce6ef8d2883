"""SyncDrop: asynchronous distributed dropout, every device trains some of the hidden units (BL-3.26, BL-3.27).

FedASMU's name for AsyncDrop: Dun, Hipolito, Jermaine, Dimitriadis & Kyrillidis, "Efficient and Light-Weight Federated
Learning via Asynchronous Distributed Dropout" (AISTATS 2023).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fl_core.algorithms.base import ContinuousAlgorithm, register
from fl_core.formulas.fedasync import mix

if TYPE_CHECKING:
    from fl_core.models.units import Units
    from fl_core.runtime import DeviceHandle, ServerHandle


@register
class SyncDrop(ContinuousAlgorithm):
    """Send each device a part of the hidden units, and mix what it has learned into that part (BL-3.26).

    Units of all layers but the first and the last are left out; a network that has no others is sent whole. Only what
    a device has of the model is sent, either way, and counted; its computing takes the same part of the time.
    """

    alpha: float = Field(0.5, gt=0, le=1)
    """Mixing weight of what was trained, however stale."""
    keep: float = Field(0.25, gt=0, le=1)
    """Part kappa of each layer's hidden units that a device gets."""
    assignment: Literal["random", "hetero"] = "random"
    """Which units: "random", drawn for each task; or "hetero": those that have moved most go to the fastest devices
    (BL-3.27)."""
    reference: Literal["initial", "last"] = "initial"
    """For "hetero", since when they have moved: since the "initial" model or the "last" one."""
    ranks: int = Field(8, ge=1)
    """For "hetero", groups of devices by speed."""

    async def updater(self, server: ServerHandle) -> None:
        """Mix each arrival where the device had the model."""
        [upload] = await server.receive()
        if self.reference == "last" or "reference" not in server.state:
            server.state["reference"] = server.model
        server.commit(self.combine(server.model, upload.model, upload.kept), weight=self.alpha)

    def combine(self, model: Tensor, uploaded: Tensor, kept: Tensor) -> Tensor:
        """Return the mixture where `kept` ``[d]`` is true (BL-3.26)."""
        return mix_kept(model, uploaded, kept, self.alpha)

    async def device(self, device: DeviceHandle) -> None:
        kept, size = await device.ask("which units")
        snapshot = await device.download(bytes_down=size)
        mask = kept[: device.num_parameters]
        part = float(mask.sum()) / len(mask)
        start = torch.where(kept, snapshot.model, torch.zeros((), dtype=snapshot.model.dtype))
        trained = await device.train(start, correction=Masked(mask), cost=part)
        # Which units these are, the server knows.
        await device.upload(model=trained.model, kept=kept, bytes_up=size, based_on=snapshot)

    def answer(self, server: ServerHandle, device: DeviceHandle, question: Any) -> tuple[Tensor, int]:
        """Return the part of the model that `device` gets: the mask ``[d]``, and its size in bytes."""
        kept = torch.ones(len(server.model), dtype=torch.bool)
        rng = server.stream("hidden-units", device.id, device.trigger)
        for units in server.hidden_units:
            if self.keep < 1:
                units.keep(kept, self.chosen(server, device.id, units, rng))
        return kept, int(kept.sum()) * server.model.element_size()

    def chosen(self, server: ServerHandle, device: int, units: Units, rng: np.random.Generator) -> list[int]:
        count = kept_units(units.count, self.keep)
        if self.assignment == "random":
            return sorted(rng.choice(units.count, count, replace=False).tolist())
        moved = units.moved(server.model, server.state.get("reference", server.model))
        order = moved.argsort(descending=True, stable=True).tolist()
        ranks = min(self.ranks, len(server.devices))
        place = int((server.declared_seconds < server.declared_seconds[device - server.devices.start]).sum())
        start = window_start(place * ranks // len(server.devices), ranks, units.count, self.keep)
        return order[start : start + count]


@dataclass(frozen=True, eq=False)
class Masked:
    """The correction that keeps what a device has not got, where `mask` ``[p]`` is false, at zero."""

    mask: Tensor

    def begin(self, parameters: Tensor) -> tuple[Tensor, ...]:
        return ()

    def correct(self, gradient: Tensor, memory: tuple[Tensor, ...]) -> None:
        gradient.mul_(self.mask.to(gradient.device))


def mix_kept(w: Tensor, w_new: Tensor, kept: Tensor, alpha: float) -> Tensor:
    """Return (1 - alpha) w + alpha x_k where the device had the entry, and w elsewhere, BL-3.26.

    `kept` ``[d]`` is the mask m_k; what `w_new` holds where nothing was kept does not matter.
    """
    return torch.where(kept, mix(w, w_new, alpha), w)


def kept_units(units: int, keep: float) -> int:
    """Return floor(kappa F), the hidden units that a device gets of a layer of F, but at least 1."""
    return max(1, math.floor(keep * units))


def window_start(rank: int, ranks: int, units: int, keep: float) -> int:
    """Return s_r = min(r floor(F / n), F - floor(kappa F)), BL-3.27: where the window of a device begins.

    The window is in the list of a layer's F units, sorted by how much they have moved, the most first; rank 0 is the
    fastest of n.
    """
    return min(rank * (units // ranks), units - kept_units(units, keep))
