"""Checkpoints: a run that goes on from one ends exactly as it would have ended, and damage is never used."""

from __future__ import annotations

import gc
import hashlib
import json
import re
import shutil
import struct
from collections import defaultdict, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import runs
import torch
from freeze import ALGORITHMS as DECLARED
from freeze import FAULTS, NETWORK
from killing import Killed, killed_at

from fl_core.algorithms import ALGORITHMS, Algorithm, FedAsync, SoftsyncSASGD, make_algorithm
from fl_core.errors import RunError
from fl_core.experiments.spec import RunSpec
from fl_core.formulas.fedasync import mix
from fl_core.runtime import Checkpoints, History, Simulation, storage
from fl_core.runtime.checkpoint import CURRENT, PREVIOUS
from fl_core.streams import stream, torch_stream
from fl_core.tasks import Quadratic
from fl_core.world import World

pytestmark = pytest.mark.usefixtures("few_images")

RNG = np.random.default_rng(0)
TASK = Quadratic(RNG.uniform(0.5, 2, (8, 3)), RNG.normal(size=(8, 3)), [5.0, 5.0, 5.0], samples=range(1, 9))
WORLDS = {
    "plain": {},
    "network": {"network": NETWORK, "jitter": 0.3},
    "sampled": {"max_staleness": 4},
    "faulty": {"faults": FAULTS, "network": NETWORK},
    "timed": {"faults": FAULTS, "trigger": {"kind": "timed", "period_seconds": 2, "per_tick": 3, "concurrency": 5}},
    "contributors": {"faults": FAULTS, "trigger": {"kind": "contributors"}},
    "clustered": {"clusters": {"servers": 2}, "faults": FAULTS[:3], "network": NETWORK},
    "windows": {"availability": {"kind": "periodic", "period_seconds": 7, "available": 0.6}, "faults": FAULTS},
}


class Everything(Algorithm):
    """All that programs may do: fresh models in mid-training, gradients, losses, and state of every kind."""

    buffer: int = 3

    async def scheduler(self, server):
        await server.keep_busy(4)

    async def updater(self, server):
        if "buffer" not in server.state:
            server.state.update(
                buffer=[], seen=set(), last=deque(maxlen=4), momentum=torch.zeros(3, dtype=torch.float64),
                counts=np.zeros((2, 3), dtype=np.uint16), draws=stream(1, "a test"), coins=torch_stream(1, "a test"),
            )  # fmt: skip
            server.state["again"] = server.state["buffer"]
        [upload] = await server.receive()
        state = server.state
        if upload.staleness > 6:
            server.discard(upload)
            return
        state["buffer"].append(upload.delta)
        state["seen"].add(upload.device)
        state["last"].append(upload.note)
        state["counts"][0, upload.device % 3] += 1
        if len(state["again"]) < self.buffer:
            return
        step = torch.stack(state["buffer"]).mean(0)
        state["momentum"].mul_(0.5).add_(step)
        state["buffer"].clear()
        nudge = state["draws"].normal() + float(torch.rand(1, generator=state["coins"])) + server.rng.normal()
        nudge += len(state["seen"]) + sum(state["last"]) + int(state["counts"].sum())
        server.commit(server.model + 0.3 * state["momentum"] + 1e-3 * nudge, weight=nudge)

    async def device(self, device):
        state = device.state
        if not state:
            state.update(visits=0, trail=np.zeros(3), versions=[], generator=stream(2, "a device", device.id))
        start = await device.download()
        state["visits"] += 1
        trained = await device.train(start.model, steps=2)
        fresh = await device.download()
        state["versions"].append(fresh.version)
        slope = await device.gradient(fresh.model)
        value = await device.loss(trained.model)
        state["trail"] += slope.gradient.numpy()
        trained.model.sub_(start.model).add_(slope.gradient, alpha=-0.01 * state["generator"].random())
        note = state["visits"] + float(state["trail"].sum()) * 1e-3 + device.rng.random()
        await device.upload(delta=trained.model, note=note, based_on=fresh)
        state["visits"] += value
        await device.loss(fresh.model)
        state["visits"] -= value


class Patient(Algorithm):
    """Waits for times and for certain devices in turn; a round that has several waits."""

    async def scheduler(self, server):
        await server.sleep(1.5)
        server.dispatch(list(server.idle)[:3])

    async def updater(self, server):
        uploads = await server.receive(until=server.now + 2.0)
        if len(server.idle) and server.version % 2:
            server.dispatch([server.idle.draw(server.rng)])
            uploads += await server.receive(from_=server.devices[:2])
        for upload in uploads[1:]:
            server.discard(upload)
        if uploads:
            server.commit(mix(server.model, uploads[0].model, 0.4))


def algorithm_for(algorithm: str, world: str) -> Algorithm:
    """A sampled timeline goes on with each version only, so there one upload makes one."""
    return Everything(buffer=1) if (algorithm, world) == ("everything", "sampled") else PROGRAMS[algorithm]


BASELINES = ("asofed", "asyncpart", "feddelay", "feddyn", "fedprox", "fedsa", "moon", "port", "syncdrop")
PROGRAMS = {name: make_algorithm(name, **fields) for name, fields in DECLARED.items() if "fedasmu_" not in name} | {
    "sasgd_softsync": SoftsyncSASGD(num_aggregated=2, lr=0.1), "everything": Everything(), "patient": Patient(),
}  # fmt: skip
CASES = [
    pytest.param(algorithm, "faulty", 4 if algorithm in ("everything", "patient") else 2) for algorithm in PROGRAMS
]
CASES += [
    pytest.param(algorithm, world, 24, marks=pytest.mark.thorough)
    for algorithm in PROGRAMS
    for world in WORLDS
    if world not in ("sampled", "timed", "contributors") or algorithm in ("fedasync", "everything")
    if world == "faulty" or algorithm not in BASELINES
]


def simulation(
    algorithm: Algorithm, world: dict[str, Any] | None = None, updates: int = 12, **training: Any
) -> Simulation:
    evaluation = {"every_updates": 5, "every_seconds": 4.0, "at_seconds": (3.3, 9.0)}
    work = {"epochs": 3} if algorithm.name == "fedasmu" else {"steps": 2}
    settings = {"updates": updates, "lr": 0.1, **work, **evaluation, **training}
    return runs.simulation(algorithm, World(devices=8, **(world or {})), TASK, seed=3, trace=True, **settings)


class Every(Checkpoints):
    """Keeps a copy of each checkpoint of a run."""

    def write(self, run):
        super().write(run)
        shutil.copytree(self.folder, self.folder.parent / "kept" / f"{run.kernel.events}")


def never(events: int) -> bool:
    return False


def start(folder: Path, updates: int = 12, at: int = 15, algorithm: Algorithm | None = None) -> History:
    """Leave two checkpoints of a run in `folder`, and return how that run ends."""
    algorithm = algorithm or FedAsync(concurrency=4)
    with pytest.raises(Killed):
        simulation(algorithm, updates=updates).run(checkpoints=Checkpoints(folder, when=killed_at(at)))
    return simulation(algorithm, updates=updates).run()


def test_every_registered_algorithm_is_resumed_in_these_tests():
    programs = tuple(map(type, PROGRAMS.values()))
    for kind in ALGORITHMS.values():
        assert issubclass(kind, programs) or not kind.__module__.startswith("fl_core.")


@pytest.mark.filterwarnings("error::UserWarning")  # well-behaved programs are not warned of
@pytest.mark.parametrize(("algorithm", "world", "places"), CASES)
def test_a_run_resumed_at_any_event_ends_bit_for_bit_as_if_it_had_not_stopped(algorithm, world, places, tmp_path):
    program, settings = algorithm_for(algorithm, world), WORLDS[world]
    reference_run = simulation(program, settings)
    reference = reference_run.run()
    events = reference_run.kernel.events
    stride = max(1, events // places)
    kept = Every(tmp_path / "c", when=lambda event: event % stride == stride // 2)
    assert simulation(program, settings).run(checkpoints=kept) == reference  # to be watched changes nothing
    folders = sorted((tmp_path / "kept").iterdir())
    assert len(folders) >= min(10, places // 2, events // 3)
    for folder in folders:
        again = simulation(program, settings)
        history = again.run(checkpoints=Checkpoints(folder, when=never))
        assert history == reference, folder.name
        assert repr(history.learned) == repr(reference.learned)
        assert again.kernel.events == events


@pytest.mark.parametrize("algorithm", ["fedasync", "everything"])
def test_a_run_may_be_killed_and_resumed_again_and_again_with_any_executor(algorithm, tmp_path):
    program, settings = PROGRAMS[algorithm], WORLDS["windows"]
    reference = simulation(program, settings).run()
    attempts = [("threads", 2), ("sequential", None), ("threads", 1), ("threads", 3), ("sequential", None)]
    for event, (executor, threads) in zip((4, 11, 12, 40, 60), attempts, strict=True):
        checkpoints = Checkpoints(tmp_path, when=killed_at(event))
        with pytest.raises(Killed):
            simulation(program, settings).run(executor, threads, checkpoints=checkpoints)
    assert simulation(program, settings).run("threads", 2, checkpoints=Checkpoints(tmp_path, when=never)) == reference


@pytest.mark.parametrize("world", ["faulty", "sampled"])
def test_velocity_and_place_in_the_order_go_on_bit_for_bit(world, tmp_path):
    training = {"momentum": 0.9, "momentum_reset": False, "order": "cyclic", "lr": 0.01}

    def run() -> Simulation:
        return simulation(FedAsync(concurrency=4), WORLDS[world], **training)

    uninterrupted, forgetful = run(), simulation(FedAsync(concurrency=4), WORLDS[world], lr=0.01, momentum=0.9)
    reference = uninterrupted.run()
    assert reference != forgetful.run()
    for event in (9, 17, 25):
        with pytest.raises(Killed):
            run().run(checkpoints=Checkpoints(tmp_path, when=killed_at(event)))
    again = run()
    assert again.run("threads", 2, checkpoints=Checkpoints(tmp_path, when=never)) == reference
    for device, state in uninterrupted.device_state.items():
        assert again.device_state[device].get("cursor") == state.get("cursor")


def test_fashion_mnist_goes_on_bit_for_bit_with_other_threads(tmp_path):
    spec = RunSpec(
        algorithm="fedasync",
        model="lenet5",
        world={"devices": 10, "faults": FAULTS[:3], "jitter": 0.2},
        training={"steps": 1, "lr": 0.1, "batch_size": 20},
        partition={"kind": "dirichlet", "alpha": 0.5},
        budget={"updates": 5},
        evaluation={"every_updates": None, "train_samples": 100},
    )
    reference = spec.simulation(trace=True).run()
    with pytest.raises(Killed):
        spec.simulation(trace=True).run("threads", 2, checkpoints=Checkpoints(tmp_path, when=killed_at(6)))
    for executor, threads in (("sequential", None), ("threads", 3)):
        again = spec.simulation(trace=True).run(executor, threads, checkpoints=Checkpoints(tmp_path, when=never))
        assert again == reference


def test_the_wall_time_of_all_parts_is_added_up(tmp_path):
    start(tmp_path)
    again = simulation(FedAsync(concurrency=4))
    assert again.wall_before == 0
    again.run(checkpoints=Checkpoints(tmp_path, when=never))
    assert again.wall_before > 0


def resumed(folder: Path, **options: Any) -> History:
    checkpoints = Checkpoints(folder, when=never, **options)
    return simulation(FedAsync(concurrency=4)).run(checkpoints=checkpoints)


def damage(path: Path, how: str) -> None:
    content = bytearray(path.read_bytes())
    size = len(content)
    match how:
        case "empty":
            content.clear()
        case "truncated":
            del content[size // 2 :]
        case "one byte short":
            del content[-1:]
        case "one byte long":
            content.append(0)
        case _:
            content[int(float(how) * (size - 1))] ^= 0x10
    path.write_bytes(content)


DAMAGES = ["empty", "truncated", "one byte short", "one byte long", "0", "0.5", "1"]


@pytest.mark.parametrize("how", DAMAGES)
def test_the_checkpoint_before_a_damaged_one_is_used(how, tmp_path):
    reference = start(tmp_path)
    damage(tmp_path / CURRENT, how)
    with pytest.warns(
        UserWarning, match=r"checkpoint.safetensors is damaged .*; the run goes on from the one before"
    ):
        assert resumed(tmp_path) == reference


def test_two_damaged_checkpoints_are_refused_and_the_error_says_what_to_do(tmp_path):
    start(tmp_path)
    damage(tmp_path / CURRENT, "0.5")
    damage(tmp_path / PREVIOUS, "truncated")
    with pytest.raises(RunError, match=rf"damaged.*; .*damaged.*; delete {tmp_path} to begin again"):
        resumed(tmp_path)


def test_a_damaged_checkpoint_does_not_take_the_place_of_the_good_one_before_it(tmp_path):
    start(tmp_path)
    good = (tmp_path / PREVIOUS).read_bytes()
    damage(tmp_path / CURRENT, "0.5")
    checkpoints = Checkpoints(tmp_path, when=killed_at(14))
    with pytest.warns(UserWarning, match="damaged"), pytest.raises(Killed):
        simulation(FedAsync(concurrency=4)).run(checkpoints=checkpoints)
    assert checkpoints.written == 1
    assert (tmp_path / PREVIOUS).read_bytes() == good
    assert resumed(tmp_path) == simulation(FedAsync(concurrency=4)).run()


@pytest.mark.parametrize("renamed", [False, True])
def test_a_write_that_was_interrupted_loses_nothing_and_is_cleared_away(renamed, tmp_path):
    reference = start(tmp_path)
    if renamed:  # between the two renames
        (tmp_path / CURRENT).replace(tmp_path / PREVIOUS)
    (tmp_path / "checkpoint.safetensors.new").write_bytes(b"half a checkpo")
    assert resumed(tmp_path) == reference
    Checkpoints(tmp_path).clear()
    assert not tmp_path.exists()


def rewritten(path: Path, old: bytes, new: bytes) -> None:
    """Change a whole checkpoint into another whole one."""
    content = path.read_bytes()[: -storage.CHECKSUM_BYTES]
    assert content.count(old) == 1
    assert len(old) == len(new)
    content = content.replace(old, new)
    digest = hashlib.blake2b(content, digest_size=storage.CHECKSUM_BYTES)
    path.write_bytes(content + digest.digest())


def test_another_format_is_refused_and_the_error_says_so(tmp_path):
    start(tmp_path)
    for path in (tmp_path / CURRENT, tmp_path / PREVIOUS):
        rewritten(path, b'"format": "1"', b'"format": "7"')
    with pytest.raises(
        RunError, match="has format 7, but this version reads format 1: finish the run with the version"
    ):
        resumed(tmp_path)


def test_another_run_is_refused(tmp_path):
    start(tmp_path)
    with pytest.raises(RunError, match="belongs to another run"):
        resumed(tmp_path, identity="another specification")


def test_another_version_of_pytorch_is_warned_of(tmp_path):
    reference = start(tmp_path)
    version = torch.__version__.encode()
    for path in (tmp_path / CURRENT, tmp_path / PREVIOUS):
        rewritten(path, b'"torch": "' + version + b'"', b'"torch": "' + b"0" * len(version) + b'"')
    with pytest.warns(UserWarning, match="was written with PyTorch 000"):
        assert resumed(tmp_path) == reference


def test_the_file_is_an_ordinary_safetensors_file_with_aligned_numbers(tmp_path):
    from safetensors.torch import load_file

    start(tmp_path, algorithm=Everything(), at=40)
    assert load_file(tmp_path / CURRENT)["checksum"].shape == (16,)
    content = (tmp_path / CURRENT).read_bytes()
    [size] = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + size])
    assert size % 8 == 0
    widths = {"F64": 8, "I64": 8, "U64": 8, "U8": 1}
    entries = [entry for name, entry in header.items() if name != "__metadata__"]
    assert all(entry["data_offsets"][0] % widths[entry["dtype"]] == 0 for entry in entries)


def test_a_folder_that_cannot_be_made_ends_the_run_with_a_clear_error(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(RunError, match=r"cannot keep checkpoints in .*file/folder \(Not a directory\)"):
        simulation(FedAsync(concurrency=4)).run(checkpoints=Checkpoints(tmp_path / "file" / "folder", 0.0))


def test_a_full_disk_ends_the_run_and_what_was_stored_before_is_used(tmp_path, monkeypatch):
    reference = start(tmp_path)
    before = (tmp_path / CURRENT).read_bytes()
    write = storage.write

    def full(file, metadata, text, tensors):
        write(file, metadata, text, tensors[:2])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(storage, "write", full)
        with pytest.raises(RunError, match=r"cannot write a checkpoint to .* \(No space left on device\); what was"):
            simulation(FedAsync(concurrency=4)).run(checkpoints=Checkpoints(tmp_path, 0.0))
    assert (tmp_path / CURRENT).read_bytes() == before
    assert not (tmp_path / "checkpoint.safetensors.new").exists()  # the room that it took is free again
    assert resumed(tmp_path) == reference


def test_a_folder_that_disappears_is_made_again(tmp_path):
    folder = tmp_path / "c"

    def when(events):
        if events == 9:
            shutil.rmtree(folder)
        return True

    history = simulation(FedAsync(concurrency=4)).run(checkpoints=Checkpoints(folder, when=when))
    assert history == simulation(FedAsync(concurrency=4)).run()
    assert (folder / CURRENT).is_file()


class Single(Algorithm):
    """Two devices at a time, whose every upload is the new model."""

    async def scheduler(self, server):
        await server.keep_busy(2)

    async def updater(self, server):
        [upload] = await server.receive()
        server.commit(upload.model)


def cycle() -> list[Any]:
    loop: list[Any] = [1]
    loop.append(loop)
    return loop


class Number(int):
    pass


KEPT: dict[str, Callable[[], Any]] = {
    "tensor": lambda: torch.tensor([1.5, float("nan"), -0.0]),
    "half precision": lambda: torch.tensor([1.5, 2.5], dtype=torch.bfloat16),
    "no numbers": lambda: torch.zeros(0, 3),
    "one number": lambda: torch.tensor(3),
    "truth": lambda: torch.tensor([True, False]),
    "transposed": lambda: torch.arange(6.0).reshape(2, 3).t(),
    "part of a tensor": lambda: torch.arange(6.0)[2:4],
    "array": lambda: np.arange(6).reshape(2, 3),
    "Fortran order": lambda: np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "unsigned array": lambda: np.array([[2**64 - 1]], dtype=np.uint64),
    "complex array": lambda: np.array([1j, 2.0]),
    "words": lambda: np.array(["a", "bc"]),
    "empty array": lambda: np.zeros((0, 2)),
    "scalar": lambda: np.float32(0.1),
    "text": lambda: {"!": "sur\ud800rogate", "b": None},
    "numbers": lambda: [0.1, float("inf"), float("nan"), -0.0, 2**70, True],
    "long list": lambda: [*map(float, range(50))],
    "huge numbers": lambda: [2**80] * 40,
    "keys": lambda: {1: "a", "1": "b", (2, 3): {}, 0.5: None},
    "sets": lambda: {3, 1, 2, "a", (4, 5)},
    "frozen": lambda: (frozenset({1}), (), ((1,),)),
    "bounded": lambda: deque([1, 2], maxlen=2),
    "unbounded": lambda: deque([1, 2]),
    "generator": lambda: np.random.Generator(np.random.MT19937(1)),
    "PCG": lambda: np.random.default_rng(1),
    "PyTorch's generator": lambda: torch.Generator().manual_seed(1),
    "the same twice": lambda: (lambda one: {"a": one, "b": [one], "c": one})([1]),
    "a cycle": cycle,
}


def same(a: Any, b: Any) -> bool:
    """Say whether two kept values are alike in type and in every bit."""
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor):
        return (a.dtype, a.stride(), a.shape) == (b.dtype, b.stride(), b.shape) and same(
            a.contiguous().view(-1).view(torch.uint8).numpy(), b.contiguous().view(-1).view(torch.uint8).numpy()
        )
    if isinstance(a, np.ndarray | np.generic):
        alike = a.dtype == b.dtype and a.shape == b.shape and a.flags.c_contiguous == b.flags.c_contiguous
        return alike and a.tobytes() == b.tobytes()
    if isinstance(a, np.random.Generator):
        return a.random() == b.random()
    if isinstance(a, torch.Generator):
        return bool(torch.rand(1, generator=a) == torch.rand(1, generator=b))
    if isinstance(a, deque):
        return a == b and a.maxlen == b.maxlen
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return repr(a) == repr(b) if isinstance(a, float) else a == b


@pytest.mark.parametrize("name", [name for name in KEPT if name not in ("a cycle",)])
def test_plain_data_comes_back_with_its_types_and_bits(name, tmp_path):
    writer = storage.Writer()
    text = writer.text([KEPT[name](), KEPT[name]()])
    stored = tmp_path / "file"
    with stored.open("wb") as file:
        storage.write(file, {"of": "a test"}, text, writer.tensors)
    assert storage.read_metadata(stored) == {"of": "a test"}
    text, tensors = storage.read(stored)
    first, second = storage.Reader(tensors).full(json.loads(text))
    assert same(first, KEPT[name]())
    assert same(second, KEPT[name]())


def test_what_is_the_same_object_stays_the_same_object():
    writer = storage.Writer()
    array, tensor = np.zeros(2), torch.zeros(2)
    shared = {"list": cycle(), "a": array, "b": [array], "c": tensor, "d": tensor, "e": tensor.data}
    value = storage.Reader(writer.tensors).full(json.loads(writer.text([shared, shared["list"]])))
    assert value[0]["list"] is value[1]
    assert value[1][1] is value[1]
    assert value[0]["a"] is value[0]["b"][0]
    assert value[0]["c"] is value[0]["d"]


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "function": (lambda: print, "builtin_function_or_method"),
    "objects": (lambda: np.array([object()]), "array of object"),
    "subclass of a number": (lambda: Number(3), "Number"),
    "defaultdict": (lambda: defaultdict(list), "defaultdict"),
    "sparse": (lambda: torch.eye(2).to_sparse(), "tensor of type torch.float32 on cpu with layout torch.sparse_coo"),
    "parameter": (lambda: torch.nn.Parameter(torch.zeros(2)), "Parameter"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_stored_is_named(name):
    make, kind = REFUSED[name]
    with pytest.raises(RunError, match=f"a checkpoint cannot hold state.*a {re.escape(kind)}: keep"):
        storage.Writer().text(storage.Owned("state", make()))


class Keeps(Single):
    """Keeps what cannot be stored; where it is uploaded, the first of two uploads waits for the second."""

    where: str

    async def updater(self, server):
        uploads = await server.receive(2 if self.where == "upload" else 1)
        if self.where == "server":
            server.state["outer"] = [0, {"inner": print}]
        server.commit(uploads[0].model)

    async def device(self, device):
        snapshot = await device.download()
        if self.where == "device":
            device.state["x"] = print
        extra = {"x": print} if self.where == "upload" else {}
        trained = await device.train(snapshot.model)
        await device.upload(model=trained.model, based_on=snapshot, **extra)


@pytest.mark.parametrize(
    ("where", "place"),
    [
        ("server", "server.state['outer'][1]['inner']"),
        ("device", "device.state['x'] of device "),
        ("upload", "the upload['x'] of device "),
    ],
)
def test_the_place_of_what_cannot_be_stored_is_named(where, place, tmp_path, recwarn):
    world = {"trigger": {"kind": "continuous", "concurrency": 8}} if where == "upload" else {}
    with pytest.raises(RunError, match=re.escape(f"a checkpoint cannot hold {place}")):
        simulation(Keeps(where=where), world).run(checkpoints=Checkpoints(tmp_path, 0.0))
    gc.collect()
    assert [str(each.message) for each in recwarn] == []  # as of a coroutine that nobody awaits


class Loops(Single):
    """Never at the beginning of a turn."""

    async def updater(self, server):
        while True:
            [upload] = await server.receive()
            server.commit(upload.model)


def test_a_program_that_loops_inside_is_warned_of_and_the_run_goes_on(tmp_path):
    with pytest.warns(
        UserWarning, match="no checkpoint can be stored: the updater of .* did not wait at the"
    ) as found:
        history = simulation(Loops(), updates=80).run(checkpoints=Checkpoints(tmp_path, 0.0))
    assert len(found) == 1
    assert history == simulation(Loops(), updates=80).run()


class Forgetful(Single):
    """Changes what it should only read before it waits."""

    what: str

    async def updater(self, server):
        if self.what == "number":
            server.state["turns"] = server.state.get("turns", 0) + 1
        elif self.what == "tensor":
            server.state.setdefault("sum", torch.zeros(1)).add_(1)
        elif self.what == "rng":
            server.rng.random()
        await super().updater(server)


@pytest.mark.parametrize("what", ["number", "tensor", "rng"])
def test_a_program_that_acts_before_it_waits_is_warned_of_and_not_resumed_wrongly(what, tmp_path):
    with (
        pytest.warns(UserWarning, match="the updater of .* changes server.state, or draws from server.rng") as found,
        pytest.raises(Killed),
    ):
        simulation(Forgetful(what=what)).run(checkpoints=Checkpoints(tmp_path, when=killed_at(20)))
    assert len(found) == 1
    with pytest.raises(RunError, match="the updater of .* cannot be resumed: it changes server.state"):
        simulation(Forgetful(what=what)).run(checkpoints=Checkpoints(tmp_path, when=never))


class Moody(Single):
    """Its devices keep something outside their state."""

    async def device(self, device):
        snapshot = await device.download()
        trained = await device.train(snapshot.model, steps=next(STEPS))
        await device.upload(model=trained.model, based_on=snapshot)


STEPS = iter(range(1, 10**6))


def test_a_device_program_that_does_something_else_the_second_time_is_refused(tmp_path):
    with pytest.raises(Killed):
        simulation(Moody()).run(checkpoints=Checkpoints(tmp_path, when=killed_at(15)))
    with pytest.raises(
        RunError, match=r"device \d cannot be resumed: it waited for .*belongs into server.state or dev"
    ):
        simulation(Moody()).run(checkpoints=Checkpoints(tmp_path, when=never))
