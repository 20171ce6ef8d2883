"""When a FedASMU device asks: meta-model, REINFORCE, Q-learning, fixed slots."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fl_core.formulas.fedasmu import (
    ACTIONS,
    HIDDEN,
    epsilon_greedy,
    fixed_slot,
    initial_meta,
    log_probabilities,
    meta_logits,
    meta_size,
    next_slot,
    pretrain_meta,
    q_update,
    reinforce,
)

close = partial(pytest.approx, rel=1e-9, abs=1e-13)
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
def test_an_argument_out_of_range_is_named(call, name) -> None:
    with pytest.raises(ValueError, match=f"^{name}"):
        call()
