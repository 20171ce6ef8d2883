"""A run of WKAFL that compares every gradient with the true one, grad F at the model that it is used on (C32)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd

from fl_core.algorithms import WKAFL
from fl_core.algorithms.kasync import stacked
from fl_core.datasets import WKAFLPartition
from fl_core.experiments.claims import Claim, Comparison, register
from fl_core.experiments.spec import RunSpec
from fl_core.experiments.study import Study
from fl_core.formulas.wkafl import similarities
from fl_core.runtime import Budget, Evaluation, LocalTraining
from fl_core.world import World

if TYPE_CHECKING:
    from fl_core.runtime import ServerHandle

CLIENTS, UPDATES, EVERY = 100, 150, 2
"""P, J, and how often the true gradient is computed."""
SEEDS = (0, 1, 2)
AGES = ["0 to 2", "3 to 5", "6 to 10", "11 to 20", "21 to 40", "more"]


@cache
def probe(model: str = "linear", lr: float = 0.05, seed: int = 0) -> pd.DataFrame:
    """Run WKAFL with K = 10 on Fashion-MNIST, one label per client, pixels in [0, 1].

    Returns
    -------
    DataFrame
        A row for each gradient of every second update after the first P / K: ``update``, ``staleness``, ``cosine``
        with the true gradient, ``selected``.
    """
    rows: list[tuple[int, float, float]] = []

    class Watched:
        """The server, but for what it receives."""

        def __init__(self, server: Any) -> None:
            self.server = server

        def __getattr__(self, name: str) -> Any:
            return getattr(self.server, name)

        async def receive(self, count: int) -> Sequence[Any]:
            uploads = await self.server.receive(count)
            if self.server.version >= CLIENTS // 10 and self.server.version % EVERY == 0:
                truth = self.server.gradient(np.arange(self.server.num_samples)).gradient
                cosines = similarities(stacked(uploads), truth).tolist()
                rows.extend((self.server.version + 1, u.staleness, c) for u, c in zip(uploads, cosines, strict=True))
            return uploads

    class Probe(WKAFL):
        async def updater(self, server: Any) -> None:
            await super().updater(cast("ServerHandle", Watched(server)))

    algorithm = Probe(lr=lr, clip_bound=10.0, sim_beta=10.0)
    spec = RunSpec(
        dataset="fashion-mnist", partition=WKAFLPartition(labels_per_device=1), model=model,
        world=World.named("wkafl", devices=CLIENTS), algorithm=WKAFL(), training=LocalTraining(batch_size=4),
        budget=Budget(updates=UPDATES), evaluation=Evaluation(every_updates=None), seed=seed,
    )  # fmt: skip
    simulation = spec.simulation()
    simulation.algorithm = algorithm
    history = simulation.run("sequential")
    frame = pd.DataFrame(rows, columns=["update", "staleness", "cosine"])
    weights = history.update_frame()
    used = weights[weights["version"].isin(frame["update"])]
    assert (used["staleness"].to_numpy() == frame["staleness"].to_numpy()).all()
    return frame.assign(selected=used["weight"].to_numpy() > 0)


def by_age() -> pd.DataFrame:
    """Return mean cosine and share of selected gradients by staleness, over the probes' seeds, as text."""
    frame = pd.concat([probe(seed=seed) for seed in SEEDS])
    ages = pd.cut(frame["staleness"], [-1, 2, 5, 10, 20, 40, np.inf], labels=AGES)
    grouped = frame.groupby(ages, observed=True)
    return pd.DataFrame(
        {"staleness": list(grouped.groups), "gradients": grouped.size().to_numpy(),
         "mean cosine with the true gradient": grouped["cosine"].mean().to_numpy(),
         "selected": [f"{share:.0%}" for share in grouped["selected"].mean()]}
    )  # fmt: skip


def consistency_falls_with_age(study: Study) -> list[Comparison]:
    """C32: a negative correlation of staleness and cosine, and selected gradients older than the median."""
    correlation, old = {}, {}
    for seed in SEEDS:
        frame = probe(seed=seed)
        correlation[seed] = float(frame["staleness"].corr(frame["cosine"]))
        old[seed] = float((frame.loc[frame["selected"], "staleness"] > frame["staleness"].median()).mean())
    ones = dict.fromkeys(SEEDS, 1.0)
    return [
        Comparison("correlation of staleness and cosine", correlation, ones, 0.0),
        Comparison("share of the selected that is older than the median", old, ones, 0.0, above=True),
    ]


register(
    Claim(
        "WKAFL-C32", "Fresh gradients are the more consistent ones; some stale ones are consistent, too.",
        "Sec. 4.2", "correlation < 0 on a probe run; share of old ones among the selected > 0",
        consistency_falls_with_age, computed=True,
    )
)  # fmt: skip
