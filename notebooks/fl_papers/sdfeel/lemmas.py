"""What one iteration of SD-FEEL changes: the mean model, Lemma 2 as printed and as it follows, clients' local drift.

Source: Sun et al. (IEEE ICC 2022), Eqs. 11 and 12; E-n and D-n are those of this project's specification. Symbols as
in :mod:`fl_papers.sdfeel.bounds`, whose bound adds these changes up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fl_core.formulas.checks import require


def round_step(
    lr: Any, cluster_weight: Sequence[Any], effective_steps: Sequence[Any], gradients: Sequence[Any]
) -> Any:
    """Return y-bar_{k+1} - y-bar_k of Eq. 11, by which a *synchronous* round moves the data-weighted mean (E-07).

    Parameters
    ----------
    lr : float
        eta.
    cluster_weight, effective_steps : sequence of float
        m-tilde_d and tau-bar_d of all clusters.
    gradients : sequence
        ``[D, p]``, sum_i m-hat_i times the mean gradient along the local steps of client i, of each cluster.
    """
    terms = zip(cluster_weight, effective_steps, gradients, strict=True)
    return -lr * sum(weight * steps * gradient for weight, steps, gradient in terms)


def event_step(lr: Any, num_clusters: int, effective_steps: Any, gradient: Any) -> Any:
    """Return by how much an *asynchronous* event moves the uniform mean: -eta / D tau-bar_d g-hat^(d) (D3).

    Only the trigger's gradient is in it, taken along steps from the model that its clients were sent (E-07).

    Parameters
    ----------
    lr : float
        eta.
    num_clusters : int
        D.
    effective_steps, gradient : float, ndarray or Tensor
        tau-bar_d and g-hat^(d) ``[p]`` of the trigger.
    """
    return -lr * effective_steps / num_clusters * gradient


def printed_lemma2_bound(
    *,
    lr: Any,
    smoothness: Any,
    tau_max: Any,
    tau_min: Any,
    gradient: Any,
    delayed: Any,
    error: Any,
    noise: Any = 0.0,
    square_weights: Any = 0.0,
) -> Any:
    """Return the right side of Lemma 2, Eq. 12, as printed; false if effective step counts differ (E-10).

    Parameters
    ----------
    lr, smoothness, tau_max, tau_min : float
    gradient : float
        E ‖grad F(y-bar_k)‖².
    delayed : float
        J_k, the mean square of the delayed gradients' data-weighted mean.
    error : float
        The mean squared distance of the two.
    noise, square_weights : float, optional
        sigma^2 and sum_i m_i^2.
    """
    gap = step_ratio(tau_max, tau_min)
    return (
        -lr * tau_min * gradient / 2
        - lr / 2 * (tau_min - lr * smoothness * tau_max**2) * delayed
        + lr**2 * smoothness * tau_max * gap * square_weights * noise / 2
        + lr * tau_min * error / 2
    )


def lemma2_bound(
    *,
    lr: Any,
    smoothness: Any,
    tau_max: Any,
    tau_min: Any,
    effective_steps: Any,
    gradient: Any,
    delayed: Any,
    error: Any,
    noise: Any = 0.0,
    square_weights: Any = 0.0,
) -> Any:
    """Return the bound on the change of the surrogate objective that replaces Lemma 2 (D11).

    Parameters
    ----------
    lr, smoothness, tau_max, tau_min : float
    effective_steps : float
        tau_eff = sum_d m-tilde_d tau-bar_d.
    gradient, delayed, error : float
        As in :func:`printed_lemma2_bound`, of the surrogate objective: means weighted by m-tilde_d tau-bar_d.
    noise, square_weights : float, optional
    """
    gap = step_ratio(tau_max, tau_min)
    return (
        -lr * effective_steps * gradient / 2
        - lr * effective_steps * (1 - lr * smoothness * effective_steps) * delayed / 2
        + lr**2 * smoothness * tau_max * gap * square_weights * noise / 2
        + lr * effective_steps * error / 2
    )


def local_drift_bound(lr: Any, smoothness: Any, steps: Any, noise: Any, gradient: Any) -> Any:
    """Return a bound on the mean of E ‖y - w_l‖² over the tau local steps of one client (D6).

    Parameters
    ----------
    lr, smoothness : float
    steps : int
        tau >= 1, with eta² L² tau (tau - 1) < 1/2.
    noise : float
        sigma^2.
    gradient : float
        ‖grad F_i(y)‖² at the start.

    Raises
    ------
    ValueError
        The step size is too large for that many steps.
    """
    U2 = steps * (steps - 1)
    x = lr**2 * smoothness**2 * U2
    require(1 - 2 * x > 0, "lr", lr, "small enough: eta² L² tau (tau - 1) < 1/2")
    return (lr**2 * noise * (steps - 1) + 2 * lr**2 * U2 * gradient) / (1 - 2 * x)


def step_ratio(tau_max: Any, tau_min: Any) -> Any:
    """Return tau_max / tau_min, which stands for the gap H (E-09).

    Raises
    ------
    ValueError
        tau_min is not positive, or larger than tau_max.
    """
    require(tau_min > 0, "tau_min", tau_min, "> 0")
    require(tau_max >= tau_min, "tau_max", tau_max, f">= tau_min = {tau_min}")
    return tau_max / tau_min
