"""Floor 0: what is simulated besides learning: how fast devices compute and communicate."""

from __future__ import annotations

from fl_core.world.world import (
    Compute,
    ConstantCompute,
    DeviceProfile,
    LogNormalCompute,
    Network,
    TraceCompute,
    UniformCompute,
    World,
)

__all__ = [
    "Compute",
    "ConstantCompute",
    "DeviceProfile",
    "LogNormalCompute",
    "Network",
    "TraceCompute",
    "UniformCompute",
    "World",
]
