"""What a run tells while it goes on, and the model that it leaves."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from commands import TINY, call, refused
from safetensors.torch import load_file, save_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import nn
from torch.utils.tensorboard import SummaryWriter

from fl_core import RunSpec, load_model, read_spec, run, save_model
from fl_core.algorithms import ALGORITHMS, FedAsync
from fl_core.datasets import OWN
from fl_core.datasets.own import OwnData
from fl_core.errors import DataError, FlCoreError, RunError
from fl_core.experiments.store import Store
from fl_core.experiments.sweep import sweep
from fl_core.models import MODELS
from fl_core.runtime import Checkpoints, ServerHandle

SPEC = RunSpec(
    algorithm={"name": "fedbuff", "buffer": 2, "concurrency": 3}, model="linear", world={"devices": 5},
    partition="iid(samples_per_device=50)", budget={"updates": 6},
    evaluation={"every_updates": 2, "test_samples": 200, "train_samples": 10},
)  # fmt: skip


def noisy(into: list[dict[str, Any]]) -> Callable[[dict[str, Any]], None]:
    """Return a callback that does what it can to disturb."""

    def call(row: dict[str, Any]) -> None:
        into.append(dict(row))
        row.clear()
        torch.rand(3), np.random.rand(3)
        torch.manual_seed(len(into))

    return call


@pytest.mark.parametrize("executor", ["sequential", "threads", "batched"])
def test_callbacks_see_every_row_and_change_no_number(executor):
    rows: list[dict[str, Any]] = []
    updates: list[dict[str, Any]] = []
    told = run(SPEC, executor=executor, on_evaluation=noisy(rows), on_commit=noisy(updates)).history
    assert told == run(SPEC, executor=executor).history
    assert rows == told.evaluation_frame().drop(columns="communications").to_dict("records")
    assert updates == told.update_frame().to_dict("records")
    assert [row["version"] for row in updates] == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6]


def test_a_run_that_goes_on_tells_the_rest(tmp_path: Path):
    rows: list[dict[str, Any]] = []
    updates: list[dict[str, Any]] = []

    def stop(row: dict[str, Any]) -> None:
        updates.append(row)
        if row["version"] == 4:
            raise KeyboardInterrupt

    def kept() -> Checkpoints:
        return Checkpoints(tmp_path / "kept", when=lambda _: True)

    with pytest.raises(KeyboardInterrupt):
        run(SPEC, executor="sequential", checkpoints=kept(), on_commit=stop)
    first = len(updates) - 1  # that of version 4 is told again
    told = run(SPEC, executor="sequential", checkpoints=kept(), on_commit=updates.append, on_evaluation=rows.append)
    whole = run(SPEC, executor="sequential").history
    assert told.history == whole
    assert updates[:first] + updates[first + 1 :] == whole.update_frame().to_dict("records")
    assert [row["version"] for row in rows] == [4, 6]


def test_a_callback_that_fails_is_named():
    def broken(row: dict[str, Any]) -> None:
        1 / (row["version"] - 2)

    with pytest.raises(RunError, match=r"^the callback broken failed at version 2: ZeroDivisionError: division"):
        run(SPEC, executor="sequential", on_evaluation=broken)


def test_what_the_chapter_says_of_tensorboard_is_so(tmp_path: Path):
    with SummaryWriter(str(tmp_path)) as board:
        log = lambda row: [board.add_scalar(name, row[name], row["version"]) for name in row]  # noqa: E731  # its line
        told = run(SPEC, executor="sequential", on_evaluation=log).history.evaluations
    kept = EventAccumulator(str(tmp_path)).Reload()
    assert set(kept.Tags()["scalars"]) == set(told)
    points = kept.Scalars("test_accuracy")
    assert [point.step for point in points] == told["version"]
    assert [point.value for point in points] == pytest.approx(told["test_accuracy"])


def test_the_model_of_a_run_is_read_by_its_network_and_is_as_good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def normed(shape: tuple[int, ...], classes: int, between: Any = nn.ReLU) -> nn.Module:  # with running statistics
        return nn.Sequential(nn.Flatten(), nn.Linear(8, 8), nn.BatchNorm1d(8), between(), nn.Linear(8, classes))

    points = np.random.default_rng(0).normal(size=(400, 8))
    samples = points[:300], (points[:300, 0] > 0).astype(int)
    unseen = points[300:], (points[300:, 0] > 0).astype(int)
    monkeypatch.setitem(MODELS, "normed", normed)
    monkeypatch.setitem(OWN, "points", OwnData("points", lambda: (samples, unseen), ()))
    spec = SPEC.changed(model="normed", dataset="points")
    result = run(spec, executor="sequential")
    save_model(result, tmp_path / "model.safetensors")
    network = load_model(tmp_path / "model.safetensors")
    inputs, labels = spec.task().test.slice(0, 100)
    with torch.inference_mode():
        right = int((network(inputs).argmax(1) == labels).sum())
    assert right / 100 == result.history.evaluations["test_accuracy"][-1] != 0.5
    monkeypatch.setitem(MODELS, "normed", lambda shape, classes: normed(shape, classes, nn.Tanh))
    with pytest.warns(UserWarning, match="'normed' has changed since .*model.safetensors was written"):
        load_model(tmp_path / "model.safetensors")


def test_what_is_no_model_is_refused(tmp_path: Path):
    path, result = tmp_path / "model.safetensors", run(SPEC, executor="sequential")
    with pytest.raises(DataError, match="holds no model of a run .*No such file"):
        load_model(path)
    path.write_bytes(b"\x80\x04pickle")
    with pytest.raises(DataError, match="holds no model of a run"):
        load_model(path)
    save_model(result, path)
    tensors = load_file(path)
    save_file(tensors, path)
    with pytest.raises(DataError, match="holds no model of a run"):
        load_model(path)
    [name, *_] = sorted(tensors)
    save_file({"else": tensors.pop(name), **tensors}, path, {"spec": SPEC.to_json()})
    with pytest.raises(DataError, match=f"holds another network than its specification says: {name}, else"):
        load_model(path)
    store = Store(tmp_path, tmp_path)
    store.save(result)
    with pytest.raises(RunError, match="has no model: run it again"):
        save_model(store.get(SPEC), path)


def test_the_command_line_saves_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FL_CORE_RESULTS", str(tmp_path / "results"))
    monkeypatch.chdir(tmp_path)
    assert "written to a.json and b.safetensors" in call(
        "run", *TINY, "--out", "a.json", "--save-model", "b.safetensors"
    )
    measured = json.loads(Path("a.json").read_text())["history"]["evaluations"]["test_accuracy"][-1]
    assert isinstance(load_model("b.safetensors"), torch.nn.Module)
    assert 0 < measured < 1
    printed = json.loads(call("run", *TINY, "--json", "--save-model", "c.safetensors"))
    assert printed["history"] == json.loads(Path("a.json").read_text())["history"]
    assert "b.safetensors exists" in refused("run", *TINY, "--save-model", "b.safetensors")


@pytest.mark.parametrize("ending", ["json", "yaml", "yml"])
def test_a_specification_is_the_same_from_any_file(ending: str, tmp_path: Path):
    path, spec = tmp_path / f"spec.{ending}", SPEC.changed(**{"world.faults": [{"kind": "lost", "probability": 0.1}]})
    path.write_text(spec.to_json() if ending == "json" else yaml.safe_dump(spec.to_dict()))
    assert read_spec(path) == spec
    assert read_spec(path, seed=3).hash == spec.changed(seed=3).hash
    printed = call("run", str(path), "-s", "training.lr=0.5", "--print-spec")
    assert RunSpec.from_json(printed) == spec.changed(**{"training.lr": 0.5})


def test_a_specification_comes_from_a_pipe_too():
    """A shell gives one for ``<(program)``: what is in it can be read once."""
    end, other = os.pipe()
    os.write(other, SPEC.to_json().encode())
    os.close(other)
    with open(end):
        assert read_spec(f"/dev/fd/{end}") == SPEC


def test_numbers_of_yaml_are_those_of_json(tmp_path: Path):
    (tmp_path / "a.yaml").write_text(
        "algorithm: {name: fedasync, alpha: 1e-1}\nbudget: {updates: null, seconds: 2e+3}"
    )
    spec = read_spec(tmp_path / "a.yaml")
    assert (spec.to_dict()["algorithm"]["alpha"], spec.budget.seconds) == (0.1, 2000)
    (tmp_path / "a.yaml").write_text("algorithm: fedasync\nseed: 010\ntraining: {lr: .5, epochs: 3}")
    assert read_spec(tmp_path / "a.yaml") == RunSpec(algorithm="fedasync", seed=10, training={"lr": 0.5, "epochs": 3})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("algorithm: [", "a.yaml: not valid YAML: while parsing a flow node"),
        ("- fedasync", "a.yaml: a run specification is a JSON object, not list"),
        ("", "a.yaml: a run specification is a JSON object, not NoneType"),
        ("algorithm: fedasync\nbugdet: {updates: 3}", "a.yaml: unknown field 'bugdet'; did you mean 'budget'?"),
        ("algorithm: fedasync\nseed: 2020-01-01", "a.yaml: seed = '2020-01-01' is not valid"),
        ("algorithm: fedasync\nseed: 1:30", "a.yaml: seed = '1:30' is not valid"),
        ("algorithm: fedasync\nlabel_noise: .nan", "a.yaml: label_noise = nan is not valid"),
        ("algorithm: fedasync\nseed: 1\nseed: 2", "a.yaml: not valid YAML: the name 'seed' appears twice"),
        ("algorithm: fedasync\nbudget: {updates: 1, updates: 2}", "a.yaml: not valid YAML: the name 'updates'"),
        (
            "algorithm: !!python/object/apply:os.getcwd []",
            "a.yaml: not valid YAML: could not determine a constructor",
        ),
        ("a: &a [*a]", "a.yaml: Circular reference"),
    ],
)
def test_a_bad_file_is_one_line(text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    Path("a.yaml").write_text(text)
    assert refused("run", "a.yaml").startswith(said)
    Path("a.yaml").write_bytes(b"\xff\xfe")
    assert refused("run", "a.yaml") == "cannot read the specification a.yaml: it is not UTF-8 text"
    assert refused("run", "b.yaml").startswith("cannot read the specification b.yaml: No such file")


class Remembers(FedAsync):
    """Keeps something where nothing can be kept."""

    async def updater(self, server: ServerHandle) -> None:
        [upload] = await server.receive()
        self.seen = upload.device
        server.commit(upload.model)


class Idle(FedAsync):
    """Lets nobody work."""

    async def scheduler(self, server: ServerHandle) -> None:
        await server.keep_busy(0)


class Forgotten(FedAsync):
    """Has FedAsync's name, which its records would have, and sweeps FedAsync's numbers."""


class Constructed(FedAsync):
    """Takes its parameters as a network does."""

    def __init__(self, alpha: float = 0.5) -> None:
        super().__init__()
        self.alpha = alpha


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (
            lambda: run(SPEC.changed(algorithm=Remembers(concurrency=3))),
            r"^the updater of .* s: seen = \d cannot be set: .*server.state",
        ),
        (
            lambda: run(SPEC.changed(algorithm=Idle(concurrency=3))),
            "^the scheduler of .* s: concurrency = 0 is not valid: it should be",
        ),
        (
            lambda: SPEC.changed(algorithm={"name": "constructed"}),
            "^alpha = 0.5 cannot be set: .* declare them as fields",
        ),
        (
            lambda: run(SPEC.model_copy(update={"algorithm": Forgotten()})),
            "^Forgotten would go by the name of FedAsync: put @register above",
        ),
        (
            lambda: sweep(SPEC, {"algorithm": [Forgotten(), "fedbuff"]}, [0]),
            "^Forgotten would go by the name of FedAsync: put @register above",
        ),
        (
            lambda: SPEC.changed(algorithm=Forgotten),
            "^Forgotten would go by the name of FedAsync: put @register above",
        ),
        (lambda: run(SPEC, threads=1.5), "^threads = 1.5 must be a whole number between 1 and 1024"),
        (lambda: run("fedasync"), r"^run takes a RunSpec, not a str: run\(RunSpec\("),
    ],
)
def test_first_mistakes_are_answered_in_one_line(made, said, monkeypatch):
    """They were answered by three lines of pydantic, by "it should be Instance is frozen", by an AttributeError."""
    for each in (Remembers, Idle, Constructed):
        monkeypatch.setattr(each, "name", each.__name__.lower())
        monkeypatch.setitem(ALGORITHMS, each.name, each)
    with pytest.raises(FlCoreError, match=said) as caught:
        made()
    assert "\n" not in str(caught.value)
