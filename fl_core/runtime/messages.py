"""What a run is asked to do, and what travels between server and devices, over a link that may be finite."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor

from fl_core.config import Config, Seconds
from fl_core.world import DeviceProfile

if TYPE_CHECKING:
    from fl_core.runtime.server import ServerHandle


MOST_EPOCHS, MOST_STEPS, MOST_UPDATES = 10**5, 10**7, 10**9
"""Far beyond every experiment, and near enough that nothing is allocated or repeated for ever."""


class LocalTraining(Config):
    """How a device trains unless its algorithm says otherwise; the same for all methods of one comparison."""

    lr: float = Field(0.03, gt=0, allow_inf_nan=False)
    """Step size of local SGD, > 0."""
    batch_size: int = Field(50, ge=1, le=MOST_STEPS)
    """Samples per mini-batch; the last one of an epoch may be smaller."""
    epochs: int = Field(1, ge=1, le=MOST_EPOCHS)
    """Passes over the device's data per task, when `steps` is None."""
    steps: int | None = Field(None, ge=1, le=MOST_STEPS)
    """Mini-batches per task instead of whole passes."""
    weight_decay: float = Field(0.0, ge=0, allow_inf_nan=False)
    """Added to the gradient as ``weight_decay * x``."""
    momentum: float = Field(0.0, ge=0, lt=1)
    """Part m of its velocity that a step keeps: v <- m v + gradient, x <- x - lr v."""
    momentum_reset: bool = True
    """Whether every task begins with velocity 0; if not, a device goes on with that of its last task, which it keeps
    as ``device.state["velocity"]`` (FedLuck, A1)."""
    order: Literal["shuffled", "cyclic"] = "shuffled"
    """``"shuffled"``: each epoch of a task is a new permutation of the device's samples; ``"cyclic"``: always the
    same order, in which a task goes on where the last one ended (FedLuck, A2), ``device.state["cursor"]``
    mini-batches after the first. A task that is not finished leaves both as they were."""
    lr_decay: float = Field(1.0, gt=0, le=1)
    """Factor of the step size, in (0, 1], after every `lr_decay_versions` versions (FedASMU, A06). A task keeps the
    one of the version with which it was triggered."""
    lr_decay_versions: int = Field(10, ge=1)
    """How many versions a step size lasts."""

    def lr_at(self, version: int) -> float:
        """Return the step size of a task that is triggered with `version`."""
        return self.lr if self.lr_decay == 1 else self.lr * self.lr_decay ** (version // self.lr_decay_versions)


class Warmup(Config):
    """Training of the initial model on device 0's data before version 0, which counts nothing (FedAsync, A11)."""

    perturbation: float = Field(0.0, ge=0, le=1)
    """Every weight w of the initial model becomes w (1 + perturbation z), z standard normal: to see what luck by
    rounding does (1e-7 is about the spacing of float32)."""

    epochs: int = Field(0, ge=0, le=MOST_EPOCHS)
    """Passes over device 0's data; 0: none."""
    lr: float = Field(0.01, gt=0, allow_inf_nan=False)
    """Step size, > 0."""


class Budget(Config):
    """When a run ends: at the first bound that is reached."""

    updates: int | None = Field(None, ge=1, le=MOST_UPDATES)
    """Global model versions."""
    gradients: int | None = Field(None, ge=1, le=10**6 * MOST_UPDATES)
    """Mini-batch gradients applied to the global model."""
    seconds: float | None = Field(None, gt=0, allow_inf_nan=False)
    """Virtual time."""
    accuracy: float | None = Field(None, gt=0, le=1)
    """Test accuracy that an evaluation finds: a run that only asks when it is reached needs no more. As it may never
    be, it stands beside another bound."""
    uploads: int | None = Field(None, ge=1, le=MOST_UPDATES)
    """Uploads that were applied or discarded: where too stale ones count as rounds (FedASMU, E05)."""

    @model_validator(mode="after")
    def _bounded(self) -> Budget:
        if {self.updates, self.gradients, self.seconds, self.uploads} == {None}:
            raise ValueError("a budget needs at least one of updates, gradients, seconds, uploads")
        return self


class Evaluation(Config):
    """When and on what the global model is measured; always also at the start and at the end."""

    every_updates: int | None = Field(100, ge=1)
    """Period in versions."""
    every_seconds: float | None = Field(None, gt=0, allow_inf_nan=False)
    """Period in virtual time."""
    test_samples: int = Field(0, ge=0, le=MOST_STEPS)
    """Test samples of a periodic evaluation, spread evenly over the test set (0: all of it). The evaluations at the
    start, at the end and `at_seconds` always use all."""
    at_seconds: tuple[Seconds, ...] = ()
    """Further virtual times of an evaluation."""
    train_samples: int = Field(0, ge=0, le=MOST_STEPS)
    """Training samples that the training loss is averaged over (0: not measured)."""


class Snapshot(NamedTuple):
    """A global model as it was handed to a device; nothing may change it."""

    model: Tensor
    """``[d]``, read only."""
    version: int
    """How many commits had happened."""


@dataclass(slots=True, eq=False)
class Upload:
    """What has arrived at the server; the content is also reachable by its names (``upload.model``)."""

    server: ServerHandle
    device: int
    task: int
    """Dispatch sequence number."""
    base_version: int
    """Version that the content was made from."""
    arrived_seconds: float
    num_samples: int
    """The device's data size."""
    steps: int
    """Its local steps in this task."""
    loss: float
    """Mean local training loss."""
    payload: dict[str, Any]

    @property
    def staleness(self) -> int:
        """Commits since the model it is based on was sent: 0 for a fresh upload, if used now."""
        return self.server.iteration - self.base_version

    def __getattr__(self, name: str) -> Any:
        if name != "payload" and name in self.payload:
            return self.payload[name]
        raise AttributeError(f"the upload of device {self.device} has no {name!r}; it has {sorted(self.payload)}")


TAKEN = frozenset({"staleness", *Upload.__slots__})
"""Names that no part of a payload may have."""


class Cluster(NamedTuple):
    """The devices of one server, as the world declares them, before anything that is drawn for each task."""

    devices: range
    """Their numbers."""
    neighbours: tuple[int, ...]
    """Numbers of the servers that the server exchanges models with."""
    samples: int
    """Training samples of all of them."""
    step_seconds: tuple[float, ...]
    """Time of one local step of each."""
    profiles: tuple[DeviceProfile, ...]
    """What transfers cost each."""

    def upload_seconds(self, size: float) -> float:
        """Return the time until the slowest link has sent `size` bytes."""
        return max(profile.up_seconds(size) for profile in self.profiles)


def unusable(payload: dict[str, Any], lengths: dict[str, int]) -> str:
    """Say why an upload is not usable, whose parts should have `lengths`; empty if it is."""
    for name, value in payload.items():
        if (value.__class__ is Tensor or isinstance(value, Tensor)) and value.is_floating_point():
            expected = lengths.get(name)
            if expected is not None and value.numel() != expected:
                return f"length {value.numel()} instead of {expected}"
            # The cheapest test; the squares may overflow although every entry is finite.
            plain = value.dtype in (torch.float32, torch.float64) and not value.requires_grad
            entries = (value if plain else value.detach().double()).numpy().ravel()
            with np.errstate(over="ignore", invalid="ignore"):
                square = entries.dot(entries)
            if not isfinite(square) and not bool(torch.isfinite(value).all()):
                return "not finite"
        elif isinstance(value, np.ndarray) and value.dtype.kind in "fc" and not np.isfinite(value).all():
            return "not finite"
    return ""


def misshapen(payload: dict[str, Any], sent: dict[str, Any]) -> str:
    """Say in which other shape than it was sent in a tensor has arrived; empty if there is none."""
    for name, value in payload.items():
        before = sent.get(name)
        if isinstance(value, Tensor) and isinstance(before, Tensor) and value.shape != before.shape:
            if value.dim() == before.dim() == 1:
                return f"length {len(value)} instead of {len(before)}"
            return f"shape {list(value.shape)} instead of {list(before.shape)}"
    return ""


DONE = 1e-9
"""Part of a transfer that rounding may leave over."""


def fair_shares(limits: Sequence[float], rate: float) -> list[float]:
    """Divide `rate` among transfers, none above its limit: the max-min fair shares (Bertsekas & Gallager, 1992)."""
    shares, left = [0.0] * len(limits), rate
    order = sorted(range(len(limits)), key=limits.__getitem__)
    for place, number in enumerate(order):
        shares[number] = min(limits[number], left / (len(order) - place))
        left -= shares[number]
    return shares


class SharedLink:
    """One direction of a server's link, `rate` bits per second, which transfers share fairly.

    Between two events the shares are constant. A transfer that joins never speeds up another one, so the moment at
    which one would end with those present is never too late: it looks again then, and goes on if others have joined
    meanwhile.
    """

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self.open: dict[int, tuple[float, float, float]] = {}
        """Of each task in transfer: bits that are left, bits in all, most bits per second."""
        self.since = 0.0

    def look(self, task: int, bits: float, limit: float, now: float) -> float | None:
        """Return when the transfer of `task` ends if none joins, or None if it has; a new one joins.

        `limit` is the speed of the device's own link, infinite where that costs nothing.
        """
        self._advance(now)
        left, whole, _ = self.open.setdefault(task, (bits, bits, limit))
        if left <= DONE * whole or (end := self._end(task)) <= now:  # what is left takes less than the clock can tell
            del self.open[task]
            return None
        return end

    def _advance(self, now: float) -> None:
        shares = fair_shares([limit for _, _, limit in self.open.values()], self.rate)
        for (task, (left, whole, limit)), share in zip(list(self.open.items()), shares, strict=True):
            self.open[task] = (max(0.0, left - share * (now - self.since)), whole, limit)
        self.since = now

    def _end(self, task: int) -> float:
        """Return when `task` ends, going from one end of a transfer to the next."""
        left = {number: bits for number, (bits, _, _) in self.open.items()}
        time = self.since
        while True:
            shares = dict(zip(left, fair_shares([self.open[number][2] for number in left], self.rate), strict=True))
            step = min(bits / shares[number] for number, bits in left.items())
            time += step
            ended = [number for number, bits in left.items() if bits <= shares[number] * step * (1 + DONE)]
            if task in ended:
                return time
            left = {n: bits - shares[n] * step for n, bits in left.items() if n not in ended}
