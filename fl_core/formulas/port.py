"""PORT: how much an update counts, by its data, its age and its direction (BL-3.4).

Source: Su & Li, "How Asynchronous can Federated Learning Be?" (IWQoS 2022), in the form of the code of the authors'
group with one change: the similarity is that to the way the global model has gone since the update's own base. BL-n
are the equations of this project's specification of the baselines. The step itself (BL-3.5), a mean with these
weights, is `fl_core.formulas.fedluck.server_step`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fl_core.formulas.checks import require


def agreement(progress: Tensor, moved: Tensor) -> float:
    """Return cos(Delta_k, w_t - w_b), the similarity of BL-3.4; 1 where one of the two is zero (a fresh update).

    Parameters
    ----------
    progress : Tensor
        Delta_k ``[p]``: the trained model minus the received one, parameters only.
    moved : Tensor
        w_t - w_b ``[p]``: what the global model has become minus what the device had received.
    """
    if not progress.any() or not moved.any():
        return 1.0
    if not all(1e-8 < float(vector.norm()) < math.inf for vector in (progress, moved)):  # PyTorch's own limit
        progress, moved = (vector.double() / vector.double().abs().max() for vector in (progress, moved))
    return float(torch.cosine_similarity(progress, moved, 0))


def update_weight(
    num_samples: float,
    staleness: float,
    agreement: float,
    *,
    staleness_factor: float = 3.0,
    similarity_factor: float = 1.0,
    staleness_bound: float = 10.0,
) -> float:
    """Return gamma_k = n_k (lambda_s B / (tau_k + B) + lambda_d (cos + 1) / 2), BL-3.4; not normalised.

    Parameters
    ----------
    num_samples : float
        n_k > 0.
    staleness : float
        tau_k >= 0, versions missed.
    agreement : float
        Cosine in [-1, 1], see `agreement`.
    staleness_factor, similarity_factor : float
        lambda_s, lambda_d >= 0.
    staleness_bound : float
        B > 0.

    Raises
    ------
    ValueError
        An argument is out of range.
    """
    require(num_samples > 0, "num_samples", num_samples, "> 0")
    require(staleness >= 0, "staleness", staleness, ">= 0 (missed updates)")
    require(abs(agreement) <= 1 + 1e-6, "agreement", agreement, "in [-1, 1]")
    require(staleness_factor >= 0, "staleness_factor", staleness_factor, ">= 0")
    require(similarity_factor >= 0, "similarity_factor", similarity_factor, ">= 0")
    require(staleness_bound > 0, "staleness_bound", staleness_bound, "> 0")
    age = staleness_bound / (staleness + staleness_bound)
    return num_samples * (staleness_factor * age + similarity_factor * (agreement + 1) / 2)
