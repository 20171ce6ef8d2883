"""What a server knows of its task, its devices and its world: none of it changes in a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fl_core.runtime.messages import Cluster
from fl_core.streams import stream
from fl_core.tasks import POOLED

if TYPE_CHECKING:
    from fl_core.models.units import Units
    from fl_core.runtime.simulation import Simulation


class Facts:
    """The read-only part of a server's handle."""

    _run: Simulation
    number: int
    devices: range
    _samples = 0

    @property
    def num_parameters(self) -> int:
        """How many entries at the beginning of a model are trained; those behind are statistics."""
        return self._run.lengths["gradient"]

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of the parameter tensors, in their order in a model; only ``(p,)`` if the task has no layers."""
        return self._run.shapes

    @property
    def hidden_units(self) -> tuple[Units, ...]:
        """Units of the model that a smaller one can do without, by layer.

        Raises
        ------
        SpecError
            If that is not known of this network.
        """
        return self._run.hidden_units

    @property
    def num_samples(self) -> int:
        """Training samples of all devices together."""
        return self._run.task.num_samples(POOLED)

    def share(self, device: int) -> float:
        """Return the part of this server's training samples that `device` holds."""
        task = self._run.task
        if not self._samples:
            alone = self._run.devices.num_servers == 1
            self._samples = task.num_samples(POOLED) if alone else sum(map(task.num_samples, self.devices))
        return task.num_samples(device) / self._samples

    @property
    def declared_seconds(self) -> np.ndarray:
        """Return ``[n]`` seconds per local step, or epoch, of its devices, before what is drawn for each task."""
        return self._run.devices.seconds[self.devices.start : self.devices.stop]

    @property
    def neighbours(self) -> tuple[int, ...]:
        """Numbers of the servers that this one exchanges models with."""
        return self._run.devices.neighbours(self.number)

    @property
    def clusters(self) -> tuple[Cluster, ...]:
        """What is known about the devices of every server, by its number."""
        return self._run.clusters

    @property
    def backhaul_seconds(self) -> float:
        """Time to send a model to a neighbour, as the world says.

        :meth:`~fl_core.runtime.server.ServerHandle.exchange` says who has to count it.
        """
        return self._run.devices.backhaul_seconds

    def stream(self, purpose: str, *index: int) -> np.random.Generator:
        """Return the run's random stream of that name."""
        return stream(self._run.seed, purpose, *index)
