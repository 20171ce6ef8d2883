"""SD-FEEL's labels: on curves that obey or contradict the paper, on stored runs, and on formulas."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from made_up import measured

from fl_core.experiments.artifacts import find_artifacts, make_study
from fl_core.experiments.claims import judge
from fl_core.experiments.evidence import Effect
from fl_core.experiments.run import Result
from fl_core.experiments.study import Entry, Study
from fl_papers.sdfeel.experiment import ASYNC, BEGINNING, CLOUD, SOONER, SYNC, runs, value_at
from fl_papers.sdfeel.figures import times

RUNS = ["sdfeel-x13", "sdfeel-x7", "sdfeel-x8", "sdfeel-x9", "sdfeel-x10"]
JUDGED = ("C01", "C02", "C03", "C04", "C05", "C06", "C17")


def labels(study: Study, names: tuple[str, ...] = JUDGED) -> dict[str, str]:
    return {j.claim.id.partition("-")[2]: j.label for j in judge([f"SDFEEL-{name}" for name in names], study)}


def made_up(entry: Entry, speed: float, best: float, finer: int = 1) -> Result:
    """A result whose loss falls from 2.3 towards 1 - `best` and whose accuracy rises to `best`, at a `speed`."""
    end = entry.spec.budget.seconds
    early = entry.labels["role"] == "early"
    part = min(BEGINNING, SOONER / entry.labels["gap"]) if early else 1.0
    seconds = np.linspace(0, end, round(30 * part * (finer if early else 1)) + 1)
    rest = np.exp(-10 * speed * seconds / end * part)
    accuracy, loss = best - (best - 0.1) * rest, 1 - best + 1.3 * rest
    return measured(entry.spec, seconds=seconds, test_accuracy=accuracy, train_loss=loss)


def made_up_study(
    asynchronous: Callable[[float], float],
    synchronous: Callable[[float], float],
    uneven: float = 1,
    late: float = 0.9,
    finer: int = 1,
) -> Study:
    """All grids at profile laptop: speeds by gap, factor of speed with fewer classes, Async.'s best in the end."""
    study = make_study(find_artifacts(RUNS), "laptop", seeds=list(range(5)))
    results = {}
    for entry in study.entries:
        own = entry.labels
        speed = (synchronous if own["method"] in (SYNC, CLOUD) else asynchronous)(own["gap"])
        speed *= 1 + 0.03 * own["seed"]
        best = 0.9
        if own["role"] == "non-IID":
            speed, best = speed * uneven, best * uneven
        if own["role"] == "long":
            speed, best = 2.0, late if own["method"] == ASYNC else best
        results[entry.key] = made_up(entry, speed, best - 0.002 * own["seed"], finer)
    return study.with_results(results)


OBEYING = made_up_study(lambda gap: 2 - gap / 30, lambda gap: 5 / gap, uneven=0.8, late=0.89)


def test_claims_come_out_as_curves_say() -> None:
    assert labels(OBEYING) == dict.fromkeys(JUDGED, "reproduced")
    defying = made_up_study(lambda gap: 0.3 + gap / 50, lambda gap: 0.5 + gap / 10, uneven=1.1, late=0.97)
    assert labels(defying) == dict.fromkeys(JUDGED, "contradicted")


def test_equal_losses_at_every_gap_are_no_difference_and_not_a_slowdown() -> None:
    """A tolerance of 2 % used to make the same curve at every H "hinder convergence": C04 was reproduced."""
    study = made_up_study(lambda gap: 1.0 + 1e-4 * gap, lambda gap: 1.0 + 1e-4 * gap)
    assert labels(study, ("C03", "C04")) == {"C03": "no difference", "C04": "no difference"}


def test_values_and_first_passages_are_interpolated() -> None:
    """They used to be those of a measurement: on its grid of 30 all seeds had one time, and intervals no width."""
    study = made_up_study(lambda gap: 1.0, lambda gap: 1.0)
    run = runs(study, ASYNC, 5.0)[0]
    losses, end = run[1].history.evaluations["train_loss"], run[0].spec.budget.seconds
    assert value_at(run, "train_loss", 0.25) == pytest.approx((losses[7] + losses[8]) / 2)
    assert value_at(run, "train_loss", 0.5) == pytest.approx(losses[15])
    ours, theirs = times(study, 5.0, 0.25)
    assert ours == pytest.approx(theirs)
    assert ours[0] / end == pytest.approx(0.25, abs=5e-3)  # a measurement is 0.033
    assert len(set(times(made_up_study(lambda gap: 3.0, lambda gap: 1.0), 5.0, 0.5)[0].values())) == 5


def test_a_loss_that_is_reached_before_a_curves_second_point_has_its_own_time() -> None:
    """At H = 30 the running mean and a straight line from the start used to make it a third of what it was."""
    study = made_up_study(lambda gap: 40.0, lambda gap: 0.2, finer=100)
    run, theirs = (runs(study, method, 30.0)[0] for method in (ASYNC, SYNC))
    goal, end = value_at(theirs, "train_loss", 0.25), run[0].spec.budget.seconds
    true = np.log(1.3 / (goal - 0.1)) / 400 * end
    assert true < end / 30 / 5
    assert times(study, 30.0, 0.25)[0][0] == pytest.approx(true, rel=0.1)


def test_a_loss_that_is_not_reached_is_a_lower_bound() -> None:
    """It used to count as the end of the run."""
    study = made_up_study(lambda gap: 0.1, lambda gap: 1.0)
    ours, theirs = times(study, 5.0, 0.5)
    assert ours.at_least == set(ours)
    assert not theirs.at_least
    [judgement] = judge(["SDFEEL-C01"], study)
    assert judgement.label == "contradicted"
    assert all(np.isinf(effect.interval[1]) for effect in judgement.effects if "50%" in effect.name)


def test_a_method_that_has_not_learned_is_shown_and_not_compared() -> None:
    """Being ahead of guessing used to count as faster."""
    study = made_up_study(lambda gap: 1.0, lambda gap: 0.0 if gap == 30 else 0.5)
    [judgement] = judge(["SDFEEL-C02"], study)
    parts = {part.name: part for part in judgement.parts if isinstance(part, Effect)}
    assert parts["H = 30"].excluded == "Sync. SD-FEEL is not trained"
    assert {part.name for part in judgement.effects} == {"H = 5", "H = 10"}
