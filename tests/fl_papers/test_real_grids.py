"""The papers' headline comparisons are declared on real data at every profile, ready for ``fl-core work``."""

from __future__ import annotations

import pytest

from fl_core.datasets import kind_of, registry, stands_for
from fl_core.experiments.artifacts import find_artifact

HEADLINES = {
    "fedasync-fig2": ["cifar10"],
    "fedasmu-tab1": ["cifar10", "cifar100-jpeg90", "imdb-49996"],
    "fedasmu-tab2": ["cifar10", "cifar100-jpeg90", "imdb-49996"],
    "fedluck-tab1": ["cifar10", "speech-commands-3words"],
    "sdfeel-fig2a": ["cifar10"],
    "wkafl-tab2": ["cifar10"],
    "wkafl-fig6": ["cifar10", "mnist-writers"],
}


@pytest.mark.parametrize(("artifact", "dataset"), [(name, data) for name, sets in HEADLINES.items() for data in sets])
def test_a_headline_has_runs_on_the_real_set_at_every_profile(artifact: str, dataset: str):
    sizes = []
    for profile in ("smoke", "laptop", "paper"):
        entries = find_artifact(artifact).grid(profile, dataset)
        assert {entry.spec.dataset for entry in entries} == {dataset}
        sizes.append(len({entry.key for entry in entries}))
    assert 0 < sizes[0] <= sizes[-1]


def test_no_headline_is_meant_for_a_surrogate(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(registry, "is_present", lambda name: True)
    for name in {name for sets in HEADLINES.values() for name in sets}:
        assert kind_of(name) in ("real", "re-encoded", "partial")
        assert (stands_for(name) == name) == (kind_of(name) == "real")
