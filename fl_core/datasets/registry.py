"""Which data sets there are, which of them are on this machine, and which one a specification gets."""

from __future__ import annotations

import importlib
import os
import pkgutil
import warnings
from functools import cache, lru_cache
from itertools import product
from pathlib import Path
from typing import Any

from fl_core.datasets import prepared
from fl_core.datasets.archives import verify
from fl_core.datasets.base import Dataset, Form, Source, Splits, Surrogate
from fl_core.datasets.own import OWN
from fl_core.errors import DataError, unknown

FOLDER = "FL_CORE_DATASETS"  # environment variable: where archives and prepared sets are, not data/cache/datasets
SEARCH = "FL_CORE_DATA_PATH"
"""Environment variable: further folders to read data from, never written to, separated as in PATH."""


class SurrogateNotice(UserWarning):
    """A surrogate is used because the real data set is not on this machine."""


class PreparationNotice(UserWarning):
    """A data set is decoded or generated on its first use, which takes a while."""


def data_folder() -> Path:
    """Return the folder with the embedded data: ``$FL_CORE_DATA``, else ``data/`` beside the package."""
    return Path(os.environ.get("FL_CORE_DATA") or Path(__file__).resolve().parents[2] / "data")


def datasets_folder() -> Path:
    """Return the folder for everything downloaded or generated: ``$FL_CORE_DATASETS``, else in the cache."""
    return Path(os.environ.get(FOLDER) or data_folder() / "cache" / "datasets")


@cache
def all_sources() -> dict[str, Source]:
    """Return the real data sets by name: each module of this package may define ``SOURCES``."""
    found = {source.name: source for source in _listed("fl_core.datasets", "SOURCES")}
    return dict(sorted(found.items()))


@cache
def all_surrogates() -> dict[str, Surrogate]:
    """Return the surrogates by their own names: each module of the package below may define ``SURROGATES``."""
    return {surrogate.name: surrogate for surrogate in _listed("fl_core.datasets.surrogates", "SURROGATES")}


def names() -> list[str]:
    """Return every name that a specification may give."""
    return sorted({**all_sources(), **all_surrogates(), **OWN})


def actual(name: str, strict: bool = False, notify: bool = True) -> str:
    """Return the name of the data set, or surrogate, that a specification which says `name` gets.

    The real one if it is on this machine, otherwise its surrogate, which `strict` refuses and `notify` announces.
    """
    if name not in names():
        raise unknown("data set", name, names())
    if name in OWN:
        return name
    real = all_surrogates()[name].of if name in all_surrogates() else name
    if name in all_sources() and (all_sources()[name].embedded or is_present(name)):
        return name
    how = f"'fl-core data get {real}' says how to obtain the real one"
    if strict:
        given = "is a surrogate" if name != real else "is not on this machine"
        raise DataError(f"data set {name!r} {given}, and strict_data refuses surrogates; {how}")
    if name in all_surrogates():
        return name
    stand_in = f"{name}-surrogate"
    if stand_in not in all_surrogates():
        raise DataError(f"data set {name!r} is not on this machine and has no surrogate; {how}")
    if notify:
        _notify(f"{name} is not on this machine: its surrogate {stand_in!r} is used, and recorded as such; {how}")
    return stand_in


def load_dataset(name: str, strict: bool = False) -> Dataset:
    """Return the data set that `name` stands for (see :func:`actual`), in memory; the last two are kept.

    What has to be decoded or generated first is kept in :func:`datasets_folder`.
    """
    found = actual(name, strict)
    return OWN[found].dataset if found in OWN else _load(found, data_folder(), datasets_folder())


def kind_of(name: str) -> str:
    """Return one of :data:`fl_core.datasets.base.KINDS`: what a run on `name` uses here."""
    found = actual(name, notify=False)
    if found in OWN:
        return "own"
    return "surrogate" if found in all_surrogates() else all_sources()[found].kind


def state(source: Source) -> str:
    """Return its kind, ``"surrogate"`` or ``"missing"``: what a specification that names `source` gets here."""
    if is_present(source.name):
        return source.kind
    return "surrogate" if f"{source.name}-surrogate" in all_surrogates() and not source.embedded else "missing"


def stands_for(name: str) -> str:
    """Return the data set whose place `name`, a surrogate or a copy that differs, takes; else `name` itself."""
    return getattr(all_surrogates().get(name) or all_sources().get(name), "of", "") or name


def differs(name: str) -> str:
    """Return in words in what `name` differs from the data set that it is a copy of; empty: in nothing."""
    return all_sources()[name].differs if name in all_sources() else ""


def described(name: str, kind: str) -> str:
    """Return what stands beside numbers made on `name`: its name, its kind, and in what it differs."""
    told = f": {differs(name)}" if differs(name) else ""
    return f"{name} ({kind} data{told})"


def sizes(name: str) -> tuple[int, int]:
    """Return how many training and test samples `name` stands for; it is loaded only if nobody knows them before."""
    if name not in names():
        raise unknown("data set", name, names())
    train, test = (0, 0) if name in OWN else (all_surrogates().get(name) or all_sources()[name]).sizes
    if train:
        return train, test
    data = load_dataset(name)
    return len(data.train), len(data.test)


def num_classes(name: str) -> int:
    """Return how many classes the data set called `name` has."""
    known = all_surrogates().get(name) or all_sources().get(name) or OWN[name].dataset
    return len(known.classes)


def is_present(name: str) -> bool:
    """Return whether the real data set `name` is on this machine; its checksums are verified when it is read."""
    source = all_sources()[name]
    return place(source) is not None or (not source.embedded and prepared_file(source).is_file())


def place(source: Source) -> tuple[Path, Form] | None:
    """Return a folder that holds everything that `source` is read from, and in which form; None: there is none.

    The user's own folder comes first, then those of :data:`SEARCH`.
    """
    roots = [data_folder()] if source.embedded else [datasets_folder(), *search_path()]
    for root in roots:
        folder = root / (source.folder or source.name)
        if source.present is not None and source.present(folder):
            return folder, _own(source)
        for at, form in ((folder, _own(source)), *((root, form) for form in source.copies)):
            if form.archives and all((at / archive.file).is_file() for archive in form.archives):
                return at, form
    return None


def search_path() -> list[Path]:
    """Return the further folders that data is read from."""
    return [Path(name) for name in os.environ.get(SEARCH, "").split(os.pathsep) if name]


def recognise(path: Path) -> list[tuple[Source, Path, Form]]:
    """Return what a file or folder may hold by the names of its files: data sets, the folder of each, its form."""
    found = []
    for source in all_sources().values():
        roots = (path, path / (source.folder or source.name), *path.parents[:3])
        for form, root in product([_own(source), *source.copies], () if source.embedded else roots):
            files = [root / archive.file for archive in form.archives]
            below = path in files or all(file.is_relative_to(path) for file in files)
            if below and (all(map(Path.is_file, files)) if files else bool(source.present and source.present(root))):
                found.append((source, root, form))
                break
    return found


def _own(source: Source) -> Form:
    return Form(source.archives, source.read)


def take_in(source: Source, folder: Path, form: Form) -> Dataset:
    """Read `source` from any form, verify it, keep it in the one form that training reads, and return it."""
    splits = _decode(source, folder, form, by_content=True)
    path = prepared_file(source)
    path.parent.mkdir(parents=True, exist_ok=True)
    prepared.write(path, *splits)
    _load.cache_clear()
    return prepared.read(path, source.name, source.kind, source.classes)


def source_folder(source: Source) -> Path:
    """Return the folder of the archives."""
    return (data_folder() if source.embedded else datasets_folder()) / (source.folder or source.name)


def prepared_file(chosen: Source | Surrogate) -> Path:
    """Return where the decoded or generated samples are kept."""
    return datasets_folder() / "prepared" / f"{chosen.name}-v{chosen.version}.safetensors"


@lru_cache(maxsize=2)
def _load(name: str, data: Path, downloads: Path) -> Dataset:
    """Load the data set whose own name is `name`; the folders are arguments because they are part of the question."""
    if name in all_surrogates():
        surrogate = all_surrogates()[name]
        return prepared.load_or_build(_announced(surrogate), name, "surrogate", surrogate.classes, surrogate.generate)
    source = all_sources()[name]
    if source.embedded:
        splits = _decode(source, *_there(source))
        mean, std = prepared.channel_statistics(splits[0].inputs)
        return Dataset(name, "real", source.classes, *splits, tuple(mean), tuple(std))
    path = _announced(source)
    return prepared.load_or_build(path, name, source.kind, source.classes, lambda: _decode(source, *_there(source)))


def _announced(chosen: Source | Surrogate) -> Path:
    """Return where the samples are kept, and say so if they are not there yet."""
    path = prepared_file(chosen)
    if not path.exists():
        what = f"{chosen.name} is {'decoded' if isinstance(chosen, Source) else 'generated'} now"
        when = "this happens once and takes up to a few minutes"
        warnings.warn(f"{what} and kept in {path.parent}; {when}", PreparationNotice, stacklevel=4)
    return path


def _there(source: Source) -> tuple[Path, Form]:
    return place(source) or (source_folder(source), _own(source))


def _decode(source: Source, folder: Path, form: Form, by_content: bool = False) -> Splits:
    """Read and verify `source`; `by_content`: its samples alone where their checksum is known, not the archives."""
    remedy = f"restore it with 'git checkout -- {folder.name}' inside data/" if source.embedded else ""
    for archive in form.archives:
        if not (by_content and source.sha256):
            verify(archive, folder, source.name, remedy)
    splits = form.read(folder)
    found = (len(splits[0]), len(splits[1]))
    if any(source.sizes) and found != source.sizes:
        raise DataError(f"data set {source.name!r} in {folder} has {found} samples instead of {source.sizes}")
    if source.sha256 and (sha256 := prepared.digest(prepared.tensors_of(*splits))) != source.sha256:
        raise DataError(f"{folder} does not hold {source.name}: its samples have SHA-256 {sha256}")
    return splits


@cache
def _notify(text: str) -> None:
    """Warn, once per process."""
    warnings.warn(text, SurrogateNotice, stacklevel=4)


def _listed(package: str, name: str) -> list[Any]:
    found = pkgutil.iter_modules(importlib.import_module(package).__path__, f"{package}.")
    return [entry for module in found for entry in getattr(importlib.import_module(module.name), name, ())]
