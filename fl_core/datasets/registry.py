"""Which data sets there are, which of them are on this machine, and which one a specification gets."""

from __future__ import annotations

import importlib
import os
import pkgutil
import warnings
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from fl_core.datasets import prepared
from fl_core.datasets.archives import verify
from fl_core.datasets.base import Dataset, Source, Splits, Surrogate
from fl_core.errors import DataError, unknown

FOLDER = "FL_CORE_DATASETS"  # environment variable: where archives and prepared sets are, not data/cache/datasets


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
    return sorted({**all_sources(), **all_surrogates()})


def actual(name: str, strict: bool = False, notify: bool = True) -> str:
    """Return the name of the data set, or surrogate, that a specification which says `name` gets.

    The real one if it is on this machine, otherwise its surrogate, which `strict` refuses and `notify` announces.
    """
    if name not in names():
        raise unknown("data set", name, names())
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
    return _load(actual(name, strict), data_folder(), datasets_folder())


def kind_of(name: str) -> str:
    """Return ``"real"`` or ``"surrogate"``: what a run on `name` uses here."""
    return "surrogate" if actual(name, notify=False) in all_surrogates() else "real"


def sizes(name: str) -> tuple[int, int]:
    """Return how many training and test samples `name` stands for; it is loaded only if nobody knows them before."""
    if name not in names():
        raise unknown("data set", name, names())
    train, test = (all_surrogates().get(name) or all_sources()[name]).sizes
    if train:
        return train, test
    data = load_dataset(name)
    return len(data.train), len(data.test)


def is_present(name: str) -> bool:
    """Return whether the real data set `name` is on this machine; its checksums are verified when it is read."""
    source = all_sources()[name]
    return has_archives(source) or (not source.embedded and prepared_file(source).is_file())


def has_archives(source: Source) -> bool:
    """Return whether everything that `source` is read from lies in its folder."""
    folder = source_folder(source)
    if source.present is not None:
        return source.present(folder)
    return all((folder / archive.file).is_file() for archive in source.archives)


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
        splits = _decode(source)
        mean, std = prepared.channel_statistics(splits[0].inputs)
        return Dataset(name, "real", source.classes, *splits, tuple(mean), tuple(std))
    return prepared.load_or_build(_announced(source), name, "real", source.classes, lambda: _decode(source))


def _announced(chosen: Source | Surrogate) -> Path:
    """Return where the samples are kept, and say so if they are not there yet."""
    path = prepared_file(chosen)
    if not path.exists():
        what = "decoded" if isinstance(chosen, Source) else "generated"
        when = "this happens once and takes up to a few minutes"
        warnings.warn(
            f"{chosen.name} is {what} now and kept in {path.parent}; {when}", PreparationNotice, stacklevel=4
        )
    return path


def _decode(source: Source) -> Splits:
    folder = source_folder(source)
    remedy = f"restore it with 'git checkout -- {folder.name}' inside data/" if source.embedded else ""
    for archive in source.archives:
        verify(archive, folder, source.name, remedy)
    splits = source.read(folder)
    found = (len(splits[0]), len(splits[1]))
    if any(source.sizes) and found != source.sizes:
        raise DataError(f"data set {source.name!r} in {folder} has {found} samples instead of {source.sizes}")
    return splits


@cache
def _notify(text: str) -> None:
    """Warn, once per process."""
    warnings.warn(text, SurrogateNotice, stacklevel=4)


def _listed(package: str, name: str) -> list[Any]:
    modules = pkgutil.iter_modules(importlib.import_module(package).__path__)
    return [
        entry for found in modules for entry in getattr(importlib.import_module(f"{package}.{found.name}"), name, ())
    ]
