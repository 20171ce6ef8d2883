"""FedASMU in formulas: weights, their derivatives against automatic differentiation and SymPy, control parameters."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
import sympy as sp
import torch
from hypothesis import given
from hypothesis import strategies as st

from fl_core.formulas.fedasmu import (
    ACTIONS,
    HIDDEN,
    MOST_UPSILON,
    Controls,
    FreshControls,
    PastAggregation,
    blend,
    control_gradient,
    descend_controls,
    epsilon_greedy,
    fixed_slot,
    fresh_descend,
    fresh_project,
    fresh_score,
    fresh_slope,
    fresh_weight,
    fresh_weight_gradient,
    half_product,
    initial_meta,
    inner_product,
    log_probabilities,
    matched_lambda,
    meta_logits,
    meta_size,
    mixing_weight,
    mixing_weight_gradient,
    moving_baseline,
    next_slot,
    pretrain_meta,
    project_controls,
    propagation,
    q_update,
    reinforce,
    reward,
    sketch,
    squash,
    to_half,
    weight_score,
)
from fl_core.formulas.fedasync import alpha_t
from fl_core.formulas.staleness import Polynomial

close = partial(pytest.approx, rel=1e-9, abs=1e-13)
RATES = Controls(0.1, 0.1, 0.1)


def vector(*entries: float) -> torch.Tensor:
    return torch.tensor(entries, dtype=torch.float64)


# The mixing weight, Eq. 2


@pytest.mark.parametrize(
    ("version", "staleness", "controls", "mu", "offset", "score", "alpha"),
    [
        (99, 10, (1, 0.5, 0), 1, 1, 0.0316227766017, 0.0306534300317),
        (99, 10, (1, 0.5, 0), 1, 0, 0.0317820863082, 0.03080309954),
        (24, 7, (29.66, 0.5, 0.02), 1, 1, 2.26208525389, 0.693447619492),
        (24, 7, (2, 0.6, 0.05), 1.5, 1, 0.174451795685, 0.20740454941),
        (0, 1, (1, 0.5, 0), 1, 1, 1.0, 0.5),
        (0, 1, (1, 0.5, 0), 1, 0, math.inf, 1.0),
    ],
)
def test_o1_o2_o3_o14_the_weight_and_its_score(version, staleness, controls, mu, offset, score, alpha) -> None:
    point = (version, staleness, Controls(*controls))
    assert weight_score(*point, sqrt_offset=offset) == close(score)
    assert mixing_weight(*point, mu, sqrt_offset=offset) == close(alpha)


@pytest.mark.parametrize(
    ("version", "staleness", "controls", "mu", "expected"),
    [
        (24, 7, (2, 0.6, 0.05), 1.5, (0.058636168086, -0.228201429161, 0.942311322443)),
        (0, 1, (1, 0.5, 0), 1, (0.25, 0, 0.25)),
    ],
)
def test_o3_o14_the_partial_derivatives(version, staleness, controls, mu, expected) -> None:
    assert mixing_weight_gradient(version, staleness, Controls(*controls), mu) == close(expected)


@given(
    version=st.integers(0, 5000), staleness=st.integers(1, 99), lambda_=st.floats(0, 40), sigma=st.floats(0, 2),
    iota=st.floats(0, 1), mu=st.floats(0.1, 10), offset=st.sampled_from([0, 1]),
)  # fmt: skip
def test_the_derivatives_are_those_of_automatic_differentiation(
    version, staleness, lambda_, sigma, iota, mu, offset
) -> None:
    version += 1 - offset
    x = torch.tensor([lambda_, sigma, iota], dtype=torch.float64, requires_grad=True)
    alpha = mixing_weight(version, staleness, Controls(*x), mu, sqrt_offset=offset)
    assert 0 <= alpha < 1
    (expected,) = torch.autograd.grad(alpha, x)
    found = mixing_weight_gradient(version, staleness, Controls(lambda_, sigma, iota), mu, sqrt_offset=offset)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_d1_the_derivatives_by_sympy_and_what_is_printed_for_sigma() -> None:
    t, s, mu, lambda_, sigma, iota = sp.symbols("t s mu lambda sigma iota", positive=True)
    controls = Controls(lambda_, sigma, iota)
    alpha = mixing_weight(t, s, controls, mu)
    for symbol, found in zip(controls, mixing_weight_gradient(t, s, controls, mu), strict=True):
        assert sp.simplify(sp.diff(alpha, symbol) - found) == 0
    q = sp.Symbol("q")
    true = control_gradient(q, PastAggregation(t, s, controls), mu)
    printed = control_gradient(q, PastAggregation(t, s, controls), mu, form="printed")
    assert sp.simplify(printed.lambda_ / true.lambda_) == sp.simplify(printed.iota / true.iota) == -1
    assert sp.simplify(printed.sigma / true.sigma + sp.log(sigma) / (lambda_ * sp.log(s))) == 0


def test_d5_iota_moves_the_weight_most() -> None:
    lambda_ = 0.19 / 0.81 * math.sqrt(1000 * 10)
    found = mixing_weight_gradient(999, 10, Controls(lambda_, 0.5, 0.0))
    assert mixing_weight(999, 10, Controls(lambda_, 0.5, 0.0)) == close(0.19)
    assert (lambda_ * found.lambda_, found.sigma, found.iota) == pytest.approx((0.154, -0.354, 0.656), abs=6e-4)


def test_d9_a_small_weight_is_fedasync_times_an_inverse_root() -> None:
    ratios = [mixing_weight(10**n - 1, 10, Controls(0.6, 0.5, 0)) for n in (2, 6, 10)]
    expected = [0.6 / math.sqrt(10**n * 10) for n in (2, 6, 10)]
    assert ratios[2] / expected[2] == pytest.approx(1, abs=1e-5)
    assert ratios == sorted(ratios, reverse=True)
    fedasync = alpha_t(0.6, 1, 9, Polynomial(a=0.5), schedule="inv_sqrt")
    assert weight_score(0, 10, Controls(0.6, 0.5, 0)) == close(fedasync)


@pytest.mark.parametrize(
    ("rounds", "staleness", "expected"),
    [(5000, 10, 29.66013673), (1000, 10, 13.2929083), (600, 5, 11.71681026), (200, 5, 6.806039239)],
)
def test_o11_matched_mass(rounds, staleness, expected) -> None:
    found = matched_lambda(rounds, staleness)
    assert found == close(expected)
    mean = np.mean(mixing_weight(np.arange(rounds), staleness, Controls(found, 0.5, 0.0)))
    assert mean == close(0.6 / math.sqrt(staleness))


def test_o11_weights_on_the_way() -> None:
    controls = Controls(matched_lambda(5000, 10), 0.5, 0.0)
    found = mixing_weight(np.array([0, 499, 2499, 4999]), 10, controls)
    np.testing.assert_allclose(found, [0.903654934624, 0.295505588696, 0.157956552088, 0.117110181756], rtol=1e-9)


@pytest.mark.parametrize("sqrt_offset", [0, 1])
def test_the_first_aggregation_has_the_limits_of_the_printed_root(sqrt_offset) -> None:
    previous = PastAggregation(0, 1, Controls(2.0, 0.5, 0.0))
    gradient = control_gradient(-1.0, previous, sqrt_offset=sqrt_offset)
    near = control_gradient(-1.0, PastAggregation(1e-16, 1, previous.controls), sqrt_offset=sqrt_offset)
    assert gradient == pytest.approx(near, abs=1e-7)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: weight_score(-1, 1, RATES), "version"),
        (lambda: weight_score(1, 0, RATES), "staleness"),
        (lambda: weight_score(np.arange(3), 1, RATES, sqrt_offset=0), "version"),
        (lambda: weight_score(1, 1000, Controls(1, -400, 1)), "sigma"),
        (lambda: mixing_weight_gradient(1, 1, RATES, -5), "mu"),
        (lambda: weight_score(1, 1, RATES, sqrt_offset=2), "sqrt_offset"),
        (lambda: squash(-1.0), "score"),
        (lambda: squash(1.0, 0), "mu"),
        (lambda: fresh_score(3, 3, FreshControls(1, 1)), "fresh_version"),
        (lambda: inner_product(vector(1), vector(1), 1, 0), "divisor"),
        (lambda: control_gradient(1, PastAggregation(1, 1, RATES), form="other"), "form"),
        (lambda: control_gradient(1, PastAggregation(1, 1, Controls(1, 0, 1)), form="printed"), "sigma"),
        (lambda: propagation([0.5], 1, 1), "aggregated"),
        (lambda: propagation([0.5, 0.5], 0, 99), "origin"),
        (lambda: blend(1.0, 2.0, 1.5), "weight"),
        (lambda: moving_baseline(0, 1, 1.5), "rate"),
        (lambda: matched_lambda(0, 10), "rounds"),
        (lambda: matched_lambda(10, 0), "staleness"),
    ],
)
def test_an_argument_out_of_range_is_named(call, name) -> None:
    with pytest.raises(ValueError, match=f"^{name} = "):
        call()


# The server's control parameters, Eq. 3

PREVIOUS = PastAggregation(15, 4, Controls(1.2, 0.5, 0.1))
START, UPLOADED, GLOBAL = vector(1, -2, 0.5), vector(0.7, -1.6, 0.9), vector(0.9, -1.8, 0.6)


@pytest.mark.parametrize(
    ("form", "gradient", "controls", "score", "alpha", "model"),
    [
        ("derived", (-0.064, 0.106467406934, -0.512), (1.2064, 0.489353259307, 0.1512), 0.21930349054,
         0.179859643019, (0.864028071396, -1.7640280714, 0.653957892906)),
        ("printed", (0.064, 0.0443614195558, 0.512), (1.1936, 0.495563858044, 0.0488), 0.115316306167,
         0.103393365209, (0.879321326958, -1.77932132696, 0.631018009563)),
    ],
)  # fmt: skip
def test_o4_a_step_of_the_server(form, gradient, controls, score, alpha, model) -> None:
    q = inner_product(START - UPLOADED, vector(-0.4, 0.3, 0.2), 0.05, 8)
    assert q == close(-0.8)
    found = control_gradient(q, PREVIOUS, form=form)
    assert found == close(gradient)
    moved = project_controls(descend_controls(PREVIOUS.controls, found, RATES))
    assert moved == close(controls)
    assert weight_score(40, 8, moved) == close(score)
    weight = mixing_weight(40, 8, moved)
    assert weight == close(alpha)
    np.testing.assert_allclose(blend(GLOBAL, UPLOADED, weight), model, rtol=1e-9)


def test_o5_the_first_upload_of_a_device() -> None:
    weight = mixing_weight(40, 8, PREVIOUS.controls)
    assert weight_score(40, 8, PREVIOUS.controls) == close(0.166258915645)
    assert weight == close(0.142557465941)
    model = blend(GLOBAL, UPLOADED, weight)
    np.testing.assert_allclose(model, (0.871488506812, -1.77148850681, 0.642767239782), rtol=1e-9)


class Bowl:
    """A random quadratic with its gradient, and two random models."""

    def __init__(self, seed: int, size: int = 7) -> None:
        rng = torch.Generator().manual_seed(seed)
        root = torch.randn(size, size, generator=rng, dtype=torch.float64)
        self.hessian = root @ root.T / size + torch.eye(size, dtype=torch.float64)
        self.centre, self.model, self.other = torch.randn(3, size, generator=rng, dtype=torch.float64)

    def loss(self, x: torch.Tensor) -> torch.Tensor:
        return 0.5 * (x - self.centre) @ self.hessian @ (x - self.centre)

    def gradient(self, x: torch.Tensor) -> torch.Tensor:
        return self.hessian @ (x - self.centre)


@pytest.mark.parametrize("seed", range(20))
def test_d2_the_derived_gradient_is_that_of_the_loss_and_the_printed_one_is_not(seed) -> None:
    bowl, point = Bowl(seed), (0.9, 0.6, 0.05)
    x = torch.tensor(point, dtype=torch.float64, requires_grad=True)

    def made(controls: Controls) -> torch.Tensor:
        return blend(bowl.model, bowl.other, mixing_weight(7, 4, controls, 1.3, sqrt_offset=0))

    (expected,) = torch.autograd.grad(bowl.loss(made(Controls(*x))), x)
    previous = PastAggregation(7, 4, Controls(*point))
    q = float(bowl.gradient(made(previous.controls)) @ (bowl.other - bowl.model))
    np.testing.assert_allclose(control_gradient(q, previous, 1.3, sqrt_offset=0), expected, rtol=1e-9)
    printed = control_gradient(q, previous, 1.3, sqrt_offset=0, form="printed")
    assert printed.lambda_ == close(-float(expected[0]))
    assert printed.iota == close(-float(expected[2]))
    # One step of the derived gradient lowers the loss and one of the printed raises it (E01, C42).
    for form, sign in (("derived", -1), ("printed", 1)):
        step = control_gradient(q, previous, 1.3, sqrt_offset=0, form=form)
        change = bowl.loss(made(descend_controls(previous.controls, step, Controls(1e-4, 0, 1e-4)))) - bowl.loss(
            made(previous.controls)
        )
        assert math.copysign(1, change) == sign


def test_d4_o13_what_later_aggregations_leave_of_a_change() -> None:
    weights = (0.21, 0.08, 0.30, 0.12)
    kept = [0.5, *(1 - w for w in weights)]
    assert propagation(kept, 0, 5) == close(0.4477088)
    assert propagation(kept, 2, 3) == 1
    bowl, others = Bowl(5), Bowl(6)
    lambda_ = torch.tensor(0.9, dtype=torch.float64, requires_grad=True)
    previous = PastAggregation(7, 4, Controls(0.9, 0.6, 0.05))
    w = blend(bowl.model, bowl.other, mixing_weight(7, 4, Controls(lambda_, 0.6, 0.05)))
    for step, weight in enumerate(weights):
        w = blend(w, others.hessian[step], weight)
    (expected,) = torch.autograd.grad(bowl.loss(w), lambda_)
    q = float(bowl.gradient(w.detach()) @ (bowl.other - bowl.model))
    assert control_gradient(q, previous).lambda_ * propagation(kept, 0, 5) == close(float(expected))
    assert control_gradient(q, previous).lambda_ != pytest.approx(float(expected), rel=0.1)


@given(st.tuples(*[st.floats(-2, 2)] * 3))
def test_projected_controls_give_a_weight_below_one(controls) -> None:
    projected = project_controls(Controls(*controls))
    assert all(x >= 0 for x in projected)
    assert 0 <= mixing_weight(3, 5, projected) < 1
    assert all(a == b for a, b in zip(projected, controls, strict=True) if b >= 0)


def test_a_negative_weight_is_possible_without_projection_and_the_pole_is_refused() -> None:
    assert -1 < mixing_weight(99, 10, Controls(1, 0.5, -0.1)) < 0
    assert float(blend(vector(1.0), vector(2.0), -0.5)) == 0.5
    with pytest.raises(ValueError, match="pole"):
        mixing_weight(99, 10, Controls(1, 0.5, -1.1))


# The device's, Eqs. 7 to 9


def test_o6_the_fresh_weight_and_its_derivatives() -> None:
    controls = FreshControls(1, 0.5)
    assert fresh_score(36, 28, controls) == close(0.138888888889)
    assert fresh_weight(36, 28, controls) == close(0.121951219512)
    assert fresh_weight_gradient(36, 28, controls) == close((0.107079119572, -0.0428316478287))


def test_o7_a_step_of_the_device() -> None:
    before, fresh, gradient = vector(0.5, -1), vector(0.2, -0.4), vector(0.3, -0.2)
    controls = FreshControls(1.0, 0.5)
    after = blend(before, fresh, fresh_weight(36, 28, controls))
    np.testing.assert_allclose(after, (0.463414634146, -0.926829268293), rtol=1e-9)
    slope = fresh_slope(gradient, fresh, before, after)
    assert slope == close(-0.21)
    by_controls = fresh_weight_gradient(36, 28, controls)
    assert [slope * g for g in by_controls] == close([-0.0224866151101, 0.00899464604402])
    moved = fresh_project(fresh_descend(controls, by_controls, FreshControls(0.1, 0.1), slope))
    assert moved == close((1.00224866151, 0.499100535396))


def test_d6_the_device_derivatives_by_sympy() -> None:
    g, o, mu, gamma, upsilon = sp.symbols("g o mu gamma upsilon", positive=True)
    beta = fresh_weight(g, o, FreshControls(gamma, upsilon), mu)
    found = fresh_weight_gradient(g, o, FreshControls(gamma, upsilon), mu)
    assert sp.simplify(sp.diff(beta, gamma) - found.gamma) == 0
    assert sp.simplify(sp.diff(beta, upsilon) - found.upsilon) == 0


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("offset", [0, 1])
def test_d6_e07_the_gradient_is_that_at_the_merged_model(seed, offset) -> None:
    bowl = Bowl(seed, 6)
    x = torch.tensor([0.8, 0.4], dtype=torch.float64, requires_grad=True)

    def merged(controls: FreshControls) -> torch.Tensor:
        return blend(bowl.model, bowl.other, fresh_weight(9, 4, controls, 1.2, sqrt_offset=offset))

    (expected,) = torch.autograd.grad(bowl.loss(merged(FreshControls(*x))), x)
    point = FreshControls(0.8, 0.4)
    after, by_controls = merged(point), fresh_weight_gradient(9, 4, point, 1.2, sqrt_offset=offset)
    vectors = (bowl.other, bowl.model, after)
    slope = fresh_slope(bowl.gradient(after), *vectors)
    np.testing.assert_allclose([slope * g for g in by_controls], expected, rtol=1e-9)
    wrong_letters = fresh_slope(bowl.gradient(after), *vectors, form="printed")
    assert wrong_letters == close(slope * (1 - fresh_weight(9, 4, point, 1.2, sqrt_offset=offset)))
    assert fresh_slope(bowl.gradient(bowl.model), *vectors) != pytest.approx(slope, rel=1e-3)


@given(gap=st.integers(1, 99), origin=st.integers(0, 1000), gamma=st.floats(-1, 50), upsilon=st.floats(-1, 3))
def test_d10_projected_device_controls_give_a_weight_from_zero_to_one(gap, origin, gamma, upsilon) -> None:
    controls = fresh_project(FreshControls(gamma, upsilon))
    assert 0 <= controls.upsilon <= MOST_UPSILON
    assert -1e-12 <= fresh_weight(origin + gap, origin, controls) < 1


def test_d10_with_upsilon_one_a_model_of_the_same_age_would_have_no_weight() -> None:
    gap, gamma, upsilon = sp.symbols("gap gamma upsilon", positive=True)
    phi = fresh_score(9 + gap, 9, FreshControls(gamma, upsilon))
    assert sp.solve(phi.subs(gap, 0), upsilon) == [1]


def test_o12_d8_the_reward_and_its_baseline() -> None:
    assert reward(0.5, 0.35) == close(0.15)
    after = moving_baseline(0.02, 0.15, 0.1)
    assert after == close(0.033)
    assert 0.15 - after == close(0.117) == close((1 - 0.1) * (0.15 - 0.02))


# When a device asks: slots


LOGITS = torch.tensor([0.3, -0.2, 0.5], dtype=torch.float64)


def random_meta(seed: int = 0) -> torch.Tensor:
    """A meta-model whose linear layer is not 0."""
    rng = np.random.default_rng(seed)
    theta = initial_meta(rng)
    theta[-HIDDEN - 1 :] = torch.from_numpy(rng.normal(size=HIDDEN + 1))
    return theta


def test_o9_the_probabilities_of_slots() -> None:
    assert log_probabilities(torch.zeros(3, dtype=torch.float64)).exp().tolist() == close([0.25] * 4)
    logs = log_probabilities(LOGITS)
    assert logs.tolist() == close([-1.17014338655, -1.60781779395, -1.18874759757, -1.68874759757])
    assert logs.exp().tolist() == close([0.310322442012, 0.200324286318, 0.304602510205, 0.184750761465])
    z = LOGITS.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(log_probabilities(z)[1], z)
    assert gradient.tolist() == close([-0.310322442012, 0.709539212930, 0])


@given(st.lists(st.floats(-30, 30), max_size=8))
def test_exactly_one_request_is_made(logits) -> None:
    logs = log_probabilities(torch.tensor(logits, dtype=torch.float64))
    assert len(logs) == len(logits) + 1
    assert float(logs.exp().sum()) == close(1)


def test_o10_d7_the_gradient_of_the_expected_reward_whatever_the_baseline() -> None:
    z, rewards = LOGITS.clone().requires_grad_(), torch.tensor([0.02, 0.10, 0.05, -0.03], dtype=torch.float64)
    expected = log_probabilities(z).exp() @ rewards
    assert expected.item() == close(0.0359264801383)
    (exact,) = torch.autograd.grad(expected, z)
    for baseline in (0.04, 0.0, -3.0):
        found = torch.zeros(3, dtype=torch.float64)
        for place in range(4):
            logs = log_probabilities(z)
            (score,) = torch.autograd.grad(logs[place], z)
            found += logs[place].exp().detach() * (rewards[place] - baseline) * score
        assert found.tolist() == close([-0.00494234420919, 0.0113999249492, 0.00919998683363])
        np.testing.assert_allclose(found, exact, rtol=1e-9)


@pytest.mark.parametrize("slots", [1, 2, 5])
def test_the_meta_model_is_pytorchs_lstm_with_a_linear_layer(slots) -> None:
    lstm, linear = torch.nn.LSTM(2, HIDDEN).double(), torch.nn.Linear(HIDDEN, 1).double()
    theta = torch.nn.utils.parameters_to_vector([*lstm.parameters(), *linear.parameters()]).detach()
    assert len(theta) == meta_size() == 4641
    inputs = torch.tensor([[0.0, k / slots] for k in range(1, slots)], dtype=torch.float64).reshape(-1, 2)
    expected = linear(lstm(inputs)[0])[:, 0] if slots > 1 else torch.zeros(0)
    np.testing.assert_allclose(meta_logits(theta, slots), expected.detach(), rtol=1e-12, atol=1e-15)


def test_at_first_all_slots_are_equally_likely_and_drawn_as_often() -> None:
    theta, rng = initial_meta(np.random.default_rng(1)), np.random.default_rng(2)
    logs = log_probabilities(meta_logits(theta, 4)).numpy()
    assert np.exp(logs) == close([0.25] * 4)
    counts = np.bincount([epsilon_greedy(logs, 0.1, rng) for _ in range(2000)], minlength=4)
    assert abs(counts - 500).max() < 100


def test_reinforce_moves_along_the_gradient_of_the_log_probability() -> None:
    theta = random_meta()
    x = theta.clone().requires_grad_()
    (score,) = torch.autograd.grad(log_probabilities(meta_logits(x, 4))[2], x)
    np.testing.assert_allclose(reinforce(theta, 3, 4, 0.117, 0.001), theta + 0.001 * 0.117 * score, rtol=1e-12)
    before = float(log_probabilities(meta_logits(theta, 4))[2])
    for advantage, sign in ((1.0, 1), (-1.0, -1)):
        after = float(log_probabilities(meta_logits(reinforce(theta, 3, 4, advantage, 0.01), 4))[2])
        assert (after - before) * sign > 0
    assert torch.equal(reinforce(theta, 1, 1, 5.0, 1.0), theta)  # with one slot there is nothing to learn


def test_training_on_records_finds_the_best_slot() -> None:
    rng = np.random.default_rng(0)
    best = {1: 0.0, 2: 0.1, 3: 0.4, 4: 0.05}
    records = [(k, best[k] + 0.05 * rng.normal()) for k in rng.integers(1, 5, 40).tolist()]
    theta = pretrain_meta(initial_meta(rng), records, 4, epochs=60)
    probabilities = log_probabilities(meta_logits(theta, 4)).exp()
    assert int(probabilities.argmax()) + 1 == 3
    assert probabilities[2] > 0.5


def test_training_on_records_prefers_the_best_slot_to_one_that_takes_from_the_worst() -> None:
    """With (R - mean R) ln P all probability goes to slot 1, which is below the mean: that sum has no maximum."""
    records = list(enumerate((0.211, 0.244, 0.220, 0.186), start=1))
    theta = pretrain_meta(initial_meta(np.random.default_rng(0)), records, 4)
    probabilities = log_probabilities(meta_logits(theta, 4)).exp()
    assert probabilities[1] > 0.9


def test_repeated_q_updates_find_the_best_slot_of_a_toy() -> None:
    """Rewards by slot; without exploration a device would stay where it began."""
    rng, rewards = np.random.default_rng(0), (0.0, 0.02, 0.3, 0.05)
    table, slot, visits = np.zeros((4, 3)), 1, np.zeros(5)
    for step in range(3000):
        action = epsilon_greedy(table[slot - 1], 0.1, rng)
        new = next_slot(slot, action, 4)
        table = q_update(table, slot, action, new, rewards[new - 1])
        slot = new
        visits[slot] += step >= 1000
    assert visits.argmax() == 3
    assert visits[3] > 0.8 * visits.sum()


def test_o8_a_q_update() -> None:
    table = np.array([[0.0, 0, 0], [0.05, -0.02, 0.01], [-0.01, 0.04, 0.03]])
    before = table.copy()
    found = q_update(table, 2, ACTIONS.index("add"), 3, 0.12)
    assert found[1, 0] == close(0.0606)
    found[1, 0] = table[1, 0]
    np.testing.assert_array_equal(found, before)
    np.testing.assert_array_equal(table, before)


def test_the_three_actions_and_the_ends() -> None:
    assert [next_slot(2, action, 4) for action in range(3)] == [3, 2, 1]
    assert [next_slot(4, 0, 4), next_slot(1, 2, 4), next_slot(1, 0, 1)] == [4, 1, 1]


def test_ties_are_broken_uniformly_and_chance_is_part_of_the_choice() -> None:
    rng = np.random.default_rng(0)
    counts = np.bincount([epsilon_greedy([0.0, 0.0, -1.0], 0.0, rng) for _ in range(1000)], minlength=3)
    assert counts[2] == 0
    assert abs(counts[0] - 500) < 70
    counts = np.bincount([epsilon_greedy([0.0, 1.0, 0.0], 0.3, rng) for _ in range(3000)], minlength=3)
    assert abs(counts - [300, 2400, 300]).max() < 80


@pytest.mark.parametrize(("epochs", "expected"), [(5, [1, 2, 4]), (4, [1, 2, 3]), (3, [1, 1, 2]), (2, [1, 1, 1])])
def test_the_slots_of_the_heuristics(epochs, expected) -> None:
    assert [fixed_slot(rule, epochs) for rule in ("first", "middle", "last")] == expected


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: fixed_slot("first", 1), "epochs"),
        (lambda: fixed_slot("best", 5), "rule"),
        (lambda: epsilon_greedy([1.0], 1.1, np.random.default_rng(0)), "epsilon"),
        (lambda: epsilon_greedy([1.0, np.nan], 0.1, np.random.default_rng(0)), "values"),
        (lambda: q_update(np.zeros((2, 3)), 3, 0, 1, 0.0), "slot"),
        (lambda: q_update(np.zeros((2, 3)), 1, 0, 0, 0.0), "new_slot"),
        (lambda: reinforce(random_meta(), 5, 4, 1.0, 1.0), "slot"),
        (lambda: meta_logits(random_meta(), 0), "slots"),
        (lambda: meta_logits(torch.zeros(5), 2), "len"),
        (lambda: pretrain_meta(random_meta(), [], 3), "records"),
    ],
)
def test_an_argument_out_of_range_is_named_of_slots(call, name) -> None:
    with pytest.raises(ValueError, match=f"^{name}"):
        call()


# Directions in half precision and sketched


def pair(size: int, seed: int, scale: float = 1.0, correlation: float = 0.0) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    vector = rng.normal(size=size)
    direction = scale * (rng.standard_cauchy(size=size) + correlation * vector)
    return torch.from_numpy(vector), torch.from_numpy(direction)


def test_half_precision_is_exact_for_numbers_with_few_bits_and_for_nothing() -> None:
    direction = torch.tensor([1.5e-9 * 0 + 2**-40, -3 * 2.0**-40, 0.0], dtype=torch.float64)
    assert half_product(torch.tensor([1.0, 1.0, 5.0], dtype=torch.float64), to_half(direction)) == -(2.0**-39)
    assert half_product(torch.ones(4), to_half(torch.zeros(4))) == 0


def test_a_sketch_is_linear_and_the_same_for_the_same_seed() -> None:
    vector, direction = pair(50, 0)
    both = sketch(2 * vector - direction, 8, 3)
    torch.testing.assert_close(both, 2 * sketch(vector, 8, 3) - sketch(direction, 8, 3))
    assert not torch.equal(sketch(vector, 8, 3), sketch(vector, 8, 4))


def test_a_sketch_of_no_numbers_is_refused() -> None:
    with pytest.raises(ValueError, match="size = 0"):
        sketch(torch.ones(3), 0, 0)
