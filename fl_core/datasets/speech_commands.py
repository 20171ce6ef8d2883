"""Speech Commands v0.02 (Warden, 2018) as FedLuck uses it: ten words, MFCC features as 32x32 numbers.

Assumption A23 of FedLuck's specification: the ten words with the most clips; of each clip that gives 99 frames of 13
coefficients the first 1,024 numbers; per word the first 3,000 such clips, in the order of their file names, for
training and the next 300 for testing. Version 0.01 has too few clips per word for that.

The conventions of the mel-frequency cepstral coefficients (MFCC) are those of the package python_speech_features (J.
Lyons), which FedLuck's code calls: pre-emphasis 0.97, frames of 25 ms every 10 ms with a rectangular window, power
spectrum of 2,048 points, 26 triangular mel filters from 0 Hz to 8 kHz, logarithm, orthonormal DCT-II, lifter 22, and
the log-energy of the frame in place of coefficient 0. Amplitudes are raw 16-bit numbers, not scaled to [-1, 1].
"""

from __future__ import annotations

import functools
import io
import math
import wave
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fl_core.datasets.archives import decoding, read_arrays, tar_members
from fl_core.datasets.base import Archive, Form, Source, Split, Splits, one_thread
from fl_core.errors import SpecError

WORDS = ("five", "zero", "yes", "seven", "no", "nine", "down", "one", "go", "two")
"""The ten with the most clips, 4,052 to 3,880 each, by number and then by alphabet."""

RATE = 16_000  # samples per second, and samples per clip
FRAMES, COEFFICIENTS = 99, 13
WINDOW, STEP, POINTS, FILTERS = 400, 160, 2048, 26
EMPHASIS, LIFTER = 0.97, 22
FLOOR = 2.0**-52  # stands in for a power of exactly zero, whose logarithm does not exist
CHUNK = 16  # clips at a time: their spectra (10 MB) stay near the processor

TRAIN, TEST = 3_000, 300
NUMBERS = 32 * 32
SHORTEST = (FRAMES - 2) * STEP + WINDOW + 1  # samples that still give 99 frames
BATCH = 256  # clips whose features are computed together
LIMIT = 1 << 20  # bytes of a clip; a second has 32,044


def read(folder: Path, train: int = TRAIN, test: int = TEST) -> Splits:
    """Read `train` and `test` clips per word, word after word, with speakers as owners.

    Takes one pass over the archive, in which the features of all clips of the ten words are computed.
    """
    path = folder / ARCHIVE.file
    clips: list[dict[str, Tensor]] = [{} for _ in WORDS]
    names: list[str] = []
    waves: list[np.ndarray] = []

    def finish() -> None:
        for name, numbers in zip(names, features(torch.from_numpy(np.stack(waves))), strict=True):
            word, file = name.split("/")
            clips[WORDS.index(word)][file] = numbers
        names.clear()
        waves.clear()

    with one_thread(), decoding(path, "speech-commands"):
        for name, content in tar_members(path, _wanted, LIMIT):
            if (samples := _samples(content)) is not None:
                names.append(name)
                waves.append(samples)
            if len(waves) == BATCH:
                finish()
        if waves:
            finish()
        return _splits(clips, train, test)


def read_three_words(folder: Path) -> Splits:
    """Read the features of three words; validation clips of the publisher's division stay unused."""
    path = folder / THREE.file
    with decoding(path, "speech-commands-3words"):
        bytes_ = ("u1", (None,))
        forms = {"x": ("f2", (None, 1, 32, 32)), "y": bytes_, "speaker": ("i4", (None,)), "split": bytes_}
        x, y, speaker, split = read_arrays(path, **forms)
        if len({len(x), len(y), len(speaker), len(split)}) > 1 or y.max() > 2 or not np.isfinite(x).all():
            raise ValueError("its features, words and speakers do not belong together")
        first, second = (
            Split.of(x[split == part].astype("f4"), y[split == part], speaker[split == part]) for part in (0, 2)
        )
        return first, second


def features(waves: Tensor) -> Tensor:
    """Return FedLuck's inputs ``[n, 1, 32, 32]`` (A23): the first 1,024 numbers of the MFCC of `waves`."""
    return mfcc(waves, -(-NUMBERS // COEFFICIENTS)).flatten(1)[:, :NUMBERS].reshape(-1, 1, 32, 32)


def _wanted(name: str) -> bool:
    word, _, file = name.partition("/")
    return word in WORDS and file.endswith(".wav")


def _samples(content: bytes) -> np.ndarray | None:
    """Return the 16,000 amplitudes (int16) of a clip, or None if it is too short to give 99 frames."""
    with wave.open(io.BytesIO(content)) as file:
        if (file.getnchannels(), file.getsampwidth(), file.getframerate()) != (1, 2, RATE):
            raise ValueError(f"a clip is not one channel of 16 bits at {RATE} Hz: {file.getparams()}")
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2")
    if not SHORTEST <= len(samples) <= RATE:
        return None
    # What is missing at the end lies behind the frames whose numbers are used.
    return np.pad(samples, (0, RATE - len(samples)))


def _splits(clips: list[dict[str, Tensor]], train: int, test: int) -> Splits:
    chosen: tuple[list, list] = ([], [])
    for label, (word, of_word) in enumerate(zip(WORDS, clips, strict=True)):
        if len(of_word) < train + test:
            raise ValueError(f"{len(of_word)} clips of the word {word!r}, {train + test} are needed")
        files = sorted(of_word)
        for part, some in zip(chosen, (files[:train], files[train : train + test]), strict=True):
            part += [(of_word[file], label, file.split("_")[0]) for file in some]
    speakers = {name: number for number, name in enumerate(sorted({clip[2] for part in chosen for clip in part}))}
    columns = (zip(*part, strict=True) for part in chosen)
    first, second = (
        Split(torch.stack(inputs), torch.tensor(labels), torch.tensor([speakers[name] for name in names]))
        for inputs, labels, names in columns
    )
    return first, second


def mfcc(waves: Tensor, frames: int = FRAMES) -> Tensor:
    """Return the first `frames` of the 99 frames of MFCC ``[n, frames, 13]`` of `waves`.

    These are ``[n, 16000]``, amplitudes at 16 kHz from -32768 to 32767, of any real dtype; the result is float64 if
    they are, else float32. A clip's numbers depend neither on the other clips nor on `frames`, and with
    ``torch.set_num_threads(1)`` not even in their last bit; with more threads the matrix product may round otherwise.
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


ARCHIVE = Archive(
    "speech_commands_v0.02.tar.gz", 2_428_923_189,
    "sha256:af14739ee7dc311471de98f5f9d2c9191b18aedfe957f4a6ff791c709868ff58",
    "https://storage.googleapis.com/download.tensorflow.org/data/speech_commands_v0.02.tar.gz",
)  # fmt: skip
THREE = Archive(
    "speech-commands-3words-mfcc.npz", 8_548_435,
    "sha256:39b0dbd48c2de2ca57a6033a6b474eb8d0249c569105e6c54e80fbb0bd2ac779",
)  # fmt: skip
SOURCES = (
    Source(
        name="speech-commands", title="Speech Commands v0.02 (Warden, 2018), ten words, MFCC", licence="CC BY 4.0",
        homepage="https://arxiv.org/abs/1804.03209", shape=(1, 32, 32), classes=WORDS,
        sizes=(len(WORDS) * TRAIN, len(WORDS) * TEST), archives=(ARCHIVE,), read=read,
    ),
    Source(
        name="speech-commands-3words", title="Speech Commands v0.01 (Warden, 2017), words bed, cat and happy, MFCC",
        licence="CC BY 4.0", homepage="https://arxiv.org/abs/1804.03209", shape=(1, 32, 32),
        classes=("bed", "cat", "happy"), sizes=(3_599, 468), archives=(), read=read_three_words,
        copies=(Form((THREE,), read_three_words),),
        sha256="221ecdfc3e9538c4abbb0b62ac84f320deb368eb894f20aec0a5da6ce9c640a8",
        kind="partial", of="speech-commands",
        differs="three words of Speech Commands v0.01, none of FedLuck's ten; features rounded to 16 bits",
    ),
)  # fmt: skip
