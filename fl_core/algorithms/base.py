"""What an algorithm is: typed hyper-parameters and three coroutines, found by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict

from fl_core.errors import SpecError, unknown

if TYPE_CHECKING:
    from fl_core.runtime import DeviceHandle, ServerHandle
    from fl_core.world import Devices


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


ALGORITHMS: dict[str, type[Algorithm]] = {}

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
