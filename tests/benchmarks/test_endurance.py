"""The record of killed and resumed runs; that they end as they should is in ``tests/cli/test_resume.py``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fl_core.benchmarks import circumstances, published
from fl_core.benchmarks.endurance import verdict_frame
from fl_core.errors import DataError

PROGRAM = """
import sys, torch
torch.set_num_threads(2)
torch.ones(800, 800) @ torch.ones(800, 800)  # now there is a pool of threads, which no fork takes over
from fl_core.benchmarks.endurance import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.thorough
def test_a_process_that_has_computed_with_several_threads_may_kill_and_record(tmp_path: Path, monkeypatch):
    path = tmp_path / "benchmarks" / "endurance.json"
    words = ["--kills", "1", "--commands", "0", "--algorithm", "sgd", "--out", str(path)]
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    command = [sys.executable, "-c", PROGRAM, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == 0, done.stderr
    frame = verdict_frame(path)
    assert frame.reset_index().to_dict("records") == [json.loads(done.stdout)]
    sgd = frame.loc["sgd"]  # a run that was quicker than its kill is followed by another one
    assert (sgd["kills"], sgd["commands"]) == (1, 0)
    assert sgd["identical"] == sgd["runs"] >= 1
    monkeypatch.setenv("FL_CORE_DATA", str(tmp_path))
    report = published()["endurance"]
    assert report["parts"] == {}
    assert f"commit {report['commit']}" in circumstances(report)


def test_a_file_without_verdicts_is_refused(tmp_path: Path):
    path = tmp_path / "other.json"
    path.write_text('{"format": 1, "parts": {}}')
    with pytest.raises(DataError, match="other.json holds no verdicts"):
        verdict_frame(path)
