"""Measure other simulators beside the plain loop and ours: ``python data/benchmarks/peers/run.py --times 3``.

Each runs in an environment of its own, which shares this one's PyTorch. The sides take turns, every second time
backwards; ``data/benchmarks/peers.json`` has their times, versions and what decides them, and the machine. It is
written after each turn: a turn of both workloads takes a quarter of an hour.
"""

import argparse
import json
import os
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from math import inf
from pathlib import Path

import numpy as np

from fl_core.benchmarks.harness import Outcome, Part, Row, load_average, new_report
from fl_core.benchmarks.throughput import reference_spec

HERE = Path(__file__).parent

SIDES = {  # script with its words, what pip installs for it, what decides its time
    "plain loop": ("bare", "", "one thread, nothing of a federation"),
    "ours, 1 thread": ("ours --threads 1", "", "one device at a time; flat vectors, images channels last"),
    "ours, 2 threads": ("ours --threads 2", "", "several devices at a time, ahead of the clock"),
    "FLSim": (
        *("flsim", "flsim==0.1.0"),
        "trains when the arrival is due, one device at a time, always on the same mini-batches; runs on Python 3.11 "
        "only with its dataclasses made hashable",
    ),
    "FLGo": (
        *("flgo", "flgo==0.4.4"),
        "trains at dispatch, one device at a time; gathers image by image, copies modules for every operation on "
        "models; its data sets lack a method that PyTorch wants, added here",
    ),
    "APPFL": (
        *("appfl", "appfl==1.12.0"),
        "trains at dispatch, one device at a time; gathers image by image; every device owns model, optimiser and "
        "loader; garbage collections switched off",
    ),
    "APPFL as shipped": (
        *("appfl --shipped --updates 30", "appfl==1.12.0"),
        "the same with several garbage collections an update; only the first 30 updates",
    ),
    "Flower": (
        *("flower", "flwr[simulation]==1.42.0"),
        "has neither asynchronous strategy nor virtual clock: the synchronous twin, a process on each core",
    ),
}
PARTS = {
    "peers": "Simulators on the reference workload",
    "peers-small": "Simulators on many tiny tasks, 1,000 updates",
}


def interpreter(script: str, requirement: str, folder: Path) -> str:
    """Return the Python of an environment with `requirement`, made if need be."""
    if not requirement:
        return sys.executable
    home = folder / "venv" / script
    paths = sysconfig.get_paths(vars={"base": str(home), "platbase": str(home)})
    python = str(Path(paths["scripts"], "python"))
    if not (home / "done").exists():
        venv.create(home, clear=True, with_pip=True)
        Path(paths["purelib"], "base.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
        subprocess.run([python, "-m", "pip", "install", "--quiet", requirement], check=True)
        (home / "done").touch()
    return python


def write_data(path: Path) -> None:
    """Write the images, scaled as ours, who owns which, and the initial model."""
    task, tiny = (reference_spec(1).changed(**{"world.devices": devices}).task() for devices in (100, 1000))
    train, test = task.train.ready(inf), task.test.ready(inf)
    arrays = {"train_images": train.inputs, "train_labels": train.labels, "initial": task.initial_model(0)}
    arrays |= {"test_images": test.inputs, "test_labels": test.labels}
    owned = {"reference": np.stack([task.indices(k) for k in range(100)])}
    owned |= {"small": np.stack([tiny.indices(k) for k in range(1000)])}
    np.savez(path, **{key: array.contiguous() for key, array in arrays.items()}, **owned)


def once(side: str, words: list[str], folder: Path) -> dict:
    """Run one side in a process and return its line, with the seconds of the whole process."""
    script, *own = SIDES[side][0].split()
    command = [interpreter(script, SIDES[side][1], folder), "-m", f"peers.{script}", *own, *words]
    paths = [str(HERE.parent), str(HERE.parents[2]), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths).rstrip(os.pathsep), "OMP_NUM_THREADS": "1"}
    start = time.perf_counter()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=folder)
    process = time.perf_counter() - start
    line = next((line for line in done.stdout.splitlines() if line.startswith('{"peer"')), None)
    if line is None:
        raise SystemExit(f"{side} failed:\n{done.stdout[-1000:]}\n{done.stderr[-3000:]}")
    print(f"{side}: {line}, {process:.1f} s for the process", flush=True)
    return json.loads(line) | {"process": process}


def main() -> None:
    """Measure, and write the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir(), "peers"), help="for environments")
    parser.add_argument("--out", type=Path, default=HERE.parent / "peers.json")
    parser.add_argument("--only", nargs="*", default=list(SIDES), choices=SIDES, metavar="SIDE")
    parser.add_argument("--parts", nargs="*", default=list(PARTS), choices=PARTS)
    parser.add_argument("--updates", type=int, help="fewer, to try it")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    data = given.folder / "images.npz"
    write_data(data)
    for side in given.only:
        interpreter(SIDES[side][0].split()[0], SIDES[side][1], given.folder)
    report = new_report() | {"peers": {}}
    for part in given.parts:
        words = ["--data", str(data), *(["--small"] if part == "peers-small" else [])]
        words += ["--updates", str(given.updates)] if given.updates else []
        sides = [side for side in given.only if not (part == "peers-small" and "--shipped" in SIDES[side][0])]
        load, start, found = load_average(), time.perf_counter(), {side: [] for side in sides}
        for turn in range(given.times):
            for side in reversed(sides) if turn % 2 else sides:
                found[side].append(once(side, words, given.folder))
            rows = [Row(side, "s", [line["seconds"] for line in lines]) for side, lines in found.items()]
            rows += [
                Row(f"{side}: process", "s", [line["process"] for line in lines]) for side, lines in found.items()
            ]
            where = {"load": load, "seconds": round(time.perf_counter() - start, 1)}
            report["parts"][part] = Part(part, PARTS[part], lambda effort: Outcome([])).report(Outcome(rows), **where)
            for side, lines in found.items():
                about = {key: lines[-1][key] for key in ("version", "python", "torch")}
                about = report["peers"].setdefault(side, about | {"note": SIDES[side][2]})
                about[part] = {key: lines[-1][key] for key in ("updates", "samples", "accuracy")}
            given.out.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
