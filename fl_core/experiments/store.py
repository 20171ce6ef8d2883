"""Finished runs on disk, one small file each, named by the hash of the specification.

A record is deterministic, gzip-compressed JSON and not Parquet: pyarrow would add 170 MB of installation for records
of a few kilobytes. There are two folders: the published one (``data/results``, part of the repository) and a cache
(``data/cache/results``, ignored by git). Both are read; a run goes to the cache unless it is published. Any number of
processes may write at the same time: a file appears whole or not at all.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import os
import tempfile
import warnings
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from fl_core.datasets import all_surrogates, data_folder
from fl_core.errors import DataError, FlCoreError
from fl_core.experiments.run import Result
from fl_core.experiments.spec import RunSpec
from fl_core.runtime import Checkpoints, History

FORMAT = 1
"""Of the record; a file with another number is not read."""
SUFFIX = ".json.gz"
ENVIRONMENT = "FL_CORE_RESULTS"
"""Environment variable: one folder that is read and written instead of both."""


@dataclass(frozen=True)
class Store:
    """The two folders.

    Attributes
    ----------
    published, cache : Path
        They need not exist.
    """

    published: Path
    cache: Path

    def get(self, spec: RunSpec) -> Result | None:
        """Return the stored result of `spec` on the data that it gets here, or None.

        A damaged record is reported as a warning and not used.
        """
        spec = spec.resolved()
        for folder in self._folders():
            path = folder / f"{spec.hash}{SUFFIX}"
            try:
                result = read(path)
            except FileNotFoundError:
                continue
            except DataError as error:
                warnings.warn(f"{error}; it is ignored and the run counts as missing", stacklevel=2)
                continue
            if result.spec != spec:
                warnings.warn(f"{path} holds another specification; it is ignored", stacklevel=2)
            elif old := _outdated(result):
                warnings.warn(f"{path} {old}; it is ignored and the run counts as missing", stacklevel=2)
            else:
                return result
        return None

    def has(self, spec: RunSpec) -> bool:
        """Return whether an undamaged result of `spec` is stored."""
        return self.get(spec) is not None

    def save(self, result: Result, *, published: bool = False, updates: bool = True) -> Path:
        """Write `result` and return the file; an existing one of the same run is replaced.

        Parameters
        ----------
        result : Result
        published : bool
            Whether it goes to the published folder instead of the cache.
        updates : bool
            Whether the record keeps the table of updates: with ten gradients to a version that is nearly all of it.
        """
        folder = self.published if published else self.cache
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{result.spec.hash}{SUFFIX}"
        write_atomically(path, encode(result, updates))
        return path

    def __iter__(self) -> Iterator[Result]:
        """Yield every readable result once, published ones first; unreadable ones are reported as warnings."""
        seen = set()
        for folder in self._folders():
            for path in sorted(folder.glob(f"*{SUFFIX}")):
                if path.name in seen or path.name.startswith("."):
                    continue
                try:
                    yield read(path)
                    seen.add(path.name)
                except DataError as error:
                    warnings.warn(f"{error}; it is ignored", stacklevel=2)

    def checkpoints(self, spec: RunSpec, trace: bool = False, every_seconds: float = 60.0) -> Checkpoints:
        """Return the place in the cache where the state of a run of `spec` is kept while it goes on."""
        spec = spec.resolved()
        suffix = "-traced" if trace else ""
        return Checkpoints(self.cache / "checkpoints" / (spec.hash + suffix), every_seconds, spec.to_json() + suffix)

    def _folders(self) -> Iterable[Path]:
        return dict.fromkeys((self.published, self.cache))


def default_store() -> Store:
    """Return the store in the data folder, or the one folder that ``$FL_CORE_RESULTS`` names."""
    override = os.environ.get(ENVIRONMENT)
    if override:
        return Store(Path(override), Path(override))
    return Store(data_folder() / "results", data_folder() / "cache" / "results")


def encode(result: Result, updates: bool = True) -> bytes:
    """Return the record of `result`; equal results give equal bytes.

    The event trace and the table of faults are kept only if they hold something, that of updates if `updates` is set.
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
    if not updates:
        del history["updates"]
    content = {"spec": result.spec.to_dict(), "provenance": provenance, "history": history}
    text = json.dumps({"format": FORMAT, "sha256": _digest(content), "content": content}, separators=(",", ":"))
    return gzip.compress(text.encode(), 9, mtime=0)


def read(path: Path) -> Result:
    """Read one record.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    DataError
        If it is damaged, of another format, or not the run that its name says.
    """
    try:
        record = json.loads(gzip.decompress(path.read_bytes()))
        form, digest, content = record["format"], record["sha256"], record["content"]
    except FileNotFoundError:
        raise
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError) as error:
        raise DataError(f"result file {path} is damaged ({type(error).__name__}: {error})") from None
    if form != FORMAT:
        raise DataError(f"result file {path} has format {form!r}; this version reads format {FORMAT}")
    if digest != _digest(content):
        raise DataError(f"result file {path} is damaged (its content does not match its SHA-256)")
    try:
        spec = RunSpec(**content["spec"])
        history = History.from_dict({"spans": History().spans} | content["history"])
        result = Result(spec, history, content["provenance"])
    except (FlCoreError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"result file {path} does not hold a run of this version ({error})") from None
    name = path.name.removesuffix(SUFFIX)
    if spec.hash != name:
        raise DataError(f"result file {path} holds run {spec.hash}, not {name}")
    return result


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


def load_frame(results: Iterable[Result] | None = None) -> pd.DataFrame:
    """Return one row per run: ``hash``, the flattened specification, the final metrics, the provenance.

    Parameters
    ----------
    results : iterable of Result, optional
        By default everything in the default store.
    """
    return pd.json_normalize([_row(result) for result in (default_store() if results is None else results)])


def _outdated(result: Result) -> str:
    """Say what is wrong with the data of a result whose surrogate has changed since; empty: nothing."""
    surrogate = all_surrogates().get(result.spec.dataset)
    made_with = result.provenance.get("data_version")
    if surrogate is None or made_with == surrogate.version:
        return ""
    return f"ran on version {made_with} of {surrogate.name}, which is now version {surrogate.version}"


def _row(result: Result) -> dict[str, Any]:
    last = result.history.evaluation_frame().iloc[-1].to_dict()
    return {
        "hash": result.spec.hash,
        **result.spec.to_dict(),
        "final": last,
        "provenance": result.provenance,
    }


def _digest(content: Any) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
