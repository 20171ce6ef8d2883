"""FedLuck's Theorem 1 and Corollary 1 as numbers, the bound that repairs them, the steps that went wrong in print.

Source: FedLuck (Song et al., Euro-Par 2024), Eqs. 12 and 13, and the authors' proof supplement; functions marked
"derived" are this book's. (L-x), E-n and section numbers are those of the project's specification.

Symbols: eta_l `local_lr`, eta_g `global_lr`, k `local_steps`, T `num_rounds`, delta `compression_rate`, tau_max
`max_staleness` (by Eq. 7), L `smoothness`, M = sigma^2 + zeta^2 + G^2, B_1 = 18 M, B_2 = 6 (sigma^2 + zeta^2).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from fl_core.formulas.checks import require
from fl_core.formulas.fedluck import PRINTED, Variant, staleness_factor

Q_WINDOW = (1 - 6**-0.5, 1 + 6**-0.5)
"""Q_l > 0 iff eta_l k lies strictly between: 0.5918 and 1.4082. Small steps are excluded (E4)."""


@dataclass(frozen=True)
class Moments:
    """What Eqs. 8, 9 and 11 bound.

    Attributes
    ----------
    noise : float
        sigma^2 >= 0, bound of E ‖stochastic gradient - gradient‖²; Eq. 8 prints the first moment (E3).
    heterogeneity : float
        zeta^2 >= 0, bound of ‖grad F_i - grad F‖²: the largest zeta_i^2 is safe, the mean assumes a uniform sample.
    gradient : float
        G^2 >= 0, bound of ‖grad F_i‖².
    """

    noise: Any
    heterogeneity: Any
    gradient: Any

    def __post_init__(self) -> None:
        for name in ("noise", "heterogeneity", "gradient"):
            require(getattr(self, name) >= 0, name, getattr(self, name), ">= 0")

    @property
    def second_moment(self) -> Any:
        """M; a stochastic gradient has mean square at most 3 M (Lemma 2)."""
        return self.noise + self.heterogeneity + self.gradient

    @property
    def bias_1(self) -> Any:
        """B_1 = 18 M."""
        return 18 * self.second_moment

    @property
    def bias_2(self) -> Any:
        """B_2 = 6 (sigma^2 + zeta^2)."""
        return 6 * (self.noise + self.heterogeneity)


class BoundTerms(NamedTuple):
    """The three terms of (12), or of (13)."""

    progress: Any
    """Falls with the number of rounds."""
    compression: Any
    """Grows as delta falls."""
    staleness: Any
    """Grows with tau_max."""

    @property
    def total(self) -> Any:
        """The bound on the mean squared gradient."""
        return self.progress + self.compression + self.staleness


def theorem1_bound(
    initial_gap: Any,
    moments: Moments,
    *,
    local_lr: Any,
    global_lr: Any,
    local_steps: Any,
    num_rounds: Any,
    compression_rate: Any,
    max_staleness: Any,
    contraction: Literal["printed", "tight"] = "printed",
) -> BoundTerms:
    """Return the three terms of Theorem 1, Eq. 12, for eta_l and eta_g up to 1 / L.

    Parameters
    ----------
    initial_gap : float
        F(w^0) - F* >= 0.
    moments : Moments
        sigma^2, zeta^2 and G^2.
    local_lr, global_lr : float
        eta_l and eta_g > 0.
    local_steps : int
        k >= 1, the same for all devices, with Q_l > 0 (E4).
    num_rounds : int
        T >= 1, rounds with uploads: the proof takes a mean over S^t, and others change nothing (E2).
    compression_rate : float
        delta in (0, 1].
    max_staleness : int
        tau_max >= 0.
    contraction : {"printed", "tight"}, optional
        "tight" uses ‖C(x)‖ <= ‖x‖: 2 tau^2 (2 - delta) becomes tau^2 (E10).

    Raises
    ------
    ValueError
        An argument is out of range.
    """
    require(initial_gap >= 0, "initial_gap", initial_gap, ">= 0")
    _require_plan(local_steps, num_rounds, compression_rate)
    require(global_lr > 0, "global_lr", global_lr, "> 0")
    require(max_staleness >= 0, "max_staleness", max_staleness, ">= 0")
    require(contraction in ("printed", "tight"), "contraction", contraction, "'printed' or 'tight'")
    q, k, delta, b1 = q_local(local_lr, local_steps), local_steps, compression_rate, moments.bias_1
    require(q > 0, "q_local", q, f"> 0: local_lr * local_steps between {Q_WINDOW[0]:.4f} and {Q_WINDOW[1]:.4f}")
    stale = max_staleness**2 * (2 * (2 - delta) if contraction == "printed" else 1)
    return BoundTerms(
        2 * initial_gap / (global_lr * q * num_rounds),
        local_lr**2 * k**2 * ((1 - delta) * b1 + moments.bias_2) / q,
        local_lr**2 * k**4 * (stale + 1) * b1 / q,
    )


def q_local(local_lr: Any, local_steps: Any) -> Any:
    """Return Q_l = 1 - 6 (1 - eta_l k)^2, by which Eq. 12 divides; positive inside `Q_WINDOW` only.

    Raises
    ------
    ValueError
        eta_l <= 0 or k < 1.
    """
    require(local_lr > 0, "local_lr", local_lr, "> 0")
    require(local_steps >= 1, "local_steps", local_steps, ">= 1")
    return 1 - 6 * (1 - local_lr * local_steps) ** 2


def printed_supplement_q_local(local_lr: Any, local_steps: Any) -> Any:
    """Return 6 (1 - eta_l k)^2 - 1: Q_l with the sign of the supplement, which is wrong (E4)."""
    return -q_local(local_lr, local_steps)


class LearningRates(NamedTuple):
    """Learning rates of Corollary 1."""

    global_lr: Any
    """eta_g."""
    local_lr: Any
    """eta_l."""


def corollary1_rates(
    local_steps: Any, num_rounds: Any, compression_rate: Any, *, delta_power: Any = 0.5
) -> LearningRates:
    """Return eta_g = sqrt(k / T) and eta_l = T^(-1/4) k^(-5/2) delta^(-p/2), with constants 1, of Corollary 1.

    p = 1/2 is printed, p = 1 the supplement's. Then eta_l k -> 0 for T -> infinity and Q_l -> -5: Theorem 1 does
    not apply to the rates that the corollary gives it (E5).

    Raises
    ------
    ValueError
        An argument is out of range.
    """
    _require_plan(local_steps, num_rounds, compression_rate)
    require(delta_power > 0, "delta_power", delta_power, "> 0")
    k, T, delta = local_steps, num_rounds, compression_rate
    return LearningRates((k / T) ** 0.5, T**-0.25 * k**-2.5 * delta ** (-delta_power / 2))


def printed_corollary1_terms(
    initial_gap: Any,
    moments: Moments,
    *,
    local_steps: Any,
    num_rounds: Any,
    compression_rate: Any,
    max_staleness: Any,
    variant: Variant = PRINTED,
) -> BoundTerms:
    """Return the three terms of Eq. 13, with constants 1: Eq. 12 at `corollary1_rates` with Q_l called a constant.

    Not a bound: Q_l is negative there (E5). The last term is B_1 / sqrt(T) times `fedluck.staleness_factor`, so
    that minimising phi minimises this term alone. The variant c = 2 does not lose the theorem's factor 2 (E8).

    Raises
    ------
    ValueError
        An argument is out of range.
    """
    require(initial_gap >= 0, "initial_gap", initial_gap, ">= 0")
    _require_plan(local_steps, num_rounds, compression_rate)
    k, T, delta = local_steps, num_rounds, compression_rate
    return BoundTerms(
        initial_gap / (k * T) ** 0.5,
        ((1 - delta) * moments.bias_1 + moments.bias_2) / (k**3 * T**0.5 * delta**variant.delta_power),
        moments.bias_1 / T**0.5 * staleness_factor(k, delta, max_staleness, variant),
    )


class RescaledTerms(NamedTuple):
    """The five terms of (L-b)."""

    progress: Any
    floor: Any
    """Noise and heterogeneity."""
    compression: Any
    """Bias of compression without error feedback."""
    drift: Any
    """Of the local models from the received one."""
    staleness: Any

    @property
    def total(self) -> Any:
        """The bound on the mean squared gradient."""
        return self.progress + self.floor + self.compression + self.drift + self.staleness


def rescaled_bound(
    initial_gap: Any,
    moments: Moments,
    *,
    local_lr: Any,
    global_lr: Any,
    local_steps: Any,
    num_rounds: Any,
    compression_rate: Any,
    max_staleness: Any,
    smoothness: Any,
) -> RescaledTerms:
    """Return the terms of (L-b), a bound that holds for small steps. Derived.

    Compares grad F with the upload over eta_l k instead of the upload, which removes Q_l. Takes the arguments of
    `theorem1_bound` and L > 0, with eta_g eta_l k <= 1 / L. It bounds the mean over rounds with uploads; counting
    empty rounds in T makes it false.

    Raises
    ------
    ValueError
        An argument is out of range.
    """
    require(initial_gap >= 0, "initial_gap", initial_gap, ">= 0")
    require(local_lr > 0, "local_lr", local_lr, "> 0")
    require(global_lr > 0, "global_lr", global_lr, "> 0")
    require(smoothness > 0, "smoothness", smoothness, "> 0")
    _require_plan(local_steps, num_rounds, compression_rate)
    require(max_staleness >= 0, "max_staleness", max_staleness, ">= 0")
    a, L, M = local_lr * local_steps, smoothness, moments.second_moment
    require(global_lr * a * L <= 1, "global_lr", global_lr, "<= 1 / (local_lr * local_steps * smoothness)")
    return RescaledTerms(
        2 * initial_gap / (global_lr * a * num_rounds),
        5 * (moments.noise + moments.heterogeneity),
        15 * (1 - compression_rate) * M,
        5 * L**2 * a**2 * M,
        15 * L**2 * global_lr**2 * a**2 * max_staleness**2 * M,
    )


def lemma1_bound(global_lr: Any, mean_squared_uploads: Any) -> Any:
    """Return eta_g^2 tau sum_h mean ‖upload‖², a bound of ‖w^t - w^(t - tau)‖², corrected Lemma 1.

    Parameters
    ----------
    global_lr : float
        eta_g > 0.
    mean_squared_uploads : sequence of float
        For each of the tau rounds, the mean over its participants of the squared norm of the compressed upload.

    Raises
    ------
    ValueError
        eta_g <= 0.
    """
    require(global_lr > 0, "global_lr", global_lr, "> 0")
    return global_lr**2 * printed_lemma1_bound(mean_squared_uploads)


def printed_lemma1_bound(mean_squared_uploads: Any) -> Any:
    """Return Lemma 1 as the supplement prints it: without eta_g^2, hence wrong for eta_g > 1 (E6)."""
    return len(mean_squared_uploads) * sum(mean_squared_uploads)


def printed_negative_term(
    global_lr: Any, smoothness: Any, local_lr: Any, local_steps: Any, compression_rate: Any, moments: Moments
) -> Any:
    """Return what the supplement puts above eta_g / 2 (L eta_g - 1) E‖C(g)‖², which may be 0 (E7).

    It multiplies the coefficient, which is negative, by the upper bound 2 (2 - delta) 3 (eta_l k)^2 M. The right
    bound is 0.
    """
    upper = 2 * (2 - compression_rate) * 3 * (local_lr * local_steps) ** 2 * moments.second_moment
    return global_lr / 2 * (smoothness * global_lr - 1) * upper


def printed_supplement_stationarity(
    local_steps: Any, compression_rate: Any, seconds_per_step: Any, full_upload_seconds: Any
) -> Any:
    """Return 2 beta delta^2 (beta - 2 u - beta delta) - 1 - 2 u^2, u = k alpha, zero where the supplement stops.

    The derivative in delta of `fedluck.printed_supplement_factor` has u in place of 2 u (E13).
    """
    delta, u, b = compression_rate, local_steps * seconds_per_step, full_upload_seconds
    return 2 * b * delta**2 * (b - 2 * u - b * delta) - 1 - 2 * u**2


def _require_plan(k: Any, T: Any, delta: Any) -> None:
    require(k >= 1, "local_steps", k, ">= 1")
    require(T >= 1, "num_rounds", T, ">= 1")
    require(delta > 0, "compression_rate", delta, "in (0, 1]")
    require(delta <= 1, "compression_rate", delta, "in (0, 1]")
