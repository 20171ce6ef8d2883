"""Compressors: known values, what they lose, what they send, and how a run specification names them."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, ValidationError
from refusals import refuses
from torch import Tensor

from fl_core.formulas import compression
from fl_core.formulas.compression import (
    QSGD,
    Compressor,
    Identity,
    RandomK,
    ScaledSign,
    SignSGD,
    TernGrad,
    TopK,
    compressor,
)

X = torch.tensor([3, -1, 0.5, -4, 2], dtype=torch.float64)
U = torch.tensor([0.2, 0.7, 0.1, 0.05, 0.9], dtype=torch.float64)

# Sizes of the parameter tensors of FedLuck's models (its section 6.1)
CNN = [800, 32, 25600, 32, 204800, 256, 2560, 10]
VGG11S = [864, 32, 18432, 64, 73728, 128, *[147456, 128] * 5, *[16384, 128] * 2, 1280, 10]
LSTM = [16384, 65536, 512, 512, 65536, 65536, 512, 512, 1280, 10]

ALL = [
    "identity", "topk(delta=0.1)", "topk(delta=1)", "topk(delta=0.3, per_tensor=true)",
    'topk(delta=0.3, wire="bitmask")', 'topk(delta=0.2, wire="ideal_fraction")',
    "randomk(delta=0.1)", "randomk(delta=0.4, scaled=true)",
    'randomk(delta=0.3, wire="values+indices")', 'randomk(delta=0.3, wire="bitmask")',
    "qsgd", "qsgd(levels=1)", "qsgd(levels=1000, per_tensor=true)",
    "terngrad", "terngrad(clip=2.5, per_tensor=true)", "signsgd", "scaledsign", "scaledsign(per_tensor=true)",
]  # fmt: skip

entry = st.floats(-1e6, 1e6, width=32) | st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.0])
entries = st.lists(entry, min_size=1, max_size=40)
rate = st.floats(0.01, 1)


def vector(values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def squares(x: Tensor) -> float:
    return float(x.double().square().sum())


def thirds(d: int) -> list[int]:
    """Three parameter tensors, the last one larger, possibly some empty."""
    return [d // 3, d // 3, d - 2 * (d // 3)]


# Oracles C1 to C8 of the baselines' specification; 10 and 14 of FedLuck's


def test_c1_top_k() -> None:
    sent = compression.top_k(X, 0.4)
    assert sent.tolist() == [3, 0, 0, -4, 0]
    assert squares(X - sent) == 5.25 <= 0.6 * squares(X) == pytest.approx(18.15, rel=1e-12)


@pytest.mark.parametrize(("scaled", "error"), [(False, 18.15), (True, 45.375)])
def test_c2_random_k_over_all_its_subsets(scaled: bool, error: float) -> None:
    c = RandomK(delta=0.4, scaled=scaled)
    sent = {tuple(c.compress(X, torch.Generator().manual_seed(seed)).tolist()) for seed in range(200)}
    assert len(sent) == 10
    assert np.mean([squares(X - vector(s)) for s in sent]) == pytest.approx(error, rel=1e-9)
    assert c.expected_error(X) == pytest.approx(error, rel=1e-9)
    assert np.mean(list(sent), 0) == pytest.approx((X if scaled else 0.4 * X).numpy(), rel=1e-12)


def test_c3_qsgd() -> None:
    assert compression.qsgd(X, 4, U).tolist() == [2.75, -1.375, 1.375, -4.125, 1.375]
    assert (compression.qsgd(X, 4, U) * 4 / 5.5).tolist() == [2, -1, 1, -3, 1]
    assert QSGD(levels=4).expected_error(X) == pytest.approx(1.71875, rel=1e-9)
    assert QSGD(levels=4).variance(5) * squares(X) == pytest.approx(9.453125, rel=1e-9)
    assert QSGD(levels=1).expected_error(X) == pytest.approx(27.5, rel=1e-9)
    assert QSGD(levels=1).variance(5) * squares(X) == pytest.approx(67.6410563194, rel=1e-9)


def test_c4_terngrad() -> None:
    assert compression.terngrad(X, U).tolist() == [4, 0, 4, -4, 0]
    assert compression.terngrad(X, U, clip=2.5).tolist() == [4, 0, 4, -4, 0]  # the limit is 6.14
    assert TernGrad().expected_error(X) == pytest.approx(11.75, rel=1e-9)
    limit = 2.45764114549
    sent = compression.terngrad(X, torch.zeros(5), clip=1)  # every entry is rounded up
    assert sent.numpy() == pytest.approx([limit, -limit, limit, -limit, limit], rel=1e-9)


def test_c5_scaled_sign() -> None:
    sent = ScaledSign().compress(X)
    assert sent.numpy() == pytest.approx([2.1, -2.1, 2.1, -2.1, 2.1], rel=1e-12)
    assert squares(X - sent) == pytest.approx(8.2, rel=1e-9)
    assert 1 - squares(X - sent) / squares(X) == pytest.approx(0.728925619835, rel=1e-9)


def test_c6_error_feedback() -> None:
    residual, sent = None, []
    for _ in range(4):
        c, residual = compression.error_feedback(TopK(delta=0.2), X, residual)
        sent.append(c.tolist())
    assert sent == [[0, 0, 0, -4, 0], [6, 0, 0, 0, 0], [0, 0, 0, -8, 0], [0, 0, 0, 0, 8]]
    assert residual.tolist() == [6, -4, 2, -4, 0]


def test_c7_bits_of_messages() -> None:
    d = 100_000
    bits = {
        TopK(delta=0.01): 49_000,
        TopK(delta=0.01, wire="bitmask"): 132_000,
        RandomK(delta=0.01): 32_064,
        QSGD(levels=4): 400_032,
        TernGrad(): 200_032,
        SignSGD(): 100_000,
        ScaledSign(): 100_032,
        Identity(): 3_200_000,
    }
    assert {c: c.encoded_bits(d) for c in bits} == bits
    assert TernGrad().ideal_bits(d) == pytest.approx(158_528.250072, rel=1e-9)
    assert TopK(delta=0.01).ideal_bits(d) == pytest.approx(40_073.0120789, rel=1e-9)


@pytest.mark.parametrize(
    ("scheme", "kind", "step"),
    [(lambda x, u: compression.qsgd(x, 4, u), QSGD(levels=4), 5.5 / 4), (compression.terngrad, TernGrad(), 4)],
    ids=["qsgd", "terngrad"],
)
def test_c8_the_mean_over_the_draws_is_the_vector_and_the_mean_square_its_variance(scheme, kind, step) -> None:
    draws = 1000
    sent = torch.stack([scheme(X, torch.full((5,), (q + 0.5) / draws, dtype=torch.float64)) for q in range(draws)])
    assert (sent.mean(0) - X).abs().max() <= step / draws
    assert (sent - X).square().sum(1).mean() == pytest.approx(kind.expected_error(X), abs=5 * step**2 / draws)


def test_fedluck_10_ties_and_counts() -> None:
    x = vector([0.5, -2, 0.1, 2, -0.3, 0, 1, -1, 0.05, 0.7])
    sent = compression.top_k(x, 0.3)
    assert sent.nonzero().flatten().tolist() == [1, 3, 6]
    assert squares(x - sent) == pytest.approx(1.8425, rel=1e-10)
    assert TopK(delta=0.3).contraction(10) == 0.3
    assert 0.7 * squares(x) == pytest.approx(7.58975, rel=1e-10)
    assert [compression.kept_count(100, 0.07), compression.kept_count(25, 0.28)] == [7, 7]
    assert TopK(delta=0.1, wire="ideal_fraction").counted_bytes(sum(VGG11S)) == pytest.approx(346_192.8, rel=1e-12)
    for sizes, per_tensor, whole in [(CNN, 2344, 2341), (VGG11S, 8667, 8655), (LSTM, 2170, 2164)]:
        assert sum(compression.kept_count(n, 0.01) for n in sizes) == per_tensor
        assert compression.kept_count(sum(sizes), 0.01) == whole


def test_fedluck_positions_take_18_bits_in_the_cnn_and_the_lstm_and_20_in_vgg() -> None:
    widths = [
        TopK(delta=0.01).encoded_bits(sum(m)) / compression.kept_count(sum(m), 0.01) - 32 for m in (CNN, LSTM, VGG11S)
    ]
    assert widths == [18, 18, 20]


# What is kept


@pytest.fixture(params=[False, True], ids=["one chunk", "small chunks and samples"])
def chunks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param:
        monkeypatch.setattr(compression, "CHUNK", 64)
        monkeypatch.setattr(compression, "SAMPLE", 32)


def stable_top_k(x: Tensor, k: int) -> list[int]:
    return sorted(torch.sort(x.abs(), descending=True, stable=True).indices[:k].tolist())


@pytest.mark.usefixtures("chunks")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_top_k_is_exact_and_the_lowest_position_wins_a_tie(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(1)
    normal = torch.randn(5000, generator=generator, dtype=dtype)
    hidden = torch.ones(4992, dtype=dtype)
    hidden[:: 4992 // 32] = 5  # the regular sample sees nothing but fives
    unseen = hidden.flip(0)  # and here none of them
    shaped = (normal, normal**7, normal.sort().values, normal.round(), torch.where(normal > 2.5, normal, 0))
    for x in (*shaped, torch.full((5000,), -2, dtype=dtype), hidden, unseen):
        for k in (0, 1, 2, 31, 32, 33, 50, 500, 2500, 4900, len(x) - 1, len(x)):
            assert compression.top_k_indices(x, k).tolist() == stable_top_k(x, k)


def test_counts_are_right_where_the_product_is_not() -> None:
    wrong = 0
    for percent in range(1, 101):
        for n in range(1, 400):
            exact = max(1, -(-n * percent // 100))
            assert compression.kept_count(n, percent / 100) == exact
            wrong += math.ceil(n * (percent / 100)) != exact
    assert wrong > 0
    assert [compression.kept_count(0, 0.5), compression.kept_count(1, 1e-9), compression.kept_count(7, 1.0)] == [
        0,
        1,
        7,
    ]


def test_every_random_subset_is_as_likely_as_any_other() -> None:
    drawn = [tuple(compression.random_k_indices(5, 2, seed).tolist()) for seed in range(5000)]
    assert all(a < b for subset in drawn for a, b in pairwise(subset))
    counts = np.array([drawn.count(subset) for subset in sorted(set(drawn))])
    assert len(counts) == 10
    assert ((counts - 500) ** 2 / 500).sum() < 27.9  # 99.9 % of the χ² distribution with 9 degrees of freedom


@given(entries, rate, st.data())
def test_per_tensor_is_each_tensor_on_its_own(values, delta, data) -> None:
    x = vector(values)
    cut = data.draw(st.integers(0, len(x)))
    sizes = [cut, len(x) - cut]
    for c in (TopK(delta=delta), ScaledSign()):
        whole = c.model_copy(update={"per_tensor": True}).compress(x, segments=sizes)
        assert torch.equal(whole, torch.cat([c.compress(part) for part in x.split(sizes)]))
    u = torch.rand(len(x), generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    for c, scheme in [
        (QSGD(levels=3, per_tensor=True), lambda x, u: compression.qsgd(x, 3, u)),
        (TernGrad(per_tensor=True), compression.terngrad),
    ]:
        pieces = [scheme(a, b) for a, b in zip(x.split(sizes), u.split(sizes), strict=True)]
        assert torch.equal(c.compress(x, torch.Generator().manual_seed(3), sizes), torch.cat(pieces))


# What is lost


@given(entries, rate)
def test_top_k_is_a_contraction_and_a_projection(values, delta) -> None:
    x = vector(values)
    sent = compression.top_k(x, delta)
    k = compression.kept_count(len(x), delta)
    assert squares(x - sent) <= (1 - k / len(x)) * squares(x) * (1 + 1e-12)
    assert float((sent * (x - sent)).abs().max()) == 0
    assert squares(sent) <= squares(x)
    assert torch.equal(compression.top_k(-4 * x, delta), -4 * sent)
    assert torch.equal(compression.top_k(sent, delta), sent)


@given(entries)
def test_the_variance_of_terngrad_is_within_its_bound(values) -> None:
    x = vector(values)
    largest = x.abs().max()
    assert TernGrad().expected_error(x) == pytest.approx(float((x.abs() * (largest - x.abs())).sum()), rel=1e-9)
    assert TernGrad().expected_error(x) <= TernGrad().variance(len(x)) * squares(x) * (1 + 1e-12)


@given(st.integers(1, 60), rate)
def test_random_k_reaches_its_constants_for_every_vector(d, delta) -> None:
    """E‖C(x) - x‖² needs no average over subsets where all |x_j| are equal: it is the same for each of them."""
    x = torch.ones(d, dtype=torch.float64)
    plain, scaled = RandomK(delta=delta), RandomK(delta=delta, scaled=True)
    error = squares(x - plain.compress(x, np.random.default_rng(0)))
    assert error == pytest.approx((1 - plain.contraction(d)) * d, abs=1e-9)
    assert error == pytest.approx(plain.expected_error(x), abs=1e-9)
    error = squares(x - scaled.compress(x, np.random.default_rng(0)))
    assert error == pytest.approx(scaled.variance(d) * d, rel=1e-9, abs=1e-9)
    assert error == pytest.approx(scaled.expected_error(x), rel=1e-9, abs=1e-9)
    assert plain.variance(d) is None


def test_an_unbiased_compressor_is_a_contraction_where_its_variance_is_below_one() -> None:
    assert RandomK(delta=0.8, scaled=True).contraction(10) == pytest.approx(0.75)
    assert RandomK(delta=0.5, scaled=True).contraction(10) is None
    assert QSGD(levels=4).contraction(4) == pytest.approx(0.75)
    assert QSGD(levels=1).contraction(10_000) is None
    assert Identity().contraction(3) == 1
    assert [ScaledSign().contraction(d) for d in (1, 8)] == [1, 1 / 8]
    assert ScaledSign(per_tensor=True).contraction(8, [5, 3]) == 1 / 5
    assert SignSGD().contraction(3) is SignSGD().variance(3) is TernGrad(clip=2.5).variance(3) is None


@given(st.lists(st.lists(st.integers(-9, 9), min_size=6, max_size=6), min_size=1, max_size=30), rate)
def test_error_feedback_loses_nothing_and_its_residual_is_bounded(steps, delta) -> None:
    for c in (TopK(delta=delta), ScaledSign()):
        residual, sent = None, torch.zeros(6, dtype=torch.float64)
        largest = max(sum(x * x for x in step) for step in steps)
        for step in steps:
            out, residual = compression.error_feedback(c, vector(step), residual)
            sent += out
            assert squares(residual) <= compression.residual_bound(c.contraction(6), largest) * (1 + 1e-9)
        total = torch.tensor(steps, dtype=torch.float64).sum(0)
        assert (sent + residual - total).abs().max() <= (0 if isinstance(c, TopK) else 1e-9)


def test_majority_vote_has_no_opinion_on_a_tie() -> None:
    assert compression.majority_vote(torch.tensor([[2.0, -1, 0, 3], [0.1, -2, 0, -9], [-5, -1, 1, 0]])).tolist() == [
        1,
        -1,
        1,
        0,
    ]


def test_a_bit_cannot_say_zero() -> None:
    x = torch.tensor([0.0, -0.0, -2, 3])
    assert SignSGD().compress(x).tolist() == [1, 1, -1, 1]
    assert ScaledSign().compress(x).tolist() == [1.25, 1.25, -1.25, 1.25]


@pytest.mark.parametrize("text", [text for text in ALL if text != "signsgd"])
def test_the_zero_vector_stays_zero(text: str) -> None:
    sent = compressor(text).compress(torch.zeros(7), torch.Generator().manual_seed(0), thirds(7))
    assert sent.abs().tolist() == [0] * 7


def test_rows_are_compressed_one_after_the_other() -> None:
    rows = torch.randn(3, 20, generator=torch.Generator().manual_seed(0))
    for text in ALL:
        c, generator = compressor(text), torch.Generator().manual_seed(1)
        together = c.compress(rows, torch.Generator().manual_seed(1), thirds(20))
        assert torch.equal(together, torch.stack([c.compress(row, generator, thirds(20)) for row in rows]))
        assert c.compress(rows[:0], generator).shape == (0, 20)


def test_the_result_shares_no_storage_with_the_vector() -> None:
    for text in ALL:
        x = torch.ones(9)
        compressor(text).compress(x, np.random.default_rng(0), thirds(9)).fill_(5)
        assert x.tolist() == [1] * 9


def test_a_norm_is_never_below_the_largest_entry() -> None:
    for x in (
        torch.tensor([3e38]),
        torch.tensor([1e-45]),
        torch.rand(1000),
        torch.tensor([1e300, 1], dtype=torch.float64),
    ):
        assert compression.euclidean_norm(x) >= x.abs().max()
        assert torch.isfinite(compression.euclidean_norm(x))


# What is sent


@given(
    st.sampled_from(ALL),
    st.integers(0, 70),
    st.sampled_from([torch.float32, torch.float64]),
    st.integers(0, 10**6),
    st.booleans(),
)
@example("topk(delta=0.1)", 0, torch.float32, 0, False)
@example("topk(delta=0.1)", 1, torch.float32, 0, False)
@example("qsgd", 0, torch.float32, 0, False)
@example("signsgd", 0, torch.float64, 0, False)
def test_a_message_is_read_back_exactly_and_is_as_long_as_foretold(text, d, dtype, seed, coarse) -> None:
    c, segments = compressor(text), thirds(d)
    x = torch.randn(d, generator=torch.Generator().manual_seed(seed), dtype=dtype)
    x = x.round() if coarse else x
    message = c.encode(x, torch.Generator().manual_seed(seed), segments)
    assert len(message) == c.encoded_bytes(d, dtype, segments) == -(-c.encoded_bits(d, dtype, segments) // 8)
    read = c.decode(message, d, dtype, segments)
    assert read.dtype == dtype
    assert torch.equal(read, c.compress(x, torch.Generator().manual_seed(seed), segments))
    assert len(message) <= d * dtype.itemsize or not isinstance(c, TopK | RandomK)
    assert c.ideal_bits(d, dtype, segments) <= c.encoded_bits(d, dtype, segments) + 1e-6
    if "ideal_fraction" not in text:
        assert c.counted_bytes(d, dtype, segments) == len(message)


def test_large_messages_are_read_back_exactly() -> None:
    x = torch.randn(150_001, generator=torch.Generator().manual_seed(0))
    for text in ALL:
        c, segments = compressor(text), thirds(len(x))
        message = c.encode(x, np.random.default_rng(0), segments)
        assert len(message) == c.encoded_bytes(len(x), segments=segments)
        sent = c.compress(x, np.random.default_rng(0), segments)
        assert torch.equal(c.decode(message, len(x), segments=segments), sent)


@pytest.mark.parametrize(
    ("c", "x", "message"),
    [
        (TopK(delta=0.4), X, "00004040 000080c0 0c"),  # 3, -4; positions 000 011
        (TopK(delta=0.4, wire="bitmask"), X, "00004040 000080c0 90"),  # 10010
        (TopK(delta=1), X, "00004040 000080bf 0000003f 000080c0 00000040"),
        (QSGD(levels=4), torch.tensor([0, -3]), "00004040 09"),  # 0000 1001: level 0, level 4 with a sign
        (TernGrad(), torch.tensor([4, -4, 0, 4]), "00008040 b2"),  # 10 11 00 10
        (SignSGD(), X, "50"),  # 01010
        (ScaledSign(), X, "66660640 50"),
    ],
    ids=str,
)
def test_what_a_message_looks_like(c: Compressor, x: Tensor, message: str) -> None:
    assert c.encode(x.float(), torch.Generator()) == bytes.fromhex(message)


def test_a_sparse_message_is_never_longer_than_the_vector_in_full() -> None:
    assert TopK(delta=0.65).encoded_bytes(100) == -(-65 * (32 + 7) // 8) == 317
    assert TopK(delta=0.83).encoded_bytes(100) == TopK(delta=1).encoded_bytes(100) == 400
    assert TopK(delta=0.97, wire="bitmask").encoded_bytes(100) == RandomK(delta=0.98).encoded_bytes(100) == 400


def test_the_same_generator_gives_the_same_message_and_another_one_another() -> None:
    x = torch.randn(200, generator=torch.Generator().manual_seed(0))
    for text in ("randomk(delta=0.1)", "qsgd", "terngrad"):
        c = compressor(text)
        for make in (lambda seed: torch.Generator().manual_seed(seed), np.random.default_rng):
            assert c.encode(x, make(1)) == c.encode(x, make(1)) != c.encode(x, make(2))


# Bad input


@pytest.mark.parametrize("text", ALL)
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_a_vector_that_is_not_finite_is_refused(text: str, bad: float) -> None:
    x = torch.tensor([1, 2, bad, 4, bad, 6])
    for method in (compressor(text).compress, compressor(text).encode):
        with pytest.raises(ValueError, match=rf"vector\[2\] = {bad!r}; vector\[2\] must be finite"):
            method(x, torch.Generator(), thirds(6))


test_wrong_arguments_are_refused = refuses(
    ValueError,
    (lambda: compression.top_k(X, 0), r"delta = 0; delta must be in \(0, 1\]"),
    (lambda: compression.top_k(X, 1.5), r"delta = 1.5"),
    (lambda: compression.top_k(X, float("nan")), r"delta = nan"),
    (lambda: compression.kept_count(-1, 0.5), r"n = -1"),
    (lambda: compression.top_k_indices(X, 6), r"k = 6; k must be in 0..5"),
    (lambda: compression.random_k_indices(5, 6, 0), r"k = 6; k must be in 0..5"),
    (lambda: compression.qsgd(X, 0, U), r"levels = 0; levels must be >= 1"),
    (lambda: compression.qsgd(X, 4, U[:4]), r"u.shape = \[4\]; u.shape must be \[5\]"),
    (lambda: compression.terngrad(X, U, clip=0), r"clip = 0; clip must be > 0"),
    (lambda: compression.majority_vote(X), r"signs = \[5\]; signs must be a matrix"),
    (lambda: TopK(delta=0.1).compress(X.long()), r"\[5\] torch.int64 cpu.*must be a vector \[d\] of float32 or"),
    (lambda: TopK(delta=0.1).encode(X[None]), r"vector = .\[1, 5\]"),
    (lambda: TopK(delta=0.1, per_tensor=True).compress(X), r"segments = None; segments must be the sizes"),
    (lambda: compression.top_k(X, 0.1, [2, 2]), r"segments = \[2, 2\]; segments must be >= 0, with the sum 5"),
    (lambda: compression.top_k(X, 0.1, [6, -1]), r"segments = \[6, -1\]"),
    (lambda: RandomK(delta=0.1).compress(X), r"generator = None; generator must be a PyTorch or NumPy generator"),
    (lambda: QSGD().encoded_bytes(-1), r"d = -1"),
    (lambda: Identity().decode(b"", 0, torch.int32), r"dtype = torch.int32"),
    (lambda: QSGD().compress(torch.tensor([3e38, 3e38]), torch.Generator()), r"inf; .* must be finite"),
    (lambda: RandomK(delta=0.1, scaled=True).compress(torch.full((99,), 3e38), torch.Generator()), r"inf"),
    (
        lambda: compression.error_feedback(Identity(), X, X[:2]),
        r"residual.shape = \[2\]; residual.shape must be \[5\]",
    ),
    (lambda: compression.residual_bound(0, 1), r"delta = 0"),
    (lambda: compression.residual_bound(0.5, -1), r"largest = -1"),
)


@pytest.mark.parametrize("text", ALL)
def test_a_message_of_another_length_is_refused(text: str) -> None:
    c = compressor(text)
    message = c.encode(torch.ones(50), torch.Generator(), thirds(50))
    for wrong in (message[:-1], message + b"\0", b""):
        with pytest.raises(ValueError, match=rf"for 50 numbers .* has {len(message)} bytes; this one has"):
            c.decode(wrong, 50, segments=thirds(50))


@pytest.mark.parametrize(
    ("text", "d", "message", "fault"),
    [
        ("identity", 1, "0000c07f", r"nan"),
        ("topk(delta=0.4)", 5, "00004040 000080c0 0d", r"bits after its end"),
        ("topk(delta=0.4)", 5, "00004040 000080c0 60", r"not 2 ascending numbers below 5"),  # 3, 0
        ("topk(delta=0.4)", 5, "00004040 000080c0 00", r"not 2 ascending numbers below 5"),  # 0, 0
        ("topk(delta=0.4)", 5, "00004040 000080c0 14", r"not 2 ascending numbers below 5"),  # 0, 5
        ("topk(delta=0.4)", 5, "00004040 0000807f 0c", r"inf"),
        ('topk(delta=0.4, wire="bitmask")', 5, "00004040 000080c0 b0", r"not 2 ascending numbers below 5"),
        ('topk(delta=0.4, wire="bitmask")', 5, "00004040 000080c0 00", r"not 2 ascending numbers below 5"),
        ("qsgd(levels=4)", 2, "0000803f a0", r"a level outside 0..4"),
        ("qsgd(levels=4)", 2, "000080bf 00", r"a negative scale"),
        ("terngrad", 4, "0000803f 40", r"a level outside 0..1"),
        ("scaledsign", 8, "000080bf 00", r"scale is negative"),
        ("signsgd", 3, "ff", r"bits after its end"),
    ],
)
def test_a_damaged_message_is_refused(text: str, d: int, message: str, fault: str) -> None:
    with pytest.raises(ValueError, match=rf"damaged message of {text.split('(')[0]}.*{fault}"):
        compressor(text).decode(bytes.fromhex(message), d)


# How a run specification names a compressor


class Held(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    compressor: Compressor = TopK(delta=0.1)


@pytest.mark.parametrize("text", ALL)
def test_a_compressor_survives_json_and_its_text(text: str) -> None:
    held = Held(compressor=text)
    assert Held.model_validate_json(held.model_dump_json()) == held
    assert compressor(str(held.compressor)) == held.compressor
    assert hash(compressor({"kind": "topk", "delta": 0.5})) == hash(TopK(delta=0.5))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("topk(delta=0)", r"greater than 0"),
        ("topk(delta=1.1)", r"less than or equal to 1"),
        ({"kind": "topk", "delta": float("nan")}, r"finite number"),
        ('topk(delta=0.1, wire="zip")', r"'values\+indices', 'bitmask' or 'ideal_fraction'"),
        ("qsgd(levels=0)", r"greater than or equal to 1"),
        ("qsgd(levels=1073741824)", r"less than 1073741824"),
        ("terngrad(clip=-1)", r"greater than 0"),
    ],
)
def test_a_wrong_compressor_is_refused(value: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        compressor(value)
    with pytest.raises(ValidationError, match=message):
        Held(compressor=value)
