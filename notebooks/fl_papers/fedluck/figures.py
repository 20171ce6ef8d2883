"""FedLuck's figures: what is measured on the runs (accuracy, time and traffic to a target), drawings, and a map."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from string import Template
from typing import Any

import numpy as np
import pandas as pd
import scipy
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import FuncFormatter
from numpy.typing import NDArray

from fl_core.algorithms import FedLuck, FedPer
from fl_core.errors import DataError, SpecError
from fl_core.experiments.evidence import Censored
from fl_core.experiments.measures import Passage, mean_curve, passage, remembered
from fl_core.experiments.run import Result
from fl_core.experiments.study import Entry, Study
from fl_core.formulas.compression import TopK
from fl_core.formulas.fedluck import Box, job_seconds, key_convergence_factor, plan_devices, rounds_per_job
from fl_core.models import num_parameters
from fl_core.report.interactive import as_json, asset, html_table
from fl_core.report.style import BLACK, GREY, ORANGE, SKY, SMALL, VERMILION, drawing, line_of, log_ordinate
from fl_core.world import TraceCompute, World
from fl_papers.fedluck import theory
from fl_papers.fedluck.experiment import CLASSES, METHODS, PERIODS_PER_EVALUATION, TASKS
from fl_papers.fedluck.experiment import FedLuckExperiment as Runs
from fl_papers.fedluck.theory import BYTES_PER_GB, BYTES_PER_PARAMETER

# What FedLuck's figures and claims measure on the runs: accuracy over time, and time and traffic to a target.

Array = NDArray[np.float64]


def speeds(cell: str, devices: int = 10) -> tuple[Array, Array]:
    """Return alpha and beta ``[n]`` of the paper's world, for the paper's network."""
    world = World.named("fedluck", cell=cell, devices=devices)
    assert isinstance(world.compute, TraceCompute)
    bits = np.array(world.network.up_bits_per_second)
    return np.array(world.compute.seconds_per_step), 32 * TASKS[cell][1].parameters / bits


@cache
def mean_factor(cell: str, steps: int, delta: float, period: float) -> float:
    """Return phi of one (k, delta) for everybody, averaged over the five devices of Figure 1."""
    return float(np.mean(key_convergence_factor(steps, delta, *speeds(cell, 5), period)))


SLACK = 1e-9  # Seconds by which rounding may move a time.
WIDTH = 3  # Readings, two periods apart, of the running mean on which a target is looked for.


@dataclass(frozen=True)
class Reached:
    """When a run first has a target accuracy; if it has not, these are lower bounds."""

    seconds: float  # Virtual time since the run's first aggregation.
    since_start: float
    gigabytes: float  # Uploaded by then.
    reached: bool


def curve(entry: Entry, result: Result) -> pd.DataFrame:
    """Return what is measured periodically, read every two periods T~ from the initial model to the run's end."""
    names = "seconds", "test_accuracy", "gigabytes", "uploads"
    return pd.DataFrame(dict(zip(names, _readings(entry, result), strict=True)))


@remembered
def reach(entry: Entry, result: Result, target: float) -> Reached:
    """Return when the running mean of a run's accuracy first has `target`, interpolated between readings."""
    seconds, accuracy, gigabytes, _ = _readings(entry, result)
    found = passage(seconds, accuracy, target, width=WIDTH)
    sent = float(np.interp(found.at, seconds, gigabytes))
    return Reached(max(0.0, found.at - first_aggregation(result)), found.at, sent, found.reached)


def first_aggregation(result: Result) -> float:
    """Return the virtual time of the first version that was made from an upload; 0 if there is none yet."""
    times = result.history.updates["seconds"]
    if not times and result.history.outcomes.get("applied"):
        raise DataError(f"run {result.spec.hash} was stored without its table of updates, which FedLuck's times need")
    return float(times[0]) if times else 0.0


def size_factor(entry: Entry) -> float:
    """Return how many times larger the paper's model is than the one that the run has."""
    setup = Runs.setup_of(entry.spec.dataset)
    return setup.parameters / num_parameters(entry.spec.model, setup.shape, CLASSES)


def horizon(study: Study) -> float:
    """Return the virtual time at which Figure 2 ends: that of FedLuck's runs; NaN without any."""
    found = [e.spec.budget.seconds for e in study.entries if e.labels["role"] == "comparison"]
    return min((seconds for seconds in found if seconds), default=float("nan"))


def final_accuracy(study: Study, entry: Entry, result: Result) -> float:
    """Return the accuracy of a run at the horizon, on all test images."""
    times = np.array(result.history.evaluations["seconds"])
    last = np.flatnonzero(times <= horizon(study) + SLACK)[-1]
    return float(result.history.evaluations["test_accuracy"][last])


def compared(study: Study, method: str, partition: str) -> dict[int, tuple[Entry, Result]]:
    """Return the runs of a method of Figures 2 and 3 and of the tables, by seed."""
    return study.by_seed(role="comparison", method=method, partition=partition)


def accuracy_curves(study: Study, partition: str, methods: Sequence[str] = METHODS) -> pd.DataFrame:
    """Return mean, standard deviation and number over seeds of each method's accuracy, up to the horizon."""
    found = []
    for method in methods:
        if runs := compared(study, method, partition).values():
            joined = pd.concat([curve(entry, result) for entry, result in runs])
            joined = joined[joined["seconds"] <= horizon(study) + SLACK]
            found.append(mean_curve(joined, "seconds", ["test_accuracy"]).assign(method=method, parameter=np.nan))
    return pd.concat(found, ignore_index=True) if found else pd.DataFrame()


def planned_rounds(entry: Entry) -> list[int]:
    """Return rounds per job c_i of each device of a periodic run, from what it is told to do (Eq. 5)."""
    spec, algorithm = entry.spec, entry.spec.algorithm
    compute, network = spec.world.compute, spec.world.network
    assert isinstance(compute, TraceCompute)
    bits = np.array(network.up_bits_per_second)
    alpha = np.array(compute.seconds_per_step)
    beta = 8 * BYTES_PER_PARAMETER * num_parameters(spec.model, Runs.setup_of(spec.dataset).shape, CLASSES) / bits
    if isinstance(algorithm, FedLuck):
        made = algorithm.plan(alpha, beta)
        jobs = job_seconds(made.local_steps, made.compression_rate, alpha, beta)
    else:
        assert isinstance(algorithm, FedPer)
        assert isinstance(algorithm.compressor, TopK)
        jobs = job_seconds(algorithm.steps, algorithm.compressor.delta, alpha, beta)
    return rounds_per_job(jobs, algorithm.period_seconds).tolist()


def _readings(entry: Entry, result: Result) -> tuple[Array, Array, Array, Array]:
    """Return the columns of :func:`curve`.

    If periodic evaluations are on fewer images, those at further times and at the end are left out; the first stays.
    """
    spec, table = entry.spec, result.history.evaluations
    names = "seconds", "test_accuracy", "bytes_up", "models_received"
    times, accuracy, sent, uploads = (np.array(table[name], dtype=float) for name in names)
    kept = np.ones(len(times), dtype=bool)
    if spec.evaluation.test_samples:
        kept[1:] = ~np.isin(times[1:], spec.evaluation.at_seconds)
        kept[-1] = False
    step, end = PERIODS_PER_EVALUATION * Runs.setup_of(spec.dataset).period_seconds, spec.budget.seconds or times[-1]
    seconds = np.arange(0.0, end + SLACK, step)
    latest = np.flatnonzero(kept)[np.searchsorted(times[kept], seconds + SLACK, side="right") - 1]
    return seconds, accuracy[latest], sent[latest] * size_factor(entry) / BYTES_PER_GB, uploads[latest]


# What FedLuck's Figure 1 measures: rounds to an accuracy over local steps k and kept fraction delta.


@remembered
def _first_version(result: Result, target: float) -> Passage:
    table = result.history.evaluations
    return passage(table["version"], table["test_accuracy"], target)


def rounds(study: Study) -> pd.DataFrame:
    """Return one row per run of Figure 1.

    ``rounds`` are ticks to the target, empty ones included, between evaluations interpolated (NaN: not reached),
    ``end`` those of the run, ``factor`` is phi, the mean of the five devices.
    """
    rows = []
    for entry, result in study.select(role="heat map"):
        labels, table = entry.labels, result.history.evaluations
        at = _first_version(result, labels["target"])  # a run ends where it gets there
        method = entry.spec.algorithm
        assert isinstance(method, FedPer)
        setting = Runs.setup_of(study.dataset).cell, labels["steps"], labels["delta"], method.period_seconds
        found = {name: labels[name] for name in ("seed", "steps", "delta", "target")}
        end = float(table["version"][-1])
        rows.append(found | {"rounds": at.at if at.reached else np.nan, "end": end, "factor": mean_factor(*setting)})
    return pd.DataFrame(rows)


def heat_map(study: Study) -> pd.DataFrame:
    """Return the cells of Figure 1: mean rounds of the seeds that get there, how many do and how many there are."""
    frame = rounds(study)
    if frame.empty:
        return frame
    grouped = frame.groupby(["steps", "delta"])
    return grouped.agg(
        rounds=("rounds", "mean"), rounds_std=("rounds", "std"), reached=("rounds", "count"), n=("seed", "size"),
        factor=("factor", "first"), target=("target", "first"),
    ).reset_index()  # fmt: skip


def edge_share(study: Study, axis: str) -> dict[int, float]:
    """Return by seed in which share of the lines along `axis` ("steps", "delta") fewest rounds are not at an end.

    Lines on which nothing gets there are left out.
    """
    frame, found = rounds(study), {}
    for seed in sorted(set(frame["seed"])) if len(frame) else ():
        table = frame[frame["seed"] == seed].pivot(index="steps", columns="delta", values="rounds").fillna(np.inf)
        cells = table if axis == "steps" else table.T
        lines = [line for line in cells.to_numpy().T if np.isfinite(line).any()]
        if lines and len(lines[0]) > 2:
            found[seed] = float(np.mean([line[1:-1].min() < min(line[0], line[-1]) for line in lines]))
    return found


def worst_and_best(study: Study) -> tuple[Censored, Censored]:
    """Return by seed the rounds of the settings that need most and fewest on the *next* seed, which decides alone.

    Chosen on the same seed, the most of 36 numbers is above the fewest whatever the settings do; chosen on all
    others, the seeds would not be independent any more.
    """
    frame = rounds(study)
    values: tuple[dict[int, float], dict[int, float]] = ({}, {})
    bounds: tuple[set[int], set[int]] = (set(), set())
    if len(frame) and frame["seed"].nunique() > 1:
        of_seed = sorted({int(seed) for seed in frame["seed"]})
        found = {seed: frame[frame["seed"] == seed].set_index(["steps", "delta"]) for seed in of_seed}
        for seed, other in zip(found, [*list(found)[1:], *list(found)[:1]], strict=True):
            own, chosen = found[seed], found[other]["rounds"].fillna(np.inf)  # not reached: nothing is worse
            extremes: list[Any] = [chosen.idxmax(), chosen.idxmin()] if np.isfinite(chosen).any() else []
            for side, at_least, cell in zip(values, bounds, extremes, strict=False):
                if cell in own.index:
                    end, at = float(own["end"][cell]), float(own["rounds"][cell])
                    side[seed] = end if np.isnan(at) else at
                    at_least |= {seed} if np.isnan(at) else set()
    keys = [entry.key for entry, _ in study.select(role="heat map")]
    return Censored(values[0], bounds[0], keys), Censored(values[1], bounds[1], keys)


def factor_correlation(study: Study) -> dict[int, float]:
    """Return by seed the rank correlation of phi with the rounds; cells that do not get there come last, tied."""
    frame, found = rounds(study), {}
    for seed in sorted(set(frame["seed"])) if len(frame) else ():
        own = frame[frame["seed"] == seed]
        steps = own["rounds"].fillna(own["rounds"].max() + 1 if own["rounds"].notna().any() else 1.0)
        if steps.nunique() > 1 and own["factor"].nunique() > 1:
            found[seed] = float(scipy.stats.spearmanr(own["factor"], steps).statistic)
    return found


# FedLuck's figures that are no plots of curves: jobs in time, heat maps, bars, and the surface of phi.


def timeline(jobs: pd.DataFrame) -> Figure:
    """Draw what five devices do between the ticks, with the staleness of every upload."""
    ticks = np.arange(0, jobs["used"].max() + 1e-9, np.diff(np.unique(jobs["used"])).min())
    with drawing((5.8, 4.2)) as (figure, axis):
        for start, end, colour in (("start", "trained", SKY), ("trained", "arrived", ORANGE)):
            axis.barh(jobs["device"], jobs[end] - jobs[start], left=jobs[start], height=0.5, color=colour)
        axis.barh(jobs["device"], jobs["used"] - jobs["arrived"], left=jobs["arrived"], height=0.5, fc="white",
                  ec=GREY, lw=0.5, hatch="////")  # fmt: skip
        for device, used, staleness in jobs[["device", "used", "round_staleness"]].itertuples(index=False, name=None):
            axis.text(used - 0.1, device - 0.29, f"{staleness}", ha="right", va="bottom", size=SMALL, color=VERMILION)
        for tick in ticks:
            axis.axvline(tick, color=BLACK, lw=0.8, alpha=0.6, zorder=0)
        axis.set(yticks=range(jobs["device"].max() + 1), xlabel="virtual time (s); a line is a tick",
                 ylim=(jobs["device"].max() + 0.5, -0.6))  # fmt: skip
        axis.set_yticklabels([f"device {number}" for number in range(jobs["device"].max() + 1)])
        axis.grid(visible=False)
        patches = [Patch(color=SKY, label="k local steps"), Patch(color=ORANGE, label="upload"),
                   Patch(fc="white", ec=GREY, hatch="////", label="idle")]  # fmt: skip
        figure.legend(handles=patches, loc="outside lower center", ncols=3)
    return figure


def heat(cells: pd.DataFrame) -> Figure:
    """Draw the rounds to a target over k and delta, and below them what phi predicts."""
    with drawing((5.6, 7.0), 2) as (figure, axes):
        _cells(axes[0], cells, "rounds")
        _cells(axes[1], cells, "factor")
        axes[0].set_title(f"(a) rounds to {100 * cells['target'].iloc[0]:g} % accuracy")
        axes[1].set_title("(b) φ, averaged over the devices")
    return figure


def traffic(bars: pd.DataFrame) -> Figure:
    """Draw the gigabytes to each target as groups of bars, on a logarithmic ordinate."""
    methods, targets = list(bars["method"].unique()), list(bars["target"].unique())
    width = 0.8 / len(methods)
    with drawing((5.6, 3.9)) as (figure, axis):
        for place, method in enumerate(methods):
            own = bars[bars["method"] == method].set_index("target").reindex(targets)
            x = np.arange(len(targets)) + (place - (len(methods) - 1) / 2) * width
            colour = line_of(method, 0, methods)["color"]
            spread = own["gigabytes_std"].to_numpy(float)
            axis.bar(x, own["gigabytes"], width * 0.92, color=colour, label=method)
            if np.isfinite(spread).any():
                axis.errorbar(x, own["gigabytes"], spread, fmt="none", ecolor=BLACK, elinewidth=1, capsize=2)
        if bars["gigabytes"].notna().any():
            log_ordinate(axis)
        else:
            axis.text(0.5, 0.5, "no target is reached by every seed", transform=axis.transAxes, ha="center")
        axis.set(xticks=range(len(targets)), ylabel="gigabytes uploaded, log scale")
        axis.set_xticklabels([f"{100 * target:g} %" for target in targets])
        axis.set_xlabel("target accuracy")
        axis.grid(visible=False, axis="x")
        figure.legend(loc="outside lower center", ncols=3)
    return figure


def surface(frame: pd.DataFrame) -> Figure:
    """Draw the level lines of phi over k and delta for each device, with its minimum."""
    devices = list(frame["device"].unique())
    with drawing((5.6, 3.4 * len(devices)), len(devices), squeeze=False, sharex=True) as (figure, axes):
        for axis, device in zip(axes[:, 0], devices, strict=True):
            own = frame[frame["device"] == device]
            grid = own.pivot(index="delta", columns="steps", values="factor")
            least = float(own["factor"].min())
            levels = least * np.geomspace(1.02, 30, 12)
            axis.contourf(grid.columns, grid.index, grid, levels=levels, norm=LogNorm(), cmap="cividis_r",
                          extend="both")  # fmt: skip
            axis.contour(grid.columns, grid.index, grid, levels=levels, colors=BLACK, linewidths=0.5, alpha=0.5)
            best = own.iloc[0]
            axis.plot(best["best_steps"], best["best_delta"], "*", color=VERMILION, ms=14, mfc=VERMILION, mec="white",
                      clip_on=False)  # fmt: skip
            axis.set(xscale="log", yscale="log", ylabel="kept fraction δ")
            axis.set_title(f"device {device}: β/T̃ = {best['ratio']:.2f}, best k = {best['best_steps']:.0f}, "
                           f"δ = {best['best_delta']:.3g}")  # fmt: skip
            for way in (axis.xaxis, axis.yaxis):
                way.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axis.grid(visible=False)
        axes[-1, 0].set_xlabel("local steps k")
    return figure


def _cells(axis: Axes, cells: pd.DataFrame, column: str) -> None:
    """Draw one number for each k and delta: dark is much; hatched is missing, and marked if only some seeds miss."""
    grid = cells.pivot(index="steps", columns="delta", values=column)
    missed = cells.assign(missed=cells["n"] - cells["reached"]).pivot(index="steps", columns="delta", values="missed")
    values = grid.to_numpy(float)
    finite = values[np.isfinite(values)]
    scale = LogNorm(finite.min(), max(finite.max(), finite.min() * 1.01)) if len(finite) else None
    axis.imshow(np.where(np.isfinite(values), values, np.nan), cmap="cividis_r", norm=scale, aspect="auto",
                origin="lower")  # fmt: skip
    middle = np.sqrt(finite.min() * finite.max()) if len(finite) else 0.0
    for (row, place), value in np.ndenumerate(values):
        if np.isfinite(value):
            mark = "*" if column == "rounds" and missed.to_numpy()[row, place] else ""
            colour = "white" if value > middle else "#111111"
            text = f"{value:.0f}" if column == "rounds" or value >= 10 else f"{value:.1f}"
            axis.text(place, row, text + mark, ha="center", va="center", fontsize=SMALL, color=colour)
        else:
            axis.add_patch(Rectangle((place - 0.5, row - 0.5), 1, 1, fill=False, ec=GREY, hatch="////", lw=0))
    axis.set(xticks=range(len(grid.columns)), yticks=range(len(grid.index)), xlabel="kept fraction δ",
             ylabel="local steps k")  # fmt: skip
    axis.set_xticklabels([f"{delta:g}" for delta in grid.columns])
    axis.set_yticklabels([f"{steps}" for steps in grid.index])
    axis.grid(visible=False)


# The key convergence factor as a map with sliders for a device: one piece of HTML that needs no kernel and makes no
# request. Its script minimises the factor by itself, and refuses to draw where its minima are not the planner's.

RANGES = {"alpha": (0.005, 2.0), "beta": (0.05, 200.0), "period": (0.1, 30.0)}  # Ends of the sliders, seconds.
BANDS = {
    1.01: "#FDE725", 1.05: "#A5DB36", 1.1: "#4AC16D", 1.25: "#1FA187", 1.5: "#277F8E", 2: "#365C8D", 4: "#46327E",
}  # fmt: skip
"""Colour up to a multiple of the minimum; what is above the last one is darker."""
BEYOND = "#2D0B45"
MARKS = {
    "smallest in the box, whole k": '<circle class="flf-best" cx="8" cy="8" r="5"/>',
    "local minimum for any k > 0": '<path class="flf-stationary" d="M2 8l6-6 6 6-6 6z"/>',
    "saddle": '<path class="flf-saddle" d="M3 3l10 10m0-10l-10 10"/>',
}


@dataclass(frozen=True)
class InteractiveFactor:
    """A figure for notebooks and the book; see :func:`interactive_factor`."""

    data: dict[str, Any]  # What the script gets, plain values for JSON.
    table: pd.DataFrame = field(repr=False)  # The text alternative: the best plan of each device.

    def _repr_html_(self) -> str:
        names = [html.escape(device["name"]) for device in self.data["devices"]]
        return Template(asset("factor.html", __file__)).substitute(
            title="Key convergence factor over local steps and compression rate",
            colours=f"--flf-mark:{VERMILION}",
            devices="".join(f'<option value="{i}">{name}</option>' for i, name in enumerate(names)),
            legend="".join(_legend()),
            tables=html_table("The same in numbers: the best plan of each device", self.table, "flf-scroll"),
            data=as_json(self.data),
            style=asset("factor.css", __file__),
            script=asset("factor.js", __file__),
        )

    def __repr__(self) -> str:
        return f"interactive map of the key convergence factor for {len(self.data['devices'])} devices"


def interactive_factor(devices: Mapping[str, tuple[float, float]], period_seconds: float) -> InteractiveFactor:
    """Make a map of phi(k, delta), Eq. 14, with sliders for alpha, beta and the length of a round.

    It shows itself as the last expression of a notebook cell.
    """
    if not devices:
        raise SpecError("a map of the key convergence factor needs at least one device")
    given = [("period", "the round", period_seconds)]
    given += [(kind, name, t) for name, pair in devices.items() for kind, t in zip(RANGES, pair, strict=False)]
    for kind, name, seconds in given:
        low, high = RANGES[kind]
        if not low <= seconds <= high:
            raise SpecError(f"{kind} of {name} must lie in [{low:g}, {high:g}] s, got {seconds!r}")
    times = [(float(a), float(b), float(period_seconds)) for a, b in devices.values()]
    shown = [{"name": name, "alpha": a, "beta": b} for name, (a, b, _) in zip(devices, times, strict=True)]
    bands = [{"most": float(most), "colour": colour} for most, colour in BANDS.items()]
    data = {
        "devices": shown,
        "period": float(period_seconds),
        "box": list(vars(Box()).values()),  # the authors'
        "ranges": RANGES,
        "bands": [*bands, {"most": None, "colour": BEYOND}],
        "threshold": theory.COMPRESSION_THRESHOLD,
        "checks": list(_checks(times)),
    }
    return InteractiveFactor(data, plans(devices, period_seconds))


def plans(devices: Mapping[str, tuple[float, float]], period_seconds: float) -> pd.DataFrame:
    """Return the exact plan of each device, with what its jobs are like.

    Columns: ``device``, ``α`` and ``β`` (s), ``β/T̃``, ``k``, ``δ``, ``φ``, ``job`` (s), ``τ`` (Eq. 7).
    """
    alpha, beta = np.array(list(devices.values()), dtype=np.float64).T
    k, delta, factor = plan_devices(alpha, beta, period_seconds, solver="exact")
    job = job_seconds(k, delta, alpha, beta)
    columns = {"device": list(devices), "α": alpha, "β": beta, "β/T̃": beta / period_seconds, "k": k, "δ": delta}
    return pd.DataFrame({**columns, "φ": factor, "job": job, "τ": rounds_per_job(job, period_seconds)})


def _checks(own: list[tuple[float, float, float]]) -> Iterator[list[float | None]]:
    """Yield times of devices, their best plan, and where phi is stationary: what the script must find too."""
    rng = np.random.default_rng(0)
    drawn = np.exp([rng.uniform(np.log(low), np.log(high), 40) for low, high in RANGES.values()]).T
    for alpha, beta, period in [*own, *drawn.tolist()]:
        best = plan_devices(alpha, beta, period, solver="exact")
        points: list[float | None] = []
        for branch in (theory.interior_minimum, theory.saddle_point, theory.uncompressed_minimum):
            kappa, delta, *_ = map(float, branch(beta / period))
            points += [None if value != value else value for value in (kappa * (period / alpha), delta)]
        yield [alpha, beta, period, int(best.local_steps[0]), *(float(c[0]) for c in best[1:]), *points[:-1]]


def _legend() -> Iterator[str]:
    for most, colour in BANDS.items():
        words = f"{most:g} × smallest" if most > 2 else f"+{100 * (most - 1):.0f} %"
        yield f'<span><i style="background:{colour}"></i>≤ {words}</span>'
    yield f'<span><i style="background:{BEYOND}"></i>more</span>'
    for text, mark in MARKS.items():
        yield f'<span><svg viewBox="0 0 16 16" aria-hidden="true">{mark}</svg>{text}</span>'
