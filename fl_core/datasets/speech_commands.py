"""Speech Commands v0.02 (Warden, 2018) as FedLuck uses it: ten words, MFCC features as 32x32 numbers.

Assumption A23 of FedLuck's specification: the ten words with the most clips; of each clip that gives 99 frames of 13
coefficients (:mod:`fl_core.datasets.mfcc`) the first 1,024 numbers; per word the first 3,000 such clips, in the order
of their file names, for training and the next 300 for testing. Version 0.01 has too few clips per word for that.
"""

from __future__ import annotations

import io
import wave
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fl_core.datasets.archives import decoding, tar_members
from fl_core.datasets.base import Archive, Source, Split
from fl_core.datasets.mfcc import COEFFICIENTS, FRAMES, RATE, STEP, WINDOW, mfcc

WORDS = ("five", "zero", "yes", "seven", "no", "nine", "down", "one", "go", "two")
"""The ten with the most clips, 4,052 to 3,880 each, by number and then by alphabet."""

TRAIN, TEST = 3_000, 300
NUMBERS = 32 * 32
SHORTEST = (FRAMES - 2) * STEP + WINDOW + 1  # samples that still give 99 frames
BATCH = 256  # clips whose features are computed together
LIMIT = 1 << 20  # bytes of a clip; a second has 32,044


def read(folder: Path, train: int = TRAIN, test: int = TEST) -> tuple[Split, Split]:
    """Read `train` and `test` clips per word, word after word, with speakers as owners.

    Takes one pass over the archive, in which the features of all clips of the ten words are computed.

    Raises
    ------
    DataError
        If the archive is damaged, or a word has too few clips.
    """
    path = folder / ARCHIVE.file
    clips: list[dict[str, Tensor]] = [{} for _ in WORDS]
    names: list[str] = []
    waves: list[np.ndarray] = []

    def finish() -> None:
        features = mfcc(torch.from_numpy(np.stack(waves)), frames=-(-NUMBERS // COEFFICIENTS)).flatten(1)[:, :NUMBERS]
        for name, numbers in zip(names, features, strict=True):
            word, file = name.split("/")
            clips[WORDS.index(word)][file] = numbers
        names.clear()
        waves.clear()

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # so that the features are the same to the last bit on every number of cores
    try:
        with decoding(path, SOURCE.name):
            for name, content in tar_members(path, _wanted, LIMIT):
                if (samples := _samples(content)) is not None:
                    names.append(name)
                    waves.append(samples)
                if len(waves) == BATCH:
                    finish()
            if waves:
                finish()
            return _splits(clips, train, test)
    finally:
        torch.set_num_threads(threads)


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


def _splits(clips: list[dict[str, Tensor]], train: int, test: int) -> tuple[Split, Split]:
    chosen: tuple[list, list] = ([], [])
    for label, (word, of_word) in enumerate(zip(WORDS, clips, strict=True)):
        if len(of_word) < train + test:
            raise ValueError(f"{len(of_word)} clips of the word {word!r}, {train + test} are needed")
        files = sorted(of_word)
        for part, some in zip(chosen, (files[:train], files[train : train + test]), strict=True):
            part += [(of_word[file], label, file.split("_")[0]) for file in some]
    speakers = {name: number for number, name in enumerate(sorted({clip[2] for part in chosen for clip in part}))}
    first, second = (
        Split(
            torch.stack([numbers for numbers, _, _ in part]).view(-1, 1, 32, 32),
            torch.tensor([label for _, label, _ in part]),
            torch.tensor([speakers[speaker] for _, _, speaker in part]),
        )
        for part in chosen
    )
    return first, second


ARCHIVE = Archive(
    "speech_commands_v0.02.tar.gz",
    2_428_923_189,
    "sha256:af14739ee7dc311471de98f5f9d2c9191b18aedfe957f4a6ff791c709868ff58",
    "https://storage.googleapis.com/download.tensorflow.org/data/speech_commands_v0.02.tar.gz",
)
SOURCE = Source(
    name="speech-commands",
    title="Speech Commands v0.02 (Warden, 2018), ten words, MFCC",
    licence="CC BY 4.0",
    homepage="https://arxiv.org/abs/1804.03209",
    shape=(1, 32, 32),
    classes=WORDS,
    sizes=(len(WORDS) * TRAIN, len(WORDS) * TEST),
    archives=(ARCHIVE,),
    read=read,
)
