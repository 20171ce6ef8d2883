"""FedASMU's runs as they are read, the frames of its figures, and their drawings."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, inf
from textwrap import fill
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from numpy.typing import NDArray

from fl_core.algorithms import FedASMU
from fl_core.experiments.evidence import Censored
from fl_core.experiments.measures import BySeed, passages, remembered
from fl_core.experiments.run import Result
from fl_core.experiments.study import Study
from fl_core.formulas import fedasmu as formulas
from fl_core.formulas.fedasmu import Controls, matched_lambda, mixing_weight, weight_score
from fl_core.formulas.fedasync import alpha_t
from fl_core.formulas.staleness import Polynomial
from fl_core.report.explorable import Explorable, Slider
from fl_core.report.figures import draw_curve
from fl_core.report.interactive import asset
from fl_core.report.style import BLUE, GREEN, GREY, ORANGE, SKY, SMALL, VERMILION, drawing, line_of, log_ordinate
from fl_core.runtime import Budget, LocalTraining, Simulation
from fl_core.tasks import Quadratic
from fl_core.world import Network, World
from fl_core.world.triggers import Timed
from fl_papers.fedasmu.experiment import COLUMNS, CONDITION_TARGET, STANDARD, SYNCHRONOUS, target_of

Array = NDArray[np.float64]

# Runs: accuracy, time to a target, traffic, by seed


class Setting(NamedTuple):
    """Where runs stand: a column of Tables 1 and 2, and the quantity that is varied, with its value."""

    column: str
    varied: str | None = None
    value: Any = None

    def __str__(self) -> str:
        return str(COLUMNS[self.column]) + ("" if self.varied is None else f", {self.varied} {self.value:g}")


def settings(study: Study, method: str = "FedASMU", varied: str | None = None) -> list[Setting]:
    """Return the settings in which the grid of `study` has `method`, in its order."""
    labels = [entry.labels for entry in study.entries]
    found = [x for x in labels if x["method"] == method and x["varied"] == varied]
    return list(dict.fromkeys(Setting(x["column"], varied, x["value"]) for x in found))


def readings(result: Result) -> tuple[Array, Array]:
    """Return seconds and test accuracy ``[n]`` of the periodic evaluations, first the initial model.

    Where these use a part of the test images, the evaluation of the end, which uses all, is left out: the two differ
    by more than methods do.
    """
    table = result.history.evaluations
    seconds, accuracy = (np.array(table[name], dtype=float) for name in ("seconds", "test_accuracy"))
    count = len(seconds)
    if count > 2 and (result.spec.evaluation.test_samples or table["version"][-1] == table["version"][-2]):
        count -= 1
    return seconds[:count], accuracy[:count]


@remembered
def final_accuracy(result: Result, until: float = inf) -> float:
    """Return the mean test accuracy of the last tenth of the evaluations (A18), or of those up to a virtual time."""
    seconds, accuracy = readings(result)
    accuracy = accuracy[seconds <= until]
    return float(accuracy[-ceil(len(accuracy) / 10) :].mean())


def final(study: Study, method: str, at: Setting) -> BySeed:
    """Return the final accuracies (A18)."""
    return BySeed.of(study.select(method=method, **at._asdict()), lambda entry, result: final_accuracy(result))


WIDTH = 5  # Of the running mean whose passage is timed, in evaluations: fifty uploads (A19).


def passed(study: Study, method: str, at: Setting, target: float | None = None) -> Censored:
    """Return the times to a target (A19; the column's, if none is given), "at least" the end where it is missed."""
    wanted = target_of(study.profile, at.column) if target is None else target
    return passages(study.select(method=method, **at._asdict()), readings, wanted, width=WIDTH)


def at_equal_time(study: Study, method: str, at: Setting) -> BySeed:
    """Return the accuracies at the virtual time when FedASMU has finished."""
    own, theirs = (study.by_seed(method=one, **at._asdict()) for one in ("FedASMU", method))
    ends = {seed: readings(result)[0][-1] for seed, (_, result) in own.items()}
    return BySeed({seed: final_accuracy(run, ends[seed]) for seed, (_, run) in theirs.items() if seed in ends})


def gaps(study: Study, method: str, other: str, at: Setting) -> BySeed:
    """Return by how much `method` is more accurate than `other`."""
    return final(study, method, at) - final(study, other, at)


def times(study: Study, method: str, other: str, at: Setting, target: float | None = None) -> tuple[BySeed, BySeed]:
    """Return the times of two methods by seed, where at least one is known and the other cannot be shorter.

    A method that does not get to a target counts with the end of its run, which can only favour it; a pair of which
    too little is known is left out.
    """
    ours, theirs = (passed(study, one, at, target) for one in (method, other))
    known = [
        seed for seed in ours.keys() & theirs.keys()
        if (seed not in ours.at_least and (seed not in theirs.at_least or ours[seed] <= theirs[seed]))
        or (seed not in theirs.at_least and theirs[seed] <= ours[seed])
    ]  # fmt: skip
    return BySeed({seed: ours[seed] for seed in known}), BySeed({seed: theirs[seed] for seed in known})


def savings(study: Study, method: str, other: str, at: Setting, target: float | None = None) -> BySeed:
    """Return the part of `other`'s time that `method` saves; negative where it needs more."""
    ours, theirs = times(study, method, other, at, target)
    return BySeed({seed: 1 - ours[seed] / theirs[seed] for seed in ours if theirs[seed]})


def mean_seconds(study: Study, method: str, at: Setting, target: float | None = None) -> float:
    """Return the mean time to a target, infinite if a seed does not get there."""
    found = passed(study, method, at, target)
    return inf if found.at_least else float(np.mean(list(found.values())))


def traffic(study: Study, method: str, at: Setting) -> tuple[BySeed, BySeed]:
    """Return the bytes that are sent up and down per upload received."""
    found = BySeed(), BySeed()
    for entry, result in study.select(method=method, **at._asdict()):
        table = result.history.evaluations
        if uploads := table["models_received"][-1]:
            for side, direction in zip(found, ("bytes_up", "bytes_down"), strict=True):
                side[entry.labels["seed"]] = table[direction][-1] / uploads
    return found


# Frames of the figures

POINTS = 60  # Of a curve.


def accuracy_curves(study: Study, methods: Sequence[str]) -> pd.DataFrame:
    """Return mean and standard deviation over seeds of each method's accuracy, up to the end of its shortest run.

    A column of the tables without any run has one row, which has no method.
    """
    rows = []
    for column in dict.fromkeys(entry.labels["column"] for entry in study.entries):
        found = {m: study.select(method=m, column=column, varied=None) for m in methods}
        runs = [result for pairs in found.values() for _, result in pairs]
        told = {
            "column": column,
            "title": f"{COLUMNS[column]} ({runs[0].provenance['data'] if runs else 'no runs'})",
            "target": target_of(study.profile, column),
            "missing": ", ".join(method for method, pairs in found.items() if not pairs),
        }
        rows += [pd.DataFrame([told | {"method": None}])] * (not runs)
        rows += [_curve([r for _, r in pairs]).assign(method=m, **told) for m, pairs in found.items() if pairs]
    frame = pd.concat(rows, ignore_index=True) if rows else pd.DataFrame()
    return frame if len(frame) and frame["method"].notna().any() else pd.DataFrame()


def _curve(results: Sequence[Result]) -> pd.DataFrame:
    """Return the mean curve of a method's runs; between two evaluations a run has the accuracy of the earlier one."""
    read = [readings(result) for result in results]
    x = np.linspace(0.0, min(seconds[-1] for seconds, _ in read), POINTS)
    values = np.array([accuracy[np.searchsorted(seconds, x, side="right") - 1] for seconds, accuracy in read])
    spread = values.std(axis=0, ddof=1) if len(values) > 1 else np.full(len(x), np.nan)
    return pd.DataFrame({"x": x, "test_accuracy": values.mean(0), "test_accuracy_std": spread, "n": len(values)})


def condition_points(study: Study) -> pd.DataFrame:
    """Return accuracy and time to 60 % (infinite if a seed does not get there) over what Figure 7 varies."""
    rows = []
    methods = dict.fromkeys(entry.labels["method"] for entry in study.entries)
    for varied, standard in STANDARD.items():
        points = settings(study, varied=varied)
        for method in methods if points else ():
            for value in sorted({standard, *(at.value for at in points)}):
                changed = (varied, value) if value != standard else ()
                at = Setting(points[0].column, *changed)
                row: dict[str, Any] = {"varied": varied, "value": value, "method": method}
                if accuracy := final(study, method, at):
                    seconds = mean_seconds(study, method, at, CONDITION_TARGET)
                    row |= {"accuracy": accuracy.mean, "seconds": seconds, "n": len(accuracy)}
                rows.append(row)
    frame = pd.DataFrame(rows)
    return frame if "accuracy" in frame else pd.DataFrame()


def staleness_points(study: Study) -> pd.DataFrame:
    """Return every upload that FedASMU has mixed in, and FedASMU-0, whose weights are FedAsync's."""
    found = []
    for method in ("FedASMU", "FedASMU-0"):
        for entry, result in study.select(method=method, varied=None):
            table = result.history.update_frame()[["version", "staleness", "weight"]]
            algorithm = entry.spec.algorithm
            assert isinstance(algorithm, FedASMU)
            own = {"method": method, "seed": entry.labels["seed"], "bound": algorithm.staleness_bound}
            found.append(table.assign(staleness=table["staleness"] + 1, **own))  # the paper's counts from 1
    return pd.concat(found, ignore_index=True) if found else pd.DataFrame()


def five_devices(devices: int = 5, seconds: float = 1400.0, size: int = 10) -> pd.DataFrame:
    """Return what five devices do under FedASMU, on quadratic losses: Figure 1 as a timetable.

    Three train at a time, and a transfer takes 12 s, so that it can be seen. ``version`` is that of the model which a
    download brings; ``made`` and ``staleness`` are of an upload (NaN if the run is over before).
    """
    rng = np.random.default_rng(0)
    task = Quadratic(np.ones((devices, size)), rng.normal(size=(devices, size)), np.zeros(size))
    bits = 64 * size / 12.0  # this task computes with 64-bit numbers
    network, trigger = Network(down_bits_per_second=bits, up_bits_per_second=bits), Timed(per_tick=1, concurrency=3)
    world = World.named("fedasmu", devices=devices, network=network, trigger=trigger)
    training = LocalTraining(lr=0.05, epochs=5)
    algorithm = FedASMU(slot="uniform", lambda_0=matched_lambda(30, 3))
    run = Simulation(task, world, algorithm, budget=Budget(seconds=seconds), training=training, seed=1, trace=True)
    history = run.run("sequential")
    updates, spans = history.updates, history.spans
    uploads = zip(*(updates[name] for name in ("seconds", "device", "version", "staleness")), strict=True)
    made = {(device, round(at, 6)): (version, late + 1) for at, device, version, late in uploads}
    rows, seen, nothing = [], set[int](), (np.nan, np.nan)
    names = ("task", "activity", "device", "start", "end", "base_version")
    for number, what, device, start, end, base in zip(*(spans[name] for name in names), strict=True):
        activity = "fresh model" if what == "download" and number in seen else what
        seen.add(number)
        brought = made.get((device, round(end, 6)), nothing) if what == "upload" else nothing
        rows.append((device, activity, start, end, base, *brought))
    frame = pd.DataFrame(rows, columns=["device", "activity", "start", "end", "version", "made", "staleness"])
    for place in frame.index[frame["activity"] == "fresh model"]:  # a span knows with what its task began
        frame.loc[place, "version"] = frame.loc[frame["end"] <= frame.loc[place, "start"], "made"].max()
    return frame


# Drawings

ACTIVITIES = {"download": SKY, "train": BLUE, "fresh model": GREEN, "upload": ORANGE}
CONDITION_LABELS = {"bandwidth": "times lower bandwidth", "heterogeneity": "slowest to fastest device"}


def timeline(spans: pd.DataFrame) -> Figure:
    """Draw what five devices do, with the staleness of every upload and the version that it makes."""
    made = spans[spans["made"].notna()]
    until = float(made["end"].max()) + 20
    with drawing((5.8, 4.4)) as (figure, axis):
        for activity, colour in ACTIVITIES.items():
            own = spans[(spans["activity"] == activity) & (spans["start"] < until)]
            axis.barh(own["device"], own["end"].clip(upper=until) - own["start"], left=own["start"], height=0.52,
                      color=colour)  # fmt: skip
        for name, shift, colour in (("version", -0.29, GREY), ("made", -0.29, VERMILION)):
            own = spans[spans["activity"] == "fresh model"] if name == "version" else made
            own = own[own["end"] < until]
            for x, device, number in own[["end", "device", name]].itertuples(index=False, name=None):
                axis.text(x, device + shift, f"{number:.0f}", ha="center", va="bottom", fontsize=SMALL, color=colour)
        for x, device, number in made[["start", "device", "staleness"]].itertuples(index=False, name=None):
            axis.text(x - 6, device, f"{number:.0f}", ha="right", va="center", fontsize=SMALL, color="white")
        for x in made["end"]:
            axis.axvline(x, color=GREY, lw=0.6, alpha=0.6, zorder=0)
        axis.set(yticks=range(spans["device"].max() + 1), ylim=(spans["device"].max() + 0.5, -0.7), xlim=(0, until),
                 xlabel="virtual time (s); a line is a new version")  # fmt: skip
        axis.set_yticklabels([f"device {number}" for number in range(spans["device"].max() + 1)])
        axis.grid(visible=False)
        patches = [Patch(color=colour, label=activity) for activity, colour in ACTIVITIES.items()]
        figure.legend(handles=patches, loc="outside lower center", ncols=4, columnspacing=1.0, handlelength=1.2)
    return figure


def accuracy(curves: pd.DataFrame) -> Figure:
    """Draw a panel for each column of the tables, with a line at its target; hatched: no runs.

    Where there are many methods, synchronous and asynchronous ones get a panel each, both with FedASMU.
    """
    methods = list(curves["method"].dropna().unique())
    split = {"synchronous": [m for m in methods if m == "FedASMU" or m in SYNCHRONOUS],
             "asynchronous": [m for m in methods if m not in SYNCHRONOUS]}  # fmt: skip
    shares = split if len(methods) > 6 else {"": methods}
    panels: list[tuple[pd.DataFrame, str]] = []
    for _, own in curves.groupby("column", sort=False):
        panels += [(own, share) for share in shares if own["method"].notna().all() or share == next(iter(shares))]
    longest = float(curves["x"].max()) / 1000
    height = 2.7 * len(panels) + 0.24 * -(-len(methods) // 3)
    with drawing((5.6, height), len(panels), squeeze=False) as (figure, axes):
        for axis, (own, share) in zip(axes[:, 0], panels, strict=True):
            hatched = own["method"].isna().any()
            axis.set_title(own["title"].iloc[0] + (f": {share} methods" if share and not hatched else ""))
            if hatched:
                _hatch(axis)
            else:
                _curves(axis, own, shares[share])
                axis.set_xlim(-0.02 * longest, 1.02 * longest)
        axes[-1, 0].set_xlabel("virtual time (1000 s)")
        _legend(figure, methods)
    return figure


def conditions(points: pd.DataFrame) -> Figure:
    """Draw accuracy and time to the target over what is varied; hatched: no runs; no mark: not reached."""
    methods, rows = list(points["method"].unique()), list(points["varied"].unique())
    with drawing((5.6, 2.3 * len(rows) + 0.75), len(rows), 2, squeeze=False) as (figure, axes):
        for (left, right), varied in zip(axes, rows, strict=True):
            own = points[points["varied"] == varied]
            values = sorted(own["value"].unique())
            for axis, what, title in ((left, "accuracy", "test accuracy"), (right, "seconds", "1000 s to 60 %")):
                grid = own.pivot(index="value", columns="method", values=what).reindex(values)
                for method in methods:
                    y = grid[method].to_numpy(float) / (1000 if what == "seconds" else 1)
                    look = line_of(method, 0, methods)
                    axis.plot(range(len(values)), np.where(np.isfinite(y), y, np.nan), **look | {
                        "marker": look["marker"] or "o"})  # fmt: skip
                for place in np.flatnonzero(grid.isna().all(axis=1)):
                    _hatch(axis, float(place))
                axis.set(xticks=range(len(values)), xlabel=CONDITION_LABELS.get(varied, varied), title=title,
                         xlim=(-0.3, len(values) - 0.7))  # fmt: skip
                axis.set_xticklabels([f"{value:g}" for value in values])
                reached = np.isfinite(grid.to_numpy(float)).any()
                if not reached and grid.notna().to_numpy().any():
                    axis.set_yticks([])
                    axis.text(0.5, 0.5, "not reached", transform=axis.transAxes, ha="center")
                if what == "seconds" and reached:
                    log_ordinate(axis)
        _legend(figure, methods)
    return figure


def staleness(uploads: pd.DataFrame) -> Figure:
    """Draw how stale uploads are, and the weights that FedASMU and FedAsync give them."""
    methods = list(uploads["method"].unique())
    bound = int(uploads["bound"].iloc[0])
    with drawing((5.6, 5.6), 2) as (figure, (above, below)):
        first = uploads[uploads["method"] == methods[0]]["staleness"]
        above.hist(first, bins=np.arange(0.5, max(first.max(), bound) + 1.5), color=SKY)
        above.axvline(bound, color=VERMILION, lw=1.6)
        above.set(xlabel="staleness $t-o+1$", ylabel="uploads")
        above.set_title(f"(a) {methods[0]}; orange: the bound τ = {bound}")
        for method in methods:
            own = uploads[uploads["method"] == method]
            colour = line_of(method, 0, methods)["color"]
            below.plot(own["version"], own["weight"], ".", ms=3, alpha=0.5, color=colour, rasterized=True)
        below.set(xlabel="version", ylabel="mixing weight α")
        below.set_title("(b) weights")
        _legend(figure, methods)
    return figure


def _curves(axis: Axes, own: pd.DataFrame, methods: list[str]) -> None:
    """Draw the curves of some methods in one column."""
    axis.axhline(own["target"].iloc[0], color=GREY, lw=0.9, ls=(0, (2, 2)))
    for place, method in enumerate(methods):
        curve = own[own["method"] == method]
        look, curve = line_of(method, 0, methods), curve.assign(x=curve["x"] / 1000)
        draw_curve(axis, curve, "test_accuracy", look, (2 * place, 12), alpha=0.12)
    if missing := own["missing"].iloc[0]:
        words = fill(f"no runs: {missing}", 60)
        axis.text(0.99, 0.03, words, transform=axis.transAxes, ha="right", fontsize=8, color=GREY)
    axis.set_ylabel("test accuracy")
    axis.margins(x=0.02)


def _hatch(axis: Axes, place: float | None = None) -> None:
    """Mark a whole panel, or one place of its abscissa, as missing."""
    corner, width = ((0.0, 0.0), 1.0) if place is None else ((place - 0.2, 0.0), 0.4)
    system = axis.transAxes if place is None else axis.get_xaxis_transform()
    axis.add_patch(Rectangle(corner, width, 1, transform=system, fill=False, ec=GREY, hatch="////", lw=0))
    if place is None:
        axis.set(xticks=[], yticks=[])


def _legend(figure: Figure, methods: list[str]) -> None:
    handles = [Line2D([], [], label=method, **line_of(method, 0, methods)) for method in methods]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, handlelength=2.6, columnspacing=1.2)


def explore_weights() -> Explorable:
    """Let the reader choose what was missed and the parameters: weights (2) and (8) over the versions of a run."""

    def weights(staleness: float, lambda_: float, sigma: float, iota: float, upsilon: float) -> dict[str, Any]:
        versions, controls = np.geomspace(30, 5000, 40).round(), Controls(lambda_, sigma, iota)
        fresh = formulas.FreshControls(lambda_, upsilon)
        return {
            "x": versions,
            "score ξ, cut at 1": np.minimum(1, weight_score(versions, staleness, controls)),
            "α of an upload": mixing_weight(versions, staleness, controls),
            "β of a fresh model": [formulas.fresh_weight(g, g - staleness + 1, fresh) for g in versions],
            "FedAsync+Poly": np.full(40, alpha_t(0.6, 1, int(staleness) - 1, Polynomial(a=0.5))),
        }

    sliders = (
        Slider("staleness", "staleness s = g - o + 1", 2, 30, 1, 10), Slider("lambda_", "λ = γ", 0, 60, 0.5, 29.5),
        Slider("sigma", "σ", 0, 2, 0.05, 0.5), Slider("iota", "ι", 0, 0.5, 0.01, 0),
        Slider("upsilon", "υ", 0, 1.4, 0.05, 1),
    )  # fmt: skip
    return Explorable(
        "FedASMU's weights over a run", sliders, weights, asset("weights.js", __file__), "version", log_x=True,
        range=(0, 1), dashes=("3 3", "", "8 3", "2 2"),
    )  # fmt: skip
