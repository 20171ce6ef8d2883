"""SD-FEEL's claims, with the specification's tests (section 8).

The specification tests means over seeds. Here a difference also has to be larger than what the seeds allow by
chance: each inequality has the paired 95 % interval of :mod:`fl_core.experiments.claims`. Times to a loss are read
off measurements, for both methods in the same way; a loss that is not reached counts with the end of the run. Claims
about the theory and the clock need no runs; their settings are D1, D5, D9 and D10.
"""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from itertools import pairwise

import numpy as np

from fl_core.experiments.claims import Check, Comparison, make_claim
from fl_core.experiments.measures import BySeed, first_passage
from fl_core.experiments.study import Study
from fl_core.formulas.sdfeel import synchronous_mixing_matrix
from fl_papers.sdfeel.experiment import ASYNC, ROUND_SECONDS, SYNC, Run, gaps, horizon, runs, value_at, values_at
from fl_papers.sdfeel.figures import VARIED
from fl_papers.sdfeel.theory import (
    EXACT,
    RING,
    MixingSums,
    Variant,
    bound,
    consensus_rounds,
    constant_mixing_errors,
    constants,
    fixed_point,
    mixing_error_sums,
    paper_clock,
    run_clock,
    staleness_aware_mixing_matrix,
    staleness_bound,
    theorem1_bound,
    zeta,
)

PARTS = (0.25, 0.5)
"""Of the horizon, at which synchronous training sets the loss to be reached (C01)."""
SHORT_ROUNDS = 5
"""Synchronous rounds that a short training time is (C02)."""
TOLERANCE, POINTS, LOSS = 1.02, 0.02, 0.005
"""Of C04; and the difference of accuracy and of loss that C05 leaves."""
BUSY = {5.0: (0.4114, 0.9869), 10.0: (0.2859, 0.9892), 30.0: (0.1634, 0.9909)}
"""Part of the time in which devices compute, synchronous and asynchronous, that claim C07 is tested against."""
UNEQUAL = (0.10, 0.12, 0.15, 0.18, 0.20, 0.25)
"""Cluster shares that are less even than those of the Dirichlet partitions (oracle O7)."""
VARIANTS: tuple[Variant, ...] = ("derived", "printed")


# Claims about runs


def faster_in_loss(study: Study) -> list[Comparison]:
    """SDFEEL-C01."""
    found = [
        Comparison(f"H = {gap:g}, loss of Sync. at {part:.0%}", *times(study, gap, part))
        for gap in gaps(study)
        for part in PARTS
    ]
    return [each for each in found if each.seeds]


def times(study: Study, gap: float, part: float) -> tuple[BySeed, BySeed]:
    """Return when each method first has the loss that the synchronous one has at a part of the horizon, by seed."""

    def passage(run: Run, goal: float) -> float:
        table = run[1].history.evaluations
        found = first_passage(table["seconds"], table["train_loss"], goal, falling=True)
        return found.at if found.reached else horizon(run[0])

    ours, theirs = (runs(study, method, gap) for method in (ASYNC, SYNC))
    goals = {seed: value_at(theirs[seed], "train_loss", part) for seed in ours if seed in theirs}
    left, right = (
        BySeed({seed: passage(side[seed], goal) for seed, goal in goals.items()}) for side in (ours, theirs)
    )
    return left, right


def more_accurate_early(study: Study) -> list[Comparison]:
    """SDFEEL-C02, at the measurement nearest to five synchronous rounds."""
    found = []
    for gap in gaps(study):
        ours, theirs = (runs(study, method, gap) for method in (ASYNC, SYNC))
        at = {seed: SHORT_ROUNDS * run_clock(entry.spec).round_seconds for seed, (entry, _) in theirs.items()}
        early = [seed for seed in ours if seed in theirs and at[seed] <= horizon(theirs[seed][0])]
        left, right = (
            BySeed({seed: accuracy_near(side[seed], at[seed]) for seed in early}) for side in (ours, theirs)
        )
        found.append(Comparison(f"H = {gap:g}", left, right, above=True))
    return [each for each in found if each.seeds]


def accuracy_near(run: Run, seconds: float) -> float:
    """Return the measurement nearest to a virtual time."""
    table = run[1].history.evaluations
    return float(table["test_accuracy"][int(np.argmin(abs(np.array(table["seconds"]) - seconds)))])


def loss_rises_with_gap(study: Study, method: str, part: float, factor: float) -> list[Comparison]:
    """SDFEEL-C03 and C04: the loss at a part of the horizon rises with the gap, up to a factor."""
    losses = {gap: values_at(study, method, gap, "train_loss", part) for gap in gaps(study, method)}
    return [
        Comparison(f"H = {low:g} against {high:g}", losses[low], losses[high], factor)
        for low, high in pairwise(losses)
    ]


def similar_in_the_end(study: Study) -> list[Comparison]:
    """SDFEEL-C05, on the long runs."""
    found = []
    for gap in gaps(study, role="long"):
        accuracy, loss = (
            {name: values_at(study, name, gap, metric, role="long") for name in (ASYNC, SYNC)}
            for metric in ("test_accuracy", "train_loss")
        )
        for one, other in ((SYNC, ASYNC), (ASYNC, SYNC)):
            words = f"accuracy, {one.partition(' ')[0]} not above {other.partition(' ')[0]} by more than {POINTS:g}"
            found.append(Comparison(words, accuracy[one], accuracy[other] + POINTS))
        found.append(Comparison(f"loss, Sync. ≤ Async. + {LOSS:g}", loss[SYNC], loss[ASYNC] + LOSS))
    return [each for each in found if each.seeds]


def helps_more_with_gap(study: Study) -> list[Comparison]:
    """SDFEEL-C06."""
    found = []
    for part in PARTS:
        gains = {}
        for gap in gaps(study):
            ours, theirs = times(study, gap, part)
            gains[gap] = theirs / {seed: seconds for seed, seconds in ours.items() if seconds}
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
                    values_at(study, method, gap, "test_accuracy", part, role) for role in ("curve", "non-IID")
                )
                if even and uneven:
                    found.append(Comparison(f"{method} at {part:.0%}", uneven, even))
    return found


# Claims about the clock and the theory


def devices_idle(study: Study) -> list[Check]:
    """SDFEEL-C07: the part of the time in which devices compute, to the four digits of the specification."""
    found = []
    for gap, expected in BUSY.items():
        busy = paper_clock(gap).busy
        holds = busy[0] < busy[1] and np.allclose(busy, expected, atol=5e-5)
        words = f"computing {busy[0]:.1%} synchronous, {busy[1]:.1%} asynchronous"
        found.append(Check(f"H = {gap:g}", bool(holds), words))
    return found


def normalisation_is_fairer(study: Study) -> list[Check]:
    """SDFEEL-C09: D1 (c), two devices that want 1 and -1 and do 50 and 5 steps; the optimum is 0."""
    two = ((1, -1), (0.5, 0.5), (50, 5), 0.01)
    fair, unfair = fixed_point(*two), fixed_point(*two, normalized=False)
    tiny = fixed_point(*two[:3], 1e-6)
    return [
        Check("nearer to the optimum", abs(fair) < abs(unfair), f"ends at {fair:.4f}, without it at {unfair:.4f}"),
        Check("as the specification says", np.allclose((fair, unfair), (-0.1074525745, 0.7792363897), atol=1e-9),
              "both fixed points to nine digits"),
        Check("rest vanishes with η", abs(tiny) < 1e-4, f"η = 1e-6: ends at {tiny:.1e}"),
    ]  # fmt: skip


def stale_weighs_less(study: Study) -> list[Check]:
    """SDFEEL-C10: p^{i,d} falls in delta^{(i)}, for neighbours of a trigger on the ring; p^{i,i} does not (E-04)."""
    rng, down, up, count = np.random.default_rng(0), 0, 0, 200
    for _ in range(count):
        late, trigger = rng.integers(0, 40, 6).tolist(), int(rng.integers(6))
        neighbour = RING[trigger][int(rng.integers(2))]
        later = [n + 1 if j == neighbour else n for j, n in enumerate(late)]
        before, after = (staleness_aware_mixing_matrix(RING, trigger, each) for each in (late, later))
        down += after[neighbour, trigger] < before[neighbour, trigger]
        up += after[neighbour, neighbour] > before[neighbour, neighbour]
    kept = f"its own share of itself rises in {up} of {count}"
    return [Check("weight of a neighbour", down == count, f"falls in {down} of {count} random events; {kept}")]


def rate_of_the_bound(study: Study) -> list[Check]:
    """SDFEEL-C11: exponents of K in the terms of (16) with eta proportional to 1/sqrt(K)."""
    sums, found = mixing_error_sums(constant_mixing_errors(0.6, 20)), []
    setting = {"smoothness": 1.0, "decrease": 2.0, "noise": 0.5, "dissimilarity": 0.3, "square_weights": 1 / 30}
    for variant in VARIANTS:
        terms = []
        for count in (10**6, 10**8):
            lr = 0.01 / count**0.5
            got = constants(lr, 1.0, 10, 2, 4, sums, count, variant=variant)
            terms.append(theorem1_bound(got, lr=lr, tau_max=10, tau_min=5, num_iterations=count, **setting))
        slopes = np.log(np.array(terms[1]) / np.array(terms[0])) / np.log(100)
        holds = np.allclose(slopes, (-0.5, -0.5, -1, -1), atol=0.02)
        found.append(Check(f"{variant} constants", holds, "exponents " + ", ".join(f"{s:.2f}" for s in slopes)))
    return found


def bound_grows(study: Study) -> list[Check]:
    """SDFEEL-C12: finite differences of (16), in both variants."""
    found = []
    for name, symbol in (("gap", "H"), ("delta_max", "δ_max"), ("dissimilarity", "κ²")):
        for variant in VARIANTS:
            totals = [float(bound(variant, **{name: value}).total) for value in VARIED[name]]
            grows = bool((np.diff(totals) > 0).all())
            span = f"{symbol} from {VARIED[name][0]:g} to {VARIED[name][-1]:g}"
            found.append(Check(f"in {symbol}, {variant}", grows, f"{span}: {totals[0]:.4f} to {totals[-1]:.4f}"))
    return found


def synchronous_limit(study: Study) -> list[Check]:
    """SDFEEL-C13: D9 in exact fractions; the printed theorem of the synchronous paper is not at hand."""
    lr, smoothness, tau, decrease = Fraction(1, 100), Fraction(1), Fraction(5), Fraction(2)
    sums = MixingSums(Fraction(1, 2), Fraction(3, 2), Fraction(2))
    found = []
    powers: dict[Variant, int] = {"derived": 2, "printed": 1}
    for variant, power in powers.items():
        got = constants(lr, smoothness, tau, 1, 0, sums, 20, variant=variant)
        x = lr**2 * tau * (tau - 1)
        u3 = (1 + 4 * x) / (1 - 2 * x)
        A = 4 * lr**2 * (tau - 1) / (1 - 2 * x) + 8 * lr**2 * tau * u3 * sums.squares
        B = 24 * x / (1 - 2 * x) + 16 * lr**2 * tau**power * u3 * sums.squared_sums
        found.append(Check(f"{variant} A, B", got.A == A and got.B == B, "equal as fractions, no term with δ_max"))
    one = Fraction(1)
    none = constants(lr, smoothness, one, one, 0, EXACT)
    sgd = theorem1_bound(
        none, lr=lr, smoothness=smoothness, tau_max=one, tau_min=one, num_iterations=50, decrease=decrease,
        noise=Fraction(1, 2), dissimilarity=Fraction(1, 3), square_weights=Fraction(1, 30),
    ).total  # fmt: skip
    expected = 2 * decrease / (lr * 50) + lr * smoothness * Fraction(1, 30) * Fraction(1, 2)
    found.append(Check("one step, exact averaging", sgd == expected, "the bound of mini-batch SGD, as a fraction"))
    return found


def equal_speeds(study: Study) -> list[Check]:
    """SDFEEL-C14: H = 1 on the paper's clock."""
    clock = paper_clock(1.0)
    periods, steps = clock.periods, set(clock.local_steps.tolist())
    busy = clock.busy
    return [
        Check("local steps", steps == {100}, f"{sorted(steps)} on all devices"),
        Check("iteration = round", set(periods) == {clock.round_seconds},
              f"{periods[0]:.1f} s in every cluster, {clock.round_seconds:.1f} s a round"),
        Check("computing", busy[0] == busy[1], f"{busy[0]:.1%} and {busy[1]:.1%} of the time"),
    ]  # fmt: skip


def consensus_is_cheap(study: Study) -> list[Check]:
    """SDFEEL-C15: gossip to a spread of 1e-6, against the horizon of A-11."""
    horizon, found = 50 * ROUND_SECONDS[10], []
    for name, shares in (("equal clusters", None), ("unequal clusters (O7)", UNEQUAL)):
        rounds = consensus_rounds(zeta(synchronous_mixing_matrix(RING, shares)), 1e-6)
        seconds = rounds * paper_clock(5).exchange
        found.append(Check(name, seconds < 0.01 * horizon,
                           f"{rounds} rounds, {seconds:,.0f} s, {seconds / horizon:.2%} of the horizon"))  # fmt: skip
    return found


_claim = partial(make_claim, "SDFEEL")
_exact = partial(_claim, exact=True, computed=True)

CLAIMS = [
    _claim("C01", "Fig. 2a", "For each H the asynchronous algorithm converges faster in training loss.",
           "time to the loss that Sync. has at 25 % and at 50 % of the horizon: Async. < Sync., each H",
           faster_in_loss),
    _claim("C02", "Fig. 2b", "Within a short time asynchronous training has the higher test accuracy.",
           "accuracy after five synchronous rounds: Async. > Sync., each H", more_accurate_early),
    _claim("C03", "Fig. 2", "A larger H slows synchronous training.",
           "loss of Sync. at 25 % of the horizon rises with H",
           partial(loss_rises_with_gap, method=SYNC, part=0.25, factor=1.0)),
    _claim("C04", "Fig. 2", "A larger H hinders convergence altogether.",
           "loss of Async. at 10 % of the horizon ≤ 1.02 times that at the next larger H",
           partial(loss_rises_with_gap, method=ASYNC, part=0.1, factor=TOLERANCE)),
    _claim("C05", "Fig. 2b", "Given enough time synchronous training is as accurate, possibly more.",
           "300 synchronous rounds at H = 30: accuracies within 0.02, loss(Sync.) ≤ loss(Async.) + 0.005",
           similar_in_the_end),
    _claim("C06", "section V (implied)", "Asynchrony helps more when devices differ more.",
           "time(Sync.)/time(Async.) to the losses of C01 rises with H", helps_more_with_gap),
    _exact("C07", "Figure 1, section III",
           "Fast devices idle in synchronous training, and are fully used in asynchronous.",
           "part of the time in which devices compute, seed 0: 0.4114, 0.2859, 0.1634 and 0.9869, 0.9892, 0.9909",
           devices_idle),
    _claim("C08", "Lemma 1", "Staleness is bounded, more tightly for small H.",
           "every staleness ≤ Σ⌈T_d/T_j⌉; the largest one does not fall with H", staleness_is_bounded, exact=True),
    _exact("C09", "(2), (3)", "Dividing updates by the number of steps removes a bias towards fast devices.",
           "fixed points of two devices with 50 and 5 steps", normalisation_is_fairer),
    _exact("C10", "(5)", "A staler neighbour gets a smaller weight.",
           "p^{i,d} falls strictly in δ^{(i)}, all else fixed", stale_weighs_less),
    _exact("C11", "Remark 1", "With η ∝ 1/√K the bound vanishes like 1/√K.",
           "exponents of K: −0.5 in the first two terms, −1 in the others, within 0.02; "
           "for the surrogate objective (E-11)", rate_of_the_bound),
    _exact("C12", "Remark 2", "The bound grows with H, with δ_max and with κ.",
           "finite differences of (16) are positive, both variants, τ_max fixed", bound_grows),
    _exact("C13", "Remark 2", "H = 1 and δ_max = 0 give the bound of synchronous training.",
           "A and B lose the terms of delay; with one step and exact averaging SGD's bound remains; "
           "the synchronous paper's own theorem is not at hand", synchronous_limit),
    _exact("C14", "section II", "With equal speeds synchronous training is viable.",
           "H = 1: equal steps, equal times, equally busy", equal_speeds),
    _exact("C15", "section III", "The consensus phase happens once and costs little.",
           "rounds to a spread of 1e-6 take less than 1 % of the horizon", consensus_is_cheap),
    _claim("C16", "abstract", "Asynchronous training is faster and more accurate than synchronous training.",
           "C01 and C02 jointly; C05 says the opposite of the long run", faster_and_better),
    _claim("C17", "section V",
           "Fewer classes on each device hurt asynchronous training as they hurt synchronous training.",
           "accuracy with Dirichlet 0.1 < with 0.5, both methods, at half and at the end of the horizon", skew_hurts),
]  # fmt: skip
