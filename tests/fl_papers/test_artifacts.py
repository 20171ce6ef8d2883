"""What holds of the artifacts of every paper: they carry all its claims, and without runs say nothing.

Which artifacts there are, and what their grids hold, is in tests/frozen.
"""

from __future__ import annotations

from typing import Any

import pytest

from fl_core.errors import RunError, SpecError
from fl_core.experiments.artifacts import find_artifact, find_artifacts, make_study
from fl_core.experiments.claims import claims, judge
from fl_core.plugins import papers
from fl_core.report.figures import draw

WITHOUT_FIGURE = {"fedasync": {f"FEDASYNC-{n}" for n in ("C19", "C20", "C24", "C25", "C27", "C27c", "E21")}}
"""Claims of a paper's text that its formulas decide."""


@pytest.mark.parametrize("paper", sorted(papers().values()))
def test_every_claim_of_a_paper_is_carried_by_its_artifacts(paper: str):
    carried = {claim for artifact in find_artifacts([f"{paper}-*"]) for claim in artifact.claims}
    known = {name for name in claims() if name.startswith(f"{paper.upper()}-")}
    assert known - carried == WITHOUT_FIGURE.get(paper, set())
    assert carried <= known


OWN_RUNS = "WKAFL-C32"
"""The one claim about runs that makes them itself."""


@pytest.mark.parametrize("paper", sorted(papers().values()))
def test_without_runs_nothing_is_drawn_and_no_claim_about_them_is_decided(paper: str):
    for artifact in find_artifacts([f"{paper}-*"]):
        study = make_study(artifact, "smoke")
        names = [name for name in artifact.claims if claims()[name].kind == "run" and name != OWN_RUNS]
        assert {judgement.label for judgement in judge(names, study)} <= {"undecided"}
        if study.entries:
            with pytest.raises(RunError, match="none of its runs"):
                draw(artifact, study)


WRONG: dict[str, list[tuple[dict[str, Any], str]]] = {
    "fedasync-fig2": [
        ({"alpha": [0.3]}, "unknown override 'alpha'; did you mean 'alphas'"),
        ({"alphas": [1.5]}, "alphas.*1.5"),
        ({"alphas": []}, "alphas"),
        ({"max_staleness": [16, 4]}, "two ascending numbers"),
        ({"max_staleness": [4]}, "max_staleness"),
        ({"rho": 50.0}, "rho.*50"),
        ({"seeds": []}, "non-empty"),
        ({"seeds": [1, 1]}, "without repetitions"),
        ({"dataset": "fashion"}, "unknown data set 'fashion'; did you mean 'fashion-mnist'"),
        ({"profile": "smok"}, "unknown profile 'smok'; did you mean 'smoke'"),
    ],
    "fedasync-fig8": [({"dataset": "imdb"}, "unknown data set of this experiment 'imdb'")],
    "fedasync-tab2": [({"alpha": 0.5}, "no parameters, so not 'alpha'")],
    "fedasync-x2": [({"alhpas": (0.5,)}, "'alhpas'; did you mean 'alphas'")],
    "fedasmu-tab2": [
        ({"lr": 1000.0}, "lr.*1000"),
        ({"uploads": 15}, "uploads.*15"),
        ({"columns": ["lenet"]}, "no column 'lenet'"),
        ({"ticks": "never"}, "ticks.*never"),
    ],
    "fedluck-fig2": [
        ({"step": 3}, "unknown override 'step'; did you mean 'steps'"),
        ({"delta": 0.0}, "delta.*0"),
        ({"solver": "newton"}, "solver.*newton"),
        ({"heat_steps": [20, 10]}, "must ascend"),
    ],
    "sdfeel-fig2a": [
        ({"gap": 5}, "unknown override 'gap'; did you mean 'gaps'"),
        ({"gaps": (0.5,)}, "gaps"),
        ({"gaps": (10, 5)}, r"\[10.0, 5.0\] must ascend"),
    ],
    "wkafl-tab2": [
        ({"dataset": "cifar100"}, "unknown data set of this experiment 'cifar100'; did you mean 'cifar10'"),
        ({"snapshot": "copy"}, "unknown override 'snapshot'; did you mean 'snapshots'"),
        ({"labels": (5, 1)}, r"\[5, 1\] must ascend"),
    ],
}


@pytest.mark.parametrize(
    ("artifact", "wrong", "said"), [(name, *row) for name, rows in WRONG.items() for row in rows]
)
def test_wrong_overrides_are_one_clear_line(artifact: str, wrong: dict[str, Any], said: str):
    others = dict(wrong)
    with pytest.raises(SpecError, match=said) as caught:
        make_study(find_artifact(artifact), others.pop("profile", "smoke"), **others)
    assert "\n" not in str(caught.value)
