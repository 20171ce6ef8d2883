"""The statistics of one effect, each rule by hand; calibration as a whole is in test_error_rates.py."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fl_core.errors import SpecError
from fl_core.experiments.evidence import (
    LEVEL,
    LOOKS,
    PLAIN,
    POINTS,
    RATIO,
    Censored,
    Effect,
    holm,
    luck,
    moderated,
    untrained,
)


def by_seed(*values: float) -> dict[int, float]:
    return dict(enumerate(values))


ONES = by_seed(*[1.0] * 20)
CLEAR = by_seed(0.50, 0.51, 0.49, 0.50, 0.505)
"""Half of one, to within a hundredth."""


def test_looks_together_have_the_level():
    assert sum(LOOKS.values()) == pytest.approx(LEVEL)


def test_the_interval_is_the_t_interval_of_the_logarithms_at_the_level_of_the_look():
    left, right = np.array([1.0, 1.2, 0.9, 1.0, 1.1]), np.array([1.1, 1.25, 1.05, 1.2, 1.0])
    found = Effect("", by_seed(*left), by_seed(*right))
    reference = stats.ttest_1samp(np.log(left / right), 0).confidence_interval(1 - LOOKS[5])
    np.testing.assert_allclose(found.interval, np.exp(reference))
    assert found.estimate == pytest.approx(np.exp(np.log(left / right).mean()))
    p = stats.ttest_1samp(np.log(left / right), 0, alternative="less").pvalue
    assert Effect("", by_seed(*left), by_seed(*right), claimed="less").p["holds"] == pytest.approx(
        2 * p * LEVEL / LOOKS[5]
    )


def test_accuracies_are_compared_in_points():
    found = Effect("", by_seed(0.72, 0.73, 0.71), by_seed(0.70, 0.70, 0.70), POINTS)
    assert found.estimate == pytest.approx(2.0)
    assert found.words()[2] == "> 0"


def test_nobody_looks_between_two_planned_looks():
    """The fourth seed changed the verdict of three."""
    three = Effect("", by_seed(0.50, 0.51, 0.49), ONES, claimed="less")
    four = Effect("", by_seed(0.50, 0.51, 0.49, 9.0), ONES, claimed="less")
    assert four.look == three.look == 3
    assert four.interval == three.interval
    assert Effect("", by_seed(0.5, 0.51), ONES).look == 0


@pytest.mark.parametrize(
    ("left", "how", "direction"),
    [
        (CLEAR, {"claimed": "less"}, "holds"),
        (CLEAR, {"claimed": "more"}, "opposite"),
        (by_seed(0.50, 0.90, 1.8, 1.0, 0.7), {"claimed": "less"}, "open"),
        (by_seed(1.01, 1.0, 0.99, 1.01, 1.0), {"claimed": "more"}, "equal"),
        (by_seed(1.01, 1.011, 1.012, 1.011, 1.01), {"claimed": "more"}, "equal"),  # surely more, but by 1 %
        (by_seed(1.01, 1.0, 0.99, 1.01, 1.0), {"claimed": "equal"}, "holds"),
        (CLEAR, {"claimed": "equal"}, "opposite"),
        (CLEAR, {"claimed": "less", "bound": 0.6}, "holds"),
        (CLEAR, {"claimed": "less", "bound": 0.4}, "opposite"),
        (CLEAR, {"claimed": "equal", "bound": 0.5, "delta": 1.1}, "holds"),
        (by_seed(0.5, 0.51, float("nan"), 0.5, 0.5), {"claimed": "less"}, "open"),  # a run diverged
        (CLEAR, {"claimed": "less", "excluded": "not trained"}, "open"),
        (by_seed(0.5), {"claimed": "less"}, "open"),
        ({}, {"claimed": "less"}, "open"),
    ],
)
def test_directions(left: dict, how: dict, direction: str):
    assert Effect("", left, ONES, **how).direction == direction


def test_equality_needs_to_say_what_is_practically_equal():
    with pytest.raises(SpecError, match="needs delta"):
        Effect("", CLEAR, ONES, PLAIN, "equal")


def test_an_interval_of_width_zero_decides_nothing():
    """SDFEEL-C01, C06: a coarse grid made all ratios alike, and an interval without width decided the claim."""
    times, halves = by_seed(30.0, 60.0, 90.0, 30.0, 60.0), by_seed(10.0, 20.0, 30.0, 10.0, 20.0)
    found = Effect("", times, halves)
    assert found.too_coarse
    assert (found.direction, found.size) == ("open", "not printed")
    assert np.isnan(found.interval).all()
    points = Effect("", by_seed(*[0.71] * 5), by_seed(*[0.70] * 5), POINTS, resolution=1e-4)
    assert not points.too_coarse
    assert points.direction == "holds"


@pytest.mark.parametrize(
    ("printed", "size"), [(0.5, "as printed"), (0.3, "smaller"), (0.8, "larger"), (None, "not printed")]
)
def test_sizes_are_read_in_the_claimed_direction(printed: float | None, size: str):
    assert Effect("", CLEAR, ONES, claimed="less", printed=printed).size == size
    turned = by_seed(*[1 / value for value in CLEAR.values()])
    assert Effect("", turned, ONES, claimed="more", printed=printed and 1 / printed).size == size


def test_an_interval_wider_than_the_printed_effect_says_nothing_of_size():
    wide = by_seed(0.2, 0.9, 1.6, 0.4, 1.1)
    assert Effect("", wide, ONES, claimed="less", printed=0.8).size == "open"


def test_a_count_at_a_bound_that_the_claim_includes_is_on_its_side():
    """FEDLUCK-C15 was inconclusive at exactly its bound."""
    ten = by_seed(*[2.0] * 10)
    assert Effect("", ten, 2.0, PLAIN, "more", discrete=True).direction == "holds"
    assert Effect("", ten, 2.0, PLAIN, "less", discrete=True).direction == "holds"
    assert Effect("", ten, 3.0, PLAIN, "more", discrete=True).direction == "opposite"
    five = by_seed(*[2.0] * 5)
    assert Effect("", five, 2.0, PLAIN, "more", discrete=True).direction == "open"  # 1 of 32 by luck


def test_a_time_that_was_not_reached_stays_as_a_bound():
    """A baseline that never reaches the target is slower; dropping the seed made it look fast or unknown."""
    ours = by_seed(10.0, 11.0, 10.5, 10.2, 10.9)
    ends = Censored(by_seed(*[40.0] * 5), at_least=range(5))
    found = Effect("", ours, ends, claimed="less", printed=0.5)
    assert found.direction == "holds"
    assert (found.interval[0], found.size) == (0.0, "larger")
    assert found.words()[0] == "≤ 0.263"
    assert Effect("", ends, ours, claimed="more").direction == "holds"
    assert Effect("", ends, ours, claimed="less").direction == "opposite"
    late = Censored(by_seed(*[5.0] * 5), at_least=range(5))  # stopped before ours: says nothing
    assert Effect("", ours, late, claimed="less").direction == "open"
    assert Effect("", late, ends, claimed="less").direction == "open"  # both are only bounds
    assert Effect("", late, ends, claimed="less").interval == (0.0, np.inf)


def test_luck_counts_the_orders_that_a_claim_leaves():
    a, b, c, d = ({0: value} for value in (1.0, 2.0, 3.0, 4.0))
    assert luck([Effect("", a, b)]) == 1 / 2
    assert luck([Effect("", a, each) for each in (b, c, d)]) == 1 / 4
    assert luck([Effect("", a, b), Effect("", b, c)]) == 1 / 3  # truly 1 in 6
    assert luck([Effect("", a, b), Effect("", c, d)]) == 1 / 4
    assert luck([Effect("", a, 1.0), Effect("", a, 2.0)]) == 1 / 2
    assert luck([Effect("", a, b), Effect("", a, c)], ordered=False) == 1 / 2


def test_two_targets_of_the_same_runs_are_no_second_evidence():
    """SDFEEL-C06: the ratio of the same runs at two losses counted as two independent agreements."""
    fast, slow = (Censored({0: value}, (), [name]) for name, value in (("a", 1.0), ("b", 2.0)))
    later = [Censored({0: value}, (), [name]) for name, value in (("a", 3.0), ("b", 5.0))]
    assert luck([Effect("", fast, slow), Effect("", *later)]) == 1 / 2
    assert luck([Effect("", fast, slow), Effect("", later[0], {0: 9.0})]) == 1 / 3


def test_luck_is_an_upper_bound_of_what_permutations_give():
    rng, relations = np.random.default_rng(1), [(0, 1), (2, 1), (2, 3), (4, 3), (5, 6)]
    sides = [{0: float(i)} for i in range(7)]
    drawn = np.array([rng.permutation(7) for _ in range(20_000)])
    often = np.mean(np.all([drawn[:, i] > drawn[:, j] for i, j in relations], axis=0))
    assert often <= luck([Effect("", sides[i], sides[j]) for i, j in relations]) == 1 / 10


def test_variances_that_are_alike_are_shared():
    rng, pattern = np.random.default_rng(0), np.array([-2, -1, 0, 1, 2]) / np.sqrt(2.5)
    drawn = [0.1 * np.sqrt(stats.chi2.ppf((i + 0.5) / 40, 4) / 4) for i in range(40)]  # of five normal values each
    alike = [Effect("", by_seed(*(0.3 + deviation * pattern)), 0.0, POINTS) for deviation in drawn]
    shared = moderated(alike)
    extra, variance = shared[0].prior or (0, 0)
    assert extra == pytest.approx(12)  # no more is believed
    assert variance == pytest.approx(0.01, rel=0.3)
    unlike = [Effect(str(i), by_seed(*rng.normal(0, 10.0**-i, 5)), 0.0, POINTS) for i in range(10)]
    assert moderated(unlike) == unlike
    assert moderated(alike[:7]) == alike[:7]  # too few to tell
    mirrored = [Effect("", {seed: -value for seed, value in each.left.items()}, 0.0, POINTS) for each in alike[:7]]
    assert moderated(alike[:7] + mirrored) == alike[:7] + mirrored  # the same comparisons, claimed twice


def test_holm():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([]) == []


def test_a_method_at_chance_is_not_trained():
    """WKAFL-C13 to C18: a diverged method at one in ten counted as the most stable."""
    assert untrained(by_seed(0.1, 0.1, 0.1), 10, 10_000)
    assert untrained(by_seed(0.1, 0.14, 0.08), 10, 10_000)
    assert not untrained(by_seed(0.5, 0.6, 0.55), 10, 10_000)
    assert not untrained(by_seed(0.7, 0.5, 0.25), 10, 10_000)  # unequal, but no seed guesses
    assert not untrained({}, 10, 10_000)


def test_more_seeds_do_not_make_a_method_trained():
    """FEDASMU-C36: six in ten of FedDelay's seeds guess; by the deviation of a mean 20 of them were trained."""
    some = [0.1, 0.1, 0.35, 0.1, 0.3]
    assert all(untrained(by_seed(*some * times), 10, 10_000) for times in (1, 2, 4))


def test_seeds_needed_are_those_of_the_next_look_with_power():
    assert Effect("", by_seed(0.5, 0.51, 0.49), ONES).seeds_needed() == 5
    vague = by_seed(0.7, 0.9, 0.8)
    assert Effect("", vague, ONES).seeds_needed() in (10, 20)
    assert Effect("", by_seed(0.5, 1.9, 1.07), ONES).seeds_needed() is None
    assert all(Effect("", by_seed(*few), ONES).seeds_needed() == 3 for few in ([0.5], [0.5, 1.9]))
    assert Effect("", by_seed(2.0, 2.0, 2.0), 1.0, PLAIN, discrete=True).seeds_needed() == 10
    mixed = Effect("", by_seed(2.0, 2.0, 0.5, 2.0, 0.5), 1.0, PLAIN, discrete=True)
    assert mixed.seeds_needed() is None, "as often on one side as on the other"
    assert Effect("", vague, ONES).power(20, LEVEL / 40) < Effect("", vague, ONES).power(20)
    assert [Effect("", vague, ONES).power(count) > 0 for count in (3, 5)] == [False, True], "a look that was had"
    assert RATIO.unit == "ratio"


def test_no_number_of_seeds_decides_what_ends_too_early():
    """One side takes 10 s, the other more than 9 s (or 11 s): who is slower is open (or clear) in every seed."""
    by_end = {end: Effect("", by_seed(*[10.0] * 5), Censored(by_seed(*[end] * 5), range(5)), claimed="less")
              for end in (9.0, 11.0)}  # fmt: skip
    assert {end: (each.too_short, each.seeds_needed()) for end, each in by_end.items()} == {9: (5, None), 11: (0, 10)}


def test_no_interval_is_narrower_than_the_luck_of_rounding():
    sides = {seed: 0.7 + 0.001 * seed for seed in range(5)}, dict.fromkeys(range(5), 0.6)
    sure, chaotic = (Effect("gain", *sides, POINTS, "more", chaos=chaos) for chaos in (0.0, 0.1))
    assert (sure.direction, chaotic.direction) == ("holds", "open")
    width = {effect.chaos: effect.interval[1] - effect.interval[0] for effect in (sure, chaotic)}
    assert width[0.1] == pytest.approx(width[0.0] * 0.1 / np.std(list(sides[0].values()), ddof=1))
    shared = Effect("gain", *sides, POINTS, "more", chaos=0.1, prior=(12.0, 1e-6))
    assert shared.direction == "open"
