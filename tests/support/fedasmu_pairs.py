"""Vectors of which FedASMU's server forms products."""

from __future__ import annotations

import numpy as np
import torch


def pair(size: int, seed: int, scale: float = 1.0, correlation: float = 0.0) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    vector = rng.normal(size=size)
    direction = scale * (rng.standard_cauchy(size=size) + correlation * vector)
    return torch.from_numpy(vector), torch.from_numpy(direction)
