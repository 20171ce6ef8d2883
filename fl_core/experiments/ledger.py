"""The ledger: every claim judged once, on the union of the runs that are stored, and exported for other programs.

The command line, the pages and the export ask :func:`judged`, so they say the same. A claim is judged at the paper's
own budget where its runs are stored with three seeds, else at `laptop`, and then it is marked as reduced.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, lru_cache
from importlib import metadata
from itertools import pairwise
from pathlib import Path
from typing import Any

from fl_core.datasets import data_folder
from fl_core.errors import known
from fl_core.experiments.artifacts import artifacts, find_artifact, make_study
from fl_core.experiments.claims import (
    FULL,
    Check,
    Claim,
    Judgement,
    Part,
    claims,
    find_claim,
    headline,
    judge_one,
    settled,
)
from fl_core.experiments.claims import ledger as frame
from fl_core.experiments.evidence import LOOKS, SCALES, Censored, Effect
from fl_core.experiments.grid import Plan, plan
from fl_core.experiments.identity import instructions
from fl_core.experiments.run import Result
from fl_core.experiments.store import DAMAGES, Store, default_store, looked_up, write_atomically
from fl_core.experiments.study import Entry, Study
from fl_core.experiments.verify import TABLE, is_verified
from fl_core.plugins import paper_modules

REDUCED = "laptop"
"""Profile of the reduced budget."""
SEEDS = [range(first, last) for first, last in pairwise([0, *LOOKS])]
"""What each look adds; more are looked for only if some of the former are stored."""
DATASET = "fashion-mnist"
EXPORT = "claims.csv"
MOST_KEPT = 40
"""Files of judgements in the cache: two a paper for each state of the source and the store."""


def papers() -> list[str]:
    """Return the papers that claims are about, e.g. ``"FEDASYNC"``."""
    return list(dict.fromkeys(claim.paper for claim in claims().values()))


def known_paper(name: str) -> str:
    """Return the name of a paper as claims write it."""
    return known("paper", name.upper(), papers())


def judged(
    names: Iterable[str] | None = None, paper: str | None = None, store: Store | None = None, dataset: str = DATASET
) -> list[Judgement]:
    """Return the judgements of the claims called `names`, of those of `paper`, or of all, each within its paper."""
    only = paper and known_paper(paper)
    if names is None:
        wanted = [claim for claim in claims().values() if only in (None, claim.paper)]
    else:
        wanted = [find_claim(name) for name in names]
    store = store or default_store()
    found: dict[str, Judgement] = {}
    for each in dict.fromkeys(claim.paper for claim in wanted):
        found |= {judgement.claim.id: judgement for judgement in _of_paper(each, store, dataset, store.stamp())}
    return [found[claim.id] for claim in wanted]


@lru_cache(maxsize=16)
def _of_paper(paper: str, store: Store, dataset: str, stamp: tuple[Any, ...]) -> tuple[Judgement, ...]:
    every = artifacts()

    @cache
    def grid(artifact: str, budget: str, seeds: range) -> tuple[Entry, ...]:
        return tuple(every[artifact].grid(budget, dataset, seeds))

    stored: dict[str, Result | None] = {}
    rests_on: dict[str, str] = {}
    """The records that are judged, by hash, those too that are not there."""

    @cache
    def study(carriers: tuple[str, ...], budget: str) -> Study:
        entries: dict[str, Entry] = {}
        results: dict[str, Result] = {}
        for seeds in SEEDS:
            more = {f"{e.key} {e.labels}": e for artifact in carriers for e in grid(artifact, budget, seeds)}
            new = {entry.key: entry for entry in more.values() if entry.key not in stored}
            rests_on.update(store.state(s.hash for entry in new.values() for s in looked_up(entry.spec)))
            stored.update({key: store.get(entry.spec) for key, entry in new.items()})
            found = {e.key: result for e in more.values() if (result := stored[e.key]) is not None}
            entries, results = entries | more, results | found
            if not found:
                break
        return Study(budget, dataset, tuple(entries.values()), results)

    def one(claim: Claim) -> Judgement:
        carriers = carried[claim.id]
        full = judge_one(claim, study(carriers, FULL))
        known_exactly = full.parts and all(check.holds is not None for check in full.checks)
        if claim.kind != "run" and known_exactly and not full.effects:
            return full
        reduced = judge_one(claim, study(carriers, REDUCED))
        decidable = known_exactly and (full.seeds or not full.effects)
        return full if decidable and len(full.effects) >= len(reduced.effects) else reduced

    def marked(claim: Claim) -> Judgement:
        judgement = one(claim)
        doubtful = (key for key in judgement.runs if (found := stored.get(key)) and not is_verified(found))
        return replace(judgement, unverified=tuple(sorted(doubtful)))

    own = [claim for claim in claims().values() if claim.paper == paper]
    carried = {claim.id: tuple(each.id for each in every.values() if claim.id in each.claims) for claim in own}
    by_runs = [c for c in own if any(every[name].grid("smoke", dataset, SEEDS[0][:1]) for name in carried[c.id])]
    found = {
        judgement.claim.id: replace(judgement, artifacts=carried[judgement.claim.id], stored=True)
        for group, named_by, records in (
            (by_runs, (dataset, store.published, _known_equivalences()), rests_on),
            ([c for c in own if c not in by_runs], (), {}),
        )
        for judgement in _kept(group, f"{paper}-{_digest(_source(), *named_by)}", marked, store, records)
    }
    return tuple(settled(found[claim.id] for claim in own))


def _kept(
    wanted: Sequence[Claim], name: str, judge: Callable[[Claim], Judgement], store: Store, rests_on: dict[str, str]
) -> list[Judgement]:
    """Return the judgements of claims, each by itself, from the file in the cache that holds those called `name`.

    The name stands for all that they rest on but the records in `store`, which judging enters in `rests_on`: if one
    of these is another now, or there at last, they are judged again. Where a record was damaged, nothing is kept: its
    warning is to be seen.
    """
    path = data_folder() / "cache" / "claims" / f"{name}.json"
    with suppress(*DAMAGES):  # not kept, or damaged: judged again
        digest, _, text = path.read_text().partition("\n")
        records, kept = json.loads(text)
        if digest == _digest(text) and records == store.state(records):
            return [_from_json(claim, **kept[claim.id]) for claim in wanted]
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = [judge(claim) for claim in wanted]
    for each in said:
        warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        for old in sorted(path.parent.iterdir(), key=lambda file: file.stat().st_mtime)[:-MOST_KEPT]:
            old.unlink()
        if not said:
            text = json.dumps([rests_on, {each.claim.id: _as_json(each) for each in found}])
            write_atomically(path, f"{_digest(text)}\n{text}".encode())
    return found


def _as_json(judgement: Judgement) -> dict[str, Any]:
    fields = ("dataset", "data_kind", "budget", "unverified")
    parts = [_part_as_json(part) for part in judgement.parts]
    return {name: getattr(judgement, name) for name in fields} | {"parts": parts}


def _from_json(claim: Claim, parts: Iterable[dict[str, Any]], **fields: Any) -> Judgement:
    fields["unverified"] = tuple(fields["unverified"])
    found = Judgement(claim, tuple(_part_from_json(**part) for part in parts), **fields)
    return replace(found, p=found.own_p)


def _part_as_json(part: Part) -> dict[str, Any]:
    fields = {name: value for name, value in vars(part).items() if name in part.__dataclass_fields__}
    if isinstance(part, Check):
        return fields
    sides = {
        name: [{str(seed): float(value) for seed, value in side.items()}]
        + [sorted(getattr(side, more, ())) for more in ("at_least", "runs")]
        if isinstance(side, Mapping)
        else float(side)
        for name, side in (("left", part.left), ("right", part.right))
    }
    return fields | sides | {"scale": SCALES.index(part.scale)}


def _part_from_json(**fields: Any) -> Part:
    if "holds" in fields:
        return Check(**fields)
    for name in ("left", "right"):
        if isinstance(fields[name], list):
            values, *more = fields[name]
            fields[name] = Censored({int(seed): value for seed, value in values.items()}, *more)
    return Effect(**fields | {"scale": SCALES[fields["scale"]]})


@cache
def _source() -> str:
    """Return a digest of all code and printed numbers that a claim may rest on, and of what computes them."""
    folders = [Path(__file__).parents[1], *(Path(str(m.__file__)).parent for m in paper_modules("claims"))]
    files = [path for folder in folders for path in folder.rglob("*") if path.suffix in (".py", ".csv", ".npz")]
    versions = [metadata.version(name) for name in ("numpy", "scipy", "sympy", "torch")]
    return _digest(*versions, instructions(), *(path.read_bytes() for path in sorted(files)))


def _known_equivalences() -> tuple[int, ...]:
    """Return what changes when the table does that says which records are verified."""
    with suppress(FileNotFoundError):
        status = (default_store().published / TABLE).stat()
        return status.st_mtime_ns, status.st_size
    return ()


def _digest(*contents: object) -> str:
    whole = hashlib.sha256()
    for content in contents:
        whole.update(content if isinstance(content, bytes) else repr(content).encode())
    return whole.hexdigest()[:16]


def at_full_budget(*judgements: Judgement, store: Store | None = None) -> Plan:
    """Return what a first look at claims at the paper's budget needs: the runs of their figures, and the cost."""
    figures = dict.fromkeys(name for judgement in judgements for name in judgement.artifacts)
    study = make_study([find_artifact(name) for name in figures], FULL, judgements[0].dataset, SEEDS[0])
    return plan(study.specs, store)


def in_short(judgements: Iterable[Judgement]) -> str:
    """Return the headline as sentences: claims by kind and label, verdicts that may be wrong, unverified records."""
    found = list(judgements)
    if not found:
        return "No claim."
    head = headline(found)
    groups = [
        f"{group}: " + ", ".join(f"{count} {label}" for label, count in labels.most_common())
        for group, labels in head["labels"].items()
        if labels
    ]
    others = len(found) - sum(labels.total() for labels in head["labels"].values())
    listed = f" {others} more {'is' if others == 1 else 'are'} listed, not counted." if others else ""
    decided, wrong = head["decided"], head["expected_wrong"]
    errors = f" Of the {decided} decided about runs at most {wrong:.1f} are expected to be wrong." if decided else ""
    runs, doubtful = (len({key for each in found for key in getattr(each, name)}) for name in ("runs", "unverified"))
    doubts = (
        f" Of the {runs} records that they rest on {doubtful} are UNVERIFIED: made by other code." if doubtful else ""
    )
    return f"{'; '.join(groups)}.{listed}{errors}{doubts}"


def standard(dataset: str, profile: str, seeds: object, overrides: object) -> bool:
    """Return whether a figure with these parameters shows what the ledger is judged on."""
    return dataset == DATASET and profile in (FULL, REDUCED) and seeds is None and not overrides


def as_csv(judgements: Iterable[Judgement]) -> str:
    """Return the export: the frame with four significant digits."""
    return frame(judgements).to_csv(index=False, float_format="%.4g")


def export(folder: Path) -> Path:
    """Write the ledger of the runs that are published in a data folder to a file there, and return the file."""
    published = folder / "results"
    path = folder / EXPORT
    write_atomically(path, as_csv(judged(store=Store(published, published))).encode())
    return path
