"""Single-machine SGD on the pooled data: the reference without federation (FedAsync, Algorithm 3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from fl_core.algorithms.base import Algorithm, register
from fl_core.tasks import POOLED

if TYPE_CHECKING:
    from fl_core.runtime import DeviceHandle, ServerHandle


@register
class SGD(Algorithm):
    """One imaginary machine holds all data; every iteration applies one mini-batch gradient."""

    block: int = Field(10, ge=1)
    """Iterations between two versions. It sets how often the model can be measured and nothing else that the paper
    knows; with the paper's value a version costs as many gradients as a global epoch of FedAsync."""

    async def scheduler(self, server: ServerHandle) -> None:
        """Let the machine go on from the newest version."""
        await server.idle_changed()
        if not server.in_flight:
            server.dispatch([POOLED])

    async def updater(self, server: ServerHandle) -> None:
        [upload] = await server.receive()
        server.commit(upload.model)

    async def device(self, device: DeviceHandle) -> None:
        """Do one block of iterations (BL-2.1)."""
        snapshot = await device.download()
        trained = await device.train(snapshot.model, steps=self.block)
        await device.upload(model=trained.model, based_on=snapshot)
