"""The wheel alone, outside of the repository: its first use in an empty folder, and where it writes."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path, PurePosixPath

import pytest

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


class Place:
    """An environment with the wheel and the packages of this one, an empty folder, and a home."""

    def __init__(self, root: Path, wheel: Path) -> None:
        self.root, self.here, self.home = root, root / "here", root / "home"
        self.here.mkdir()
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(root / "venv")], check=True)
        self.python = root / "venv" / "bin" / "python"
        [self.packages] = (root / "venv").glob("lib/python*/site-packages")
        (self.packages / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
        pip = [sys.executable, "-m", "pip", "--python", str(self.python), "install", "-q", "--no-deps", "--no-index"]
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

    def files(self) -> set[Path]:
        """Return what is in the environment, without what Python compiles."""
        return {path for path in (self.root / "venv").rglob("*") if "__pycache__" not in path.parts}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Place:
    return Place(tmp_path_factory.mktemp("wheel"), wheel)


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
