"""What SD-FEEL's figures and tables show, of runs, the clock and the theory; and the drawings that are no curves."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from itertools import pairwise, product
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from fl_core.algorithms import AsyncSDFeel
from fl_core.experiments.evidence import Censored
from fl_core.experiments.measures import Passage, exact_curve, mean_curve, mean_text, passage
from fl_core.experiments.study import Study
from fl_core.formulas import sdfeel
from fl_core.formulas.sdfeel import ConstantMixing, Mixing, synchronous_mixing_matrix
from fl_core.report.explorable import Comparison, Explorable, Slider, in_units
from fl_core.report.interactive import asset
from fl_core.report.style import BLACK, BLUE, DASHES, GREEN, GREY, ORANGE, OTHERS, PURPLE, SKY, VERMILION, drawing
from fl_papers.sdfeel import experiment, theory
from fl_papers.sdfeel.experiment import ASYNC, CLOUD, FRESH, LONG_GAP, SYNC, WEIGHTED, gaps, runs, value_at
from fl_papers.sdfeel.theory import Clock, paper_clock, zeta

METRICS = ("train_loss", "test_accuracy")
PARTS = (0.1, 0.25, 0.5, 1.0)  # Of the horizon, at which the table of numbers reads the curves.
REACHED = (0.25, 0.5)  # Of the horizon, at which synchronous training sets the loss to be reached (C01, C06).
WIDTH = 3  # Measurements of the running mean whose first passage is a time to a loss.
LAST = 5  # Measurements at the end of a run that show how steady it is.
KILO = 1000.0
GAPS, CLOCK_GAPS = (5.0, 10.0, 30.0), (1.0, 2.0, 5.0, 10.0, 30.0)
"""The paper's gaps H; and those of the figures about the clock."""
EVENTS = 3000  # Events that staleness is counted over.
EXAMPLE = Clock(((0.25, 1 / 3, 0.5), (0.5, 2 / 3), (0.6, 0.8, 1.0)), upload=0.3, exchange=0.25, min_batches=3)
"""The eight devices of Figure 1: H = 4."""
EXAMPLE_SECONDS = 11.0
VARIED: dict[str, tuple[float, ...]] = {
    "gap": (1, 2, 5, 10), "delta_max": (0, 1, 5, 10), "dissimilarity": (0, 0.3, 1),
}  # fmt: skip
"""What claim C12 varies of the bound (16), and how."""


# Curves and tables of runs


def curves(study: Study, choice: Iterable[tuple[str, float, str]], parameter: str = "gap") -> pd.DataFrame:
    """Return the curves of `choice` (method, gap, role); the label `parameter` tells those of one method apart."""
    found = []
    for method, gap, role in choice:
        if chosen := study.select(method=method, gap=gap, role=role):
            points = pd.concat([result.history.evaluation_frame() for _, result in chosen])
            table = mean_curve(points, "seconds", METRICS)
            own = {"method": method.replace("_", "-"), parameter: chosen[0][0].labels[parameter]}
            found.append(table.assign(x=table["x"] / KILO, **own))
    return pd.concat(found, ignore_index=True) if found else pd.DataFrame()


def figure2(study: Study) -> pd.DataFrame:
    """Return the six curves of Figure 2."""
    return curves(study, [(method, gap, "curve") for method in (ASYNC, SYNC) for gap in gaps(study, method)])


def times(study: Study, gap: float, part: float) -> tuple[Censored, Censored]:
    """Return when each method first has the loss that the synchronous one has at a part of the horizon, by seed.

    At large gaps asynchronous training is there before a curve's second point: its beginning has every version.
    """
    theirs, ours = runs(study, SYNC, gap), runs(study, ASYNC, gap)
    goals = {seed: value_at(theirs[seed], "train_loss", part) for seed in sorted(ours.keys() & theirs.keys())}
    sides = []
    for curve, early in ((ours, runs(study, ASYNC, gap, "early")), (theirs, theirs)):
        found, rests = dict[int, Passage](), set[str]()
        for seed in (seed for seed in goals if seed in early):
            both = [run.history.evaluation_frame() for _, run in (early[seed], curve[seed])]
            table = pd.concat([both[0], both[1][both[1]["seconds"] > both[0]["seconds"].iloc[-1]]])
            found[seed] = passage(table["seconds"], table["train_loss"], goals[seed], falling=True, width=WIDTH)
            rests |= {early[seed][0].key, curve[seed][0].key}
        late = [seed for seed, one in found.items() if not one.reached]
        sides.append(Censored({seed: one.at for seed, one in found.items()}, late, rests))
    return sides[0], sides[1]


def beginning(study: Study) -> pd.DataFrame:
    """Return when both methods have the losses of C01 and C06, and after how many versions; means over seeds."""
    rows = []
    for gap, part in product(gaps(study), REACHED):
        ours, theirs = times(study, gap, part)
        if ours:
            early = runs(study, ASYNC, gap, "early")
            versions = [np.searchsorted(early[s][1].history.evaluations["seconds"], at) for s, at in ours.items()]
            row = {"H": f"{gap:g}", "loss of Sync. at": f"{part:.0%}", "versions by then": f"{np.mean(versions):.0f}"}
            sides = {
                f"{name} (1000 s)": np.mean(list(side.values())) / KILO
                for name, side in (("Async.", ours), ("Sync.", theirs))
            }
            rows.append({**row, **sides, "seeds": len(ours), "not reached": len(ours.at_least)})
    return pd.DataFrame(rows)


def reference(study: Study) -> pd.DataFrame:
    """Return synchronous SD-FEEL beside hierarchical FedAvg."""
    both = ((SYNC, "curve"), (CLOUD, "reference"))
    return curves(study, [(method, gap, role) for method, role in both for gap in gaps(study, method, role)])


def variants(study: Study) -> pd.DataFrame:
    """Return asynchronous SD-FEEL and its variants at the gap that they have been run at."""
    all_three = ((ASYNC, "curve"), (FRESH, "variant"), (WEIGHTED, "variant"))
    return curves(study, [(method, gap, role) for method, role in all_three for gap in gaps(study, FRESH, "variant")])


def non_iid(study: Study) -> pd.DataFrame:
    """Return both methods with more and with fewer classes on each device, at one gap."""
    middle = gaps(study, role="non-IID")[:1]
    both = [(method, gap, role) for gap in middle for method in (ASYNC, SYNC) for role in ("curve", "non-IID")]
    return curves(study, both, parameter="alpha")


def long_runs(study: Study) -> pd.DataFrame:
    """Return both methods with the linear model, on the long horizon."""
    return curves(study, [(method, LONG_GAP, "long") for method in (ASYNC, SYNC)])


def comparison(shown: Mapping[str, Study]) -> Comparison:
    """Return the curves of Figure 2 and of what is beside them to examine; `shown` are the page's groups."""

    def read(group: str, gap: float, **roles: str) -> dict[str, dict[int, pd.DataFrame]]:
        names = {"fresh": FRESH, "weighted": WEIGHTED, "cloud": CLOUD, "one": ASYNC, "other": SYNC}
        found = {names[name]: runs(shown[group], names[name], gap, role) for name, role in roles.items()}
        return {
            method: {seed: in_units(run.history.evaluation_frame()) for seed, (_, run) in own.items()}
            for method, own in found.items()
        }

    settings = {f"H = {gap:g}": read("figure 2", gap, one="curve", other="curve") for gap in gaps(shown["figure 2"])}
    for gap in gaps(shown["reference"], CLOUD, "reference"):
        settings[f"H = {gap:g}"] |= read("reference", gap, cloud="reference")
    for gap in gaps(shown["variants"], FRESH, "variant"):
        settings[f"H = {gap:g}"] |= read("variants", gap, fresh="variant", weighted="variant")
    for gap in gaps(shown["fewer classes"], role="non-IID"):
        settings[f"H = {gap:g}, fewer classes"] = read("fewer classes", gap, one="non-IID", other="non-IID")
    settings["linear model, long"] = read("long runs", LONG_GAP, one="long", other="long")
    axes = {"kiloseconds": "virtual time (1000 s)", "models_received": "uploads", "gigabytes": "GB uploaded"}
    metrics = {"test_accuracy": "test accuracy", "train_loss": "training loss"}
    return Comparison("SD-FEEL comparison", settings, axes, metrics, SYNC)


def numbers(study: Study) -> pd.DataFrame:
    """Return loss and accuracy of the curves of Figure 2 at parts of the horizon, mean and deviation as text."""
    rows = []
    for method, gap in ((name, gap) for name in (ASYNC, SYNC) for gap in gaps(study, name)):
        row: dict[str, Any] = {"method": method, "H": f"{gap:g}"}
        for (metric, words), part in product(zip(METRICS, ("loss", "accuracy"), strict=True), PARTS):
            found = experiment.values_at(study, method, gap, metric, part)
            row[f"{words} at {100 * part:.0f} %"] = mean_text(list(found.values()))
        rows.append({**row, "seeds": len(runs(study, method, gap))})
    return pd.DataFrame(rows)


def by_seed(study: Study) -> pd.DataFrame:
    """Return what each draw of speeds makes of an asynchronous run, and how steady its accuracy is in the end."""
    rows = []
    for gap in gaps(study):
        for seed, (entry, result) in runs(study, ASYNC, gap).items():
            clock, staleness = theory.run_clock(entry.spec), result.history.updates["staleness"]
            table = result.history.evaluations
            last, mean = table["test_accuracy"][-LAST:], table["gradients"][-1] / max(1, table["models_received"][-1])
            rows.append(
                {"H": f"{gap:g}", "seed": seed, "iterations of all clusters": table["version"][-1],
                 "an iteration (s)": f"{min(clock.periods):,.0f} to {max(clock.periods):,.0f}",
                 "steps of an upload": f"{mean:.0f}, at most {clock.local_steps.max()}",
                 "largest staleness": max(staleness, default="not kept" if table["version"][-1] else "–"),
                 f"accuracy, last {LAST}": f"{min(last):.3f} to {max(last):.3f}"}
            )  # fmt: skip
    return pd.DataFrame(rows)


# The algorithm and its clock

STEPS = (
    ("device", None, AsyncSDFeel.device),
    (None, "(2)", sdfeel.normalized_update),
    ("server", None, AsyncSDFeel.updater),
    (None, "(3)", sdfeel.intra_cluster_aggregate),
    (None, "(5)", sdfeel.gossip_weights),
    (None, "(4), trigger", sdfeel.gossip_average),
    (None, "(4), neighbour", sdfeel.gossip_towards),
    ("scheduler", "(6)", AsyncSDFeel.scheduler),
    ("clock", "section II", sdfeel.plan_cluster),
)
"""Who does it, the paper's equation, and the function that does it."""


def listing(study: Study) -> pd.DataFrame:
    """Return Algorithm 1 as the first sentences of the functions that carry it out."""
    rows = []
    for who, equation, function in STEPS:
        words = (inspect.getdoc(function) or "").partition("\n\n")[0].replace("\n", " ").replace("`", "")
        rows.append((who, equation, words, function.__qualname__))
    return pd.DataFrame(rows, columns=["who", "equation", "what", "function"])


def latency(study: Study) -> pd.DataFrame:
    """Return the latency model: numbers that the paper prints or that follow from them, beside the simulator's."""

    def printed(quantity: str, **labels: Any) -> float | None:
        return experiment.PRINTED.number(table="latency", quantity=quantity, **labels)

    clock = paper_clock(5)
    sent, average = clock.upload + clock.exchange, experiment.PAPER_BATCHES * 55.67
    share = printed("communication_share_of_iteration", step_cost="printed")
    rows: list[tuple[str, list[float | None], list[float], str]] = [
        ("size of the model (bit)", [printed("model_size")], [experiment.model_bits(experiment.RESNET18)], ",.0f"),
        ("device to server (s)", [printed("T_comm_ct_sr")], [clock.upload], ".7f"),
        ("server to server (s)", [printed("T_comm_sr_sr")], [clock.exchange], ".7f"),
        ("both, part of an iteration at mean speed", [share], [sent / (sent + average)], ".6f"),
    ]
    for gap in (5, 10, 30):
        clock = paper_clock(gap)
        iterations = [printed("T_iter", gap=gap, cluster=d) for d in range(len(clock.periods))]
        rows += [
            (f"H = {gap}: synchronous round (s)", [printed("T_round", gap=gap)], [clock.round_seconds], ",.3f"),
            (f"H = {gap}: iterations of the clusters (s)", iterations, clock.periods, ",.1f"),
            (f"H = {gap}: fewest and most local steps", [printed("tau_min", gap=gap), printed("tau_max", gap=gap)],
             [clock.local_steps.min(), clock.local_steps.max()], ",.0f"),
        ]  # fmt: skip
    words = [
        (name, *("; ".join(format(value, how) for value in values) for values in (paper, simulator)))
        for name, paper, simulator, how in rows
    ]
    return pd.DataFrame(words, columns=["quantity", "the paper's setting", "the simulator's clock"])


def timeline(study: Study) -> pd.DataFrame:
    """Return what eight devices do in asynchronous clusters and in synchronous rounds (Figure 1).

    Activity "event" is the end of an asynchronous iteration, with its ``k`` and its cluster's ``staleness``.
    """
    clock = EXAMPLE
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


def staleness(study: Study) -> pd.DataFrame:
    """Return how often a trigger has which staleness, and the largest one beside D4 and the printed (D - 1) H."""
    rows = []
    for gap in CLOCK_GAPS:
        clock = paper_clock(gap)
        own = [event.staleness[event.cluster] for event in clock.events(EVENTS)]
        bounds = theory.staleness_bound(clock.periods), theory.printed_staleness_bound(len(clock.periods), gap)
        limits = int(bounds[0].max()), bounds[1]
        rows += [(gap, v, count / len(own), max(own), *limits) for v, count in enumerate(np.bincount(own))]
    return pd.DataFrame(rows, columns=["gap", "staleness", "share", "largest", "bound", "printed"])


def idle_time(study: Study) -> pd.DataFrame:
    """Return what part of the time devices compute, send and wait, by ``gap`` and ``method``."""
    rows = []
    for gap in CLOCK_GAPS:
        clock = paper_clock(gap)
        periods = np.repeat(clock.periods, [len(cluster) for cluster in clock.clusters])
        rounds = np.full(len(periods), clock.round_seconds)
        ways = zip(("asynchronous", "synchronous"), reversed(clock.busy), (periods, rounds), strict=True)
        for method, computing, lengths in ways:
            sending = float(((clock.upload + clock.exchange) / lengths).mean())
            rows.append((gap, method, computing, sending, 1 - computing - sending))
    return pd.DataFrame(rows, columns=["gap", "method", "computing", "sending", "waiting"])


# Theory


def printed_mixing(study: Study, events: int = 300) -> pd.DataFrame:
    """Return the largest of six models that all begin at 1 when events only mix, by rule and gap (E-01)."""
    found = []
    rules: dict[Mixing, str] = {"derived": "corrected weights", "printed": "printed weights"}
    for rule, name in rules.items():
        for gap in GAPS:
            models, largest = np.ones(6), [1.0]
            for matrix in theory.paper_matrices(gap, events, rule=rule):
                models = models @ matrix
                largest.append(abs(models).max())
            found.append(exact_curve(name, range(events + 1), "model", largest, gap=gap))
    return pd.concat(found, ignore_index=True)


def what_is_minimised(study: Study, events: int = 3000) -> pd.DataFrame:
    """Return the mean model on quadratics over time, for two ways of mixing, and where theory has it end (D10)."""
    found = []
    for name, values in theory.inconsistency(events).items():
        smooth = pd.Series(values).rolling(events // 20, min_periods=1).mean().to_numpy()[:: events // 60]
        found.append(exact_curve(name, np.arange(0, events + 1, events // 60), "model", smooth, gap=np.nan))
    return pd.concat(found, ignore_index=True)


def bound_terms(study: Study) -> pd.DataFrame:
    """Return the terms of the bound (16), derived constants, by ``varied`` quantity and its ``value``."""
    return pd.DataFrame(
        {"varied": name, "value": value, **theory.bound("derived", **{name: value})._asdict()}
        for name, values in {**VARIED, "iterations": (10, 50, 250, 1000)}.items() for value in values
    )  # fmt: skip


def contraction(study: Study, events: int = 80) -> pd.DataFrame:
    """Return the largest distance from averaging of products of mixing matrices, by their number (D5)."""
    lags = np.arange(1, 61)
    found = []
    for gap in GAPS:
        rho = theory.mixing_errors(theory.paper_matrices(gap, events))
        largest = [np.diagonal(rho, lag).max() for lag in lags]
        found.append(exact_curve(ASYNC, lags, "rho", largest, gap=gap))
    rate = zeta(synchronous_mixing_matrix(theory.RING))
    found.append(exact_curve(f"{SYNC}, six events a round", lags, "rho", rate ** (lags / 6), gap=np.nan))
    return pd.concat(found, ignore_index=True)


# Drawings

ACTIVITIES = {"step": (SKY, "a local step"), "upload": (ORANGE, "upload"), "exchange": (GREEN, "exchange"),
              "idle": ("white", "idle")}  # fmt: skip
TERMS = {"progress": (BLUE, "o", "progress"), "noise": (GREEN, "s", "noise"), "drift_noise": (ORANGE, "^", "A σ²/U₁"),
         "dissimilarity": (VERMILION, "v", "B κ²/U₁")}  # fmt: skip
SYMBOLS = {"gap": "H", "delta_max": "$\\delta_{\\max}$", "dissimilarity": "$\\kappa^2$", "iterations": "$K$"}


def draw_timeline(bars: pd.DataFrame) -> Figure:
    """Draw what the devices of three clusters do, asynchronously and synchronously."""
    with drawing((5.8, 6.8), 2, sharex=True, height_ratios=(11, 8)) as (figure, axes):
        for axis, (method, own) in zip(axes, bars.groupby("method", sort=True), strict=True):
            _lanes(axis, own)
            axis.set_title("asynchronous; k (staleness) at each event" if axis is axes[0] else str(method))
        axes[1].set_xlabel("virtual time (s)")
        patches = [Patch(fc=colour, ec=GREY, lw=0.5, hatch="" if name != "idle" else "////", label=label)
                   for name, (colour, label) in ACTIVITIES.items()]  # fmt: skip
        figure.legend(handles=patches, loc="outside lower center", ncols=4)
    return figure


def draw_staleness(found: pd.DataFrame) -> Figure:
    """Draw how often a trigger has at most which staleness, and below it the largest one beside its bounds."""
    with drawing((5.6, 5.8), 2) as (figure, (above, below)):
        for place, (gap, own) in enumerate(found.groupby("gap")):
            look = {"color": OTHERS[place], "ls": DASHES[place % 4], "label": f"H = {gap:g}"}
            above.step(own["staleness"], own["share"].cumsum(), where="post", **look)
        above.set(xlabel="staleness of the cluster that ends an iteration", ylabel="events with at most this one")
        above.legend()
        ends = found.groupby("gap")[["largest", "bound", "printed"]].first()
        for column, colour, marker, label in (("printed", GREY, "s", "(D − 1) H, the paper's sketch"),
                                              ("bound", VERMILION, "v", "the bound with its constant"),
                                              ("largest", BLUE, "o", "observed")):  # fmt: skip
            below.plot(ends.index, ends[column], color=colour, marker=marker, label=label)
        below.set(xscale="log", yscale="log", xlabel="gap H", ylabel="largest staleness")
        for axis, ticks in ((below.xaxis, ends.index), (below.yaxis, (5, 10, 20, 50, 100))):
            axis.set_ticks(list(ticks), [f"{tick:g}" for tick in ticks])
            axis.set_ticks([], minor=True)
        below.legend()
    return figure


def draw_bound(terms: pd.DataFrame) -> Figure:
    """Draw the four terms of the bound (16) on logarithmic ordinates, a panel for each thing that is varied."""
    with drawing((5.5, 5.1), 2, 2) as (figure, axes):
        for axis, (name, own) in zip(axes.flat, terms.groupby("varied", sort=False), strict=True):
            x = np.arange(len(own))
            for term, (colour, marker, label) in TERMS.items():
                axis.plot(x, own[term].where(own[term] > 0), color=colour, marker=marker, label=label)
            axis.set_yscale("log")
            axis.set_xticks(x, [f"{value:g}" for value in own["value"]])
            axis.set_title(f"over {SYMBOLS[str(name)]}")
        handles, labels = axes.flat[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=4)
    return figure


def draw_idle_time(shares: pd.DataFrame) -> Figure:
    """Draw how devices spend their time, two bars for each gap."""
    looks = (("computing", SKY, ""), ("sending", ORANGE, ""), ("waiting", "white", "////"))
    names = [f"{method}, H = {gap:g}" for gap, method in shares[["gap", "method"]].itertuples(index=False, name=None)]
    with drawing((5.6, 4.4)) as (figure, axis):
        left = np.zeros(len(shares))
        for column, colour, hatch in looks:
            axis.barh(names, shares[column], 0.7, left=left, fc=colour, ec=GREY, lw=0.5, hatch=hatch, label=column)
            left += shares[column].to_numpy()
        for place, value in enumerate(shares["computing"]):
            axis.text(value - 0.01, place, f"{value:.1%}", ha="right", va="center", fontsize=9.6, color="#111111")
        axis.invert_yaxis()
        axis.set(xlim=(0, 1), xlabel="part of the time, mean over devices")
        axis.grid(visible=False)
        figure.legend(loc="outside lower center", ncols=3)
    return figure


def _lanes(axis: Axes, bars: pd.DataFrame) -> None:
    """Draw a lane for each device; asynchronous events are arrows from a lane of a server to those of others."""
    events = bars[bars["activity"] == "event"]
    lanes = bars["device"] + (bars["cluster"] + 1 if len(events) else 0)
    for activity, (colour, _) in ACTIVITIES.items():
        own = bars[bars["activity"] == activity]
        idle = activity == "idle"
        axis.barh(lanes[own.index], own["end"] - own["start"], 0.66, own["start"], fc=colour, lw=0.5,
                  ec=GREY if idle else "white", hatch="////" if idle else "")  # fmt: skip
    first = {cluster: int(place) - 1 for cluster, place in lanes.groupby(bars["cluster"]).min().items()}
    for cluster, at, k, late in events[["cluster", "start", "k", "staleness"]].itertuples(index=False, name=None):
        for other in (place for number, place in first.items() if number != cluster):
            arrow = {"arrowstyle": "-|>", "color": PURPLE, "lw": 1, "shrinkA": 0, "shrinkB": 0, "mutation_scale": 8}
            axis.annotate("", (at, other), (at, first[cluster]), arrowprops=arrow, zorder=3)
        axis.plot(at, first[cluster], "o", ms=5, color=PURPLE, mfc=PURPLE, zorder=4)
        words, paper = f"{k:.0f} ({late:.0f})", {"fc": "white", "ec": "none", "pad": 0.6}
        place = (at - 0.13, first[cluster])
        axis.text(*place, words, ha="right", va="center", fontsize=9.6, color=PURPLE, zorder=5, bbox=paper)
    names = {place: f"server {cluster}" for cluster, place in first.items() if len(events)}
    names |= {int(place): f"device {device}" for place, device in zip(lanes, bars["device"], strict=True)}
    axis.set_yticks(list(names), list(names.values()))
    for tick in axis.get_yticklabels():
        tick.set_color(PURPLE if tick.get_text().startswith("server") else BLACK)
    axis.set_ylim(max(names) + 0.6, -0.6)
    axis.grid(visible=False)


def explore_ring() -> Explorable:
    """Let the reader choose how many servers stand in a ring: how fast gossip averages, and the second eigenvalue."""

    def spreads(servers: float, rounds: int = 40) -> dict[str, list[float]]:
        count = int(servers)
        ring = [tuple(sorted(((j - 1) % count, (j + 1) % count))) for j in range(count)]
        found: dict[str, list[float]] = {"x": list(range(rounds + 1))}
        for name, kind in RING_MIXING.items():
            matrix = np.asarray(synchronous_mixing_matrix(ring, kind=kind), dtype=float)
            models, spread = np.eye(count)[0], []
            for _ in range(rounds + 1):
                spread.append(float(np.ptp(models)) + FLOOR)
                models = matrix @ models
            found[name] = spread
            found[f"{name}, ζ per round"] = [zeta(matrix) ** n + FLOOR for n in range(rounds + 1)]
        return found

    return Explorable(
        "Gossip on a ring of servers", (Slider("servers", "servers", 3, 24, 1, 6),), spreads,
        asset("ring.js", __file__), "gossip round", log=True, dashes=("", "6 3", "", "6 3"),
    )  # fmt: skip


RING_MIXING: dict[str, ConstantMixing] = {"one third each": "uniform", "fastest safe step": "laplacian_safe"}
FLOOR = 1e-9  # Added to a spread, so that it has a logarithm; also in ring.js.
