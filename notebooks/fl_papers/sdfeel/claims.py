"""SD-FEEL's claims about runs, with the specification's tests (section 8).

The specification tests means over seeds. Here a difference also has to be larger than what the seeds allow by
chance: each inequality has the paired 95 % interval of :mod:`fl_core.experiments.claims`. Times to a loss are read
off measurements, for both methods in the same way; a loss that is not reached counts with the end of the run.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise

from fl_core.experiments.claims import Check, Comparison, add_claim
from fl_core.experiments.study import Study
from fl_papers.sdfeel.clock import run_clock
from fl_papers.sdfeel.curves import Run, gaps, horizon, runs, time_to, value_at, value_near
from fl_papers.sdfeel.extra_formulas import staleness_bound
from fl_papers.sdfeel.grid import ASYNC, SYNC

PARTS = (0.25, 0.5)
"""Of the horizon, at which synchronous training sets the loss to be reached (C01)."""
SHORT_ROUNDS = 5
"""Synchronous rounds that a short training time is (C02)."""
TOLERANCE, POINTS, LOSS = 1.02, 0.02, 0.005
"""Of C04; and the difference of accuracy and of loss that C05 leaves."""

Values = dict[int, float]


def both(study: Study, gap: float, role: str = "curve") -> dict[int, tuple[Run, Run]]:
    """Return the asynchronous and the synchronous run of each seed that has both."""
    ours, theirs = (runs(study, method, gap, role) for method in (ASYNC, SYNC))
    return {seed: (ours[seed], theirs[seed]) for seed in ours if seed in theirs}


def times(study: Study, gap: float, part: float) -> tuple[Values, Values]:
    """Return when each method first has the loss that the synchronous one has at a part of the horizon, by seed."""
    left, right = {}, {}
    for seed, (ours, theirs) in both(study, gap).items():
        goal = value_at(theirs, "train_loss", part)
        left[seed], right[seed] = min(time_to(ours, goal), horizon(ours[0])), time_to(theirs, goal)
    return left, right


def faster_in_loss(study: Study) -> list[Comparison]:
    """SDFEEL-C01."""
    found = []
    for gap in gaps(study):
        for part in PARTS:
            left, right = times(study, gap, part)
            if left:
                found.append(Comparison(f"H = {gap:g}, loss of Sync. at {part:.0%}", left, right))
    return found


def more_accurate_early(study: Study) -> list[Comparison]:
    """SDFEEL-C02, at the measurement nearest to five synchronous rounds."""
    found = []
    for gap in gaps(study):
        left, right = {}, {}
        for seed, (ours, theirs) in both(study, gap).items():
            at = SHORT_ROUNDS * run_clock(theirs[0].spec).round_seconds
            if at <= horizon(theirs[0]):
                left[seed], right[seed] = (value_near(run, "test_accuracy", at) for run in (ours, theirs))
        if left:
            found.append(Comparison(f"H = {gap:g}", left, right, above=True))
    return found


def gap_slows_synchronous(study: Study) -> list[Comparison]:
    """SDFEEL-C03."""
    return _rising(study, SYNC, 0.25, 1.0)


def gap_hinders(study: Study) -> list[Comparison]:
    """SDFEEL-C04, for the asynchronous method."""
    return _rising(study, ASYNC, 0.1, TOLERANCE)


def similar_in_the_end(study: Study) -> list[Comparison]:
    """SDFEEL-C05, on the long runs."""
    found = []
    for gap in gaps(study, role="long"):
        accuracy, loss = (
            [_read(study, method, gap, metric, 1.0, "long") for method in (ASYNC, SYNC)]
            for metric in ("test_accuracy", "train_loss")
        )
        found += [
            Comparison(f"accuracy, {first} not above {second} by more than {POINTS:g}", left, _plus(right, POINTS))
            for first, left, second, right in (
                ("Sync.", accuracy[1], "Async.", accuracy[0]),
                ("Async.", accuracy[0], "Sync.", accuracy[1]),
            )
        ]
        found.append(Comparison(f"loss, Sync. ≤ Async. + {LOSS:g}", loss[1], _plus(loss[0], LOSS)))
    return [part for part in found if part.seeds]


def helps_more_with_gap(study: Study) -> list[Comparison]:
    """SDFEEL-C06."""
    found = []
    for part in PARTS:
        gains = {}
        for gap in gaps(study):
            ours, theirs = times(study, gap, part)
            gains[gap] = {seed: theirs[seed] / ours[seed] for seed in ours if ours[seed]}
        for low, high in pairwise(gains):
            if gains[low] and gains[high]:
                name = f"loss of Sync. at {part:.0%}: H = {high:g} over {low:g}"
                found.append(Comparison(name, gains[high], gains[low], above=True))
    return found


def staleness_is_bounded(study: Study) -> list[Check]:
    """SDFEEL-C08: D4 on every asynchronous run, and the largest staleness over the gaps of Figure 2."""
    found, largest = [], dict[int, dict[float, int]]()
    uploads = wrong = 0
    for role in ("curve", "non-IID", "long"):
        for gap in gaps(study, role=role):
            for seed, (entry, result) in runs(study, ASYNC, gap, role).items():
                bounds, table = staleness_bound(run_clock(entry.spec).periods), result.history.updates
                owner = entry.spec.world.realise(entry.spec.seed).server_of
                uploads += len(table["device"])
                wrong += sum(
                    late > bounds[owner(d)] for d, late in zip(table["device"], table["staleness"], strict=True)
                )
                if role == "curve":
                    largest.setdefault(seed, {})[gap] = max(table["staleness"], default=0)
    if uploads:
        found.append(Check("below the bound", not wrong, f"{uploads - wrong:,} of {uploads:,} uploads"))
    for seed, seen in largest.items():
        if len(seen) > 1:
            values = list(seen.values())
            words = ", ".join(f"{value} at H = {gap:g}" for gap, value in seen.items())
            found.append(Check(f"largest one, seed {seed}", values == sorted(values), words))
    return found


def faster_and_better(study: Study) -> list[Comparison]:
    """SDFEEL-C16: C01 and C02 jointly."""
    return [*faster_in_loss(study), *more_accurate_early(study)]


def skew_hurts(study: Study) -> list[Comparison]:
    """SDFEEL-C17: accuracy at half of the horizon and at its end, both methods."""
    found = []
    for gap in gaps(study, role="non-IID"):
        for method in (ASYNC, SYNC):
            for part in (0.5, 1.0):
                even, uneven = (
                    _read(study, method, gap, "test_accuracy", part, role) for role in ("curve", "non-IID")
                )
                if even and uneven:
                    found.append(Comparison(f"{method} at {part:.0%}", uneven, even))
    return found


def _rising(study: Study, method: str, part: float, bound: float) -> list[Comparison]:
    """Return that the loss at a part of the horizon rises with the gap, up to a factor."""
    losses = {gap: _read(study, method, gap, "train_loss", part) for gap in gaps(study, method)}
    return [
        Comparison(f"H = {low:g} against {high:g}", losses[low], losses[high], bound)
        for low, high in pairwise(losses)
    ]


def _read(study: Study, method: str, gap: float, metric: str, part: float, role: str = "curve") -> Values:
    """Return by seed what the runs of a curve have measured at a part of the horizon."""
    return {seed: value_at(run, metric, part) for seed, run in runs(study, method, gap, role).items()}


def _plus(values: Values, constant: float) -> Values:
    return {seed: value + constant for seed, value in values.items()}


_add = partial(add_claim, "SDFEEL")

_add("C01", "Fig. 2a", "For each H the asynchronous algorithm converges faster in training loss.",
     "time to the loss that Sync. has at 25 % and at 50 % of the horizon: Async. < Sync., each H",
     faster_in_loss)  # fmt: skip
_add("C02", "Fig. 2b", "Within a short time asynchronous training has the higher test accuracy.",
     "accuracy after five synchronous rounds: Async. > Sync., each H", more_accurate_early)  # fmt: skip
_add("C03", "Fig. 2", "A larger H slows synchronous training.",
     "loss of Sync. at 25 % of the horizon rises with H", gap_slows_synchronous)  # fmt: skip
_add("C04", "Fig. 2", "A larger H hinders convergence altogether.",
     "loss of Async. at 10 % of the horizon ≤ 1.02 times that at the next larger H", gap_hinders)  # fmt: skip
_add("C05", "Fig. 2b", "Given enough time synchronous training is as accurate, possibly more.",
     "300 synchronous rounds at H = 30: accuracies within 0.02, loss(Sync.) ≤ loss(Async.) + 0.005",
     similar_in_the_end)  # fmt: skip
_add("C06", "section V (implied)", "Asynchrony helps more when devices differ more.",
     "time(Sync.)/time(Async.) to the losses of C01 rises with H", helps_more_with_gap)  # fmt: skip
_add("C08", "Lemma 1", "Staleness is bounded, more tightly for small H.",
     "every staleness ≤ Σ⌈T_d/T_j⌉; the largest one does not fall with H", staleness_is_bounded,
     exact=True)  # fmt: skip
_add("C16", "abstract", "Asynchronous training is faster and more accurate than synchronous training.",
     "C01 and C02 jointly; C05 says the opposite of the long run", faster_and_better)  # fmt: skip
_add("C17", "section V", "Fewer classes on each device hurt asynchronous training as they hurt synchronous training.",
     "accuracy with Dirichlet 0.1 < with 0.5, both methods, at half and at the end of the horizon",
     skew_hurts)  # fmt: skip
