"""WKAFL's tables from the runs, each number beside the one that the paper prints, in both modes of staleness."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fl_core.datasets import actual, kind_of
from fl_core.experiments.claims import judge
from fl_core.experiments.run import Result
from fl_core.experiments.study import Study
from fl_papers.wkafl.curves import MODES
from fl_papers.wkafl.grid import Options
from fl_papers.wkafl.measures import Cell, final, levels, measured, name_of, skews, unrest
from fl_papers.wkafl.printed import number
from fl_papers.wkafl.setups import GSGM_FACTORS, network, scale_of, setup_of
from fl_papers.wkafl.theory import (
    expected_run_staleness,
)

IN_BOTH_MODES = tuple(f"WKAFL-C{n:02d}" for n in (7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18))
"""Claims of Tables 2 and 3 that are judged with true and with aliased staleness."""
PAPER_DATA = {"cifar10": "CIFAR-10", "emnist-byclass": "EMNIST ByClass", "celeba": "CelebA"}
SURVIVES = {
    ("reproduced", "reproduced"): "yes",
    ("not reproduced", "reproduced"): "no: only with aliasing",
    ("inconclusive", "reproduced"): "not clear of the noise; clear with aliasing",
    ("reproduced", "not reproduced"): "yes, and only with true staleness",
    ("reproduced", "inconclusive"): "yes; not clear of the noise with aliasing",
}


def staleness_table(study: Study) -> pd.DataFrame:
    """Return Table 2: final accuracy by level of staleness, printed and in both modes, as text."""
    cells = {mode: levels(study, mode) for mode in MODES}
    rows = []
    for place in _cells(cells):
        for method in ("WKAFL", "TWAFL", "SASGD"):
            printed = _printed(study, "table2", place, method, "accuracy")
            rows.append(_row(study, place, method, {"accuracy": final}, {"accuracy": printed}))
    return _filled(rows)


def skew_table(study: Study) -> pd.DataFrame:
    """Return Table 3: final accuracy and stability by label skew, printed and in both modes, as text."""
    cells = {mode: skews(study, mode) for mode in MODES}
    rows = []
    for place in _cells(cells):
        for method in ("WKAFL", "TWAFL", "GSGM", "SASGD"):
            printed = {what: _printed(study, "table3", place, method, what) for what in ("accuracy", "stability")}
            rows.append(_row(study, place, method, {"accuracy": final, "stability": unrest}, printed))
    return _filled(rows)


def survival_table(study: Study) -> pd.DataFrame:
    """Return what the claims of Tables 2 and 3 come to with true and with aliased staleness."""
    rows = []
    for name in IN_BOTH_MODES:
        true, aliased = (found for claim in (name, f"{name}-aliased") for found in judge([claim], study))
        verdicts = (true.verdict, aliased.verdict)
        if not (true.parts and aliased.parts):
            continue
        words = SURVIVES.get(verdicts, "not clear" if verdicts[0] == "inconclusive" else "no")
        rows.append(
            {"claim": name.partition("-")[2], "the paper says": true.claim.statement, "true staleness": verdicts[0],
             "aliased": verdicts[1], "survives": words}
        )  # fmt: skip
    return pd.DataFrame(rows)


def byzantine_table(study: Study) -> pd.DataFrame:
    """Return what WKAFL and Zeno++ reach with and without Byzantine uploads, and how many gradients they take."""
    rows = []
    for share in sorted({e.labels["byzantine"] for e, _ in study.select(role="byzantine")}):
        for method in ("WKAFL", "Zeno++"):
            runs = [result for _, result in study.select(role="byzantine", byzantine=share, method=method)]
            if not runs:
                continue
            counts = [run.history.outcomes for run in runs]
            rows.append(
                {"Byzantine uploads": f"{share:.0%}", "method": method,
                 "accuracy": _spread([final(run) for run in runs], 3),
                 "updates": _mean([run.history.evaluations["version"][-1] for run in runs]),
                 "gradients used": _mean([each.get("applied", 0) for each in counts]),
                 "refused": _mean([each.get("discarded", 0) for each in counts]), "seeds": len(runs)}
            )  # fmt: skip
    return pd.DataFrame(rows)


def rates_table(study: Study) -> pd.DataFrame:
    """Return GSGM's final accuracy and its last loss at each learning rate, as text."""
    rows = []
    for cell in skews(study, "copy"):
        for factor in GSGM_FACTORS:
            runs = [result for _, result in study.select(method="GSGM", lr_factor=factor, **cell)]
            losses = [result.history.evaluations["test_loss"][-1] for result in runs]
            if runs:
                rows.append(
                    {"cell": name_of(cell), "learning rate": f"{factor * setup_of(study.dataset).lrs['GSGM']:g}",
                     "accuracy": _spread([final(result) for result in runs], 3),
                     "largest loss at the end": f"{max(losses):.3g}" if np.isfinite(losses).all() else "not finite",
                     "seeds": len(runs)}
                )  # fmt: skip
    return pd.DataFrame(rows)


def paper_setting(
    profile: str, dataset: str = "fashion-mnist", seeds: Sequence[int] | None = None, **overrides: Any
) -> pd.DataFrame:
    """Return the paper's setting beside ours, one row per quantity; "code": stated by the authors' programs only."""
    chosen, setup, scale = Options.of(**overrides), setup_of(dataset), scale_of(profile, dataset)
    updates = scale.updates or setup.updates
    parameters, others = setup.wkafl, ", ".join(f"{name} {lr:g}" for name, lr in setup.lrs.items())
    factors = "" if chosen.lr_factors == (1.0,) else f", times {', '.join(map(str, chosen.lr_factors))}"
    levels_, (clients, count) = [f"{p // k:,} ({p:,}, {k})" for p, k in setup.levels], setup.skew_level
    ours = [f"{p // k:,} ({p:,}, {k})" for p, k in ((max(k, p // scale.shrink), k) for p, k in setup.levels)]
    name = dataset.removesuffix("-surrogate")
    owners = setup.min_samples is not None
    rows = [
        ("data", PAPER_DATA.get(name, "EMNIST MNIST"), f"{actual(dataset)} ({kind_of(dataset)})"),
        ("pixels", "0 to 255 (code)", "0 to 255"),
        ("network", setup.model, chosen.model or network(profile, dataset)),
        ("P/K (P, K)", "; ".join(levels_), "; ".join(ours)),
        ("division", "one owner per client" if owners else "Algorithm 4, 10 to 49 images per client",
         f"owners with at least {setup.min_samples} images" if owners else "the same"),
        *([] if owners else [("labels per client", "1, 5, 10; Table 2: not stated",
                              f"{', '.join(map(str, chosen.labels))}; Table 2: {chosen.labels[0]}"),
                             ("label skew is varied at", f"P = {clients:,}, K = {count}",
                              f"P = {max(count, clients // scale.shrink):,}, K = {count}")]),
        ("time of a gradient", "none: K of P at random (code)", "exponential, mean 1 s: the same process"),
        ("mini-batch", f"{setup.batch_size} (code)", f"{setup.batch_size}"),
        ("learning rate η₀ of WKAFL", f"{parameters['lr']:g} (code)", f"{parameters['lr']:g}{factors}"),
        ("of the others", f"{others} (code)", f"{others}{factors}"),
        ("γ, CB, B, β", "{lr_staleness_factor:g}, {clip_bound:g}, {stage2_clip_factor:g}, {sim_beta:g} (code)"
         .format(**parameters), "the same"),
        ("α, sim_min", "{momentum_alpha:g}, {sim_min:g} (code)".format(**parameters), "the same"),
        ("α of GSGM", f"{setup.gsgm_alpha:g} (code)", f"{setup.gsgm_alpha:g}"),
        ("updates J", f"{setup.updates:,} (code)", f"{updates:,}"),
        ("second stage from", f"update {round(setup.stage2_share * setup.updates):,} (code; text: a loss)",
         f"update {max(1, round(setup.stage2_share * updates)):,}"),
        ("mean staleness of a run", _run_staleness(setup.levels, setup.updates),
         _run_staleness([(max(k, p // scale.shrink), k) for p, k in setup.levels], updates)),
        ("measured", "100 times (code)", f"{scale.evaluations} times; final accuracy and stability: the last 10"),
        ("test images", "all (code: but the last partial batch)",
         f"{setup.test_samples:,} of them" if setup.test_samples and profile != "paper" else "all"),
        ("staleness", "true; in the programs aliased",
         " and ".join(MODES[mode] for mode in chosen.snapshots or scale.snapshots)),
        ("Appendix A", "P = 100, 1,500 accepted gradients (code)",
         f"P = {max(10, 100 // scale.shrink)}, {scale.zeno_updates:,} updates; "
         f"Byzantine: {chosen.byzantine:.0%} of the uploads, times −10"),
        ("repetitions", "not stated (code: 1)", f"{len(scale.seeds if seeds is None else seeds)}"),
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=["setting", "the paper", f"here, profile {profile}"])


def _run_staleness(levels_: Sequence[tuple[int, int]], updates: int) -> str:
    """Return what all gradients of a run have missed on average; less than P/K − 1, as a run begins fresh."""
    return "; ".join(f"{expected_run_staleness(p, k, updates):.0f}" for p, k in levels_)


def _cells(by_mode: dict[str, list[Cell]]) -> list[tuple[int, int, int | None]]:
    """Return (P, K, labels) of the cells that either mode has, in order."""
    found = [(c["clients"], c["aggregated"], c["labels"]) for cells in by_mode.values() for c in cells]
    return list(dict.fromkeys(found))


def _printed(
    study: Study, source: str, place: tuple[int, int, int | None], method: str, quantity: str
) -> float | None:
    clients, aggregated, labels = place
    return None if labels is None else number(study.dataset, source, clients, aggregated, labels, method, quantity)


def _row(
    study: Study, place: tuple[int, int, int | None], method: str,
    measures: dict[str, Callable[[Result], float]], printed: dict[str, float | None],
) -> dict[str, Any]:  # fmt: skip
    """Return one line of a table; empty if there is no run."""
    cell: Cell = {**dict(zip(("clients", "aggregated", "labels"), place, strict=True)), "role": "curve"}
    row: dict[str, Any] = {"cell": name_of(cell), "method": method}
    seeds = 0
    for what, measure in measures.items():
        digits, value = (3, printed[what]) if what == "accuracy" else (4, printed[what])
        row[f"{what}, printed"] = None if value is None else f"{value:.4f}"
        for mode, words in MODES.items():
            found = [v for v in measured(study, measure, method, {**cell, "snapshot": mode}).values() if v == v]
            seeds = max(seeds, len(found))
            row[f"{what}, {words}"] = _spread(found, digits)
    return row | {"seeds": seeds} if seeds else {}


def _filled(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Return the rows as a table, without the columns of a mode that has no runs."""
    return pd.DataFrame([row for row in rows if row]).dropna(axis=1, how="all")


def _spread(values: list[float], digits: int) -> str | None:
    if not values:
        return None
    mean = f"{np.mean(values):.{digits}f}"
    return f"{mean} ± {np.std(values, ddof=1):.{digits}f}" if len(values) > 1 else mean


def _mean(values: list[int]) -> str:
    return f"{np.mean(values):,.0f}"
