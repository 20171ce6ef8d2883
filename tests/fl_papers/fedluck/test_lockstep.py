"""The authors' own program under a virtual clock."""

from __future__ import annotations

import numpy as np
import pytest

from fl_core.datasets import IID, load_dataset
from fl_papers.fedluck import lockstep
from fl_papers.fedluck.experiment import DEVIATIONS, FedLuckExperiment


def test_all_thirty_plans_are_theirs():
    table = lockstep.plans()
    assert len(table) == 30
    assert (table["their k"] == table["our k"]).all()
    assert table["difference of δ"].max() <= 1e-15


@pytest.mark.parametrize(("name", "count"), [("fedluck", 349), ("fedper", 390)])
def test_every_aggregation_is_theirs(name: str, count: int):
    theirs, ours = lockstep.theirs(name), lockstep.ours(lockstep.CLOCKS[name][1])
    assert len(theirs.seconds) == count
    assert ours.seconds == pytest.approx(theirs.seconds, abs=1e-9)
    assert (ours.uploads == theirs.uploads).all()
    assert ours.staleness == theirs.staleness
    assert ours.mib == pytest.approx(theirs.mib, rel=1e-10)


def test_time_for_evaluation_gives_fedlucks_gigabytes_of_table_1_and_not_fedpers():
    table = lockstep.gigabytes().set_index("method")
    rounded = {name: np.floor(100 * table.loc[name, "0.3 s of it"]) / 100 for name in ("FedLuck", "FedPer")}
    printed = {name: table.loc[name, "printed GB"] for name in rounded}
    assert rounded["FedLuck"].to_numpy() == pytest.approx(printed["FedLuck"].to_numpy())
    assert rounded["FedPer"].to_numpy() != pytest.approx(printed["FedPer"].to_numpy())


def test_late_dispatch_makes_the_device_with_28_ms_of_slack_take_a_period_more():
    clocks = lockstep.theirs("fedluck"), lockstep.ours(lockstep.FEDLUCK, 0.3)
    prompt, late = ([uploads.count(5) for uploads in clock.staleness] for clock in clocks)
    assert (sum(prompt), sum(late)) == (106, 1)  # the first task begins at once


def test_as_released_every_deviation_is_in_the_specification():
    [entry] = FedLuckExperiment("laptop", "fashion-mnist", seeds=[0], mode="as_released").comparison(
        ["iid"], ["FedLuck"]
    )
    spec = entry.spec
    assert (spec.algorithm.weighting, spec.algorithm.handover_seconds) == ("samples", 0.3)
    assert (spec.preprocessing.invert, spec.evaluation.test_samples) == (True, 1000)
    assert isinstance(spec.partition, IID)
    entries = list(FedLuckExperiment("laptop", "fashion-mnist", seeds=[0]).deviations())
    for method in ("FedLuck", "FedPer"):
        assert [e.labels["deviation"] for e in entries if e.labels["method"] == method] == list(DEVIATIONS)
    released = FedLuckExperiment("laptop", "fashion-mnist", seeds=[0]).as_released("iid")
    assert {e.key for e in entries if e.labels["deviation"] == "as released"} < {e.key for e in released}


def test_inverted_pixels_are_those_of_the_program():
    """E19: v becomes (256 - v) mod 256, before the images are resized."""
    spec = next(
        FedLuckExperiment("laptop", "fashion-mnist", mode="as_released").comparison(["iid"], ["FedLuck"])
    ).spec
    data = load_dataset("fashion-mnist")
    plain = spec.preprocessing.model_copy(update={"invert": False, "resize": None})
    train, _ = plain.model_copy(update={"invert": True}).apply(data)
    before, _ = plain.apply(data)
    values = [(samples.slice(0, 100)[0] * 0.3081 + 0.1307).mul(255).round().numpy() for samples in (before, train)]
    assert (values[1] == (256 - values[0]) % 256).all()
