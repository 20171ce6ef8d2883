"""What FedAsync's figures and tables show: curves and final values of the runs, exact curves of the theory, drawings.

A curve's frame has ``method``, ``alpha``, ``x``, ``n`` and for each metric its mean under its own name and ``…_std``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from torch import nn

from fl_core.algorithms import FedAsync
from fl_core.experiments.measures import BySeed, exact_curve, mean_curve, remembered, unevenness
from fl_core.experiments.run import Result
from fl_core.experiments.spec import RunSpec
from fl_core.experiments.study import Entry, Study
from fl_core.formulas.staleness import Exponential, Hinge, Linear, Polynomial, StalenessWeight
from fl_core.models import Dropout, build_network
from fl_core.report.explorable import Comparison, Explorable, Slider
from fl_core.report.interactive import asset
from fl_core.report.style import BLACK, BLUE, GREEN, GREY, ORANGE, SKY, SMALL, VERMILION, drawing
from fl_core.report.tables import Table, with_spread
from fl_core.runtime import Budget, LocalTraining, Simulation
from fl_core.tasks import Quadratic
from fl_core.world import TraceCompute, World
from fl_papers.fedasync import theory
from fl_papers.fedasync.experiment import ADAPTIVE, AXES, LOCAL_LR, options_of

FOLDER = Path(__file__).parent
METRICS = ("test_accuracy", "train_loss")
COUNTERS = ("version", "gradients", "communications")
TUNED = ("SGD", "FedAvg")  # Methods whose learning rate is chosen from a grid.


def chosen_lr(study: Study, method: str, without: int | None = None) -> float | None:
    """Return the learning rate of the best final test accuracy over seeds that all rates have; None without runs.

    It is chosen on test data, as in the paper, which favours tuned methods; on others than the seed that is judged.
    """
    final: dict[float, dict[int, float]] = {}
    for entry, result in study.select(method=method, part="whole"):
        accuracy = np.nan_to_num(result.history.evaluations["test_accuracy"][-1], nan=-1.0)
        final.setdefault(entry.labels["lr"], {})[entry.labels["seed"]] = accuracy
    common = set.intersection(*map(set, final.values())) if final else set()
    seeds = common - {without} or common
    means = {lr: np.mean([by_seed[seed] for seed in seeds or by_seed]) for lr, by_seed in final.items()}
    return max(sorted(means), key=lambda lr: means[lr]) if means else None


def runs_by_seed(study: Study, method: str, **labels: object) -> dict[int, list[tuple[Entry, Result]]]:
    """Return the runs of one curve by seed; a tuned method's, unless `lr` is given, with the chosen learning rate."""
    if method in TUNED and "lr" not in labels:
        labels["lr"] = chosen_lr(study, method)
    runs: dict[int, list[tuple[Entry, Result]]] = {}
    for entry, result in study.select(method=method, **labels):
        if entry.labels["role"] in ("curve", "claim"):
            runs.setdefault(entry.labels["seed"], []).append((entry, result))
    return runs


def seed_curve(runs: list[tuple[Entry, Result]]) -> pd.DataFrame:
    """Return the evaluations of the runs of one seed as one curve: equal versions are equal models."""
    [first, *others] = (_evaluations(result) for _, result in runs)
    return _by_version(pd.concat([first, *others], ignore_index=True)) if others else first


@remembered
def _evaluations(result: Result) -> pd.DataFrame:
    return _by_version(result.history.evaluation_frame())


def _by_version(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.drop_duplicates("version").sort_values("version", ignore_index=True)


def budget(study: Study, axis: str) -> float:
    """Return where FedAsync ends on `axis`: all curves are compared up to there."""
    found = [r for entry, r in study.select(role="curve") if entry.labels["method"].startswith("FedAsync")]
    longest = max(found, key=lambda result: result.history.evaluations["version"][-1], default=None)
    return float(_evaluations(longest)[AXES[axis]].iloc[-1]) if longest else 0.0


def curves(study: Study, axis: str, which: int) -> pd.DataFrame:
    """Return every curve of one of Figures 2 to 7; `which` is 0 for the small maximum staleness, 1 for the large."""
    staleness = options_of(study).max_staleness[which]
    methods = ("SGD", "FedAvg", *ADAPTIVE) if axis == "gradients" else ("FedAvg", *ADAPTIVE)
    column, end = AXES[axis], budget(study, axis)
    found = []
    for method in methods:
        labels = [{}] if method in TUNED else [{"alpha": a, "max_staleness": staleness} for a in alphas(study)]
        for label in labels:
            if runs := runs_by_seed(study, method, **label):
                points = pd.concat([seed_curve(group) for group in runs.values()])
                table = mean_curve(points[points[column] <= end], column, METRICS)
                own = next(iter(runs.values()))[0][0].labels
                found.append(table.assign(**{name: own[name] for name in ("method", "alpha", "max_staleness", "lr")}))
    return pd.concat(found, ignore_index=True) if found else pd.DataFrame()


def comparison(study: Study) -> Comparison:
    """Return the curves of Figures 2 to 7 for a reader to examine."""
    settings = {}
    for most in options_of(study).max_staleness:
        adaptive = {(m, a): {"alpha": a, "max_staleness": most} for m in ADAPTIVE for a in alphas(study)}
        curves = {method: runs_by_seed(study, method) for method in TUNED}
        curves |= {f"{m}, α = {a:g}": runs_by_seed(study, m, **labels) for (m, a), labels in adaptive.items()}
        settings[f"K = {most}"] = {m: {s: seed_curve(r) for s, r in runs.items()} for m, runs in curves.items()}
    axes = {"gradients": "gradients", "version": "global epochs", "communications": "communications"}
    metrics = {"test_accuracy": "test accuracy", "train_loss": "training loss"}
    return Comparison("FedAsync comparison", settings, axes, metrics, "FedAvg", log=["train_loss"])


def sweep_values(study: Study, role: str, metric: str, method: str, column: str, **labels: object) -> pd.DataFrame:
    """Return the last value of `metric` of every swept run of `method`: a row per seed, a column per swept value.

    Its attribute ``runs`` has the hashes of the runs of each column.
    """
    found, runs = dict[float, dict[int, float]](), dict[float, list[str]]()
    for entry, result in study.select(role=role, method=method, **labels):
        last = result.history.evaluations[metric][-1]
        found.setdefault(entry.labels[column], {})[entry.labels["seed"]] = last
        runs.setdefault(entry.labels[column], []).append(entry.key)
    frame = pd.DataFrame(found).sort_index().sort_index(axis=1)
    frame.attrs["runs"] = runs
    return frame


def sweep(study: Study, role: str, column: str, which: int | None = None) -> pd.DataFrame:
    """Return every point of a figure of final values; `which` picks the maximum staleness, if that does not vary."""
    labels = {} if which is None else {"max_staleness": options_of(study).max_staleness[which]}
    found = []
    for method in dict.fromkeys(entry.labels["method"] for entry, _ in study.select(role=role, **labels)):
        values = {metric: sweep_values(study, role, metric, method, column, **labels) for metric in METRICS}
        table = pd.DataFrame({metric: frame.mean() for metric, frame in values.items()})
        table = table.join(pd.DataFrame({f"{metric}_std": frame.std() for metric, frame in values.items()}))
        table["n"] = values[METRICS[0]].count()
        found.append(table.reset_index(names="x").assign(method=method, alpha=np.nan))
    return pd.concat(found, ignore_index=True) if found else pd.DataFrame()


def final_metrics(study: Study) -> pd.DataFrame:
    """Return the last evaluation of every curve of the study, with mean and standard deviation over seeds."""
    best, rows = {method: chosen_lr(study, method) for method in TUNED}, []
    for entry, result in study.select(part="whole", role="curve"):
        if entry.labels["lr"] == best.get(entry.labels["method"], entry.labels["lr"]):
            last = result.history.evaluation_frame().iloc[-1]
            rows.append({**entry.labels, **last[[*METRICS, *COUNTERS]]})
    frame = pd.DataFrame(rows).drop(columns=["role", "part"])
    frame = frame.astype(dict.fromkeys((*COUNTERS, "max_staleness"), "Int64"))
    frame.loc[frame["method"] == "SGD", ["version", "communications"]] = pd.NA  # a single machine has neither
    keys = ["method", "alpha", "max_staleness", "lr"]
    grouped = frame.groupby(keys, dropna=False, sort=False)
    table = grouped[list(COUNTERS)].first().join(grouped[list(METRICS)].mean())
    table = table.join(grouped[list(METRICS)].std().add_suffix("_std")).join(grouped.size().rename("n"))
    return table.reset_index()


def final_table(study: Study) -> Table:
    """Return :func:`final_metrics` as a table."""
    shown = with_spread(final_metrics(study), METRICS)
    for column in ("alpha", "lr"):
        shown[column] = [f"{value:g}" if np.isfinite(value) else None for value in shown[column]]
    names = {
        "alpha": "α", "max_staleness": "K", "lr": "learning rate", "version": "global epochs",
        "test_accuracy": "test accuracy", "train_loss": "training loss", "n": "seeds",
    }  # fmt: skip
    order = ["method", "alpha", "max_staleness", "test_accuracy", "train_loss", "lr"]
    return Table(shown[[*order, *(column for column in shown if column not in order)]], names)


def alphas(study: Study) -> list[float]:
    """Mixing weights of the study's curves, ascending."""
    return sorted({e.labels["alpha"] for e in study.entries if e.labels["role"] == "curve" and e.labels["alpha"]})


def judged(study: Study, method: str, measure: Callable[[pd.DataFrame, RunSpec], float], **labels: object) -> BySeed:
    """Return what `measure` makes of a curve and its specification, by seed.

    A tuned method's curve has, unless `lr` is given, the learning rate that is best on the other seeds.
    """
    values, keys = dict[int, float](), list[str]()
    tuned = method in TUNED and "lr" not in labels
    for seed in study.seeds:
        chosen = {"lr": chosen_lr(study, method, without=seed)} if tuned else {}
        if runs := runs_by_seed(study, method, **labels, **chosen).get(seed):
            values[seed] = measure(seed_curve(runs), runs[0][0].spec)
            keys += [entry.key for entry, _ in runs]
    return BySeed(values, keys)


def area(study: Study, axis: str, method: str, **labels: object) -> BySeed:
    """Return by seed the mean training loss over FedAsync's budget on `axis`, interpolated; lower is faster."""
    runs = (r for entry, r in study.select(role="curve") if entry.labels["method"].startswith("FedAsync"))
    points = next((len(result.history.evaluations["version"]) for result in runs), 2)
    grid = np.linspace(0, budget(study, axis), points)

    def mean(curve: pd.DataFrame, spec: RunSpec) -> float:
        return float(np.interp(grid, curve[AXES[axis]], curve["train_loss"]).mean())

    return judged(study, method, mean, **labels)


def areas_by_rate(study: Study) -> dict[tuple[float, float], BySeed]:
    """Return plain FedAsync's areas per gradient at the small staleness, by learning rate and alpha."""
    labels = {"max_staleness": options_of(study).max_staleness[0]}
    rates = sorted({entry.labels["lr"] for entry in study.entries})
    settings = product(rates, alphas(study))
    return {(lr, alpha): area(study, "gradients", "FedAsync", lr=lr, alpha=alpha, **labels) for lr, alpha in settings}


def over_rates(study: Study) -> pd.DataFrame:
    """Return those areas over SGD's, whose rate is chosen: a point for each learning rate, a curve for each alpha."""
    sgd, rows = area(study, "gradients", "SGD"), []
    for (lr, alpha), found in areas_by_rate(study).items():
        if ratios := found / sgd:
            values = pd.Series(ratios)
            of = {"x": lr, "method": "FedAsync", "alpha": alpha, "n": len(values)}
            rows.append(of | {"ratio": values.mean(), "ratio_std": values.std()})
    return pd.DataFrame(rows)


def oscillation(study: Study, method: str, **labels: object) -> BySeed:
    """Return by seed the standard deviation of test accuracy about its monotone fit, before alpha decays."""

    def shake(curve: pd.DataFrame, spec: RunSpec) -> float:
        assert isinstance(spec.algorithm, FedAsync)
        return unevenness(curve.loc[curve["version"] <= spec.algorithm.step_epoch, "test_accuracy"].to_numpy(float))

    return judged(study, method, shake, **labels)


def time_curves(study: Study) -> pd.DataFrame:
    """Return the curves of the runs with a clock over virtual seconds."""
    found = []
    for (method, alpha), runs in event_curves(study).items():
        table = mean_curve(pd.concat(runs.values()), "seconds", METRICS)
        found.append(table.assign(method=method, alpha=alpha, max_staleness=None, lr=LOCAL_LR))
    return pd.concat(found, ignore_index=True) if found else pd.DataFrame()


def event_curves(study: Study) -> dict[tuple[str, float | None], dict[int, pd.DataFrame]]:
    """Evaluations by method and alpha, then by seed; the last one is there twice if the budget ends with a period."""
    found: dict[tuple[str, float | None], dict[int, pd.DataFrame]] = {}
    for entry, result in study.select(role="event"):
        curve = result.history.evaluation_frame().drop_duplicates("seconds", keep="last")
        found.setdefault((entry.labels["method"], entry.labels["alpha"]), {})[entry.labels["seed"]] = curve
    return found


_curve = partial(exact_curve, alpha=np.nan)
CURVATURE, LR, STEPS = 1.0, 0.1, 5
"""The quadratic of the figures on stability and remaining error, and the steps of a local task in all figures."""


def staleness_functions(weights: Sequence[StalenessWeight], u: Sequence[float] | np.ndarray) -> pd.DataFrame:
    """Return s(u) of each of `weights` (FA-7), a curve each."""
    return pd.concat([_curve(str(weight), u, "weight", weight(np.asarray(u, float))) for weight in weights])


def bounds(alpha: float, max_staleness: int, steps: int, updates: int) -> pd.DataFrame:
    """Return the true error on toy Q, every upload as stale as allowed, and what three bounds say (D5, D7, E4)."""
    toy, t = theory.ToyQ(), np.arange(updates + 1)
    mu, v1, q = toy.strong_convexity, toy.grad_deviation_bound, theory.q_option1(toy.lr, toy.strong_convexity, steps)
    errors, norms, _ = toy.run(alpha, theory.oldest_versions(updates, max_staleness), steps)
    v2, start, b = v1 + norms.max(), errors[0], theory.beta(alpha, q)
    found = {
        "true error": errors,
        "theorem, printed": theory.printed_bound(t, start, b, theory.residual(toy.lr, mu, v1, v2)),
        "theorem, best constant": theory.printed_bound(t, start, b, theory.residual_tight(q, mu, v1, v2)),
        "repaired theorem": theory.derived_bound(t, start, theory.contraction_root(alpha, q, max_staleness), mu, v1),
    }
    return pd.concat([_curve(name, t, "error", values, alpha=alpha) for name, values in found.items()])


def stability(alphas: Sequence[float], ages: Sequence[int], steps: int = STEPS) -> pd.DataFrame:
    """Return the largest root of mixing models and of adding updates on a quadratic, by age (D2)."""
    q, forms = theory.local_factor(CURVATURE, LR, steps), (theory.mixing_characteristic, theory.delta_characteristic)
    return pd.concat([
        _curve(name, ages, "root", [theory.spectral_radius(form(alpha, q, age)) for age in ages], alpha=alpha)
        for name, form in zip(("mixing models", "adding updates"), forms, strict=True) for alpha in alphas
    ])  # fmt: skip


def remaining_error(alphas: Sequence[float] | np.ndarray, max_staleness: int, steps: int = 2 * STEPS) -> pd.DataFrame:
    """Return the exact error that remains when two devices disagree, by alpha, beside the bounds' floor (D9)."""
    p = theory.local_factor(CURVATURE, LR, steps)
    ages = {"fresh uploads": 1, f"ages 1 to {max_staleness}": max_staleness}
    found = {
        name: [theory.stationary_error(alpha, CURVATURE, p, 1.0, age) for alpha in alphas]
        for name, age in ages.items()
    }
    found["floor of the bounds"] = [CURVATURE / 2 for _ in alphas]  # V1 / (2 mu), V1 = a^2 Var(c)
    return pd.concat([_curve(name, alphas, "error", values) for name, values in found.items()])


def reduce_staleness_functions(study: Study) -> pd.DataFrame:
    """FEDASYNC-X1: the paper's functions with the study's parameters."""
    chosen = options_of(study)
    hinges = {Hinge(a=a, b=chosen.hinge_b): None for a in (chosen.hinge_a, chosen.sweep_hinge_a)}
    weights: tuple[StalenessWeight, ...] = (Linear(a=0.5), Polynomial(a=chosen.poly_a), Exponential(a=0.3), *hinges)
    return staleness_functions(weights, range(21))


def reduce_bounds(study: Study) -> pd.DataFrame:
    """FEDASYNC-X2: true error and bounds on toy Q."""
    chosen = options_of(study)
    return pd.concat([bounds(alpha, chosen.max_staleness[0], STEPS, 60) for alpha in chosen.alphas or (0.6,)])


def reduce_stability(study: Study) -> pd.DataFrame:
    """FEDASYNC-X3: mixing against adding, over age."""
    return stability(options_of(study).alphas or (0.2, 0.6, 0.9), range(1, 33))


def reduce_remaining_error(study: Study) -> pd.DataFrame:
    """FEDASYNC-X4: what remains, over alpha."""
    chosen = options_of(study)
    return remaining_error(chosen.sweep_alphas or np.geomspace(0.01, 1, 41), chosen.max_staleness[1])


def notation(study: Study) -> pd.DataFrame:
    """Return the paper's Table 1, corrected and completed (specification, section 1)."""
    return pd.read_csv(FOLDER / "notation.csv")


def network_table(study: Study) -> pd.DataFrame:
    """Return the paper's Table 2 beside the network that is really built: ``fedasync_cnn`` on 3x24x24 pixels.

    ``paper`` is printed, ``built`` the same in words read off the module; the last row is the total.
    """
    network = build_network("fedasync_cnn", (3, 24, 24), 10)
    shapes: dict[nn.Module, tuple[int, ...]] = {}
    for module in network.children():
        module.register_forward_hook(lambda module, _, output: shapes.update({module: tuple(output.shape[1:])}))
    network.eval()(torch.zeros(1, 3, 24, 24))
    rows: list[dict[str, Any]] = []
    layers: list[Any] = list(pd.read_csv(FOLDER / "layers.csv").itertuples(index=False))
    for layer, module in zip(layers[:-1], network.children(), strict=True):
        trained, shape = sum(p.numel() for p in module.parameters()), shapes[module]
        running = sum(v.numel() for v in module.state_dict().values() if v.is_floating_point()) - trained
        products = module.weight.numel() * prod(shape[1:]) if isinstance(module, nn.Conv2d | nn.Linear) else 0
        rows.append(
            {**layer._asdict(), "built": WORDS[type(module)].format(module), "output": "×".join(map(str, shape)),
             "parameters": trained, "statistics": running, "multiply_adds": products}
        )  # fmt: skip
    rows.append({**layers[-1]._asdict(), "built": "part of the loss"})
    columns = ("parameters", "statistics", "multiply_adds")
    rows.append({"layer": "total"} | {column: sum(row.get(column, 0) for row in rows) for column in columns})
    return pd.DataFrame(rows).astype(dict.fromkeys(columns, "Int64"))


def three_workers(study: Study) -> pd.DataFrame:
    """Return the timeline that completes Figure 1: three workers that need 3, 5 and 7 s, always busy (oracle O14).

    The run is a real one, of FedAsync on a trivial loss. A row is an arrival: ``base`` is the version that it started
    from, ``version`` the one that it made.
    """
    durations, count = {"A": 3.0, "B": 5.0, "C": 7.0}, 3
    simulation = Simulation(
        Quadratic([[1.0]] * count, [[0.0]] * count, [1.0]),
        World(devices=count, compute=TraceCompute(seconds_per_step=tuple(durations.values()))),
        FedAsync(concurrency=count), budget=Budget(updates=12), training=LocalTraining(steps=1),
    )  # fmt: skip
    updates = simulation.run().update_frame()
    worker, end = updates["device"].map(dict(enumerate(durations))), updates["seconds"].astype(float)
    columns = {"worker": worker, "start": end - worker.map(durations), "end": end}
    base = updates["version"] - 1 - updates["staleness"]
    return pd.DataFrame({**columns, "base": base, **updates[["version", "staleness"]]})


WORDS: dict[type[nn.Module], str] = {
    nn.Conv2d: "convolution, {0.out_channels} channels, kernel {0.kernel_size[0]}, padding {0.padding[0]}",
    nn.ReLU: "activation", nn.BatchNorm2d: "batch normalisation", nn.MaxPool2d: "max pooling, size {0.kernel_size}",
    nn.Flatten: "flatten", nn.Linear: "dense, {0.out_features} outputs",
    Dropout: "dropout, probability {0.probability:g}",
}  # fmt: skip
"""A built layer in the words of Table 2."""

Point = tuple[float, float]


def system(timeline: pd.DataFrame) -> Figure:
    """Draw FedAsync's Figure 1: who sends what to whom, and below it what that looks like in time."""
    with drawing((5.8, 6.4), 2, height_ratios=(1.75, 1)) as (figure, (above, below)):
        _roles(above)
        _workers(below, timeline)
    return figure


def _roles(axis: Axes) -> None:
    axis.set(xlim=(0, 10), ylim=(0, 7.4))
    axis.axis("off")
    axis.set_title("(a) the system")
    _box(axis, (5.35, 0.35), 4.5, 6.7, "server", edge=GREY, fill="#F6F6F6", top=True)
    _box(axis, (5.8, 4.9), 3.6, 1.1, "scheduler", edge=GREEN)
    _box(axis, (5.8, 2.9), 3.6, 1.1, "global model $x_t$, version $t$", edge=BLACK)
    _box(axis, (7.4, 0.85), 2.0, 1.1, "updater", edge=VERMILION)
    _box(axis, (5.8, 0.95), 1.15, 0.9, "queue", edge=ORANGE)
    for row, (name, state, edge, fill) in enumerate(
        (("worker 1", "working", BLUE, "#E3F0F8"), ("worker 2", "idle", GREY, "white"),
         ("worker n", "working", BLUE, "#E3F0F8"))
    ):  # fmt: skip
        _box(axis, (0.15, 4.95 - 2.1 * row), 2.2, 1.1, f"{name}\n{state}", edge=edge, fill=fill)
    _arrow(axis, (5.8, 5.75), (2.4, 5.75), "0  trigger", GREEN)
    _arrow(axis, (5.75, 3.75), (2.4, 5.2), "1, 2  receive $x_\\tau$, $\\tau$", BLACK, lift=-0.6)
    axis.text(1.25, 4.75, "3  train", ha="center", va="top", fontsize=SMALL, color=BLUE)
    _arrow(axis, (2.4, 1.25), (5.75, 1.25), "4–6  push $x_{\\mathrm{new}}$, $\\tau$", ORANGE)
    _arrow(axis, (7.0, 1.4), (7.4, 1.4), "", ORANGE)
    _arrow(axis, (8.4, 2.0), (8.4, 2.85), "7, 8  mix", VERMILION, aside=True)
    _arrow(axis, (7.6, 4.05), (7.6, 4.85), "read", GREEN, aside=True)


def _workers(axis: Axes, timeline: pd.DataFrame) -> None:
    names = sorted(timeline["worker"].unique())
    for place, name in enumerate(names):
        own = timeline[timeline["worker"] == name]
        axis.barh(place, own["end"] - own["start"], left=own["start"], height=0.6, color=SKY, ec="white", lw=1.5)
        for end, version, staleness in own[["end", "version", "staleness"]].itertuples(index=False, name=None):
            axis.text(end - 0.12, place, f"{staleness}", ha="right", va="center", fontsize=SMALL, color="#111111")
            axis.text(end, place - 0.34, f"{version}", ha="center", va="bottom", fontsize=SMALL, color=VERMILION)
    axis.set(yticks=range(len(names)), ylim=(len(names) - 0.5, -0.8), xlabel="virtual time (s)", xlim=(0, 20.6))
    axis.set_yticklabels([f"worker {name}" for name in names])
    axis.set_title("(b) three workers: staleness inside, version made above")
    axis.grid(visible=False, axis="y")


def _box(
    axis: Axes, at: Point, width: float, height: float, text: str, edge: str, fill: str = "white", top: bool = False
) -> None:
    box = "round,pad=0.05,rounding_size=0.12"
    axis.add_patch(FancyBboxPatch(at, width, height, box, ec=edge, fc=fill, lw=1.4))
    x, y = at[0] + width / 2, at[1] + (height - 0.12 if top else height / 2)
    axis.text(x, y, text, ha="center", va="top" if top else "center", fontsize=SMALL)


def _arrow(
    axis: Axes, start: Point, end: Point, text: str, colour: str, lift: float = 0.12, aside: bool = False
) -> None:
    look: Any = {"arrowstyle": "-|>", "mutation_scale": 12, "color": colour, "lw": 1.4, "shrinkA": 0, "shrinkB": 0}
    axis.add_patch(FancyArrowPatch(start, end, **look))
    x, y = (start[0] + end[0]) / 2, (start[1] + end[1]) / 2
    place = (x + 0.12, y) if aside else (x - max(0, -lift) / 3, y + lift)
    ways = ("left", "center") if aside else ("center", "bottom" if lift > 0 else "top")
    axis.text(*place, text, ha=ways[0], va=ways[1], fontsize=SMALL, color=colour)


def explore_staleness() -> Explorable:
    """Let the reader choose alpha, staleness and what a task leaves of the error: FedAsync's step on a quadratic."""

    def errors(alpha: float, missed: float, q: float, updates: int = 60) -> dict[str, list[float]]:
        found: dict[str, list[float]] = {"x": list(range(updates + 1))}
        methods = {"plain": FedAsync(alpha=alpha), "+Poly": FedAsync(alpha=alpha, weight=Polynomial())}
        for name, method in methods.items():
            models = [torch.ones(1, dtype=torch.float64)]
            for version in range(updates):
                uploaded = q * models[max(0, version - int(missed))]
                staleness = version - max(0, version - int(missed))
                models.append(method.combine(models[-1], uploaded, version + 1, staleness).model)
            found[name] = [abs(float(model)) + FLOOR for model in models]
        return found

    sliders = (
        Slider("alpha", "mixing weight α", 0.05, 1.0, 0.05, 0.6),
        Slider("missed", "staleness of every upload", 0, 16, 1, 4),
        Slider("q", "what a task leaves of the error", 0.0, 0.95, 0.05, 0.5),
    )
    title = "Error of FedAsync on a quadratic"
    return Explorable(title, sliders, errors, asset("staleness.js", __file__), "update", log=True, dashes=("", "6 3"))


FLOOR = 1e-12  # Added to an error, so that it has a logarithm; also in staleness.js.
