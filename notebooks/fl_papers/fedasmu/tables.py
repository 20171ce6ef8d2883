"""FedASMU's tables: what the paper prints, and numbers from the runs or the specifications beside it.

A number is a mean over seeds, with its 95 % t-interval in brackets where there are two or more. A time is in seconds
of the virtual clock; the paper's unit is unknown, so that only ratios can be compared (A26).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from math import inf, isinf, nan
from typing import Any, Literal

import numpy as np
import pandas as pd
from torch import nn

from fl_core.algorithms import FedASMU
from fl_core.datasets import load_dataset
from fl_core.experiments.measures import BySeed, Printed, t_interval
from fl_core.experiments.study import Study
from fl_core.models import build_network
from fl_core.report.explorable import Comparison, Mark, in_units
from fl_papers.fedasmu import experiment, figures
from fl_papers.fedasmu.experiment import BASELINES, COLUMNS, EXTRA, METHODS, FedASMUExperiment, target_of
from fl_papers.fedasmu.figures import Setting, final, gaps, mean_seconds, passed, savings, settings

# What the paper prints

PRINTED = Printed(__file__)
"""Tables 1, 2, 5 and 6, and the gains that the text quotes: where a number stands (``source``), the column of the
tables, the setting if it is not the tables', the method, what it is compared with, the quantity. Accuracies, gains
and savings are fractions; times have no unit in print, and one that is infinite is printed as "/": not reached."""
IMPLIED = "implied"  # Setting of the values of Figure 2 that the text's ranges fix; they are printed nowhere.
ONE_DIGIT = 0.675  # The one saving whose percentage has one decimal in print, not two.
BUDGETS = ("reduced", "full", "printed")  # Columns of :func:`both_budgets`.

What = Literal["accuracy gain", "time saved"]
ADVANTAGES: dict[What, Callable[..., BySeed]] = {"accuracy gain": gaps, "time saved": savings}


def number(column: str, method: str, quantity: str, setting: str = "") -> float | None:
    """Return "accuracy", "time" or a hyper-parameter (Tables 5, 6) in a column of the tables; None: not printed."""
    return PRINTED.number(column=column, method=method, quantity=quantity, setting=setting)


def gain(what: What, against: str, method: str = "FedASMU") -> float | None:
    """Return what the text says that `method` gains over `against`, as one number; None: it does not."""
    return PRINTED.number(quantity=what, against=against, method=method)


def band(what: What, against: str, method: str = "FedASMU", setting: str = "") -> tuple[float, float] | None:
    """Return the least and the most that the text says `method` gains over another or "all"; None: it does not.

    `setting` may be one of Figure 7: "bandwidth 50", "bandwidth 100", "heterogeneity 110 to 440", "devices 100 and
    200"; `method` also "FedASMU-DA and FedASMU-FA".
    """
    labels = {"against": against, "method": method, "setting": setting}
    least, most = (PRINTED.number(quantity=f"{what}, {end}", **labels) for end in ("least", "most"))
    return None if least is None or most is None else (least, most)


def tables_band(what: What, against: str) -> tuple[float, float]:
    """Return the least and the most that FedASMU gains in Tables 1 and 2; times where both reach the target."""
    rows = PRINTED.rows(quantity=what.split()[0])
    wide = rows[rows["source"].isin(["table1", "table2"])].pivot(index="column", columns="method", values="value")
    ours, theirs = wide["FedASMU"], wide[against]
    gains = ours - theirs if what == "accuracy gain" else (1 - ours / theirs)[theirs.abs() < inf]
    return float(gains.min()), float(gains.max())


def deviations() -> pd.DataFrame:
    """Return the ends of the text's ranges (NaN: not printed) that Tables 1 and 2 do not give (E19).

    The text cuts digits off.
    """
    rows = []
    for against, what in product(dict.fromkeys(PRINTED.rows(source="sec5")["against"]), ADVANTAGES):
        text, found = band(what, against) or (nan, nan), tables_band(what, against)
        for end, said, given in zip(("least", "most"), text, found, strict=True):
            if not -1e-9 < given - said < (1e-3 if said == ONE_DIGIT else 1e-4):
                rows.append((against, what, end, said, given))
    return pd.DataFrame(rows, columns=["against", "quantity", "end", "text", "tables"])


# Tables of runs


def interval(values: BySeed, digits: int = 3) -> str | None:
    """Return the mean over seeds with its 95 % interval as text; None without a value."""
    if not values:
        return None
    mean, low, high = t_interval(list(values.values()))
    return f"{mean:.{digits}f}" + (f" [{low:.{digits}f}, {high:.{digits}f}]" if len(values) > 1 else "")


def comparison(studies: Mapping[str, Study]) -> Comparison:
    """Return the curves of Figures 2 to 6 for a reader to examine, the numbers of Tables 1 and 2 as marks.

    `studies` go by what sets them apart, in words.
    """
    found: dict[str, dict[str, dict[int, pd.DataFrame]]] = {}
    marks = []
    for words, study in studies.items():
        for entry, result in study.select(varied=None):
            name, method = f"{COLUMNS[entry.labels['column']]}{words}", entry.labels["method"]
            frame = result.history.evaluation_frame().iloc[: len(figures.readings(result)[0])]
            own = found.setdefault(name, {}).setdefault(method, {})
            own[entry.labels["seed"]] = in_units(frame)
            printed = number(entry.labels["column"], method, "accuracy")
            if printed is not None and len(own) == 1:
                marks.append(Mark(name, method, printed))
    axes = {"seconds": "virtual time (s)", "models_received": "uploads", "gigabytes": "GB uploaded"}
    return Comparison("FedASMU comparison", found, axes, {"test_accuracy": "test accuracy"}, "FedASMU", marks)


def measured(study: Study, methods: Sequence[str], setting: str = "") -> pd.DataFrame:
    """Return accuracy and time to the target, beside what is printed (or :data:`IMPLIED`), by column and method."""
    rows = []
    for at in settings(study, methods[1]):  # of FedASMU there are runs for other tables, too
        for method in methods:
            if accuracy := final(study, method, at):
                seconds, found = _seconds(study, method, at)
                time = number(at.column, method, "time", setting)
                printed = None if time is None else "not reached" if isinf(time) else f"{time:,.0f}"
                rows.append(
                    {"column": str(at), "method": method,
                     "printed accuracy": _accuracy(at.column, method, setting), "accuracy": interval(accuracy),
                     "printed time": printed, "time": interval(seconds, 0),
                     "printed ratio": _printed_ratio(at.column, method, setting),
                     "ratio": _ratio(study, method, at), "reached": f"{len(seconds)} of {found}"}
                )  # fmt: skip
    return pd.DataFrame(rows)


def advantages(study: Study, others: Iterable[str]) -> pd.DataFrame:
    """Return FedASMU's advantage over methods that only the text reports, beside what it says."""
    rows = []
    for other in others:
        for at in settings(study, other):
            row: dict[str, Any] = {"column": str(at), "against": other}
            for what, of in ADVANTAGES.items():
                printed_gain, values = gain(what, other), of(study, "FedASMU", other, at)
                row[f"{what}, printed"] = None if printed_gain is None else f"{printed_gain:g}"
                row[f"{what}, here"], row["seeds"] = interval(values), len(final(study, other, at))
            if row["seeds"]:
                rows.append(row)
    return pd.DataFrame(rows)


def changed_runs(study: Study, table: Mapping[str, tuple[str, Iterable[Any]]]) -> pd.DataFrame:
    """Return accuracy and time to the target of the methods in `table`, as in the tables and with other values."""
    rows = []
    varied_runs = ((m, *one) for m, (what, values) in table.items() for one in experiment.changes({what: values}))
    for method, varied, value in varied_runs:
        for column in dict.fromkeys(at.column for at in settings(study, method)):
            at = Setting(column, varied, value)
            if accuracy := final(study, method, at):
                changed = value if varied == "variant" else f"{varied} = {value:g}" if varied else "as in the tables"
                seconds = interval(_seconds(study, method, at)[0], 0) or "not reached"
                rows.append(
                    {"method": method, "changed": changed, "accuracy": interval(accuracy),
                     "seconds to the target": seconds, "seeds": len(accuracy)}
                )  # fmt: skip
    return pd.DataFrame(rows)


def all_columns(studies: Sequence[Study], table: int, quantity: str = "accuracy") -> pd.DataFrame:
    """Return Table 1 or 2 as it is printed, a row for each method, "printed | here" in its six columns.

    `studies` are those of the data sets whose columns are to be filled. Times (`quantity` "time") are multiples of
    FedASMU's, as the paper's unit is unknown (A26).
    """
    timed = quantity == "time"
    data: dict[str, list[str]] = {"method": [*METHODS, *["target"] * timed, "data"]}
    for name, column in COLUMNS.items():
        if column.table != table:
            continue
        at, shown = Setting(name), []
        runs = next((study for study in studies if final(study, "FedASMU", at)), None)
        for method in METHODS:
            if timed:
                paper, here = _printed_ratio(name, method), _ratio(runs, method, at) if runs else None
            else:
                paper, here = _accuracy(name, method), interval(final(runs, method, at)) if runs else None
            shown.append(f"{paper} | {here or '–'}")
        if timed:
            shown.append(f"{column.target:.2f} | {f'{target_of(runs.profile, name):.2f}' if runs else '–'}")
        seeds = len(final(runs, "FedASMU", at)) if runs else 0
        kind = f"{runs.data_kind}, {runs.profile}, {seeds} seed{'s' * (seeds != 1)}" if runs else "not run"
        data[str(at)] = [*shown, kind]
    return pd.DataFrame(data)


def leaders(studies: Sequence[Study]) -> pd.DataFrame:
    """Return who is first in each column of Tables 1 and 2 that was run, and the place of FedASMU (printed: 1)."""
    rows = []
    for at in map(Setting, COLUMNS):
        runs = next((study for study in studies if final(study, "FedASMU", at)), None)
        if runs is None:
            continue
        ends = {method: values for method in METHODS if (values := final(runs, method, at))}
        short = {method: 1 - values.mean for method, values in ends.items()}
        seconds = {method: mean_seconds(runs, method, at) for method in ends}
        row = {"column": str(at), "data": runs.data_kind}
        for what, of in (("highest accuracy", short), ("first at the target", seconds)):
            first, own = min(of, key=lambda method: of[method]), of["FedASMU"]
            place = 1 + sum(value < own for value in of.values())
            row[what] = "none" if isinf(of[first]) else first
            row[f"{what}: FedASMU's place"] = "not reached" if isinf(own) else f"{place} of {len(of)}"
        rows.append(row)
    return pd.DataFrame(rows)


def both_budgets(reduced: Sequence[Study], full: Sequence[Study]) -> pd.DataFrame:
    """Return accuracy and time of each method that was run at both budgets, and what is printed, best first.

    Time is over FedASMU's: infinite if the method does not get to the target with all seeds, 0 if FedASMU alone does
    not.
    """
    rows = []
    for at in settings(full[0]) if full else ():
        for method in (*METHODS, *EXTRA):
            row: dict[str, Any] = {"method": method}
            for name, studies in (("reduced", reduced), ("full", full)):
                study = next((one for one in studies if final(one, method, at)), None)
                if study is not None:
                    theirs, ours = mean_seconds(study, method, at), mean_seconds(study, "FedASMU", at)
                    ratio = inf if isinf(theirs) else theirs / ours
                    row |= {f"accuracy, {name}": final(study, method, at).mean, f"time, {name}": ratio}
            time, base = number(at.column, method, "time"), number(at.column, "FedASMU", "time")
            row["accuracy, printed"] = number(at.column, method, "accuracy")
            row["time, printed"] = time / base if time and base else None
            rows.append(row)
    numbers = [f"{what}, {name}" for what in ("accuracy", "time") for name in BUDGETS]
    frame = pd.DataFrame(rows, columns=["method", *numbers]).dropna(subset=["accuracy, reduced", "accuracy, full"])
    both = frame.astype(dict.fromkeys(numbers, float))
    return both.sort_values("accuracy, full", ascending=False, ignore_index=True)


def carried_over(frame: pd.DataFrame) -> str:
    """Return in words what two budgets agree on: the order of the methods, and who is better than FedASMU."""
    own = frame[frame["method"] == "FedASMU"].iloc[0]
    others = frame[frame["method"] != "FedASMU"].set_index("method")
    words = []
    for what in ("accuracy", "time"):
        pair = [f"{what}, {name}" for name in BUDGETS[:2]]
        known = frame[np.isfinite(frame[pair]).all(axis=1)]  # the target is reached with both
        order = known[pair[0]].corr(known[pair[1]], method="spearman")
        sides = np.sign(others[pair[0]] - own[pair[0]]) * np.sign(others[pair[1]] - own[pair[1]])
        changed = list(others.index[sides < 0])
        names = f" ({', '.join(changed)})" if changed else ""
        words.append(
            f"in {what} the rank correlation of the {len(known)} methods with both is {order:.2f}, and "
            f"{len(changed)} of {len(others)} change sides with FedASMU{names}"
        )
    return f"Between the two budgets: {'; '.join(words)}."


def above_print(frame: pd.DataFrame) -> str:
    """Return in words how far from their printed accuracies methods end with the paper's budget."""
    points = 100 * (frame["accuracy, full"] - frame["accuracy, printed"]).set_axis(frame["method"]).dropna()
    own, points = points["FedASMU"], points.drop("FedASMU")
    above = points[points > 0]
    by = f", by {above.min():.1f} to {above.max():.1f} points" if len(above) else ""
    return (
        f"With the paper's budget FedASMU ends {own:+.1f} points from its printed accuracy, {len(above)} of the "
        f"{len(points)} printed baselines above theirs{by}."
    )


def gains_table(study: Study) -> pd.DataFrame:
    """Return what FedASMU gains over each baseline: the text's range, that of the printed tables, and ours."""
    points, rows = settings(study), []
    for other in BASELINES:
        row: dict[str, Any] = {"against": other}
        for what, of in ADVANTAGES.items():
            for name, ends in (("text", band(what, other)), ("tables", tables_band(what, other))):
                row[f"{what}, {name}"] = "{:.4g} to {:.4g}".format(*ends) if ends else "not printed"
            here = {at: values for at in points if (values := of(study, "FedASMU", other, at))}
            row[f"{what}, here"] = "; ".join(f"{at}: {interval(values)}" for at, values in here.items()) or None
        if row["accuracy gain, here"]:
            rows.append(row)
    return pd.DataFrame(rows)


def sensitivity_table(study: Study) -> pd.DataFrame:
    """Return FedASMU's accuracy with other trigger periods and learning rates."""
    rows = []
    points = sensitivity_settings(study)
    for at in (*dict.fromkeys(Setting(at.column) for at in points), *points):
        if values := final(study, "FedASMU", at):
            changed = "nothing" if at.varied is None else f"{at.varied} = {at.value:g}"
            rows.append({"changed": changed, "accuracy": interval(values), "seeds": len(values)})
    return pd.DataFrame(rows)


def sensitivity_settings(study: Study) -> list[Setting]:
    """Return the settings with another trigger period or learning rate."""
    return [at for name in ("trigger_period", *experiment.RATES[:3]) for at in settings(study, varied=name)]


def communication_table(study: Study) -> pd.DataFrame:
    """Return what is sent per upload, relative to the size of an upload of FedAsync's: the model."""
    rows = []
    for at in settings(study):
        size = figures.traffic(study, "FedAsync", at)[0].mean
        for method in METHODS if np.isfinite(size) else ():
            up, down = figures.traffic(study, method, at)
            ways = {"models up per upload": up, "models down per upload": down, "both": up + down}
            shown = {name: f"{way.mean / size:.3f}" for name, way in ways.items()}
            rows += [{"column": str(at), "method": method, **shown, "seeds": len(up)}] if up else []
    return pd.DataFrame(rows)


def equal_time_table(study: Study) -> pd.DataFrame:
    """Return each method's accuracy after all of its uploads, and at the virtual time when FedASMU has finished."""
    rows = [
        {"column": str(at), "method": method, "after all uploads": interval(final(study, method, at)),
         "when FedASMU has finished": interval(early), "seeds": len(early)}
        for at, method in product(settings(study), METHODS) if (early := figures.at_equal_time(study, method, at))
    ]  # fmt: skip
    return pd.DataFrame(rows)


def _seconds(study: Study, method: str, at: Setting) -> tuple[BySeed, int]:
    """Return the times of the seeds that get to the column's target, and how many seeds there are."""
    found = passed(study, method, at)
    return BySeed({seed: seconds for seed, seconds in found.items() if seed not in found.at_least}), len(found)


def _ratio(study: Study, method: str, at: Setting) -> str | None:
    """Return the mean time over FedASMU's of the seeds where both get there.

    If there are none, "< x" where only `method` gets there, x with the end of FedASMU's run, which its time exceeds;
    else the words "not reached".
    """
    theirs, ours = (passed(study, one, at) for one in (method, "FedASMU"))
    if not (theirs and ours):
        return None
    there = sorted(theirs.keys() & ours.keys() - theirs.at_least)
    both = [seed for seed in there if seed not in ours.at_least]
    if not there:
        return "not reached"
    theirs_mean, ours_mean = (np.mean([side[seed] for seed in both or there]) for side in (theirs, ours))
    return f"{'' if both else '< '}{theirs_mean / ours_mean:.2f}" if ours_mean else None


def _accuracy(column: str, method: str, setting: str = "") -> str | None:
    found = number(column, method, "accuracy", setting)
    return None if found is None else f"{found:.3f}" if setting == "" else f"{found:.4f}"


def _printed_ratio(column: str, method: str, setting: str = "") -> str | None:
    theirs, ours = (number(column, one, "time", setting) for one in (method, "FedASMU"))
    if theirs is None or not ours:
        return None
    return "not reached" if isinf(theirs) else f"{theirs / ours:.2f}"


# The paper's settings, and what the specifications have

INITIAL = {"pytorch": "PyTorch's", "glorot": "Glorot's"}  # Whose rule initial values follow.
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


def hyperparameters(table: int) -> pd.DataFrame:
    """Return Table 5 or 6 from the specifications of profile ``paper``; where another number is printed, that too."""
    data: dict[str, list[str]] = {"parameter": [symbol for symbol, _ in SYMBOLS.values()]}
    for name in PRINTED.rows(source=f"table{table}", quantity="m")["column"]:
        spec = FedASMUExperiment("paper", COLUMNS[name].dataset, columns=(name,)).entry("FedASMU", name, 0).spec
        cells = []
        for quantity, (_, read) in SYMBOLS.items():
            here, paper = read(spec), number(name, "FedASMU", quantity)
            cells.append(f"{here:g}" if paper in (None, here) else f"{here:g} (printed {paper:g})")
        data[str(COLUMNS[name])] = cells
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


def paper_setting(chosen: FedASMUExperiment) -> pd.DataFrame:
    """Return the paper's setting beside ours, one row per quantity, for the first column of the data set."""
    name, options, scale = chosen.columns[0], chosen.options, chosen.scale
    column, spec = COLUMNS[name], chosen.entry("FedASMU", name, 0).spec
    data = load_dataset(spec.dataset)
    uploads, algorithm = chosen.uploads(name), spec.algorithm
    assert isinstance(algorithm, FedASMU)
    share = spec.partition.train_fraction
    measured = f"{scale.test_samples:,} of {len(data.test):,}" if scale.test_samples else f"all {len(data.test):,}"
    rates, buffer = ", ".join(f"{rate:g}" for rate in column.rates), experiment.BUFFER

    def value(method: str, field: str) -> Any:
        return getattr(chosen.algorithm(method, name, experiment.IN_FLIGHT)[0], field)

    rows = [
        ("data", column.data, f"{data.name} ({data.kind})"),
        ("network; initial values", f"{column.model}; not stated", f"{spec.model}; {INITIAL[spec.initialisation]}"),
        ("devices; at work at a time", "100; at most 10 %", f"100; {100 // experiment.IN_FLIGHT}"),
        ("trigger", "10 devices every 10 s (tables); one every 5 s (text)",
         {"tables": "up to 10 every 10 s", "text": "one every 5 s"}[options.ticks]),
        ("slowest to fastest", "5 times", f"{options.ratio:g} times, 100 s to {100 * options.ratio:g} s a task"),
        ("transfer of a model", "not stated", f"{options.slower_network:g} s"),
        ("labels", "Dirichlet, concentration not stated", f"Dirichlet, {options.dirichlet:g}"),
        ("samples of a device", f"{column.samples} on average", f"{column.samples * share:.0f} on average"),
        ("rounds", "500 synchronous, 5,000 asynchronous", f"{uploads // 10:,} synchronous, {uploads:,} asynchronous"),
        ("local epochs E; batch", "not stated", f"{options.epochs}; {experiment.BATCH}"),
        ("local rate η_i", f"{column.lr:g}, decaying",
         f"{spec.training.lr:g}, times {experiment.LR_DECAY:g} after ten uploads"),
        ("rates of λ, σ, ι, γ, υ", rates, rates),
        ("λ, σ, ι; γ, υ at the start", "not stated",
         f"{algorithm.lambda_0:.4g}, {algorithm.sigma_0:g}, {algorithm.iota_0:g}; {algorithm.gamma_0:.4g}, "
         f"{algorithm.upsilon_0:g}"),
        ("staleness bound τ", "99", f"{options.staleness_bound}"),
        ("rate of the meta-model", "0.001", f"{algorithm.lr_rl:g}"),
        ("FedProx μ; MOON μ, temperature; FedDyn α", "tuned, not stated", "0.01; 1, 0.5; 0.01"),
        ("FedAsync", "polynomial, values not stated", "α = 0.6, exponent 0.5"),
        ("FedBuff; PORT", "not stated", f"buffers of {buffer}, (1 + s)^−0.5; at least {buffer} uploads, bound 10"),
        ("ASO-Fed", "tuned, not stated",
         f"pull {value('ASO-Fed', 'rho'):g}, memory {value('ASO-Fed', 'beta'):g}, without feature learning"),
        ("FedSA", "tuned, not stated",
         f"α = {value('FedSA', 'alpha_initial'):g} for the first {value('FedSA', 'initial_versions'):,} uploads, "
         f"then {value('FedSA', 'alpha_convergence'):g}; exponent {value('FedSA', 'a'):g}"),
        ("FedDelay; SyncDrop; AsyncPart", "not stated",
         f"server step {value('FedDelay', 'global_lr'):g}, less beyond staleness {value('FedDelay', 'concurrency')}; "
         f"α = {value('SyncDrop', 'alpha'):g}, {value('SyncDrop', 'keep'):.0%} of hidden units; "
         f"α = {value('AsyncPart', 'alpha'):g}, exponent 0.5"),
        ("measured", "not stated", f"after every ten uploads, on {measured} test samples"),
        ("repetitions", "not stated", f"{len(chosen.seeds)}"),
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=["setting", "the paper", f"here, profile {chosen.profile}"])


def column_settings(profile: str) -> pd.DataFrame:
    """Return what a profile makes of every column of Tables 1 and 2; where the paper has another value, that too.

    Tables 5 and 6 print the step sizes; sizes of networks are of our reading (A25), as the paper describes one.
    """

    def beside(here: float, paper: float) -> str:
        return f"{here:,}" if here == paper else f"{here:,} (paper {paper:,})"

    rows = []
    for name, column in COLUMNS.items():
        chosen = FedASMUExperiment(profile, column.dataset, columns=(name,))
        spec = chosen.entry("FedASMU", name, 0).spec
        side, whole_side = chosen.side(name), column.shape[-1] if len(column.shape) == 3 else None
        rows.append(
            {"column": str(column), "parameters": beside(chosen.parameters(name), column.parameters),
             "side of an image": "–" if whole_side is None else beside(side or whole_side, whole_side),
             "samples of a device": beside(round(column.samples * spec.partition.train_fraction), column.samples),
             "uploads": beside(chosen.uploads(name), experiment.PROFILES["paper"].uploads),
             "η_i": beside(spec.training.lr, column.lr), "target": beside(target_of(profile, name), column.target),
             "initial values": INITIAL[spec.initialisation], "seeds": len(chosen.seeds)}
        )  # fmt: skip
    return pd.DataFrame(rows)
