"""WKAFL in formulas: oracles O1 to O7, O10 and O15 of its specification, identities, what its code does."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fl_core.algorithms.kasync import gsgm_accumulate, gsgm_direction, kasync_weights, sasgd_weights, twafl_weights
from fl_core.algorithms.zenopp import judge_gradient
from fl_core.formulas.wkafl import (
    DECAY,
    accumulate_momentum,
    aggregate,
    clip,
    enters_stage2,
    estimate,
    estimation_weights,
    learning_rate,
    selection_weights,
    similarities,
    stage2_clip,
    stage_loss,
    temporal_weight,
)

close = partial(np.testing.assert_allclose, rtol=1e-10, atol=1e-13)
printed = partial(np.testing.assert_allclose, rtol=0, atol=6e-13)  # oracles are given with twelve decimals


def tensor(*values: object) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


TAU = tensor(0, 2, 5)
GRADS = tensor((3, 4), (1, -1), (0, 2))
CLIPPED = tensor((1.187704593674, 1.609148159172), (1.1, -0.8), (0.090815321837, 1.997937080421))


def clipped_grads() -> torch.Tensor:
    return clip(accumulate_momentum(GRADS, tensor(1, 2), 0.1), 2.0)


# The equations


def test_o1_staleness_weights() -> None:
    assert math.e / 2 == pytest.approx(1.3591409142295225, rel=1e-15)
    assert pytest.approx(0.3068528194400547, rel=1e-15) == DECAY
    printed(temporal_weight(TAU), (1, 0.541341132946, 0.215614303971))
    printed(estimation_weights(TAU), (0.569166399436, 0.308113183506, 0.122720417058))
    close(estimation_weights(TAU + 1), estimation_weights(TAU))


def test_o2_momentum_then_clipping() -> None:
    close(accumulate_momentum(GRADS, tensor(1, 2), 0.1), ((3.1, 4.2), (1.1, -0.8), (0.1, 2.2)))
    printed(clipped_grads(), CLIPPED)
    assert accumulate_momentum(GRADS, None, 0.1) is GRADS


def test_o3_the_first_stage() -> None:
    made = aggregate(clipped_grads(), estimation_weights(TAU), sim_beta=10, sim_min=0.3)
    printed(made.estimate, (1.026070943203, 0.914570188875))
    printed(made.similarities, (0.978661701086, 0.212364879372, 0.698592794947))
    printed(made.weights, (0.942713048323, 0, 0.057286951677))
    printed(made.gradient, (1.124867150964, 1.631420691316))
    printed(1 - learning_rate(0.05, 0, 0.1) * made.gradient, (0.943756642452, 0.918428965434))
    assert stage_loss((0.5, 0.7, 0.9)) > 0.6
    lengths = torch.linalg.vector_norm(clipped_grads(), dim=1)
    both = (estimation_weights(TAU) * lengths * made.similarities).sum(), torch.linalg.vector_norm(made.estimate)
    printed(both, (1.374503623445, 1.374503623445))


def test_o4_the_second_stage() -> None:
    losses = (0.5, 0.6, 0.7)
    assert enters_stage2([stage_loss(losses)], 0.6 + 1e-9)
    assert not enters_stage2([stage_loss(losses, "sum_loss")], 0.6 + 1e-9)
    first = aggregate(clipped_grads(), estimation_weights(TAU), sim_beta=10, sim_min=0.3)
    printed(
        stage2_clip(clipped_grads(), first.estimate, 0.5),
        ((0.408126066897, 0.552944993860), (0.555805339143, -0.404222064831), (0.031206497232, 0.686542939114)),
    )
    made = aggregate(clipped_grads(), estimation_weights(TAU), sim_beta=10, sim_min=0.3, stage2_clip_factor=0.5)
    close(made.weights, first.weights)
    printed(made.gradient, (0.386533493724, 0.560598412894))
    printed(1 - 0.05 * made.gradient, (0.980673325314, 0.971970079355))
    assert float(made.gradient.norm()) == pytest.approx(0.680939587856, abs=1e-12)
    assert 0.5 * float(made.estimate.norm()) == pytest.approx(0.687251811723, abs=1e-12)


@pytest.mark.parametrize(
    ("source", "estimate_2", "p_2", "g_2", "w_3"),
    [
        ("estimated", (0.826894142137, 1.113447071068), (0.308535456206, 0.366906802297, 0.324557741497),
         (0.844701822875, 1.114339768792), (-0.145385160862, -0.183888718417)),
        ("aggregated", (0.831469035011, 1.125720778757), (0.309047135120, 0.366355711635, 0.324597153246),
         (0.848985473101, 1.126703988739), (-0.145813525885, -0.185125140412)),
    ],
)  # fmt: skip
def test_o5_two_iterations_by_source_of_momentum(source, estimate_2, p_2, g_2, w_3) -> None:
    grads = (tensor((1, 0), (0.8, 0.6), (0, 1.5)), tensor((0, 1), (0.6, 0.8), (1, 0.5)))
    ages = (tensor(0, 0, 0), tensor(0, 1, 0))
    step = partial(aggregate, sim_beta=2, sim_min=0.3)
    one = step(clip(grads[0], 10), estimation_weights(ages[0]))
    printed(one.estimate, (0.6, 0.7))
    printed(one.weights, (0.240424201750, 0.460906979997, 0.298668818252))
    printed(one.gradient, (0.609149785748, 0.724547415377))
    w = -0.1 * one.gradient
    printed(w, (-0.060914978575, -0.072454741538))
    previous = one.estimate if source == "estimated" else one.gradient
    two = step(clip(accumulate_momentum(grads[1], previous, 0.5), 10), estimation_weights(ages[1]))
    printed(two.estimate, estimate_2)
    printed(two.weights, p_2)
    printed(two.gradient, g_2)
    printed(w - learning_rate(0.1, 0, 0.1) * two.gradient, w_3)
    # D1: each source has its own unrolled form.
    a = [estimation_weights(age) for age in ages]
    unrolled = a[1] @ grads[1] + 0.5 * (a[0] @ grads[0])
    if source == "estimated":
        close(two.estimate, unrolled, rtol=1e-12)
        close(two.gradient, two.weights @ grads[1] + 0.5 * one.estimate, rtol=1e-12)
    else:
        close(two.gradient, two.weights @ grads[1] + 0.5 * (one.weights @ grads[0]), rtol=1e-12)
        assert not np.allclose(two.estimate, unrolled)


def test_o6_learning_rates() -> None:
    found = [learning_rate(0.005, tau, 0.1) for tau in (0, 1, 9, 29)]
    close(found, (0.005, 0.004545454545454545, 0.0026315789473684214, 0.001282051282051282))
    assert learning_rate(0.005, 0, 0.1, staleness_offset=1) == found[1]


def test_o7_orthogonal_gradients_have_no_consistent_one_from_twelve_on() -> None:
    for count, similarity, empty in ((20, 0.22360679774997894, True), (10, 0.31622776601683794, False)):
        equal = estimation_weights(torch.zeros(count, dtype=torch.float64))
        made = aggregate(torch.eye(count, dtype=torch.float64), equal, sim_beta=10, sim_min=0.3)
        close(made.similarities, np.full(count, similarity))
        assert torch.equal(made.gradient, made.estimate) or not empty
        close(made.weights, np.full(count, 1 / count))
        close(made.gradient.norm(), similarity)
        assert bool(selection_weights(made.similarities, 10, 0.3).any()) is not empty
    assert [1 / math.sqrt(k) < 0.3 for k in (11, 12)] == [False, True]


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
    clipped = clip(grads, bound)
    lengths, before = clipped.norm(dim=1), grads.norm(dim=1)
    assert (lengths <= bound * (1 + 1e-12)).all()
    close(lengths, before.clamp(max=bound))
    close(clipped * before[:, None], grads * lengths[:, None])
    assert clip(grads, math.inf) is grads


@given(gradients(), st.floats(0, 60), st.floats(0, 1), st.none() | st.floats(0.1, 10))
def test_the_aggregate_is_a_weighted_mean_within_its_bounds(drawn, beta, sim_min, factor) -> None:
    grads, ages = drawn
    made = aggregate(grads, estimation_weights(ages), sim_beta=beta, sim_min=sim_min, stage2_clip_factor=factor)
    assert torch.isfinite(made.gradient).all()
    assert float(made.weights.sum()) == pytest.approx(1)
    assert (made.weights >= 0).all()
    if torch.equal(made.gradient, made.estimate):
        return
    assert (made.similarities[made.weights > 0] >= sim_min).all()
    if factor is not None:  # D6
        assert float(made.gradient.norm()) <= factor * float(made.estimate.norm()) * (1 + 1e-9)


@given(gradients())
def test_the_estimates_length_is_the_weighted_mean_of_its_parts_along_it(drawn) -> None:
    """D4: sum a_i ‖g_i‖ sim_i = ‖estimate‖, so that somebody always has a similarity >= 0."""
    grads, ages = drawn
    weights = estimation_weights(ages)
    mean = estimate(grads, weights)
    sims = similarities(grads, mean)
    close((weights * grads.norm(dim=1) * sims).sum(), mean.norm(), atol=1e-9)
    assert float(sims.max()) >= -1e-9


@given(gradients(), st.floats(0.1, 10))
def test_the_second_clipping_does_not_change_the_similarities(drawn, factor) -> None:
    grads, ages = drawn
    mean = estimate(grads, estimation_weights(ages))
    if float(mean.norm()) > 1e-6:
        close(similarities(stage2_clip(grads, mean, factor), mean), similarities(grads, mean), atol=1e-9)


def test_neighbouring_similarities_differ_by_an_exponential_factor() -> None:
    """D5: from 0.3 to 1 a factor of 1097 for beta = 10, 1.6e15 for beta = 50."""
    for beta, factor in ((10, 1097), (50, 1.6e15)):
        weights = selection_weights(tensor(1.0, 0.3), beta, 0.3)
        assert float(weights[0] / weights[1]) == pytest.approx(factor, rel=0.01)


def test_the_scores_of_two_programs_are_multiplied_by_the_weights_of_staleness() -> None:
    sims, weights = tensor(0.9, 0.5, 0.1), estimation_weights(TAU)
    found = selection_weights(sims, 10, 0.3, -DECAY * TAU)
    expected = torch.exp(10 * sims) * weights * (sims >= 0.3)
    close(found, expected / expected.sum())
    assert torch.isfinite(selection_weights(sims, 10, 0.3, -DECAY * tensor(5000, 4000, 0))).all()


def test_zero_gradients_are_consistent_and_a_zero_estimate_is_applied_as_it_is() -> None:
    assert similarities(tensor((0, 0), (1, 0)), tensor(0.5, 0)).tolist() == [1, 1]
    made = aggregate(tensor((1, 0), (-1, 0)), tensor(0.5, 0.5), sim_beta=10, sim_min=0.0, stage2_clip_factor=1.0)
    assert made.gradient.tolist() == [0, 0]
    assert made.similarities.tolist() == [0, 0]


def test_weights_do_not_underflow_where_their_terms_do() -> None:
    tau = torch.tensor([400.0, 401.0])
    assert float(temporal_weight(tau)[0]) == 0  # float32; D3
    assert estimation_weights(tau).tolist() == pytest.approx([math.e / (math.e + 2), 2 / (math.e + 2)])


def test_the_clip_bound_of_two_programs_is_the_norm_of_a_vector_just_set_to_zero() -> None:
    """E31 a: then all that is selected becomes 0 and the model stands still."""
    assert not clip(clipped_grads(), 10 * torch.zeros(2).norm()).any()


def test_e30_a_model_handed_out_by_its_data_moves_with_the_server() -> None:
    """What the published programs do, in two lines; the runtime's snapshots are tensors that nobody changes."""
    server, device = torch.nn.Parameter(torch.zeros(2)), torch.nn.Parameter(torch.ones(2))
    device.data = server.data
    server.data.add_(-0.5)
    assert device.tolist() == [-0.5, -0.5]
    assert device.data_ptr() == server.data_ptr()


# GSGM


def test_a_rounds_momentum_is_the_mean_of_its_directions() -> None:
    momentum, partial_sum = tensor(1, -1), tensor(0, 0)
    for grads in (tensor((1, 0), (3, 2)), tensor((5, 5))):
        direction = gsgm_direction(grads.mean(0), momentum, 0.5)
        partial_sum = gsgm_accumulate(partial_sum, direction, len(grads), 3)
    close(partial_sum, tensor(3, 7 / 3) + 0.5 * momentum)
    close(gsgm_accumulate(tensor(0), tensor(6), 2, 3, by_commit=True), [2])


# Bad arguments


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: accumulate_momentum(GRADS, None, -1), "momentum_alpha = -1"),
        (lambda: clip(GRADS, -1.0), "bound = -1.0"),
        (lambda: stage2_clip(GRADS, tensor(1, 1), 0.0), "stage2_clip_factor = 0.0"),
        (lambda: estimation_weights(tensor(-1, 2)), "staleness"),
        (lambda: selection_weights(TAU, 10, 1.5), "sim_min = 1.5"),
        (lambda: selection_weights(TAU, -1, 0.5), "sim_beta = -1"),
        (lambda: learning_rate(0.0, 0, 0.1), "lr = 0.0"),
        (lambda: learning_rate(0.1, -1, 0.1), "min_staleness = -1"),
        (lambda: learning_rate(0.1, 0, 1.0), "lr_staleness_factor = 1.0"),
        (lambda: stage_loss((1.0,), "loss"), "rule = 'loss'"),
        (lambda: stage_loss(()), "losses = "),
        (lambda: twafl_weights((0, 1), (4, 0)), "batch_sizes = "),
        (lambda: twafl_weights((0, 1), (4, 4), "other"), "weighting = 'other'"),
        (lambda: sasgd_weights((-1,)), "staleness = "),
        (lambda: kasync_weights(0), "count = 0"),
        (lambda: gsgm_accumulate(tensor(0), tensor(1), 4, 3), "count = 4"),
    ],
)
def test_arguments_out_of_range_are_refused(call, says) -> None:
    with pytest.raises(ValueError, match=says):
        call()
