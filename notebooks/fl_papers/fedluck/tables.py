"""FedLuck's tables from the runs, each number beside the one that the paper prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fl_core.datasets import load_dataset
from fl_core.experiments.study import Study
from fl_core.formulas.fedluck import plan_devices
from fl_core.models import num_parameters
from fl_papers.fedluck.accounting import BYTES_PER_GB
from fl_papers.fedluck.curves import compared, size_factor
from fl_papers.fedluck.grid import (
    BASELINES,
    CLASSES,
    DEVICES,
    FEWER_DEVICES,
    LABELS,
    MOMENTUM,
    SINGLE,
    VARIANTS,
    Maker,
)
from fl_papers.fedluck.margins import final, interval_text, reached, reductions, sought
from fl_papers.fedluck.printed import ROWS, SWAPPED, number
from fl_papers.fedluck.scales import (
    HEAT_PERIODS_PER_EVALUATION,
    PERIODS_PER_EVALUATION,
    SCALES,
    Options,
    targets,
)
from fl_papers.fedluck.setups import setup_of
from fl_papers.fedluck.summary import printed_mean
from fl_papers.fedluck.theory import TASKS, speeds
from fl_papers.fedluck.toys import timeline


def targets_table(study: Study, partition: str = "dirichlet") -> pd.DataFrame:
    """Return seconds and gigabytes to each target, printed and measured, as text (Table 1)."""
    setup, rows = setup_of(study.dataset), []
    for target in sought(study, partition):
        for method in ("FedLuck", *BASELINES):
            found = list(reached(study, method, partition, target.here).values())
            row: dict[str, Any] = {"target": str(target), "method": method}
            for what, digits in (("seconds", 1), ("gigabytes", 3)):
                paper = number(setup.cell, method, what, target.printed, partition)
                row[f"printed {what}"] = None if paper is None else f"{paper:.2f}"
                row[what] = _spread([getattr(one, what) for one in found if one.reached], digits)
            if found:
                row["since the start"] = _spread([one.since_start for one in found if one.reached], 1)
                rows.append(row | {"reached": f"{sum(one.reached for one in found)} of {len(found)}"})
    return pd.DataFrame(rows)


def single_table(study: Study) -> pd.DataFrame:
    """Return the accuracies of Table 2 under both readings of its labels (E12), as text."""
    cell, rows = setup_of(study.dataset).cell, []
    for method in ("FedLuck", *SINGLE):
        found = list(final(study, method).values())
        if not found:
            continue
        row: dict[str, Any] = {"method": method}
        for reading, labels in (("the text's reading", ROWS), ("the names' reading", SWAPPED)):
            label = labels.get(method, method)
            mean, spread = (number(cell, label, q) for q in ("accuracy", "spread"))
            text = None if mean is None or spread is None else f"{mean:.3f} ± {spread:.3f}"
            row[reading] = text if method == "FedLuck" or text is None else f"{text} ({label})"
        rows.append(row | {"measured": _spread(found, 3), "seeds": len(found)})
    return pd.DataFrame(rows)


def traffic(study: Study, partition: str = "iid") -> pd.DataFrame:
    """Return mean and standard deviation of the gigabytes to each target (Figure 3).

    Returns
    -------
    DataFrame
        ``target``, ``method``, ``gigabytes`` (NaN if a seed does not get there), ``gigabytes_std``, ``n``.
    """
    rows = []
    for target in sought(study, partition):
        for method in ("FedLuck", *BASELINES):
            found = reached(study, method, partition, target.here).values()
            if not found:
                continue
            values = [one.gigabytes if one.reached else np.nan for one in found]
            spread = float(np.std(values, ddof=1)) if len(values) > 1 else np.nan
            rows.append((target.here, method, float(np.mean(values)), spread, len(values)))
    return pd.DataFrame(rows, columns=["target", "method", "gigabytes", "gigabytes_std", "n"])


def improvements(study: Study) -> pd.DataFrame:
    """Return what FedLuck saves of each baseline's time and traffic, printed and measured with interval, as text."""
    setup, rows = setup_of(study.dataset), []
    for partition, words in LABELS.items():
        saved = {what: reductions(study, partition, what) for what in ("seconds", "gigabytes")}
        if not compared(study, "FedLuck", partition):
            continue
        for target in sought(study, partition):
            for method in BASELINES:
                row: dict[str, Any] = {"labels": words, "target": str(target), "against": method}
                for what, frame in saved.items():
                    row[f"printed {what}"] = _printed_saving(setup.cell, method, what, target.printed, partition)
                    own = frame[(frame["target"] == target) & (frame["method"] == method)]
                    row[what], row[f"seeds, {what}"] = interval_text(own["saved"].to_numpy()), len(own)
                rows.append(row)
        row = {"labels": words, "target": "mean", "against": "all four"}
        for what, frame in saved.items():
            row[f"printed {what}"] = f"{printed_mean(partition, what):.2f}, all tasks"
            by_seed = frame.groupby("seed")["saved"].mean()
            row[what], row[f"seeds, {what}"] = interval_text(by_seed.to_numpy()), len(by_seed)
        rows.append(row)
    return pd.DataFrame(rows)


def other_periods(study: Study) -> pd.DataFrame:
    """Return the accuracy at the end of FedLuck's runs with other periods, over T~."""
    rows = [
        (entry.labels["period"], result.history.evaluations["test_accuracy"][-1])
        for entry, result in study.select(role="period")
    ]
    if not rows:
        return pd.DataFrame()
    grouped = pd.DataFrame(rows, columns=["x", "accuracy"]).groupby("x")["accuracy"]
    table = grouped.agg(test_accuracy="mean", test_accuracy_std="std", n="size").reset_index()
    return table.assign(method="FedLuck", parameter=np.nan)


def variants_table(study: Study) -> pd.DataFrame:
    """Return accuracy and traffic at the end of FedLuck's variants, as text."""
    rows = []
    for name in VARIANTS:
        runs = study.select(role="variant", variant=name)
        found = [result.history.evaluations for _, result in runs]
        if found:
            size = size_factor(runs[0][0])
            accuracy = _spread([table["test_accuracy"][-1] for table in found], 3)
            gigabytes = _spread([table["bytes_up"][-1] * size / BYTES_PER_GB for table in found], 4)
            rows.append({"variant": name, "accuracy": accuracy, "gigabytes": gigabytes, "seeds": len(found)})
    return pd.DataFrame(rows)


def five_devices(study: Study) -> pd.DataFrame:
    """Return Algorithm 1 in time: every job of five devices of the CNN's world up to the twelfth tick.

    Returns
    -------
    DataFrame
        ``device``, ``start``, ``trained``, ``arrived``, ``used`` (seconds), ``round_staleness`` and ``missed``.
    """
    alpha, beta = speeds("cnn", FEWER_DEVICES)
    period, made = TASKS["cnn"][1].period_seconds, plan_devices(alpha, beta, TASKS["cnn"][1].period_seconds)
    training, sending = made.local_steps * alpha, made.compression_rate * beta
    rows = []
    for t, uploads in enumerate(timeline((training + sending).tolist(), period, 12)):
        for one in uploads:
            start = one.start_round * period
            rows.append(
                {"device": one.device, "start": start, "trained": start + training[one.device],
                 "arrived": start + training[one.device] + sending[one.device], "used": (t + 1) * period,
                 "round_staleness": one.round_staleness, "missed": t - one.start_round}
            )  # fmt: skip
    return pd.DataFrame(rows)


def paper_setting(
    profile: str, dataset: str = "fashion-mnist", seeds: Sequence[int] | None = None, **overrides: Any
) -> pd.DataFrame:
    """Return the paper's setting beside ours, one row per quantity; "code": stated by the authors' code only."""
    chosen, scale, setup = Options.of(**overrides), SCALES[profile], setup_of(dataset)
    make, data = Maker(profile, dataset, seeds, chosen), load_dataset(dataset)
    title = TASKS[setup.cell][0]
    parameters = num_parameters(make.model, setup.shape, CLASSES)
    fedper, topk = setup.fedper, setup.fedavg_topk
    steps, deltas = chosen.heat_steps or scale.heat_steps, chosen.heat_deltas or scale.heat_deltas
    measured = f"{scale.test_samples:,} of them, all at the horizon" if scale.test_samples else "all"
    longest = ", ".join(f"{method} {factor:g} times that" for method, factor in setup.longer.items())
    k, delta = chosen.steps or fedper[0], chosen.delta or fedper[1]
    rows = [
        ("data", title.partition(", ")[2], f"{data.name} ({data.kind})"),
        ("network", f"{title.partition(', ')[0]}, {setup.parameters:,} parameters (code)",
         f"{make.model}, {parameters:,} parameters" + (f"; figures over k, δ and T̃, and variants: {make.narrow}"
                                                       if make.narrow != make.model else "")),
        ("a full upload takes", "model size over bandwidth", "as with the paper's network"),
        ("devices", f"{DEVICES}; Figure 1: {FEWER_DEVICES}", f"{DEVICES}; Figure 1: {FEWER_DEVICES}"),
        ("bandwidth", "0.25 to 2 Mb/s; code: fixed lists", "the code's lists"),
        ("labels", "independent; Dirichlet, concentration 1.0", f"the same, {chosen.dirichlet:g}"),
        ("local training uses", "80 % of a device's samples (code)", "the same"),
        ("local rate, momentum, batch", f"{setup.local_lr:g}, {MOMENTUM:g}, {setup.batch_size}",
         f"{chosen.local_lr or setup.local_lr:g}, {MOMENTUM:g}, {setup.batch_size}"),
        ("global rate η_g", f"{setup.global_lr:g} (code)", f"{setup.global_lr:g}; FedAvg+TopK: 1"),
        ("period T̃", f"{setup.period_seconds:g} s (code)", f"{make.period:g} s"),
        ("FedLuck's plan", "minimum of φ; code: grid search", chosen.solver),
        ("FedPer (k, δ)", f"{fedper[0]}, {fedper[1]:g} (code)", f"{k}, {delta:g}"),
        ("FedBuff", f"k = {setup.fedbuff}, 8 uploads (code)", f"k = {setup.fedbuff}, 8 uploads"),
        ("FedAsync", f"k = {setup.fedasync}, weight 0.4, ρ = 0.001 (code)",
         f"k = {setup.fedasync}, weight 0.4, ρ = 0.001"),
        ("FedAvg+TopK (k, δ)", f"{topk[0]}, {topk[1]:g} (code)", f"{topk[0]}, {topk[1]:g}"),
        ("frequency only; compression only", f"δ = {setup.fixed_compression:g}; k = {setup.fixed_steps} (code)",
         f"δ = {setup.fixed_compression:g}; k = {setup.fixed_steps}"),
        ("top-k", "of the update; code: of each tensor", "of each tensor" if chosen.per_tensor else "of the update"),
        ("horizon", f"{setup.seconds:g} s", f"{make.seconds:g} s; to look for targets, {longest}"),
        ("targets", _targets(setup.targets),
         _targets({p: [t.here for t in targets(profile, dataset, p)] for p in setup.targets})),
        ("test images", "a random tenth at each evaluation (code)", f"{len(data.test):,}; for targets {measured}"),
        ("measured", "at each aggregation (code)", f"every {PERIODS_PER_EVALUATION} T̃, all methods alike"),
        ("Figure 1: k; δ", "10 to 60; 0.001 to 0.5",
         f"{', '.join(map(str, steps))}; {', '.join(f'{d:g}' for d in deltas)}"),
        ("Figure 1: accuracy; at most", f"{100 * setup.heat_target:.0f} %; –",
         f"{100 * make.heat_target:g} %; {chosen.heat_seconds or scale.heat_seconds:g} s, "
         f"measured every {HEAT_PERIODS_PER_EVALUATION} T̃"),
        ("repetitions", "not stated (code: 1)", f"{len(make.seeds)}"),
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=["setting", "the paper", f"here, profile {profile}"])


def _targets(found: Mapping[str, Sequence[float]]) -> str:
    return "; ".join(f"{LABELS[p]}: {', '.join(f'{100 * t:g} %' for t in values)}" for p, values in found.items())


def _printed_saving(cell: str, method: str, what: str, target: float, partition: str) -> str | None:
    """Return 1 - FedLuck / baseline of the printed numbers, or None."""
    ours, theirs = (number(cell, m, what, target, partition) for m in ("FedLuck", method))
    return None if ours is None or not theirs else f"{1 - ours / theirs:.2f}"


def _spread(values: list[float], digits: int) -> str | None:
    if not values:
        return None
    mean = f"{np.mean(values):.{digits}f}"
    return f"{mean} ± {np.std(values, ddof=1):.{digits}f}" if len(values) > 1 else mean
