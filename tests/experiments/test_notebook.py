"""Parameters of a chapter are checked before anything runs."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from fl_core.errors import SpecError
from fl_core.experiments.experiment import PROFILES, Interval, check_parameters

RULES = {
    "PROFILE": PROFILES,
    "ALPHA": Interval(0, 1),
    "SEEDS": [Interval(0, 99, integer=True)],
    "SEED": Interval(0, 2**31, integer=True),
    "NAME": str,
}
GOOD = {"PROFILE": "smoke", "ALPHA": 0.6, "SEEDS": [0, 1], "SEED": 0, "NAME": "x"}


def test_valid_parameters_and_other_names_pass():
    check_parameters({**GOOD, "UPDATES": 7, "helper": 1, "PROFILES": PROFILES}, **RULES)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"PROFILE": "smok"}, r"'smok' is not valid: it should be one of 'smoke', 'laptop', 'paper'; did you mean"),
        ({"ALPHA": 2}, r"parameter ALPHA = 2 is not valid: it should be a number in \[0, 1\]"),
        ({"ALPHA": "0.5"}, r"parameter ALPHA = '0.5' is not valid"),
        ({"ALPHA": True}, r"parameter ALPHA = True is not valid"),
        ({"SEEDS": []}, r"SEEDS = \[\] is not valid: it should be a list, each an integer in \[0, 99\]"),
        ({"SEEDS": [0.5]}, r"SEEDS = \[0.5\] is not valid"),
        ({"SEED": 7.0}, r"SEED = 7.0 is not valid: it should be an integer in \[0, 2147483648\]"),
        ({"SEEDS": "01"}, r"SEEDS = '01' is not valid"),
        ({"SEEDS": [math.nan]}, r"SEEDS = \[nan\] is not valid"),
        ({"SEEDS": [math.inf]}, r"SEEDS = \[inf\] is not valid"),
        ({"PROFILE": ["smoke"]}, r"PROFILE = \['smoke'\] is not valid"),
        ({"NAME": 3}, r"NAME = 3 is not valid: it should be a value of type str"),
        ({"PROFLE": "laptop"}, r"unknown parameter 'PROFLE'; did you mean 'PROFILE'\? \(valid: PROFILE, ALPHA"),
        ({"alpha": 0.3}, r"unknown parameter 'alpha'; did you mean 'ALPHA'\? \(valid: PROFILE, ALPHA"),
    ],
)  # fmt: skip
def test_a_wrong_parameter_is_one_sentence(change, message):
    with pytest.raises(SpecError, match=message) as caught:
        check_parameters({**GOOD, **change}, **RULES)
    assert "\n" not in str(caught.value)


def test_a_missing_parameter_is_named():
    with pytest.raises(SpecError, match="parameter PROFILE is missing"):
        check_parameters({}, **RULES)


NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").rglob("*.ipynb"))
CHAPTERS = {
    path: cells
    for path in NOTEBOOKS
    for cells in [[cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]]
    if any(line.startswith("check_parameters(") for cell in cells for line in cell["source"])
}


def test_every_chapter_with_parameters_checks_them():
    """The lab took any SEED, and showed what NumPy says of it as three errors of whoever did the tasks."""
    with_parameters = [path for path in NOTEBOOKS if '"parameters"' in path.read_text()]
    assert len(with_parameters) > 15
    assert [path for path in with_parameters if "globals()," not in path.read_text()] == []


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_parameter_of_a_chapter_is_checked(path: Path):
    """A number for the list of devices ended one of them with Python's words about ``len``."""
    names: dict[str, Any] = {}
    for cell in CHAPTERS[path]:
        text = "".join(cell["source"])
        if "parameters" in cell["metadata"].get("tags", ()):
            parameters: dict[str, Any] = {}
            exec(text, {}, parameters)
            names |= parameters
        elif "check_parameters(" in text and "import" not in text:
            break
        else:
            exec(text, names)
    for parameter in parameters:
        with pytest.raises(SpecError, match=parameter) as caught:
            exec(text, {**names, parameter: 10**30})
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("seconds", [[2.0] * 4, [1 + 0.2 * number for number in range(8)]], ids=["alike", "eight"])
def test_what_the_virtual_clock_asserts_holds_for_other_devices(seconds: list[float]):
    """Devices that are alike, or eight of them, ended the page with an empty AssertionError."""
    [cells] = [cells for path, cells in CHAPTERS.items() if path.stem == "virtual_clock"]
    space: dict[str, Any] = {"__name__": "clock"}
    for cell in cells:
        text = "".join(cell["source"])
        if "figure" not in cell["metadata"].get("mystnb", ()) and "sampled" not in text:
            exec(re.sub(r"^SECONDS_PER_TASK = .*", f"SECONDS_PER_TASK = {seconds}", text, flags=re.MULTILINE), space)
