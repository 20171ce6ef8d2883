"""Places that cannot be written are found before anything is computed; what is finished is never lost."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from commands import TINY, invoke, refused
from filelock import FileLock

from fl_core.experiments import grid, store
from fl_core.experiments.run import run
from fl_core.experiments.spec import RunSpec
from fl_core.experiments.store import Store, default_store, read
from fl_core.runtime.checkpoint import CURRENT, LOCK, PREVIOUS

pytestmark = pytest.mark.usefixtures("few_images", "results")
SPEC = RunSpec(
    algorithm={"name": "fedasync", "concurrency": 2}, model="linear", world={"devices": 5}, budget={"updates": 5},
    partition="iid(samples_per_device=50)",
)  # fmt: skip


def full(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Have no room left for any file in `folder`."""
    write = store.write_atomically

    def no_room(path: Path, content: bytes) -> None:
        if path.is_relative_to(folder):
            raise OSError(errno.ENOSPC, "No space left on device")
        write(path, content)

    for module in (store, grid):
        monkeypatch.setattr(module, "write_atomically", no_room, raising=False)


COMMANDS = [
    ["run", *TINY],
    ["regenerate", "fedasync-fig5", "-P", "smoke", "-j", "1", "-o", "figures"],
    ["work", "fedasync-fig5", "--profile", "smoke"],
]


@pytest.mark.parametrize("words", COMMANDS, ids=[words[0] for words in COMMANDS])
@pytest.mark.parametrize("kind", ["file", "full", "nowhere"])
def test_a_store_that_takes_nothing_is_found_before_the_run(words, kind, results: Path, monkeypatch):
    if kind == "file":
        results.write_text("in the way")
    elif kind == "full":
        full(monkeypatch, results)
    else:
        results = Path("/proc/nowhere/results")
        monkeypatch.setenv("FL_CORE_RESULTS", str(results))
    monkeypatch.setattr("fl_core.runtime.simulation.Simulation.run", lambda *_, **__: pytest.fail("it began"))
    assert f"results cannot be written to {results}: " in refused(*words)
    assert not results.is_dir()


def test_a_result_that_cannot_be_saved_is_kept_elsewhere_and_the_file_is_named(results: Path, monkeypatch):
    result = run(SPEC, executor="sequential")
    full(monkeypatch, results)
    with pytest.raises(store.RunError, match="finished, but .* takes no file .*No space left.*it is kept in") as said:
        default_store().save(result)
    [kept] = Path.cwd().glob("*.json.gz")
    assert str(kept) in str(said.value)
    assert read(kept).history.to_dict() == result.history.to_dict()
    full(monkeypatch, Path("/"))
    with pytest.raises(store.RunError, match="and neither does any other folder"):
        default_store().save(result)


def test_an_output_that_cannot_be_saved_is_kept_elsewhere_and_the_store_has_it_too(results: Path, monkeypatch):
    Path("there").mkdir()
    (Path("there") / "out.json").write_text("old")
    monkeypatch.setattr(store, "check_writable", lambda *_: None)
    full(monkeypatch, Path("there"))
    assert "out.json cannot be written (No space left on device); it is kept in " in refused(
        "run", *TINY, "--out", "there/out.json", "--force"
    )
    assert len(list(Path.cwd().glob("*.json"))) == 1


@pytest.mark.parametrize("name", ["/dev/full", "/dev/null", "pipe", "link"])
def test_force_replaces_regular_files_only(name: str):
    os.mkfifo("pipe")
    Path("link").symlink_to("/dev/full")
    before = os.lstat(name)
    assert "is no regular file and is not replaced" in refused("run", *TINY, "--out", name, "--force")
    assert os.lstat(name).st_mode == before.st_mode


def test_a_page_does_not_replace_a_pipe():
    os.mkfifo("page.ipynb")
    assert "is no regular file" in refused("regenerate", "start_here", "-o", "page.ipynb")


@pytest.mark.parametrize("kind", ["folder", "pipe"])
def test_what_is_no_file_in_place_of_a_checkpoint_is_refused(kind: str):
    place = default_store().checkpoints(SPEC).folder
    place.mkdir(parents=True)
    for name in (CURRENT, PREVIOUS):
        os.mkfifo(place / name) if kind == "pipe" else (place / name).mkdir()
    done = invoke("run", *TINY, "--resume")
    [line] = done.stderr.splitlines()
    assert done.exit_code == 2
    assert "is no regular file" in line
    assert f"delete {place} to begin again" in line


def test_a_second_process_on_a_checkpointed_run_is_told_so():
    place = default_store().checkpoints(SPEC).folder
    place.mkdir(parents=True)
    with FileLock(place / LOCK):
        said = refused("run", *TINY, "--checkpoint-every", "0s")
    assert said.startswith("another process computes this run and keeps its state in ")


def test_a_pipe_among_the_records_does_not_hang(results: Path):
    results.mkdir()
    os.mkfifo(results / f"{SPEC.resolved().hash}.json.gz")
    os.mkfifo(results / "packed.jsonl.xz")
    with pytest.warns(UserWarning, match="is no regular file"):
        assert Store(results, results).get(SPEC) is None
    with pytest.warns(UserWarning, match="is no regular file"):
        assert list(Store(results, results)) == []
