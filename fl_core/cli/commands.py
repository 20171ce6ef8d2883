"""What the commands of ``fl-core`` do; :mod:`fl_core.cli` gives them their names, options and help."""

from __future__ import annotations

import io
import json
import shutil
import textwrap
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fl_core.datasets import base, registry
from fl_core.errors import DataError, RunError, SpecError, unknown

if TYPE_CHECKING:
    from fl_core.experiments.run import Result
    from fl_core.experiments.spec import RunSpec
    from fl_core.runtime import Checkpoints

Echo = Callable[[str], object]
MIB = 1 << 20


@dataclass(frozen=True)
class Keep:
    """Where the result of a single run goes.

    Attributes
    ----------
    store : bool
        Whether to the cache of the store.
    out : Path or None
        A JSON file.
    force : bool
        Whether that file may exist.
    """

    store: bool = True
    out: Path | None = None
    force: bool = False

    def check(self) -> None:
        """Refuse, before anything is computed, what could not be written afterwards."""
        from fl_core.experiments.store import check_writable, default_store

        if self.store:
            check_writable(default_store().cache)
        if self.out is None:
            return
        folder = self.out.absolute().parent
        if self.out.is_dir():
            raise SpecError(f"{self.out} is a folder; give the name of a file")
        if self.out.exists() and not self.force:
            raise SpecError(f"{self.out} exists; give another name or add --force")
        if self.out.exists() and not self.out.is_file():
            raise SpecError(f"{self.out} is no regular file and is not replaced; give another name")
        if not folder.is_dir():
            raise SpecError(f"cannot write {self.out}: the folder {folder} does not exist")
        check_writable(folder, f"{self.out.name}")

    def save(self, result: Result) -> None:
        """Write `result` to both places; each file appears whole or not at all."""
        from fl_core.experiments.store import default_store, keep_elsewhere, write_atomically

        if self.out is not None:
            history = result.history.to_dict()
            content = {"spec": result.spec.to_dict(), "provenance": result.provenance, "history": history}
            text = json.dumps(content, allow_nan=False).encode()
            try:
                write_atomically(self.out, text)
            except OSError as error:
                kept = keep_elsewhere(f"{result.spec.hash}.json", text)
                raise RunError(f"{self.out} cannot be written ({error.strerror or error}); {kept}") from None
        if self.store:
            default_store().save(result)


def run_checkpoints(spec: RunSpec, every: str | None, resume: bool, trace: bool, echo: Echo) -> Checkpoints | None:
    """Return where the state of the run is kept, or None if that is not wanted."""
    from fl_core.cli.settings import read_duration
    from fl_core.experiments.store import default_store

    if every is None and not resume:
        return None
    place = default_store().checkpoints(spec, trace, read_duration("--checkpoint-every", every or "60s"))
    found = any(place.folder.glob("*.safetensors"))
    if found and not resume:
        raise SpecError(
            f"there is a checkpoint of this run in {place.folder}; add --resume to go on from it, "
            "or delete that folder to begin again"
        )
    if resume:
        echo(f"resuming from {place.folder}" if found else "there is no checkpoint of this run: it begins anew")
    return place


def run_one(
    spec: RunSpec,
    executor: str | None,
    threads: int | None,
    trace: bool,
    keep: Keep,
    echo: Echo,
    checkpoints: Checkpoints | None = None,
) -> Result:
    """Run `spec`, with a progress bar on a terminal, keep the result, and print its table of evaluations."""
    from tqdm import tqdm

    from fl_core.experiments.run import run
    from fl_core.runtime.executors import EXECUTORS, default_executor

    spec = spec.resolved()
    executor = executor or default_executor()
    if executor not in EXECUTORS:
        raise unknown("executor", executor, EXECUTORS)
    keep.check()
    form = "{l_bar}{bar}| {elapsed}<{remaining}"
    with tqdm(total=1.0, desc=spec.algorithm.name, bar_format=form, disable=None, leave=False) as bar:

        def progress(part: float) -> None:
            bar.update(part - bar.n)

        try:
            result = run(
                spec, executor=executor, threads=threads, trace=trace, progress=progress, checkpoints=checkpoints
            )
        except KeyboardInterrupt:
            if checkpoints is None or not any(checkpoints.folder.glob("*.safetensors")):
                raise
            raise KeyboardInterrupt("the same command with --resume goes on from the last checkpoint") from None
    keep.save(result)
    if checkpoints is not None:
        checkpoints.clear()
    wall = result.provenance["wall_seconds"]
    echo(evaluation_table(result))
    echo(f"\nrun {spec.hash}: {spec.dataset} ({result.provenance['data']} data), seed {spec.seed}, {wall:.1f} s")
    if result.history.ended == "rejected":
        reason = result.history.faults["fault"][-1].removeprefix("rejected: ")
        echo(
            f"ended before its budget: no upload could be used any more ({reason}), as when training diverges; "
            "try a smaller training.lr"
        )
    elif result.history.ended == "lost":
        echo("ended before its budget: no upload arrived any more; look at world.faults")
    if keep.out is not None:
        echo(f"written to {keep.out}")
    return result


def evaluation_table(result: Result) -> str:
    """Return the evaluations of a run as text."""
    names = {"test_accuracy": "accuracy", "test_loss": "loss", "train_loss": "train loss"}
    frame = result.history.evaluation_frame().rename(columns=names)
    columns = ["seconds", "version", "gradients", "communications", *names.values()]
    if frame["train loss"].isna().all():
        columns.remove("train loss")
    digits: dict[Any, Any] = dict.fromkeys(names.values(), "{:.4f}".format) | {"seconds": "{:.1f}".format}
    return frame[columns].to_string(index=False, formatters=digits)


def plan_text(names: Sequence[str], profile: str, dataset: str, seeds: list[int] | None, jobs: int | None) -> str:
    """Return, for each artifact and for all together, how many runs there are and how many are missing."""
    from fl_core.experiments import grid
    from fl_core.experiments.artifacts import artifacts, find_artifacts, make_study
    from fl_core.experiments.store import default_store
    from fl_core.experiments.verify import in_words, is_verified

    store = default_store()
    chosen = find_artifacts(names or list(artifacts()))
    needed = {a.id: {e.spec.hash: e.spec for e in make_study(a, profile, dataset, seeds).entries} for a in chosen}
    together = {key: spec for specs in needed.values() for key, spec in specs.items()}
    stored = {key: found for key, spec in together.items() if (found := store.get(spec))}
    unverified = {key for key, result in stored.items() if not is_verified(result)}
    width = max(map(len, [*needed, "artifact"])) + 2
    lines = [f"{'artifact':<{width}}{'runs':>6}{'in store':>10}{'unverified':>12}{'missing':>9}"]
    for name, specs in needed.items():
        have = len(stored.keys() & specs.keys())
        lines.append(
            f"{name:<{width}}{len(specs):>6}{have:>10}{len(unverified & specs.keys()):>12}{len(specs) - have:>9}"
        )
    if stored:
        lines += ["", f"in store: {in_words(stored.values())}; see 'fl-core verify --help'"]
    lines += ["", f"all of them at profile {profile}, each run counted once:"]
    return "\n".join([*lines, grid.plan(together.values(), store, jobs=jobs).table()])


def pack_results(echo: Echo) -> None:
    """Move the published records that are single files into one file for each grid."""
    from fl_core.datasets import data_folder
    from fl_core.errors import FlCoreError
    from fl_core.experiments import ledger
    from fl_core.experiments.artifacts import artifacts
    from fl_core.experiments.calibration import calibration, calibration_on_real_data
    from fl_core.experiments.experiment import PROFILES
    from fl_core.experiments.store import Store, default_store, pack, singles

    store = default_store()
    grids: dict[str, str] = {}
    seeds = sorted({result.spec.seed for result in singles(store.published)})
    for dataset in sorted({result.spec.dataset for result in singles(store.published)}):
        for artifact in artifacts().values():
            for profile in PROFILES:
                try:
                    entries = artifact.grid(profile, dataset, seeds)
                except FlCoreError:
                    continue  # not on this data
                for entry in entries:
                    grids.setdefault(entry.key, artifact.id)
    kept = Store(store.published, store.published)
    for entry in (*calibration(kept).entries, *calibration_on_real_data(kept).entries):
        grids.setdefault(entry.key, "calibration")
    changed = pack(store.published, grids)
    if changed and store.published == data_folder() / "results":
        changed.append(ledger.export(data_folder()))
    for path in changed:
        echo(f"written {path}")


def show_claims(names: list[str], paper: str | None, undecided: bool, form: str, wanted: bool, echo: Echo) -> None:
    """Print the ledger as a table, CSV or JSON, one claim with all parts, or write the export (`wanted`)."""
    from fl_core.datasets import data_folder
    from fl_core.experiments import ledger
    from fl_core.experiments.claims import details
    from fl_core.report.tables import Table, in_words

    if wanted:
        echo(f"written {ledger.export(data_folder())}")
        return
    found = ledger.judged([name.upper() for name in names], paper)
    found = [each for each in found if each.open or not undecided]
    if form == "csv":
        echo(ledger.as_csv(found).rstrip())
    elif form == "json":
        echo(ledger.frame(found).to_json(orient="records", indent=1, double_precision=6))
    elif len(names) == 1 and found:
        [one] = found
        echo(f"{one.sentence()}\n{one.claim.source}; {one.claim.endpoint}")
        echo(f"null: {one.claim.null}; decided by {', '.join(one.artifacts) or 'mathematics'}\n")
        echo(Table(details(found).drop(columns="claim")).to_text())
    else:
        columns = ["claim", "label", "measured", "claimed", "seeds", "budget", "reason"]
        echo(Table(in_words(found)[columns]).to_text())
        echo(ledger.in_short(found))


def regenerate(
    target: str, profile: str | None, values: dict[str, Any], output: Path | None, jobs: int | None, echo: Echo
) -> list[Path]:
    """Make one notebook or one artifact again; return the files written."""
    from fl_core.bookbuild import regenerate as regenerate_notebook
    from fl_core.bookbuild.chapters import committed, matching

    if profile is not None and any(name.lower() == "profile" for name in values):
        raise SpecError("the profile is given twice: use --profile or -p PROFILE=NAME")
    if target.endswith(".ipynb") or matching(target):
        chosen = values if profile is None else {"PROFILE": profile, **values}
        return [regenerate_notebook(target, chosen, output, echo=echo)]
    from fl_core.experiments.artifacts import artifacts

    if target not in artifacts():
        raise unknown("artifact or notebook", target, [*artifacts(), *committed().values()])
    return _make_artifact(target, profile, values, output, jobs, echo)


def _make_artifact(
    name: str, profile: str | None, values: dict[str, Any], output: Path | None, jobs: int | None, echo: Echo
) -> list[Path]:
    """Run what is missing of the artifact's grid, then write its figure, its table and its caption.

    Without a profile the published records are shown, as on the page, or a run at profile smoke where there are none.
    """
    import matplotlib

    from fl_core.bookbuild.chapters import ROOT, file_name
    from fl_core.experiments import grid
    from fl_core.experiments.artifacts import find_artifact, make_study, stored_seeds
    from fl_core.experiments.claims import judge
    from fl_core.experiments.ledger import judged, standard
    from fl_core.experiments.store import check_writable, default_store, write_atomically
    from fl_core.experiments.study import load_study
    from fl_core.report.figures import draw
    from fl_core.report.tables import Table

    matplotlib.use("Agg")
    artifact, store = find_artifact(name), default_store()
    options = {key.lower(): value for key, value in values.items()}
    seeds = options.pop("seeds", None)
    if seeds is not None and not (isinstance(seeds, list | tuple) and all(type(seed) is int for seed in seeds)):
        raise SpecError(f"seeds = {seeds!r} are not valid: write a list of whole numbers, for example seeds=[0,1]")
    dataset = options.pop("dataset", "fashion-mnist")
    profile = options.pop("profile", profile)
    empty = make_study(artifact, profile or "smoke", dataset, seeds, **options)
    if profile is None and empty.entries:
        empty = stored_seeds([artifact], store, "smoke", dataset, seeds, **options) or empty
        origin = "no larger one is stored" if empty.profile == "smoke" else "stored runs"
        echo(f"profile {empty.profile}: {origin}")
    folder = output or ROOT / "_build" / "artifacts" / empty.profile
    if folder.exists() and not folder.is_dir():
        raise SpecError(f"{folder} is a file; the output of an artifact is a folder")
    before = load_study(empty, store).results
    check_writable(folder, name)
    grid.execute([entry.spec for entry in empty.entries], jobs=jobs, store=store)
    study = load_study(empty, store)
    shown, caption = draw(artifact, study)
    if study.results:
        computed = [result for key, result in study.results.items() if key not in before]
        echo(f"from the store: {_commits(before.values())}; computed now: {_commits(computed)}")
        caption += f"\nRests on {_commits(study.results.values())}."
    contents = {"csv": artifact.reduce(study).to_csv(index=False).encode(), "txt": f"{caption}\n".encode()}
    if isinstance(shown, Table):
        contents |= {"md": f"{shown.to_markdown()}\n".encode(), "html": f"{shown.to_html()}\n".encode()}
    else:
        with matplotlib.rc_context({"svg.hashsalt": name}):
            for suffix, metadata in (("png", {"Software": None}), ("svg", {"Date": None})):
                buffer = io.BytesIO()
                shown.savefig(buffer, format=suffix, dpi=200, bbox_inches="tight", metadata=metadata)
                contents[suffix] = buffer.getvalue()
    folder.mkdir(parents=True, exist_ok=True)
    stem = file_name(name, {key: value for key, value in values.items() if key.lower() != "profile"})
    paths = [folder / f"{stem}.{suffix}" for suffix in reversed(contents)]
    for path in paths:
        write_atomically(path, contents[path.suffix[1:]])
    echo(caption)
    if artifact.claims:
        alone = not standard(dataset, empty.profile, seeds, options)
        echo("Judged on " + ("these runs alone:" if alone else "all stored runs, as by 'fl-core claims':"))
        for found in judge(artifact.claims, study) if alone else judged(sorted(artifact.claims)):
            echo(found.sentence())
    echo("written: " + ", ".join(map(str, paths)))
    return paths


def _commits(results: Collection[Result]) -> str:
    """Say how many runs were made by which commits: ``"18 runs (12 by 65f9108111d5, 6 by 372ff73d2bbc)"``."""
    commits = Counter(result.provenance.get("commit", "unknown") for result in results)
    listed = ", ".join(f"{number} by {commit}" for commit, number in commits.most_common())
    return f"{len(results)} run{'s' * (len(results) != 1)}" + (f" ({listed})" if listed else "")


def listing(width: int | None = None) -> str:
    """Return the text that ``fl-core data`` prints."""
    width = width or min(110, shutil.get_terminal_size((100, 24)).columns)
    lines: list[str] = []
    for source in registry.all_sources().values():
        lines += [*_entry(source, width), ""]
    lines += textwrap.wrap(
        f"Archives and prepared data sets are in {registry.datasets_folder()}; ${registry.FOLDER} names another "
        f"folder, ${registry.SEARCH} further ones that are only read. 'fl-core data import FILE' takes an archive or "
        "an unpacked copy from anywhere. A surrogate is a generated stand-in, marked wherever a number is shown.",
        width,
    )
    return "\n".join(lines)


def state(source: base.Source) -> str:
    """Return its kind, ``"surrogate"`` or ``"missing"``: what a specification that names `source` gets here."""
    if registry.is_present(source.name):
        return source.kind
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
    """
    for name in names:
        if name not in registry.names():
            raise unknown("data set", name, registry.names())
    for name in names:
        chosen = registry.all_surrogates().get(name) or registry.all_sources()[name]
        if isinstance(chosen, base.Source) and chosen.embedded:
            if again or not registry.place(chosen):
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


def take_in(paths: list[Path], echo: Echo) -> None:
    """Read data sets from files or folders of any known form, verify their samples, and keep them."""
    for path in (path.absolute() for path in paths):
        if not path.exists():
            raise DataError(f"there is no {path}")
        if not (found := registry.recognise(path)):
            known = sorted(
                {each.file for s in registry.all_sources().values() for each in s.archives if not s.embedded}
            )
            raise DataError(f"{path} holds no data set by the names of its files; known are {', '.join(known)}, ...")
        for source, folder, form in found:
            data = registry.take_in(source, folder, form)
            how = (
                f"{len(data.train):,} + {len(data.test):,} {'samples' if source.sha256 else 'in an archive'} verified"
            )
            echo(f"{source.name}: {data.kind} data, {how}, kept as {registry.prepared_file(source)}")


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
    if source.by_hand and (again or not registry.place(source)):
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
    shown = kind.upper() if kind in ("surrogate", "missing") else kind
    yield f"{source.name:<22}{shown:<12}{', '.join(facts)}"
    details = [source.title, *filter(None, [source.differs]), f"Licence: {source.licence}", source.homepage]
    if kind == source.kind:
        found = registry.place(source)
        details.append(f"In {found[0] if found else registry.prepared_file(source)}")
    elif source.embedded:
        details.append(f"'git checkout -- data/{source.name}' restores it")
    else:
        how = f"By hand: {source.by_hand}; 'here' is {registry.source_folder(source)}"
        get = "get" if any(archive.url for archive in source.archives) else "import FILE, if you have it:"
        details.append(how if source.by_hand else f"Get it: fl-core data {get} {source.name}")
    if stand_in := registry.all_surrogates().get(f"{source.name}-surrogate"):
        details.append(f"Surrogate {stand_in.name}: {stand_in.about}")
    for text in details:
        yield from textwrap.wrap(text, width - 4, initial_indent="    ", subsequent_indent="      ")
