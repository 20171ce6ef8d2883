"""Wrong labels on purpose."""

from __future__ import annotations

import numpy as np


def with_label_noise(labels: np.ndarray, classes: int, share: float, rng: np.random.Generator) -> np.ndarray:
    """Return a copy of `labels` ``[n]`` of which ``round(share * n)`` are replaced by another class.

    Which ones, and by which of the other classes, is drawn uniformly (symmetric label noise). With a single class
    nothing changes.
    """
    noisy = labels.copy()
    if classes > 1:
        wrong = rng.choice(len(labels), round(share * len(labels)), replace=False)
        noisy[wrong] = (noisy[wrong] + rng.integers(1, classes, len(wrong))) % classes
    return noisy
