"""FedASMU with parts of it left out, and with fixed slots: the paper's ablations and heuristics (section 2.8)."""

from __future__ import annotations

from typing import ClassVar

from fl_core.algorithms.base import register
from fl_core.algorithms.fedasmu import FedASMU, ServerWeight
from fl_core.algorithms.fresh_merge import Slot


@register
class FedASMUDA(FedASMU):
    """Without dynamic aggregation: uploads are weighted as in FedAsync; devices ask for fresh models."""

    name: ClassVar[str] = "fedasmu_da"

    server_weight: ServerWeight = "fedasync_poly"


@register
class FedASMUFA(FedASMU):
    """Without fresh models: the server's weights learn, nobody asks."""

    name: ClassVar[str] = "fedasmu_fa"

    slot: Slot = "none"


@register
class FedASMU0(FedASMUFA):
    """Without both: FedAsync+Poly with a staleness bound."""

    name: ClassVar[str] = "fedasmu_0"

    server_weight: ServerWeight = "fedasync_poly"


@register
class FedASMUH1(FedASMU):
    """Everybody asks after the first epoch."""

    name: ClassVar[str] = "fedasmu_h1"

    slot: Slot = "first"


@register
class FedASMUH2(FedASMU):
    """Everybody asks after half of the epochs, rounded down."""

    name: ClassVar[str] = "fedasmu_h2"

    slot: Slot = "middle"


@register
class FedASMUH3(FedASMU):
    """Everybody asks before the last epoch."""

    name: ClassVar[str] = "fedasmu_h3"

    slot: Slot = "last"
