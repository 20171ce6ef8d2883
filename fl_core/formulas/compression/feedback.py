"""Error feedback: what a compressor drops is added to the next vector."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from fl_core.formulas.checks import require
from fl_core.formulas.compression.base import CompressorBase, Random


def error_feedback(
    compressor: CompressorBase,
    vector: Tensor,
    residual: Tensor | None = None,
    generator: Random | None = None,
    segments: Sequence[int] | None = None,
) -> tuple[Tensor, Tensor]:
    """Return what is sent, c = C(x + e), and the residual that is kept, x + e - c (BL-4.9).

    Nothing is lost for good: after any number of steps what was sent plus the residual is the sum of all x. It is
    meant for contractions (top-k, random-k unscaled, scaled sign): there the residual stays below
    :func:`residual_bound`. An unbiased compressor does not need it, and with scaled random-k the residual can grow
    without limit. The message of a step is ``compressor.encode(vector + residual)``.

    Parameters
    ----------
    compressor : Compressor
    vector : Tensor
        x, ``[d]``.
    residual : Tensor, optional
        e, ``[d]``, from the step before; at first 0.
    generator, segments
        As for :meth:`CompressorBase.compress`.

    Raises
    ------
    ValueError
        The residual has another shape than `vector`, or the compressor refuses their sum.
    """
    if residual is not None:
        shape = list(residual.shape)
        require(residual.shape == vector.shape, "residual.shape", shape, f"{list(vector.shape)}, as the vector's")
        vector = vector + residual
    sent = compressor.compress(vector, generator, segments)
    return sent, vector - sent


def residual_bound(delta: float, largest: float) -> float:
    """Return 4 (1 - δ)/δ² max‖x_t‖², which ‖e‖² never exceeds with a deterministic contraction (section 4).

    For a random contraction it bounds the mean of ‖e‖².

    Parameters
    ----------
    delta : float
        Of the contraction, in (0, 1]: ``compressor.contraction(d)``.
    largest : float
        max‖x_t‖², >= 0.

    Raises
    ------
    ValueError
        An argument is out of range.
    """
    require(0 < delta <= 1, "delta", delta, "in (0, 1]")
    require(largest >= 0, "largest", largest, ">= 0")
    return 4 * (1 - delta) / delta**2 * largest
