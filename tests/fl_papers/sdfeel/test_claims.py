"""SD-FEEL's verdicts: on curves that obey or contradict the paper, and on formulas."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from fl_core.experiments.artifacts import find_artifact, find_artifacts, make_study
from fl_core.experiments.claims import judge
from fl_core.experiments.run import Result
from fl_core.experiments.study import Entry, Study
from fl_core.runtime import History
from fl_papers.sdfeel.claims import CLAIMS, accuracy_near, times
from fl_papers.sdfeel.experiment import ASYNC, CLOUD, SYNC, runs, value_at

RUNS = ["sdfeel-fig2a", "sdfeel-x7", "sdfeel-x8", "sdfeel-x9", "sdfeel-x10"]
JUDGED = (1, 2, 3, 4, 5, 6, 16, 17)


def verdicts(study: Study, *numbers: int) -> dict[str, str]:
    return {j.claim.id[-3:]: j.verdict for j in judge([f"SDFEEL-C{n:02d}" for n in numbers], study)}


def test_every_claim_is_carried_by_a_figure() -> None:
    carried = {claim for artifact in find_artifacts(["sdfeel-*"]) for claim in artifact.claims}
    assert [claim.id for claim in CLAIMS] == sorted(carried) == [f"SDFEEL-C{n:02d}" for n in range(1, 18)]


def test_claims_about_formulas_hold() -> None:
    study = make_study(find_artifact("sdfeel-x1"), "smoke")
    numbers = (7, 9, 10, 11, 12, 13, 14, 15)
    assert verdicts(study, *numbers) == {f"C{n:02d}": "reproduced" for n in numbers}


def made_up(entry: Entry, speed: float, best: float) -> Result:
    """A result whose loss falls from 2.3 towards 1 - `best` and whose accuracy rises to `best`, at a `speed`."""
    horizon = entry.spec.budget.seconds
    history = History()
    for seconds in np.linspace(0, horizon, 31):
        rest = np.exp(-10 * speed * seconds / horizon)
        row = {"seconds": seconds, "test_accuracy": best - (best - 0.1) * rest, "train_loss": 1 - best + 1.3 * rest}
        for name, column in history.evaluations.items():
            column.append(float(row.get(name, 0)))
    return Result(entry.spec, history, {"data": "real"})


def made_up_study(
    asynchronous: Callable[[float], float], synchronous: Callable[[float], float], uneven: float, late: float
) -> Study:
    """All grids at profile laptop: speeds by gap, factor of speed with fewer classes, Async.'s best in the end."""
    study = make_study(find_artifacts(RUNS), "laptop")
    results = {}
    for entry in study.entries:
        labels = entry.labels
        speed = (synchronous if labels["method"] in (SYNC, CLOUD) else asynchronous)(labels["gap"])
        speed *= 1 + 0.03 * labels["seed"]
        best = 0.9
        if labels["role"] == "non-IID":
            speed, best = speed * uneven, best * uneven
        if labels["role"] == "long":
            speed, best = 2.0, late if labels["method"] == ASYNC else best
        results[entry.key] = made_up(entry, speed, best - 0.002 * labels["seed"])
    return study.with_results(results)


def test_claims_come_out_as_curves_that_obey_them_say() -> None:
    study = made_up_study(lambda gap: 2 - gap / 100, lambda gap: 5 / gap, uneven=0.8, late=0.89)
    assert verdicts(study, *JUDGED) == {f"C{n:02d}": "reproduced" for n in JUDGED}


def test_claims_come_out_as_curves_that_contradict_them_say() -> None:
    study = made_up_study(lambda gap: 0.3 + gap / 50, lambda gap: 0.5 + gap / 10, uneven=1.1, late=0.97)
    assert verdicts(study, *JUDGED) == {f"C{n:02d}": "not reproduced" for n in JUDGED}


def test_one_seed_decides_nothing() -> None:
    whole = made_up_study(lambda gap: 2 - gap / 100, lambda gap: 5 / gap, uneven=0.8, late=0.89)
    one = make_study(find_artifacts(RUNS), "laptop", seeds=[0]).with_results(whole.results)
    assert set(verdicts(one, *JUDGED).values()) == {"inconclusive"}


def test_curves_are_read_at_measurements_without_interpolation() -> None:
    study = made_up_study(lambda gap: 1.0, lambda gap: 1.0, uneven=1, late=0.9)
    run = runs(study, ASYNC, 5.0)[0]
    table, end = run[1].history.evaluations, run[0].spec.budget.seconds
    assert value_at(run, "train_loss", 0.25) == table["train_loss"][7]  # 7.5 of 30
    assert value_at(run, "train_loss", 0.5) == table["train_loss"][15]
    assert value_at(run, "train_loss", 1.0) == table["train_loss"][30]
    assert accuracy_near(run, 0.26 * end) == table["test_accuracy"][8]
    assert [by_seed[0] for by_seed in times(study, 5.0, 0.25)] == [table["seconds"][7]] * 2


def test_a_loss_that_is_not_reached_counts_with_the_end_of_the_run() -> None:
    study = made_up_study(lambda gap: 0.1, lambda gap: 1.0, uneven=1, late=0.9)
    ours, theirs = times(study, 5.0, 0.5)
    end = runs(study, ASYNC, 5.0)[0][0].spec.budget.seconds
    assert set(ours.values()) == {end}
    assert theirs[0] == pytest.approx(end / 2)


def test_without_runs_every_claim_about_them_is_open() -> None:
    assert set(verdicts(make_study(find_artifacts(RUNS), "smoke"), 8, *JUDGED).values()) == {"inconclusive"}
