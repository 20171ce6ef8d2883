"""The claims of FedAsync that Figures 2 to 7 carry, with the specification's tests and thresholds (section 8)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from fl_core.experiments.claims import Check, Claim, Comparison, register
from fl_core.experiments.fedasync_curves import alphas, area, oscillation
from fl_core.experiments.study import Study
from fl_core.formulas.staleness import Hinge

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
        if small > entry.spec.algorithm.weight.b:  # type: ignore[attr-defined]
            continue  # the hinge bends inside the pool, so nothing needs to be equal
        labels = {name: entry.labels[name] for name in ("alpha", "max_staleness", "seed")}
        for _, plain in study.select(role="curve", method=PLAIN, **labels):
            equal = result.history.evaluations == plain.history.evaluations and (
                result.provenance["model_sha256"] == plain.provenance["model_sha256"]
            )
            weight: Hinge = entry.spec.algorithm.weight  # type: ignore[attr-defined]
            convention = entry.spec.algorithm.convention  # type: ignore[attr-defined]
            where = f"α = {labels['alpha']:g}, seed {labels['seed']}"
            name = f"a = {weight.a:g}, {convention.replace('_', ' ')}, {where}"
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


def counters(column: str, asynchronous: int, rounds: int) -> Callable[[Study], list[Check]]:
    """Return the check that every evaluation of every run counts exactly so much per global epoch."""

    def check(study: Study) -> list[Check]:
        found = []
        for name, per_epoch in ((PLAIN, asynchronous), ("FedAvg", rounds)):
            frames = [
                result.history.evaluation_frame()
                for entry, result in study.select(part="whole")
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


def _add(
    number: str,
    source: str,
    statement: str,
    test: str,
    judge: Callable[[Study], Sequence[Comparison | Check]],
    fragile: bool = False,
    exact: bool = False,
) -> None:
    register(Claim(f"FEDASYNC-{number}", statement, source, test, judge, fragile, exact))


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
_add("C16", "Figs 2, 3", "FedAsync's speed lies between SGD's and FedAvg's.",
     "0.95 area(SGD) ≤ area(FedAsync) ≤ 1.1 area(FedAvg), each K and α", between)  # fmt: skip
_add("C17", "Figs 2, 3", "Larger α and less staleness bring it closer to SGD, the opposite closer to FedAvg.",
     "area(α = 0.9, small K) < area(α = 0.2, large K)", towards_sgd)  # fmt: skip
_add("C22", "Figs 6, 7", "A global epoch of FedAvg costs ten times the communications.",
     "2 and 20 transfers per epoch in every evaluation", counters("communications", 2, 20), exact=True)  # fmt: skip
_add("C23", "Figs 2, 3", "A global epoch applies 10 gradients in FedAsync and 100 in FedAvg.",
     "10 and 100 gradients per epoch in every evaluation", counters("gradients", 10, 100), exact=True)  # fmt: skip
