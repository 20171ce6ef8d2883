"""FedAsync's theory claims and figures: they hold, would notice if not, and follow what a reader chooses."""

from __future__ import annotations

import pytest

from fl_core.experiments.claims import find_claim, judge
from fl_core.experiments.study import Study
from fl_papers.fedasync import figures, theory


def study(**options: object) -> Study:
    """Return a study without runs: theory needs none."""
    return Study("smoke", "fashion-mnist", (), {}, options)


@pytest.mark.parametrize(
    ("claim", "name", "wrong"),
    [
        ("FEDASYNC-C26", "printed_bound", lambda t, gap, b, R: b**t * gap),  # no residual: too small
        ("FEDASYNC-C27c", "printed_bound", lambda t, gap, b, R: b**t * gap),
        ("FEDASYNC-C29", "mixing_characteristic", lambda alpha, q, age: [1.0, *[0.0] * (age - 1), -1.1]),
    ],
)
def test_a_claim_fails_with_a_wrong_formula(monkeypatch: pytest.MonkeyPatch, claim, name, wrong) -> None:
    monkeypatch.setattr(theory, name, wrong)
    assert judge([claim], study())[0].label == "contradicted"


def test_alpha_would_not_trade_anything_if_the_error_were_constant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(theory.ToyQ, "stationary_error", lambda self, alpha, steps: 1.0)
    parts = {part.name: part.holds for part in find_claim("FEDASYNC-C28c").judge(study())}
    assert list(parts.values()) == [True, False]


def test_figures_follow_what_a_reader_chooses() -> None:
    """What they show without is in tests/frozen."""
    weights = figures.reduce_staleness_functions(study(poly_a=1.0, hinge_a=4.0, hinge_b=2.0))
    assert set(weights["method"]) >= {"polynomial(a=1)", "hinge(a=4, b=2)"}
    assert weights["method"].nunique() == 4  # both hinges are the same now
    assert set(figures.reduce_bounds(study(alphas=(0.2, 0.9)))["alpha"]) == {0.2, 0.9}
    remaining = figures.reduce_remaining_error(study(sweep_alphas=(0.1, 0.5, 0.9)))
    fresh = remaining[remaining["method"] == "fresh uploads"]["error"].tolist()
    assert fresh == pytest.approx([0.016831163996972025, 0.09725053801829803, 0.20730832175510322], rel=1e-10)
