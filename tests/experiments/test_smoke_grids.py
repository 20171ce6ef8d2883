"""Every run of every figure at profile smoke can be begun: pages make only those that they check."""

from __future__ import annotations

import pytest

from fl_core.experiments.artifacts import artifacts, make_study
from fl_core.experiments.run import run
from fl_core.experiments.spec import RunSpec
from fl_core.plugins import papers


@pytest.mark.thorough
@pytest.mark.parametrize("paper", sorted(papers().values()))
def test_every_smoke_run_makes_a_version_and_is_measured(paper: str):
    chosen = [each for name, each in artifacts().items() if name.startswith(f"{paper}-")]
    wanted = {spec.hash: spec for each in chosen for spec in make_study(each, "smoke").specs}
    short: dict[str, RunSpec] = {}
    for spec in wanted.values():
        few = {"budget": {"updates": 1}, "evaluation.test_samples": 20, "evaluation.train_samples": 20}
        one = spec.changed(**few, **{"evaluation.every_updates": 1, "evaluation.at_seconds": []})
        short.setdefault(one.hash, one)
    assert short
    for spec in short.values():
        history = run(spec, executor="sequential").history
        assert history.ended == "budget"
        assert history.evaluations["version"][-1] >= 1
        assert 0 <= history.evaluations["test_accuracy"][-1] <= 1
