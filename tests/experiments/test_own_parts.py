"""Algorithms, networks, data sets and worlds of one's own: by name in a specification, a store, a worker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from commands import call
from distributed import LocalCluster
from own_parts import PARTS
from plain_torchvision import import_torchvision
from torch import nn

from fl_core import (
    RunSpec,
    compare,
    plugins,
    register,
    register_dataset,
    register_model,
    register_preprocessing,
    run,
    sweep,
)
from fl_core.algorithms import FedAsync
from fl_core.datasets import OWN, Preprocessing, load_dataset
from fl_core.errors import DataError, RunError, SpecError
from fl_core.experiments import grid
from fl_core.experiments import store as storage
from fl_core.experiments.evidence import POINTS, Effect, holm, moderated
from fl_core.experiments.grid import dask_pool, execute, plan
from fl_core.experiments.measures import final_accuracy
from fl_core.experiments.run import Result
from fl_core.experiments.store import Store
from fl_core.models import MODELS
from fl_core.tasks import Classification
from fl_core.world import NamedWorld

HALVING = '''
import torch

from fl_core import Algorithm, register


@register
class Halving(Algorithm):
    """Mix every upload in; each missed update halves its weight."""

    concurrency: int = 4

    async def scheduler(self, server):
        await server.keep_busy(self.concurrency)

    async def updater(self, server):
        [upload] = await server.receive()
        server.commit(torch.lerp(server.model, upload.model, 0.6 * 0.5**upload.staleness))
'''
PORTIONS = """
from fl_core.datasets import Partition


class Portions(Partition):
    kind: Literal["portions"] = "portions"

    def divide(self, labels, devices, rng, owners):
        return np.split(rng.permutation(len(labels))[: 20 * devices], devices)
"""
MINE = PARTS + HALVING + PORTIONS
SPEC: dict[str, Any] = {
    "algorithm": "halving", "dataset": "moons", "preprocessing": "turned", "model": "mlp", "budget": {"updates": 8},
    "world": {"devices": 10, "compute": "slow(most=3)"}, "evaluation": {"every_updates": 8, "train_samples": 10},
}  # fmt: skip


@contextmanager
def tidied() -> Iterator[None]:
    """Leave no part behind."""
    before = {name: dict(known) for name, known in grid.tables().items()}
    modules, path = set(sys.modules), list(sys.path)
    yield
    for name, known in grid.tables().items():
        known.clear()
        known.update(before[name])
    for name in set(sys.modules) - modules:
        if getattr(sys.modules[name], "__file__", None) and "mine" in name:
            del sys.modules[name]
    sys.path[:] = path
    plugins.import_own.cache_clear()
    plugins.load_plugins.cache_clear()


@pytest.fixture(autouse=True)
def tidy(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Leave nothing behind a test."""
    monkeypatch.setenv(plugins.IMPORT, "")
    with tidied():
        yield


def defined(source: str = MINE) -> dict[str, Any]:
    """Run `source` as a notebook's cells are run."""
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(source, "<cell>", "exec", dont_inherit=True), names)
    return names


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("0.6", "0.5"),
        ("nn.ReLU", "nn.Tanh"),
        ("uniform(1,", "uniform(2,"),
        ("label / 2", "label / 3"),
        ("[1, -1]", "[-1, 1]"),
        ("20 * devices", "10 * devices"),
    ],
)
def test_a_part_that_has_changed_makes_stored_results_missing(before, after, tmp_path):
    assert MINE.count(before) == 1
    defined()
    store, spec = Store(tmp_path / "a", tmp_path / "b"), SPEC | {"partition": "portions"}
    execute([RunSpec(**spec)], jobs=1, store=store, progress=False)
    defined(MINE + "\n# nothing else\n")
    assert plan([RunSpec(**spec)], store).missing == 0
    defined(MINE.replace(before, after))
    with pytest.warns(UserWarning, match="has changed since"):
        assert store.get(RunSpec(**spec)) is None


def test_results_of_parts_that_are_not_imported_are_passed_over_in_silence(tmp_path):
    store = Store(tmp_path / "a", tmp_path / "b")
    with tidied():
        defined()
        execute([RunSpec(**SPEC)], jobs=1, store=store, progress=False)
        assert len(list(store)) == 1
    storage._read.cache_clear()  # as in another process
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert list(store) == []
    with pytest.warns(UserWarning, match="unknown data set 'moons'"):  # nobody publishes what nobody knows
        assert list(Store(store.cache, store.cache)) == []


def test_other_samples_from_the_same_function_make_stored_results_missing(tmp_path):
    file = tmp_path / "samples.npy"
    np.save(file, np.arange(40.0).reshape(20, 2))
    source = MINE.replace("return points +", f"points += np.load({str(file)!r}).sum()\n        return points +")
    defined(source)
    store = Store(tmp_path / "a", tmp_path / "b")
    execute([RunSpec(**SPEC)], jobs=1, store=store, progress=False)
    np.save(file, np.arange(40.0).reshape(20, 2) + 1)
    defined(source)
    with pytest.warns(UserWarning, match="has changed since"):
        assert store.get(RunSpec(**SPEC)) is None


def test_a_script_is_imported_by_the_command_line_and_its_processes(tmp_path, monkeypatch, capsys):
    from fl_core.cli.app import app

    (tmp_path / "mine.v2.py").write_text(MINE)
    words = ["-a", "halving", "-s", "dataset=moons", "-s", "model=mlp", "-s", "budget.updates=3", "--no-store"]
    monkeypatch.chdir(tmp_path)
    app(["run", *words, "--import", "mine.v2.py"], standalone_mode=False)
    assert "moons (own data)" in capsys.readouterr().out
    assert plugins.named() == [str(tmp_path / "mine.v2.py")]
    packed = grid.pack()
    (tmp_path / "mine.v2.py").unlink()  # another machine has no such file
    monkeypatch.setenv(plugins.IMPORT, "")
    OWN.clear()
    grid.unpack(packed)
    assert run(RunSpec(**SPEC)).provenance["data"] == "own"


@pytest.mark.parametrize(
    ("name", "source", "said"),
    [
        ("mine.py", None, "cannot import .*mine.py': there is no such file"),
        ("mine.py", "1 / 0", "cannot import .*mine.py': ZeroDivisionError: division by zero"),
        ("mine.py", "raise SystemExit(0)", "cannot import .*mine.py': SystemExit: 0"),
        ("mine.py", "def", "cannot import .*mine.py': SyntaxError"),
        ("no_such_module", None, "cannot import 'no_such_module': ModuleNotFoundError"),
    ],
)
def test_what_cannot_be_imported_is_said_in_one_line(name, source, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if source is not None:
        (tmp_path / name).write_text(source)
    with pytest.raises(SpecError, match=said) as caught:
        plugins.import_everywhere([name])
    assert "\n" not in str(caught.value)


def test_an_installed_package_is_found_by_its_entry_point(tmp_path, monkeypatch):
    folder = tmp_path / "mine-1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1\n")
    (folder / "entry_points.txt").write_text("[fl_core.plugins]\nparts = mine_installed\n")
    (tmp_path / "mine_installed.py").write_text(MINE)
    monkeypatch.syspath_prepend(tmp_path)
    plugins.load_plugins.cache_clear()  # it has been called when specifications were imported
    plugins.load_plugins()
    assert RunSpec(**SPEC).algorithm.name == "halving"
    (tmp_path / "mine_installed.py").write_text("1 / 0")
    sys.modules.pop("mine_installed")
    plugins.load_plugins.cache_clear()
    with pytest.raises(SpecError, match="the plugin 'mine_installed' of mine fails: ZeroDivisionError"):
        plugins.load_plugins()


def test_the_algorithm_of_a_paper_is_known_by_name_wherever_a_specification_is_read(tmp_path, monkeypatch):
    """It was known to the commands about figures only: no run by its name, no ``list``, no replay of a record."""
    folder, info = tmp_path / "mine_papers" / "sixth", tmp_path / "mine-1.dist-info"
    for each in (folder, info):
        each.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[fl_core.papers]\nmine_papers = mine_papers\n")
    for package in (folder, folder.parent):
        (package / "__init__.py").write_text("")
    (folder / "algorithm.py").write_text(SIXTH)
    command = [sys.executable, "-m", "fl_core.cli", "run", "-a", "sixth", "-s", "alpha=0.5", "--print-spec"]
    path = {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    printed = subprocess.run(command, capture_output=True, text=True, env=os.environ | path, check=True)
    assert json.loads(printed.stdout)["algorithm"] == {"name": "sixth", "alpha": 0.5}
    monkeypatch.syspath_prepend(tmp_path)
    plugins.load_plugins.cache_clear()
    plugins.load_plugins()
    assert "Known by its folder." in call("list", "algorithms")
    (folder / "algorithm.py").write_text("1 / 0")
    sys.modules.pop("mine_papers.sixth.algorithm")
    plugins.load_plugins.cache_clear()
    with pytest.raises(
        SpecError, match=r"^the module 'mine_papers.sixth.algorithm' fails: ZeroDivisionError: division"
    ):
        plugins.load_plugins()


SIXTH = '''
from fl_core.algorithms import Algorithm, register


@register
class Sixth(Algorithm):
    """Known by its folder."""

    alpha: float = 0.1
'''

IMAGES, LABELS = np.zeros((4, 5, 5), np.uint8), np.array([0, 1, 2, 1])
PAIRS = [(torch.zeros(2), 0), (torch.ones(2), 1)]


@pytest.mark.parametrize(
    ("samples", "shape"),
    [
        ((IMAGES, LABELS), (1, 5, 5)),
        ((torch.zeros(4, 5, 6, 3, dtype=torch.uint8), LABELS), (3, 5, 6)),
        ((np.zeros((4, 3, 5, 6), np.uint8), LABELS.astype(np.int32), LABELS), (3, 5, 6)),
        ((np.zeros((4, 4, 6, 6), np.uint8), LABELS), (4, 6, 6)),
        ((np.zeros((4, 7), np.int64), LABELS), (7,)),
        ((np.zeros((4, 7)), LABELS), (7,)),
        (PAIRS, (2,)),
        ([np.zeros((4, 7)), LABELS], (7,)),
    ],
)
def test_samples_come_in_many_forms(samples, shape):
    register_dataset("mine")(lambda: (samples, samples))
    assert load_dataset("mine").shape == shape


@pytest.mark.parametrize(
    ("samples", "said"),
    [
        ((IMAGES, LABELS[:3]), r"labels are int64 \[3\]; they should be one integer for each of 4 inputs"),
        ((IMAGES, LABELS / 2), "labels are float64"),
        ((IMAGES, LABELS - 1), "labels must be numbers from 0 to"),
        ((IMAGES, LABELS, LABELS[:, None]), "owners are int64"),
        ((IMAGES[:0], LABELS[:0]), "at least one"),
        ((IMAGES, LABELS.astype(np.uint64) + 2**63), "labels must be numbers from 0 to 2,147,483,647, at least one"),
        ([(x, y + 0.7) for x, y in PAIRS], "labels are float64"),
        ((np.zeros((4, 10, 8, 8), np.uint8), LABELS), "c at most 4"),
        ((np.full((4, 2), 2**40), LABELS), "token 1099511627776 is too large"),
        ((np.full((4, 2), 1e300), LABELS), "input 0 is not finite, or too large for 32 bits"),
        ((np.full((4, 2), np.nan), LABELS), "training samples: input 0 is not finite"),
        ((np.zeros((4, 2), bool), LABELS), r"inputs are bool \[4, 2\]; images are bytes"),
        ((IMAGES,), "samples are a tuple of 1"),
        (7, "no len"),
        ({"x": IMAGES, "y": LABELS}, r"samples are a dict; give \(inputs, labels\) or a list of pairs"),
    ],
)
def test_samples_that_cannot_be_used_are_refused(samples, said):
    register_dataset("mine")(lambda: (samples, samples))
    with pytest.raises(DataError, match=f"data set 'mine': .*{said}"):
        load_dataset("mine")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (lambda: (IMAGES, LABELS, IMAGES, LABELS), "returned 4 things, not two: training and test samples, each"),
        (lambda: None, "returned NoneType, not two"),
        (lambda: 1 // 0, "ZeroDivisionError: "),
        (lambda: ((IMAGES, LABELS), (IMAGES, LABELS - 1)), "test samples: labels must be numbers from 0 to"),
    ],
)
def test_a_function_that_gives_no_data_set_is_named(given, said):
    register_dataset("mine")(given)
    with pytest.raises(DataError, match=f"data set 'mine': .*{said}"):
        load_dataset("mine")
    with pytest.raises(SpecError, match="a data set needs a name"):
        register_dataset(given)


def test_images_of_one_value_cannot_be_standardised():
    register_dataset("mine")(lambda: ((IMAGES, LABELS), (IMAGES, LABELS)))
    spec = RunSpec(algorithm="sgd", dataset="mine", model="linear", world={"devices": 2})
    with pytest.raises(SpecError, match="channel 0 of all images of 'mine' has one value.*'unit'"):
        spec.task()


def gives(what):
    """A network that gives something else than a number for each of two inputs and three classes."""

    class Odd(nn.Linear):
        def __init__(self, shape, classes):
            super().__init__(2, classes)

        def forward(self, x):
            return what(super().forward(x))

    return Odd


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (gives(lambda logits: None), "gives a NoneType for inputs .2, 2.; it should give logits .2, 3."),
        (gives(lambda logits: logits[:, :2]), "gives .2, 2. for inputs .2, 2.; it should give logits .2, 3."),
        (gives(lambda logits: logits @ logits), "cannot read inputs .2, 2.: "),
        (lambda shape, classes: nn.LazyLinear(classes), "gives lazy layers"),
        (lambda shape, classes: nn.Linear(-3, classes), "cannot be built for inputs of shape .2,.: "),
        (lambda shape, classes: None, "gives a NoneType"),
    ],
)
def test_a_network_that_does_not_fit_its_data_is_refused_in_one_line(make, said, monkeypatch):
    register_dataset("mine")(lambda: ((np.eye(3)[:, :2], [0, 1, 2]), (np.eye(3)[:, :2], [0, 1, 2])))
    monkeypatch.setitem(MODELS, "odd", make)
    with pytest.raises(SpecError, match=f"^model 'odd' {said}"):
        Classification(load_dataset("mine"), [np.arange(3)], "odd")


def test_a_name_of_the_book_stays_the_book_s():
    for base, what in ((FedAsync, "algorithm"), (NamedWorld, "world")):
        with pytest.raises(SpecError, match=f"the {what} 'fedasync' is there already; choose another name"):
            register(type("FedAsync", (base,), {"__module__": "mine", "name": "fedasync", "__annotations__": {}}))
    with pytest.raises(SpecError, match="int is no subclass of fl_core.algorithms.Algorithm"):
        register(int)
    assert RunSpec(algorithm=FedAsync) == RunSpec(algorithm="fedasync")


def test_splits_fit_each_other_and_the_classes():
    register_dataset("mine", classes=["a", "b"])(lambda: ((IMAGES, LABELS), (IMAGES, LABELS)))
    with pytest.raises(DataError, match="a label is 2, but there are 2 classes"):
        load_dataset("mine")
    register_dataset("mine")(lambda: ((IMAGES, LABELS), (IMAGES[:, :4], LABELS)))
    with pytest.raises(DataError, match=r"training and test inputs differ: torch.uint8 \(1, 5, 5\) and"):
        load_dataset("mine")


NET = """
@register_model
class Net(nn.Linear):
    def __init__(self, shape, classes):
        super().__init__(2, classes)
        {built}

    def forward(self, x):
        {step}
        return super().forward(x)
"""
ANOTHER, GLOBAL = (
    "model 'net' is another one whenever it is built",
    "model 'net' draws from the global random generator of",
)
AGAIN = "the second time: it "


@pytest.mark.parametrize(
    ("built", "step", "said"),
    [
        ("self.inner = Dropout(0.5, (2,))", "x = self.inner(x)", None),
        ("self.inner = nn.Dropout(0.5)", "x = self.inner(x)", "layer inner of model 'net' is torch.nn.Dropout"),
        ("", "x = nn.functional.dropout(x, 0.5, self.training)", f"{AGAIN}draws from .* of torch"),
        ("", "x = x * np.random.rand() if self.training else x", f"{AGAIN}draws from .* of numpy"),
        ("self.inner = nn.BatchNorm1d(2, momentum=None)", "x = self.inner(x)", f"{AGAIN}keeps"),
        ("self.seen = 0.0", "x, self.seen = x + self.seen, x.detach().mean()", f"{AGAIN}keeps"),
        ("self.turn = torch.randn(2, 2)", "x = x @ self.turn", ANOTHER),
        ("self.register_buffer('turn', torch.randn(2, 2))", "x = x @ self.turn", ANOTHER),
        ("self.register_buffer('turn', torch.eye(2))", "x = x @ self.turn", None),
        ("self.bias.requires_grad_(False)", "pass", "parameter bias of model 'net' is frozen"),
        ("nn.init.eye_(self.weight)", "pass", "parameter weight of model 'net' is built with values that"),
        ("nn.init.constant_(self.bias, -2)", "pass", "parameter bias of model 'net' is built with values that"),
        ("self.shift = nn.Parameter(torch.randn(2))", "x = x + self.shift", "parameter shift of model 'net' is"),
        ("self.scale = nn.Parameter(torch.tensor(1e-4))", "x = x * self.scale", "parameter scale of model 'net' is"),
        ("self.scale = nn.Parameter(torch.tensor(1.0))", "x = x * self.scale", None),
        ("", "x += 1", "model 'net' changes its inputs, which are the samples, in place"),
        ("", "x = None if self.training else x", "model 'net' cannot be trained: TypeError: "),
    ],
)  # fmt: skip
def test_a_network_depends_on_its_model_its_samples_and_the_draws_of_its_task_only(built, step, said):
    """With all of these but `torch.nn.Dropout` runs went on, and gave other numbers with other threads or data."""
    defined(MINE + "\nfrom fl_core.models import Dropout\n" + NET.format(built=built, step=step))
    before = load_dataset("moons").train.inputs.clone()
    spec = RunSpec(**SPEC | {"algorithm": "fedasync", "model": "net", "preprocessing": {}})
    if said is None:
        run(spec)
    else:
        with pytest.raises(SpecError, match=said):
            run(spec)
    assert torch.equal(load_dataset("moons").train.inputs, before)


def test_what_a_network_resets_itself_it_may_be_built_with():
    """Without PyTorch's initialisation, which alone calls its reset, it is refused."""
    reset = "nn.init.normal_(self.weight, generator=generator); nn.init.constant_(self.bias, -2)"
    own = (
        NET.format(built="nn.init.zeros_(self.weight)", step="pass")
        + f"\n    def reset(self, generator):\n        {reset}\n"
    )
    defined(MINE + own)
    spec = RunSpec(**SPEC | {"algorithm": "fedasync", "model": "net", "preprocessing": {}})
    with pytest.raises(
        SpecError, match="parameter weight of model 'net' is built with values that initialisation 'glorot'"
    ):
        run(spec)
    drawn = spec.changed(initialisation="pytorch")
    assert run(drawn).history.ended == "budget"
    assert drawn.task().initial_model(0)[-2:].tolist() == [-2, -2]


DIVIDE, DRAW = "divide(self, labels, devices, rng, owners)", "draw(self, devices, rng, direction='')"


@pytest.mark.parametrize(
    ("base", "method", "gives", "said"),
    [
        ("Partition", DIVIDE, "[labels == 0] * devices", "'own' gives device 0 bool .300. with False to True"),
        ("Partition", DIVIDE, "[np.array([0.5])] * devices", "'own' gives device 0 float64 .1. with 0.5 to 0.5; it"),
        ("Partition", DIVIDE, "[np.arange(-1, 5)] * devices", "'own' gives device 0 int64 .6. with -1 to 4"),
        ("Partition", DIVIDE, "[np.arange(301)] * devices", "whole ones from 0 to 299"),
        ("Partition", DIVIDE, "[np.arange(9)] * 11", "gives 11 lists of samples; the world has devices = 10"),
        ("Partition", DIVIDE, "np.random.randint(9, size=(10, 9))", "'own' is another one each time; draw from"),
        ("Partition", DIVIDE, "1 / 0", "the partition 'own' cannot be drawn: ZeroDivisionError: division by zero"),
        ("Compute", DRAW, "np.random.rand(devices)", "the world is another one each time; draw from"),
        ("Compute", DRAW, "[-1] * devices", "compute: Own.draw has to return an array of 10 numbers >= 0"),
        ("Compute", DRAW, "[1] * devices", None),
        ("Spread", DRAW, "np.zeros(devices)", "device 0 of the world sends 0.0 bits per second; it should"),
    ],
)  # fmt: skip
def test_what_draws_a_partition_or_a_world_gives_what_it_should(base, method, gives, said):
    """Masks were the samples 0 and 1, a link of 0 bits/s was endlessly fast, and global draws no seed's."""
    where = {"Partition": "partition", "Compute": "world.compute", "Spread": "world.network.up_bits_per_second"}
    head = "\nfrom fl_core.datasets import Partition\nfrom fl_core.world.network import Spread\n"
    own = f'class Own({base}):\n    kind: Literal["own"] = "own"\n    def {method}: return {gives}\n'
    defined(MINE + head + own)
    spec = RunSpec(**SPEC).changed(**{where[base]: "own"})
    if said is None:
        run(spec)
        return
    with pytest.raises(SpecError, match=said):
        run(spec)


@pytest.mark.thorough
def test_a_data_set_of_torchvision_is_taken_as_it_is():
    fake = import_torchvision().datasets.FakeData
    register_dataset("fake")(lambda: tuple(fake(size, (3, 12, 10), 4, random_offset=size) for size in (30, 10)))
    data = load_dataset("fake")
    assert (data.shape, len(data.train), len(data.test)) == ((3, 12, 10), 30, 10)
    image, label = fake(30, (3, 12, 10), 4, random_offset=30)[7]
    assert np.array_equal(data.train.inputs[7].permute(1, 2, 0), np.asarray(image))
    assert int(data.train.labels[7]) == int(label)


def test_a_step_of_ones_own_comes_first_and_what_it_gives_is_checked():
    images = IMAGES + np.arange(5, dtype=np.uint8)
    register_dataset("mine")(lambda: ((images, LABELS), (images, LABELS)))

    @register_preprocessing
    def halves(inputs):
        return inputs[..., ::2]

    train, test = RunSpec(algorithm="fedasync", dataset="mine", preprocessing="halves").preprocessing.apply(
        load_dataset("mine")
    )
    assert train.shape == test.shape == (1, 5, 3)
    assert train.inputs.std(correction=0) == pytest.approx(1, abs=0.01)  # scaled by that of what the step gives
    scaled, _ = Preprocessing(own="halves", invert=True, scale="raw").apply(load_dataset("mine"))
    assert scaled.inputs[0, 0, 0].tolist() == [0, 254, 252]
    register_preprocessing(type("halves", (), {"__new__": lambda cls, inputs: inputs / 0 * 0}))
    with (
        pytest.raises(DataError, match="data set 'mine, halves': training samples: input 0 is not finite"),
        np.errstate(all="ignore"),
    ):
        Preprocessing(own="halves").apply(load_dataset("mine"))
    for given in ("halfs", {"own": "halfs"}):
        with pytest.raises(SpecError, match="unknown .*'halfs'; did you mean 'halves'"):
            RunSpec(algorithm="fedasync", preprocessing=given)


def test_names_that_are_taken_are_refused():
    with pytest.raises(SpecError, match="the preprocessing 'wkafl' is there already"):
        register_preprocessing(type("wkafl", (), {}))
    with pytest.raises(SpecError, match="data set 'cifar10' is there already"):
        register_dataset("cifar10")
    with pytest.raises(SpecError, match="network 'lenet5' is there already"):
        register_model(type("LeNet5", (torch.nn.Module,), {}))


def test_what_cannot_be_sent_is_named(tmp_path):
    defined(MINE.replace("def moons(noise=0.1)", "def moons(noise=0.1, lock=__import__('threading').Lock())"))
    with pytest.raises(SpecError, match=r"what is defined here \(.*moons.*\) cannot be sent to another process"):
        execute([RunSpec(**SPEC), RunSpec(**SPEC, seed=1)], jobs=2, store=Store(tmp_path, tmp_path), progress=False)


def swept(store: Store, **grid: Any) -> Any:
    defined()
    spec = RunSpec(**SPEC).changed(**{"budget.updates": 30, "training.lr": 0.5})
    return sweep(spec, grid, jobs=1, store=store, progress=False)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """FedAsync at two speeds against an algorithm of one's own and one that learns nothing."""
    still = FedAsync(alpha=1e-6, concurrency=4)
    methods = ["halving", {"name": "fedasync", "concurrency": 4}, still]
    with tidied():
        yield swept(Store(*(tmp_path_factory.mktemp("store") / part for part in "ab")), algorithm=methods)


def test_a_sweep_is_a_frame_of_runs_and_one_of_evaluations(runs):
    methods = ["halving", "fedasync(concurrency=4)", "fedasync(concurrency=4, alpha=1e-06)"]
    assert list(runs.frame["algorithm"].unique()) == methods
    assert list(runs.frame["seed"]) == [0, 1, 2] * 3
    for entry, (_, row) in zip(runs.entries, runs.frame.iterrows(), strict=True):
        history = runs.results[entry.key].history
        assert row["accuracy"] == final_accuracy(runs.results[entry.key])
        assert (row["version"], row["bytes_up"]) == (30, history.evaluations["bytes_up"][-1])
        own = runs.curves[(runs.curves["algorithm"] == row["algorithm"]) & (runs.curves["seed"] == row["seed"])]
        assert list(own["test_accuracy"]) == history.evaluations["test_accuracy"]
    assert "<table" in runs._repr_html_()


def test_a_comparison_follows_the_rules_of_the_judge(runs):
    found = compare(runs, "algorithm", {"name": "fedasync", "concurrency": 4})
    assert list(found["verdict"]) == ["open", "not trained"] or found["verdict"][0] in ("more", "less", "equal")
    ours, theirs = ([final_accuracy(result) for _, result in runs.select(algorithm=name)]
                    for name in ("halving", "fedasync(concurrency=4)"))  # fmt: skip
    effect = moderated([Effect("", dict(enumerate(ours)), dict(enumerate(theirs)), POINTS)])[0]
    row = found.iloc[0]
    assert row["effect"] == pytest.approx(100 * np.mean(np.subtract(ours, theirs)))
    assert (row["low"], row["high"]) == effect.interval
    assert row["p"] == holm([min(effect.p.values()), 1.0])[0]
    never = compare(runs, "algorithm", "halving", target=1.0)
    assert list(never["verdict"]) == ["not trained" if "1e-06" in name else "open" for name in never["algorithm"]]
    assert list(never["high"]) == [np.inf] * 2
    assert list(never["seeds_needed"].isna()) == [True] * 2  # it said 5, though nothing was seen to count on


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"by": "speed", "against": 1}, "unknown name of the grid 'speed'"),
        ({"by": "algorithm", "against": "fedavg"}, "unknown value of algorithm 'fedavg'"),
        ({"by": "algorithm", "against": "halving", "target": 0.5, "axis": "hours"}, "unknown axis 'hours'"),
        ({"by": "algorithm", "against": "halving", "target": 60}, r"target = 60 is not valid: .* in \(0, 1\]"),
    ],
)
def test_a_comparison_of_what_is_not_there_is_refused(arguments, said, runs):
    with pytest.raises(SpecError, match=said):
        compare(runs, **arguments)
    with pytest.raises(SpecError, match="runs is of type DataFrame; it should be of type Sweep"):
        compare(runs.frame, **arguments)


@pytest.mark.parametrize(
    ("grid", "seeds", "said"),
    [
        ({"algorithm": "halving"}, [0], "no list of values for 'algorithm'"),
        ({"training.lr": []}, [0], "no list of values for 'training.lr'"),
        ({"training.speed": [1]}, [0], "speed"),
        ({}, [], "seeds = \\[\\] must be different whole numbers"),
        ({}, [1, 1], "must be different whole numbers"),
        ({}, "12", "must be different whole numbers"),
        ({}, 0.5, "must be different whole numbers"),
        ({"training.lr": 0.1}, [0], "no list of values for 'training.lr'"),
        ({"seed": [1, 2]}, [0], "give it as seeds"),
        ({"algorithm": ["halving", {"name": "halving"}]}, [0], "one run twice, as algorithm halving, seed 0 and"),
    ],
)
def test_a_grid_that_is_none_is_refused(grid, seeds, said):
    defined()
    with pytest.raises(SpecError, match=said):
        sweep(RunSpec(**SPEC), grid, seeds)
    with pytest.raises(SpecError, match="spec is of type dict; it should be of type RunSpec"):
        sweep(SPEC, grid, seeds)
    with pytest.raises(SpecError, match="store is of type str; it should be of type .*Store"):
        sweep(RunSpec(**SPEC), grid, seeds, store="results")


def callbacks_are_told_every_row(tmp_path: Path, **where: Any) -> list[Result]:
    defined()
    rows: dict[str, dict[str, list[Any]]] = {"evaluations": {}, "updates": {}}

    def logger(table: str) -> Any:
        lock = threading.Lock()  # cannot be sent anywhere

        def log(row: dict[str, Any]) -> None:
            with lock:
                rows[table].setdefault(row["run"], []).append(dict(row))
                row.clear()

        return log

    def swept(**more: Any) -> Any:
        store, grid = Store(tmp_path / "a", tmp_path / "b"), {"training.lr": [0.1, 0.2]}
        return sweep(RunSpec(**SPEC), grid, range(2), store=store, progress=False, **where, **more)

    runs = swept(on_evaluation=logger("evaluations"), on_commit=logger("updates"))
    for entry in runs.entries:
        history = runs.results[entry.key].history
        for table, found in rows.items():
            wanted = pd.DataFrame(getattr(history, table)).assign(**entry.labels, run=entry.key)
            pd.testing.assert_frame_equal(pd.DataFrame(found[entry.key]), wanted, check_like=True, check_exact=True)
    assert [len(found) for found in rows.values()] == [4, 4]
    assert list((tmp_path / "b").glob(".told*")) == []
    swept(on_evaluation=lambda row: 1 / 0)  # all is stored
    return [runs.results[entry.key] for entry in runs.entries]


def a_callback_that_fails_ends_it(tmp_path: Path, seeds: int = 3, **where: Any) -> None:
    def broken(row: dict[str, Any]) -> None:
        raise OSError("disk full")

    defined()
    store = Store(tmp_path / "c", tmp_path / "c")
    with pytest.raises(RunError, match="^the callback broken failed at version 0: OSError: disk full$"):
        sweep(RunSpec(**SPEC), {}, range(seeds), store=store, progress=False, on_evaluation=broken, **where)


def test_parts_of_a_notebook_work_by_name_in_other_processes_and_callbacks_are_told_every_row_here(tmp_path):
    here, there = (callbacks_are_told_every_row(tmp_path / f"{jobs}", jobs=jobs) for jobs in (1, 2))
    for one, other in zip(there, here, strict=True):
        assert one.provenance["data"] == "own"
        assert one.history == other.history
        for name in ("code", "model_sha256", "data_sha256"):
            assert one.provenance[name] == other.provenance[name], name


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.thorough)])
def test_a_callback_that_fails_ends_a_sweep_and_is_named(jobs, tmp_path):
    a_callback_that_fails_ends_it(tmp_path, jobs=jobs)


def test_a_grid_that_ends_early_leaves_nothing_in_the_pool(tmp_path, monkeypatch: pytest.MonkeyPatch):
    begun: list[str] = []
    monkeypatch.setattr(grid, "_in_worker", lambda task, text: begun.append(text) or task(text))
    with ThreadPoolExecutor(1) as pool:
        a_callback_that_fails_ends_it(tmp_path, 40, pool=pool)
    assert 0 < len(begun) < 40


@pytest.mark.thorough
def test_callbacks_of_a_sweep_on_a_cluster_are_told_the_same(tmp_path):
    quiet = {"dashboard_address": None, "silence_logs": 50}
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, **quiet) as there,
        dask_pool(there.scheduler_address) as pool,
    ):
        callbacks_are_told_every_row(tmp_path, pool=pool)
        a_callback_that_fails_ends_it(tmp_path, pool=pool)


def test_a_run_that_began_again_elsewhere_is_told_once(tmp_path):
    rows: list[dict[str, Any]] = []
    told = grid._Told(tmp_path, {"on_commit": rows.append})
    for name, lines in (("a-1", "12"), ("a-2", "123"), ("b-1", "1")):
        text = "".join(f'["on_commit", {{"version": {each}}}]\n' for each in lines)
        (tmp_path / name).write_text(text + '["on_comm')  # killed while it wrote
        told.tell()
    assert [(row["run"], row["version"]) for row in rows] == [("a", 1), ("a", 2), ("a", 3), ("b", 1)]


CHAPTERS = Path(__file__).parents[2] / "notebooks" / "5_your_own"


def test_the_chapter_needs_at_most_sixty_lines():
    cells = json.loads((CHAPTERS / "your_own.ipynb").read_text())["cells"]
    lines = [line for cell in cells if "yours" in cell["metadata"].get("tags", ()) for line in cell["source"]]
    assert 30 < len([line for line in lines if line.strip()]) <= 60


@pytest.mark.thorough
@pytest.mark.parametrize("path", sorted(CHAPTERS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_the_code_of_the_chapters_passes_the_strictest_type_check(path: Path, tmp_path: Path):
    cells = json.loads(path.read_text())["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    (tmp_path / "mine.py").write_text("\n\n".join(code))
    strict = ["--strict", "--follow-imports=silent", "--untyped-calls-exclude=distributed"]
    words = [sys.executable, "-m", "mypy", *strict, str(tmp_path / "mine.py")]
    done = subprocess.run(words, cwd=CHAPTERS.parents[1], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
