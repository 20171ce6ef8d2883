"""A model in a specification is a text, and each model has one text."""

from __future__ import annotations

from typing import Annotated

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field
from torch import nn

from fl_core.errors import SpecError
from fl_core.models import MODELS, build_network, canonical, num_parameters, options


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("resnet18", "resnet18"),
        ("resnet18()", "resnet18"),
        ("resnet18(width=1)", "resnet18"),
        (" resnet18( width = 0.250 ) ", "resnet18(width=0.25)"),
        ("textcnn(width=0.5, vocabulary=5000)", "textcnn(vocabulary=5000, width=0.5)"),
        ("textcnn(vocabulary=20000, width=5e-1)", "textcnn(width=0.5)"),
    ],
)
def test_there_is_one_way_to_write_a_model(text, expected):
    assert canonical(text) == canonical(expected) == expected


@given(st.sampled_from(sorted(MODELS)), st.floats(0, 1, exclude_min=True), st.integers(2, 10**9))
def test_the_canonical_text_means_the_same_and_is_its_own(name, width, vocabulary):
    chosen = {"width": width, "vocabulary": vocabulary}
    pairs = [f"{key}={chosen[key]!r}" for key in reversed(options(name).model_fields)]
    text = canonical(f"{name}({', '.join(pairs)})")
    assert canonical(text) == text
    for key, default in (("width", 1), ("vocabulary", 20_000)):
        assert (f"{key}={chosen[key]!r}" in text) == (key in options(name).model_fields and chosen[key] != default)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lenet", r"unknown model 'lenet'; did you mean 'lenet5'\? \(valid: alexnet, .*, wkafl_cnn\)"),
        ("resnet", r"unknown model 'resnet'; did you mean 'resnet\d\d'\?"),
        ("resnet18(with=0.5)", r"unknown resnet18 option 'with'; did you mean 'width'\? \(valid: width\)"),
        ("lenet5(width=0.5)", "model 'lenet5' has no options, so not 'width'"),
        ("resnet18(width=0)", "option 'width' of model 'resnet18': input should be greater than 0, not 0"),
        ("resnet18(width=2)", "input should be less than or equal to 1, not 2"),
        ("resnet18(width=NaN)", "input should be a finite number, not nan"),
        ('resnet18(width="wide")', "input should be a valid number, not 'wide'"),
        ("textcnn(vocabulary=1)", "'vocabulary' .* input should be greater than or equal to 2, not 1"),
        ("textcnn(vocabulary=99.5)", "input should be a valid integer, not 99.5"),
        ("resnet18(width=half)", "input should be a valid number, not 'half'"),
        ("resnet18(0.5)", r"cannot read model 'resnet18\(0.5\)': .*; write for example .*width=0.25"),
        ("resnet18 0.5", "cannot read model"),
        ("", "cannot read model ''"),
    ],
)
def test_what_is_wrong_is_named_with_what_would_be_valid(text, message):
    for read in (canonical, lambda text: build_network(text, (3, 32, 32), 10)):
        with pytest.raises(SpecError, match=message):
            read(text)


def test_a_reader_registers_a_network_with_options_of_their_own(monkeypatch):
    class Deep(nn.Sequential):
        def __init__(self, shape, classes, depth: Annotated[int, Field(ge=1)] = 2, bias=True):
            super().__init__(nn.Flatten(), *(nn.Linear(4, 4, bias) for _ in range(depth)), nn.Linear(4, classes))

    monkeypatch.setitem(MODELS, "deep", Deep)
    assert len(build_network("deep(depth=5)", (1, 2, 2), 3)) == 7
    assert canonical("deep(depth=3, bias=false)") == "deep(bias=false, depth=3)"
    assert build_network("deep(bias=false)", (1, 2, 2), 3)[1].bias is None
    with pytest.raises(SpecError, match="'depth' of model 'deep': input should be greater than or equal to 1, not 0"):
        canonical("deep(depth=0)")
    assert num_parameters("deep", (1, 2, 2), 3) == 2 * 20 + 15
    monkeypatch.setitem(MODELS, "deep", lambda shape, classes: nn.Linear(4, classes))
    assert num_parameters("deep", (1, 2, 2), 3) == 15


def test_an_option_without_a_default_must_be_given(monkeypatch):
    class Wide(nn.Sequential):
        def __init__(self, shape, classes, units):
            super().__init__(nn.Flatten(), nn.Linear(4, units), nn.Linear(units, classes))

    monkeypatch.setitem(MODELS, "wide", Wide)
    assert canonical("wide(units=7)") == "wide(units=7)"
    with pytest.raises(SpecError, match="option 'units' of model 'wide': field required$"):
        build_network("wide", (1, 2, 2), 3)


def test_every_network_tells_in_its_first_line_what_it_is_and_every_option_what_it_does():
    for name, make in MODELS.items():
        assert make.__doc__.partition("\n")[0].endswith(".")
        assert all(field.description for field in options(name).model_fields.values())
