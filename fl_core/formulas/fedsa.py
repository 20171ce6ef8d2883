"""FedSA, reconstructed: local work by the staleness that a device has had, in two stages (BL-3.11, BL-3.12).

The method is Chen, Mao & Ma, "FedSA: A staleness-aware asynchronous Federated Learning algorithm with non-IID data"
(Future Generation Computer Systems 120, 2021). Its formulas are in no source that could be read. These are this
project's, with the ingredients that its abstract and those who cite it name: two stages, local epochs adjusted to the
estimated staleness, polynomial weights. The weight is `fl_core.formulas.staleness.polynomial` times the stage's
alpha. Another algorithm of the same name (Ma et al., IEEE JSAC 2021) is not meant.
"""

from __future__ import annotations

import math

from fl_core.formulas.checks import require
from fl_core.formulas.staleness import polynomial


def local_epochs(stage_epochs: int, mean_staleness: float, a: float = 0.5, least: int = 1) -> int:
    """Return E_k, the stage's E (1 + mean staleness)^(-a) rounded half up, but at least `least`, BL-3.12.

    Parameters
    ----------
    stage_epochs : int
        E of the stage, >= 1.
    mean_staleness : float
        Mean staleness of the device's uploads so far, >= 0; 0 before the first.
    a : float
        Exponent, > 0.
    least : int
        E_min >= 1.

    Raises
    ------
    ValueError
        An argument is out of range.
    """
    require(stage_epochs >= 1, "stage_epochs", stage_epochs, ">= 1")
    require(least >= 1, "least", least, ">= 1")
    return max(least, math.floor(stage_epochs * polynomial(mean_staleness, a) + 0.5))


def running_mean(mean: float, value: float, count: int) -> float:
    """Return the mean of `count` numbers, the last of which is `value` and the others of which have `mean`, BL-3.12.

    Raises
    ------
    ValueError
        `count` is below 1.
    """
    require(count >= 1, "count", count, ">= 1")
    return mean + (value - mean) / count
