"""What a paper's runs mean: the discussion at the end of its page, computed from the ledger and the store."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import pandas as pd

from fl_core.experiments.artifacts import Artifact, artifacts, find_artifact, make_study, no_runs
from fl_core.experiments.claims import FULL, Judgement
from fl_core.experiments.evidence import LOOKS, Effect
from fl_core.experiments.grid import in_words, plan
from fl_core.experiments.ledger import DATASET, REDUCED, SEEDS, at_full_budget, judged
from fl_core.experiments.spec import RunSpec
from fl_core.experiments.store import Store, default_store
from fl_core.experiments.study import Study, load_study
from fl_core.experiments.verify import published_records
from fl_core.experiments.worker import still_needed
from fl_core.report import Markdown
from fl_core.report.tables import Table, anchor
from fl_core.report.verdicts import UNITS, measured


@dataclass(frozen=True)
class Diagnosis:
    """A supposed reason why claims come out as they do, and the runs that would bear it out or refute it."""

    about: str
    """Numbers of the claims: ``"C01 C14"``."""
    reason: str
    """As a clause that may be wrong: ``"rounds take longer, so that as many uploads give them more time"``."""
    artifact: str
    """Whose runs test it."""
    test: Callable[[Study], Sequence[Effect]]
    """What has to hold if the reason is right."""
    budget: str = REDUCED
    """Profile of those runs."""


def discussion(paper: str, diagnoses: Iterable[Diagnosis] = (), store: Store | None = None) -> Markdown:
    """Return what holds, what is weaker and by how much, what is contradicted, why, and what would change that."""
    store = store or default_store()
    found = [each for each in judged(paper=paper, store=store) if each.counted and each.claim.kind == "run"]
    parts = [_group(found, label, lead) for label, lead in LEADS.items()]
    parts += [
        _why(paper, diagnoses, store),
        _outlook(paper, found, store),
        own_size(paper, store),
        cost(paper, store),
    ]
    return Markdown("\n\n".join(part for part in parts if part))


LEADS = {
    "reproduced": "What holds",
    "weaker than printed": "What holds, and is weaker than printed",
    "smaller than printed, sign open": "What is smaller than printed, if it is there at all",
    "no difference": "What makes no difference that counts",
    "contradicted": "What is contradicted",
}


def _group(found: Iterable[Judgement], label: str, lead: str) -> str:
    lines = [_line(each) for each in found if each.label == label]
    return "\n".join([f"**{lead}** ({len(lines)}).", "", *lines]) if lines else ""


def _line(judgement: Judgement) -> str:
    claim, part = judgement.claim, judgement.decisive
    where = f" ({part.name})" if part and len(judgement.parts) > 1 else ""
    left_out, *_ = judgement.left_out.partition(" (")  # why stands in the claim's own row
    few = judgement.reason if judgement.label in ("no difference", "contradicted") else left_out
    found = f"{measured(judgement)}{where}{few and f'; {few}'}{_shortfall(judgement)}"
    return f"- {_link(claim.id)} {claim.statement.rstrip('.')}: {found}."


def _link(name: str) -> str:
    return f"[{name.partition('-')[2]}](replication.html#{anchor(name)})"


def _shortfall(judgement: Judgement) -> str:
    """Return how much of the printed effects is there, of those parts whose interval excludes what is printed."""
    small = [each for each in judgement.effects if each.size == "smaller"]
    if not small or judgement.label == "contradicted":
        return ""
    portions = sorted(portion(each, each.estimate) for each in small)
    most = max(max(portion(each, end) for end in each.interval) for each in small)
    between = " to ".join(dict.fromkeys(f"{100 * each:.0f}" for each in (portions[0], portions[-1])))
    of = f" in the {len(small)} of {len(judgement.effects)} parts that exclude it" * (len(judgement.effects) > 1)
    return f": {between} % of what is printed{of}, at most {100 * most:.0f} %"


def portion(effect: Effect, shown: float) -> float:
    """Return which part of the printed gain (or saving, of a ratio) an effect of so much is."""
    null = effect.scale.shown(effect.null)
    return (shown - null) / (effect.printed_shown - null)


# Why


def _why(paper: str, diagnoses: Iterable[Diagnosis], store: Store) -> str:
    lines, rows = [], []
    for each in diagnoses:
        about = ", ".join(_link(f"{paper}-{number}") for number in each.about.split())
        said, compared = borne_out(each, store)
        lines.append(f"- {about}: perhaps {each.reason}. {said}")
        rows += [{"claims": each.about, **row} for row in compared]
    lead = (
        "**Why?** Suspicions, each with what runs that test it say (every comparison alone, by its own planned look):"
    )
    wrap, fold = {"claims": 6, "comparison": 12}, f"Comparison by comparison ({len(rows)})"
    table = Table(pd.DataFrame(rows), wrap=wrap, fold=fold).to_html() if rows else ""
    return "\n".join([lead, "", *lines, "", table]) if lines else ""


def borne_out(diagnosis: Diagnosis, store: Store) -> tuple[str, list[dict[str, str]]]:
    """Return in words whether the stored runs bear a diagnosis out, and every comparison."""
    artifact = find_artifact(diagnosis.artifact)
    seeds = range(max(LOOKS)) if diagnosis.budget == REDUCED else None
    study = load_study(make_study([artifact], diagnosis.budget, DATASET, seeds), store)
    parts = [each for each in diagnosis.test(study) if each.seeds]
    profile = f" --profile {diagnosis.budget}" * (diagnosis.budget != REDUCED)
    if not parts:
        return f"**Not tested**: its runs are not stored (`fl-core work {artifact.id}{profile}`).", []
    said = [each.direction for each in parts if not each.excluded]
    ways = Counter(direction if direction in ("holds", "open") else "not" for direction in said)
    alike = {"holds": "Borne out", "not": "Refuted", "open": "Open"}
    word = alike[next(iter(ways))] if len(ways) == 1 else "Mixed" if ways else "Not judged"
    counts = f"of {len(said)} comparisons {ways['holds']} for it, {ways['not']} against it, {ways['open']} open"
    all_alike = {1: "one comparison", 2: "both comparisons"}.get(len(said), f"all {len(said)} comparisons")
    counts = counts if word == "Mixed" else all_alike
    counts += f", {len(parts) - len(said)} left out" * (len(said) < len(parts))
    rows = [_row(each) for each in parts]
    told = counts if len(parts) > 1 else "{}: {}, has to be {}, {}".format(*rows[0].values())
    return f"**{word}**: {told} (`{artifact.id}`).", rows


def _row(effect: Effect) -> dict[str, str]:
    value, interval, claimed = effect.words()
    count = effect.look or len(effect.seeds)
    found = f"{value}{UNITS.get(effect.scale.unit, '')}" + f" {interval}" * (interval != "–")
    seeds = f"{count} seed{'s' * (count != 1)}"
    name = effect.name + f" ({effect.excluded})" * bool(effect.excluded)
    return {"comparison": name, "effect [interval]": found, "has to be": claimed, "rests on": seeds}


# What would change it


def _outlook(paper: str, found: Sequence[Judgement], store: Store) -> str:
    names = {each.claim.id for each in found}
    rests = [r for r in still_needed(_carriers(paper), None, DATASET, None, store) if r.judgement.claim.id in names]
    planned = [rest for rest in rests if rest.missing]
    lines = []
    if planned:
        costs = {rest.judgement.claim.id: plan(rest.missing, store).core_seconds for rest in planned}
        together = plan([spec for rest in planned for spec in rest.missing], store)
        each = ", ".join(
            f"{_link(r.judgement.claim.id)} {r.look} seeds, {in_words(costs[r.judgement.claim.id])}" for r in planned
        )
        lines.append(
            f"- Of {len(rests)} open claims {len(planned)} {'is' if len(planned) == 1 else 'are'} expected to be "
            f"decided by {together.missing} more runs, {in_words(together.core_seconds)} of one core "
            f"(`fl-core work --paper {paper.lower()} --undecided`): {each}."
        )
    for rest in (rest for rest in rests if rest.look and not rest.missing):
        link = _link(rest.judgement.claim.id)
        lines.append(f"- {link} would take about {rest.look} seeds, of a measurement that no run is laid out for.")
    stuck = [rest.judgement for rest in rests if not rest.missing and not rest.look]
    if stuck:
        verb = "stays" if len(stuck) == 1 else "stay"
        lines.append(
            f"- {len(stuck)} {verb} open at the effects and spreads seen, with up to {max(LOOKS)} seeds: "
            f"{', '.join(_link(each.claim.id) for each in stuck)}. Another setting or measurement could decide them."
        )
    decided = [each for each in found if not each.open]
    moved = [j for j in decided if {j.with_margin(0.5).label, j.with_margin(2).label} != {j.label}]
    if moved:
        which = ", ".join(_link(each.claim.id) for each in moved)
        lines.append(f"- What counted as equal, halved or doubled, decides the label of {which}.")
    reduced = [each for each in found if each.budget != FULL]
    if reduced:
        full = at_full_budget(*reduced, store=store)
        lines.append(
            f"- {len(reduced)} of {len(found)} are judged at a reduced budget. Profile `{FULL}`, which goes before, "
            f"needs {full.missing} more runs for a first look at all, {in_words(full.core_seconds)} of one core."
        )
    return "\n".join(["**What would still change the verdict.**", "", *lines]) if lines else ""


def _carriers(paper: str) -> list[Artifact]:
    return [each for each in artifacts().values() if any(name.startswith(f"{paper}-") for name in each.claims)]


# What it rests on


def own_size(paper: str, store: Store | None = None) -> str:
    """Return which whole figures and tables are published at the paper's own devices, updates and local steps."""
    store = store or default_store()
    grids = store.grids()
    sizes: dict[str, list[RunSpec]] = {}
    for result in store.outlines():
        if grids.get(result.spec.hash, "").startswith(f"{paper.lower()}-") and result.provenance["data"] == "real":
            sizes.setdefault(_size(result.spec), []).append(result.spec)
    whole: dict[tuple[int, str], list[str]] = {}
    for artifact in _carriers(paper):
        if artifact.make_grid is no_runs or not artifact.is_on(DATASET):
            continue
        specs = {spec.hash: spec for spec in make_study([artifact], FULL, DATASET, SEEDS[0][:1]).specs}.values()
        runs = [sizes.get(_size(spec), []) for spec in specs]
        if runs and all(runs):
            seeds = min(len({spec.seed for spec in each}) for each in runs)
            reduced = sorted({spec.model for each in runs for spec in each} - {spec.model for spec in specs})
            network = f", with the reduced network `{', '.join(reduced)}`" if reduced else ""
            words = f"{len(specs)} runs a seed, {seeds} seed{'s' * (seeds != 1)}{network}"
            whole.setdefault((len(specs), words), []).append(f"`{artifact.id}`")
    lead = f"**At the paper's own number of devices, updates and local steps** on {DATASET}"
    if not whole:
        return f"{lead}: no whole figure or table."
    told = "; ".join(f"{', '.join(names)} ({words})" for (_, words), names in sorted(whole.items(), reverse=True))
    return f"{lead}, whole as far as they are about it: {told}."


def _size(spec: RunSpec) -> str:
    """Return what of a specification is not how it is measured, its network or its seed."""
    kept = {name: value for name, value in spec.to_dict().items() if name not in ("evaluation", "model", "seed")}
    return json.dumps(kept, sort_keys=True)


def cost(paper: str, store: Store | None = None) -> str:
    """Return what the published records of a paper have cost, and on how many of them no verdict can rest."""
    rows = published_records(store or default_store())
    rows = rows[rows["paper"] == paper.lower()]
    if rows.empty:
        return ""
    every, real = (rows[rows["data"] == data].to_dict("records")[0] for data in ("all", "real"))
    other = every["records"] - real["records"]
    beside = f"; {other} are on generated or altered data, to check the mechanism" if other else ", all on real data"
    return (
        f"**What it has cost.** {every['records']} published records{beside}: {every['core-hours']:g} core-hours, "
        f"about {every['MJ, estimated']:g} MJ (an [estimate](../../../book/records.html))."
    )
