"""Replay what another program did: arrivals, mini-batches and models are given, and ours is compared with them.

The server's step and the devices' work are those of the algorithm; who arrives when, and from which version, is read
from the record instead of following from a clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fl_core.errors import SpecError
from fl_core.runtime.device import DeviceHandle
from fl_core.runtime.history import History
from fl_core.runtime.messages import Budget, Evaluation, LocalTraining, Snapshot
from fl_core.runtime.server import ServerHandle
from fl_core.runtime.simulation import Simulation
from fl_core.tasks import Classification
from fl_core.world import World

if TYPE_CHECKING:
    from fl_core.algorithms.base import Algorithm


@cache
def recorded(beside: str, name: str = "lockstep.npz") -> dict[str, np.ndarray]:
    """Return what another program did, by name: arrays that are stored beside the module with this ``__file__``."""
    with np.load(Path(beside).with_name(name), allow_pickle=False) as stored:
        return dict(stored)


class Arrival(NamedTuple):
    """A recorded upload."""

    device: int
    base: int
    """Version that its task began from."""
    batches: np.ndarray
    """``[steps, b]``, positions among the device's samples."""


class Replayed(NamedTuple):
    """What the simulator makes of a record."""

    models: list[Tensor]
    """``[d]`` of every version from 1 on, as it was made: one step from the version before, or from its record."""
    history: History


def replay(
    task: Classification, algorithm: Algorithm, updates: Sequence[Sequence[Arrival]], initial: Tensor, *,
    forced: Mapping[int, Tensor] | None = None, training: LocalTraining | None = None,
) -> Replayed:  # fmt: skip
    """Let `algorithm` make a version from the arrivals of each of `updates`, from the model `initial` ``[d]`` on.

    With `forced`, the recorded models of some versions, each of them takes the place of the one that was made before
    the next update begins, so that errors do not add up. Of `training` the size of mini-batches, the number of
    steps and their order are those of the record. A device's number of samples is that of its recorded mini-batches,
    and every update is a round.
    """
    arrivals = [arrival for update in updates for arrival in update]
    shapes = {np.shape(arrival.batches) for arrival in arrivals}
    if len(shapes) != 1 or len(next(iter(shapes))) != 2:
        raise SpecError(f"recorded mini-batches have the shapes {sorted(shapes)}; all should have one, (steps, size)")
    for number, update in enumerate(updates):
        if late := [arrival for arrival in update if not 0 <= arrival.base <= number]:
            raise SpecError(f"update {number + 1} uses version {late[0].base}; there are 0..{number} then")
    [(steps, size)] = shapes
    given = {"batch_size": size, "steps": steps, "order": "cyclic"}
    settings = (training or LocalTraining()).model_copy(update=given)
    recorded = _Recorded(algorithm, updates, forced or {})
    run = _FromModel(
        _in_order(task, arrivals), World(devices=len(task.parts)), recorded,  # type: ignore[arg-type]  # it has the three coroutines
        budget=Budget(updates=len(updates)), evaluation=Evaluation(every_updates=None), training=settings,
    )  # fmt: skip
    run.initial = initial
    return Replayed(recorded.made, run.run())


class _FromModel(Simulation):
    initial: Tensor

    def _initial_model(self) -> Tensor:
        return self.initial.clone()


class _Recorded:
    """An algorithm whose schedule, and with `forced` whose models, are given."""

    def __init__(
        self, algorithm: Algorithm, updates: Sequence[Sequence[Arrival]], forced: Mapping[int, Tensor]
    ) -> None:
        self.algorithm, self.updates, self.forced = algorithm, updates, forced
        self.name, self.made = algorithm.name, list[Tensor]()
        self.handed_out: list[Snapshot] = []

    async def scheduler(self, server: ServerHandle) -> None:
        await server.new_version()
        self.handed_out.append(server.snapshot)
        for device, base, _ in self.updates[server.version]:
            server.dispatch([device], seconds=1.0, snapshot=self.handed_out[base])

    async def updater(self, server: ServerHandle) -> None:
        await self.algorithm.updater(_Teacher(server, self))  # type: ignore[arg-type]  # it stands for the handle

    async def device(self, device: DeviceHandle) -> None:
        await self.algorithm.device(device)


class _Teacher:
    """The server's handle, which keeps what is committed and commits what was recorded."""

    def __init__(self, server: ServerHandle, record: _Recorded) -> None:
        self._server, self._record = server, record

    def __getattr__(self, name: str) -> Any:
        return getattr(self._server, name)

    def commit(self, model: Tensor, **logged: Any) -> None:
        self._record.made.append(model)
        self._server.commit(self._record.forced.get(len(self._record.made), model).clone(), **logged)


def _in_order(task: Classification, arrivals: Sequence[Arrival]) -> Classification:
    """Return the task with each device's samples in the order in which the record uses them."""
    parts = [torch.empty(0, dtype=torch.int64) for _ in task.parts]
    for device, _, batches in arrivals:
        used = task.parts[device][torch.from_numpy(np.ravel(batches).astype(np.int64))]
        parts[device] = torch.cat([parts[device], used])
    ordered = copy(task)
    ordered.parts, ordered.pool = parts, torch.cat(parts)
    return ordered
