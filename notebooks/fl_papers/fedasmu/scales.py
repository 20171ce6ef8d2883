"""How large FedASMU's experiments are in each profile."""

from __future__ import annotations

from dataclasses import dataclass

from fl_papers.fedasmu.methods import METHODS


@dataclass(frozen=True)
class Scale:
    """What a profile decides.

    Attributes
    ----------
    uploads : int
        T on Fashion-MNIST, in single uploads; 5,000 in the paper.
    other_uploads : int
        On the other data sets.
    samples : int or None
        At most so many samples of a device, on average; None: all.
    test_samples : int
        Of the periodic evaluations; 0: all.
    seeds, other_seeds : tuple of int
        On Fashion-MNIST, and on the other data sets; the latter also for what is varied on one column only, Figure 7
        above all.
    conditions : dict
        What Figure 7 varies, and its values beside the standard one.
    condition_methods : tuple of str
        The curves of Figure 7.
    periods, factors : tuple of float
        Trigger periods, and factors of the learning rates of lambda, sigma and iota, beside the standard one.
    extra : int or None
        So many of :data:`VARIANTS` and of :data:`TUNED`; None: all.
    whole : bool
        Whether networks, images and step sizes are the paper's.
    """

    uploads: int
    other_uploads: int
    samples: int | None
    test_samples: int
    seeds: tuple[int, ...]
    other_seeds: tuple[int, ...]
    conditions: dict[str, tuple[float, ...]]
    condition_methods: tuple[str, ...] = METHODS
    periods: tuple[float, ...] = (5.0, 20.0)
    factors: tuple[float, ...] = (0.1, 10.0)
    extra: int | None = None
    whole: bool = False


_ENDS = {"bandwidth": (50.0, 100.0), "heterogeneity": (110.0, 440.0), "devices": (200.0,)}
_ALL = {**_ENDS, "heterogeneity": (110.0, 220.0, 330.0, 440.0)}
SCALES = {
    "smoke": Scale(
        30, 30, 20, 500, (0,), (0,), {"bandwidth": (50.0,)}, ("FedASMU", "FedAvg", "FedAsync"), (20.0,), (10.0,), 1
    ),
    "laptop": Scale(600, 300, 200, 2_000, (0, 1, 2), (0,), _ENDS),
    "paper": Scale(5_000, 5_000, None, 0, (0, 1, 2), (0, 1, 2), _ALL, whole=True),
}
