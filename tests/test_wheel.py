"""The wheel alone, outside of the repository, with what it asks for and nothing else: what a user does with it."""

from __future__ import annotations

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import sysconfig
import textwrap
import threading
import tomllib
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import metadata
from pathlib import Path, PurePosixPath

import pytest
from own_parts import PARTS
from packaging.requirements import Requirement

from fl_core.world import Fault, Trigger

ROOT = Path(__file__).resolve().parent.parent
pytestmark = pytest.mark.thorough


class Mirror(BaseHTTPRequestHandler):
    """A proxy that knows the files of Fashion-MNIST, whatever the address."""

    def do_GET(self) -> None:
        path = ROOT / "data" / "fashion-mnist" / PurePosixPath(self.path).name
        self.send_response(200 if path.is_file() else 404)
        content = path.read_bytes() if path.is_file() else b""
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build it from a copy of the sources, without the network."""
    folder = tmp_path_factory.mktemp("build")
    for name in ("fl_core", "notebooks/fl_papers"):
        shutil.copytree(ROOT / name, folder / "source" / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / "source")
    options = ["--no-deps", "--no-build-isolation", "--no-index", "-q", "-w", str(folder)]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, str(folder / "source")], check=True)
    [built] = folder.glob("*.whl")
    return built


def asked_for(project: Path, *extras: str) -> Iterator[Path]:
    """Yield what is installed here of the packages that a project asks for, and of those that these ask for."""
    given = tomllib.loads(project.read_text(encoding="utf-8"))["project"]
    lines = [*given["dependencies"], *(line for extra in extras for line in given["optional-dependencies"][extra])]
    here, seen, todo = Path(sysconfig.get_path("purelib")), set(), list(map(Requirement, lines))
    while todo:
        wanted = todo.pop()
        if wanted.name in seen:
            continue
        seen.add(wanted.name)
        found = metadata.distribution(wanted.name)
        for each in map(Requirement, found.requires or ()):
            if each.marker is None or any(each.marker.evaluate({"extra": name}) for name in ("", *wanted.extras)):
                todo.append(each)
        yield from {here / file.parts[0] for file in found.files or () if file.parts[0] not in ("..", "__pycache__")}


class Place:
    """An environment with what the wheel asks for, or some extras, and the wheel; an empty folder, and a home."""

    def __init__(self, root: Path, wheel: Path | None, *extras: str) -> None:
        self.root, self.here, self.home = root, root / "here", root / "home"
        self.here.mkdir()
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(root / "venv")], check=True)
        self.python = root / "venv" / "bin" / "python"
        [self.packages] = (root / "venv").glob("lib/python*/site-packages")
        for path in set(asked_for(ROOT / "pyproject.toml", *extras)):
            (self.packages / path.name).symlink_to(path)
        pip = [sys.executable, "-m", "pip", "--python", str(self.python), "install", "-q", "--no-deps", "--no-index"]
        if wheel is not None:
            subprocess.run([*pip, str(wheel)], check=True)
        self.before = self.files()

    def call(self, *words: str, code: int = 0, **settings: str) -> str:
        ours = ("FL_CORE", "PYTHON", "XDG_")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        kept = {name: value for name, value in kept.items() if not name.lower().endswith("_proxy")}
        env = kept | {"HOME": str(self.home), "LC_ALL": "C.UTF-8"} | settings
        done = subprocess.run(words, cwd=self.here, env=env, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def command(self, *words: str, code: int = 0) -> str:
        return self.call(str(self.python.parent / "fl-core"), *words, code=code)

    def stock(self) -> None:
        """Have Fashion-MNIST there, as after the first use."""
        shutil.copytree(
            ROOT / "data/fashion-mnist", self.home / ".local/share/fl-core/fashion-mnist", dirs_exist_ok=True
        )

    def files(self) -> set[Path]:
        """Return what is in the environment, without what Python compiles."""
        return {path for path in (self.root / "venv").rglob("*") if "__pycache__" not in path.parts}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Place:
    return Place(tmp_path_factory.mktemp("wheel"), wheel, "cluster")


def test_it_says_that_it_is_typed(wheel: Path):
    assert "fl_core/py.typed" in zipfile.ZipFile(wheel).namelist()


def test_the_first_example_runs_in_an_empty_folder_and_fetches_the_data_once(place: Place):
    [example] = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    shorter = example.replace('"updates": 50', '"updates": 2')
    assert "fl-core data get" in place.command("data")
    with ThreadingHTTPServer(("127.0.0.1", 0), Mirror) as mirror:
        threading.Thread(target=mirror.serve_forever, daemon=True).start()
        said = place.call(str(place.python), "-c", shorter, http_proxy=f"http://127.0.0.1:{mirror.server_port}")
        mirror.shutdown()
    assert "train-images-idx3-ubyte.gz of fashion-mnist is fetched now, once, and kept in" in said
    kept = place.home / ".local" / "share" / "fl-core" / "fashion-mnist"
    assert len(list(kept.glob("*.gz"))) == 4
    again = place.call(str(place.python), "-c", shorter)  # no proxy: nothing is fetched
    assert "fetched" not in again
    assert 0 < float(again) < 1
    labels = kept / "t10k-labels-idx1-ubyte.gz"
    labels.write_bytes(b"damaged")
    damaged = place.call(str(place.python), "-c", shorter, code=1)
    assert "'fl-core data get fashion-mnist --again' fetches it again" in damaged
    shutil.copy(ROOT / "data" / "fashion-mnist" / labels.name, labels)


def test_commands_work_there_write_to_the_user_and_say_nothing_of_git(place: Place):
    words = ["run", "-a", "fedasync", "-s", "budget.updates=2", "-s", "model=linear", "--json"]
    result = json.loads(place.command(*words))
    assert result["provenance"]["commit"] == "unknown"
    assert list((place.home / ".local/share/fl-core/cache/results").glob("*.json.gz"))
    said = place.command("doctor") + place.command("data") + place.command("list")
    assert "git" not in re.findall(r"\w+", said.replace("github", ""))
    assert "make setup" not in said
    assert "REAL data" in said
    assert place.files() == place.before
    assert list(place.here.iterdir()) == []


SHORT = {
    "bring_your_own": {"SAMPLES": 300, "SECONDS": 60.0},
    "cluster": {"UPDATES": 10},
    "your_own": {"SECONDS": 150.0},
}
"""Parameters with which a chapter takes seconds."""


@pytest.mark.parametrize("chapter", SHORT)
def test_the_chapters_on_what_is_yours_run_as_scripts(chapter: str, place: Place):
    """Own algorithm, data, model and world in two processes, compared; files and data sets; cluster and testbed."""
    place.stock()
    cells = json.loads((ROOT / f"notebooks/5_your_own/{chapter}.ipynb").read_text(encoding="utf-8"))["cells"]
    code = "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    for name, value in SHORT[chapter].items():
        code, count = re.subn(rf"^{name} = [\d.]+", f"{name} = {value}", code, flags=re.MULTILINE)
        assert count == 1
    script = place.here / f"{chapter}.py"
    script.write_text(f"if __name__ == '__main__':\n{textwrap.indent(code, '    ')}\n", encoding="utf-8")
    place.call(str(place.python), script.name, MPLBACKEND="agg")
    script.unlink()


def test_what_the_command_line_makes_is_made_there(place: Place):
    place.stock()
    place.command(
        "run", "-a", "fedbuff", "-s", "budget.updates=2", "-s", "model=linear", "--save-model", "a.safetensors"
    )
    (place.here / "a.yaml").write_text(
        "algorithm: {name: fedbuff, buffer: 2}\ntraining: {lr: 1e-2}\nbudget: {updates: 2}\n"
    )
    spec = json.loads(place.command("run", "a.yaml", "--seed", "7", "--print-spec"))
    assert (spec["seed"], spec["training"]["lr"]) == (7, 0.01)
    assert "no cuda:9 here" in place.command("run", "a.yaml", "--device", "cuda:9", code=2)
    words = {"_FL_CORE_COMPLETE": "complete_bash", "COMP_WORDS": "fl-core reg", "COMP_CWORD": "1"}
    assert place.call(str(place.python.parent / "fl-core"), **words).strip() == "regenerate"
    place.command("regenerate", "fedasync-tab2", "--table", "latex", "--output", "tables")
    assert {".tex", ".csv", ".html", ".md"} <= {path.suffix for path in (place.here / "tables").iterdir()}
    assert "pip install pyarrow" in place.command("regenerate", "fedasync-tab2", "--table", "parquet", code=2)
    shown = ("list", "plan fedasync-fig2 --profile smoke", "data", "verify --sample 1", "doctor")
    for words in (*shown, "replay a.yaml --at 3", "run a.yaml --resume", "data get fashion-mnist", "results pack"):
        assert "{" in place.command(*words.split(), "--json")
    assert "undecided" in place.command("claims", "FEDASYNC-C03", "--json")
    assert "9 runs are missing" in place.command("work", "fedasync-fig2", "--profile", "smoke", "--minutes", "0.001")
    assert "the book is built from a checkout" in place.command("book", code=2)
    loaded = "import fl_core; print(fl_core.load_model('a.safetensors'))"
    assert "Linear" in place.call(str(place.python), "-c", loaded)


MORE = """
from typing import Literal
import numpy as np
import torch
from fl_core.datasets import Partition
from fl_core.formulas.messages import Compressor, Layout
from fl_core.formulas.staleness import StalenessWeight
from fl_core.world import Availability, Calendar, Fault, Graph, Message, Spread, Trigger

class Halved(Spread):
    kind: Literal["halved"] = "halved"

    def draw(self, devices, rng, direction):
        return np.where(np.arange(devices) % 2, 1e6, 5e5)

class Nights(Availability):
    kind: Literal["nights"] = "nights"

    def draw(self, devices, rng):
        return Calendar([((0.0, 50.0),)], 100.0, rng.uniform(0, 100, devices))

class Loop(Graph):
    kind: Literal["loop"] = "loop"

    def edges(self, servers, rng):
        return [(server, (server + 1) % servers) for server in rng.permutation(servers)]

class Steps(StalenessWeight):
    kind: Literal["steps"] = "steps"

    def __call__(self, u):
        return np.where(np.asarray(u) < 3, 1.0, 0.5)

class Front(Compressor):
    kind: Literal["front"] = "front"

    def _layout(self, parts, dtype):
        return Layout(sum(size // 2 for size in parts))

    def _send(self, vector, parts, generator):
        kept = [part[: size // 2] for part, size in zip(vector.split(parts), parts)]
        return torch.cat(kept), np.empty(0, np.uint64)

    def _receive(self, values, codes, parts):
        kept = values.split([size // 2 for size in parts])
        return torch.cat([torch.cat([x, x.new_zeros(size - len(x))]) for x, size in zip(kept, parts)])

    def ideal_bits(self, d, dtype=torch.float32, segments=None):
        return 16.0 * d

class Thirds(Partition):
    kind: Literal["thirds"] = "thirds"

    def divide(self, labels, devices, rng, owners):
        return np.array_split(np.argsort(labels, kind="stable"), 3) * (devices // 3)
"""


def test_parts_of_a_script_and_of_an_installed_package_have_names_there(place: Place, tmp_path: Path):
    place.stock()
    [example] = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    shown = [textwrap.dedent(str(each.__doc__).partition("::\n")[2]) for each in (Fault, Trigger)]
    mine = "\n".join([example.partition("result = ")[0], PARTS, MORE, *shown])
    run = ["run", "-a", "halving", "-s", "budget.updates=2", "-s", "model=mlp", "-s", "dataset=moons"]
    run += ["-s", "world.devices=12", "-s", "world.compute=slow(most=3)", "-s", "partition=thirds"]
    run += ["-s", "preprocessing=turned", "-s", "world.trigger=cyclic", "-s", "world.availability=nights"]
    run += ["-s", 'world.faults=["erased(probability=0.5)"]', "-s", "world.network.up_bits_per_second=halved"]
    (place.here / "mine.py").write_text(mine)
    place.command(*run, "--import", "mine.py")
    assert "unknown algorithm 'halving'" in place.command(*run, code=2)
    (tmp_path / "my_parts.py").write_text(mine)
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "my-parts"\nversion = "1"\n[tool.setuptools]\npy-modules = ["my_parts"]\n'
        '[project.entry-points."fl_core.plugins"]\nmine = "my_parts"\n'
    )
    pip = [sys.executable, "-m", "pip", "--python", str(place.python), "install", "-q", "--no-deps", "--no-index"]
    subprocess.run([*pip, "--no-build-isolation", str(tmp_path)], check=True)
    place.command(*run)
    more = ["-s", "budget.updates=3", "-s", "model=linear", "-s", "world.devices=12"]
    edges = ["-s", "algorithm.discount=steps", "-s", 'world.clusters={"servers": 3, "graph": "loop"}']
    place.command("run", "-a", "async_sdfeel", *edges, *more)
    place.command("run", "-a", "fedper", "-s", "algorithm.compressor=front", *more)
    check = "import fl_core, my_parts; print(len(fl_core.check_algorithm(my_parts.Halving())), 'promises kept')"
    assert "23 promises kept" in place.call(str(place.python), "-c", check)


def test_the_cell_for_a_machine_that_has_nothing_makes_one_on_which_a_chapter_runs(tmp_path: Path):
    """As on Colab: a notebook alone, packages but not ours; after a restart only what was installed counts."""
    fresh = Place(tmp_path, None, "cluster", "book")
    (fresh.packages / "pip").symlink_to(Path(sysconfig.get_path("purelib"), "pip"))
    bare = tmp_path / "bare"
    subprocess.run(["git", "init", "-q", "--bare", str(bare)], check=True)
    take = ["git", "-C", str(bare), "fetch", "-q", "--depth", "1", f"file://{ROOT}", "HEAD:refs/heads/next"]
    subprocess.run(take, check=True)
    words = runpy.run_path(str(ROOT / "book/_ext/repository.py"))["FRESH"]
    text = words.format(branch="next", url=f"file://{bare}", name="a-book").replace("/content", str(fresh.here))
    [cell] = re.findall(r"```text\n(.*?)```", text, re.DOTALL)
    cells = json.loads((ROOT / "notebooks/0_start/start_here.ipynb").read_text(encoding="utf-8"))["cells"]
    code = ["".join(each["source"]) for each in cells if each["cell_type"] == "code"]
    (fresh.here / "page.ipy").write_text("\n\n".join([cell, *code]), encoding="utf-8")
    offline = {"PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0", "MPLBACKEND": "agg"}
    fresh.call(str(fresh.python), "-m", "IPython", "page.ipy", **offline)
    where = fresh.call(str(fresh.python), "-c", "import fl_core, fl_papers; print(fl_core.__file__)")
    assert where.strip() == str(fresh.here / "a-book/fl_core/__init__.py")
