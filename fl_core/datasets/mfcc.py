"""Mel-frequency cepstral coefficients (MFCC) of one-second clips, as FedLuck's speech features need them.

The conventions are those of the package python_speech_features (J. Lyons), which FedLuck's code calls (assumption
A23 of its specification): pre-emphasis 0.97, frames of 25 ms every 10 ms with a rectangular window, power spectrum
of 2,048 points, 26 triangular mel filters from 0 Hz to 8 kHz, logarithm, orthonormal DCT-II, lifter 22, and the
log-energy of the frame in place of coefficient 0. Amplitudes are raw 16-bit numbers, not scaled to [-1, 1].
"""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor

from fl_core.errors import SpecError

RATE = 16_000  # samples per second, and samples per clip
FRAMES, COEFFICIENTS = 99, 13
WINDOW, STEP, POINTS, FILTERS = 400, 160, 2048, 26
EMPHASIS, LIFTER = 0.97, 22
FLOOR = 2.0**-52  # stands in for a power of exactly zero, whose logarithm does not exist
CHUNK = 16  # clips at a time: their spectra (10 MB) stay near the processor


def mfcc(waves: Tensor, frames: int = FRAMES) -> Tensor:
    """Return the MFCC of `waves`.

    A clip's numbers depend neither on the other clips nor on `frames`, and with ``torch.set_num_threads(1)`` not even
    in their last bit; with more threads the matrix product may round otherwise.

    Parameters
    ----------
    waves : Tensor
        ``[n, 16000]``, amplitudes at 16 kHz from -32768 to 32767, of any real dtype.
    frames : int
        Only the first `frames` of the 99 frames; fewer cost less.

    Returns
    -------
    Tensor
        ``[n, frames, 13]``: float64 if `waves` is, else float32.

    Raises
    ------
    SpecError
        If `waves` has another shape, or `frames` is not between 1 and 99.
    """
    if waves.ndim != 2 or waves.shape[1] != RATE:
        raise SpecError(f"waves of shape {list(waves.shape)}; valid is [n, {RATE}]")
    if not 1 <= frames <= FRAMES:
        raise SpecError(f"frames = {frames}; valid is 1 to {FRAMES}")
    dtype = torch.float64 if waves.dtype == torch.float64 else torch.float32
    features = torch.empty(len(waves), frames, COEFFICIENTS, dtype=dtype)
    for start in range(0, len(waves), CHUNK):
        features[start : start + CHUNK] = _mfcc(waves[start : start + CHUNK].to(dtype), frames)
    return features


def _mfcc(waves: Tensor, frames: int) -> Tensor:
    used = min(RATE, (frames - 1) * STEP + WINDOW)
    signal = waves.new_zeros(len(waves), (frames - 1) * STEP + WINDOW)  # the last frame is filled up with zeros
    signal[:, 0] = waves[:, 0]
    torch.sub(waves[:, 1:used], waves[:, : used - 1], alpha=EMPHASIS, out=signal[:, 1:used])
    spectrum = torch.view_as_real(torch.fft.rfft(signal.unfold(1, WINDOW, STEP), POINTS))
    filters, cosines = _matrices(waves.dtype)
    logarithms = spectrum.square_().flatten(-2).matmul(filters)
    logarithms = logarithms.masked_fill_(logarithms == 0, FLOOR).log_()
    coefficients = logarithms[..., :FILTERS].matmul(cosines)
    coefficients[..., 0] = logarithms[..., FILTERS]
    return coefficients


@functools.cache
def _matrices(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return the filters ``[2050, 27]`` and the liftered cosines ``[26, 13]``.

    The filters apply to the squares of the real and of the imaginary part of each bin, which is twice as fast as
    adding these first; the last filter passes everything and gives the energy.
    """
    highest = 2595 * math.log10(1 + RATE / 2 / 700)
    mels = torch.linspace(0, highest, FILTERS + 2, dtype=torch.float64)
    edges = ((POINTS + 1) * 700 * (10 ** (mels / 2595) - 1) / RATE).floor()  # in bins of the spectrum
    low, middle, high = edges[:-2], edges[1:-1], edges[2:]
    bins = torch.arange(POINTS // 2 + 1, dtype=torch.float64).unsqueeze(1)
    triangles = torch.minimum((bins - low) / (middle - low), (high - bins) / (high - middle)).clamp_(min=0)
    filters = torch.cat([triangles, torch.ones_like(bins)], 1).repeat_interleave(2, 0) / POINTS

    quefrency = torch.arange(COEFFICIENTS, dtype=torch.float64)
    centres = (torch.arange(FILTERS, dtype=torch.float64).unsqueeze(1) + 0.5) / FILTERS
    cosines = torch.cos(math.pi * centres * quefrency) * math.sqrt(2 / FILTERS)
    cosines *= 1 + LIFTER / 2 * torch.sin(math.pi * quefrency / LIFTER)
    return filters.to(dtype), cosines.to(dtype)
