"""Downloads against a local server, verification, and archives that are damaged or mean harm."""

from __future__ import annotations

import hashlib
import io
import resource
import socket
import stat
import subprocess
import sys
import tarfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from fl_core.datasets import archives
from fl_core.datasets.archives import decoding, fetch, open_zip, read_member, tar_members, verify
from fl_core.datasets.base import Archive
from fl_core.errors import DataError

CONTENT = np.random.default_rng(0).bytes(600_000)
SHA256 = "sha256:" + hashlib.sha256(CONTENT).hexdigest()
MD5 = "md5:" + hashlib.md5(CONTENT).hexdigest()


class Server(ThreadingHTTPServer):
    """Serves `content` at /file; `ranges`: whether it can continue; `cut`: bytes after which it breaks off."""

    content, ranges, cut = CONTENT, True, None
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[str | None] = []  # the Range of each request
        self.released = threading.Event()
        self.released.set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/file"

    def archive(self, size: int = len(CONTENT), checksum: str = SHA256) -> Archive:
        return Archive("file.zip", size, checksum, self.url)


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        asked = self.headers.get("Range")
        self.server.asked.append(asked)
        self.server.released.wait()
        content, start = self.server.content, 0
        if self.path != "/file":
            return self.send_error(404)
        if asked and self.server.ranges:
            start = int(asked.removeprefix("bytes=").removesuffix("-"))
            if start >= len(content):
                return self.send_error(416)
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        self.wfile.write(content[start : self.server.cut])

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "*")
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.suffix != ".lock"}


# --- download ---


@pytest.mark.parametrize("checksum", [SHA256, MD5, ""])
def test_a_download_appears_under_its_name_and_reports_progress(
    server: Server, tmp_path: Path, checksum: str
) -> None:
    steps: list[tuple[int, int]] = []
    folder = tmp_path / "new" / "cifar10"
    path = fetch(server.archive(checksum=checksum), folder, progress=lambda *step: steps.append(step))
    assert path == folder / "file.zip"
    assert path.read_bytes() == CONTENT
    assert files(folder) == {"file.zip"}
    assert steps[-1] == (len(CONTENT), len(CONTENT))
    assert steps == sorted(steps)


def test_a_file_that_is_there_is_not_fetched_unless_asked_for(server: Server, tmp_path: Path) -> None:
    fetch(server.archive(), tmp_path)
    fetch(server.archive(), tmp_path)
    assert len(server.asked) == 1
    fetch(server.archive(), tmp_path, again=True)
    assert server.asked == [None, None]


def test_a_damaged_file_is_reported_and_replaced_only_on_request(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.zip").write_bytes(b"x" * len(CONTENT))
    with pytest.raises(DataError, match="damaged .*'fl-core data get cifar10 --again'"):
        fetch(server.archive(), tmp_path, name="cifar10")
    assert fetch(server.archive(), tmp_path, again=True).read_bytes() == CONTENT


def test_an_interrupted_download_goes_on_where_it_stopped(server: Server, tmp_path: Path) -> None:
    server.cut = 250_000
    with pytest.raises(DataError, match="ended after 250000 of 600000 bytes; the same command goes on"):
        fetch(server.archive(), tmp_path)
    assert files(tmp_path) == {"file.zip.partial"}
    server.cut = None
    assert fetch(server.archive(), tmp_path).read_bytes() == CONTENT
    assert server.asked == [None, "bytes=250000-"]
    assert files(tmp_path) == {"file.zip"}


def test_a_server_that_cannot_continue_sends_everything_again(server: Server, tmp_path: Path) -> None:
    server.ranges = False
    (tmp_path / "file.zip.partial").write_bytes(CONTENT[:1000])
    assert fetch(server.archive(), tmp_path).read_bytes() == CONTENT


@pytest.mark.parametrize("size", [len(CONTENT), 0])
def test_a_complete_partial_file_only_has_to_be_verified(server: Server, tmp_path: Path, size: int) -> None:
    (tmp_path / "file.zip.partial").write_bytes(CONTENT)
    assert fetch(server.archive(size), tmp_path).read_bytes() == CONTENT
    assert server.asked == ([] if size else [f"bytes={len(CONTENT)}-"])


def test_a_partial_file_that_is_too_long_is_dropped(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.zip.partial").write_bytes(CONTENT + b"x")
    assert fetch(server.archive(), tmp_path).read_bytes() == CONTENT
    assert server.asked == [None]


def test_a_wrong_partial_file_is_deleted_and_the_next_try_succeeds(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.zip.partial").write_bytes(b"x" * 1000)
    with pytest.raises(DataError, match=f"SHA256 [0-9a-f]+, expected {SHA256[7:]}.*deleted"):
        fetch(server.archive(), tmp_path)
    assert files(tmp_path) == set()
    assert fetch(server.archive(), tmp_path).read_bytes() == CONTENT


def test_a_wrong_download_never_replaces_the_file_that_is_there(server: Server, tmp_path: Path) -> None:
    fetch(server.archive(), tmp_path)
    server.content = CONTENT[:-1] + b"?"
    with pytest.raises(DataError, match="not file.zip as published"):
        fetch(server.archive(), tmp_path, again=True)
    assert files(tmp_path) == {"file.zip"}
    assert (tmp_path / "file.zip").read_bytes() == CONTENT


def test_a_wrong_size_is_noticed_without_a_checksum(server: Server, tmp_path: Path) -> None:
    server.content = CONTENT + b"more"
    with pytest.raises(DataError, match="600004 bytes, expected 600000"):
        fetch(server.archive(checksum=""), tmp_path)
    assert files(tmp_path) == set()


def test_an_error_of_the_server_names_address_answer_and_way_out(server: Server, tmp_path: Path) -> None:
    missing = Archive("file.zip", 0, SHA256, server.url + "s")
    with pytest.raises(DataError, match=f"/files: the server answers 404 .*copy it to {tmp_path / 'file.zip'}"):
        fetch(missing, tmp_path)


def test_a_refused_connection_names_address_and_way_out(server: Server, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(DataError, match=f":{port}/x cannot be reached .*refused.*copy it to {tmp_path / 'file.zip'}"):
        fetch(Archive("file.zip", 0, "", f"http://127.0.0.1:{port}/x"), tmp_path)


def test_without_network_the_message_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise socket.gaierror(-3, "Temporary failure in name resolution")

    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(socket, "getaddrinfo", fail)
    with pytest.raises(
        DataError, match=r"https://example.org/x cannot be reached \(.*name resolution\); if there is no"
    ):
        fetch(Archive("x", 0, "", "https://example.org/x"), tmp_path)


@pytest.mark.parametrize("url", ["", "file:///etc/hostname", "ftp://example.org/x", "data:,x", "/etc/hostname"])
def test_only_web_addresses_are_fetched(tmp_path: Path, url: str) -> None:
    with pytest.raises(DataError, match="cannot be downloaded .*copy it to"):
        fetch(Archive("x", 0, "", url), tmp_path)
    assert files(tmp_path) == set()


def test_a_full_disk_is_not_mistaken_for_the_network(server: Server, tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, before[1]))  # writing more fails as on a full disk
    try:
        with pytest.raises(DataError, match="file.zip cannot be written .File too large.; make room"):
            fetch(server.archive(), tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert fetch(server.archive(), tmp_path).read_bytes() == CONTENT


def test_a_folder_that_cannot_be_made_is_named(server: Server, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(DataError, match="taken/file.zip cannot be written"):
        fetch(server.archive(), tmp_path / "taken")


def test_of_two_processes_one_downloads_and_both_get_the_file(server: Server, tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path\n"
        "from fl_core.datasets.archives import fetch; from fl_core.datasets.base import Archive\n"
        f"print('started', flush=True); fetch({server.archive()!r}, Path(sys.argv[1]))\n"
    )
    server.released.clear()  # nobody finishes before both are there
    command = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other, ThreadPoolExecutor() as pool:
        assert other.stdout is not None
        assert other.stdout.readline() == "started\n"
        ours = pool.submit(fetch, server.archive(), tmp_path)
        while not (server.asked or ours.done()):
            time.sleep(0.01)
        server.released.set()
        assert ours.result() == tmp_path / "file.zip"
        assert other.communicate()[0] == ""
    assert other.returncode == 0
    assert server.asked == [None]
    assert (tmp_path / "file.zip").read_bytes() == CONTENT


# --- verification ---


def test_what_a_checkout_brings_along_comes_without_one_from_the_search_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = Archive(
        "letters.bin", 4, f"sha256:{hashlib.sha256(b'abcd').hexdigest()}", "http://127.0.0.1:9/letters.bin"
    )
    for name, content in (("first", b"abcx"), ("second", b"abcd")):
        (tmp_path / name / "letters").mkdir(parents=True)
        (tmp_path / name / "letters" / good.file).write_bytes(content)
    monkeypatch.setattr(archives, "CHECKOUT", False)
    monkeypatch.setenv("FL_CORE_DATA_PATH", f"{tmp_path / 'first'}:{tmp_path / 'second'}")
    with pytest.warns(match="letters.bin of letters is fetched now"):
        verify(good, tmp_path / "own" / "letters", remedy="restore it")
    assert (tmp_path / "own" / "letters" / good.file).read_bytes() == b"abcd"


def test_verification_accepts_the_published_file_only(tmp_path: Path) -> None:
    archive = Archive("file.zip", len(CONTENT), MD5)
    with pytest.raises(DataError, match="file.zip is missing; 'fl-core data get emnist-mnist'"):
        verify(archive, tmp_path, "emnist-mnist")
    (tmp_path / "file.zip").write_bytes(CONTENT)
    verify(archive, tmp_path)
    (tmp_path / "file.zip").write_bytes(CONTENT[:-1])
    with pytest.raises(
        DataError, match=f"file.zip is damaged .599999 bytes, expected 600000.*get {tmp_path.name} --again"
    ):
        verify(archive, tmp_path)
    changed = CONTENT[:-1] + b"?"
    (tmp_path / "file.zip").write_bytes(changed)
    with pytest.raises(DataError, match=f"MD5 {hashlib.md5(changed).hexdigest()}, expected {MD5[4:]}"):
        verify(archive, tmp_path)


# --- archives that are not what they should be ---


def member(name: str, content: bytes = b"content", kind: bytes = tarfile.REGTYPE, target: str = "") -> tuple:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, target, len(content) if kind == tarfile.REGTYPE else 0
    return info, content


def write_tar(path: Path, *members: tuple) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for info, content in members:
            archive.addfile(info, io.BytesIO(content))
    return path


def read_tar(path: Path, wanted: Callable[[str], bool] = lambda name: True, limit: int = 1000) -> dict[str, bytes]:
    with decoding(path, "some-set"):
        return dict(tar_members(path, wanted, limit))


def test_wanted_members_are_read_into_memory_and_nothing_is_written(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar.gz", member("./a/x", b"1"), member("a/y", b"2"), member("a/z", b"3" * 2000))
    assert read_tar(path, lambda name: name != "a/z") == {"a/x": b"1", "a/y": b"2"}
    assert files(tmp_path) == {"a.tar.gz"}


@pytest.mark.parametrize(
    "bad",
    [
        member("/tmp/escaped"),
        member("../escaped"),
        member("a/../../escaped"),
        member("..\\escaped"),
        member("a/x", kind=tarfile.SYMTYPE, target="/etc/passwd"),
        member("a/x", kind=tarfile.LNKTYPE, target="a/first"),
        member("a/x", kind=tarfile.CHRTYPE),
        member("a/x", kind=tarfile.FIFOTYPE),
        member("a/x", b"0" * 1001),
    ],
    ids=["absolute", "above", "hidden", "backslash", "symlink", "hardlink", "device", "pipe", "bomb"],
)
def test_a_tar_that_means_harm_is_refused(tmp_path: Path, bad: tuple) -> None:
    path = write_tar(tmp_path / "a.tar.gz", member("a/first"), bad)
    with pytest.raises(DataError, match="a.tar.gz is damaged or not what it should be .*get some-set --again"):
        read_tar(path)
    assert files(tmp_path) == {"a.tar.gz"}


def zip_link(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.create_system, info.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
    return info


@pytest.mark.parametrize(
    ("bad", "content"),
    [
        (zipfile.ZipInfo("/tmp/escaped"), b""),
        (zipfile.ZipInfo("../escaped"), b""),
        (zipfile.ZipInfo("a/../../escaped"), b""),
        (zip_link("a/x"), b"/etc/passwd"),
        (zipfile.ZipInfo("first"), b"0" * 1001),
    ],
    ids=["absolute", "above", "hidden", "symlink", "bomb"],
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_zip_that_means_harm_is_refused(tmp_path: Path, bad: zipfile.ZipInfo, content: bytes) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("first", b"content")
        archive.writestr(bad, content)
    with (
        pytest.raises(DataError, match="a.zip is damaged or not what it should be"),
        decoding(path, "some-set"),
        open_zip(path) as archive,
    ):
        read_member(archive, "first", limit=1000)
    assert files(tmp_path) == {"a.zip"}


def test_a_member_that_claims_to_be_small_cannot_grow(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("first", b"0" * 10_000_000)
    honest = (10_000_000).to_bytes(4, "little")
    path.write_bytes(path.read_bytes().replace(honest, (1000).to_bytes(4, "little")))
    with pytest.raises(DataError, match="Bad CRC-32"), decoding(path, "some-set"), open_zip(path) as archive:
        read_member(archive, "first", limit=1000)


def test_no_file_is_not_a_damaged_file_of_another_kind(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="No such file"):
        read_tar(tmp_path / "a.tar.gz")
