"""The grids behind WKAFL's figures and tables: what is not in tests/frozen, and that each method runs."""

from __future__ import annotations

import pytest

from fl_core.experiments.grid import work
from fl_papers.wkafl.experiment import WKAFLExperiment, name_of

pytestmark = pytest.mark.usefixtures("few_images")

comparison, ablations, motivation, byzantine = (
    WKAFLExperiment.made(part)
    for part in (
        WKAFLExperiment.comparison, WKAFLExperiment.ablations, WKAFLExperiment.motivation, WKAFLExperiment.byzantine,
    )
)  # fmt: skip


def test_a_small_share_of_byzantine_uploads_is_not_none():
    assert name_of({"role": "byzantine", "byzantine": 0.005}) == "0.5% Byzantine uploads"


def test_emnists_digits_are_set_up_as_fashion_mnist_is():
    """Of their grids tests/frozen knows nothing."""
    for dataset in ("emnist-mnist", "emnist-mnist-surrogate"):
        assert WKAFLExperiment.setup_of(dataset) is WKAFLExperiment.SETUPS["fashion-mnist"]


def test_the_size_of_a_run_counts_its_gradients():
    [entry] = motivation("laptop", "fashion-mnist", [0])
    assert work(entry.spec) == pytest.approx(1500 * 10 * 4 + 62 * 10_000 / 3)


@pytest.mark.parametrize("grid", [comparison, ablations, motivation, byzantine])
def test_a_smoke_run_of_every_method_ends_in_finite_numbers(grid):
    entries = {entry.labels["method"]: entry.spec for entry in grid("smoke", "fashion-mnist", [0], model="linear")}
    for spec in entries.values():
        history = spec.changed(**{"budget.updates": 5, "evaluation.every_updates": None}).simulation().run()
        assert history.evaluations["version"][-1] > 0
        assert 0 <= history.evaluations["test_accuracy"][-1] <= 1
        assert all(0 <= weight <= 1 for weight in history.updates["weight"])
