"""The part that measures formulas at the size that experiments need: FedLuck's exact planner, and top-k."""

from __future__ import annotations

import numpy as np
import torch

from fl_core.benchmarks.part import Effort, Outcome, Row, Target, part
from fl_core.benchmarks.timing import seconds_of
from fl_core.formulas.compression import TopK
from fl_core.formulas.fedluck import plan_devices

DEVICES, ENTRIES, RATE = 100_000, 11_000_000, 0.01
"""To plan for; of a vector as large as the parameters of a ResNet-18, and the fraction of it that is kept."""


@part(
    "FedLuck's exact plan for devices of all speeds, each with every whole k from 2 to 60; top-k of one vector, of "
    "which one entry in a hundred is kept",
    Target("exact plan", "<=", 5.0, DEVICES),
    Target("top-k", "<=", 0.5, ENTRIES),
    sizes="devices, entries",
)
def formulas(effort: Effort) -> Outcome:
    """Measure formulas."""
    rng = np.random.default_rng(0)
    alpha, beta = (low * (high / low) ** rng.random(DEVICES) for low, high in ((0.005, 2), (0.05, 200)))
    vector, compressor = torch.from_numpy(rng.standard_normal(ENTRIES, dtype=np.float32)), TopK(delta=RATE)
    plans = [seconds_of(lambda: plan_devices(alpha, beta, 1.5, solver="exact")) for _ in range(effort.repetitions)]
    selections = [seconds_of(lambda: compressor.compress(vector)) for _ in range(effort.repetitions)]
    return Outcome([Row("exact plan", "s", plans, DEVICES), Row("top-k", "s", selections, ENTRIES)])
