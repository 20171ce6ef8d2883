"""Finished runs on disk, named by the hash of their specification.

There are two folders: the published one (``data/results``, part of the repository) and a cache
(``data/cache/results``, ignored by git). Both are read; a run goes to the cache unless it is published. A record is
deterministic JSON: a small gzip file of its own when it is saved, so that any number of processes may write at the
same time and a file appears whole or not at all; published ones are packed, one xz file for each grid, by
:func:`pack`. Both forms are read. Parquet would add 170 MB of installation for records of a few kilobytes.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import lzma
import os
import stat
import tempfile
import warnings
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import nn

from fl_core.datasets import actual, all_surrogates, data_folder
from fl_core.errors import DataError, FlCoreError, RunError, SpecError
from fl_core.experiments.identity import INEXACT, code_digest, instructions, is_stale, network_digest
from fl_core.experiments.invariants import MOST_BYTES, foreign, impossible, parsed, unpacked
from fl_core.experiments.run import Result
from fl_core.experiments.spec import RunSpec
from fl_core.runtime import Checkpoints, History

FORMAT = 1
"""Of the record; a file with another number is not read."""
TOTALS = 2
"""Format of a packed record whose losses of updates are sums over the steps: these are in single precision, and have
half the digits of the means."""
SUFFIX = ".json.gz"
"""Of one record."""
PACKED = ".jsonl.xz"
"""Of many: a line that says which run is on which line, with a digest of it, then one record a line, by hash."""
OTHER = "other"
"""Where records are packed that belong to no known grid."""
ENVIRONMENT = "FL_CORE_RESULTS"
"""Environment variable: one folder that is read and written instead of both."""
LONG = ("updates", "learned")
"""Tables with a row for each update; a published record keeps those that a page shows."""
SMALLEST_WINDOW = 4096
"""Bytes that the format asks for."""
DAMAGES = (
    *(OSError, EOFError, zlib.error, lzma.LZMAError, ValueError, LookupError, TypeError, AttributeError),
    *(ArithmeticError, RecursionError, MemoryError),
)
"""What reading a damaged or forged file may raise."""
LONGEST = 300
"""Characters of an error that are shown."""
MOST_PARSED, MOST_OUTLINES = 600, 8192
"""Records that a process keeps in memory, whole and without history: the figures of a page read a run once."""

Stamp = tuple[int, int, int]
"""Time, size and number of a file: another version of it has another stamp."""


class StrangeError(DataError):
    """A record names what is not known here: somebody's own part that is not imported, or another version's."""


def looked_up(spec: RunSpec) -> Iterator[RunSpec]:
    """Yield the specifications under which a result of `spec` may be stored, the first first."""
    named = spec.model_copy(update={"strict_data": False}) if spec.strict_data else spec
    yield named
    with contextlib.suppress(DataError):  # neither the data nor a surrogate
        if (here := actual(spec.dataset, spec.strict_data, notify=False)) != spec.dataset:
            yield named.model_copy(update={"dataset": here})


@dataclass(frozen=True)
class Store:
    """The two folders; they need not exist."""

    published: Path
    cache: Path

    def get(self, spec: RunSpec) -> Result | None:
        """Return the stored result of `spec` on the data that it names, else on what it gets here; or None.

        A damaged record is reported as a warning and not used.
        """
        for named in looked_up(spec):
            if (found := self._get(named)) is not None:
                return found
        return None

    def _get(self, spec: RunSpec) -> Result | None:
        key = spec.hash
        for path in self._files(key):
            try:
                result = read(path, key)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except DataError as error:
                warnings.warn(f"{error}; it is ignored and the run counts as missing", stacklevel=3)
                continue
            # a class that has been defined again, as a notebook's cell does it, makes no other specification
            if result.spec != spec and result.spec.to_json() != spec.to_json():
                warnings.warn(f"{path} holds another specification; it is ignored", stacklevel=3)
            elif is_stale(spec, result.provenance):
                changed = f"{spec.algorithm.name}, or what it uses, has changed since {path} was made"
                warnings.warn(f"{changed}; it is ignored and the run counts as missing", stacklevel=3)
            elif old := _outdated(result):
                warnings.warn(f"{path} {old}; it is ignored and the run counts as missing", stacklevel=3)
            else:
                return result
        return None

    def has(self, spec: RunSpec) -> bool:
        """Return whether an undamaged result of `spec` is stored."""
        return self.get(spec) is not None

    def save(self, result: Result, *, published: bool = False, tables: Collection[str] = LONG) -> Path:
        """Write `result` to a file of its own, in the published folder or the cache, and return the file.

        An existing one of the same run is replaced. Of its long tables, nearly all of it, the record keeps `tables`.
        What cannot be written there is written elsewhere, and a RunError says where.
        """
        folder, name = self.published if published else self.cache, f"{result.spec.hash}{SUFFIX}"
        content = encode(result, tables)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            write_atomically(folder / name, content)
        except OSError as error:
            text = f"run {result.spec.hash} is finished, but {folder} takes no file ({error.strerror or error})"
            raise RunError(f"{text}; {keep_elsewhere(name, content)}") from None
        return folder / name

    def publish(self, specs: Iterable[RunSpec]) -> int:
        """Move those records of `specs` that only the cache has to the published folder; return how many."""
        moved, public = 0, Store(self.published, self.published)
        for spec in (named for each in specs for named in looked_up(each)):
            kept = self.cache / f"{spec.hash}{SUFFIX}"
            if kept.is_file() and self.has(spec) and not public.has(spec):
                self.published.mkdir(parents=True, exist_ok=True)
                write_atomically(self.published / kept.name, kept.read_bytes())
                kept.unlink()
                moved += 1
        return moved

    def __iter__(self) -> Iterator[Result]:
        """Yield every readable result once, published ones first; unreadable ones are reported as warnings.

        Of the cache, results of somebody's own parts that are not imported now are passed over.
        """
        return self._each(read)

    def _each(self, reader: Callable[[Path, str], Result]) -> Iterator[Result]:
        seen = set()
        for folder in dict.fromkeys((self.published, self.cache)):
            alone = [(_key(path), path) for path in _visible(folder, SUFFIX)]
            packed = [(key, file) for file in _visible(folder, PACKED) for key in _runs(file)]
            for key, path in alone + packed:
                if key in seen:
                    continue
                for place in chain([path], self._files(key)):  # it may be packed meanwhile
                    try:
                        yield reader(place, key)
                        seen.add(key)
                    except FileNotFoundError:
                        continue
                    except DataError as error:
                        if folder == self.published or not isinstance(error, StrangeError):
                            warnings.warn(f"{error}; it is ignored", stacklevel=2)
                    break

    def outlines(self) -> tuple[Result, ...]:
        """Return every readable result once, without its history; a record is read again when its file changes."""
        return tuple(self._each(_outline))

    def grids(self) -> dict[str, str]:
        """Return the grid that each packed published record belongs to, by hash."""
        files = _visible(self.published, PACKED)
        return {key: path.name.removesuffix(PACKED) for path in files for key in _runs(path)}

    def stamp(self) -> tuple[tuple[str, int], ...]:
        """Return what changes when records do."""
        folders = [folder for folder in (self.published, self.cache) if folder.is_dir()]
        files = [file for folder in folders for file in (folder, *_visible(folder, ""))]
        found = []
        for file in files:
            with contextlib.suppress(FileNotFoundError):
                found.append((str(file), file.stat().st_mtime_ns))
        return tuple(sorted(found))

    def state(self, keys: Iterable[str]) -> dict[str, str]:
        """Return by hash what changes when the record of a run does; it is empty where there is none."""
        found = dict.fromkeys(keys, "")
        for folder in dict.fromkeys((self.published, self.cache)):
            for path in _visible(folder, SUFFIX):
                if (key := _key(path)) in found:
                    with contextlib.suppress(FileNotFoundError):
                        status = path.stat()
                        found[key] += f"{path.name} {status.st_mtime_ns} {status.st_size} {status.st_ino};"
            for path in _visible(folder, PACKED):
                runs = _runs(path)
                for key in found.keys() & runs.keys():
                    found[key] += f"{path.name} {runs[key][1]};"
        return found

    def checkpoints(
        self, spec: RunSpec, trace: bool = False, every_seconds: float = 60.0, executor: str = "sequential"
    ) -> Checkpoints:
        """Return the place in the cache where the state of a run of `spec` is kept while it goes on."""
        spec = spec.resolved()
        suffix = "-traced" * trace + "-rounded" * (executor in INEXACT)
        folder, identity = self.cache / "checkpoints" / (spec.hash + suffix), spec.to_json() + suffix
        return Checkpoints(folder, every_seconds, identity, code=f"{code_digest(spec)} for {instructions()}")

    def lease(self, spec: RunSpec) -> Path:
        """Return the file whose lock a worker holds while it computes `spec`."""
        folder = self.cache / "leases"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{spec.resolved().hash}.lock"

    def _files(self, key: str) -> Iterator[Path]:
        """Yield the files that may hold run `key`: its own, which is newer, before the one that it is packed in."""
        for folder in dict.fromkeys((self.published, self.cache)):
            yield folder / f"{key}{SUFFIX}"
            yield from (path for path in _visible(folder, PACKED) if key in _runs(path))


def default_store() -> Store:
    """Return the store in the data folder, or the one folder that ``$FL_CORE_RESULTS`` names."""
    override = os.environ.get(ENVIRONMENT)
    if override:
        return Store(Path(override), Path(override))
    return Store(data_folder() / "results", data_folder() / "cache" / "results")


def encode(result: Result, tables: Collection[str] = LONG) -> bytes:
    """Return the record of `result`; equal results give equal bytes.

    The event trace and the table of faults are kept only if they hold something, of the `LONG` tables those named.
    Of the final model the record keeps the SHA-256 of its bytes (``provenance["model_sha256"]``), so that claims of
    bitwise equality can be judged on stored runs.
    """
    provenance = dict(result.provenance)
    if result.history.model is not None:
        provenance["model_sha256"] = hashlib.sha256(result.history.model.numpy().tobytes()).hexdigest()
    history = result.history.to_dict()
    for table in ("spans", "faults"):
        if not history[table]["task"]:
            del history[table]
    for table in {*LONG}.difference(tables):
        history.pop(table, None)
    content = {"spec": result.spec.to_dict(), "provenance": provenance, "history": history}
    text = json.dumps({"format": FORMAT, "sha256": _digest(content), "content": content}, separators=(",", ":"))
    return gzip.compress(text.encode(), 9, mtime=0)


def read(path: Path, key: str = "") -> Result:
    """Read one record: that of a file of its own, or run `key` of a packed one.

    Whoever gets it must not change it: the next one gets the same object. A file that is damaged, of another format,
    or that holds another run is a DataError.
    """
    return _read(path, key or _key(path), _stamp(path))


@lru_cache(MOST_PARSED)
def _read(path: Path, key: str, stamp: Stamp) -> Result:
    name, alone = str(path), path.name.endswith(SUFFIX)
    try:
        if not alone:
            name = f"{path} line {_index(path, stamp)[key][0] + 1} (run {key})"
        record = parsed(unpacked(path) if alone else _line(path, key, stamp))
        if record["format"] not in (FORMAT, TOTALS):
            raise DataError(f"result file {name} has format {record['format']!r}; this version reads format {FORMAT}")
        content = record["content"]
        if record["format"] == TOTALS:
            content["history"]["updates"]["loss"] = _means(content["history"]["updates"])
        if record["sha256"] != _digest(content):
            raise ValueError("its content does not match its SHA-256")
    except (FileNotFoundError, DataError):
        raise
    except DAMAGES as error:
        raise DataError(f"result file {name} is damaged ({_brief(error)})") from None
    try:
        spec, provenance = RunSpec(**content["spec"]), content["provenance"]
        history = History.from_dict({"spans": History().spans} | content["history"])
        wrong = impossible(history, provenance) or foreign(spec, provenance)
        found = spec.hash
    except (FlCoreError, *DAMAGES) as error:
        kind = StrangeError if isinstance(error, SpecError) else DataError
        raise kind(f"result file {name} does not hold a run of this version ({_brief(error)})") from None
    if found != key:
        raise DataError(f"result file {name} holds run {found}, not {key}")
    if wrong:
        raise DataError(f"result file {name} holds what no run gives: {wrong[:LONGEST]}")
    return Result(spec, history, provenance)


def _outline(path: Path, key: str) -> Result:
    """Read one record without its history, which was looked at when the record was packed."""
    return _read_outline(path, key, _stamp(path))


@lru_cache(MOST_OUTLINES)
def _read_outline(path: Path, key: str, stamp: Stamp) -> Result:
    with contextlib.suppress(*DAMAGES, FlCoreError):  # then the whole record says what is wrong
        if path.name.endswith(PACKED):
            line = _line(path, key, stamp).partition(b',"history":{')[0]
            content = parsed(line + b"}}")["content"]
            result = Result(RunSpec(**content["spec"]), History(), content["provenance"])
            if result.spec.hash == key and not foreign(result.spec, result.provenance):
                return result
    return replace(read(path, key), history=History())


def _brief(error: BaseException) -> str:
    """Return an error as one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:LONGEST]


def singles(folder: Path) -> list[Result]:
    """Return the records of `folder` that are files of their own."""
    return [read(path) for path in _visible(folder, SUFFIX)]


def pack(folder: Path, grids: Mapping[str, str]) -> list[Path]:
    """Move the single records of `folder` into packed files, and return those that changed.

    `grids` says to which file a run goes, by hash; one that is packed already is replaced where it is. Equal records
    make equal bytes. Whoever reads meanwhile finds every record.
    """
    with FileLock(folder / ".packing.lock"):
        found = {path.name.removesuffix(PACKED): _all_lines(path) for path in _visible(folder, PACKED)}
        packed = {grid: {key: _shortened(line) for key, line in lines.items()} for grid, lines in found.items()}
        home = {key: grid for grid, lines in packed.items() for key in lines}
        alone = {path: _stamp(path) for path in _visible(folder, SUFFIX)}
        changed = {grid for grid, lines in packed.items() if lines != found[grid]}
        for path in alone:
            read(path)  # what cannot be read is not packed
            grid = home.get(_key(path)) or grids.get(_key(path), OTHER)
            packed.setdefault(grid, {})[_key(path)] = _shortened(gzip.decompress(path.read_bytes()))
            changed.add(grid)
        files = [folder / f"{grid}{PACKED}" for grid in sorted(changed)]
        for path in files:
            write_atomically(path, _pack(packed[path.name.removesuffix(PACKED)]))
        for path, stamp in alone.items():
            if _stamp(path) == stamp:  # else it was saved anew meanwhile
                path.unlink()
    return files


def _shortened(line: bytes) -> bytes:
    """Return a record in the format :data:`TOTALS`, if that is exact."""
    if line.startswith(b'{"format":%d,' % TOTALS):
        return line
    record = parsed(line)
    updates = record["content"]["history"].get("updates", {})
    loss, steps = (np.array(updates.get(name, []), float) for name in ("loss", "steps"))
    if len(loss) != len(steps) or not len(loss):
        return line
    total = [None if x != x else float(str(x)) for x in (loss * steps).astype(np.float32)]
    if _means(updates | {"loss": total}) != updates["loss"]:
        return line
    updates["loss"] = total
    return json.dumps(record | {"format": TOTALS}, separators=(",", ":")).encode()


def _means(updates: Mapping[str, list[Any]]) -> list[float | None]:
    """Return the mean loss of each update whose ``loss`` is the sum over its ``steps``, rounded to few digits."""
    means = np.array(updates["loss"], np.float32).astype(float) / np.array(updates["steps"], float)
    return [None if mean != mean else mean for mean in means.tolist()]


def _pack(lines: Mapping[str, bytes]) -> bytes:
    """Return the file that holds `lines`, by hash."""
    runs = {key: _line_digest(lines[key]) for key in sorted(lines)}
    first = json.dumps({"format": FORMAT, "runs": runs}, separators=(",", ":")).encode()
    text = b"\n".join([first, *(lines[key] for key in runs), b""])
    size = max(SMALLEST_WINDOW, 1 << len(text).bit_length())  # sees all of it; a reader needs as much memory
    settings = {"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": size}
    return lzma.compress(text, filters=[settings | {"lc": 4, "lp": 0, "pb": 0}])  # the last three: for text


def _visible(folder: Path, suffix: str) -> list[Path]:
    """Return the files of `folder` that are whole, by name."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
        names = os.listdir(folder)  # globbing and sorting paths was a quarter of the time that judging takes
        return [folder / name for name in sorted(names) if name.endswith(suffix) and not name.startswith(".")]
    return []


def _key(path: Path) -> str:
    return path.name.removesuffix(SUFFIX)


def _stamp(path: Path) -> Stamp:
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):  # to open a pipe is to wait
        raise DataError(f"result file {path} is no regular file")
    return status.st_mtime_ns, status.st_size, status.st_ino


def _line_digest(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()[:16]


def _runs(path: Path) -> Mapping[str, tuple[int, str]]:
    """Return line and digest of each run in a packed file; if it is damaged, say so and return nothing."""
    try:
        return _index(path, _stamp(path))
    except FileNotFoundError:
        return {}
    except (*DAMAGES, DataError) as error:
        warnings.warn(f"result file {path} is damaged ({_brief(error)}); it is ignored", stacklevel=4)
        return {}


@lru_cache(1024)
def _index(path: Path, stamp: Stamp) -> Mapping[str, tuple[int, str]]:
    with lzma.open(path) as file:
        first = parsed(file.readline(MOST_BYTES))
    if first["format"] != FORMAT:
        raise ValueError(f"format {first['format']!r}; this version reads format {FORMAT}")
    return {key: (line, digest) for line, (key, digest) in enumerate(first["runs"].items(), 1)}


@lru_cache(4)
def _lines(path: Path, stamp: Stamp) -> list[bytes]:
    return unpacked(path).split(b"\n")


def _line(path: Path, key: str, stamp: Stamp) -> bytes:
    """Return the line of a packed file that holds run `key`, as it was written."""
    number, digest = _index(path, stamp)[key]
    line = _lines(path, stamp)[number]
    if digest != _line_digest(line):
        raise ValueError(f"run {key} does not match its digest")
    return line


def _all_lines(path: Path) -> dict[str, bytes]:
    stamp = _stamp(path)
    try:
        return {key: _line(path, key, stamp) for key in _index(path, stamp)}
    except DAMAGES as error:
        raise DataError(f"result file {path} is damaged ({_brief(error)}); nothing is packed") from None


def save_model(result: Result, path: Path | str) -> None:
    """Write the last global model of a run to a file of the format safetensors, from which nothing is executed.

    It holds the tensors of the network by their names, and the specification of the run.
    """
    write_or_keep(Path(path), model_bytes(result), f"{result.spec.hash}.safetensors")


def model_bytes(result: Result) -> bytes:
    """Return what :func:`save_model` writes."""
    model, spec = result.history.model, result.spec
    if model is None:
        raise RunError(f"the stored record of run {spec.hash} has no model: run it again to save that")
    slots = spec.task().workspace().slots
    tensors = {slot.name: model[slot.start : slot.stop].reshape(slot.shape).clone() for slot in slots}
    about = {"spec": spec.to_json(), "network": network_digest(spec)}
    return save(tensors, about | {"accuracy": repr(result.history.evaluations["test_accuracy"][-1])})


def load_model(path: Path | str) -> nn.Module:
    """Return the network that :func:`save_model` has written, ready to classify; it warns of one that has changed."""
    try:
        with safe_open(path, "pt") as file:
            spec = RunSpec.from_json((about := file.metadata())["spec"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 # it is no dictionary
        flat = spec.task().workspace()
        missing = {slot.name for slot in flat.slots} ^ tensors.keys()
        flat.network.load_state_dict(tensors, strict=False)
    except (OSError, SafetensorError, LookupError, TypeError, RuntimeError) as error:
        raise DataError(f"{path} holds no model of a run ({_brief(error)})") from None
    if missing:
        raise DataError(f"{path} holds another network than its specification says: {', '.join(sorted(missing))}")
    if about.get("network", now := network_digest(spec)) != now:
        changed = f"the network {spec.model!r} has changed since {path} was written"
        warnings.warn(f"{changed}; what it gives may be something else", stacklevel=2)
    return flat.network.eval()


def write_or_keep(path: Path, content: bytes, name: str) -> None:
    """Write `path`, or what cannot be written there elsewhere as `name`, which a RunError says."""
    try:
        write_atomically(path, content)
    except OSError as error:
        kept = keep_elsewhere(name, content)
        raise RunError(f"{path} cannot be written ({error.strerror or error}); {kept}") from None


def write_atomically(path: Path, content: bytes) -> None:
    """Write `path` so that other processes see either the old file, or none, or the whole new one."""
    handle, temporary = tempfile.mkstemp(prefix=".", suffix=".partial", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def keep_elsewhere(name: str, content: bytes) -> str:
    """Write `content` to the working directory, or else to the folder for temporary files; say in words where."""
    for folder in (Path.cwd(), Path(tempfile.gettempdir()), Path.home()):
        with contextlib.suppress(OSError):
            write_atomically(folder / name, content)
            return f"it is kept in {folder / name}: move it there when there is room"
    return "and neither does any other folder: it is lost"


def check_writable(folder: Path, what: str = "results") -> None:
    """Refuse, before anything is computed, a folder in which no file can be made; nothing is left there."""
    made, probe = [], b"\0" * 2**16
    try:
        for each in reversed([folder, *folder.parents]):
            if not each.exists():
                each.mkdir(exist_ok=True)
                made.append(each)
        write_atomically(folder / f".probe-{os.getpid()}", probe)
        (folder / f".probe-{os.getpid()}").unlink()
    except OSError as error:
        raise SpecError(f"{what} cannot be written to {folder}: {error.strerror or error}") from None
    finally:
        for each in reversed(made):
            with contextlib.suppress(OSError):
                each.rmdir()


def _outdated(result: Result) -> str:
    """Say what is wrong with the data of a result whose surrogate has changed since; empty: nothing."""
    surrogate = all_surrogates().get(result.spec.dataset)
    made_with = result.provenance.get("data_version")
    if surrogate is None or made_with == surrogate.version:
        return ""
    return f"ran on version {made_with} of {surrogate.name}, which is now version {surrogate.version}"


def _digest(content: Any) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
