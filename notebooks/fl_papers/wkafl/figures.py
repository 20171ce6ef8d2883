"""What WKAFL's figures and tables show: accuracy in panels, and print beside both modes of staleness.

Then what is computed for Figures 1, 3 and 4, a run that compares every gradient with the true one (C32), and the
drawings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Patch
from torch import Tensor

from fl_core.algorithms import WKAFL
from fl_core.datasets import WKAFLPartition
from fl_core.experiments.claims import Judgement
from fl_core.experiments.measures import mean_curve, mean_text
from fl_core.experiments.spec import RunSpec
from fl_core.experiments.study import Study
from fl_core.formulas.wkafl import Aggregation, clip, similarities
from fl_core.report.explorable import Comparison, Explorable, Mark, Slider, in_units
from fl_core.report.figures import draw_curve
from fl_core.report.interactive import asset
from fl_core.report.style import BLACK, BLUE, GREEN, GREY, ORANGE, SKY, SMALL, VERMILION, drawing, line_of
from fl_core.runtime import Budget, Evaluation, LocalTraining, ServerHandle
from fl_core.world import World
from fl_papers.wkafl import experiment
from fl_papers.wkafl.experiment import ABLATIONS, COMPARED, MODES, PLACE, Cell, Measure, final, levels, name_of, skews
from fl_papers.wkafl.theory import k_asynchronous, predominated, stale_cloud

SURVIVES: dict[tuple[str, str], str] = {
    ("holds", "holds"): "yes",
    ("holds", "opposite"): "yes, and only with true staleness",
    ("opposite", "holds"): "no: only on shared memory",
    ("equal", "holds"): "no difference left; holds on shared memory",
    ("open", "holds"): "not decided; holds on shared memory",
}
"""What becomes of a claim once staleness is true, by its direction then and on shared memory."""
DURATIONS = (1.0, 1.5, 2.5, 4.2)  # Seconds per gradient of the four clients of Figure 1.
CLIP_BOUND = 1.2  # CB in Figure 4, where the true gradient has length 1.
PROBE_CLIENTS, PROBE_UPDATES, PROBE_EVERY = 100, 150, 5
"""P and J of a probe, and how often it computes the true gradient."""
PROBE_SEEDS = range(20)
AGES = {"0 to 2": 2, "3 to 5": 5, "6 to 10": 10, "11 to 20": 20, "21 to 40": 40, "more": np.inf}

Rows = list[dict[str, Any]]


# Figures of runs


def panels(study: Study, cells: Iterable[Cell], methods: Iterable[str], snapshots: Sequence[str]) -> pd.DataFrame:
    """Return the mean accuracy of each method in each cell over updates, at measurements that all seeds have.

    ``panel`` is the cell in words, ``mode`` that of staleness (empty for true staleness alone).
    """
    found = []
    for cell, method, snapshot in product(cells, methods, snapshots):
        if runs := study.select(method=method, lr_factor=1.0, **{**cell, "snapshot": snapshot}):
            points = pd.concat([experiment.measurements(result) for _, result in runs])
            table = mean_curve(points, "version", ["test_accuracy"])
            mode = "" if tuple(snapshots) == ("copy",) else MODES[snapshot]
            table = table[table["n"] == table["n"].max()]
            found.append(table.assign(panel=name_of(cell), method=method, mode=mode))
    return pd.concat(found, ignore_index=True) if found else pd.DataFrame()


def first_mode(study: Study) -> tuple[str]:
    """Return the mode of staleness that figures of one show: the true one, unless all runs have others."""
    found = {entry.labels.get("snapshot") for entry in study.entries}
    return (next((mode for mode in MODES if mode in found), "copy"),)


def by_level(study: Study, snapshots: Sequence[str] = ()) -> pd.DataFrame:
    """Return the curves of Figures 7 and 8, a panel for each level of staleness."""
    snapshots = snapshots or first_mode(study)
    return panels(study, levels(study, snapshots[0]), ("WKAFL", "TWAFL", "SASGD"), snapshots)


def by_skew(study: Study) -> pd.DataFrame:
    """Return the curves of Figures 9 and 10, a panel for each number of labels; of Figure 6 where there is none."""
    return panels(study, skews(study, *first_mode(study)), COMPARED, first_mode(study))


def by_component(study: Study) -> pd.DataFrame:
    """Return the curves of Figure 5, a panel for each mode of staleness."""
    found = []
    for snapshot, words in MODES.items():
        cells = [cell for cell in levels(study, snapshot) if study.select(method="No Staleness", **cell)]
        found.append(panels(study, cells, ("WKAFL", *ABLATIONS), (snapshot,)).assign(panel=words, mode=""))
    return pd.concat([frame for frame in found if len(frame)] or found[:1], ignore_index=True)


def shares(study: Study) -> list[Cell]:
    """Return the cells of Appendix A: no Byzantine uploads, and with a share of them."""
    found = sorted({entry.labels["byzantine"] for entry, _ in study.select(role="byzantine")})
    return [{"role": "byzantine", "byzantine": share} for share in found]


def byzantine(study: Study) -> pd.DataFrame:
    """Return the curves of Appendix A, a panel for each share of Byzantine uploads."""
    return panels(study, shares(study), ("WKAFL", "Zeno++"), ("copy",))


def comparison(study: Study, without: Study) -> Comparison:
    """Return the curves of Figures 5 to 10, and those on shared memory, for a reader to examine.

    Marks are the final accuracies that Tables 2 and 3 print, of the paper's own data.
    """
    settings: dict[str, dict[str, dict[int, pd.DataFrame]]] = {}
    marks = []
    printed = partial(experiment.PRINTED.number, task=experiment.task_of(study.dataset), quantity="accuracy")
    for mode, words in MODES.items():
        compared = {name_of(cell): cell for cell in (*levels(study, mode), *skews(study, mode))}
        ablated = {f"{name_of(cell)}, components": cell for cell in levels(without, mode)}
        for own, cells, methods in ((study, compared, COMPARED), (without, ablated, ("WKAFL", *ABLATIONS))):
            for (name, cell), method in product(cells.items(), methods):
                settings.setdefault(f"{name}, {words}", {})[method] = {
                    entry.labels["seed"]: in_units(experiment.measurements(result))
                    for entry, result in own.select(method=method, lr_factor=1.0, **cell)
                }
                value = printed(method=method, **{key: cell[key] for key in PLACE}) if own is study else None
                marks += [] if value is None else [Mark(f"{name}, {words}", method, value)]
    axes = {"version": "updates", "seconds": "virtual time (s)", "gigabytes": "GB uploaded"}
    return Comparison("WKAFL comparison", settings, axes, {"test_accuracy": "test accuracy"}, "WKAFL", marks)


def predominating(study: Study) -> pd.DataFrame:
    """Return Figure 2 a: how often so many gradients of an update weigh more than 0.1.

    ``count`` is from 0 to the largest found, ``share`` of the updates.
    """
    runs = study.by_seed(role="motivation").values()
    if not runs:
        return pd.DataFrame()
    found = [np.reshape(result.history.updates["weight"], (-1, e.labels["aggregated"])) for e, result in runs]
    table = np.array([np.bincount(predominated(w), minlength=w.shape[1] + 1) / len(w) for w in found])
    used = slice(0, int(np.flatnonzero(table.any(axis=0)).max()) + 1)
    spread = table.std(axis=0, ddof=1) if len(table) > 1 else np.full(table.shape[1], np.nan)
    columns = {"count": np.arange(table.shape[1]), "share": table.mean(axis=0), "share_std": spread, "n": len(table)}
    return pd.DataFrame(columns)[used]


# Tables of runs


def staleness_table(study: Study) -> pd.DataFrame:
    """Return Table 2: final accuracy by level of staleness, printed and in both modes, as text."""
    return _beside_print(study, "table2", levels, ("WKAFL", "TWAFL", "SASGD"), {"accuracy": (final, 3)})


def skew_table(study: Study) -> pd.DataFrame:
    """Return Table 3: final accuracy and stability by label skew, printed and in both modes, as text."""
    measures = {"accuracy": (final, 3), "stability": (experiment.unrest, 4)}
    return _beside_print(study, "table3", skews, ("WKAFL", "TWAFL", "GSGM", "SASGD"), measures)


def _beside_print(
    study: Study, source: str, cells: Callable[[Study, str], list[Cell]], methods: Sequence[str],
    measures: Mapping[str, tuple[Measure, int]],
) -> pd.DataFrame:  # fmt: skip
    """Return measures, each with its digits, in the cells that either mode has; without a mode that has no runs."""
    rows: Rows = []
    for place in dict.fromkeys(tuple(cell[name] for name in PLACE) for mode in MODES for cell in cells(study, mode)):
        cell: Cell = {**dict(zip(PLACE, place, strict=True)), "role": "curve"}
        for method in methods:
            row: dict[str, Any] = {"cell": name_of(cell), "method": method}
            seeds = 0
            for what, (measure, digits) in measures.items():
                printed = {"source": source, "task": experiment.task_of(study.dataset), "quantity": what}
                value = experiment.PRINTED.number(**printed, method=method, **dict(zip(PLACE, place, strict=True)))
                row[f"{what}, printed"] = None if value is None else f"{value:.4f}"
                for mode, words in MODES.items():
                    found = experiment.measured(study, measure, method, {**cell, "snapshot": mode}).values()
                    finite = [value for value in found if not np.isnan(value)]
                    row[f"{what}, {words}"] = mean_text(finite, digits) if finite else None
                    seeds = max(seeds, len(finite))
            if seeds:
                rows.append({**row, "seeds": seeds})
    return pd.DataFrame(rows).dropna(axis=1, how="all")


def survival_table(judgements: Iterable[Judgement]) -> pd.DataFrame:
    """Return what the claims that were judged in both modes come to with true staleness and on shared memory."""
    found, rows = {each.claim.id: each for each in judgements}, []
    for name, true in found.items():
        aliased = found.get(f"{name}-aliased")
        if aliased is not None and true.effects and aliased.effects:
            otherwise = {"holds": "yes; not decided on shared memory", "open": "not decided"}
            survives = SURVIVES.get((true.direction, aliased.direction), otherwise.get(true.direction, "no"))
            rows.append({"claim": name.partition("-")[2], "the paper says": true.claim.statement,
                         MODES["copy"]: true.label, MODES["aliased"]: aliased.label,
                         "survives": survives})  # fmt: skip
    return pd.DataFrame(rows)


def byzantine_table(study: Study) -> pd.DataFrame:
    """Return what WKAFL and Zeno++ reach with and without Byzantine uploads, and how many gradients they take."""
    rows: Rows = []
    for cell, method in product(shares(study), ("WKAFL", "Zeno++")):
        if runs := [result for _, result in study.select(method=method, **cell)]:
            outcomes = [run.history.outcomes for run in runs]
            rows.append(
                {"Byzantine uploads": f"{100 * cell['byzantine']:g}%", "method": method,
                 "accuracy": mean_text([final(run) for run in runs]),
                 "updates": f"{np.mean([run.history.evaluations['version'][-1] for run in runs]):,.0f}",
                 "gradients used": f"{np.mean([each.get('applied', 0) for each in outcomes]):,.0f}",
                 "refused": f"{np.mean([each.get('discarded', 0) for each in outcomes]):,.0f}", "seeds": len(runs)}
            )  # fmt: skip
    return pd.DataFrame(rows)


def rates_table(study: Study) -> pd.DataFrame:
    """Return GSGM's final accuracy and its last loss at each learning rate, as text."""
    lr, rows = experiment.WKAFLExperiment.setup_of(study.dataset).others["GSGM"]["lr"], []
    for cell, factor in product(skews(study, "copy"), experiment.GSGM_FACTORS):
        if runs := [result for _, result in study.select(method="GSGM", lr_factor=factor, **cell)]:
            losses = [result.history.evaluations["test_loss"][-1] for result in runs]
            rows.append(
                {"cell": name_of(cell), "learning rate": f"{factor * lr:g}",
                 "accuracy": mean_text([final(result) for result in runs]),
                 "largest loss at the end": f"{max(losses):.3g}" if np.isfinite(losses).all() else "not finite",
                 "seeds": len(runs)}
            )  # fmt: skip
    return pd.DataFrame(rows)


def tuned_table(study: Study) -> pd.DataFrame:
    """Return the final accuracy of each method with the factors of its learning rate, as text."""
    rows = []
    for cell, method in product(skews(study, "copy"), experiment.COMPARED):
        found = {f: study.select(method=method, lr_factor=f, **cell) for f in experiment.TRIALS}
        ends = {f"× {f:g}": mean_text([final(result) for _, result in each]) for f, each in found.items() if each}
        rows.append({"cell": name_of(cell), "method": method, **ends})
    return pd.DataFrame(rows)


# What is computed


def four_clients() -> pd.DataFrame:
    """Return Figure 1: every gradient of four clients up to the sixth update, K = 2; ``used`` is NaN after it."""
    made = k_asynchronous(lambda client, job: DURATIONS[client], len(DURATIONS), 2, 6)
    start, rows = [0.0] * len(DURATIONS), []
    for clients, staleness, seconds in zip(made.clients, made.staleness, made.seconds, strict=True):
        for client, missed in zip(clients, staleness, strict=True):
            rows.append((int(client), start[client], start[client] + DURATIONS[client], seconds, float(missed)))
            start[client] = float(seconds)
    end = float(made.seconds[-1])
    rows += [(i, s, min(end, s + DURATIONS[i]), np.nan, np.nan) for i, s in enumerate(start) if s < end]
    return pd.DataFrame(rows, columns=["client", "start", "finished", "used", "staleness"])


def steps() -> pd.DataFrame:
    """Return Figure 3: the five steps of the method, with formula and place."""
    return pd.read_csv(Path(__file__).with_name("steps.csv"))


def clipped_vectors() -> pd.DataFrame:
    """Return Figure 4 in the plane: the true gradient, five gradients, the estimate, and both after clipping."""
    truth = torch.tensor([1.0, 0.0], dtype=torch.float64)
    spread = 0.3 / 2**0.5, 0.5 / 2**0.5  # of each of the two entries
    cloud = stale_cloud(truth, 5, CLIP_BOUND, np.random.default_rng(45), spread)
    rows: list[tuple[str, bool, float, float, float]] = [("true gradient", False, np.nan, 1.0, 0.0)]
    shown = (cloud.gradients, cloud.estimate), (clip(cloud.gradients, CLIP_BOUND), cloud.clipped_estimate)
    for clipped, (gradients, mean) in enumerate(shown):
        rows += [("gradient", bool(clipped), float(age), *each.tolist()) for age, each in enumerate(gradients)]
        rows.append(("estimate", bool(clipped), np.nan, *mean.tolist()))
    return pd.DataFrame(rows, columns=["what", "clipped", "staleness", "x", "y"])


@cache
def probe(model: str = "linear", lr: float = 0.05, seed: int = 0) -> pd.DataFrame:
    """Run WKAFL with K = 10 on Fashion-MNIST, and compare gradients with grad F at the model that they are used on.

    One label per client, pixels in [0, 1]. A row for each gradient of every fifth update after the first P / K:
    ``update``, ``staleness``, ``cosine`` with the true gradient, ``selected``.
    """
    rows: list[tuple[int, float, float, bool]] = []
    servers: list[ServerHandle] = []

    class Probe(WKAFL):
        async def updater(self, server: ServerHandle) -> None:
            servers[:] = [server]
            await super().updater(server)

        def combine(self, gradients: Tensor, staleness: Tensor, *state: Any) -> Aggregation:
            [server], made = servers, super().combine(gradients, staleness, *state)
            if server.version >= PROBE_CLIENTS // 10 and server.version % PROBE_EVERY == 0:
                truth = server.gradient(np.arange(server.num_samples)).gradient
                found = staleness.tolist(), similarities(gradients, truth).tolist(), (made.weights > 0).tolist()
                rows.extend((server.version + 1, *each) for each in zip(*found, strict=True))
            return made

    spec = RunSpec(
        dataset="fashion-mnist", partition=WKAFLPartition(labels_per_device=1), model=model,
        world=World.named("wkafl", devices=PROBE_CLIENTS), algorithm=WKAFL(), training=LocalTraining(batch_size=4),
        budget=Budget(updates=PROBE_UPDATES), evaluation=Evaluation(every_updates=None), seed=seed,
    )  # fmt: skip
    simulation = spec.simulation()
    simulation.algorithm = Probe(lr=lr, clip_bound=10.0, sim_beta=10.0)
    simulation.run("sequential")
    return pd.DataFrame(rows, columns=["update", "staleness", "cosine", "selected"])


def by_age() -> pd.DataFrame:
    """Return mean cosine and share of selected gradients by staleness, over the probes' seeds, as text."""
    frame = pd.concat([probe(seed=seed) for seed in PROBE_SEEDS])
    ages = pd.cut(frame["staleness"], [-1, *AGES.values()], labels=list(AGES))
    grouped = frame.groupby(ages, observed=True)
    return pd.DataFrame(
        {"staleness": list(grouped.groups), "gradients": grouped.size().to_numpy(),
         "mean cosine with the true gradient": grouped["cosine"].mean().to_numpy(),
         "selected": [f"{share:.0%}" for share in grouped["selected"].mean()]}
    )  # fmt: skip


# Drawings


def draw_panels(frame: pd.DataFrame) -> Figure:
    """Draw accuracy over updates (:func:`panels`), the panels below one another; dashes tell modes apart."""
    names, methods, modes = (list(frame[column].unique()) for column in ("panel", "method", "mode"))
    height = 2.5 * len(names) + 0.24 * (1 + -(-len(methods) * len(modes) // 2))
    with drawing((5.6, height), len(names), sharex=True, sharey=True, squeeze=False) as (figure, axes):
        for axis, name in zip(axes[:, 0], names, strict=True):
            own = frame[frame["panel"] == name]
            for (method, mode), curve in own.groupby(["method", "mode"], sort=False):
                draw_curve(axis, curve, "test_accuracy", line_of(str(method), modes.index(mode)))
            axis.set_title(name)
            axis.margins(x=0.02)
        axes[len(names) // 2, 0].set_ylabel("test accuracy")
        axes[-1, 0].set_xlabel("updates of the model")
        handles = [
            Line2D([], [], label=f"{method}, {mode}" if mode else method, **line_of(method, modes.index(mode)))
            for method, mode in frame[["method", "mode"]].drop_duplicates().itertuples(index=False, name=None)
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=2, handlelength=3.2)
    return figure


def draw_timeline(jobs: pd.DataFrame) -> Figure:
    """Draw what each client computes, and which gradients make an update (:func:`four_clients`)."""
    with drawing((5.8, 3.7)) as (figure, axis):
        waits: dict[str, Any] = {"fc": "white", "ec": GREY, "hatch": "////"}
        for job in jobs.to_dict("records"):
            used = np.isfinite(job["used"])
            axis.barh(job["client"], job["finished"] - job["start"], left=job["start"], height=0.5,
                      color=SKY if used else "white", ec=BLUE if used else GREY, lw=0.8)  # fmt: skip
            if used:
                axis.barh(job["client"], job["used"] - job["finished"], left=job["finished"], height=0.5, lw=0.5,
                          **waits)  # fmt: skip
                axis.text(job["finished"] - 0.06, job["client"], f"{job['staleness']:.0f}", ha="right", va="center",
                          fontsize=SMALL, color="#111111")  # fmt: skip
        for number, seconds in enumerate(sorted(jobs["used"].dropna().unique()), 1):
            axis.axvline(seconds, color=VERMILION, lw=1, zorder=0)
            axis.text(seconds, -0.62, f"{number}", ha="center", va="bottom", fontsize=SMALL, color=VERMILION)
        axis.set(yticks=range(4), ylim=(3.5, -0.6), xlabel="virtual time (s)", xlim=(0, jobs["used"].max() + 0.1))
        axis.set_yticklabels([f"client {number}" for number in range(4)])
        axis.grid(visible=False)
        patches = [Patch(fc=SKY, ec=BLUE, label="gradient that is used"),
                   Patch(fc="white", ec=GREY, label="under way"),
                   Patch(label="waits for the update", **waits),
                   Line2D([], [], color=VERMILION, label="update, with its number")]  # fmt: skip
        figure.legend(handles=patches, loc="outside lower center", ncols=2)
    return figure


def draw_histogram(frame: pd.DataFrame) -> Figure:
    """Draw how often so many gradients predominate (:func:`predominating`)."""
    with drawing((5.6, 3.2)) as (figure, axis):
        axis.bar(frame["count"], frame["share"], color=BLUE, width=0.7)
        if frame["share_std"].notna().any():
            axis.errorbar(frame["count"], frame["share"], frame["share_std"], fmt="none", ecolor=BLACK, capsize=3)
        axis.set(xticks=frame["count"], xlabel="gradients that weigh more than 0.1", ylabel="share of the updates")
        axis.grid(visible=False, axis="x")
    return figure


def draw_conflict(sweep: pd.DataFrame) -> Figure:
    """Draw average staleness over the average number of gradients, with a line through the points (Figure 2 b)."""
    x, y = sweep["gradients"].to_numpy(), sweep["staleness"].to_numpy()
    slope, start = np.polyfit(x, y, 1)
    with drawing((5.6, 3.6)) as (figure, axis):
        axis.plot(x, start + slope * x, "--", color=GREY, label=f"line through the points, slope {slope:.2f}")
        axis.plot(x, y, "o", color=BLUE, mfc=BLUE, label="weights $e^{-\\lambda\\tau}$")
        for decay, left, high in zip(sweep["decay"], x, y, strict=True):
            if decay <= 0.1 or decay == sweep["decay"].max():
                axis.annotate(f"λ = {decay:g}", (left, high), (6, -11), textcoords="offset points", fontsize=10)
        axis.set(xlabel="average number of gradients that count", ylabel="average staleness")
        axis.margins(x=0.12)
        figure.legend(loc="outside lower center", ncols=2)
    return figure


def draw_vectors(frame: pd.DataFrame) -> Figure:
    """Draw five gradients and the estimate before and after clipping (:func:`clipped_vectors`)."""
    looks = {"true gradient": (BLACK, 2.0), "gradient": (SKY, 1.3), "estimate": (VERMILION, 2.6)}
    truth = frame[frame["what"] == "true gradient"]
    with drawing((5.6, 6.2), 2) as (figure, axes):
        for axis, clipped in zip(axes, (False, True), strict=True):
            own = pd.concat([frame[(frame["clipped"] == clipped) & (frame["what"] != "true gradient")], truth])
            for row in own.to_dict("records"):
                (colour, width), end = looks[row["what"]], (row["x"], row["y"])
                arrow = {"arrowstyle": "-|>", "color": colour, "lw": width, "shrinkA": 0, "shrinkB": 0}
                axis.annotate("", end, (0, 0), arrowprops=arrow)
                if row["what"] == "gradient":
                    axis.annotate(f"{row['staleness']:.0f}", end, (5, 5), textcoords="offset points", fontsize=10)
            points = np.vstack([own[["x", "y"]].to_numpy(), [[0, 0]]])
            low, high = points.min(axis=0), points.max(axis=0)
            half, middle = 1.2 * max((high - low)[0] / 2, (high - low)[1]), (low + high) / 2
            axis.set_xlim(middle[0] - half, middle[0] + half)
            axis.set_ylim(middle[1] - half / 2, middle[1] + half / 2)
            axis.set_box_aspect(0.5)
            axis.set_title("(b) clipped at 1.2" if clipped else "(a) as they arrive; a number is staleness")
        handles = [Line2D([], [], color=colour, lw=2, label=name) for name, (colour, _) in looks.items()]
        figure.legend(handles=handles, loc="outside lower center", ncols=3)
    return figure


def draw_steps(frame: pd.DataFrame) -> Figure:
    """Draw the five steps of the method (:func:`steps`)."""
    count, edges = len(frame), {"clients": GREEN, "server": BLUE}
    with drawing((5.6, 5.4)) as (figure, axis):
        axis.set(xlim=(1, 11), ylim=(-0.3, count))
        axis.axis("off")
        for place, row in enumerate(frame.to_dict("records")):
            y, edge = count - 1 - place, edges[row["where"]]
            box = "round,pad=0.05,rounding_size=0.1"
            axis.add_patch(FancyBboxPatch((1.2, y + 0.1), 7.6, 0.66, box, ec=edge, fc="white", lw=1.4))
            axis.text(1.4, y + 0.43, f"{place + 1}", va="center", fontsize=12, color=edge)
            axis.text(2.0, y + 0.57, row["step"], va="center", fontsize=10)
            axis.text(2.0, y + 0.27, row["formula"], va="center", fontsize=10, color=BLACK)
            if place:
                axis.add_patch(FancyArrowPatch((5, y + 1.05), (5, y + 0.83), arrowstyle="-|>", mutation_scale=11,
                                               color=GREY, lw=1.3))  # fmt: skip
        axis.add_patch(FancyArrowPatch((8.9, 0.43), (8.9, count - 0.57), connectionstyle="arc3,rad=0.35",
                                       arrowstyle="-|>", mutation_scale=12, color=ORANGE, lw=1.4))  # fmt: skip
        axis.text(10.6, count / 2, "new model, to the K clients", rotation=90, va="center", ha="center", fontsize=10,
                  color=ORANGE)  # fmt: skip
        handles = [Patch(fc="white", ec=edge, label=where) for where, edge in edges.items()]
        figure.legend(handles=handles, loc="outside lower center", ncols=2)
    return figure


# Estimate and select, for a reader to move

FRIENDS = ((25.0, 0.0), (-18.0, 0.0), (7.0, 1.0), (-40.0, 2.0))
"""Angle to the true gradient (degrees) and staleness of four gradients of length 1; also in selection.js."""


def explore_selection() -> Explorable:
    """Let the reader turn and age a fifth gradient in the plane: what mean, estimate and selection make of it."""

    def cosines(staleness: float, length: float, sim_beta: float, sim_min: float) -> dict[str, list[float]]:
        found: dict[str, list[float]] = {"x": [*range(-180, 181, 4)], "mean": [], "estimate": [], "selection": []}
        ages = torch.tensor([*(age for _, age in FRIENDS), staleness], dtype=torch.float64)
        method = WKAFL(sim_beta=sim_beta, sim_min=sim_min, clip_bound=None)
        for angle in found["x"]:
            turns = torch.deg2rad(torch.tensor([*(turn for turn, _ in FRIENDS), angle], dtype=torch.float64))
            gradients = torch.stack([turns.cos(), turns.sin()], dim=1)
            gradients[-1] *= length
            made = method.combine(gradients, ages, None, stage=1)
            for name, vector in zip([*found][1:], (gradients.mean(0), made.estimate, made.gradient), strict=True):
                found[name].append(float(vector[0] / vector.norm()))
        return found

    sliders = (
        Slider("staleness", "its staleness", 0, 20, 1, 1), Slider("length", "its length", 0.2, 10, 0.2, 3),
        Slider("sim_beta", "sharpness β", 0, 30, 1, 10), Slider("sim_min", "least similarity", 0, 0.9, 0.05, 0.3),
    )  # fmt: skip
    return Explorable(
        "Estimate and select", sliders, cosines, asset("selection.js", __file__),
        "angle of the fifth gradient to the true one (degrees)", range=(-1, 1), dashes=("3 3", "8 3", ""),
    )  # fmt: skip
