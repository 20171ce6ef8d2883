"""Ten spoken words from a synthesiser, in place of Speech Commands: one-second clips, then FedLuck's features.

A source-filter model. A word is a sequence of phones; a phone says how long it lasts, how much voice and how much
noise it has, where its three formants lie and where its noise. Between phones all of these glide. The voice is a
train of pulses, shaped by the formants; the noise is white, shaped by its band. A speaker has a pitch, a length of
the vocal tract (which scales all formants), an accent (which moves the formants of each phone), a pace, a loudness
and a noisy room; a clip has its own onset, pace, melody and small deviations of the formants. Test speakers are
others than training speakers, as in FedLuck, which takes files in the order of their speakers' numbers.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
import torch
from numpy.random import Generator
from torch import Tensor

from fl_core.datasets.base import Split, Surrogate
from fl_core.datasets.speech_commands import RATE, features
from fl_core.datasets.surrogates.blocks import fill, one_thread_each
from fl_core.streams import stream

WORDS = {
    "five": "f a i v",
    "zero": "z i r o",
    "yes": "j e s",
    "seven": "s e v @ n",
    "no": "n o u",
    "nine": "n a i n",
    "down": "d a u n",
    "one": "w A n",
    "go": "g o u",
    "two": "t u u",
}
"""Phones of each word, in the order of the real data set."""

PHONES = {
    # seconds, voice, noise; formants 1 to 3 of an adult man in Hz; centre and width of the noise in Hz
    " ": (0.06, 0.0, 0.0, 500, 1500, 2500, 2500, 2000),
    "a": (0.13, 1.0, 0.02, 730, 1090, 2440, 2500, 2000),
    "A": (0.15, 1.0, 0.02, 640, 1190, 2390, 2500, 2000),
    "e": (0.14, 1.0, 0.02, 530, 1840, 2480, 2500, 2000),
    "i": (0.12, 0.9, 0.02, 300, 2200, 2900, 2500, 2000),
    "o": (0.14, 1.0, 0.02, 570, 840, 2410, 2500, 2000),
    "u": (0.11, 0.8, 0.02, 330, 900, 2240, 2500, 2000),
    "@": (0.07, 0.8, 0.02, 500, 1500, 2500, 2500, 2000),
    "w": (0.07, 0.6, 0.02, 300, 610, 2200, 2500, 2000),
    "j": (0.07, 0.6, 0.02, 270, 2290, 3010, 2500, 2000),
    "r": (0.09, 0.7, 0.02, 310, 1060, 1380, 2500, 2000),
    "n": (0.10, 0.4, 0.01, 250, 1450, 2500, 2500, 2000),
    "v": (0.07, 0.3, 0.08, 300, 1100, 2300, 5000, 2500),
    "z": (0.10, 0.3, 0.30, 300, 1700, 2500, 5500, 900),
    "f": (0.11, 0.0, 0.15, 400, 1100, 2300, 5000, 2500),
    "s": (0.13, 0.0, 0.50, 400, 1700, 2500, 5500, 900),
    "t": (0.05, 0.0, 0.50, 400, 1700, 2600, 4000, 1500),
    "d": (0.03, 0.2, 0.40, 300, 1700, 2600, 3500, 1500),
    "g": (0.03, 0.2, 0.40, 300, 1500, 2000, 2000, 800),
}

SPEAKERS = (2_000, 200)  # in the training and in the test set
ONSET = (0.0, 0.4)  # earliest and latest start of the first sound in seconds
ACCENT, DEVIATION = 0.2, 0.25
"""Standard deviation of the logarithm of a formant: of a speaker's phone, and of a phone in one clip."""
STRAY = 0.7  # probability of a stray sound (a breath, a click, an "er") before the word, and of one after it
STRESS = 0.4  # standard deviation of the logarithm of duration, voice and noise of a phone in one clip
PACE, CLIP_PACE = 0.25, 0.2  # standard deviation of the logarithm of the pace: of a speaker, and of one clip
LOUDNESS, LOUDNESS_SPREAD = 1_000.0, 0.7  # amplitude of a vowel, median and standard deviation of the logarithm
ROOM, ROOM_SPREAD = 0.8, 1.0
"""Amplitude of the background noise relative to a vowel, median and standard deviation of the logarithm."""

_BLOCK = 50
_HOP = 250  # samples between the moments at which a clip's spectrum is given
_GLIDE = 0.012  # seconds; a transition between phones takes about four times this


def waves(split: int, first: int, count: int) -> Tensor:
    """Return clips of the training (0) or test (1) set from `first` on: ``[count, 16000]``, whole 16-bit numbers."""
    start = first // _BLOCK
    with one_thread_each() as pool:
        blocks = list(pool.map(functools.partial(_block, split), range(start, -(-(first + count) // _BLOCK))))
    return torch.cat([torch.empty(0, RATE), *(clips for clips, _, _ in blocks)])[first - start * _BLOCK :][:count]


def _split(part: str, wanted: int | None) -> Split:
    split = int(part == "test")

    def draw(block: int, count: int) -> Split:
        clips, words, speakers = _block(split, block)
        return Split(features(clips), words, speakers)

    counts = np.full(_SIZES[split] // _BLOCK, _BLOCK)
    return fill((1, 32, 32), counts, draw, wanted, owned=True, dtype=torch.float32)


class _Voices(NamedTuple):
    """What distinguishes speakers, each ``[n, ...]``."""

    pitch: np.ndarray  # in Hz
    size: np.ndarray  # factor of all formants: the shorter the vocal tract, the higher
    accent: np.ndarray  # factors of the formants of each phone, [n, phones, 3]
    pace: np.ndarray
    loudness: np.ndarray  # amplitude of a vowel
    room: np.ndarray  # amplitude of the background noise, relative to a vowel
    tilt: np.ndarray  # how the background noise falls above 200 Hz: from 0 for white to 1 for 6 dB per octave


def _block(split: int, block: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the clips ``[n, 16000]`` of a block, their words ``[n]`` and speakers ``[n]``."""
    rng = stream(0, "speech-commands-surrogate", split, block)
    words = rng.permuted(np.tile(np.arange(len(WORDS)), (_BLOCK // len(WORDS), 1)), axis=1).ravel()
    # A few speak often, many seldom.
    speakers = (SPEAKERS[split] * rng.random(_BLOCK) ** 1.5).astype(np.int64)
    clips = _synthesise(rng, words, _Voices(*(part[speakers] for part in _speakers(split))))
    return clips, torch.from_numpy(words), torch.from_numpy(speakers + split * SPEAKERS[0])


@functools.cache
def _speakers(split: int) -> _Voices:
    rng = stream(0, "speech-commands-surrogate speakers", split)
    s = SPEAKERS[split]
    woman = rng.random(s) < 0.4
    return _Voices(
        pitch=np.where(woman, 205.0, 120.0) * rng.lognormal(0, 0.15, s),
        size=np.where(woman, 1.16, 1.0) * rng.lognormal(0, 0.05, s),
        accent=rng.lognormal(0, ACCENT, (s, len(PHONES), 3)),
        pace=rng.lognormal(0, PACE, s),
        loudness=rng.lognormal(np.log(LOUDNESS), LOUDNESS_SPREAD, s),
        room=rng.lognormal(np.log(ROOM), ROOM_SPREAD, s),
        tilt=rng.uniform(0, 1, s),
    )


def _synthesise(rng: Generator, words: np.ndarray, voices: _Voices) -> Tensor:
    """Return the clips ``[n, 16000]`` of `words` ``[n]``, each spoken by the speaker in the same place."""
    n = len(words)
    pitch, size, accent, pace, loudness, room, tilt = voices
    numbers, table = _tables()
    stray = np.where(rng.random((n, 2)) < STRAY, rng.integers(1, len(PHONES), (n, 2)), 0)
    pause = np.zeros((n, 1), dtype=int)
    phones = np.hstack([stray[:, :1], pause, numbers[words], pause, stray[:, 1:]])  # -1 where a word is over
    target = np.where(phones[..., None] < 0, 0, table[phones])  # [n, phones, 8]
    deviation = rng.lognormal(0, DEVIATION, (*phones.shape, 3))
    target[..., 3:6] *= size[:, None, None] * accent[np.arange(n)[:, None], phones] * deviation
    target[..., 1:3] *= rng.lognormal(0, STRESS, (*phones.shape, 2))

    # A phone's share of a moment rises around its start and falls around its end.
    seconds = target[..., 0] * rng.lognormal(0, STRESS, phones.shape)
    seconds /= (pace * rng.lognormal(0, CLIP_PACE, n))[:, None]
    bounds = np.cumsum(np.column_stack([rng.uniform(*ONSET, n), seconds]), axis=1)
    moments = np.arange(0, RATE + 1, _HOP) / RATE
    passed = 1 / (1 + np.exp((bounds[:, :, None] - moments) / _GLIDE))  # [n, phones + 1, moments]
    share = passed[:, :-1] - passed[:, 1:]
    level = np.einsum("npm,npk->knm", share, target[..., 1:3])
    share /= share.sum(1, keepdims=True) + 1e-9
    place = np.einsum("npm,npk->knm", share, target[..., 3:])

    # Two sources of unit power, pulses and white noise.
    t = np.arange(RATE) / RATE
    fall = rng.normal(0.2, 0.15, n)[:, None]
    turns = pitch[:, None] * rng.lognormal(0, 0.05, (n, 1)) * (t + fall * (t - t**2) / 2) + rng.random((n, 1))
    pulses = np.diff(np.floor(turns), prepend=0.0) * np.sqrt(RATE / pitch)[:, None]
    pulses[:, 0] = 0
    sources = torch.from_numpy(np.stack([pulses, rng.standard_normal((n, RATE), np.float32)]).astype(np.float32))

    # What the throat and the room let pass of their powers, [n, moments, 251].
    voice, noise = torch.from_numpy(level.astype(np.float32)).square_()[..., None]
    *formants, centre, width = torch.from_numpy(place.astype(np.float32))[..., None]
    hertz = torch.arange(_HOP + 1) * (RATE / (2 * _HOP))
    throat = sum(
        strength * voice / (1 + ((hertz - formant) / (0.03 * formant + bandwidth)).square())
        for formant, strength, bandwidth in zip(formants, (9.0, 2.0, 0.5), (40.0, 40.0, 60.0), strict=True)
    )
    hiss = 9 * noise / (1 + ((hertz - centre) / (width + 100)).square()).square()
    slope = (200 / (hertz.numpy() + 200)) ** (2 * tilt[:, None])
    hiss += torch.from_numpy(room[:, None] ** 2 * slope).float()[:, None]
    clips = _shaped(sources, torch.stack([throat, hiss]).sqrt_())
    return clips.mul_(torch.from_numpy(loudness).float()[:, None]).round_().clamp_(-32768, 32767)


def _shaped(sources: Tensor, gains: Tensor) -> Tensor:
    """Return the sum ``[n, 16000]`` of `sources` ``[k, n, 16000]`` after filters that change with time.

    `gains` ``[k, n, 65, 251]`` are those of frequencies up to 8 kHz, at moments 250 samples apart. Frames of 500
    samples around the moments overlap by half, so that the squares of the sine windows add up to one.
    """
    window = torch.sin(torch.arange(2 * _HOP).add(0.5) * (np.pi / (2 * _HOP)))
    frames = torch.nn.functional.pad(sources, (_HOP, _HOP)).unfold(-1, 2 * _HOP, _HOP) * window
    spectrum = torch.fft.rfft(frames).mul_(gains).sum(0)
    frames = torch.fft.irfft(spectrum, 2 * _HOP) * window
    return (frames[:, :-1, _HOP:] + frames[:, 1:, :_HOP]).flatten(1)


@functools.cache
def _tables() -> tuple[np.ndarray, np.ndarray]:
    """Return the phones of each word ``[words, 5]``, filled up with -1, and what a phone is ``[phones, 8]``."""
    order = list(PHONES)
    spelled = [[order.index(phone) for phone in phones.split()] for phones in WORDS.values()]
    longest = max(map(len, spelled))
    numbers = np.array([word + [-1] * (longest - len(word)) for word in spelled])
    return numbers, np.array(list(PHONES.values()), dtype=float)


_SIZES = (30_000, 3_000)
ABOUT = "MFCC of synthetic one-second words, from phones, speakers, and background noise."
SURROGATES = (Surrogate("speech-commands", 1, (1, 32, 32), tuple(WORDS), _SIZES, _split, ABOUT),)
