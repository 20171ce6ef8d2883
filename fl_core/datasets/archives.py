"""Published archives: fetched, verified, and read without unpacking anything to disk.

Nothing in an archive can choose where bytes go, because no member is ever written: readers ask for the members that
they know by name and get their bytes. What no published archive contains (links, devices, absolute names, names with
``..``, members far above their known size) is refused all the same: such a file is not what it says it is.
"""

from __future__ import annotations

import gzip
import hashlib
import http.client
import io
import os
import shutil
import stat
import tarfile
import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import numpy as np
from filelock import FileLock

from fl_core import CHECKOUT
from fl_core.datasets.base import Archive
from fl_core.errors import DataError

Progress = Callable[[int, int], None]
"""Called with the bytes that are there and the bytes in all (0: not known)."""

TIMEOUT_SECONDS = 30  # of silence, not of the whole download
BLOCK = 1 << 18
LARGEST_ARRAY = 1 << 28
"""Bytes of an array in an archive that a reader takes in."""
EXPANSION = 100
"""How many times its own size a compressed archive may unpack to: texts reach ten, zeros a thousand."""
CONTINUE = "the same command goes on from there"


def fetch(
    archive: Archive, folder: Path, *, again: bool = False, progress: Progress | None = None, name: str = "",
    copies: Iterable[Path] = (),
) -> Path:  # fmt: skip
    """Download `archive` into `folder`, unless it is there, and return its path; a whole one of `copies` is copied.

    The file appears under its name only after its size and checksum have been found right; until then it is
    ``<file>.partial``, and an interrupted download goes on from there where the server allows it. Of several
    processes that fetch the same file one downloads and the others wait for it. With `again` it is downloaded even if
    it is there, from the first byte; the old file stays until the new one is complete. `name` is that of the data set
    in messages (default: of the folder).
    """
    path = folder / archive.file
    partial = path.with_name(f"{path.name}.partial")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{path}.lock"):
            if path.exists() and not again:
                verify(archive, folder, name)
                return path
            if again:
                partial.unlink(missing_ok=True)
            if whole := [copy for copy in copies if copy.is_file() and not _fault(archive, copy)]:
                shutil.copyfile(whole[0], partial)
            else:
                _download(archive, path, partial, progress)
            if fault := _fault(archive, partial):
                partial.unlink()
                what = f"what {archive.url} sent is not {archive.file} as published ({fault}); it was deleted"
                raise DataError(f"{what}. Try once more; if it happens again, {_by_hand(path)}")
            os.replace(partial, path)
    except OSError as error:
        how = "make room, or set FL_CORE_DATASETS to another folder"
        raise DataError(f"{path} cannot be written ({error.strerror or error}); {how}") from error
    return path


def verify(archive: Archive, folder: Path, name: str = "", remedy: str = "") -> None:
    """Check that `archive` is in `folder`, whole: its size and its checksum, as far as they are known.

    What a checkout brings along, and therefore has another `remedy`, is fetched where the package is installed alone:
    from a folder of the search path, if one has it.
    """
    from fl_core.datasets.registry import search_path  # which imports this module

    path, name = folder / archive.file, name or folder.name
    if remedy and not CHECKOUT:
        remedy = ""
        if not path.is_file():
            warnings.warn(f"{archive.file} of {name} is fetched now, once, and kept in {folder}", stacklevel=2)
            fetch(archive, folder, name=name, copies=(root / folder.name / archive.file for root in search_path()))
    if not path.is_file():
        how = f"'fl-core data get {name}' says how to obtain it"
        raise DataError(f"data file {path} is missing; {remedy or how}")
    if fault := _fault(archive, path):
        raise DataError(f"data file {path} is damaged ({fault}); {remedy or _remedy(name)}")


@contextmanager
def decoding(path: Path, name: str) -> Iterator[None]:
    """Turn whatever goes wrong while `path`, an archive of the data set `name`, is decoded into one DataError."""
    try:
        yield
    except Exception as error:  # on damaged bytes, decoders raise anything
        what = f"{type(error).__name__}: {error}"
        raise DataError(f"data file {path} is damaged or not what it should be ({what}); {_remedy(name)}") from error


def tar_members(path: Path, wanted: Callable[[str], bool], limit: int) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of the `wanted` files of a ``tar.gz`` or ``tar``, in their order, in one pass.

    `wanted` is asked about names without a leading ``./``; none of these files may have more than `limit` bytes, and
    a large archive not more than :data:`EXPANSION` times its own. A damaged or unsafe archive raises many kinds of
    errors: to be called inside :func:`decoding`.
    """
    left = EXPANSION * path.stat().st_size + LARGEST_ARRAY
    with path.open("rb") as file, gzip.open(file) if file.peek(2)[:2] == b"\x1f\x8b" else file as stream:
        with tarfile.open(fileobj=stream, mode="r|", bufsize=BLOCK) as archive:
            for member in archive:
                name = _safe(member.name)
                _require(member.isfile() or member.isdir(), f"member {name!r} is a link or a device")
                left -= member.size
                _require(left >= 0, f"it unpacks to more than {EXPANSION} times its size")
                if member.isfile() and wanted(name):
                    _require_size(name, member.size, limit)
                    content = archive.extractfile(member)
                    yield name, content.read() if content else b""
        while block := stream.read(BLOCK):  # the checksum of the whole stream is at its end
            left -= len(block)
            _require(left >= 0, f"it unpacks to more than {EXPANSION} times its size")


def open_zip(path: Path) -> zipfile.ZipFile:
    """Open a zip archive whose names are all safe and none of whose members is a link; inside :func:`decoding`."""
    archive = zipfile.ZipFile(path)
    for member in archive.infolist():
        _safe(member.filename)
        _require(not stat.S_ISLNK(member.external_attr >> 16), f"member {member.filename!r} is a link")
    return archive


def read_arrays(path: Path, **forms: tuple[str, tuple[int | None, ...]]) -> list[np.ndarray]:
    """Return arrays of an ``npz``, each of its dtype and shape (None: any length); inside :func:`decoding`."""
    found = []
    with open_zip(path) as archive:
        for name, (dtype, shape) in forms.items():
            content = io.BytesIO(read_member(archive, f"{name}.npy", LARGEST_ARRAY))
            array = np.lib.format.read_array(content, allow_pickle=False)
            fits = len(array.shape) == len(shape) and all(map(lambda n, want: want in (None, n), array.shape, shape))
            what = f"array {name!r} is {array.dtype} {list(array.shape)}, not {dtype} {list(shape)}"
            _require(array.dtype == dtype and fits, what)
            found.append(array)
    return found


def read_member(archive: zipfile.ZipFile, name: str, limit: int) -> bytes:
    """Return the content of the member `name`, of at most `limit` bytes, after its checksum has been found right."""
    member = archive.getinfo(name)
    _require_size(name, member.file_size, limit)
    return archive.read(member)


def _download(archive: Archive, path: Path, partial: Path, progress: Progress | None) -> None:
    """Append to `partial` what is missing of it."""
    if urlsplit(archive.url).scheme not in ("http", "https"):
        raise DataError(f"{archive.file} cannot be downloaded (its address is {archive.url!r}); {_by_hand(path)}")
    done = partial.stat().st_size if partial.exists() else 0
    if archive.bytes and done > archive.bytes:
        partial.unlink()
        done = 0
    if archive.bytes and done == archive.bytes:
        return
    headers = {"User-Agent": "fl-core", "Accept-Encoding": "identity"} | ({"Range": f"bytes={done}-"} if done else {})
    try:
        response = urlopen(Request(archive.url, headers=headers), timeout=TIMEOUT_SECONDS)
    except HTTPError as error:
        if error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE and done:
            return  # the server has no more than we have: the checksum decides
        raise DataError(f"{archive.url}: the server answers {error.code} {error.reason}; {_by_hand(path)}") from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        how = f"if there is no network, {_by_hand(path)}"
        raise DataError(f"{archive.url} cannot be reached ({getattr(error, 'reason', error)}); {how}") from error
    with response:
        continued = response.status == http.client.PARTIAL_CONTENT
        if continued and not response.headers.get("Content-Range", "").startswith(f"bytes {done}-"):
            raise DataError(f"{archive.url}: the server sent another part than asked for; {_by_hand(path)}")
        done = done if continued else 0
        total = done + int(response.headers.get("Content-Length") or 0) or archive.bytes
        with partial.open("ab" if continued else "wb") as file:
            for block in _blocks(response, archive.url):
                file.write(block)
                done += len(block)
                if progress:
                    progress(done, total)
    if done < total:
        raise DataError(f"{archive.url}: the connection ended after {done} of {total} bytes; {CONTINUE}")


def _blocks(response: http.client.HTTPResponse, url: str) -> Iterator[bytes]:
    """Yield what arrives; an error of the network must not look like one of the disk."""
    while True:
        try:
            block = response.read(BLOCK)
        except (OSError, http.client.HTTPException) as error:
            raise DataError(f"{url}: the connection broke ({error}); {CONTINUE}") from error
        if not block:
            return
        yield block


def _fault(archive: Archive, path: Path) -> str:
    """Return in what `path` differs from `archive`; empty if in nothing that is known."""
    size = path.stat().st_size
    if archive.bytes and size != archive.bytes:
        return f"{size} bytes, expected {archive.bytes}"
    if not archive.checksum:
        return ""
    kind, expected = archive.checksum.split(":")
    with path.open("rb") as file:
        found = hashlib.file_digest(file, lambda: hashlib.new(kind, usedforsecurity=False)).hexdigest()
    return "" if found == expected else f"{kind.upper()} {found}, expected {expected}"


def _safe(name: str) -> str:
    path = PurePosixPath(name)
    leaves = path.is_absolute() or ".." in path.parts or "\\" in name
    _require(not leaves, f"member {name!r} would leave the folder")
    return str(path)


def _require(condition: bool, fault: str) -> None:
    if not condition:
        raise ValueError(fault)


def _require_size(name: str, size: int, limit: int) -> None:
    _require(size <= limit, f"member {name!r} has {size} bytes, at most {limit} make sense")


def _remedy(name: str) -> str:
    return f"'fl-core data get {name} --again' fetches it again, or says how to"


def _by_hand(path: Path) -> str:
    return f"get the file elsewhere and copy it to {path}"
