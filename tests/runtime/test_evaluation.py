"""When and on what the global model is measured, and that a run may end when it is good enough."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fl_core.experiments.spec import RunSpec
from fl_core.runtime import History

pytestmark = pytest.mark.usefixtures("few_images")


def history(**changes: Any) -> History:
    """A small run: four devices that finish a task every second, an update each."""
    spec = RunSpec(
        algorithm={"name": "fedasync", "concurrency": 4},
        model="linear",
        world={"devices": 4, "compute": {"kind": "constant", "seconds_per_step": 1.0}},
        training={"steps": 1, "batch_size": 20, "lr": 0.1},
        **{"budget": {"seconds": 10.0}, "evaluation": {"every_updates": None, "every_seconds": 3.0}, **changes},
    )
    simulation = spec.simulation()
    simulation.run("sequential")
    return simulation.history


def test_periodic_evaluations_may_look_at_a_part_of_the_test_images() -> None:
    whole = history().evaluations
    part = history(evaluation={"every_updates": None, "every_seconds": 3.0, "test_samples": 100}).evaluations
    assert part["seconds"] == whole["seconds"] == [0, 3, 6, 9, 10]
    assert (part["test_accuracy"][0], part["test_accuracy"][-1]) == (
        whole["test_accuracy"][0],
        whole["test_accuracy"][-1],
    )
    assert part["test_accuracy"][1:-1] != whole["test_accuracy"][1:-1]
    assert all(round(100 * accuracy, 9).is_integer() for accuracy in part["test_accuracy"][1:-1])


def test_the_part_is_spread_evenly_over_the_test_set() -> None:
    spec = RunSpec(algorithm="fedasync", model="linear", world={"devices": 10})
    task = spec.task()
    model = task.initial_model(0)
    space = task.workspace()
    chosen = torch.arange(0, 1_000, 10)
    space.load(model)
    inputs, labels = task.test.select(chosen)
    right = float((space.network(inputs).argmax(1) == labels).float().mean())
    assert space.evaluate(model, 0, 100)["test_accuracy"] == pytest.approx(right)
    assert space.evaluate(model, 0, 20_000) == pytest.approx(space.evaluate(model, 0), nan_ok=True)


def test_a_time_may_be_measured_on_all_test_images_in_between() -> None:
    evaluation = {"every_updates": 2, "test_samples": 100, "at_seconds": [2.5, 6.0]}
    table = history(evaluation=evaluation).evaluations
    whole = history(evaluation={"every_updates": 1}).evaluations
    versions = dict(zip(whole["version"], whole["test_accuracy"], strict=True))
    at = [row for row, seconds in enumerate(table["seconds"]) if seconds in (2.5, 6.0)]
    assert table["seconds"][at[0]] == 2.5
    assert table["test_accuracy"][at[0]] == versions[table["version"][at[0]]]
    assert versions[table["version"][at[-1]]] in [table["test_accuracy"][row] for row in at[1:]]
    assert table["test_accuracy"][-1] == versions[table["version"][-1]]


def test_a_dense_early_grid_changes_nothing_but_what_is_measured() -> None:
    sparse = {"every_updates": None, "every_seconds": 3.0}
    plain, dense = history(), history(evaluation=sparse | {"at_seconds": np.geomspace(0.05, 8.0, 40).tolist()})
    assert torch.equal(plain.model, dense.model)
    assert plain.updates == dense.updates
    kept = [
        row for row, seconds in enumerate(dense.evaluations["seconds"]) if seconds in plain.evaluations["seconds"]
    ]
    assert len(kept) + 40 == len(dense.evaluations["seconds"])
    shared = {name: [column[row] for row in kept] for name, column in dense.evaluations.items()}
    assert repr(shared) == repr(plain.evaluations)  # NaN equals NaN
    record = RunSpec(algorithm="fedasync", evaluation={"at_seconds": [0.5]})
    assert record.hash != RunSpec(algorithm="fedasync").hash
    assert record.to_dict()["evaluation"]["at_seconds"] == [0.5]


@pytest.mark.parametrize("evaluation", [{"every_updates": 4}, {"every_updates": None, "every_seconds": 1.0}])
def test_a_run_ends_at_the_first_evaluation_that_is_good_enough(evaluation: dict[str, Any]) -> None:
    long = history(budget={"seconds": 40.0}, evaluation=evaluation).evaluations
    target = max(long["test_accuracy"][:6])
    first = next(row for row, accuracy in enumerate(long["test_accuracy"]) if row and accuracy >= target)
    short = history(budget={"seconds": 40.0, "accuracy": target}, evaluation=evaluation)
    assert short.ended == "budget"
    assert short.evaluations["test_accuracy"] == long["test_accuracy"][: first + 1]
    never = history(budget={"seconds": 5.0, "accuracy": 1.0}, evaluation=evaluation).evaluations
    assert never["seconds"][-1] == 5.0
