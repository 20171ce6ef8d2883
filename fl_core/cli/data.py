"""``fl-core data``: which data sets are here, real or surrogate, and how to get the others."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Callable, Iterator

from fl_core.datasets import base, registry
from fl_core.errors import DataError, unknown

Echo = Callable[[str], None]
MIB = 1 << 20


def listing(width: int | None = None) -> str:
    """Return the text that ``fl-core data`` prints."""
    width = width or min(110, shutil.get_terminal_size((100, 24)).columns)
    lines: list[str] = []
    for source in registry.all_sources().values():
        lines += [*_entry(source, width), ""]
    lines += textwrap.wrap(
        f"Archives and prepared data sets are in {registry.datasets_folder()}; ${registry.FOLDER} names another "
        "folder. A surrogate is a generated stand-in of similar difficulty, marked wherever a number of it is shown.",
        width,
    )
    return "\n".join(lines)


def state(source: base.Source) -> str:
    """Return ``"real"``, ``"surrogate"`` or ``"missing"``: what a specification that names `source` gets here."""
    if registry.is_present(source.name):
        return "real"
    return (
        "surrogate" if f"{source.name}-surrogate" in registry.all_surrogates() and not source.embedded else "missing"
    )


def obtain(names: list[str], again: bool, echo: Echo) -> None:
    """Download, verify and decode real data sets; generate surrogates.

    Parameters
    ----------
    names : list of str
    again : bool
        Discard what is there and begin anew.
    echo : callable
        Takes lines of text.

    Raises
    ------
    SpecError
        If a name is not known.
    DataError
        If something cannot be obtained: says why, and what can be done.
    """
    for name in names:
        if name not in registry.names():
            raise unknown("data set", name, registry.names())
    for name in names:
        chosen = registry.all_surrogates().get(name) or registry.all_sources()[name]
        if isinstance(chosen, base.Source) and chosen.embedded:
            if again or not registry.has_archives(chosen):
                raise DataError(f"{name} is part of this repository; 'git checkout -- data/{name}' restores it")
        else:
            prepared = registry.prepared_file(chosen)
            if again:
                prepared.unlink(missing_ok=True)
            if isinstance(chosen, base.Source) and not prepared.exists():
                _download(chosen, again, echo)
        registry._load.cache_clear()  # what is in memory may be what has just been discarded
        data = registry.load_dataset(name)
        echo(f"{name}: {data.kind} data, {len(data.train):,} + {len(data.test):,} samples, checksums right")


def calibrate(names: list[str], jobs: int | None, echo: Echo) -> None:
    """Make the missing calibration runs of the surrogates of `names` and print what all of them say."""
    from fl_core.experiments import grid
    from fl_core.experiments.calibration import calibration, table
    from fl_core.experiments.store import default_store

    store = default_store()
    grid.execute(calibration(store, names).specs, jobs=jobs, store=store)
    echo(table(calibration(store, names)).drop(columns="reported").to_string(index=False, float_format="%.3f"))


def _download(source: base.Source, again: bool, echo: Echo) -> None:
    from tqdm import tqdm

    from fl_core.datasets.archives import fetch

    folder = registry.source_folder(source)
    if source.by_hand and (again or not registry.has_archives(source)):
        raise DataError(f"{source.name} has to be fetched by hand: {source.by_hand}; 'here' is {folder}")
    for archive in source.archives:
        if not archive.url:
            continue
        bar = tqdm(total=archive.bytes or None, desc=archive.file, unit="B", unit_scale=True, disable=None)
        with bar:

            def progress(done: int, total: int, bar: tqdm = bar) -> None:
                bar.total = total or bar.total
                bar.update(done - bar.n)

            path = fetch(archive, folder, name=source.name, again=again, progress=progress)
        echo(f"{path} is complete")


def _entry(source: base.Source, width: int) -> Iterator[str]:
    kind = state(source)
    shape = " x ".join(map(str, source.shape)) if len(source.shape) > 1 else f"{source.shape[0]} tokens"
    train, test = source.sizes
    size = sum(archive.bytes for archive in source.archives)
    count = f"{train:,} + {test:,} samples" if train else "samples"
    facts = [f"{count} of {shape}", f"{len(source.classes)} classes"]
    facts.append(f"{size / MIB:,.0f} MiB" if size else "size not stated")
    yield f"{source.name:<20}{kind.upper() if kind != 'real' else kind:<11}{', '.join(facts)}"
    details = [source.title, f"Licence: {source.licence}", source.homepage]
    if kind == "real":
        details.append(f"In {registry.source_folder(source)}")
    elif source.embedded:
        details.append(f"'git checkout -- data/{source.name}' restores it")
    else:
        how = f"By hand: {source.by_hand}; 'here' is {registry.source_folder(source)}"
        details.append(how if source.by_hand else f"Get it: fl-core data get {source.name}")
    if stand_in := registry.all_surrogates().get(f"{source.name}-surrogate"):
        details.append(f"Surrogate {stand_in.name}: {stand_in.about}")
    for text in details:
        yield from textwrap.wrap(text, width - 4, initial_indent="    ", subsequent_indent="      ")
