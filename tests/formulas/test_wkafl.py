"""WKAFL in formulas: oracles O3 to O5, O7, O10 and O15 of its specification, identities, what its code does."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from refusals import refuses

from fl_core.algorithms.kasync import gsgm_accumulate, gsgm_direction, kasync_weights, sasgd_weights, twafl_weights
from fl_core.algorithms.wkafl import WKAFL
from fl_core.algorithms.zenopp import judge_gradient
from fl_core.formulas import wkafl
from fl_core.formulas.wkafl import DECAY

close = partial(np.testing.assert_allclose, rtol=1e-10, atol=1e-13)
printed = partial(np.testing.assert_allclose, rtol=0, atol=6e-13)  # oracles are given with twelve decimals


def tensor(*values: object) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


TAU = tensor(0, 2, 5)
GRADS = tensor((3, 4), (1, -1), (0, 2))


def clipped_grads() -> torch.Tensor:
    return wkafl.clip(wkafl.accumulate_momentum(GRADS, tensor(1, 2), 0.1), 2.0)


# The equations


def test_o3_o4_both_stages() -> None:
    losses = (0.5, 0.6, 0.7)
    assert wkafl.enters_stage2([wkafl.stage_loss(losses)], 0.6 + 1e-9)
    assert not wkafl.enters_stage2([wkafl.stage_loss(losses, "sum_loss")], 0.6 + 1e-9)
    first = wkafl.aggregate(clipped_grads(), wkafl.estimation_weights(TAU), sim_beta=10, sim_min=0.3)
    printed(first.weights, (0.942713048323, 0, 0.057286951677))
    projected = wkafl.estimation_weights(TAU) @ (clipped_grads().norm(dim=1) * first.similarities)
    printed((projected, first.estimate.norm()), [1.374503623445] * 2)  # D4
    printed(
        wkafl.stage2_clip(clipped_grads(), first.estimate, 0.5),
        ((0.408126066897, 0.552944993860), (0.555805339143, -0.404222064831), (0.031206497232, 0.686542939114)),
    )
    made = wkafl.aggregate(
        clipped_grads(), wkafl.estimation_weights(TAU), sim_beta=10, sim_min=0.3, stage2_clip_factor=0.5
    )
    close(made.weights, first.weights)
    printed(made.gradient, (0.386533493724, 0.560598412894))
    printed(1 - 0.05 * made.gradient, (0.980673325314, 0.971970079355))
    assert float(made.gradient.norm()) == pytest.approx(0.680939587856, abs=1e-12)
    assert 0.5 * float(made.estimate.norm()) == pytest.approx(0.687251811723, abs=1e-12)


def test_o5_two_updates_with_either_source_of_momentum() -> None:
    method = WKAFL(lr=0.1, momentum_alpha=0.5, clip_bound=10, sim_beta=2)
    first = method.combine(tensor((1, 0), (0.8, 0.6), (0, 1.5)), tensor(0, 0, 0), None, 1)
    printed(first.weights, (0.240424201750, 0.460906979997, 0.298668818252))
    models = (-0.145385160862, -0.183888718417), (-0.145813525885, -0.185125140412)
    for momentum, model in zip((first.estimate, first.gradient), models, strict=True):
        second = method.combine(tensor((0, 1), (0.6, 0.8), (1, 0.5)), tensor(0, 1, 0), momentum, 1)
        printed(-method.rate(0) * (first.gradient + second.gradient), model)


@pytest.mark.parametrize(("count", "similarity"), [(20, 0.22360679774997894), (10, 0.31622776601683794)])
def test_o7_orthogonal_gradients_weigh_the_same(count, similarity) -> None:
    weights = wkafl.estimation_weights(tensor(*[0] * count))
    made = wkafl.aggregate(torch.eye(count).double(), weights, sim_beta=10, sim_min=0.3)
    close(made.similarities, [similarity] * count)
    close((made.weights.min(), made.weights.max(), made.gradient.norm()), (1 / count, 1 / count, similarity))
    assert (made.gradient is made.estimate) is (similarity < 0.3)


def test_o10_twafl_and_sasgd() -> None:
    w, grads, tau = tensor(1, 1), tensor((1, 2), (3, -1)), (0, 3)

    def step(weights):
        return w - 0.1 * weights @ grads

    printed(step(twafl_weights(tau, (4, 4), "printed")), (0.890255517959, 0.919914827347))
    printed(step(twafl_weights(tau, (4, 4))), (0.843031176353, 0.885453235470))
    printed(step(twafl_weights(tau, (4, 4), "printed", 1)), (0.919254522550, 0.941076622877))
    printed(step(sasgd_weights(tau)), (0.9125, 0.9125))
    printed(step(sasgd_weights(tau, divide=False)), (0.825, 0.825))
    close(step(kasync_weights(2)), (0.8, 0.95))


def test_o15_zeno() -> None:
    judged = judge_gradient(tensor(3, 4), tensor(1, 0.5))
    printed(judged.candidate, (0.670820393250, 0.894427191000))
    assert (judged.score, judged.accepted) == (pytest.approx(0.8680339887498949, rel=1e-12), True)
    assert not judge_gradient(tensor(0, 0), tensor(1, 0.5)).accepted


# Identities and properties

numbers = st.floats(-5, 5)


@st.composite
def gradients(draw: st.DrawFn) -> tuple[torch.Tensor, torch.Tensor]:
    """K gradients and their staleness."""
    count, length = draw(st.integers(1, 8)), draw(st.integers(1, 5))
    rows = draw(st.lists(st.lists(numbers, min_size=length, max_size=length), min_size=count, max_size=count))
    ages = draw(st.lists(st.integers(0, 500), min_size=count, max_size=count))
    return tensor(*rows), tensor(*ages)


@given(gradients(), st.floats(0.01, 10))
def test_clipping_bounds_the_length_and_keeps_the_direction(drawn, bound) -> None:
    grads, _ = drawn
    clipped = wkafl.clip(grads, bound)
    lengths, before = clipped.norm(dim=1), grads.norm(dim=1)
    assert (lengths <= bound * (1 + 1e-12)).all()
    close(lengths, before.clamp(max=bound))
    close(clipped * before[:, None], grads * lengths[:, None])
    assert wkafl.clip(grads, math.inf) is grads


@given(gradients(), st.floats(0, 60), st.floats(0, 1), st.none() | st.floats(0.1, 10))
def test_the_aggregate_is_a_weighted_mean_within_its_bounds(drawn, beta, sim_min, factor) -> None:
    grads, ages = drawn
    made = wkafl.aggregate(
        grads, wkafl.estimation_weights(ages), sim_beta=beta, sim_min=sim_min, stage2_clip_factor=factor
    )
    assert torch.isfinite(made.gradient).all()
    assert float(made.weights.sum()) == pytest.approx(1)
    assert (made.weights >= 0).all()
    if torch.equal(made.gradient, made.estimate):
        return
    assert (made.similarities[made.weights > 0] >= sim_min).all()
    if factor is not None:  # D6
        assert float(made.gradient.norm()) <= factor * float(made.estimate.norm()) * (1 + 1e-9)


def test_the_scores_of_two_programs_are_multiplied_by_the_weights_of_staleness() -> None:
    sims, weights = tensor(0.9, 0.5, 0.1), wkafl.estimation_weights(TAU)
    found = wkafl.selection_weights(sims, 10, 0.3, -DECAY * TAU)
    expected = torch.exp(10 * sims) * weights * (sims >= 0.3)
    close(found, expected / expected.sum())
    assert torch.isfinite(wkafl.selection_weights(sims, 10, 0.3, -DECAY * tensor(5000, 4000, 0))).all()


# GSGM


def test_a_rounds_momentum_is_the_mean_of_its_directions() -> None:
    momentum, partial_sum = tensor(1, -1), tensor(0, 0)
    for grads in (tensor((1, 0), (3, 2)), tensor((5, 5))):
        direction = gsgm_direction(grads.mean(0), momentum, 0.5)
        partial_sum = gsgm_accumulate(partial_sum, direction, len(grads), 3)
    close(partial_sum, tensor(3, 7 / 3) + 0.5 * momentum)
    close(gsgm_accumulate(tensor(0), tensor(6), 2, 3, by_commit=True), [2])


# Bad arguments


test_arguments_out_of_range_are_refused = refuses(
    ValueError,
    (lambda: wkafl.accumulate_momentum(GRADS, None, -1), "momentum_alpha = -1"),
    (lambda: wkafl.clip(GRADS, -1.0), "bound = -1.0"),
    (lambda: wkafl.stage2_clip(GRADS, tensor(1, 1), 0.0), "stage2_clip_factor = 0.0"),
    (lambda: wkafl.estimation_weights(tensor(-1, 2)), "staleness"),
    (lambda: wkafl.selection_weights(TAU, 10, 1.5), "sim_min = 1.5"),
    (lambda: wkafl.selection_weights(TAU, -1, 0.5), "sim_beta = -1"),
    (lambda: wkafl.learning_rate(0.0, 0, 0.1), "lr = 0.0"),
    (lambda: wkafl.learning_rate(0.1, -1, 0.1), "min_staleness = -1"),
    (lambda: wkafl.learning_rate(0.1, 0, 1.0), "lr_staleness_factor = 1.0"),
    (lambda: wkafl.stage_loss((1.0,), "loss"), "rule = 'loss'"),
    (lambda: wkafl.stage_loss(()), "losses = "),
    (lambda: twafl_weights((0, 1), (4, 0)), "batch_sizes = "),
    (lambda: twafl_weights((0, 1), (4, 4), "other"), "weighting = 'other'"),
    (lambda: sasgd_weights((-1,)), "staleness = "),
    (lambda: kasync_weights(0), "count = 0"),
    (lambda: gsgm_accumulate(tensor(0), tensor(1), 4, 3), "count = 4"),
)
