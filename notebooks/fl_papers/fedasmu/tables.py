"""FedASMU's tables: numbers from the runs beside those that the paper prints, and its settings from the grid.

A number is a mean over seeds, with its 95 % t-interval in brackets where there are two or more. A time is in seconds
of the virtual clock; the paper's unit is unknown, so that only ratios can be compared (A26).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import inf, isinf
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats
from torch import nn

from fl_core.experiments.claims import CONFIDENCE
from fl_core.experiments.study import Study
from fl_core.models import build_network
from fl_papers.fedasmu.columns import COLUMNS
from fl_papers.fedasmu.curves import target_of
from fl_papers.fedasmu.grid import comparison
from fl_papers.fedasmu.measures import (
    Setting,
    Values,
    final,
    gaps,
    mean,
    reached,
    savings,
    settings,
    traffic,
)
from fl_papers.fedasmu.methods import ABLATIONS, BASELINES, EXTRA, HEURISTICS, METHODS
from fl_papers.fedasmu.printed import IMPLIED, What, band, gain, number, printed, tables_band

SYMBOLS: dict[str, tuple[str, Callable[[Any], float]]] = {
    "m": ("m", lambda spec: spec.world.devices),
    "m_prime": ("m′", lambda spec: spec.world.trigger.per_tick),
    "T": ("T", lambda spec: spec.budget.updates),
    "tau": ("τ", lambda spec: spec.algorithm.staleness_bound),
    "trigger_period": ("𝒯 (s)", lambda spec: spec.world.trigger.period_seconds),
    "eta_lambda": ("η_λ", lambda spec: spec.algorithm.lr_lambda),
    "eta_sigma": ("η_σ", lambda spec: spec.algorithm.lr_sigma),
    "eta_iota": ("η_ι", lambda spec: spec.algorithm.lr_iota),
    "eta_gamma": ("η_γ", lambda spec: spec.algorithm.lr_gamma),
    "eta_upsilon": ("η_υ", lambda spec: spec.algorithm.lr_upsilon),
    "eta_local": ("η_i", lambda spec: spec.training.lr),
    "eta_rl": ("η_RL", lambda spec: spec.algorithm.lr_rl),
}
"""Rows of Tables 5 and 6: name among the printed values, symbol, and where a specification has it."""
ADVANTAGES: tuple[tuple[What, Callable[..., Values]], ...] = (("accuracy gain", gaps), ("time saved", savings))


def comparison_table(study: Study) -> pd.DataFrame:
    """Return Tables 1 and 2, a row for each column of the data set and method, as text."""
    return _measured(study, METHODS, settings(study))


def all_columns(studies: Sequence[Study], table: int, quantity: str = "accuracy") -> pd.DataFrame:
    """Return Table 1 or 2 as it is printed, a row for each method, "printed | here" in its six columns.

    Parameters
    ----------
    studies : sequence of Study
        Of the data sets whose columns are to be filled.
    table : int
    quantity : str, optional
        ``"accuracy"``, or ``"time"``: as multiples of FedASMU's, as the paper's unit is unknown (A26).
    """
    timed = quantity == "time"
    data: dict[str, list[str]] = {"method": [*METHODS, *["target"] * timed, "data"]}
    for name, column in COLUMNS.items():
        if column.table != table:
            continue
        at = Setting(name)
        runs = next((study for study in studies if final(study, "FedASMU", at)), None)
        shown = []
        for method in METHODS:
            if timed:
                paper, here = _printed_ratio(name, method), _ratio(runs, method, at) if runs else None
            else:
                paper, here = _accuracy(name, method), interval(final(runs, method, at)) if runs else None
            shown.append(f"{paper} | {here or '–'}")
        if timed:
            shown.append(f"{column.target:.2f} | {f'{target_of(runs.profile, name):.2f}' if runs else '–'}")
        kind = (
            "not run" if runs is None else f"{runs.data_kind}, {runs.profile}, {_seeds(final(runs, 'FedASMU', at))}"
        )
        data[str(at)] = [*shown, kind]
    return pd.DataFrame(data)


def leaders(studies: Sequence[Study]) -> pd.DataFrame:
    """Return who is first in each column of Tables 1 and 2 that was run, and the place of FedASMU (printed: 1).

    Parameters
    ----------
    studies : sequence of Study
        As for :func:`all_columns`.
    """
    rows = []
    for name in COLUMNS:
        at = Setting(name)
        runs = next((study for study in studies if final(study, "FedASMU", at)), None)
        if runs is None:
            continue
        short, seconds = {}, {}
        for method in METHODS:
            if values := final(runs, method, at):
                found = reached(runs, method, at).values()
                short[method] = 1 - mean(values)
                seconds[method] = mean(dict(enumerate(one.seconds if one.reached else inf for one in found)))
        row = {"column": str(at), "data": runs.data_kind}
        for what, of in (("highest accuracy", short), ("first at the target", seconds)):
            first, own = min(of, key=lambda method: of[method]), of["FedASMU"]
            place = 1 + sum(value < own for value in of.values())
            row[what] = "none" if isinf(of[first]) else first
            row[f"{what}: FedASMU's place"] = "not reached" if isinf(own) else f"{place} of {len(of)}"
        rows.append(row)
    return pd.DataFrame(rows)


def gains_table(study: Study) -> pd.DataFrame:
    """Return what FedASMU gains over each baseline: the text's range, that of the printed tables, and ours."""
    points, rows = settings(study), []
    for other in BASELINES:
        row: dict[str, Any] = {"against": other}
        for what, of in ADVANTAGES:
            text = band(what, other)
            row[f"{what}, text"] = "not printed" if text is None else _range(*text)
            row[f"{what}, tables"] = _range(*tables_band(what, other))
            here = {at: values for at in points if (values := of(study, "FedASMU", other, at))}
            row[f"{what}, here"] = "; ".join(f"{at}: {interval(values)}" for at, values in here.items()) or None
        if row["accuracy gain, here"]:
            rows.append(row)
    return pd.DataFrame(rows)


def ablation_table(study: Study) -> pd.DataFrame:
    """Return Figure 2's methods; the printed side is what the text's ranges imply (7.2)."""
    return _measured(study, ("FedASMU", *ABLATIONS, "FedAvg"), settings(study, ABLATIONS[0]), setting=IMPLIED)


def others_table(study: Study) -> pd.DataFrame:
    """Return FedASMU's advantage over the baselines that only the text reports."""
    return _advantages(study, EXTRA)


def heuristics_table(study: Study) -> pd.DataFrame:
    """Return FedASMU's advantage over fixed slots."""
    return _advantages(study, HEURISTICS)


def sensitivity_table(study: Study) -> pd.DataFrame:
    """Return FedASMU's accuracy with other trigger periods and learning rates."""
    rows = []
    varied = ("trigger_period", "lr_lambda", "lr_sigma", "lr_iota")
    points = [at for name in varied for at in settings(study, varied=name)]
    for at in (*dict.fromkeys(Setting(at.column) for at in points), *points):
        if values := final(study, "FedASMU", at):
            changed = "nothing" if at.varied is None else f"{at.varied} = {at.value:g}"
            rows.append({"changed": changed, "accuracy": interval(values), "seeds": len(values)})
    return pd.DataFrame(rows)


def communication_table(study: Study) -> pd.DataFrame:
    """Return what is sent per upload, relative to the size of an upload of FedAsync's: the model."""
    rows = []
    for at in settings(study):
        whole = traffic(study, "FedAsync", at)[0]
        for method in METHODS if whole else ():
            up, down = traffic(study, method, at)
            if up:
                size = mean(whole)
                total = {seed: up[seed] + down[seed] for seed in up}
                rows.append(
                    {"column": str(at), "method": method, "models up per upload": f"{mean(up) / size:.3f}",
                     "models down per upload": f"{mean(down) / size:.3f}",
                     "both": f"{mean(total) / size:.3f}", "seeds": len(up)}
                )  # fmt: skip
    return pd.DataFrame(rows)


def hyperparameters(table: int) -> pd.DataFrame:
    """Return Table 5 or 6 from the specifications of profile ``paper``; where another number is printed, that too."""
    rows = printed()
    names = rows.loc[(rows["source"] == f"table{table}") & (rows["quantity"] == "m"), "column"]
    data: dict[str, list[str]] = {"parameter": [symbol for symbol, _ in SYMBOLS.values()]}
    for name in names:
        [entry] = [
            e
            for e in comparison("paper", COLUMNS[name].dataset, (0,), columns=(name,))
            if e.labels["method"] == "FedASMU"
        ]
        cells = []
        for quantity, (_, read) in SYMBOLS.items():
            here, paper = read(entry.spec), number(name, "FedASMU", quantity)
            cells.append(f"{here:g}" if paper in (None, here) else f"{here:g} (printed {paper:g})")
        data[str(Setting(name))] = cells
    return pd.DataFrame(data)


def cnn_layers() -> pd.DataFrame:
    """Return Table 3 from the network: layers, output shapes and parameters, with 10 classes and with 100."""
    rows = []
    for classes in (10, 100):
        network, total = build_network("fedasmu_cnn", (3, 32, 32), classes), 0
        for layer in network.modules():
            own = sum(p.numel() for p in layer.parameters(recurse=False))
            total += own
            if isinstance(layer, nn.Conv2d):
                kernel = "×".join(map(str, layer.kernel_size))
                rows.append((classes, f"convolution, {layer.out_channels} kernels {kernel}", own))
            elif isinstance(layer, nn.Linear):
                rows.append((classes, f"dense, {layer.out_features} units", own))
        rows.append((classes, "all", total))
    return pd.DataFrame(rows, columns=["classes", "layer", "parameters"])


def interval(values: Values, digits: int = 3) -> str | None:
    """Return the mean over seeds with its 95 % interval as text; None without a value."""
    found = np.array(list(values.values()))
    if len(found) < 2:
        return f"{found[0]:.{digits}f}" if len(found) else None
    half = stats.t.ppf((1 + CONFIDENCE) / 2, len(found) - 1) * found.std(ddof=1) / np.sqrt(len(found))
    low, high = found.mean() - half, found.mean() + half
    return f"{found.mean():.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def _measured(study: Study, methods: Iterable[str], points: Iterable[Setting], setting: str = "") -> pd.DataFrame:
    rows = []
    for at in points:
        for method in methods:
            accuracy, found = final(study, method, at), reached(study, method, at)
            if accuracy:
                seconds = {seed: one.seconds for seed, one in found.items() if one.reached}
                rows.append(
                    {"column": str(at), "method": method,
                     "printed accuracy": _accuracy(at.column, method, setting), "accuracy": interval(accuracy),
                     "printed time": _time(at.column, method, setting), "time": interval(seconds, 0),
                     "printed ratio": _printed_ratio(at.column, method, setting),
                     "ratio": _ratio(study, method, at), "reached": f"{len(seconds)} of {len(found)}"}
                )  # fmt: skip
    return pd.DataFrame(rows)


def _advantages(study: Study, others: Iterable[str]) -> pd.DataFrame:
    rows = []
    for other in others:
        for at in settings(study, other):
            row: dict[str, Any] = {"column": str(at), "against": other}
            for what, of in ADVANTAGES:
                printed_gain, values = gain(what, other), of(study, "FedASMU", other, at)
                row[f"{what}, printed"] = None if printed_gain is None else f"{printed_gain:g}"
                row[f"{what}, here"], row["seeds"] = interval(values), len(final(study, other, at))
            if row["seeds"]:
                rows.append(row)
    return pd.DataFrame(rows)


def _ratio(study: Study, method: str, at: Setting) -> str | None:
    """Return the mean time over FedASMU's of the seeds where both get there.

    If there are none, "< x" where only `method` gets there, x with the end of FedASMU's run, which its time exceeds;
    else the words "not reached".
    """
    sides = [reached(study, one, at) for one in (method, "FedASMU")]
    if not all(sides):
        return None
    pairs = [(sides[0][seed], sides[1][seed]) for seed in sides[0].keys() & sides[1].keys()]
    there = [(theirs, ours) for theirs, ours in pairs if theirs.reached]
    both = [(theirs, ours) for theirs, ours in there if ours.reached]
    if not there:
        return "not reached"
    theirs_mean, ours_mean = np.mean([(theirs.seconds, ours.seconds) for theirs, ours in both or there], axis=0)
    return f"{'' if both else '< '}{theirs_mean / ours_mean:.2f}" if ours_mean else None


def _accuracy(column: str, method: str, setting: str = "") -> str | None:
    found = number(column, method, "accuracy", setting)
    return None if found is None else f"{found:.3f}" if setting == "" else f"{found:.4f}"


def _time(column: str, method: str, setting: str = "") -> str | None:
    found = number(column, method, "time", setting)
    return None if found is None else "not reached" if isinf(found) else f"{found:,.0f}"


def _printed_ratio(column: str, method: str, setting: str = "") -> str | None:
    theirs, ours = (number(column, one, "time", setting) for one in (method, "FedASMU"))
    if theirs is None or not ours:
        return None
    return "not reached" if isinf(theirs) else f"{theirs / ours:.2f}"


def _range(low: float, high: float) -> str:
    return f"{low:.4g} to {high:.4g}"


def _seeds(values: Values) -> str:
    return f"{len(values)} seed{'s' if len(values) != 1 else ''}"
