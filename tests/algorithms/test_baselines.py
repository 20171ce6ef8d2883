"""The formulas of the methods that FedASMU compares with: oracles of the specification, and what they are for."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fl_core.algorithms import asofed, asyncpart, feddelay, feddyn, fedsa, moon, port, syncdrop
from fl_core.algorithms.base import running_mean


def tensor(*numbers):
    return torch.tensor(numbers, dtype=torch.float64)


def close(found, expected):
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-9, atol=1e-12)


# MOON

Z, GLOBAL, PREVIOUS = tensor(1, 2, -0.5), tensor(0.5, 1.5, 1), tensor(-1, 0.3, 0.8)


def test_the_contrast_of_moon_and_its_gradient_are_oracles_1_and_2():
    close(torch.cosine_similarity(Z, GLOBAL, 0), 0.699854212224)
    close(torch.cosine_similarity(Z, PREVIOUS, 0), -0.265452783545)
    z = Z.clone().requires_grad_()
    loss = moon.contrastive_loss(z[None], GLOBAL[None], PREVIOUS[None], 0.5)
    loss.backward()
    close(loss.detach(), 0.135456256697)
    close(z.grad, (-0.0670380057922, 0.0297333486288, -0.0151426170692))


def test_a_batch_has_the_mean_of_its_contrasts_and_equal_references_give_ln_2():
    ours = torch.stack([Z, tensor(0, 1, 1)])
    theirs = torch.stack([GLOBAL, tensor(1, 1, 0)])
    previous = torch.stack([PREVIOUS, tensor(0, 2, 1)])
    close(moon.contrastive_loss(ours, theirs, previous), 0.687369313527)
    equal = ours.clone().requires_grad_()
    loss = moon.contrastive_loss(equal, theirs, theirs)
    loss.backward()
    close(loss.detach(), math.log(2))
    close(equal.grad, np.zeros((2, 3)))


# FedDyn


def test_scaled_by_share_alpha_is_the_same_where_all_hold_as_much():
    assert feddyn.alpha_of_share(0.2, 0.25, 4) == 0.2
    assert feddyn.alpha_of_share(0.2, 0.5, 4) == 0.1


# PORT


def test_the_weights_of_port_are_oracle_1():
    uploads = [(10, 0, 1.0), (20, 4, 0.3), (30, 12, -0.5)]
    weights = np.array([port.update_weight(n, staleness, cos) for n, staleness, cos in uploads])
    close(weights / weights.sum(), (0.277265157312, 0.387180987532, 0.335553855156))


def test_agreement_is_one_where_there_is_nothing_to_compare():
    assert port.agreement(tensor(1, 2), tensor(0, 0)) == 1
    assert port.agreement(tensor(0, 0), tensor(1, 2)) == 1
    close(port.agreement(tensor(1, 2), tensor(-2, -4)), -1)
    close(port.agreement(tensor(1, 0), tensor(0, 3)), 0)


@pytest.mark.parametrize("scale", [1e-25, 1e-9, 1.0, 1e30])
def test_agreement_does_not_depend_on_how_far_a_model_has_gone(scale):
    for dtype in (torch.float32, torch.float64):
        one, other = torch.tensor([1.0, 2.0, -1.0], dtype=dtype), torch.tensor([2.0, 1.0, 4.0], dtype=dtype)
        assert port.agreement(scale * one, scale * one) == pytest.approx(1, rel=1e-6)
        assert port.agreement(scale * one, other) == pytest.approx(port.agreement(one, other), rel=1e-5)


# ASO-Fed


def test_the_step_factor_of_slow_devices_is_oracle_2():
    close([asofed.lr_factor(d) for d in (1, 2, 5, 20, 60)],
          (1, 1, 1.60943791243, 2.99573227355, 4.09434456222))  # fmt: skip
    assert asofed.lr_factor(None) == asofed.lr_factor(0.0) == 1


def test_with_a_constant_gradient_the_second_step_is_empty_and_the_others_grow_back():
    beta, previous, memory, steps = 0.5, 0.0, 0.0, []
    for _ in range(5):
        steps.append(asofed.corrected_gradient(1.0, previous, memory))
        previous, memory = 1.0, asofed.next_memory(memory, previous, beta)
    close(steps, (1, 0, 1 - beta, 1 - beta**2, 1 - beta**3))


def test_attention_to_features_is_oracle_3_and_rescaled_leaves_equal_weights_alone():
    layer = tensor(1, -2, 0.5, 0, 0.3, -0.3).view(2, 3)
    close(asofed.attended(layer), [(0.231223897622, -1.25706343842, 0.070122191583),
                                 (0, 0.10945636516, -0.10945636516)])  # fmt: skip
    close(asofed.attended(layer, rescaled=True), [(0.693671692866, -3.77119031527, 0.210366574749),
                                                (0, 0.32836909548, -0.32836909548)])  # fmt: skip
    equal = torch.full((2, 5), -0.7, dtype=torch.float64)
    close(asofed.attended(equal, rescaled=True), equal)
    close(asofed.attended(equal), equal / 5)


# FedSA


def test_the_local_epochs_of_stale_devices_are_oracle_2():
    assert [fedsa.local_epochs(10, staleness, 0.5) for staleness in (0, 1, 3, 8, 24)] == [10, 7, 5, 3, 2]
    assert fedsa.local_epochs(10, 10_000, 0.5, least=3) == 3


@given(st.lists(st.integers(0, 100), min_size=1, max_size=30))
def test_the_running_mean_is_the_mean(numbers):
    mean = 0.0
    for count, number in enumerate(numbers, 1):
        mean = running_mean(mean, number, count)
    assert mean == pytest.approx(np.mean(numbers), abs=1e-12)


# FedDelay


def test_the_factor_of_late_updates_is_oracle_1_and_is_the_bound_of_the_theorem():
    close([feddelay.delay_factor(tau, 10) for tau in (0, 5, 10, 11, 20, 50)], (1, 1, 1, 0.909090909091, 0.5, 0.2))
    assert [feddelay.delay_factor(tau, 10, "drop") for tau in (10, 11)] == [1, 0]
    assert [feddelay.delay_factor(tau, 10, "inverse") for tau in (10, 20)] == [1, 0.05]
    smoothness, threshold = 3.0, 10
    for tau in (11, 40):
        step = feddelay.delay_factor(tau, threshold) / (4 * smoothness * threshold)
        assert step == pytest.approx(1 / (4 * smoothness * tau))


# SyncDrop


def test_only_what_the_device_had_is_mixed_which_is_oracle_1():
    w, x, kept = tensor(1, 2, 3, 4), tensor(0, 9, 5, 9), torch.tensor([True, False, True, False])
    assert syncdrop.mix_kept(w, x, kept, 0.5).tolist() == [0.5, 2, 4, 4]


def test_the_windows_of_devices_by_speed_are_oracle_2():
    assert [syncdrop.window_start(r, 8, 64, 0.25) for r in range(8)] == [0, 8, 16, 24, 32, 40, 48, 48]
    assert syncdrop.kept_units(64, 0.25) == 16
    assert [syncdrop.window_start(r, 4, 10, 0.4) for r in range(4)] == [0, 2, 4, 6]
    assert syncdrop.kept_units(3, 0.1) == 1


@given(st.integers(1, 40), st.integers(1, 12), st.floats(0.01, 1))
def test_a_window_never_leaves_the_layer(units, ranks, keep):
    for rank in range(ranks):
        start = syncdrop.window_start(rank, ranks, units, keep)
        assert 0 <= start <= start + syncdrop.kept_units(units, keep) <= units


# AsyncPart


def test_a_device_that_counts_as_it_should_has_the_plain_weight():
    assert asyncpart.influence(2.0, 8.0, 0.25, 3.0) == 0.25
    assert asyncpart.fair_weight(0.6, 0.5, 0.25, 0.25) == pytest.approx(0.3)
    assert asyncpart.fair_weight(0.6, 1.0, 0.9, 0.1) == 1


# What is out of range


@pytest.mark.parametrize(
    ("formula", "arguments", "name"), [(fedsa.local_epochs, (1, -1.0), "u"), (running_mean, (1.0, 1.0, 0), "count")]
)
def test_an_argument_out_of_range_is_refused_by_name(formula, arguments, name):
    with pytest.raises(ValueError, match=name):
        formula(*arguments)
