"""FedLuck's tables, each number beside the one that the paper prints, and what formulas alone say of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
import pandas as pd
import scipy
from numpy.typing import NDArray

from fl_core.experiments.evidence import PLAIN, POINTS, RATIO, Censored, Effect
from fl_core.experiments.measures import BySeed, Printed, mean_curve, mean_text, passages
from fl_core.experiments.study import Entry, Study
from fl_core.formulas.fedluck import SOLVERS, Box, job_seconds, key_convergence_factor, plan_devices, rounds_per_job
from fl_core.report.explorable import Comparison, Mark
from fl_papers.fedluck import experiment, figures, theory
from fl_papers.fedluck.experiment import (
    BASELINES,
    LABELS,
    METHODS,
    SINGLE,
    TASKS,
    Target,
    mean_accuracy,
    measured,
    targets,
)
from fl_papers.fedluck.experiment import FedLuckExperiment as Runs
from fl_papers.fedluck.figures import Reached, compared, final_accuracy, reach, size_factor, speeds
from fl_papers.fedluck.theory import BYTES_PER_GB

Array = NDArray[np.float64]

PRINTED = Printed(__file__)
"""Tables 1 and 2, and what the text quotes of Figures 1 to 3: where a number stands (``source``), the task by its
network, the partition, the method, the quantity, the target accuracy if it has one, and the number. Accuracies,
savings and reductions are fractions, times are seconds since the first aggregation, a gigabyte is 2^30 bytes."""
ROWS = {"frequency only": "Opt. CR", "compression only": "Opt. LF"}
"""Rows of Table 2 by what they optimise, as the text defines their names (E12)."""
SWAPPED = {"frequency only": "Opt. LF", "compression only": "Opt. CR"}
"""The other reading: the names mean what is optimised."""


def number(
    task: str, method: str, quantity: str, target: float | None = None, partition: str = "iid"
) -> float | None:
    """Return the number that is printed for a method on a task ("cnn", "vgg11s", "lstm"), or None."""
    return PRINTED.number(task=task, method=method, quantity=quantity, partition=partition, target=target)


def quoted(quantity: str) -> float:
    """Return a number that the text states over all tasks, such as ``"time reduction"``."""
    found = PRINTED.number(quantity=quantity, task="")
    assert found is not None
    return found


def decoded_topk() -> pd.DataFrame:
    """Return Table 1's numbers of FedAvg+Topk beside those that follow from the world without training (6.4)."""
    rows = []
    for cell, (title, setup) in TASKS.items():
        steps, delta = setup.fedavg_topk
        length = theory.synchronous_round_seconds(steps, delta, *speeds(cell))
        for target in setup.targets["dirichlet"]:
            printed = [number(cell, "FedAvg+TopK", q, target, "dirichlet") for q in ("seconds", "gigabytes")]
            count = theory.rounds_at(printed[0], length)
            totals = theory.synchronous_totals(count, length, delta, setup.parameters, 10)
            texts = [f"{value:.2f}" for value in (*printed, *totals)]
            rows.append(
                {"task": title, "target": target, "rounds": count, "printed seconds": texts[0],
                 "computed seconds": texts[2], "printed GB": texts[1], "computed GB": texts[3]}
            )  # fmt: skip
    return pd.DataFrame(rows)


def decoded_fedluck() -> pd.DataFrame:
    """Return FedLuck's gigabytes of Table 1 beside those that its plan predicts at the printed times (6.4).

    Speech Commands is not explained by the code's period of 1.5 s; 0.8 s with a fastest step of 0.1 s fits.
    """
    settings = [("cnn", 1.5, 1.0), ("vgg11s", 3.0, 1.0), ("lstm", 1.5, 1.0), ("lstm", 0.8, 2 / 3)]
    rows = []
    for cell, period, slower in settings:
        title, setup = TASKS[cell]
        alpha, beta = speeds(cell)
        made = plan_devices(slower * alpha, beta, period)
        jobs = rounds_per_job(job_seconds(made.local_steps, made.compression_rate, slower * alpha, beta), period)
        for target in setup.targets["dirichlet"]:
            printed = [number(cell, "FedLuck", q, target, "dirichlet") for q in ("seconds", "gigabytes")]
            assert printed[0] is not None
            elapsed = round(printed[0] / period) * period
            computed = theory.periodic_totals(elapsed, jobs, made.compression_rate, period, setup.parameters)
            rows.append(
                {"task": title, "T~": period, "fastest step": float(slower * alpha.min()), "target": target,
                 "printed seconds": f"{printed[0]:.2f}", "printed GB": f"{printed[1]:.2f}",
                 "computed GB": f"{computed.gigabytes:.3f}"}
            )  # fmt: skip
    return pd.DataFrame(rows)


def plans() -> pd.DataFrame:
    """Return every solver's plan for every device of the three worlds, and where a local solver ends (E17)."""
    rows = []
    for cell, (title, setup) in TASKS.items():
        alpha, beta = speeds(cell)
        made = {name: plan_devices(alpha, beta, setup.period_seconds, solver=name) for name in SOLVERS}
        best = made["exact"]
        jobs = rounds_per_job(job_seconds(best.local_steps, best.compression_rate, alpha, beta), setup.period_seconds)
        local = _local_solver(alpha, beta, setup.period_seconds)
        for device in range(len(alpha)):
            row = {"task": title, "device": device, "alpha": alpha[device], "beta": beta[device]}
            row["beta/T"] = beta[device] / setup.period_seconds
            for name, one in made.items():
                row[name] = f"{one.local_steps[device]}, {one.compression_rate[device]:.3f}"
            row |= {"factor": best.factor[device], "rounds": jobs[device]}
            rows.append(row | dict(zip(("local", "excess"), local[device], strict=True)))
    return pd.DataFrame(rows)


def surface(points: int = 160) -> pd.DataFrame:
    """Return phi over k and delta for a slow and a fast link of the CNN's world, with its minimum in the box."""
    (alpha, beta), period, found = speeds("cnn"), TASKS["cnn"][1].period_seconds, []
    for device in (0, 9):
        best = plan_devices(alpha[device], beta[device], period, solver="exact")
        steps, delta = np.meshgrid(np.geomspace(1, 60, points), np.geomspace(0.005, 1, points))
        factor = key_convergence_factor(steps, delta, alpha[device], beta[device], period)
        flat = {"steps": steps.ravel(), "delta": delta.ravel(), "factor": factor.ravel()}
        least = {"best_steps": int(best.local_steps[0]), "best_delta": float(best.compression_rate[0])}
        found.append(pd.DataFrame(flat).assign(device=device, ratio=beta[device] / period, **least))
    return pd.concat(found, ignore_index=True)


def regimes(points: int = 400) -> pd.DataFrame:
    """Return the optimum over log10 beta / T~: delta*, k* alpha / T~ and d / T~, and the two branches' phi."""
    ratio = np.geomspace(0.3, 100, points)
    branches = {"compressing": theory.interior_minimum, "not compressing": theory.uncompressed_minimum,
                "the optimum": theory.joint_optimum}  # fmt: skip
    frames = []
    for method, branch in branches.items():
        kappa, delta, rounds, factor = branch(ratio)
        columns = {"x": np.log10(ratio), "delta": delta, "kappa": kappa, "rounds": rounds, "factor": factor}
        frames.append(pd.DataFrame(columns).assign(method=method))
    deviations = dict.fromkeys(("delta_std", "kappa_std", "rounds_std", "factor_std"), np.nan)
    return pd.concat(frames, ignore_index=True).assign(parameter=np.nan, **deviations)


def q_along_corollary(steps: tuple[int, ...] = (1, 5, 20), delta: float = 0.1) -> pd.DataFrame:
    """Return Q_l along the learning rates of Corollary 1 with unit constants, over log10 T (E5)."""
    rounds = np.geomspace(1, 1e6, 121)
    q = {k: theory.q_local(theory.corollary1_rates(k, rounds, delta).local_lr, k) for k in steps}
    frames = [pd.DataFrame({"x": np.log10(rounds), "q": own, "parameter": float(k)}) for k, own in q.items()]
    return pd.concat(frames, ignore_index=True).assign(method="Q", q_std=np.nan)


@cache
def bounds_on_toys(problems: int = 15) -> pd.DataFrame:
    """Compare Theorem 1 inside its window, and (L-b) for small steps, with runs on random log-cosh problems (E15).

    ``bound`` is the name of a bound, ``right`` its value, ``ratio`` the measured mean squared gradient over it.
    """
    trials = {"Theorem 1": theory.theorem1_trials(problems), "(L-b)": theory.rescaled_trials(problems)}
    frames = [t.assign(bound=name, right=t["bound"], ratio=t["measured"] / t["bound"]) for name, t in trials.items()]
    return pd.concat(frames, ignore_index=True)


def bounds_table() -> pd.DataFrame:
    """Return :func:`bounds_on_toys` in four numbers for each bound."""
    rows = [
        {"bound": bound, "problems": len(own), "violations": int((own > 1).sum()), "median": f"{own.median():.2g}",
         "largest": f"{own.max():.2g}"}
        for bound, own in bounds_on_toys().groupby("bound", sort=False)["ratio"]
    ]  # fmt: skip
    return pd.DataFrame(rows)


def alpha_moves_steps_only() -> tuple[Array, Array, Array]:
    """Return alpha, k* and delta* of devices with one link and speeds that double (C20)."""
    alpha = np.array([0.001, 0.002, 0.004])
    found = plan_devices(alpha, 9.0, 1.5, solver="exact", box=Box(1, 5000, 1e-4, 1.0))
    return alpha, found.local_steps.astype(float), found.compression_rate


def _local_solver(alpha: Array, beta: Array, period: float) -> list[tuple[str, float]]:
    """Return where L-BFGS-B stops for each device, from (1, 1) in the authors' own box, and phi over the least."""
    best = plan_devices(alpha, beta, period, solver="exact", box=Box(1, 60, 0.001, 1.0)).factor
    found = []
    for a, b, least in zip(alpha, beta, best, strict=True):
        stop = scipy.optimize.minimize(
            lambda x, a=a, b=b: key_convergence_factor(x[0], x[1], a, b, period),
            (1.0, 1.0), bounds=[(1, 60), (0.001, 1)], method="L-BFGS-B",
        )  # fmt: skip
        found.append((f"{stop.x[0]:.1f}, {stop.x[1]:.3f}", float(stop.fun / least)))
    return found


# FedLuck against the other methods, paired by seed.


def reached(study: Study, method: str, partition: str, target: float) -> dict[int, Reached]:
    """Return by seed when a method first has an accuracy."""
    return {seed: reach(*run, target) for seed, run in compared(study, method, partition).items()}


def needed(study: Study, method: str, partition: str, target: float, what: str) -> Censored:
    """Return `what` ("seconds" or "gigabytes") a method needs to a target, by seed; at least, if it ends before."""
    found = reached(study, method, partition, target)
    values = {seed: float(getattr(one, what)) for seed, one in found.items()}
    late = [seed for seed, one in found.items() if not one.reached]
    return Censored(values, late, [entry.key for entry, _ in compared(study, method, partition).values()])


def saving(cells: Iterable[tuple[Censored, Censored]], name: str = "") -> Effect:
    """Return the part of what baselines need that FedLuck saves: 1 - FedLuck / baseline, a mean over cells, by seed.

    `cells` are pairs of what FedLuck and a baseline :func:`needed`; where one of them did not get there the saving is
    a bound, and seeds that a cell lacks are left out.
    """
    pairs = [(ours, theirs) for ours, theirs in cells if ours and theirs]
    seeds = sorted(set.intersection(*(ours.keys() & theirs.keys() for ours, theirs in pairs))) if pairs else []
    parts = {s: [ours[s] / theirs[s] if theirs[s] else np.nan for ours, theirs in pairs] for s in seeds}
    share = {s: float(np.mean(found)) for s, found in parts.items()}
    least = {s for s in seeds if any(s in theirs.at_least for _, theirs in pairs)}
    most = {s for s in seeds if any(s in ours.at_least for ours, _ in pairs)}
    runs = frozenset().union(*(side.runs for pair in pairs for side in pair))
    sides = Censored(dict.fromkeys(seeds, 1.0), least, runs), Censored(share, most, runs)
    return Effect(name, *sides, PLAIN, "more", delta=0.05)


def cells_of(
    study: Study, partition: str, what: str, against: Sequence[str] = BASELINES
) -> dict[tuple[Target, str], tuple[Censored, Censored]]:
    """Return what FedLuck and each baseline need to each target."""
    return {
        (target, method): (needed(study, "FedLuck", partition, target.here, what),
                           needed(study, method, partition, target.here, what))
        for target in sought(study, partition) for method in against
    }  # fmt: skip


def saved_text(effect: Effect) -> str | None:
    """Return a saving with its interval at the level of the planned look; one that is a bound is marked."""
    if not effect.seeds or not np.isfinite(effect.estimate):
        return None
    low, high = effect.interval
    most, least = (bool(np.isinf(side).any()) for side in effect.sides)
    mark = "" if most == least else "≤ " if most else "≥ "
    words = f" [{low:z.2f}, {high:z.2f}]" if np.isfinite([low, high]).all() else ""
    return f"{mark}{effect.estimate:z.2f}{words}"


def sought(study: Study, partition: str) -> list[Target]:
    """Return the targets of a study, as the paper has them and as they are looked for in its runs."""
    return targets(study.profile, study.dataset, partition)


def final(study: Study, method: str, partition: str = "iid") -> BySeed:
    """Return a method's accuracy at the horizon by seed."""
    return BySeed.of(compared(study, method, partition).values(), partial(final_accuracy, study))


# FedLuck's tables from the runs, each number beside the one that the paper prints.


def targets_table(study: Study, partition: str = "dirichlet") -> pd.DataFrame:
    """Return seconds and gigabytes to each target, printed and measured, as text (Table 1)."""
    setup, rows = Runs.setup_of(study.dataset), []
    for target, method in itertools.product(sought(study, partition), ("FedLuck", *BASELINES)):
        found = reached(study, method, partition, target.here).values()
        there = [one for one in found if one.reached]
        row: dict[str, Any] = {"target": str(target), "method": method}
        for what, digits in (("seconds", 1), ("gigabytes", 3)):
            paper = number(setup.cell, method, what, target.printed, partition)
            row |= {} if paper is None else {f"printed {what}": f"{paper:.2f}"}
            row[what] = _spread([getattr(one, what) for one in there], digits)
        if found:
            row["since the start"] = _spread([one.since_start for one in there], 1)
            rows.append(row | {"reached": f"{len(there)} of {len(found)}"})
    return pd.DataFrame(rows)


def single_table(study: Study) -> pd.DataFrame:
    """Return the accuracies of Table 2 under both readings of its labels (E12), as text."""
    cell, rows = Runs.setup_of(study.dataset).cell, []
    for method in ("FedLuck", *SINGLE):
        row: dict[str, Any] = {"method": method}
        for reading, labels in (("the text's reading", ROWS), ("the names' reading", SWAPPED)):
            label = labels.get(method, method)
            mean, spread = (number(cell, label, q) for q in ("accuracy", "spread"))
            text = None if mean is None or spread is None else f"{mean:.3f} ± {spread:.3f}"
            row[reading] = text if method == "FedLuck" or text is None else f"{text} ({label})"
        if found := list(final(study, method).values()):
            rows.append(row | {"measured": _spread(found, 3), "seeds": len(found)})
    return pd.DataFrame(rows)


def traffic(study: Study, partition: str = "iid") -> pd.DataFrame:
    """Return mean and standard deviation of the gigabytes to each target (Figure 3); NaN: not by every seed."""
    rows = []
    for target, method in itertools.product(sought(study, partition), ("FedLuck", *BASELINES)):
        if found := reached(study, method, partition, target.here).values():
            values = [one.gigabytes if one.reached else np.nan for one in found]
            spread = float(np.std(values, ddof=1)) if len(values) > 1 else np.nan
            rows.append((target.here, method, float(np.mean(values)), spread, len(values)))
    return pd.DataFrame(rows, columns=["target", "method", "gigabytes", "gigabytes_std", "n"])


def comparison(study: Study) -> Comparison:
    """Return Figure 2 and the curves behind Table 1 for a reader to examine, with the numbers of Table 1 as marks.

    A printed time counts from a method's first aggregation; its mark is moved by when that was here.
    """
    end, task = figures.horizon(study) + figures.SLACK, Runs.setup_of(study.dataset).cell
    settings: dict[str, dict[str, dict[int, pd.DataFrame]]] = {}
    marks = []
    for words, partition in {"independent labels": "iid", "Dirichlet labels": "dirichlet"}.items():
        for method in METHODS:
            runs = compared(study, method, partition)
            curves = {seed: figures.curve(*pair) for seed, pair in runs.items()}
            settings.setdefault(words, {})[method] = {seed: c[c["seconds"] <= end] for seed, c in curves.items()}
            printed = PRINTED.rows(source="table1", task=task, partition=partition, method=method)
            for axis, target, at in printed[["quantity", "target", "value"]].itertuples(index=False, name=None):
                first = [figures.first_aggregation(result) for _, result in runs.values() if axis == "seconds"]
                marks.append(Mark(words, method, float(target), axis, at + float(np.mean(first or [0.0]))))
    axes = {"seconds": "virtual time (s)", "uploads": "uploads received", "gigabytes": "GB uploaded"}
    return Comparison("FedLuck comparison", settings, axes, {"test_accuracy": "test accuracy"}, "FedLuck", marks)


def improvements(study: Study) -> pd.DataFrame:
    """Return what FedLuck saves of each baseline's time and traffic, printed and measured with interval, as text."""
    setup, rows = Runs.setup_of(study.dataset), []
    for partition, words in LABELS.items():
        if not compared(study, "FedLuck", partition):
            continue
        cells = {what: cells_of(study, partition, what) for what in _KINDS}
        for target in sought(study, partition):
            for method in BASELINES:
                row: dict[str, Any] = {"labels": words, "target": str(target), "against": method}
                for what, own in cells.items():
                    row[f"printed {what}"] = _printed_saving(setup.cell, method, what, target.printed, partition)
                    saved = saving([own[target, method]])
                    row[what], row[f"seeds, {what}"] = saved_text(saved), len(saved.seeds)
                rows.append(row)
        row = {"labels": words, "target": "mean", "against": "all four"}
        for what, own in cells.items():
            row[f"printed {what}"] = f"{printed_mean(partition, what):.2f}, all tasks"
            saved = saving(own.values())
            row[what], row[f"seeds, {what}"] = saved_text(saved), len(saved.seeds)
        rows.append(row)
    return pd.DataFrame(rows)


def other_periods(study: Study) -> pd.DataFrame:
    """Return the accuracy at the end of FedLuck's runs with other periods, over T~."""
    rows = [
        (entry.labels["period"], result.history.evaluations["test_accuracy"][-1])
        for entry, result in study.select(role="period")
    ]
    points = pd.DataFrame(rows, columns=["x", "test_accuracy"])
    table = mean_curve(points, "x", ["test_accuracy"]) if rows else pd.DataFrame()
    return table.assign(method="FedLuck", parameter=np.nan) if rows else table


def variants_table(study: Study) -> pd.DataFrame:
    """Return accuracy and traffic at the end of FedLuck's variants, as text."""
    rows = []
    for name in experiment.VARIANTS:
        runs = study.select(role="variant", variant=name)
        found = [result.history.evaluations for _, result in runs]
        if found:
            size = size_factor(runs[0][0])
            accuracy = _spread([table["test_accuracy"][-1] for table in found], 3)
            gigabytes = _spread([table["bytes_up"][-1] * size / BYTES_PER_GB for table in found], 4)
            rows.append({"variant": name, "accuracy": accuracy, "gigabytes": gigabytes, "seeds": len(found)})
    return pd.DataFrame(rows)


def five_devices(study: Study) -> pd.DataFrame:
    """Return Algorithm 1 in time: every job of five devices of the CNN's world up to the twelfth tick."""
    alpha, beta = speeds("cnn", experiment.FEWER_DEVICES)
    period, made = TASKS["cnn"][1].period_seconds, plan_devices(alpha, beta, TASKS["cnn"][1].period_seconds)
    training, sending = made.local_steps * alpha, made.compression_rate * beta
    rows = []
    for t, uploads in enumerate(theory.timeline((training + sending).tolist(), period, 12)):
        for one in uploads:
            start = one.start_round * period
            rows.append(
                {"device": one.device, "start": start, "trained": start + training[one.device],
                 "arrived": start + training[one.device] + sending[one.device], "used": (t + 1) * period,
                 "round_staleness": one.round_staleness, "missed": t - one.start_round}
            )  # fmt: skip
    return pd.DataFrame(rows)


def _printed_saving(cell: str, method: str, what: str, target: float, partition: str) -> str | None:
    """Return 1 - FedLuck / baseline of the printed numbers, or None."""
    ours, theirs = (number(cell, m, what, target, partition) for m in ("FedLuck", method))
    return None if ours is None or not theirs else f"{1 - ours / theirs:.2f}"


def _spread(values: list[float], digits: int) -> str | None:
    return mean_text(values, digits) if values else None


# FedLuck's headline numbers, which the paper states over three tasks, beside those of the tasks that were run.

_KINDS = {"seconds": "time", "gigabytes": "communication"}
PLAN_FREE = "FedPer"  # The baseline that differs from FedLuck in its plan alone: one (k, delta) for all devices.


def over_tasks(studies: Mapping[str, Study]) -> pd.DataFrame:
    """Return mean savings with intervals, and in how many cells FedLuck is best, by task and over all, as text."""
    rows: list[dict[str, Any]] = []
    for (partition, words), (what, kind) in itertools.product(LABELS.items(), _KINDS.items()):
        for against, said in ((BASELINES, ", mean over targets and baselines"),
                              ((PLAN_FREE,), f" against {PLAN_FREE} alone")):  # fmt: skip
            paper = printed_mean(partition, what, against)
            row = {"labels": words, "quantity": f"{kind} saved{said}", "paper": paper and f"{paper:.2f}"}
            rows.append(row | _saved(studies, partition, what, against))
        won = {name: _won(study, partition, what) for name, study in studies.items()}
        row = {"labels": words, "quantity": f"targets with the least {kind}"}
        row |= {"paper": printed_wins(partition, what)} | {name: _count(cells) for name, cells in won.items()}
        rows.append(row | {"all": _count([cell for cells in won.values() for cell in cells])})
    return pd.DataFrame(rows)


def printed_mean(
    partition: str, what: str, against: Sequence[str] = BASELINES, of: Iterable[str] = TASKS
) -> float | None:
    """Return the mean saving over tasks: of Table 1's cells (E14); IID what is quoted over all baselines, or None."""
    if partition == "iid":
        return quoted(f"{_KINDS[what]} reduction") if tuple(against) == BASELINES else None
    cells = _printed_cells(what, against, of)
    return float(np.mean([1 - ours / other for ours, theirs in cells for other in theirs]))


def printed_wins(partition: str, what: str) -> str | None:
    """Return at how many of the nine targets FedLuck needs least, ties included; None: the paper does not say."""
    if partition == "iid":
        return f"{quoted('lowest of 9'):.0f} of 9" if what == "gigabytes" else None
    return _count([ours <= min(theirs) for ours, theirs in _printed_cells(what, BASELINES, TASKS)])


def _printed_cells(what: str, against: Sequence[str], tasks: Iterable[str]) -> list[tuple[float, list[float]]]:
    """Return FedLuck's number and those of `against` for each target of Table 1."""
    cells = []
    for cell in tasks:
        for target in TASKS[cell][1].targets["dirichlet"]:
            found = [number(cell, m, what, target, "dirichlet") for m in ("FedLuck", *against)]
            ours, *theirs = [value for value in found if value is not None]
            cells.append((ours, theirs))
    return cells


def _saved(studies: Mapping[str, Study], partition: str, what: str, against: Sequence[str]) -> dict[str, str | None]:
    """Return mean savings by task, and over all tasks."""
    cells = {name: list(cells_of(study, partition, what, against).values()) for name, study in studies.items()}
    found = {name: saved_text(saving(own)) for name, own in cells.items()}
    complete = all(found.values())
    return found | {"all": saved_text(saving([c for own in cells.values() for c in own])) if complete else None}


def _won(study: Study, partition: str, what: str) -> list[bool]:
    """Return for each target whether FedLuck's mean over seeds is the least; not reached is endless."""
    won = []
    for target in sought(study, partition):
        means = {}
        for method in ("FedLuck", *BASELINES):
            found = reached(study, method, partition, target.here).values()
            means[method] = float(np.mean([getattr(o, what) if o.reached else np.inf for o in found] or [np.inf]))
        if np.isfinite(min(means.values())):
            won.append(means["FedLuck"] <= min(means[m] for m in BASELINES))
    return won


def _count(cells: list[bool]) -> str:
    return f"{sum(cells)} of {len(cells)}"


# FedLuck against FedPer in the first seconds, and the deviations of the authors' program

RACE_TARGETS = (0.50, 0.55, 0.60, 0.65, 0.70, 0.75, 0.80)
"""Where a mean of :data:`figures.WIDTH` aggregations crosses; declared before the runs."""


def race(study: Study) -> dict[tuple[str, str], list[Effect]]:
    """Return by labels and weights how much higher FedLuck's curve lies than FedPer's, and its part of their times.

    The first effect is of the mean accuracy, each of the others of the time to a target that one of them reaches.
    """
    found = {}
    for partition, weights in itertools.product(LABELS, ("uniform", "samples")):
        own = {"role": "race", "partition": partition, "weighting": weights}
        left, right = (study.select(method=method, **own) for method in ("FedLuck", PLAN_FREE))
        if not (left and right):
            continue
        where = f"{LABELS[partition]}, weights {weights}"
        ours, theirs = (BySeed.of(runs, lambda _, run: mean_accuracy(run)) for runs in (left, right))
        found[LABELS[partition], weights] = [Effect(f"{where}: mean accuracy", ours, theirs, POINTS, "more")]
        for target in RACE_TARGETS:
            soon, late = (passages(runs, measured, target, width=figures.WIDTH) for runs in (left, right))
            if soon.keys() - soon.at_least or late.keys() - late.at_least:
                effect = Effect(f"{where}: {100 * target:g} %", soon, late, RATIO, "less")
                found[LABELS[partition], weights].append(effect)
    return found


def race_table(study: Study) -> pd.DataFrame:
    """Return the :func:`race` as text; intervals are at the level of the planned look."""
    rows = []
    for (labels, weights), effects in race(study).items():
        for effect in effects:
            points, (estimate, interval, _) = effect.scale is POINTS, effect.words()
            row = {"labels": labels, "weights": weights, "target": effect.name.partition(": ")[2]}
            for method, side in (("FedLuck", effect.left), (PLAN_FREE, effect.right)):
                assert isinstance(side, Mapping)
                mean = float(np.mean([side[seed] for seed in effect.seeds]))
                late = "≥ " * any(seed in getattr(side, "at_least", ()) for seed in effect.seeds)
                row[method] = f"{100 * mean:.1f} %" if points else f"{late}{mean:.1f} s"
            row["effect"] = f"{estimate} {interval}{' points' if points else ''}"
            rows.append(row | {"seeds": str(len(effect.seeds))})
    return pd.DataFrame(rows)


def as_comparison(study: Study, **labels: Any) -> Study:
    """Return the runs with these labels as a comparison of methods, by default with independent labels."""
    runs = [entry for entry in study.entries if labels.items() <= entry.labels.items()]
    told = {"role": "comparison"}
    return replace(study, entries=tuple(Entry(e.spec, {"partition": "iid", **e.labels, **told}) for e in runs))


released = partial(as_comparison, role="as released")
"""The comparison as the authors' program does it."""


def deviations_table(study: Study) -> pd.DataFrame:
    """Return FedLuck's accuracy at the horizon with each deviation of the authors' program, on all test images.

    Beside it what the program reads there, the mean of the last ten measurements on its own images, and what FedLuck
    saves of FedPer's time and communication.
    """
    rows = []
    for name in experiment.DEVIATIONS:
        own = as_comparison(study, role="deviation", deviation=name)
        found = [result.history.evaluations for _, result in own.select(method="FedLuck")]
        if found:
            read = [float(np.mean(table["test_accuracy"][-11:-1])) for table in found]
            rows.append(
                {"FedLuck": name, "printed": f"{number('cnn', 'FedLuck', 'accuracy', None, 'iid'):.3f}",
                 "all images": _spread([table["test_accuracy"][-1] for table in found], 3),
                 "its own images": _spread(read, 3), **{w: saved_text(of_fedper(own, w)) for w in _KINDS},
                 "seeds": len(found)}
            )  # fmt: skip
    return pd.DataFrame(rows)


def of_fedper(study: Study, what: str) -> Effect:
    """Return what FedLuck saves of FedPer's time or communication with independent labels, a mean over targets."""
    return saving(cells_of(study, "iid", what, (PLAN_FREE,)).values())


def search_table(study: Study) -> pd.DataFrame:
    """Return FedPer's mean accuracy over a race with each k and delta that was tried, in per cent."""
    found = [{**entry.labels, "accuracy": 100 * mean_accuracy(run)} for entry, run in study.select(role="search")]
    if not found:
        return pd.DataFrame()
    table = pd.DataFrame(found).pivot(index=["partition", "steps"], columns="delta", values="accuracy")
    table = table.rename(columns="δ = {:g}".format, index=LABELS).rename_axis(index=["labels", "k"], columns=None)
    return table.reset_index()


PLANS = {
    "printed": "FedLuck", "tight": "FedLuck, tight factor", "authors'": "FedPer, the authors' k and δ",
    "found": "FedPer, k and δ found",
}  # fmt: skip
"""Who races in :meth:`~fl_papers.fedluck.experiment.FedLuckExperiment.plans`."""


def above_fedluck(study: Study, plan: str) -> list[Effect]:
    """Return how much higher the curve of a plan lies than FedLuck's, by partition."""
    effects = []
    for partition, words in LABELS.items():
        left, right = (
            BySeed.of(study.select(role="plan", partition=partition, plan=each), lambda _, run: mean_accuracy(run))
            for each in (plan, "printed")
        )
        effects.append(Effect(f"{words}: {PLANS[plan]} less FedLuck, mean accuracy", left, right, POINTS, "more"))
    return effects


def plans_table(study: Study) -> pd.DataFrame:
    """Return the race of plans: mean accuracy over it, and what it is above FedLuck's; intervals of planned looks."""
    rows = []
    effects = {plan: dict(zip(LABELS, above_fedluck(study, plan), strict=True)) for plan in PLANS}
    for (partition, words), plan in itertools.product(LABELS.items(), PLANS):
        if runs := study.select(role="plan", partition=partition, plan=plan):
            means = [100 * mean_accuracy(result) for _, result in runs]
            algorithm = dict(runs[0][0].spec.algorithm)
            common = algorithm.get("compressor")
            pair = f"{algorithm['steps']}, {common.delta:g}" if common else "each its own"
            said = None if plan == "printed" else " ".join(effects[plan][partition].words()[:2])
            row: dict[str, Any] = {"labels": words, "plan": PLANS[plan], "k, δ": pair}
            rows.append(row | {"mean": f"{np.mean(means):.1f} %", "effect": said, "seeds": len(runs)})
    return pd.DataFrame(rows)
