"""Staleness functions: known values, properties, and how a run specification names them."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, ValidationError

from fl_core.formulas import staleness as s
from fl_core.formulas.staleness import (
    STALENESS_WEIGHTS,
    Constant,
    Exponential,
    Hinge,
    Linear,
    Polynomial,
    StalenessWeight,
    staleness_weight,
)

WEIGHTS = [Constant(), Linear(a=0.5), Polynomial(), Exponential(a=0.3), Hinge(a=10, b=4), Hinge(a=4, b=4)]

# Oracle O1: u, then Linear .5, Polynomial .5, Exponential .3, Hinge (10, 4), Hinge (4, 4)
ORACLE = [
    (0, 1, 1, 1, 1, 1),
    (1, 0.6666666666666666, 0.7071067811865476, 0.7408182206817179, 1, 1),
    (4, 0.3333333333333333, 0.4472135954999579, 0.30119421191220214, 1, 1),
    (5, 0.2857142857142857, 0.408248290463863, 0.22313016014842982, 0.09090909090909091, 0.2),
    (16, 0.1111111111111111, 0.24253562503633297, 0.00822974704902003, 0.008264462809917356, 0.02040816326530612),
]

staleness = st.integers(0, 1000) | st.floats(0, 1000)
parameter = st.floats(0.01, 50)
grace = st.floats(0, 100)


@st.composite
def any_weight(draw: st.DrawFn) -> Constant | Linear | Polynomial | Exponential | Hinge:
    kind = draw(st.sampled_from(list(STALENESS_WEIGHTS)))
    fields = {"a": draw(parameter)} if kind != "constant" else {}
    if kind == "hinge":
        fields["b"] = draw(grace)
    return staleness_weight({"kind": kind, **fields})


@pytest.mark.parametrize("row", ORACLE)
def test_o1_values(row: tuple[float, ...]) -> None:
    u, *expected = row
    assert [weight(u) for weight in WEIGHTS[1:]] == pytest.approx(expected, rel=1e-10)
    assert WEIGHTS[0](u) == 1


@pytest.mark.parametrize("weight", WEIGHTS, ids=str)
def test_numbers_arrays_and_tensors_agree(weight: StalenessWeight) -> None:
    values = [weight(u) for u in range(20)]
    assert all(type(value) is float for value in values)
    for array in (np.arange(20), np.arange(20.0)):
        assert weight(array) == pytest.approx(values, rel=1e-14)
    for tensor in (torch.arange(20), torch.arange(20.0), torch.arange(20, dtype=torch.float64)):
        out = weight(tensor)
        assert out.is_floating_point()
        assert out.tolist() == pytest.approx(values, rel=1e-6)
    assert weight(np.int64(5)) == values[5]
    assert float(weight(torch.tensor(5, dtype=torch.float64))) == pytest.approx(values[5], rel=1e-14)


@given(any_weight(), staleness, staleness)
def test_a_weight_starts_at_one_stays_in_range_and_never_increases(weight, u, v) -> None:
    low, high = sorted((u, v))
    assert weight(0) == 1
    assert 0 <= weight(high) <= weight(low) <= 1
    assert weight(min(u, 10)) > 0  # exp(-a u) reaches the smallest float only far out


@given(parameter, grace)
def test_hinge_is_one_up_to_and_including_b_and_continuous_there(a, b) -> None:
    assert s.hinge(b, a, b) == 1
    assert s.hinge(b / 2, a, b) == 1
    just_late = np.nextafter(b, np.inf)
    assert s.hinge(just_late, a, b) == pytest.approx(1, abs=1e-9)
    assert s.hinge(b + 1, a, b) == pytest.approx(1 / (a + 1), rel=1e-9)


def test_large_integer_staleness_does_not_overflow() -> None:
    u = np.array([10**7])
    assert s.polynomial(u, 5) == pytest.approx([(1e7 + 1) ** -5.0])
    assert s.polynomial(torch.tensor([10**7]), 3).item() == pytest.approx(1e-21, rel=1e-5)


@pytest.mark.parametrize("u", [-1, -0.5, float("nan"), np.array([0, -1]), torch.tensor([1.0, -2.0])])
@pytest.mark.parametrize("weight", WEIGHTS, ids=str)
def test_a_negative_staleness_is_refused(weight: StalenessWeight, u) -> None:
    with pytest.raises(ValueError, match=r"u = .*must be >= 0"):
        weight(u)


@pytest.mark.parametrize("bad", [0, -1.0, float("inf"), float("nan")])
def test_a_parameter_out_of_range_is_refused(bad: float) -> None:
    for call in (s.linear, s.polynomial, s.exponential, lambda u, a: s.hinge(u, a, 4)):
        with pytest.raises(ValueError, match=rf"a = {bad!r}; a must be > 0"):
            call(3, bad)
    with pytest.raises(ValueError, match=r"b = -2; b must be >= 0"):
        s.hinge(3, 1, -2)
    for build in (Linear, Polynomial, Exponential, Hinge):
        with pytest.raises(ValidationError, match=r"greater than 0|finite number"):
            build(a=bad)
    with pytest.raises(ValidationError, match="greater than or equal to 0"):
        Hinge(b=-2)


# How a run specification names a weight


class Field(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    weight: StalenessWeight = Polynomial(a=0.5)


@given(any_weight())
def test_a_weight_survives_json_and_its_compact_string(weight) -> None:
    held = Field(weight=weight)
    assert Field.model_validate_json(held.model_dump_json()) == held
    assert Field.model_validate(json.loads(json.dumps({"weight": str(weight)}))) == held
    assert hash(staleness_weight(str(weight))) == hash(weight)


@pytest.mark.parametrize(
    ("text", "weight"),
    [
        ("constant", Constant()),
        ("polynomial", Polynomial(a=0.5)),
        ("polynomial()", Polynomial(a=0.5)),
        ("polynomial(a=0.25)", Polynomial(a=0.25)),
        (" hinge ( a = 10 , b=4 ) ", Hinge(a=10, b=4)),
        ("hinge(b=2)", Hinge(a=10, b=2)),
        ("linear(a=1e-3)", Linear(a=0.001)),
    ],
)
def test_compact_strings(text: str, weight: StalenessWeight) -> None:
    assert Field(weight=text).weight == weight


def test_the_compact_string_is_short() -> None:
    assert [str(weight) for weight in WEIGHTS] == [
        "constant",
        "linear(a=0.5)",
        "polynomial(a=0.5)",
        "exponential(a=0.3)",
        "hinge(a=10, b=4)",
        "hinge(a=4, b=4)",
    ]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("polinomial", r"'polinomial' is not valid; did you mean 'polynomial'\? \(valid: constant, exponential, "),
        ({"kind": "step"}, r"'step' is not valid \(valid: constant, exponential, hinge, linear, polynomial\)"),
        ({"a": 1}, r"kind is missing \(valid"),
        ("hinge(a=10, c=4)", r"'hinge' has no parameter 'c' \(valid: a, b\)"),
        ("constant(a=1)", r"'constant' has no parameter 'a' \(valid: none\)"),
        ("polynomial(alpha=1)", r"'polynomial' has no parameter 'alpha'.*valid: a"),
        ("linear", r"linear.a\s+Field required"),
        ("linear(0.5)", r"cannot read 'linear\(0.5\)': '0.5' is not name=value"),
        ("linear(a=x)", r"valid number, .*'x'"),
        ("linear(a=1, a=2)", r"'a' appears twice"),
        ("hinge(a=10", r"cannot read 'hinge\(a=10'"),
        ("hinge(a=-1)", r"greater than 0"),
        (3, r"valid dictionary"),
    ],
)
def test_a_wrong_weight_is_refused_with_the_valid_choices(value: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        staleness_weight(value)
    with pytest.raises(ValidationError, match=message):
        Field(weight=value)
