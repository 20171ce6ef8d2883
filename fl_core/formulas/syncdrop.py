"""Asynchronous distributed dropout, FedASMU's SyncDrop: which hidden units a device trains, and the mixing of them.

Source: Dun, Hipolito, Jermaine, Dimitriadis & Kyrillidis, "Efficient and Light-Weight Federated Learning via
Asynchronous Distributed Dropout" (AISTATS 2023), AsyncDrop in its authors' words. BL-n are the equations of this
project's specification of the baselines.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fl_core.formulas.checks import require
from fl_core.formulas.fedasync import mix


def mix_kept(w: Tensor, w_new: Tensor, kept: Tensor, alpha: float) -> Tensor:
    """Return (1 - alpha) w + alpha x_k where the device had the entry, and w elsewhere, BL-3.26.

    Parameters
    ----------
    w, w_new : Tensor
        Global and uploaded model ``[d]``; what the second holds where nothing was kept does not matter.
    kept : Tensor
        Booleans ``[d]``: the mask m_k.
    alpha : float
        Mixing weight in [0, 1].

    Raises
    ------
    ValueError
        `alpha` is out of range, or the shapes differ.
    """
    require(kept.shape == w.shape, "kept.shape", tuple(kept.shape), f"{tuple(w.shape)}, the shape of w")
    return torch.where(kept, mix(w, w_new, alpha), w)


def kept_units(units: int, keep: float) -> int:
    """Return floor(kappa F), the hidden units that a device gets of a layer, but at least 1.

    Raises
    ------
    ValueError
        `units` is below 1 or `keep` is not in (0, 1].
    """
    require(units >= 1, "units", units, ">= 1")
    require(0 < keep <= 1, "keep", keep, "in (0, 1]")
    return max(1, math.floor(keep * units))


def window_start(rank: int, ranks: int, units: int, keep: float) -> int:
    """Return s_r = min(r floor(F / n), F - floor(kappa F)), BL-3.27: where the window of a device begins.

    The window is in the list of a layer's units, sorted by how much they have moved, the most first.

    Parameters
    ----------
    rank : int
        r in 0 .. n - 1; 0 is the fastest.
    ranks : int
        n >= 1.
    units, keep
        F and kappa, see `kept_units`.

    Raises
    ------
    ValueError
        An argument is out of range.
    """
    require(ranks >= 1, "ranks", ranks, ">= 1")
    require(0 <= rank < ranks, "rank", rank, f"in 0..{ranks - 1}")
    return min(rank * (units // ranks), units - kept_units(units, keep))
