"""SD-FEEL's clock without any learning: who computes when, who waits, and how stale the clusters get.

Two sources of a clock: the paper's setting with the specification's draw of speeds (:func:`paper_clock`), and the
world that a run is simulated in (:func:`run_clock`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import islice, pairwise

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fl_core.algorithms import AsyncSDFeel
from fl_core.algorithms.sdfeel import Lockstep
from fl_core.experiments.spec import RunSpec
from fl_core.experiments.study import Study
from fl_core.formulas.sdfeel import ClusterPlan, plan_cluster
from fl_core.world import World
from fl_papers.sdfeel.extra_formulas import (
    ClusterEvent,
    cluster_event_clock,
    model_bits,
    printed_staleness_bound,
    staleness_bound,
    synchronous_round_seconds,
    transfer_seconds,
    utilisation,
)
from fl_papers.sdfeel.grid import PAPER_BATCHES, parameters_of
from fl_papers.sdfeel.printed import number

GAPS = (1.0, 2.0, 5.0, 10.0, 30.0)
"""Gaps H of the figures about the clock: the paper's three, and two below."""
EVENTS = 3000
"""Events that staleness is counted over."""
EXAMPLE = ((0.25, 1 / 3, 0.5), (0.5, 2 / 3), (0.6, 0.8, 1.0))
"""Seconds of a local step of the eight devices of Figure 1, by cluster: H = 4."""
EXAMPLE_SECONDS = 11.0
RESNET18 = 11_173_962
UP, BACKHAUL = 5e6, 10e6
"""Bits per second from device to server and from server to server."""


@dataclass(frozen=True)
class Clock:
    """When clusters of given devices end their iterations, and the synchronous rounds of the same devices.

    Attributes
    ----------
    clusters : tuple of tuple of float
        Seconds of a local step of each device, by cluster.
    upload, exchange : float
        Seconds from device to server, and from server to server.
    min_batches : int
        Mini-batches of the slowest device of a cluster, and of every device in a synchronous round.
    """

    clusters: tuple[tuple[float, ...], ...]
    upload: float
    exchange: float
    min_batches: int = PAPER_BATCHES

    @property
    def plans(self) -> list[ClusterPlan]:
        """Deadline, local steps and iteration time of each cluster."""
        return [plan_cluster(c, self.upload, self.exchange, min_batches=self.min_batches) for c in self.clusters]

    @property
    def periods(self) -> list[float]:
        """T_iter of each cluster, seconds."""
        return [plan.iteration_seconds for plan in self.plans]

    @property
    def seconds(self) -> NDArray[np.float64]:
        """``[C]`` seconds of a local step of each device."""
        return np.array([s for cluster in self.clusters for s in cluster])

    @property
    def local_steps(self) -> NDArray[np.int64]:
        """``[C]`` tau_i of each device."""
        return np.array([n for plan in self.plans for n in plan.local_steps])

    @property
    def round_seconds(self) -> float:
        """T_round of synchronous SD-FEEL."""
        return synchronous_round_seconds(self.seconds, self.upload, self.exchange, local_steps=self.min_batches)

    @property
    def asynchronous_use(self) -> float:
        """Part of the time in which devices compute, mean over devices, with asynchronous clusters (C07)."""
        periods = np.repeat(self.periods, [len(cluster) for cluster in self.clusters])
        return utilisation(self.seconds, self.local_steps, periods)

    @property
    def synchronous_use(self) -> float:
        """The same in synchronous rounds."""
        return utilisation(self.seconds, self.min_batches, self.round_seconds)

    def events(self, count: int) -> list[ClusterEvent]:
        """Return the first `count` asynchronous events."""
        return list(islice(cluster_event_clock(self.periods), count))


@cache
def paper_clock(gap: float, seed: int = 0) -> Clock:
    """Return the clock of ResNet-18 on 30 devices in six clusters, the speeds from numpy's ``default_rng(seed)``."""
    world = World.named("sdfeel", heterogeneity_gap=gap)
    seconds = world.compute.draw(30, np.random.default_rng(seed))
    bits = model_bits(RESNET18)
    clusters = tuple(tuple(seconds[5 * d : 5 * d + 5].tolist()) for d in range(6))
    return Clock(clusters, transfer_seconds(bits, UP), transfer_seconds(bits, BACKHAUL))


@cache
def run_clock(spec: RunSpec) -> Clock:
    """Return the clock of the world of a run."""
    devices, algorithm = spec.world.realise(spec.seed), spec.algorithm
    size = model_bits(parameters_of(spec.model, spec.dataset)) / 8
    members = [list(devices.members(server)) for server in range(devices.num_servers)]
    clusters = tuple(tuple(devices.seconds[own].tolist()) for own in members)
    assert isinstance(algorithm, AsyncSDFeel | Lockstep)
    batches = algorithm.min_batches if isinstance(algorithm, AsyncSDFeel) else algorithm.local_steps
    return Clock(clusters, devices.profile(members[0][0], None).up_seconds(size), devices.backhaul_seconds, batches)


def timeline(study: Study) -> pd.DataFrame:
    """Return what eight devices do in asynchronous clusters and in synchronous rounds (Figure 1).

    Returns
    -------
    DataFrame
        ``method``, ``device``, ``cluster``, ``activity`` (``"step"``, ``"idle"``, ``"upload"``, ``"exchange"``),
        ``start``, ``end`` (virtual seconds); with activity ``"event"`` the end of an asynchronous iteration:
        ``k``, and the ``staleness`` of the cluster.
    """
    clock = Clock(EXAMPLE, upload=0.3, exchange=0.25, min_batches=3)
    owner = [d for d, cluster in enumerate(clock.clusters) for _ in cluster]
    rows: list[dict[str, object]] = []
    for device, (d, step, count) in enumerate(zip(owner, clock.seconds, clock.local_steps, strict=True)):
        slowest = clock.min_batches * float(clock.seconds.max())
        ways = (("asynchronous", clock.periods[d], clock.plans[d].deadline_seconds, int(count)),
                ("synchronous", clock.round_seconds, slowest, clock.min_batches))  # fmt: skip
        for method, period, deadline, steps in ways:
            lane = {"method": method, "device": device, "cluster": d}
            for begin in np.arange(0.0, EXAMPLE_SECONDS, period):
                cuts = [*(begin + step * n for n in range(steps + 1)), begin + deadline]
                cuts += [cuts[-1] + clock.upload, cuts[-1] + clock.upload + clock.exchange]
                names = [*["step"] * steps, "idle", "upload", "exchange"]
                rows += [
                    {**lane, "activity": name, "start": start, "end": end}
                    for name, (start, end) in zip(names, pairwise(cuts), strict=True)
                    if start < min(end - 1e-9, EXAMPLE_SECONDS)
                ]
    for k, at, d, late in clock.events(200):
        if at <= EXAMPLE_SECONDS:
            lane = {"method": "asynchronous", "device": owner.index(d), "cluster": d, "activity": "event"}
            rows.append({**lane, "start": at, "end": at, "k": k, "staleness": late[d]})
    frame = pd.DataFrame(rows)
    return frame.assign(end=frame["end"].clip(upper=EXAMPLE_SECONDS))


def latency_table(study: Study) -> pd.DataFrame:
    """Return the latency model: numbers that the paper prints or that follow from them, beside the simulator's."""
    clock = paper_clock(5)
    sent, average = clock.upload + clock.exchange, PAPER_BATCHES * 55.67
    share = number("communication_share_of_iteration", step_cost="printed")
    rows: list[tuple[str, list[float | None], list[float], str]] = [
        ("size of the model (bit)", [number("model_size")], [model_bits(RESNET18)], ",.0f"),
        ("device to server (s)", [number("T_comm_ct_sr")], [clock.upload], ".7f"),
        ("server to server (s)", [number("T_comm_sr_sr")], [clock.exchange], ".7f"),
        ("both, part of an iteration at mean speed", [share], [sent / (sent + average)], ".6f"),
    ]
    for gap in (5, 10, 30):
        clock = paper_clock(gap)
        iterations = [number("T_iter", gap, d) for d in range(len(clock.periods))]
        rows += [
            (f"H = {gap}: synchronous round (s)", [number("T_round", gap)], [clock.round_seconds], ",.3f"),
            (f"H = {gap}: iterations of the clusters (s)", iterations, clock.periods, ",.1f"),
            (f"H = {gap}: fewest and most local steps", [number("tau_min", gap), number("tau_max", gap)],
             [clock.local_steps.min(), clock.local_steps.max()], ",.0f"),
        ]  # fmt: skip
    frame = pd.DataFrame(rows, columns=["quantity", "the paper's setting", "the simulator's clock", "style"])
    for column in frame.columns[1:3]:
        frame[column] = [
            "; ".join(format(value, style) for value in values)
            for values, style in zip(frame[column], frame["style"], strict=True)
        ]
    return frame.drop(columns="style")


def staleness(study: Study) -> pd.DataFrame:
    """Return how often a trigger has which staleness, and the largest one beside its bounds (Lemma 1).

    Returns
    -------
    DataFrame
        ``gap``, ``staleness``, ``share`` (of all events), ``largest``, ``bound`` (D4) and ``printed`` ((D - 1) H).
    """
    rows = []
    for gap in GAPS:
        clock = paper_clock(gap)
        own = [event.staleness[event.cluster] for event in clock.events(EVENTS)]
        bound, sketch = int(staleness_bound(clock.periods).max()), printed_staleness_bound(len(clock.periods), gap)
        for value, count in enumerate(np.bincount(own)):
            rows.append((gap, value, count / len(own), max(own), bound, sketch))
    return pd.DataFrame(rows, columns=["gap", "staleness", "share", "largest", "bound", "printed"])


def idle_time(study: Study) -> pd.DataFrame:
    """Return what part of the time devices compute, send and wait, by method and gap.

    Returns
    -------
    DataFrame
        ``gap``, ``method``, ``computing``, ``sending``, ``waiting``.
    """
    rows = []
    for gap in GAPS:
        clock = paper_clock(gap)
        devices = [len(cluster) for cluster in clock.clusters]
        sending = (clock.upload + clock.exchange) / np.array([np.repeat(clock.periods, devices).tolist(),
                                                             [clock.round_seconds] * sum(devices)])  # fmt: skip
        for method, computing, sent in (
            ("asynchronous", clock.asynchronous_use, sending[0].mean()),
            ("synchronous", clock.synchronous_use, sending[1].mean()),
        ):
            rows.append((gap, method, computing, float(sent), 1 - computing - float(sent)))
    return pd.DataFrame(rows, columns=["gap", "method", "computing", "sending", "waiting"])
