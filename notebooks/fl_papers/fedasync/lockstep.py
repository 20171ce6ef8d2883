"""FedAsync against its authors' own program: six global epochs that it recorded in float64.

`lockstep.npz` holds numbers that ``xcgoner/async_fl`` (commit 912ecf33) wrote in MXNet 1.9.1, cast to float64:
CIFAR-10, the network of an eighth of the width without dropout, learning rate 0.1, mini-batches of 50, rho 0.1,
weight decay 1e-4, alpha 0.8, polynomial weight with a = 0.5. Whole is only the initial model; of the others there are
904 parameters, drawn once, and all 96 statistics.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np
import pandas as pd
import torch

from fl_core.algorithms import FedAsync
from fl_core.datasets import Dataset, Preprocessing, Samples
from fl_core.errors import DataError
from fl_core.experiments.replay import Arrival, recorded, replay
from fl_core.formulas.staleness import Polynomial
from fl_core.runtime import LocalTraining
from fl_core.tasks import Classification
from fl_core.tasks.classification import ClassificationWorkspace

METHOD = FedAsync(alpha=0.8, weight=Polynomial(a=0.5), rho=0.1, bn_start="latest")
TRAINING = LocalTraining(lr=0.1, weight_decay=1e-4)

record = partial(recorded, __file__)  # What the program did, by name.


def mixing() -> pd.DataFrame:
    """Return each epoch's staleness and weight, theirs and ours, and the distance of our mixture of their models.

    It is relative to the length of the server's step, on the recorded entries.
    """
    kept = record()
    before = np.concatenate([kept["initial"][kept["entries"]][None], kept["globals"][:-1]])
    rows = []
    for epoch, (old, uploaded, new) in enumerate(zip(before, kept["locals"], kept["globals"], strict=True)):
        staleness = epoch - int(kept["base"][epoch])
        made = METHOD.combine(torch.from_numpy(old), torch.from_numpy(uploaded), epoch + 1, staleness)
        distance = np.linalg.norm(made.model.numpy() - new) / np.linalg.norm(new - old)
        theirs = kept["staleness"][epoch], kept["weight"][epoch]
        rows.append((epoch + 1, *theirs, staleness, made.weight, distance))
    columns = ["epoch", "their staleness", "their weight", "our staleness", "our weight", "distance"]
    return pd.DataFrame(rows, columns=columns)


def tasks(dataset: Dataset) -> list[float]:
    """Return how far our two tasks that begin with version 0 end from theirs, relative to their lengths.

    Ten steps in float64 on CIFAR-10, whose images the project does not have; statistics apart, in which MXNet keeps
    the biased variance of a mini-batch.
    """
    if dataset.name != "cifar10":
        raise DataError(f"the recorded tasks are of the data set 'cifar10', not of {dataset.name!r}")
    kept, distances = record(), []
    initial = torch.from_numpy(kept["initial"])
    entries = kept["entries"][kept["entries"] < len(initial) - 96].astype(np.int64)
    locals_ = [local[: len(entries)] for local, base in zip(kept["locals"], kept["base"], strict=True) if base == 0]
    for positions, theirs in zip(kept["samples"], locals_, strict=True):
        arrival = Arrival(0, 0, np.arange(positions.size).reshape(positions.shape))
        task = _Float64(dataset, positions.ravel())
        with _float64():  # networks that are made now
            made = replay(task, METHOD, [[arrival]], initial, training=TRAINING).models[0]
        start = initial[entries].numpy()
        ours = start + (made[entries].numpy() - start) / METHOD.mixing_weight(1, 0)
        distances.append(float(np.linalg.norm(ours - theirs) / np.linalg.norm(theirs - start)))
    return distances


class _Float64(Classification):
    """The samples at `index` in double precision, on one device, and the network without dropout."""

    def __init__(self, dataset: Dataset, index: np.ndarray) -> None:
        own = np.arange(len(index))
        super().__init__(dataset, [own], "fedasync_cnn(width=0.125)", Preprocessing(crop=24, scale="pixel_mean"))
        inputs, labels = self.train.select(torch.from_numpy(index.astype(np.int64)))
        self.train = self.test = Samples(inputs.double(), labels)

    def workspace(self) -> ClassificationWorkspace:
        space = super().workspace()
        space.noisy = False
        return space


@contextmanager
def _float64() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
