"""What the doctor finds, here and on machines where something is missing."""

from __future__ import annotations

import sys
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import pytest
from commands import invoke

from fl_core.cli import doctor
from fl_core.cli.doctor import Check, healthy
from fl_core.experiments.run import run as run_of
from fl_core.experiments.spec import RunSpec
from fl_core.experiments.store import Store


def run() -> tuple[int, str]:
    done = invoke("doctor")
    assert done.exit_code in (0, 1), repr(done.exception)
    return done.exit_code, done.stdout


def test_a_complete_installation_is_healthy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """That every published record is readable, tests/experiments/test_store.py finds out."""
    monkeypatch.setenv("FL_CORE_RESULTS", str(tmp_path))
    code, text = run()
    assert code == 0
    assert "MISSING" not in text
    for line in ("ok       Python ", "ok       packages ", "ok       processor "):
        assert line in text
    assert "REAL data, 60,000 + 10,000 samples, checksums right" in text
    assert f"0 published in {tmp_path}, 0 in the cache" in text


def test_missing_data_is_serious_and_comes_with_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FL_CORE_DATA", str(tmp_path))
    code, text = run()
    assert code == 1
    assert "MISSING  fashion-mnist" in text
    assert "-> restore it with 'git checkout -- fashion-mnist' inside data/" in text


@pytest.mark.parametrize(("extra", "code"), [("", 1), ("book", 0)])
def test_a_missing_package_is_named_with_the_command_that_installs_it(extra, code, monkeypatch: pytest.MonkeyPatch):
    marker = f' ; extra == "{extra}"' if extra else ""
    monkeypatch.setattr(
        metadata, "requires", lambda name: [f"no-such-package==1.2{marker}", f"nor_this<2,>=1{marker}"]
    )
    check = doctor.packages(extra)
    assert "not installed: no-such-package 1.2, nor_this<2,>=1; for" in str(check)
    assert "pip install -c constraints.txt -e '.[book]'" in str(doctor.packages("book")) or not extra
    assert healthy([check]) is (code == 0)


def test_another_version_than_pinned_is_reported_but_not_serious(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(metadata, "requires", lambda name: ["numpy==0.1"])
    check = doctor.packages("")
    assert check.remedy
    assert "numpy" in check.found
    assert "instead of 0.1" in check.found
    path = tmp_path / "constraints.txt"
    path.write_text("# all of them\nNumPy==0.1 ; python_version > '3'\nnot-installed==3\n")
    assert "instead of 0.1" in doctor.constraints(path).found
    assert doctor.constraints(path).remedy
    assert not doctor.constraints(tmp_path / "none").remedy


def test_a_python_that_is_too_new_is_serious(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "version_info", (3, 99, 0, "final", 0))
    assert not healthy([doctor.python()])


def test_damaged_results_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FL_CORE_RESULTS", str(tmp_path))
    assert not doctor.results().remedy
    (tmp_path / "0123456789abcdef.json.gz").write_bytes(b"x")
    assert "damaged" in doctor.results().found
    assert doctor.results().remedy


@pytest.mark.usefixtures("few_images")
def test_results_are_published_or_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    store = Store(tmp_path / "a", tmp_path / "b")
    result = run_of(RunSpec(algorithm="fedasync", model="linear", budget={"updates": 1}))
    store.save(result, published=True)
    for seed in (0, 1):
        store.save(replace(result, spec=result.spec.changed(seed=seed)))
    monkeypatch.setattr("fl_core.experiments.store.default_store", lambda: store)
    assert doctor.results().found == f"1 published in {tmp_path / 'a'}, 1 in the cache"


def test_without_git_or_browser_it_says_what_that_costs(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(doctor.shutil, "which", lambda name: None)
    assert "which commit" in str(doctor.git())
    assert "browser tests of the book are skipped" in str(doctor.browser(lambda name: None))
    assert not doctor.browser(lambda name: f"/bin/{name}").remedy
    assert healthy([doctor.git(), doctor.browser(lambda name: None)])


def test_a_line_shows_state_and_remedy():
    assert str(Check("data", "here")).startswith("ok       data")
    assert str(Check("data", "gone", "look for it")).startswith("missing  data")
    assert str(Check("data", "gone", "look for it", necessary=True)).startswith("MISSING  data")
    assert str(Check("data", "gone", "look for it")).endswith("-> look for it")
    assert not healthy([Check("a", "here"), Check("b", "gone", "look", necessary=True)])
