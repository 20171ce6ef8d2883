"""The claims of FedAsync that Figures 2 to 10 carry, with the specification's tests and thresholds (section 8)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pandas as pd
from scipy import stats

from fl_core.algorithms import FedAsync
from fl_core.experiments.claims import Check, Comparison, add_claim
from fl_core.experiments.study import Study
from fl_core.formulas.staleness import Hinge
from fl_papers.fedasync.curves import alphas, area, oscillation, sweep_values
from fl_papers.fedasync.grid import ADAPTIVE

PLAIN = "FedAsync"
SMALL, LARGE = 0, 1


def staleness(study: Study, which: int) -> int:
    """Return the small or the large maximum staleness of `study`."""
    return int(study.options.get("max_staleness", (4, 16))[which])


def _areas(study: Study, axis: str, which: int) -> dict[float, dict[int, float]]:
    """Area of plain FedAsync by alpha, without those that have no runs."""
    found = {a: area(study, axis, PLAIN, alpha=a, max_staleness=staleness(study, which)) for a in alphas(study)}
    return {alpha: values for alpha, values in found.items() if values}


def _against(
    study: Study, axis: str, which: int, method: str, bound: float = 1.0, above: bool = False
) -> list[Comparison]:
    """Compare plain FedAsync with another method, for each alpha."""
    other = area(study, axis, method)
    name = f"K = {staleness(study, which)}"
    return [
        Comparison(f"{name}, α = {alpha:g}", values, other, bound, above)
        for alpha, values in _areas(study, axis, which).items()
        if other
    ]


def as_fast_as_sgd(study: Study) -> list[Comparison]:
    """FEDASYNC-C01."""
    found = _against(study, "gradients", SMALL, "SGD", 1.15)
    return [min(found, key=lambda part: np.mean(list(part.left.values())))] if found else []


def slower_if_staler(study: Study) -> list[Comparison]:
    """FEDASYNC-C03."""
    small, large = _areas(study, "gradients", SMALL), _areas(study, "gradients", LARGE)
    return [Comparison(f"α = {alpha:g}", large[alpha], small[alpha], above=True) for alpha in small if alpha in large]


def large_alpha_oscillates(study: Study) -> list[Comparison]:
    """FEDASYNC-C05."""
    large = staleness(study, LARGE)
    high, low = (oscillation(study, PLAIN, alpha=alpha, max_staleness=large) for alpha in (0.9, 0.2))
    return [Comparison("α = 0.9 against 0.2", high, low, above=True)] if high and low else []


def adaptive_is_calmer(study: Study) -> list[Comparison]:
    """FEDASYNC-C06."""
    labels = {"alpha": 0.9, "max_staleness": staleness(study, LARGE)}
    plain = oscillation(study, PLAIN, **labels)
    found = {name: oscillation(study, f"{PLAIN}{name}", **labels) for name in ("+Poly", "+Hinge")}
    return [Comparison(name, values, plain) for name, values in found.items() if values and plain]


def hinge_is_plain(study: Study) -> list[Check]:
    """FEDASYNC-C07: equal final model and equal evaluations, bit for bit."""
    small, found = staleness(study, SMALL), []
    others = study.select(role="identity") + study.select(role="curve", method=f"{PLAIN}+Hinge", max_staleness=small)
    for entry, result in others:
        method = entry.spec.algorithm
        assert isinstance(method, FedAsync)
        assert isinstance(method.weight, Hinge)
        if small > method.weight.b:
            continue  # the hinge bends inside the pool, so nothing needs to be equal
        labels = {name: entry.labels[name] for name in ("alpha", "max_staleness", "seed")}
        for _, plain in study.select(role="curve", method=PLAIN, **labels):
            equal = result.history.evaluations == plain.history.evaluations and (
                result.provenance["model_sha256"] == plain.provenance["model_sha256"]
            )
            where = f"α = {labels['alpha']:g}, seed {labels['seed']}"
            name = f"a = {method.weight.a:g}, {method.convention.replace('_', ' ')}, {where}"
            found.append(Check(name, equal, "bitwise equal"))
    return found


def between(study: Study) -> list[Comparison]:
    """FEDASYNC-C16."""
    return [
        part
        for which in (SMALL, LARGE)
        for method, bound, above in (("SGD", 0.95, True), ("FedAvg", 1.1, False))
        for part in _named(_against(study, "gradients", which, method, bound, above), method)
    ]


def towards_sgd(study: Study) -> list[Comparison]:
    """FEDASYNC-C17."""
    fast = area(study, "gradients", PLAIN, alpha=0.9, max_staleness=staleness(study, SMALL))
    slow = area(study, "gradients", PLAIN, alpha=0.2, max_staleness=staleness(study, LARGE))
    name = f"α = 0.9, K = {staleness(study, SMALL)} against α = 0.2, K = {staleness(study, LARGE)}"
    return [Comparison(name, fast, slow)] if fast and slow else []


def slower_but_alive(study: Study) -> list[Comparison]:
    """FEDASYNC-C11."""
    small, large = staleness(study, SMALL), staleness(study, LARGE)
    loss, accuracy = (_by_staleness(study, metric, PLAIN) for metric in ("train_loss", "test_accuracy"))
    found = []
    if loss.shape[1] > 1:
        found.append(Comparison("rank correlation of loss with K", _correlation(loss), _one(loss), 0.0, above=True))
    if {small, large} <= set(accuracy.columns):
        name = f"accuracy, K = {large} against {small}"
        found.append(Comparison(name, _seeds(accuracy[large]), _seeds(accuracy[small]), 0.9, above=True))
    return found


def adaptive_helps_when_stale(study: Study) -> list[Comparison]:
    """FEDASYNC-C12."""
    large = staleness(study, LARGE)
    plain, poly = (_by_staleness(study, "train_loss", method) for method in (PLAIN, f"{PLAIN}+Poly"))
    known = large in plain.columns and large in poly.columns
    return [Comparison(f"K = {large}", _seeds(poly[large]), _seeds(plain[large]))] if known else []


def robust_to_alpha(study: Study) -> list[Comparison]:
    """FEDASYNC-C13: the range of each seed, which is at least the range of the means."""
    found = []
    for which in (SMALL, LARGE):
        for method in ADAPTIVE:
            values = _by_alpha(study, method, which)
            if values.shape[1] > 1:
                spread = _seeds(values.max(axis=1) - values.min(axis=1))
                found.append(Comparison(f"K = {staleness(study, which)}, {method}", spread, _one(values), 0.05))
    return found


def adaptivity_is_unnecessary(study: Study) -> list[Comparison]:
    """FEDASYNC-C14: the difference is within 0.02 to both sides."""
    plain, poly = (_by_alpha(study, method, SMALL) for method in (PLAIN, f"{PLAIN}+Poly"))
    found = []
    for alpha in plain.columns.intersection(poly.columns):
        difference = (poly[alpha] - plain[alpha]).dropna()
        for bound, above in ((0.02, False), (-0.02, True)):
            found.append(Comparison(f"α = {alpha:g}", _seeds(difference), _one(difference), bound, above))
    return found


def best_alpha(study: Study) -> list[Comparison]:
    """FEDASYNC-C15."""
    found = []
    for method in ADAPTIVE:
        values = _by_alpha(study, method, LARGE)
        if values.shape[1] > 1:
            found.append(Comparison(method, _correlation(values), _one(values), 0.0, above=method != PLAIN))
    return found


def poly_beats_hinge(study: Study) -> list[Comparison]:
    """FEDASYNC-C18."""
    large, methods = staleness(study, LARGE), (f"{PLAIN}+Poly", f"{PLAIN}+Hinge")
    poly, hinge = (_by_alpha(study, method, LARGE) for method in methods)
    found = [
        Comparison(f"Fig. 10, α = {alpha:g}", _seeds(poly[alpha]), _seeds(hinge[alpha]), above=True)
        for alpha in poly.columns.intersection(hinge.columns)
    ]
    poly, hinge = (_by_staleness(study, "test_accuracy", method) for method in methods)
    if large in poly.columns and large in hinge.columns:
        found.append(Comparison(f"Fig. 8, K = {large}", _seeds(poly[large]), _seeds(hinge[large]), above=True))
    return found


def _by_staleness(study: Study, metric: str, method: str) -> pd.DataFrame:
    return sweep_values(study, "staleness sweep", metric, method, "max_staleness")


def _by_alpha(study: Study, method: str, which: int) -> pd.DataFrame:
    return sweep_values(study, "alpha sweep", "test_accuracy", method, "alpha", max_staleness=staleness(study, which))


def _seeds(values: pd.Series) -> dict[int, float]:
    return {int(seed): float(value) for seed, value in zip(values.index, values, strict=True)}


def _correlation(values: pd.DataFrame) -> dict[int, float]:
    """Spearman's rank correlation of each row with the column names; 0 if all its values are equal."""
    found = values.apply(
        lambda row: stats.spearmanr(values.columns, row).statistic if row.nunique() > 1 else 0.0, axis=1
    )
    return _seeds(found)


def _one(values: pd.DataFrame | pd.Series) -> dict[int, float]:
    return {int(seed): 1.0 for seed in values.index}


def counters(column: str, asynchronous: int, rounds: int) -> Callable[[Study], list[Check]]:
    """Return the check that every evaluation of every run counts exactly so much per global epoch."""

    def check(study: Study) -> list[Check]:
        found = []
        for name, per_epoch in ((PLAIN, asynchronous), ("FedAvg", rounds)):
            frames = [
                result.history.evaluation_frame()
                for entry, result in study.select(role="curve", part="whole")
                if entry.labels["method"].startswith(name)
            ]
            holds = all((frame[column] == per_epoch * frame["version"]).all() for frame in frames)
            total = f"{max((int(f[column].iloc[-1]) for f in frames), default=0):,} in all"
            found.append(Check(name, holds if frames else None, f"{per_epoch} per epoch, {total}"))
        return found

    return check


def _named(parts: Sequence[Comparison], prefix: str) -> list[Comparison]:
    return [Comparison(f"against {prefix}, {p.name}", p.left, p.right, p.bound, p.above) for p in parts]


def _both(axis: str) -> Callable[[Study], list[Comparison]]:
    """FedAsync is slower than FedAvg at both stalenesses, for each alpha."""
    return lambda study: [
        part for which in (SMALL, LARGE) for part in _against(study, axis, which, "FedAvg", above=True)
    ]


_add = partial(add_claim, "FEDASYNC")
_add("C01", "Fig. 2", "With little staleness FedAsync converges as fast as SGD per gradient.",
     "area(FedAsync, small K, best α) ≤ 1.15 area(SGD)", as_fast_as_sgd)  # fmt: skip
_add("C02", "Fig. 2", "With little staleness FedAsync converges faster than FedAvg per gradient.",
     "area(FedAsync, small K) < area(FedAvg), each α",
     lambda study: _against(study, "gradients", SMALL, "FedAvg"))  # fmt: skip
_add("C03", "Fig. 3", "More staleness makes FedAsync slower.",
     "area(FedAsync, large K) > area(FedAsync, small K), each α", slower_if_staler)  # fmt: skip
_add("C04", "Fig. 3", "In the worst case FedAsync is similar to FedAvg per gradient.",
     "area(FedAsync, large K) ≤ 1.1 area(FedAvg), each α",
     lambda study: _against(study, "gradients", LARGE, "FedAvg", 1.1))  # fmt: skip
_add("C05", "Fig. 3", "Too large an α makes convergence unstable.",
     "oscillation(α = 0.9) > oscillation(α = 0.2), large K", large_alpha_oscillates, fragile=True)  # fmt: skip
_add("C06", "Fig. 3", "Adaptive mixing is robust to a large α.",
     "oscillation(+Poly), oscillation(+Hinge) < oscillation(FedAsync), α = 0.9, large K",
     adaptive_is_calmer, fragile=True)  # fmt: skip
_add("C07", "Figs 2, 4, 6", "With K = 4, FedAsync and FedAsync+Hinge with b = 4 are the same.",
     "same seed, same bits, both conventions, a = 10 and 4", hinge_is_plain, exact=True)  # fmt: skip
_add("C08", "Figs 4, 5", "FedAvg makes more progress per global epoch.",
     "area per epoch(FedAvg) < area per epoch(FedAsync), each K and α", _both("epochs"))  # fmt: skip
_add("C09", "Fig. 6", "With little staleness FedAsync is faster than FedAvg for the same communication.",
     "area per communication(FedAsync, small K) < that of FedAvg, each α",
     lambda study: _against(study, "communications", SMALL, "FedAvg"))  # fmt: skip
_add("C10", "Fig. 7", "With much staleness it is similar to FedAvg for the same communication.",
     "area per communication(FedAsync, large K) ≤ 1.1 times that of FedAvg, each α",
     lambda study: _against(study, "communications", LARGE, "FedAvg", 1.1))  # fmt: skip
_add("C11", "Fig. 8", "More staleness makes FedAsync slower, but not catastrophically.",
     "rank correlation of final loss with K > 0; final accuracy at the large K ≥ 0.9 times that at the small K",
     slower_but_alive)  # fmt: skip
_add("C12", "Fig. 8", "Adaptive mixing mitigates the instability that much staleness causes.",
     "final loss(+Poly) ≤ final loss(FedAsync), large K", adaptive_helps_when_stale, fragile=True)  # fmt: skip
_add("C13", "Figs 9, 10", "FedAsync is robust to α: the differences are tiny.",
     "range of final accuracy over α ≤ 0.05, each method and K", robust_to_alpha)  # fmt: skip
_add("C14", "Fig. 9", "With little staleness adaptive mixing is less necessary.",
     "|final accuracy(+Poly) − final accuracy(FedAsync)| ≤ 0.02, small K, each α",
     adaptivity_is_unnecessary)  # fmt: skip
_add("C15", "Fig. 10", "With much staleness plain FedAsync prefers a small α, adaptive mixing a large one.",
     "rank correlation of final accuracy with α: below 0 for FedAsync, above 0 for +Poly and +Hinge, large K",
     best_alpha, fragile=True)  # fmt: skip
_add("C16", "Figs 2, 3", "FedAsync's speed lies between SGD's and FedAvg's.",
     "0.95 area(SGD) ≤ area(FedAsync) ≤ 1.1 area(FedAvg), each K and α", between)  # fmt: skip
_add("C17", "Figs 2, 3", "Larger α and less staleness bring it closer to SGD, the opposite closer to FedAvg.",
     "area(α = 0.9, small K) < area(α = 0.2, large K)", towards_sgd)  # fmt: skip
_add("C18", "section 6", "Polynomial weights with a = 0.5 are the best adaptive strategy.",
     "final accuracy(+Poly) ≥ final accuracy(+Hinge), large K, Figure 8 and each α of Figure 10",
     poly_beats_hinge, fragile=True)  # fmt: skip
_add("C22", "Figs 6, 7", "A global epoch of FedAvg costs ten times the communications.",
     "2 and 20 transfers per epoch in every evaluation", counters("communications", 2, 20), exact=True)  # fmt: skip
_add("C23", "Figs 2, 3", "A global epoch applies 10 gradients in FedAsync and 100 in FedAvg.",
     "10 and 100 gradients per epoch in every evaluation", counters("gradients", 10, 100), exact=True)  # fmt: skip
