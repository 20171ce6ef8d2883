"""What an algorithm is: typed hyper-parameters and three coroutines, found by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict
from torch import Tensor

from fl_core.errors import SpecError, unknown
from fl_core.formulas.checks import require
from fl_core.formulas.compression import Compressor
from fl_core.formulas.compression import error_feedback as feed_back

if TYPE_CHECKING:
    from fl_core.runtime import DeviceHandle, ServerHandle, Snapshot, Trained, Upload
    from fl_core.world import Devices

ALGORITHMS: dict[str, type[Algorithm]] = {}
V = TypeVar("V", NDArray[Any], Tensor)
Weighting = Literal["uniform", "samples"]


class Algorithm(BaseModel):
    """Base of all algorithms.

    Subclasses declare hyper-parameters as typed fields with a sentence each, and override the three coroutines. The
    object itself never changes: what a run must remember is kept in ``server.state`` and ``device.state``. Scheduler
    and updater are written as one turn: wait for an occasion, act on it, return; the runtime repeats them.

    Attributes
    ----------
    name : str
        Registered name: the class name in lower case, unless the class sets it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: ClassVar[str] = ""

    async def scheduler(self, server: ServerHandle) -> None:
        """Trigger devices, one turn of it; by default nobody (the updater may do it)."""

    async def updater(self, server: ServerHandle) -> None:
        """Turn uploads into a new global model, once; repeated until the run ends."""
        raise self._lacks("updater(self, server)", "it is what makes new global models")

    async def device(self, device: DeviceHandle) -> None:
        """Do what a triggered device does: by default download, train, upload the model (FA-4)."""
        snapshot = await device.download()
        trained = await device.train(snapshot.model)
        await device.upload(model=trained.model, based_on=snapshot)

    def answer(self, server: ServerHandle, device: DeviceHandle, question: Any) -> Any:
        """Return what the server says when `device` asks (``device.ask(question)``); it may read ``server.state``."""
        raise self._lacks("answer(self, server, device, question)", "its device program asks the server")

    def most_in_flight(self) -> int | None:
        """Return how many devices the algorithm needs at once, so that a world that is too small is refused."""
        return None

    def mini_batches(self, devices: Devices, seconds: float) -> float | None:
        """Return about how many are trained on in `seconds` of virtual time, for estimates of cost; None: unknown."""
        return None

    def _lacks(self, method: str, why: str) -> SpecError:
        return SpecError(f"algorithm {type(self).__name__} must define {method}: {why}")


A = TypeVar("A", bound=type[Algorithm])


def register(cls: A) -> A:
    """Class decorator: make an algorithm known by its name.

    A second class of the same name replaces the first, so that a notebook cell can be run again.
    """
    cls.name = cls.name if "name" in cls.__dict__ else cls.__name__.lower()
    ALGORITHMS[cls.name] = cls
    return cls


def make_algorithm(name: str, **parameters: Any) -> Algorithm:
    """Build the algorithm called `name`.

    Raises
    ------
    SpecError
        If no algorithm has that name.
    pydantic.ValidationError
        If a parameter is unknown or out of range.
    """
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
) -> None:
    """Upload `start` minus the trained model as ``delta`` ``[d]``; time and bytes are those of the compressed form.

    Only parameters are compressed; statistics (batch normalisation) are sent, and counted, as they are. With error
    feedback the device keeps what was not sent as ``device.state["residual"]`` ``[p]``. An update that is not finite
    cannot be compressed: it is sent for the server to reject.
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
    await device.upload(delta=torch.cat([parameters, statistics]), based_on=start, bytes_up=size)


def commit_mean(server: ServerHandle, uploads: list[Upload], global_lr: float, weighting: Weighting) -> None:
    """Commit w - eta_g mean of the uploaded updates, FedLuck's Eq. 6; without uploads the model stays (E2)."""
    if not uploads:
        server.commit(server.model)
        return
    counts = [1 if weighting == "uniform" else upload.num_samples for upload in uploads]
    deltas = torch.stack([upload.delta for upload in uploads])
    model = mean_step(server.model, deltas, global_lr, None if weighting == "uniform" else counts)
    server.commit(model, weight=[global_lr * count / sum(counts) for count in counts])


def mean_step(
    weights: V, compressed_deltas: V, global_lr: float = 1.0, sample_counts: Sequence[float] | None = None
) -> V:
    """Return w - eta_g mean of the uploads, Eq. 6; w itself where none arrived (E2).

    Also the step of FedPer, of FedBuff (its K uploads) and of FedAvg+Topk (eta_g = 1, weighted by samples).

    Parameters
    ----------
    weights : ndarray or Tensor
        w, ``[d]``.
    compressed_deltas : ndarray or Tensor
        Uploaded start model minus trained model of each participant, ``[n, d]``.
    global_lr : float, optional
        eta_g > 0.
    sample_counts : sequence of float, optional
        Weights, one > 0 for each upload; uniform by default, as printed (A5).

    Raises
    ------
    ValueError
        `global_lr` is not positive or `sample_counts` does not fit.
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
    """Return the mean of `count` numbers, the last of which is `value` and the others of which have `mean`, BL-3.12.

    Raises
    ------
    ValueError
        `count` is below 1.
    """
    require(count >= 1, "count", count, ">= 1")
    return mean + (value - mean) / count
