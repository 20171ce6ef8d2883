"""What the chapter on WKAFL's derivation computes: known limits, and numbers from the specification's trials."""

from __future__ import annotations

import numpy as np
import pytest

from fl_papers.wkafl.theory import (
    clipping,
    conflict,
    decay_weights,
    error_parts,
    mean_staleness,
    min_mean_age,
    schedules,
    theorem51_on_quadratics,
    theorem53_on_paths,
    true_and_aliased,
    turning,
    uniform_draws,
)


def test_every_schedule_has_the_same_mean_staleness_and_only_round_robin_the_least_age() -> None:
    for name, made in schedules(200, 10, 2000).items():
        late = slice(500, None)
        assert made.staleness[late].mean() == pytest.approx(mean_staleness(200, 10), rel=0.03), name
        ratio = made.mean_age[late].mean() / min_mean_age(200, 10)
        assert (ratio == pytest.approx(1)) if name == "round robin" else ratio > 1.1, name


def test_decayed_weights_are_those_of_each_update() -> None:
    staleness = np.array([[0, 1, 5], [7, 7, 9]])
    weights = decay_weights(staleness, 0.4)
    expected = np.exp(-0.4 * staleness)
    np.testing.assert_allclose(weights, expected / expected.sum(1, keepdims=True), rtol=1e-12)


def test_without_decay_all_gradients_count_and_with_much_only_the_freshest() -> None:
    drawn = uniform_draws(100, 5, 200, np.random.default_rng(0))
    swept = conflict(drawn, decays=(0.0, 50.0))
    assert swept["gradients"].iloc[0] == 5
    assert swept["staleness"].tolist() == pytest.approx([drawn.staleness.mean(), drawn.staleness.min(1).mean()])


def test_the_errors_of_staleness_and_of_non_iid_data_answer_to_their_causes() -> None:
    still = error_parts((0.0, 1.0), 60, 6, lr=0.0, spread=0.1)
    assert still["staleness"].tolist() == [0, 0]
    assert still["total"].tolist() == still["non_iid"].tolist()
    alike = error_parts((0.0, 1.0), 60, 6, lr=0.05, spread=0.0)
    assert alike["non_iid"].tolist() == [0, 0]
    assert alike["staleness"].iloc[0] > alike["staleness"].iloc[1] > 0


def test_clipping_improves_the_estimate_as_in_the_specifications_trial() -> None:
    """C26, Figure 4: mean cosine .791 before and .931 after, better in all draws."""
    [bound, none] = clipping((1.2, 1e9), 200).itertuples()
    assert bound.before == pytest.approx(0.791, abs=0.01)
    assert bound.after == pytest.approx(0.931, abs=0.01)
    assert bound.improved > 0.95
    assert (none.after, none.improved) == (none.before, 0)


def test_gradients_that_do_not_turn_are_best_used_all_and_those_that_do_by_freshness() -> None:
    found = turning((0.0, 0.4), 60)
    assert found.loc[0.0, "selected"] == 10
    assert found.loc[0.0, "mean"] == found.loc[0.0, ["mean", "freshest", "estimate", "selection"]].max()
    assert found.loc[0.4, "freshest"] > found.loc[0.4, "mean"] + 0.5
    assert found.loc[0.4, "selection"] > found.loc[0.4, "estimate"]


def test_both_theorems_hold_where_their_constants_are_known() -> None:
    first, second = theorem51_on_quadratics(40), theorem53_on_paths()
    for table in (first, second):
        assert (table["left"] > 0).all()
        assert (table["left"] <= table["right"]).all()
        assert (table["lr"] <= table["limit"]).all()
    assert first["left"].iloc[0] == pytest.approx(0.0432, abs=0.001)  # D10
    assert first["right"].iloc[0] == pytest.approx(0.1932, abs=0.001)


def test_aliased_devices_are_as_stale_as_counted_only_before_their_second_task() -> None:
    found = true_and_aliased(0.1, 60, devices=12, num_aggregated=3)
    copy, aliased = (part.reset_index() for _, part in sorted(found.groupby("mode"), reverse=True))
    assert copy["counted"].tolist() == aliased["counted"].tolist() == copy["actual"].tolist()
    never_used = aliased["counted"] == aliased["update"] - 1
    assert (aliased["actual"] == aliased["counted"].where(never_used, 0)).all()
