"""What an algorithm is, and what several have in common.

Typed hyper-parameters, three coroutines, found by name; and `combine`, what the server computes in one step: a pure
function that can be called, tested and shown without a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, TypeVar

import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from fl_core.config import Config, refuse_second
from fl_core.errors import SpecError, unknown
from fl_core.formulas.checks import require
from fl_core.formulas.compression import Compressor
from fl_core.formulas.compression import error_feedback as feed_back

if TYPE_CHECKING:
    from fl_core.runtime import DeviceHandle, ServerHandle, Snapshot, Trained
    from fl_core.world import Devices

ALGORITHMS: dict[str, type[Algorithm]] = {}
V = TypeVar("V", NDArray[Any], Tensor)
Weighting = Literal["uniform", "samples"]


class Algorithm(Config):
    """Base of all algorithms.

    Subclasses declare hyper-parameters as typed fields with a sentence each, and override the three coroutines. The
    object itself never changes: what a run must remember is kept in ``server.state`` and ``device.state``. Scheduler
    and updater are written as one turn: wait for an occasion, act on it, return; the runtime repeats them.
    """

    name: ClassVar[str] = ""
    """Registered name: the class name in lower case, unless the class sets it."""
    at_once: ClassVar[str] = ""
    """Name of the field that says how many devices it needs at once, if there is one."""

    async def scheduler(self, server: ServerHandle) -> None:
        """Trigger devices, one turn of it; by default nobody (the updater may do it)."""

    async def updater(self, server: ServerHandle) -> None:
        """Turn uploads into a new global model, once; repeated until the run ends."""
        raise self._lacks("updater(self, server)", "it is what makes new global models")

    async def device(self, device: DeviceHandle) -> None:
        """Do what a triggered device does: by default download, train, upload the model (FA-4, BL-1.1)."""
        snapshot = await device.download()
        trained = await device.train(snapshot.model)
        await device.upload(model=trained.model, based_on=snapshot)

    def answer(self, server: ServerHandle, device: DeviceHandle, question: Any) -> Any:
        """Return what the server says when `device` asks (``device.ask(question)``); it may read ``server.state``."""
        raise self._lacks("answer(self, server, device, question)", "its device program asks the server")

    def most_in_flight(self) -> int | None:
        """Return how many devices the algorithm needs at once, so that a world that is too small is refused."""
        return getattr(self, self.at_once) if self.at_once else None

    def mini_batches(self, devices: Devices, seconds: float) -> float | None:
        """Return about how many are trained on in `seconds` of virtual time, for estimates of cost; None: unknown."""
        return None

    def _lacks(self, method: str, why: str) -> SpecError:
        return SpecError(f"algorithm {type(self).__name__} must define {method}: {why}")


class ContinuousAlgorithm(Algorithm):
    """Base of those that keep so many devices at work, whatever arrives when."""

    at_once: ClassVar[str] = "concurrency"
    concurrency: int = Field(10, ge=1)
    """Devices in flight."""

    async def scheduler(self, server: ServerHandle) -> None:
        """Trigger idle devices so that `concurrency` of them work."""
        await server.keep_busy(self.concurrency)


class Step(NamedTuple):
    """What a server makes of uploads."""

    model: Tensor
    """The next global model, ``[d]``."""
    weight: float | list[float]
    """How much each upload counts in it, for the record."""


A = TypeVar("A", bound=type[Algorithm])


def register(cls: A) -> A:
    """Class decorator: make an algorithm known by its name; a cell that is run again replaces its own class alone."""
    if not (isinstance(cls, type) and issubclass(cls, Algorithm)):
        raise SpecError(f"{getattr(cls, '__name__', cls)} is no subclass of fl_core.algorithms.Algorithm")
    name = cls.name if "name" in cls.__dict__ else cls.__name__.lower()
    refuse_second("algorithm", name, cls, ALGORITHMS)
    cls.name, ALGORITHMS[name] = name, cls
    return cls


def make_algorithm(name: str, **parameters: Any) -> Algorithm:
    """Build the algorithm called `name`."""
    if name not in ALGORITHMS:
        raise unknown("algorithm", name, ALGORITHMS)
    return ALGORITHMS[name](**parameters)


async def upload_update(
    device: DeviceHandle,
    start: Snapshot,
    trained: Trained,
    compressor: Compressor,
    *,
    error_feedback: bool = False,
    **numbers: float,
) -> None:
    """Upload `start` minus the trained model as ``delta`` ``[d]``; time and bytes are those of the compressed form.

    Only parameters are compressed; statistics (batch normalisation) are sent, and counted, as they are. With error
    feedback the device keeps what was not sent as ``device.state["residual"]`` ``[p]``. An update that is not finite
    cannot be compressed: it is sent for the server to reject. Other `numbers` go with it and count nothing.
    """
    delta = start.model - trained.model
    parameters, statistics = delta.tensor_split([device.num_parameters])
    size = compressor.counted_bytes(len(parameters), delta.dtype, device.segments) + statistics.nbytes
    if torch.isfinite(parameters).all():
        if error_feedback:
            parameters, device.state["residual"] = feed_back(
                compressor, parameters, device.state.get("residual"), device.rng, device.segments
            )
        else:
            parameters = compressor.compress(parameters, device.rng, device.segments)
    await device.upload(delta=torch.cat([parameters, statistics]), based_on=start, bytes_up=size, **numbers)


def weighted_step(
    model: Tensor, deltas: Sequence[Tensor], num_samples: Sequence[int], global_lr: float, weighting: Weighting
) -> Step:
    """Return the step along the mean of the uploaded updates, FedLuck's Eq. 6; without any the model stays (E2)."""
    if not deltas:
        return Step(model, [])
    counts = [1] * len(deltas) if weighting == "uniform" else list(num_samples)
    stepped = mean_step(model, torch.stack(list(deltas)), global_lr, None if weighting == "uniform" else counts)
    return Step(stepped, [global_lr * count / sum(counts) for count in counts])


def mean_step(
    weights: V, compressed_deltas: V, global_lr: float = 1.0, sample_counts: Sequence[float] | None = None
) -> V:
    """Return w - eta_g mean of the uploads ``[n, d]``, each a start model minus a trained one; w itself where n = 0.

    The mean is weighted by `sample_counts`, or uniform. FedLuck's Eq. 6 (A5, E2); also the step of FedPer, FedBuff,
    PORT and FedAvg+Topk.
    """
    require(global_lr > 0, "global_lr", global_lr, "> 0")
    n = len(compressed_deltas)
    if sample_counts is None:
        return weights - global_lr * compressed_deltas.mean(0) if n else weights
    require(len(sample_counts) == n, "len(sample_counts)", len(sample_counts), f"{n}, one per upload")
    require(all(count > 0 for count in sample_counts), "sample_counts", sample_counts, "> 0")
    for count, delta in zip(sample_counts, compressed_deltas, strict=True):
        weights = weights - global_lr * (count / sum(sample_counts)) * delta
    return weights


def running_mean(mean: float, value: float, count: int) -> float:
    """Return the mean of `count` numbers, the last of them `value` and the others of mean `mean`, BL-3.12."""
    require(count >= 1, "count", count, ">= 1")
    return mean + (value - mean) / count
