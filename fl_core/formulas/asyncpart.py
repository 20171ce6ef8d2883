"""AsyncPart, reconstructed: fresh uploads count more, and no device more than its data in the long run (BL-3.28).

The method is Wang, Zhang & Wang, "Asynchronous Federated Learning over Wireless Communication Networks" (ICC 2021;
IEEE Transactions on Wireless Communications 21(9), 2022). Its weights are in no source that could be read. These are
this project's, with the property that its abstract names: in the long run the summed weights of a device are
proportional to its samples, however fast it is (but for the bound of 1, which slow devices with many samples meet).
"""

from __future__ import annotations

from fl_core.formulas.checks import require


def influence(freshness: float, total_freshness: float, share: float, pseudo_uploads: float) -> float:
    """Return q_k = (C_k + kappa p_k) / (sum_j C_j + kappa): the device's part of all influence so far, BL-3.28.

    Parameters
    ----------
    freshness, total_freshness : float
        C_k and the sum of all C_j: the staleness factors s of the uploads so far, the present one included.
    share : float
        p_k in (0, 1], the device's part of all samples.
    pseudo_uploads : float
        kappa > 0: uploads at the right shares that are thought to have come before.

    Raises
    ------
    ValueError
        An argument is out of range.
    """
    require(0 <= freshness <= total_freshness * (1 + 1e-9), "freshness", freshness, f"in 0..{total_freshness}")
    require(0 < share <= 1, "share", share, "in (0, 1]")
    require(pseudo_uploads > 0, "pseudo_uploads", pseudo_uploads, "> 0")
    return (freshness + pseudo_uploads * share) / (total_freshness + pseudo_uploads)


def fair_weight(alpha: float, factor: float, share: float, influence: float) -> float:
    """Return alpha_t = min(1, alpha s p_k / q_k), the mixing weight of BL-3.28.

    Parameters
    ----------
    alpha : float
        Weight of a fresh upload of a device with the influence that it should have, in (0, 1].
    factor : float
        s in [0, 1], the upload's staleness factor.
    share, influence : float
        p_k and q_k, see `influence`.

    Raises
    ------
    ValueError
        An argument is out of range.
    """
    require(0 < alpha <= 1, "alpha", alpha, "in (0, 1]")
    require(0 <= factor <= 1, "factor", factor, "in [0, 1]")
    require(influence > 0, "influence", influence, "> 0")
    return min(1.0, alpha * factor * share / influence)
