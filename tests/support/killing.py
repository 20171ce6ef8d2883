"""A run that is killed while it stores its state."""

from __future__ import annotations

from collections.abc import Callable


class Killed(Exception):
    """The end of the process."""


def killed_at(event: int, every: bool = True) -> Callable[[int], bool]:
    """Say when to write a checkpoint: at every event, or just before the one at which the process dies."""

    def when(events: int) -> bool:
        if events >= event:
            raise Killed
        return every or events == event - 1

    return when
