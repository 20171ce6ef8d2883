"""Delay-adaptive asynchronous SGD, FedASMU's FedDelay: full steps up to a staleness, shorter ones beyond (BL-3.24).

Source: Koloskova, Stich & Jaggi, "Sharper Convergence Guarantees for Asynchronous SGD for Distributed and Federated
Learning" (NeurIPS 2022). BL-n are the equations of this project's specification of the baselines. The server's step
(BL-3.25) is `fl_core.formulas.fedluck.server_step` with eta_g times this factor.
"""

from __future__ import annotations

from typing import Literal

from fl_core.formulas.checks import require

Mode = Literal["continuous", "inverse", "drop"]


def delay_factor(staleness: float, threshold: float, mode: Mode = "continuous") -> float:
    """Return what the server's step is multiplied by: 1 up to the threshold tau_C, BL-3.24 and BL-3.25.

    Parameters
    ----------
    staleness : float
        tau >= 0, versions missed.
    threshold : float
        tau_C >= 1, in the paper the number of devices in flight.
    mode : {"continuous", "inverse", "drop"}
        Beyond it: tau_C / tau, which with a step of 1 / (4 L tau_C) is the bound 1 / (4 L tau) of the theorem;
        1 / tau, the paper's advice, with a jump at tau_C; or 0.

    Raises
    ------
    ValueError
        An argument is out of range or `mode` is unknown.
    """
    require(staleness >= 0, "staleness", staleness, ">= 0 (missed updates)")
    require(threshold >= 1, "threshold", threshold, ">= 1")
    known = mode in ("continuous", "inverse", "drop")
    require(known, "mode", mode, "'continuous', 'inverse' or 'drop'")
    if staleness <= threshold:
        return 1.0
    return {"continuous": threshold / staleness, "inverse": 1 / staleness, "drop": 0.0}[mode]
