"""MOON: the contrast between representations (BL-2.6).

Source: Li, He & Song, "Model-Contrastive Federated Learning" (CVPR 2021). BL-n are the equations of this project's
specification of the baselines.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from fl_core.formulas.checks import require


def contrastive_loss(ours: Tensor, ours_global: Tensor, ours_previous: Tensor, temperature: float = 0.5) -> Tensor:
    r"""Return the mean of :math:`\log(1+e^{(\mathrm{sim}(z,z_{prev})-\mathrm{sim}(z,z_{glob}))/T})`, BL-2.6.

    The stable form of minus the logarithm of a softmax over two cosine similarities. It is ln 2 where the two
    references agree.

    Parameters
    ----------
    ours : Tensor
        z, the representations ``[n, k]`` of a mini-batch under the model that is trained.
    ours_global, ours_previous : Tensor
        z_glob and z_prev of the same inputs, under the received model and the device's previous one.
    temperature : float
        T > 0.

    Raises
    ------
    ValueError
        `temperature` is not positive.
    """
    require(temperature > 0, "temperature", temperature, "> 0")
    closer = torch.cosine_similarity(ours, ours_previous, -1) - torch.cosine_similarity(ours, ours_global, -1)
    return F.softplus(closer / temperature).mean()
