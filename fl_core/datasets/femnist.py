"""FEMNIST of LEAF (Caldas et al., 2018): handwritten characters by writer, from the JSON that LEAF's scripts make."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch

from fl_core.datasets.archives import decoding
from fl_core.datasets.base import Source, Split
from fl_core.datasets.emnist import CHARACTERS
from fl_core.errors import DataError


def read(folder: Path) -> tuple[Split, Split]:
    """Read ``train/*.json`` and ``test/*.json`` in `folder`, in the order of their names.

    LEAF writes pixels from 0 (ink) to 1 (paper), bytes divided by 255; here they are bytes again. Writers are
    numbered from 0 in the order in which they first occur, those of the training files first. One file at a time is
    in memory as Python numbers: about 0.6 GB where it holds 100 writers.

    Raises
    ------
    DataError
        If there are no such files, or one is damaged.
    """
    writers: dict[str, int] = {}
    return _split(folder / "train", writers), _split(folder / "test", writers)


def _split(folder: Path, writers: dict[str, int]) -> Split:
    images, labels, owners = [], [], []
    for path in sorted(folder.glob("*.json")):
        with decoding(path, SOURCE.name):
            users = json.loads(path.read_bytes())["user_data"]
            for user, samples in users.items():
                pixels = np.asarray(samples["x"], np.float64).reshape(-1, 28 * 28)
                classes = np.asarray(samples["y"], np.int64)
                if len(pixels) != len(classes) or not (pixels.min(initial=0) >= 0 and pixels.max(initial=1) <= 1):
                    raise ValueError(f"writer {user!r}: not as many labels as images, or pixels not from 0 to 1")
                if classes.min(initial=0) < 0 or classes.max(initial=0) >= len(CHARACTERS):
                    raise ValueError(f"writer {user!r} has labels that are not from 0 to {len(CHARACTERS) - 1}")
                images.append(np.rint(pixels * 255).astype(np.uint8))
                labels.append(classes)
                owners.append(np.full(len(classes), writers.setdefault(user, len(writers))))
    if not images:
        raise DataError(f"no data in {folder}; {SOURCE.by_hand}")
    return Split(
        torch.from_numpy(np.concatenate(images)).view(-1, 1, 28, 28),
        torch.from_numpy(np.concatenate(labels)),
        torch.from_numpy(np.concatenate(owners)),
    )


def _present(folder: Path) -> bool:
    return all(any((folder / part).glob("*.json")) for part in ("train", "test"))


SOURCE = Source(
    name="femnist",
    title="FEMNIST of LEAF (Caldas et al., 2018; images from NIST Special Database 19)",
    licence="not stated; LEAF: BSD-2-Clause",
    homepage="https://leaf.cmu.edu",
    shape=(1, 28, 28),
    classes=CHARACTERS,
    sizes=(0, 0),  # they depend on the options of LEAF's script
    archives=(),
    read=read,
    by_hand=(
        "clone https://github.com/TalwalkarLab/leaf, run './preprocess.sh -s niid --sf 1.0 -k 0 -t sample' in its "
        "folder data/femnist, and copy the folders data/femnist/data/train and data/femnist/data/test here"
    ),
    present=_present,
)
