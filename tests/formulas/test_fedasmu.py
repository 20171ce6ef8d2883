"""FedASMU in formulas: weights, their derivatives against automatic differentiation and SymPy, control parameters."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
import torch
from fedasmu_pairs import pair
from hypothesis import given
from hypothesis import strategies as st
from refusals import refuses

from fl_core.formulas import fedasmu
from fl_core.formulas.fedasmu import ACTIONS, HIDDEN, MOST_UPSILON, Controls, FreshControls, PastAggregation

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
    assert fedasmu.weight_score(*point, sqrt_offset=offset) == close(score)
    assert fedasmu.mixing_weight(*point, mu, sqrt_offset=offset) == close(alpha)


def test_o11_lambda_with_the_mean_weight_of_fedasync() -> None:
    assert [fedasmu.matched_lambda(rounds, 5) for rounds in (600, 200)] == close([11.71681026, 6.806039239])


@given(
    version=st.integers(0, 5000), staleness=st.integers(1, 99), lambda_=st.floats(0, 40), sigma=st.floats(0, 2),
    iota=st.floats(0, 1), mu=st.floats(0.1, 10), offset=st.sampled_from([0, 1]),
)  # fmt: skip
def test_the_derivatives_are_those_of_automatic_differentiation(
    version, staleness, lambda_, sigma, iota, mu, offset
) -> None:
    version += 1 - offset
    x = torch.tensor([lambda_, sigma, iota], dtype=torch.float64, requires_grad=True)
    alpha = fedasmu.mixing_weight(version, staleness, Controls(*x), mu, sqrt_offset=offset)
    assert 0 <= alpha < 1
    (expected,) = torch.autograd.grad(alpha, x)
    found = fedasmu.mixing_weight_gradient(version, staleness, Controls(lambda_, sigma, iota), mu, sqrt_offset=offset)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("sqrt_offset", [0, 1])
def test_the_first_aggregation_has_the_limits_of_the_printed_root(sqrt_offset) -> None:
    previous = PastAggregation(0, 1, Controls(2.0, 0.5, 0.0))
    gradient = fedasmu.control_gradient(-1.0, previous, sqrt_offset=sqrt_offset)
    near = fedasmu.control_gradient(-1.0, PastAggregation(1e-16, 1, previous.controls), sqrt_offset=sqrt_offset)
    assert gradient == pytest.approx(near, abs=1e-7)


test_an_argument_out_of_range_is_named = refuses(
    ValueError,
    (lambda: fedasmu.weight_score(-1, 1, RATES), "version"),
    (lambda: fedasmu.weight_score(1, 0, RATES), "staleness"),
    (lambda: fedasmu.weight_score(np.arange(3), 1, RATES, sqrt_offset=0), "version"),
    (lambda: fedasmu.weight_score(1, 1000, Controls(1, -400, 1)), "sigma"),
    (lambda: fedasmu.mixing_weight_gradient(1, 1, RATES, -5), "mu"),
    (lambda: fedasmu.weight_score(1, 1, RATES, sqrt_offset=2), "sqrt_offset"),
    (lambda: fedasmu.squash(-1.0), "score"),
    (lambda: fedasmu.squash(1.0, 0), "mu"),
    (lambda: fedasmu.fresh_score(3, 3, FreshControls(1, 1)), "fresh_version"),
    (lambda: fedasmu.inner_product(vector(1), vector(1), 1, 0), "divisor"),
    (lambda: fedasmu.control_gradient(1, PastAggregation(1, 1, RATES), form="other"), "form"),
    (lambda: fedasmu.control_gradient(1, PastAggregation(1, 1, Controls(1, 0, 1)), form="printed"), "sigma"),
    (lambda: fedasmu.propagation([0.5], 1, 1), "aggregated"),
    (lambda: fedasmu.propagation([0.5, 0.5], 0, 99), "origin"),
    (lambda: fedasmu.blend(1.0, 2.0, 1.5), "weight"),
    (lambda: fedasmu.moving_baseline(0, 1, 1.5), "rate"),
    (lambda: fedasmu.matched_lambda(0, 10), "rounds"),
    (lambda: fedasmu.matched_lambda(10, 0), "staleness"),
    match="^{} = ",
)


# The server's control parameters, Eq. 3


@given(st.tuples(*[st.floats(-2, 2)] * 3))
def test_projected_controls_give_a_weight_below_one(controls) -> None:
    projected = fedasmu.project_controls(Controls(*controls))
    assert all(x >= 0 for x in projected)
    assert 0 <= fedasmu.mixing_weight(3, 5, projected) < 1
    assert all(a == b for a, b in zip(projected, controls, strict=True) if b >= 0)


# The device's, Eqs. 7 to 9


@pytest.mark.parametrize("offset", [0, 1])
def test_the_devices_derivatives_are_those_of_automatic_differentiation(offset) -> None:
    x = torch.tensor([0.8, 0.4], dtype=torch.float64, requires_grad=True)
    (expected,) = torch.autograd.grad(fedasmu.fresh_weight(9, 4, FreshControls(*x), 1.2, sqrt_offset=offset), x)
    found = fedasmu.fresh_weight_gradient(9, 4, FreshControls(0.8, 0.4), 1.2, sqrt_offset=offset)
    assert found == close(tuple(expected.tolist()))


@given(gap=st.integers(1, 99), origin=st.integers(0, 1000), gamma=st.floats(-1, 50), upsilon=st.floats(-1, 3))
def test_d10_projected_device_controls_give_a_weight_from_zero_to_one(gap, origin, gamma, upsilon) -> None:
    controls = fedasmu.fresh_project(FreshControls(gamma, upsilon))
    assert 0 <= controls.upsilon <= MOST_UPSILON
    assert -1e-12 <= fedasmu.fresh_weight(origin + gap, origin, controls) < 1


# When a device asks: slots


def random_meta(seed: int = 0) -> torch.Tensor:
    """A meta-model whose linear layer is not 0."""
    rng = np.random.default_rng(seed)
    theta = fedasmu.initial_meta(rng)
    theta[-HIDDEN - 1 :] = torch.from_numpy(rng.normal(size=HIDDEN + 1))
    return theta


@given(st.lists(st.floats(-30, 30), max_size=8))
def test_exactly_one_request_is_made(logits) -> None:
    logs = fedasmu.log_probabilities(torch.tensor(logits, dtype=torch.float64))
    assert len(logs) == len(logits) + 1
    assert float(logs.exp().sum()) == close(1)


def test_o10_the_expected_reward() -> None:
    probabilities = fedasmu.log_probabilities(vector(0.3, -0.2, 0.5)).exp()
    assert float(probabilities @ vector(0.02, 0.10, 0.05, -0.03)) == close(0.0359264801383)


@pytest.mark.parametrize("slots", [1, 2, 5])
def test_the_meta_model_is_pytorchs_lstm_with_a_linear_layer(slots) -> None:
    lstm, linear = torch.nn.LSTM(2, HIDDEN).double(), torch.nn.Linear(HIDDEN, 1).double()
    theta = torch.nn.utils.parameters_to_vector([*lstm.parameters(), *linear.parameters()]).detach()
    assert len(theta) == fedasmu.meta_size() == 4641
    inputs = torch.tensor([[0.0, k / slots] for k in range(1, slots)], dtype=torch.float64).reshape(-1, 2)
    expected = linear(lstm(inputs)[0])[:, 0] if slots > 1 else torch.zeros(0)
    np.testing.assert_allclose(fedasmu.meta_logits(theta, slots), expected.detach(), rtol=1e-12, atol=1e-15)


def test_at_first_all_slots_are_equally_likely_and_drawn_as_often() -> None:
    theta, rng = fedasmu.initial_meta(np.random.default_rng(1)), np.random.default_rng(2)
    logs = fedasmu.log_probabilities(fedasmu.meta_logits(theta, 4)).numpy()
    assert np.exp(logs) == close([0.25] * 4)
    counts = np.bincount([fedasmu.epsilon_greedy(logs, 0.1, rng) for _ in range(2000)], minlength=4)
    assert abs(counts - 500).max() < 100


def test_reinforce_moves_along_the_gradient_of_the_log_probability() -> None:
    theta = random_meta()
    x = theta.clone().requires_grad_()
    (score,) = torch.autograd.grad(fedasmu.log_probabilities(fedasmu.meta_logits(x, 4))[2], x)
    np.testing.assert_allclose(
        fedasmu.reinforce(theta, 3, 4, 0.117, 0.001), theta + 0.001 * 0.117 * score, rtol=1e-12
    )
    before = float(fedasmu.log_probabilities(fedasmu.meta_logits(theta, 4))[2])
    for advantage, sign in ((1.0, 1), (-1.0, -1)):
        after = float(
            fedasmu.log_probabilities(fedasmu.meta_logits(fedasmu.reinforce(theta, 3, 4, advantage, 0.01), 4))[2]
        )
        assert (after - before) * sign > 0
    assert torch.equal(fedasmu.reinforce(theta, 1, 1, 5.0, 1.0), theta)  # with one slot there is nothing to learn


def test_o8_a_q_update() -> None:
    table = np.array([[0.0, 0, 0], [0.05, -0.02, 0.01], [-0.01, 0.04, 0.03]])
    before = table.copy()
    found = fedasmu.q_update(table, 2, ACTIONS.index("add"), 3, 0.12)
    assert found[1, 0] == close(0.0606)
    found[1, 0] = table[1, 0]
    np.testing.assert_array_equal(found, before)
    np.testing.assert_array_equal(table, before)


def test_the_three_actions_and_the_ends() -> None:
    assert [fedasmu.next_slot(2, action, 4) for action in range(3)] == [3, 2, 1]
    assert [fedasmu.next_slot(4, 0, 4), fedasmu.next_slot(1, 2, 4), fedasmu.next_slot(1, 0, 1)] == [4, 1, 1]


def test_ties_are_broken_uniformly_and_chance_is_part_of_the_choice() -> None:
    rng = np.random.default_rng(0)
    counts = np.bincount([fedasmu.epsilon_greedy([0.0, 0.0, -1.0], 0.0, rng) for _ in range(1000)], minlength=3)
    assert counts[2] == 0
    assert abs(counts[0] - 500) < 70
    counts = np.bincount([fedasmu.epsilon_greedy([0.0, 1.0, 0.0], 0.3, rng) for _ in range(3000)], minlength=3)
    assert abs(counts - [300, 2400, 300]).max() < 80


@pytest.mark.parametrize(("epochs", "expected"), [(5, [1, 2, 4]), (4, [1, 2, 3]), (3, [1, 1, 2]), (2, [1, 1, 1])])
def test_the_slots_of_the_heuristics(epochs, expected) -> None:
    assert [fedasmu.fixed_slot(rule, epochs) for rule in ("first", "middle", "last")] == expected


test_an_argument_out_of_range_is_named_of_slots = refuses(
    ValueError,
    (lambda: fedasmu.fixed_slot("first", 1), "epochs"),
    (lambda: fedasmu.fixed_slot("best", 5), "rule"),
    (lambda: fedasmu.epsilon_greedy([1.0], 1.1, np.random.default_rng(0)), "epsilon"),
    (lambda: fedasmu.epsilon_greedy([1.0, np.nan], 0.1, np.random.default_rng(0)), "values"),
    (lambda: fedasmu.q_update(np.zeros((2, 3)), 3, 0, 1, 0.0), "slot"),
    (lambda: fedasmu.q_update(np.zeros((2, 3)), 1, 0, 0, 0.0), "new_slot"),
    (lambda: fedasmu.reinforce(random_meta(), 5, 4, 1.0, 1.0), "slot"),
    (lambda: fedasmu.meta_logits(random_meta(), 0), "slots"),
    (lambda: fedasmu.meta_logits(torch.zeros(5), 2), "len"),
    (lambda: fedasmu.pretrain_meta(random_meta(), [], 3), "records"),
    match="^{}",
)


# Directions in half precision and sketched


def test_half_precision_is_exact_for_numbers_with_few_bits_and_for_nothing() -> None:
    direction = torch.tensor([1.5e-9 * 0 + 2**-40, -3 * 2.0**-40, 0.0], dtype=torch.float64)
    assert fedasmu.half_product(torch.tensor([1.0, 1.0, 5.0], dtype=torch.float64), fedasmu.to_half(direction)) == -(
        2.0**-39
    )
    assert fedasmu.half_product(torch.ones(4), fedasmu.to_half(torch.zeros(4))) == 0


def test_a_sketch_is_linear_and_the_same_for_the_same_seed() -> None:
    vector, direction = pair(50, 0)
    both = fedasmu.sketch(2 * vector - direction, 8, 3)
    torch.testing.assert_close(both, 2 * fedasmu.sketch(vector, 8, 3) - fedasmu.sketch(direction, 8, 3))
    assert not torch.equal(fedasmu.sketch(vector, 8, 3), fedasmu.sketch(vector, 8, 4))


def test_a_sketch_of_no_numbers_is_refused() -> None:
    with pytest.raises(ValueError, match="size = 0"):
        fedasmu.sketch(torch.ones(3), 0, 0)
