"""WKAFL against its authors' own programs: the first six updates of each, replayed.

`lockstep.npz` holds numbers that ``zzh816/WKAFL-code`` (commit 1d27af5, folder EMNIST-MNIST) wrote, run as released
in PySyft 0.2.3 with Fashion-MNIST in place of EMNIST MNIST, P = 100, K = 10 and a quarter of the network's channels.
Whole are the model that all begin with and, of WKAFL's programs, versions 1 to 5, which their updates start from; of
all versions 1 to 6 there are 1,000 entries, drawn once. ``wkafl_copy`` is the program with a copy of the model at the
hand-over: true staleness.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch

from fl_core.datasets import Preprocessing, load_dataset
from fl_core.experiments.replay import Arrival, Replayed, recorded, replay
from fl_core.tasks import Classification
from fl_papers.wkafl.experiment import DIGITS, METHODS, RELEASED

COPIED: Mapping[str, Any] = {"client_snapshot": "copy"}
PROGRAMS: dict[str, tuple[str, str, int, Mapping[str, Any]]] = {
    "wkafl_1": ("WKAFL", "WKAFL, one label", 1, {}),
    "wkafl_5": ("WKAFL", "WKAFL, five labels", 5, {}),
    "wkafl_copy": ("WKAFL", "WKAFL, one label, models copied", 1, COPIED),
    "twafl": ("TWAFL", "TWAFL, one label", 1, {}),
    "sasgd": ("SASGD", "SASGD, one label", 1, {}),
    "gsgm": ("GSGM", "GSGM, one label", 1, {}),
}
"""By name in the record: method, title, labels per client, and what differs from :data:`RELEASED`."""
AS_WRITTEN: Mapping[str, Mapping[str, Any]] = {
    "wkafl_1": {"momentum_source": "estimated", "selection_score": "similarity", "staleness_offset": 0}
}
"""The paper's values of what was released otherwise, on shared memory as before."""
WRITTEN = "as written, on shared memory"

record = partial(recorded, __file__)  # What the programs did, by name.


def replayed(program: str, **changed: Any) -> Replayed:
    """Return what our method makes of the arrivals and mini-batches of `program`; `changed` are its parameters."""
    kept, (method, _, labels, given) = record(), PROGRAMS[program]
    parameters = DIGITS.wkafl if method == "WKAFL" else DIGITS.others[method]
    algorithm = METHODS[method].algorithm(**{**parameters, **RELEASED[method], **given, **changed})
    parts = np.split(kept[f"indices_{labels}"].astype(np.int64), np.cumsum(kept[f"sizes_{labels}"].astype(int))[:-1])
    task = Classification(load_dataset("fashion-mnist"), parts, DIGITS.reduced, Preprocessing(scale="raw"), "pytorch")
    rows = (kept[f"{program}_{name}"] for name in ("clients", "bases", "batches"))
    updates = [
        [Arrival(int(client), int(base), batch[None]) for client, base, batch in zip(*update, strict=True)]
        for update in zip(*rows, strict=True)
    ]
    initial, forced = kept["initial"], dict[int, torch.Tensor]()
    if f"{program}_forced" in kept:
        steps = kept[f"{program}_forced"].transpose(0, 2, 1).copy().view(np.int32)[..., 0]  # of bits, byte by byte
        bits = initial.view(np.int32) + np.cumsum(steps, axis=0, dtype=np.int32)
        forced = dict(enumerate(torch.from_numpy(bits.view(np.float32)), start=1))
    return replay(task, algorithm, updates, torch.from_numpy(initial), forced=forced)


def errors(program: str, **changed: Any) -> list[float]:
    """Return, for each update, the distance of our model from theirs relative to the length of their step."""
    kept = record()
    theirs = np.concatenate([kept["initial"][kept["entries"]][None], kept[f"{program}_models"]]).astype(np.float64)
    ours = [model.numpy()[kept["entries"]] for model in replayed(program, **changed).models]
    steps = np.linalg.norm(np.diff(theirs, axis=0), axis=1)
    return [float(np.linalg.norm(o - t) / s) for o, t, s in zip(ours, theirs[1:], steps, strict=True)]


def table() -> pd.DataFrame:
    """Return the errors of every program as released, and of WKAFL's first with the paper's values."""
    rows = [(title, "as released", *errors(program)) for program, (_, title, _, _) in PROGRAMS.items()]
    rows += [(PROGRAMS[p][1], WRITTEN, *errors(p, **changed)) for p, changed in AS_WRITTEN.items()]
    return pd.DataFrame(rows, columns=["program", "our method", *(f"update {number}" for number in range(1, 7))])
