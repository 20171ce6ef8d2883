"""Speech features: against the definition, written as slow loops."""

import numpy as np
import pytest
import torch

from fl_core.datasets.speech_commands import mfcc
from fl_core.errors import SpecError


def reference(wave: np.ndarray) -> np.ndarray:
    """One clip, frame by frame, bin by bin, in float64: the definition, nothing shared with the module."""
    wave = wave.astype(np.float64)
    emphasised = np.array([wave[0]] + [wave[t] - 0.97 * wave[t - 1] for t in range(1, len(wave))])
    emphasised = np.concatenate([emphasised, np.zeros(80)])

    mel = np.linspace(0, 2595 * np.log10(1 + 8000 / 700), 28)
    edges = [int(2049 * 700 * (10 ** (m / 2595) - 1) / 16000) for m in mel]
    rows = []
    for start in range(0, 99 * 160, 160):
        bins = np.fft.fft(emphasised[start : start + 400], 2048)[:1025]
        power = (bins.real**2 + bins.imag**2) / 2048
        bands = []
        for left, peak, right in zip(edges, edges[1:], edges[2:], strict=False):
            rising = sum(power[k] * (k - left) / (peak - left) for k in range(left, peak))
            falling = sum(power[k] * (right - k) / (right - peak) for k in range(peak, right))
            bands.append(np.log(rising + falling or np.finfo(float).eps))
        row = []
        for c in range(13):
            total = sum(band * np.cos(np.pi * c * (2 * m + 1) / 52) for m, band in enumerate(bands))
            row.append(total * np.sqrt((1 if c == 0 else 2) / 26) * (1 + 11 * np.sin(np.pi * c / 22)))
        row[0] = np.log(power.sum() or np.finfo(float).eps)
        rows.append(row)
    return np.array(rows)


def clips() -> torch.Tensor:
    """A chirp in noise, a quiet hum, and silence after half a second, as 16-bit amplitudes."""
    t = torch.arange(16000, dtype=torch.float64) / 16000
    noise = torch.randn(3, 16000, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    chirp = 9000 * torch.sin(2 * np.pi * (200 + 3000 * t) * t) + 300 * noise[0]
    hum = 20 * torch.sin(2 * np.pi * 120 * t) + 3 * noise[1]
    cut = torch.where(t < 0.5, 2000 * noise[2], 0)
    return torch.stack([chirp, hum, cut]).round().to(torch.int16)


def test_the_features_equal_the_definition_written_as_loops() -> None:
    waves = clips()
    expected = torch.from_numpy(np.stack([reference(wave) for wave in waves.numpy()]))
    torch.testing.assert_close(mfcc(waves.double()), expected, rtol=1e-9, atol=1e-9)


def test_silence_has_the_logarithm_of_the_smallest_number_as_energy() -> None:
    features = mfcc(torch.zeros(1, 16000))
    assert features.isfinite().all()
    torch.testing.assert_close(features[0, :, 0], torch.full((99,), float(np.log(np.finfo(float).eps))))
    torch.testing.assert_close(features[0, :, 1:], torch.zeros(99, 12), rtol=0, atol=1e-3)


def test_a_clip_has_the_same_bits_whatever_the_number_of_clips_and_frames() -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        waves = clips().repeat(7, 1)
        features = mfcc(waves)
        for count in (0, 1, 2, 16, 17, 21):
            assert torch.equal(mfcc(waves[:count], frames=79), features[:count, :79])
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize(("shape", "frames"), [((16000,), 99), ((2, 15999), 99), ((2, 16000), 100), ((2, 16000), 0)])
def test_a_wrong_shape_or_number_of_frames_is_named(shape: tuple[int, ...], frames: int) -> None:
    with pytest.raises(SpecError, match="valid is"):
        mfcc(torch.zeros(shape), frames)
