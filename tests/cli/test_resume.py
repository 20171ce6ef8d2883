"""``fl-core run --checkpoint-every … --resume``: what it says, what it keeps, and that a killed run loses nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from commands import TINY, invoke

from fl_core.experiments.spec import RunSpec
from fl_core.runtime import Checkpoints, Simulation
from fl_core.runtime.checkpoint import CURRENT

pytestmark = pytest.mark.usefixtures("few_images", "results")


def call(*words: str, code: int = 0) -> str:
    done = invoke("run", *TINY[:-1], "budget.updates=6", "--executor", "sequential", *words)
    assert done.exit_code == code, f"{done.output}\n{done.exception!r}"
    return done.output


def interrupt(monkeypatch: pytest.MonkeyPatch, *words: str) -> None:
    """Have a run end as Ctrl-C ends it, after its third checkpoint."""
    write = Checkpoints.write

    def written(self: Checkpoints, run: Simulation) -> None:
        write(self, run)
        if self.written == 3:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "write", written)
        assert "--resume" in call("--checkpoint-every", "0s", *words, code=130)


def history(path: str) -> dict:
    return json.loads(Path(path).read_text())["history"]


def test_an_interrupted_run_goes_on_and_ends_as_if_nothing_had_happened(monkeypatch, results):
    call("--out", "alone.json", "--no-store")
    interrupt(monkeypatch, "--out", "resumed.json")
    assert len(list(results.rglob(CURRENT))) == 1
    assert "resuming from" in call("--resume", "--out", "resumed.json")
    assert history("resumed.json") == history("alone.json")
    assert json.loads(Path("resumed.json").read_text())["provenance"]["resumed"] is True
    assert not list(results.rglob("*.safetensors"))  # a finished run keeps no checkpoint


def test_a_checkpoint_is_not_thrown_away_unasked(monkeypatch, results):
    interrupt(monkeypatch)
    assert "there is a checkpoint of this run" in call("--checkpoint-every", "60s", code=2)
    assert len(list(results.rglob(CURRENT))) == 1


def test_another_specification_begins_anew_beside_it(monkeypatch, results):
    interrupt(monkeypatch)
    assert "it begins anew" in call("--resume", "--seed", "1")
    assert "it begins anew" in call("--resume", "--trace")
    assert len(list(results.rglob(CURRENT))) == 1


def test_damage_is_answered_with_one_line_and_the_run_before_it(monkeypatch, results):
    interrupt(monkeypatch)
    [current] = results.rglob(CURRENT)
    current.write_bytes(current.read_bytes()[:-100])
    damaged = call("--resume", "--out", "resumed.json")
    assert "fl-core: warning: " in damaged
    assert "is damaged" in damaged
    call("--out", "alone.json", "--no-store")
    assert history("resumed.json") == history("alone.json")

    interrupt(monkeypatch)
    for path in results.rglob("*.safetensors"):
        path.write_bytes(b"")
    [line] = [line for line in call("--resume", code=2).splitlines() if "error" in line]
    assert line.startswith("fl-core: error: ")
    assert "to begin again" in line


def test_a_folder_that_cannot_be_written_is_one_line(results):
    results.mkdir()
    (results / "checkpoints").write_text("in the way")
    assert "fl-core: error: cannot keep checkpoints in " in call("--checkpoint-every", "0s", code=2)


def test_the_place_of_a_checkpoint_depends_on_the_whole_specification(results):
    from fl_core.experiments.store import default_store

    spec = RunSpec(algorithm="fedasync")
    store = default_store()
    places = [store.checkpoints(spec), store.checkpoints(spec, trace=True), store.checkpoints(spec.changed(seed=1))]
    assert len({place.folder for place in places}) == len({place.identity for place in places}) == 3


@pytest.mark.thorough
def test_killed_runs_end_bit_for_bit_as_runs_that_were_left_alone():
    """The short version of ``python -m fl_core.benchmarks.endurance``."""
    words = ["--kills", "6", "--commands", "1", "--algorithm", "fedasync"]
    command = [sys.executable, "-m", "fl_core.benchmarks.endurance", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    verdict = json.loads(done.stdout)
    assert verdict["kills"] == 6
    assert verdict["identical"] == verdict["runs"] > 0
