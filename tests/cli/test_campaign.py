"""`work`, `verify` and `results merge`: campaigns that run unattended, and records that prove themselves."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from commands import call, invoke
from typer.testing import Result

from fl_core.experiments.store import Store

pytestmark = pytest.mark.usefixtures("few_images")


def failed(*words: str) -> Result:
    done = invoke(*words)
    assert done.exit_code != 0
    return done


@pytest.fixture
def store(small_study: None, results: Path) -> Store:
    return Store(results, results)


def test_work_computes_what_is_missing_and_verify_replays_it(store: Store):
    text = call("work", "fedasync-fig5", "--profile", "smoke")
    assert "5 runs are missing" in text
    assert "5 runs finished, 0 left" in text
    assert call("work", "fedasync-fig5", "--profile", "smoke") == "0 runs are missing: nothing to do\n"
    hashes = [result.spec.hash for result in store]
    assert len(hashes) == 5
    assert "all 2 are the same, to the last bit" in call("verify", "--sample", "2")
    assert f"{hashes[0]} fed" in call("verify", hashes[0][:8], "--enter", "--prefix", "0.5")
    assert "all 5 are the same" in call("verify", "--paper", "fedasync", "--all")
    assert "replaying the beginnings, of 1e-06 s each, of 5 records" in call("verify", "--seconds", "1e-6")
    assert "unknown paper 'FEDSINK'" in failed("verify", "--paper", "fedsink").output
    other = next(iter(store))
    store.save(replace(other, provenance=other.provenance | {"data": "re-encoded"}))
    said = "without 1 of 5 records: their data is not here (fashion-mnist, re-encoded)"
    assert said in call("verify", "--seconds", "1e-6")
    assert "no stored record whose data is here is meant by" in failed("verify", other.spec.hash).output


def test_runs_that_were_made_before_are_published_with_the_others(small_study: None, tmp_path: Path, monkeypatch):
    """They stayed in the cache: nothing was missing, so nothing was done."""
    kept = Store(tmp_path / "published", tmp_path / "cache")
    monkeypatch.setattr("fl_core.experiments.store.default_store", lambda: kept)
    call("work", "fedasync-fig5", "--profile", "smoke")
    assert (len(list(kept)), kept.published.exists()) == (5, False)
    words = ("work", "fedasync-fig5", "--profile", "smoke", "--publish")
    assert call(*words) == "5 runs of the cache are published\n0 runs are missing: nothing to do\n"
    assert len(list(Store(kept.published, kept.published))) == 5
    assert not list(kept.cache.glob("*.json.gz"))
    assert call(*words) == "0 runs are missing: nothing to do\n"


def test_a_record_that_was_tampered_with_is_found_out(store: Store):
    call("work", "fedasync-fig5", "--profile", "smoke")
    result = next(iter(store))
    table = {name: list(values) for name, values in result.history.evaluations.items()}
    table["test_loss"][1] *= 1 + 1e-12
    store.save(replace(result, history=replace(result.history, evaluations=table)))
    assert "test_loss in row 1 of the evaluations" in failed("verify", result.spec.hash).output


def test_folders_of_other_workers_are_merged_and_contradictions_refused(store: Store, tmp_path: Path):
    call("work", "fedasync-fig5", "--profile", "smoke")
    records, other = list(store), Store(tmp_path / "other", tmp_path / "other")
    for result in records:
        other.save(result)
    store.published.joinpath(f"{records[0].spec.hash}.json.gz").unlink()
    assert json.loads(call("results", "merge", str(tmp_path / "other"), "--json")) == {"copied": 1, "different": []}
    other.save(replace(records[1], history=replace(records[1].history, ended="lost")))
    assert "0 records copied" in failed("results", "merge", str(tmp_path / "other")).output


def test_a_run_is_stopped_before_an_event_with_its_state_at_hand(store: Store, monkeypatch: pytest.MonkeyPatch):
    call("work", "fedasync-fig5", "--profile", "smoke")
    name = next(iter(store)).spec.hash
    text = call("replay", name, "--at", "7")
    said = json.loads(call("replay", name, "--at", "7", "--json"))
    assert (said["run"], said["event"], said["text"]) == (name, 7, text.rstrip())
    assert "give one of them" in failed("replay", name, "--at", "7", "--json", "-i").output
    assert "the run ends after" in call("replay", name, "--at", "999999", "-i")
    [server] = said["servers"]
    assert f"version {server['version']}, {server['at_work']} at work, {server['idle']} idle" in text
    assert text.startswith("event 7, t = ")
    for part in ("server 0: version ", "the updater of ", "device ", "events:", "arrival"):
        assert part in text
    consoles = []
    monkeypatch.setattr("code.interact", lambda **settings: consoles.append(settings["local"]["server"].version))
    call("replay", name, "--at", "7", "--interactive")
    assert len(consoles) == 1
    assert "before event 1000000" in call("replay", name, "--at", "1000000")
    assert "at = -1 must be at least 0" in failed("replay", name, "--at", "-1").output
