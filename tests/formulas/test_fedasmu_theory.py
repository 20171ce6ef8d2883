"""FedASMU's theorem: the printed bound fails, the corrected one holds on random convex problems."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fl_papers.fedasmu.bounds import Problem, corrected_bound, drift_bound, printed_bound, printed_drift
from fl_papers.fedasmu.toys import Quadratics, Trace, random_run

H, C = 0.1, 1.0
ONLY_ONE_REPORTS = Quadratics(np.array([[H], [H]]), np.array([[0.0], [C]]))
"""E13: device 1's minimum is where the run begins, so nothing ever moves; F's own minimum is at C / 2."""


@pytest.mark.parametrize(
    ("epochs", "bound"), [(3, 0.002933), (4, 0.001727), (5, 0.001162), (10, 0.000365), (20, 0.000129)]
)
def test_e13_the_printed_bound_falls_below_a_gradient_that_never_changes(epochs, bound) -> None:
    w = np.zeros(1)
    for _ in range(epochs):
        w = w - epochs**-3.0 * ONLY_ONE_REPORTS.gradient(0, w)
    assert w == 0
    square = float(ONLY_ONE_REPORTS.mean_gradient(w)[0] ** 2)
    assert square == pytest.approx(0.0025)
    problem = Problem(smoothness=H, gradient=H * C, deviation=(H * C / 2) ** 2)
    arguments = {"alpha_min": 0.1, "staleness_bound": 1, "epochs_min": epochs, "epochs_max": epochs}
    assert printed_bound(0.0, problem, **arguments) == pytest.approx(bound, abs=5.1e-7)
    assert (printed_bound(0.0, problem, **arguments) < square) == (epochs >= 4)


def test_e13_no_constants_repair_the_printed_bound() -> None:
    problem = Problem(H, H * C, (H * C / 2) ** 2)
    large = printed_bound(
        0.0, problem, alpha_min=1.0, staleness_bound=1, epochs_min=10**9, epochs_max=10**9, constants=[1e3] * 5
    )
    assert large < 0.0025 / 2
    still = corrected_bound(0.0, problem, lr=0.1, weights=[0.5] * 9, epochs=[5] * 9, beta_max=0.0, drift=0.0)
    assert still > 0.0025


def test_e13_the_printed_number_of_gradients_is_too_small() -> None:
    for epochs in (2, 3, 5):
        rounds, lr = epochs**6, epochs**-3.0
        assert lr * rounds * epochs == pytest.approx(epochs**4)
        problem = Problem(1.0, 0.0, 0.0)
        arguments = {"alpha_min": 1.0, "staleness_bound": 1, "epochs_min": epochs, "epochs_max": epochs}
        assert printed_bound(1.0, problem, **arguments) == pytest.approx(2 / epochs**3)
        derived = corrected_bound(
            1.0, problem, lr=lr, weights=[1.0] * rounds, epochs=[epochs] * rounds, beta_max=0.0, drift=0.0
        )
        assert derived == pytest.approx(2 / epochs**4)


def run(seed: int, alpha: tuple[float, float] = (0.02, 0.08), staleness_bound: int = 5) -> tuple[Quadratics, Trace]:
    rng = np.random.default_rng(seed)
    losses = Quadratics(rng.uniform(0.3, 2, (4, 3)), rng.normal(size=(4, 3)))
    arguments = {"rounds": 300, "staleness_bound": staleness_bound, "epochs": 4, "lr": 0.05, "beta_max": 0.3}
    return losses, random_run(losses, 3 * rng.normal(size=3), rng, alpha=alpha, **arguments)


@pytest.mark.parametrize("seed", range(8))
def test_d11_the_corrected_bound_holds_in_each_round_and_in_all(seed) -> None:
    losses, trace = run(seed)
    problem, drift, lr, beta_max = trace.problem(losses), trace.drift(5), 0.05, 0.3
    sums, values = trace.squared_gradients(losses), [losses.mean_loss(w) for w in trace.models]
    for t, (square, alpha) in enumerate(zip(sums, trace.weights, strict=True)):
        one = corrected_bound(
            values[t] - values[t + 1], problem, lr=lr, weights=[alpha], epochs=[4], beta_max=beta_max, drift=drift
        )
        assert square / 4 <= one
    mean = np.dot(trace.weights, sums) / (4 * sum(trace.weights))
    bound = corrected_bound(
        values[0] - values[-1], problem, lr=lr, weights=trace.weights, epochs=[4] * 300, beta_max=beta_max,
        drift=drift,
    )  # fmt: skip
    assert mean <= bound


@pytest.mark.parametrize("seed", range(8))
def test_d11_models_drift_no_further_than_the_derived_bound(seed) -> None:
    losses, trace = run(seed)
    problem = trace.problem(losses)
    bound = drift_bound(problem, lr=0.05, alpha_max=0.08, beta_max=0.3, staleness_bound=5, epochs_max=4)
    assert trace.drift(5) <= bound < math.inf
    assert drift_bound(problem, lr=0.05, alpha_max=0.3, beta_max=0.3, staleness_bound=5, epochs_max=4) == math.inf


def test_e13_stale_uploads_move_a_model_further_than_printed() -> None:
    """Nine times one device pulls to the right; then an upload from the beginning pulls back."""
    alpha, models = 0.3, [0.0]
    for _ in range(9):
        models.append((1 - alpha) * models[-1] + alpha * (models[-1] + 1))  # eta l G = 1
    step = abs((1 - alpha) * models[-1] + alpha * (models[0] - 1) - models[-1])
    printed = printed_drift(Problem(1.0, 1.0, 0.0), lr=1.0, alpha=alpha, staleness=1, epochs=1)
    assert printed == 0.3
    assert step > 3 * printed


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        (lambda: Problem(0, 1, 1), "smoothness"),
        (lambda: Problem(1, -1, 1), "gradient"),
        (lambda: Problem(1, 1, -1), "deviation"),
        (
            lambda: printed_bound(1, Problem(1, 1, 1), alpha_min=0.5, staleness_bound=0, epochs_min=1, epochs_max=1),
            "staleness_bound",
        ),
        (
            lambda: corrected_bound(1, Problem(1, 1, 1), lr=1, weights=[], epochs=[], beta_max=0, drift=0),
            "weights",
        ),
        (
            lambda: corrected_bound(1, Problem(1, 1, 1), lr=1, weights=[0.0], epochs=[1], beta_max=0, drift=0),
            "weights",
        ),
        (
            lambda: corrected_bound(1, Problem(1, 1, 1), lr=1, weights=[0.5], epochs=[0], beta_max=0, drift=0),
            "epochs",
        ),
        (
            lambda: drift_bound(Problem(1, 1, 1), lr=1, alpha_max=1, beta_max=0, staleness_bound=0, epochs_max=1),
            "staleness_bound",
        ),
        (lambda: printed_drift(Problem(1, 1, 1), lr=-1, alpha=1, staleness=1, epochs=1), "lr"),
    ],
)
def test_an_argument_out_of_range_is_named(wrong, name) -> None:
    with pytest.raises(ValueError, match=f"^{name} = "):
        wrong()
