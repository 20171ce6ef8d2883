"""FedLuck against its authors' own program: plans, clock and bytes.

`lockstep.npz` holds numbers that ``Aegsteh-T/FedLuck_Euro_Par`` (commit 9e1edc2) wrote under a virtual clock
(planner, clients, servers, compressor and averaging as released; a waiting device starts at once): Fashion-MNIST,
234,090 parameters, ten devices, 800 s.
"""

from __future__ import annotations

from functools import cache, partial
from typing import NamedTuple

import numpy as np
import pandas as pd

from fl_core.algorithms import FedLuck, FedPer, PeriodicAggregation
from fl_core.experiments.replay import recorded
from fl_core.formulas.compression import TopK
from fl_core.runtime import Budget, Evaluation, LocalTraining, Simulation
from fl_core.tasks import Quadratic
from fl_core.world import Network, World
from fl_papers.fedluck.experiment import EVALUATION_SECONDS
from fl_papers.fedluck.tables import number

FIRST_PERIOD = 1.5  # Seconds that pass in the program before devices are started (E19).
POLL_SECONDS = 0.1  # From one look of a device whether it may start to the next (E19).
BYTES = 16  # Of a model of two numbers in double precision.
FEDLUCK, FEDPER = FedLuck(), FedPer(steps=10, compressor=TopK(delta=0.3, wire="ideal_fraction"))
PLANS = {
    "fedluck": ("FedLuck", FEDLUCK),
    "freq": ("frequency only", FedLuck(fixed_compression=0.3)),
    "comp": ("compression only", FedLuck(fixed_steps=10)),
}
CLOCKS: dict[str, tuple[str, PeriodicAggregation]] = {"fedluck": ("FedLuck", FEDLUCK), "fedper": ("FedPer", FEDPER)}


class Clock(NamedTuple):
    """What a run of 800 s counts, by aggregation."""

    seconds: np.ndarray
    uploads: np.ndarray  # So far.
    mib: np.ndarray  # Sent by the uploads so far.
    staleness: list[list[int]]  # Of the uploads of each, sorted; the program's, which is one more than ours (E1).


record = partial(recorded, __file__)  # What the program did, by name.


def plans() -> pd.DataFrame:
    """Return for every method and device the program's k and kept fraction beside ours."""
    kept, rows = record(), []
    for name, (title, method) in PLANS.items():
        made = method.plan(kept["alpha"], kept["size"] / kept["bw"])
        theirs = zip(kept[f"{name}_steps"].tolist(), kept[f"{name}_kept"].tolist(), strict=True)
        for device, (k, delta) in enumerate(theirs):
            ours = int(made.local_steps[device]), float(made.compression_rate[device])
            rows.append((title, device, k, ours[0], delta, ours[1], abs(delta - ours[1])))
    columns = ["method", "device", "their k", "our k", "their δ", "our δ", "difference of δ"]
    return pd.DataFrame(rows, columns=columns)


def theirs(name: str) -> Clock:
    """Return what the program counted within 800 s of its devices' start."""
    kept = record()
    seconds = kept[f"{name}_aggregation_seconds"] - FIRST_PERIOD
    within = seconds <= 800
    counts = np.diff(kept[f"{name}_uploads"][within].astype(int), prepend=0)
    staleness = np.split(kept[f"{name}_staleness"][: counts.sum()], np.cumsum(counts)[:-1])
    mib = kept[f"{name}_mib_up"][within]
    return Clock(seconds[within], np.cumsum(counts), mib, [sorted(each.tolist()) for each in staleness])


@cache
def ours(method: PeriodicAggregation, wait: float = 0.0) -> Clock:
    """Return the same from a simulation of `method`, which hands models on after a `wait`, in the paper's world.

    A model of two numbers is trained, over links as much slower: clock and bytes do not depend on the model.
    """
    world, size = World.named("fedluck"), record()["size"][0] * 2**20
    bits = world.network.up_bits_per_second
    assert isinstance(bits, tuple)
    slower = Network(up_bits_per_second=tuple(speed * BYTES / size for speed in bits))
    simulation = Simulation(
        Quadratic(np.ones((10, 2)), np.zeros((10, 2)), [0.0, 0.0], samples=[4800] * 10),
        world.model_copy(update={"network": slower}), method.model_copy(update={"handover_seconds": wait}),
        budget=Budget(seconds=800.0), training=LocalTraining(steps=10), evaluation=Evaluation(every_updates=1),
    )  # fmt: skip
    history = simulation.run()
    table = pd.DataFrame(history.updates)
    found = table.groupby("seconds")["staleness"].agg(lambda each: sorted(each + 1))
    measured = pd.DataFrame(history.evaluations).drop_duplicates("seconds", keep="last").set_index("seconds")
    bytes_up = measured["bytes_up"].reindex(found.index)
    uploads = np.cumsum([len(each) for each in found])
    return Clock(found.index.to_numpy(), uploads, bytes_up.to_numpy() / BYTES * size / 2**20, found.tolist())


def clocks() -> pd.DataFrame:
    """Return for FedLuck and FedPer how many aggregations there are, and what of them is equal."""
    rows = []
    for name, (title, method) in CLOCKS.items():
        a, b = theirs(name), ours(method)
        same = len(a.seconds) == len(b.seconds)
        rows.append(
            {"method": title, "their aggregations": len(a.seconds), "our aggregations": len(b.seconds),
             "largest difference of times (s)": float(np.abs(a.seconds - b.seconds).max()) if same else np.nan,
             "uploads equal": int((a.uploads == b.uploads).sum()) if same else 0,
             "staleness equal": sum(x == y for x, y in zip(a.staleness, b.staleness, strict=False)),
             "largest relative difference of MiB": float(np.abs(b.mib / a.mib - 1).max()) if same else np.nan}
        )  # fmt: skip
    return pd.DataFrame(rows)


def polling_changes_nothing() -> bool:
    """Return whether the longest wait for a poll, after an evaluation, leaves every upload of 800 s where it is."""
    waits = EVALUATION_SECONDS, EVALUATION_SECONDS + POLL_SECONDS
    found = [[ours(method, wait) for wait in waits] for _, method in CLOCKS.values()]
    return all(np.array_equal(a.seconds, b.seconds) and a.staleness == b.staleness for a, b in found)


def gigabytes() -> pd.DataFrame:
    """Return the gigabytes of Table 1 beside what has been sent at the printed times, without and with evaluation.

    The program evaluates before it hands the new model on (E19); how long that takes is not known.
    """
    rows = []
    for title, method in CLOCKS.values():
        found = ours(method), ours(method, EVALUATION_SECONDS)
        for target in (0.65, 0.75, 0.85):
            seconds, printed = (number("cnn", title, q, target, "dirichlet") for q in ("seconds", "gigabytes"))
            assert seconds is not None
            at = [
                float(one.mib[np.searchsorted(one.seconds, one.seconds[0] + seconds + 0.5, "right") - 1]) / 1024
                for one in found
            ]
            rows.append((title, target, seconds, printed, *at))
    ways = "no evaluation", f"{EVALUATION_SECONDS:g} s of it"
    return pd.DataFrame(rows, columns=["method", "target", "printed seconds", "printed GB", *ways])
