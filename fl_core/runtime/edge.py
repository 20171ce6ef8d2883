"""What is known about an edge server's devices before the run: deadlines are set by it."""

from __future__ import annotations

from typing import NamedTuple

from fl_core.world import DeviceProfile


class Cluster(NamedTuple):
    """The devices of one server, as the world declares them, before anything that is drawn for each task.

    Attributes
    ----------
    devices : range
        Their numbers.
    neighbours : tuple of int
        Numbers of the servers that the server exchanges models with.
    samples : int
        Training samples of all of them.
    step_seconds : tuple of float
        Time of one local step of each.
    profiles : tuple of DeviceProfile
        What transfers cost each.
    """

    devices: range
    neighbours: tuple[int, ...]
    samples: int
    step_seconds: tuple[float, ...]
    profiles: tuple[DeviceProfile, ...]

    def upload_seconds(self, size: float) -> float:
        """Return the time until the slowest link has sent `size` bytes."""
        return max(profile.up_seconds(size) for profile in self.profiles)
