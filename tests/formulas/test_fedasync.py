"""FedAsync's update: mixing, the adaptive weight, the regularised local step, exact trajectories."""

from __future__ import annotations

import itertools
import math
from functools import partial

import numpy as np
import pytest
import sympy as sp
import torch
from hypothesis import given
from hypothesis import strategies as st

from fl_core.formulas.fedasync import alpha_t, mix, schedule_factor, staleness_argument
from fl_core.formulas.staleness import STALENESS_WEIGHTS, Constant, Hinge, Polynomial, hinge, staleness_weight
from fl_papers.fedasync.extra_formulas import (
    local_factor,
    local_solution,
    max_stable_lr,
    prox_gradient,
    proximal_step,
    unrolled_weights,
)
from fl_papers.fedasync.toys import iterate, oldest_versions, sampled_versions

poly = Polynomial(a=0.5)
close = partial(pytest.approx, rel=1e-10)


def staleness_of(versions: list[int]) -> list[int]:
    return [t - 1 - tau for t, tau in enumerate(versions, start=1)]


# Mixing, FA-2


def test_o4_mixing_the_local_models_of_o3() -> None:
    assert mix(3.0, 2.024, 0.6) == close(2.4144)
    assert mix(3.0, 2.075, 0.6) == close(2.445)


def test_mixing_is_the_same_for_numbers_arrays_and_tensors() -> None:
    w, v = np.array([3.0, -1.0]), np.array([2.0, 4.0])
    expected = [mix(a, b, 0.3) for a, b in zip(w.tolist(), v.tolist(), strict=True)]
    assert mix(w, v, 0.3).tolist() == close(expected)
    assert mix(torch.tensor(w), torch.tensor(v), 0.3).tolist() == close(expected)


def test_the_ends_of_mixing_are_exact() -> None:
    w, v = torch.randn(2, 50, generator=torch.Generator().manual_seed(0))
    assert torch.equal(mix(w, v, 0.0), w)
    assert torch.equal(mix(w, v, 1.0), v)


def test_mixing_leaves_its_arguments_alone() -> None:
    w, v = torch.ones(3), torch.zeros(3)
    mixed = mix(w, v, 0.5)
    assert torch.equal(w, torch.ones(3))
    assert torch.equal(v, torch.zeros(3))
    assert mixed.data_ptr() not in (w.data_ptr(), v.data_ptr())


@pytest.mark.parametrize("bad", [-0.1, 1.1, math.nan])
def test_a_mixing_weight_out_of_range_is_refused(bad: float) -> None:
    with pytest.raises(ValueError, match=rf"alpha_t = {bad}; alpha_t must be in \[0, 1\]"):
        mix(1.0, 2.0, bad)


def test_mixing_refuses_counters_and_other_shapes() -> None:
    counter = torch.tensor([7])  # batch norm's num_batches_tracked
    with pytest.raises(ValueError, match=r"torch.int64; w.dtype must be a floating-point type"):
        mix(counter, counter, 0.5)
    with pytest.raises(ValueError, match=r"w_new.shape = \(1,\); w_new.shape must be \(3,\)"):
        mix(torch.zeros(3), torch.zeros(1), 0.5)


def test_d1_the_global_model_is_a_convex_combination() -> None:
    alphas = sp.symbols("alpha1:6", positive=True)
    arrivals = sp.symbols("y1:6")
    x = x0 = sp.Symbol("x0")
    for alpha, y in zip(alphas, arrivals, strict=True):
        x = (1 - alpha) * x + alpha * y
    weights = unrolled_weights(alphas)
    unrolled = weights[0] * x0 + sum(w * y for w, y in zip(weights[1:], arrivals, strict=True))
    assert sp.expand(x - unrolled) == 0
    assert sp.expand(sum(weights) - 1) == 0


def test_o13_weights() -> None:
    assert unrolled_weights([0.6, 0.3, 0.5]) == close([0.14, 0.21, 0.15, 0.5])
    with pytest.raises(ValueError, match=r"alpha = 1\.5"):
        unrolled_weights([0.6, 1.5])


@given(st.lists(st.floats(0, 1), max_size=20))
def test_weights_are_a_distribution(alphas: list[float]) -> None:
    weights = unrolled_weights(alphas)
    assert min(weights) >= 0
    assert sum(weights) == pytest.approx(1, abs=1e-12)


def test_d10_full_mixing_of_fresh_models_is_sequential_training() -> None:
    def local(x: float) -> float:
        return local_solution(x, 1.0, 2.0, 0.1, 3)

    run = iterate(3.0, [1.0] * 5, list(range(5)), local)
    x = 3.0
    for model in run[1:]:
        x = local(x)
        assert model == x


def test_d10_one_over_j_gives_the_mean_of_one_round() -> None:
    assert sp.simplify(sp.Matrix(unrolled_weights([sp.Rational(1, j) for j in range(1, 6)]))) == sp.Matrix(
        [0] + [sp.Rational(1, 5)] * 5
    )
    a = sp.Symbol("a", positive=True)
    assert [sp.factor(w) for w in unrolled_weights([a] * 3)] == [
        sp.factor((1 - a) ** 3),
        sp.factor(a * (1 - a) ** 2),
        sp.factor(a * (1 - a)),
        a,
    ]


def test_d2_mixing_is_the_update_plus_a_pull_back_to_the_stale_base() -> None:
    previous, base, new, alpha = sp.symbols("previous base new alpha", positive=True)
    mixed = (1 - alpha) * previous + alpha * new
    assert sp.expand(mixed - (previous + alpha * (new - base) + alpha * (base - previous))) == 0


# The adaptive weight, FA-6


@pytest.mark.parametrize(
    ("weight", "convention", "expected"),
    [
        (poly, "missed_updates", [0.8, 0.4, 0.2, 0.1]),
        (poly, "paper", [0.5656854249492381, 0.35777087639996635, 0.17888543819998318, 0.09701425001453319]),
        (Hinge(a=10, b=4), "missed_updates", [0.8, 0.8, 0.4, 0.0036036036036036037]),
    ],
)
def test_o2_alpha_t(weight, convention, expected) -> None:
    points = [(1, 0), (800, 3), (801, 3), (2000, 15)]
    assert [alpha_t(0.8, t, delta, weight, schedule="step", convention=convention) for t, delta in points] == close(
        expected
    )


def test_schedules() -> None:
    assert [schedule_factor(t, "step", step_epoch=2, step_factor=0.25) for t in (1, 2, 3, 9)] == [1, 1, 0.25, 0.25]
    assert [schedule_factor(t, "inv_sqrt") for t in (1, 4, 100)] == close([1, 0.5, 0.1])
    assert alpha_t(0.6, 5, 3) == 0.6
    assert staleness_argument(0) == 0
    assert staleness_argument(0, "paper") == 1


def test_the_weight_is_not_cumulative() -> None:
    """Multiplying alpha by s in place would leave 8.8e-4 after ten updates of staleness 3."""
    assert [alpha_t(0.9, t, 3, poly) for t in range(1, 11)] == [0.45] * 10
    assert pytest.approx(8.8e-4, rel=1e-2) == 0.9 * 0.5**10


@pytest.mark.parametrize("kind", STALENESS_WEIGHTS)
def test_d3_the_adaptive_weight_stays_a_mixing_weight(kind: str) -> None:
    weight = staleness_weight({"kind": kind} if kind == "constant" else {"kind": kind, "a": 0.5})
    values = [alpha_t(0.9, 1, u, weight) for u in range(101)]
    assert values[0] == 0.9
    assert all(0 < later <= earlier for earlier, later in itertools.pairwise(values))


def test_adaptive_alpha_keeps_its_alpha() -> None:
    """Some implementations use s alone as the weight: 1 for a fresh model, 0.5 at staleness 3."""
    assert alpha_t(0.6, 1, 0, poly) == 0.6
    assert alpha_t(0.6, 1, 3, poly) == close(0.3)
    assert poly(3) == 0.5


def test_o15_mean_staleness_of_sampled_versions() -> None:
    for age, mean in ((4, 1.4985), (16, 7.47)):
        assert sum((min(t, age) - 1) / 2 for t in range(1, 2001)) / 2000 == close(mean)
        drawn = [
            np.mean(staleness_of(sampled_versions(2000, age, np.random.default_rng(seed)))) for seed in range(20)
        ]
        assert np.mean(drawn) == pytest.approx(mean, rel=0.02)


def test_hinge_with_grace_of_the_pool_size_is_plain_fedasync_under_both_conventions() -> None:
    for convention in ("missed_updates", "paper"):
        for delta in range(4):  # K = 4: staleness 0..3, the paper's 1..4
            assert alpha_t(0.9, 1, delta, Hinge(a=10, b=4), convention=convention) == 0.9


def test_dropping_is_a_weight_of_zero() -> None:
    def threshold(u: float) -> float:
        return float(u <= 2)

    assert alpha_t(0.9, 1, 2, threshold) == 0.9
    assert mix(5.0, 1.0, alpha_t(0.9, 1, 3, threshold)) == 5.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"alpha": 0}, r"alpha = 0; alpha must be in \(0, 1\]"),
        ({"alpha": 1.2}, r"alpha = 1.2"),
        ({"t": 0}, r"t = 0; t must be >= 1"),
        ({"staleness": -1}, r"u = -1; u must be >= 0"),
        ({"schedule": "cosine"}, r"schedule = 'cosine'; schedule must be 'constant', 'step' or 'inv_sqrt'"),
        ({"schedule": "step", "step_factor": 0}, r"step_factor = 0"),
        ({"schedule": "step", "step_epoch": -1}, r"step_epoch = -1"),
        ({"convention": "official"}, r"convention = 'official'; .*'missed_updates' or 'paper'"),
    ],
)
def test_alpha_t_names_what_is_wrong(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        alpha_t(**{"alpha": 0.6, "t": 1, "staleness": 0, "weight": Constant(), **change})


# The local problem, FA-3 to FA-5


def test_o3_local_steps() -> None:
    for rho, expected in ((0.0, 2.024), (0.5, 2.075)):
        x = 3.0
        for _ in range(3):
            x = proximal_step(x, 2 * (x - 1), 3.0, 0.1, rho)
        assert x == close(expected)
        assert local_solution(3.0, 1.0, 2.0, 0.1, 3, rho) == close(expected)


def test_d4_closed_form() -> None:
    a, rho, lr = sp.symbols("a rho gamma", positive=True)
    c, base = sp.symbols("c base", real=True)
    for steps in (1, 2, 3, 5):
        x = base
        for _ in range(steps):
            x = proximal_step(x, a * (x - c), base, lr, rho)
        assert sp.simplify(x - local_solution(base, c, a, lr, steps, rho)) == 0
        plain = sp.expand(local_factor(a, lr, steps))
        assert sp.simplify(plain - (1 - lr * a) ** steps) == 0


def test_d4_limit_is_the_proximal_point_below_the_stable_rate_only() -> None:
    a, rho = 2.0, 0.5
    lr = max_stable_lr(a, rho)
    assert lr == close(0.8)
    assert local_factor(a, 0.9 * lr, 2000, rho) == close(rho / (a + rho))
    assert abs(local_factor(a, 1.01 * lr, 2000, rho)) > 1e3


def test_d4_option_two_is_shrink_then_step() -> None:
    """The authors' code first shrinks towards the anchor, then steps with the gradient taken before."""
    generator = torch.Generator().manual_seed(1)
    anchor, centre = (torch.randn(40, generator=generator, dtype=torch.float64) for _ in range(2))
    x = y = anchor
    lr, rho = 0.1, 0.7
    for _ in range(10):
        x = proximal_step(x, torch.sin(x - centre), anchor, lr, rho)
        gradient = torch.sin(y - centre)
        y = (1 - lr * rho) * y + lr * rho * anchor - lr * gradient
    assert (x - y).abs().max() < 1e-14


def test_the_anchor_is_the_received_model_and_the_term_is_squared() -> None:
    """The proximal gradient is that of rho/2 |x - anchor|^2, checked by automatic differentiation."""
    x = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64, requires_grad=True)
    anchor = torch.tensor([0.0, 1.0, 2.0], dtype=torch.float64)
    loss = (x**4).sum()
    (plain,) = torch.autograd.grad(loss, x)
    (regularised,) = torch.autograd.grad((x**4).sum() + 0.3 / 2 * (x - anchor).square().sum(), x)
    assert torch.allclose(prox_gradient(plain, x.detach(), anchor, 0.3), regularised, atol=1e-14)


def test_two_other_proximal_terms_give_other_models() -> None:
    """In circulation: the distance itself instead of its square, and an anchor that follows the server's model."""
    x = unsquared = following = 3.0
    for _ in range(3):
        x = proximal_step(x, 2 * (x - 1), 3.0, 0.1, 0.5)
        unsquared -= 0.1 * (2 * (unsquared - 1) + 0.5 * np.sign(unsquared - 3.0))
        following = proximal_step(following, 2 * (following - 1), 2.0, 0.1, 0.5)  # the server has moved on to 2
    assert x == close(2.075)
    assert unsquared == pytest.approx(2.114)
    assert following == pytest.approx(1.959375)


def test_curvature_may_be_one_number_per_coordinate() -> None:
    curvature = np.array([1.0, 5.0])
    assert local_factor(curvature, 0.1, 3).tolist() == close([0.9**3, 0.5**3])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: local_factor(-1.0, 0.1, 3), "curvature = -1.0"),
        (lambda: local_factor(1.0, 0.0, 3), "lr = 0.0"),
        (lambda: local_factor(1.0, 0.1, -1), "steps = -1"),
        (lambda: local_factor(1.0, 0.1, 3, -1.0), "rho = -1.0"),
        (lambda: proximal_step(1.0, 1.0, 1.0, -0.1), "lr = -0.1"),
        (lambda: prox_gradient(1.0, 1.0, 1.0, -0.1), "rho = -0.1"),
        (lambda: max_stable_lr(0.0), "smoothness = 0.0"),
    ],
)
def test_local_formulas_name_what_is_wrong(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


# Whole trajectories


def test_o5_option_two_trajectory() -> None:
    local = partial(local_solution, centre=1.0, curvature=2.0, lr=0.1, steps=3, rho=0.5)
    run = iterate(3.0, [0.6] * 6, oldest_versions(6, 4), local)
    assert run[1:] == close([2.445, 2.223, 2.1342, 2.09868, 1.9054845, 1.7566113])


def test_o6_staleness_slows_but_does_not_break() -> None:
    def half(x: float) -> float:
        return x / 2

    assert iterate(1.0, [0.9] * 10, oldest_versions(10, 1), half) == close([0.55**t for t in range(11)])
    assert iterate(1.0, [0.9] * 10, oldest_versions(10, 4), half)[1:] == close(
        [
            0.55,
            0.505,
            0.5005,
            0.50005,
            0.297505,
            0.2570005,
            0.25092505,
            0.250115005,
            0.1588887505,
            0.13153910005,
        ]
    )
    assert iterate(1.0, [0.9] * 50, oldest_versions(50, 16), half)[50] == close(0.06759125)


@pytest.mark.parametrize(
    ("convention", "alphas", "models"),
    [
        (
            "missed_updates",
            [0.9, 0.6363961030678928, 0.5196152422706631, 0.45, 0.45, 0.45],
            [
                0.55,
                0.5181801948466054,
                0.5087334884968586,
                0.5048034186732723,
                0.4013918802702998,
                0.3373560779891511,
            ],
        ),
        (
            "paper",
            [0.6363961030678928, 0.5196152422706631, 0.45] + [0.40249223594996214] * 3,
            [
                0.6818019484660536,
                0.5873348849685865,
                0.5480341867327226,
                0.5287007995126312,
                0.453112827924831,
                0.3889372982269655,
            ],
        ),
    ],
)
def test_o7_adaptive_weights(convention, alphas, models) -> None:
    versions = oldest_versions(6, 4)
    weights = [
        alpha_t(0.9, t, delta, poly, convention=convention) for t, delta in enumerate(staleness_of(versions), start=1)
    ]
    assert weights == close(alphas)
    assert iterate(1.0, weights, versions, lambda x: x / 2)[1:] == close(models)


def test_iterate_works_on_models() -> None:
    x0 = torch.tensor([1.0, 2.0], dtype=torch.float64)
    last = iterate(x0, [0.9] * 10, oldest_versions(10, 4), lambda x: x / 2)[-1]
    assert last.tolist() == close([0.13153910005, 2 * 0.13153910005])


def test_schedules_of_base_versions() -> None:
    assert oldest_versions(6, 4) == [0, 0, 0, 0, 1, 2]
    versions = sampled_versions(4000, 4, np.random.default_rng(0))
    delays = np.array(staleness_of(versions))
    assert all(0 <= delta < t for t, delta in enumerate(delays, start=1))
    assert set(delays.tolist()) == {0, 1, 2, 3}
    assert np.bincount(delays) / 4000 == pytest.approx([0.25] * 4, abs=0.03)
    with pytest.raises(ValueError, match="max_staleness = 0"):
        oldest_versions(3, 0)


def test_iterate_refuses_models_from_the_future() -> None:
    with pytest.raises(ValueError, match=r"base_versions\[1\] = 2; base_versions\[1\] must be in 0..1"):
        iterate(1.0, [0.5, 0.5], [0, 2], lambda x: x)
    with pytest.raises(ValueError, match=r"len\(alphas\) = 1; .* 2, one per version"):
        iterate(1.0, [0.5], [0, 1], lambda x: x)


def test_d3_symbolic_properties() -> None:
    u, a, b = sp.symbols("u a b", positive=True)
    late = 1 / (a * (u - b) + 1)
    assert sp.limit(late, u, b, "+") == 1
    assert sp.simplify(hinge(u, a, b).subs({u: 7, b: 3, a: 2}) - late.subs({u: 7, b: 3, a: 2})) == 0
    for form in (1 / (a * u + 1), (u + 1) ** -a, sp.exp(-a * u), late.subs(u, u + b)):
        assert sp.simplify(sp.diff(form, u)).is_negative
        assert form.subs(u, 0) == 1
