"""MOON: FedAvg with a contrast between representations (BL-2.6, BL-2.7).

Source: Li, He & Song, "Model-Contrastive Federated Learning" (CVPR 2021).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from fl_core.algorithms.base import Weighting, register
from fl_core.algorithms.fedavg import FedAvg
from fl_core.tasks import Contrast

if TYPE_CHECKING:
    from fl_core.runtime import DeviceHandle


@register
class MOON(FedAvg):
    """Synchronous rounds; representations are drawn to the received model's and away from the device's last one's.

    The representation is what the network's last dense layer reads. Each device that has taken part keeps the model
    that it uploaded last: with N devices N models at most, 25 MB for LeNet-5 on 100 devices, 3.7 GB for VGG-11. The
    first time it has none and trains as in FedAvg; so it does always with mu = 0, and then keeps nothing.
    """

    weighting: Weighting = "samples"
    """By "samples", or "uniform"."""
    mu: float = Field(1.0, ge=0, allow_inf_nan=False)
    """Weight of the contrastive loss (BL-2.7)."""
    temperature: float = Field(0.5, gt=0, allow_inf_nan=False)
    """T of the contrastive loss (BL-2.6)."""
    step_cost: float = Field(1.0, gt=0, allow_inf_nan=False)
    """Virtual time of a step with the contrast, in steps of plain training. With 5/3 the two further forward passes
    are counted; FedASMU's printed times show that they are not there."""

    async def device(self, device: DeviceHandle) -> None:
        """Train with the contrast (BL-2.7), and keep the result for the next time."""
        snapshot = await device.download()
        previous = device.state.get("previous")
        if previous is None:
            trained = await device.train(snapshot.model)
        else:
            contrast = Contrast(self.contrast, (snapshot.model, previous))
            trained = await device.train(snapshot.model, contrast=contrast, cost=self.step_cost)
        if self.mu and torch.isfinite(trained.model).all():
            device.state["previous"] = trained.model
        await device.upload(model=trained.model, based_on=snapshot)

    def contrast(self, ours: Tensor, theirs: Sequence[Tensor]) -> Tensor:
        """Return mu times BL-2.6, of representations ``[n, k]`` and those under the global and the previous model."""
        received, previous = theirs
        return self.mu * contrastive_loss(ours, received, previous, self.temperature)


def contrastive_loss(ours: Tensor, ours_global: Tensor, ours_previous: Tensor, temperature: float = 0.5) -> Tensor:
    """Return the mean of log(1 + e^((sim(z, z_prev) - sim(z, z_glob)) / T)), BL-2.6, over a mini-batch.

    z ``[n, k]`` are representations under the model that is trained, z_glob and z_prev of the same inputs under the
    received model and the device's previous one. The stable form of minus the logarithm of a softmax over two cosine
    similarities. It is ln 2 where the two references agree.
    """
    closer = torch.cosine_similarity(ours, ours_previous, -1) - torch.cosine_similarity(ours, ours_global, -1)
    return F.softplus(closer / temperature).mean()
