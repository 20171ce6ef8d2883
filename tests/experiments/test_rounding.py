"""Luck by rounding."""

from __future__ import annotations

import pytest
import torch

from fl_core.algorithms import KAsync
from fl_core.experiments import rounding
from fl_core.experiments.run import run
from fl_core.experiments.spec import RunSpec
from fl_core.experiments.study import Entry, Study
from fl_core.runtime import Budget, Evaluation, LocalTraining
from fl_core.world import ExponentialCompute, World


def entry(seed: int) -> Entry:
    spec = RunSpec(
        dataset="fashion-mnist", model="linear", partition="iid(samples_per_device=20)", seed=seed,
        algorithm=KAsync(num_aggregated=2, lr=0.05), world=World(devices=5, compute=ExponentialCompute()),
        training=LocalTraining(batch_size=4), budget=Budget(updates=24),
        evaluation=Evaluation(every_updates=2, test_samples=200),
    )  # fmt: skip
    return Entry(spec, {"method": "K-async", "seed": seed})


@pytest.fixture(scope="module")
def study() -> Study:
    entries = tuple(rounding.perturbed([entry(0), entry(1)], sizes=(1e-7, 1e-3)))
    return Study("smoke", "fashion-mnist", entries, {each.key: run(each.spec) for each in entries})


def test_only_a_perturbed_run_has_another_name():
    own, small, large = rounding.perturbed([entry(0)])
    assert own.key == entry(0).key
    assert len({own.key, small.key, large.key}) == 3


def test_a_perturbation_is_a_part_of_every_weight_and_drawn_once_a_seed():
    own, small, large = (each.spec for each in rounding.perturbed([entry(0)], sizes=(1e-4, 2e-4)))
    start, near, far = (_initial(spec).double() for spec in (own, small, large))
    assert torch.equal(_initial(own), own.task().initial_model(0))
    assert 0.8e-4 < float((near - start).norm() / start.norm()) < 1.2e-4
    assert torch.allclose(far - start, 2 * (near - start), atol=1e-7)


def test_pairs_compare_a_run_with_its_own(study: Study):
    table = rounding.pairs(study)
    assert sorted(table.groupby(["seed", "perturbation"]).groups) == [(0, 1e-7), (0, 1e-3), (1, 1e-7), (1, 1e-3)]
    assert table["part"].max() == 1
    by_size = table.groupby("perturbation")["loss"].max()
    assert 10 * by_size[1e-7] < by_size[1e-3] < 1
    frame = rounding.parting(study)
    assert set(frame["n"]) == {4}
    assert frame["x"].max() == 0


def test_distances_are_of_every_update_and_of_the_size_of_their_cause():
    spec = entry(0).spec
    small, large = (rounding.distances(spec, size) for size in (1e-7, 1e-3))
    assert list(small["x"]) == list(range(1, 25))
    assert (100 * small["distance"] < large["distance"]).all()
    assert large["distance"].max() < 1


def test_what_is_moved_is_told_beside_the_spread_over_seeds(study: Study):
    [row] = rounding.moved(study).to_dict("records")
    assert (row["method"], row["perturbed runs"], row["seeds"]) == ("K-async", 4, 2)
    assert 0 <= row["moved by, mean"] <= row["moved by, most"] <= 1
    assert rounding.moved(study.with_results({})).empty


def _initial(spec: RunSpec) -> torch.Tensor:
    return spec.simulation()._initial_model()
