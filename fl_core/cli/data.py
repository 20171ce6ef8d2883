"""``fl-core data``: what data is here, what is not, and how to get it."""

from __future__ import annotations

import os
import shutil
import textwrap
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from fl_core import CHECKOUT
from fl_core.cli.app import Jobs, Json, app, as_text
from fl_core.errors import DataError, known

if TYPE_CHECKING:
    from fl_core.datasets.base import Source, Surrogate

MIB = 1 << 20
DATA = """\b
Examples:
  fl-core data                                  what is here, and what is not?
  fl-core data get cifar10                      download, verify, decode
  fl-core data import cifar-10-python.tar.gz    a copy from elsewhere, packed or not
  fl-core data get cifar10-surrogate            generate now instead of on first use
  fl-core data get cifar10 --again              after a message that a file is damaged
  fl-core data calibrate cifar10                is its surrogate as hard as the real one?
  fl-core data calibrate cifar10 --real         how far do the papers' networks get on it?
"""

commands = typer.Typer(invoke_without_command=True, epilog=DATA)
app.add_typer(commands, name="data")


@commands.callback()
def listing(context: typer.Context, as_json: Json = False) -> None:
    """Data sets and measured links: show, get or import them."""
    from fl_core.datasets import registry
    from fl_core.world import traces

    if context.invoked_subcommand is not None:
        return
    if as_json:
        typer.echo(as_text([*map(_facts, registry.all_sources().values()), *map(_link_facts, traces.SETS)]))
        return
    width = min(110, shutil.get_terminal_size((100, 24)).columns)
    for source in registry.all_sources().values():
        typer.echo("\n".join([*_entry(source, width), ""]))
    for name, links in traces.SETS.items():
        place = traces.place(name)
        typer.echo(f"{name:<24}{'real' if place else 'MISSING':<12}{links.size} measured links, resampled to 1 s")
        where = f"In {place}" if place else f"Get it: fl-core data import {traces.FILE}, if you have it"
        typer.echo(f"    {links.about[0].upper()}{links.about[1:]}\n    Licence: {links.licence}\n    {where}\n")
    folders = (
        f"Archives and prepared data sets are in {registry.datasets_folder()}; ${registry.FOLDER} names another "
        f"folder, ${registry.SEARCH} further ones that are only read. 'fl-core data import FILE' takes an archive or "
        "an unpacked copy from anywhere. A surrogate is a generated stand-in, marked wherever a number is shown."
    )
    typer.echo(textwrap.fill(folders, width))


def _facts(source: Source | Surrogate) -> dict[str, Any]:
    from fl_core.datasets import base, registry

    if not isinstance(source, base.Source):
        facts = {"name": source.name, "title": source.about, "state": "surrogate"}
        return {**facts, "place": str(registry.prepared_file(source))}
    named = ("name", "title", "shape", "classes", "sizes", "licence", "homepage", "differs")
    state, stand_in = registry.state(source), f"{source.name}-surrogate"
    size = sum(archive.bytes for archive in source.archives)
    found = registry.place(source)
    where = str(found[0] if found else registry.prepared_file(source)) if state == source.kind else None
    surrogate = stand_in if stand_in in registry.all_surrogates() else None
    facts = {name: getattr(source, name) for name in named}
    return {**facts, "state": state, "bytes": size or None, "place": where, "surrogate": surrogate}


def _link_facts(name: str) -> dict[str, Any]:
    from fl_core.world import traces

    links, place = traces.SETS[name], traces.place(name)
    facts = {"name": name, "title": links.about, "links": links.size, "licence": links.licence}
    return {**facts, "state": "real" if place else "missing", "place": str(place) if place else None}


def _entry(source: Source, width: int) -> Iterator[str]:
    from fl_core.datasets import registry

    facts = _facts(source)
    kind, size = facts["state"], facts["bytes"]
    shape = " x ".join(map(str, source.shape)) if len(source.shape) > 1 else f"{source.shape[0]} tokens"
    train, test = source.sizes
    count = f"{train:,} + {test:,} samples" if train else "samples"
    stated = f"{size / MIB:,.0f} MiB" if size else "size not stated"
    shown = kind.upper() if kind in ("surrogate", "missing") else kind
    yield f"{source.name:<24}{shown:<12}{count} of {shape}, {len(source.classes)} classes, {stated}"
    details = [source.title, *filter(None, [source.differs]), f"Licence: {source.licence}", source.homepage]
    if facts["place"]:
        details.append(f"In {facts['place']}")
    elif source.embedded and CHECKOUT:
        details.append(f"'git checkout -- data/{source.name}' restores it")
    elif source.by_hand:
        details.append(f"By hand: {source.by_hand}; 'here' is {registry.source_folder(source)}")
    else:
        get = "get" if any(archive.url for archive in source.archives) else "import FILE, if you have it:"
        details.append(f"Get it: fl-core data {get} {source.name}")
    if name := facts["surrogate"]:
        details.append(f"Surrogate {name}: {registry.all_surrogates()[name].about}")
    for text in details:
        yield from textwrap.wrap(text, width - 4, initial_indent="    ", subsequent_indent="      ")


@commands.command("get", epilog=DATA)
def obtain(
    names: Annotated[list[str], Argument(metavar="NAME", help="Data sets, real ones or surrogates.")],
    again: Annotated[bool, Option("--again", help="Discard what is there, and begin anew.")] = False,
    folder: Annotated[Path | None, Option(
        help="Keep it there; runs find it if $FL_CORE_DATASETS names that folder.")] = None,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Download, verify and decode a data set, or generate a surrogate; an interrupted download goes on."""
    from fl_core.datasets import base, registry

    echo, got = partial(typer.echo, err=as_json), []
    if folder is not None:
        os.environ[registry.FOLDER] = str(folder.resolve())
    for name in [known("data set", name, [*registry.all_surrogates(), *registry.all_sources()]) for name in names]:
        chosen = registry.all_surrogates().get(name) or registry.all_sources()[name]
        if isinstance(chosen, base.Source) and chosen.embedded:
            if CHECKOUT and (again or not registry.place(chosen)):
                raise DataError(f"{name} is part of this repository; 'git checkout -- data/{name}' restores it")
            if not CHECKOUT:
                _download(chosen, again, as_json)
        else:
            prepared = registry.prepared_file(chosen)
            if again:
                prepared.unlink(missing_ok=True)
            if isinstance(chosen, base.Source) and not prepared.exists():
                _download(chosen, again, as_json)
        registry._load.cache_clear()  # what is in memory may be what has just been discarded
        data = registry.load_dataset(name)
        got.append({**_facts(chosen), "sizes": (len(data.train), len(data.test))})
        echo(f"{name}: {data.kind} data, {len(data.train):,} + {len(data.test):,} samples, checksums right")
    if as_json:
        typer.echo(as_text(got))


def _download(source: Source, again: bool, aside: bool) -> None:
    from tqdm import tqdm

    from fl_core.datasets import registry
    from fl_core.datasets.archives import fetch

    folder = registry.source_folder(source)
    if source.by_hand and (again or not registry.place(source)):
        raise DataError(f"{source.name} has to be fetched by hand: {source.by_hand}; 'here' is {folder}")
    for archive in source.archives:
        if not archive.url:
            continue
        with tqdm(total=archive.bytes or None, desc=archive.file, unit="B", unit_scale=True, disable=None) as bar:

            def progress(done: int, total: int, bar: tqdm = bar) -> None:
                bar.total = total or bar.total
                bar.update(done - bar.n)

            path = fetch(archive, folder, name=source.name, again=again, progress=progress)
        typer.echo(f"{path} is complete", err=aside)


@commands.command("import", epilog=DATA)
def take_in(
    paths: Annotated[list[Path], Argument(metavar="FILE", help="Archives, or folders with files of data sets.")],
    as_json: Json = False,
) -> None:
    """Take data sets from archives or unpacked copies that you have; their samples are verified, nothing is run."""
    from fl_core.datasets import registry
    from fl_core.world import traces

    echo, got = partial(typer.echo, err=as_json), list[dict[str, Any]]()
    for path in (path.absolute() for path in paths):
        if not path.exists():
            raise DataError(f"there is no {path}")
        links = path / traces.FILE if path.is_dir() else path
        if has_links := links.name == traces.FILE and links.is_file():
            echo(f"measured links: {len(traces.SETS)} sets verified, kept as {traces.take_in(links)}")
            got += map(_link_facts, traces.SETS)
        if not (found := registry.recognise(path)) and not has_links:
            sources = [source for source in registry.all_sources().values() if not source.embedded]
            forms = [*(source.archives for source in sources), *(f.archives for s in sources for f in s.copies)]
            files = ", ".join(sorted({each.file.split("/")[0] for archives in forms for each in archives}))
            raise DataError(f"{path} holds no data set by the names of its files; known are {files}, {traces.FILE}")
        for source, folder, form in found:
            data = registry.take_in(source, folder, form)
            checked = "in an archive verified" if any(archive.checksum for archive in form.archives) else "counted"
            how = f"{len(data.train):,} + {len(data.test):,} {'samples verified' if source.sha256 else checked}"
            echo(f"{source.name}: {data.kind} data, {how}, kept as {registry.prepared_file(source)}")
            got.append({**_facts(source), "sizes": (len(data.train), len(data.test))})
    if as_json:
        typer.echo(as_text(got))


@commands.command("calibrate", epilog=DATA)
def calibrate(
    names: Annotated[list[str] | None, Argument(
        metavar="NAME", help="Real data sets; by default all that have one.")] = None,
    real: Annotated[bool, Option(
        "--real", help="Train on the data sets themselves, as far as they are here.")] = False,
    jobs: Jobs = None,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Train the papers' reference networks on surrogates, and compare with what is known for the real data.

    Runs that are stored are not repeated. ResNet-20 on Tiny ImageNet takes nearly two hours on one core; all others
    together take less on one.
    """
    from fl_core.datasets.registry import actual, kind_of
    from fl_core.datasets.surrogates.calibration import REAL, REFERENCES
    from fl_core.experiments import grid
    from fl_core.experiments.calibration import calibration, table
    from fl_core.experiments.store import default_store

    store, references = default_store(), REAL if real else REFERENCES
    measured = {reference.dataset for reference in references}
    if real:
        for name in measured.intersection(names or ()):
            actual(name, strict=True)
        names = names or sorted(name for name in measured if kind_of(name) != "surrogate")
    grid.execute(calibration(store, names or (), references).specs, jobs=jobs, store=store)
    found = table(calibration(store, names or (), references), references).drop(columns="reported")
    typer.echo(as_text(found) if as_json else found.to_string(index=False, float_format="%.3f"))
