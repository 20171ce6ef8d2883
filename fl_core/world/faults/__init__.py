"""What goes wrong: one file per fault, declared in a world and drawn for every task.

``FAULTS`` holds all of them by their kind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fl_core.part import kinds, union
from fl_core.world.faults.base import Fault, Interruption, Message

FAULTS = kinds(__name__, Fault)

if TYPE_CHECKING:
    AnyFault = Fault
else:
    AnyFault = union(FAULTS)

__all__ = ["FAULTS", "AnyFault", "Fault", "Interruption", "Message"]
