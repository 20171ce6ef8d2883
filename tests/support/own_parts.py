"""Parts of one's own as a user writes them: a law of speeds, a network, a first step and a data set."""

PARTS = '''
from typing import Literal

import numpy as np
from torch import nn

from fl_core import register_dataset, register_model, register_preprocessing
from fl_core.world import Compute


class Slow(Compute):
    kind: Literal["slow"] = "slow"
    most: float = 2.0

    def draw(self, devices, rng):
        return rng.uniform(1, self.most, devices)


@register_model
def mlp(shape, classes, width: int = 8):
    return nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(shape)), width), nn.ReLU(), nn.Linear(width, classes))


@register_preprocessing
def turned(points):
    """A quarter turn."""
    return points[:, ::-1] * [1, -1]


@register_dataset("moons")
def moons(noise=0.1):
    """Two half circles."""
    rng = np.random.default_rng(0)

    def part(count):
        label, angle = rng.integers(0, 2, count), rng.uniform(0, np.pi, count)
        sign = 1 - 2 * label
        points = np.stack([np.cos(angle) * sign + label, np.sin(angle) * sign + label / 2], 1)
        return points + rng.normal(0, noise, points.shape), label

    return part(300), part(100)
'''
