"""Claims: statements of a paper as functions of results, each judged by the same rules (evidence.py) to one label.

What a claim needs decides how it is judged. A `run` claim is a set of effects over seeds; it holds if all of them do,
is contradicted if one is opposite after Holm's correction, and has two readings, direction and size. A `system`
claim is about the clock and the bytes alone, a `theory` claim about mathematics, in a row of its own as printed and
as corrected; a `definition` is true by construction and never counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np
import pandas as pd

from fl_core.datasets import differs
from fl_core.errors import unknown
from fl_core.experiments.evidence import (
    LEVEL,
    LOOKS,
    OUTCOMES,
    POWER,
    Direction,
    Effect,
    Outcome,
    Size,
    holm,
    luck,
    moderated,
)
from fl_core.experiments.measures import guessing
from fl_core.experiments.study import Study
from fl_core.plugins import paper_modules

Kind = Literal["run", "system", "theory", "definition"]
Label = Literal[
    "reproduced", "weaker than printed", "no difference", "contradicted", "smaller than printed, sign open",
    "undecided", "true", "true as corrected", "vacuous", "unproved", "by construction",
]  # fmt: skip
NO_RUNS = "no runs to judge it on"
FULL = "paper"
"""Profile with the paper's own budget."""
REDUCED = "run at a reduced budget"
GROUPS = "run", REDUCED, "system", "theory"
"""What is counted apart in the headline."""
OPEN: tuple[Label, ...] = ("undecided", "smaller than printed, sign open")
"""What more seeds, or another measurement, could change."""
WORTH_A_LOOK = 0.2
"""From which chance of a decision on the last look is worth its runs, where none decides with a power of 80 %."""


Shows = Literal["statement", "vacuity", "counter-example"]


@dataclass(frozen=True)
class Check:
    """One exact statement; `holds` is None if there is nothing to check it on, `detail` says what was compared."""

    name: str
    holds: bool | None
    detail: str
    shows: Shows = "statement"
    """What it means if it holds: that the statement is true, that it says nothing, or that it is false."""

    def __post_init__(self) -> None:
        if self.holds is not None:  # of numpy's True nobody would say that it is True
            object.__setattr__(self, "holds", bool(self.holds))

    @property
    def refutes(self) -> bool:
        """Whether it shows that a claim is false."""
        return (self.shows, self.holds) in (("statement", False), ("counter-example", True))

    def words(self) -> tuple[str, str, str]:
        """Return what was compared; an exact statement has no interval."""
        return self.detail, "exact", {"vacuity": "says nothing", "counter-example": "false"}.get(self.shows, "equal")


Part = Effect | Check
Judge = Callable[[Study], Sequence[Part]]


@dataclass(frozen=True)
class Claim:
    """A statement of a paper."""

    id: str
    """E.g. ``"FEDASYNC-C03"``."""
    kind: Kind
    statement: str
    """What the paper says, in our words; `source`: where."""
    source: str
    endpoint: str
    """What is measured and compared, in which unit; for theory what is checked."""
    judge: Judge
    """No parts are returned if the study lacks the runs."""
    null: str = "no difference"
    """What is true if the claim is not."""
    corrected: bool = False
    """A statement of theory as we correct it, not as it is printed."""
    proof: str = ""
    """Where a statement of theory is proved by algebra; what is not proved is at most checked on cases."""
    beside: str = ""
    """What it is judged on beside the paper's own method, e.g. a fault of its programs: listed, never counted, and
    corrected (Holm) among its like."""

    @property
    def paper(self) -> str:
        """E.g. ``"FEDASYNC"``."""
        return self.id.partition("-")[0]

    @property
    def reading(self) -> str:
        """Of theory, whether as printed or as corrected."""
        return ("as printed", "as corrected")[self.corrected] if self.kind == "theory" else ""

    @property
    def code(self) -> tuple[str, int]:
        """Name and line of the function that judges it: ``"fl_papers.sdfeel.claims:faster_in_loss", 48``."""
        judge: Any = self.judge
        while isinstance(judge, partial):
            judge = judge.func
        return f"{judge.__module__}:{judge.__qualname__}", judge.__code__.co_firstlineno


@dataclass(frozen=True)
class Judgement:
    """A claim, and what the runs of one study say about it."""

    claim: Claim
    parts: tuple[Part, ...]
    dataset: str
    data_kind: str
    budget: str
    """Profile of the runs; anything but ``"paper"`` is a reduced budget."""
    artifacts: tuple[str, ...] = ()
    stored: bool = False
    """Whether it was judged on all stored runs, as in the ledger; else on the runs of one study alone."""
    unverified: tuple[str, ...] = ()
    """Which of its records this code is not known to give, as the ledger found."""
    family: int = 1
    """Number of claims of the paper among which Holm's correction is made; `step`: how many of them are left when it
    comes to this one."""
    step: int = 1
    p: float = 1.0
    """Of the whole claim, two-sided over all looks, after Holm's correction within the paper."""

    @property
    def effects(self) -> list[Effect]:
        """The parts that are measured and judged."""
        return [part for part in self.parts if isinstance(part, Effect) and not part.excluded]

    @property
    def checks(self) -> list[Check]:
        """The parts that are exact."""
        return [part for part in self.parts if isinstance(part, Check)]

    @property
    def held(self) -> int:
        """Number of effects that hold."""
        return sum(effect.direction == "holds" for effect in self.effects)

    @property
    def data(self) -> str:
        """Kind of the data, and in what it differs from what it is a copy of."""
        return ": ".join(filter(None, [self.data_kind, differs(self.dataset)]))

    @property
    def runs(self) -> frozenset[str]:
        """Hashes of the records that its effects rest on."""
        return frozenset().union(*(part.runs for part in self.parts if isinstance(part, Effect)))

    @cached_property
    def outcomes(self) -> dict[Outcome, float]:
        """Two-sided p-value of each outcome of the claim by itself.

        It holds if all parts do, is opposite if one is (Holm over the parts), and no difference if some are equal and
        the rest hold. An outcome that labels without meaning would have in more than 5 % of the cases has p = 1.
        """
        if not self.effects or any(check.holds is None for check in self.checks):
            return dict.fromkeys(OUTCOMES, 1.0)
        holds = max(effect.p["holds"] for effect in self.effects)
        equal = max(min(effect.p["equal"], effect.p["holds"]) for effect in self.effects)
        some = min(effect.p["equal"] for effect in self.effects)
        shown = [e.p["opposite"] if lucky(0.5, e.look) and e.p["equal"] > LEVEL else 1.0 for e in self.effects]
        return {
            "holds": holds if lucky(luck(self.effects), self.seeds) else 1.0,
            "opposite": min(holm(shown)),
            "equal": max(equal, some) if lucky(luck(self.effects, ordered=False), self.seeds) else 1.0,
        }

    @property
    def decidable(self) -> bool:
        """Whether so many seeds can decide it, whatever they say: that it is opposite, so many of one part."""
        return lucky(luck(self.effects), self.seeds) or any(lucky(0.5, effect.look) for effect in self.effects)

    @cached_property
    def own_p(self) -> float:
        """Two-sided p-value of what is found of the claim by itself."""
        return min(self.outcomes.values())

    @cached_property
    def direction(self) -> Direction:
        """Of all effects together."""
        if any(check.holds is False for check in self.checks):
            return "opposite"
        if self.p <= LEVEL:
            for outcome in OUTCOMES:
                if self.step * self.outcomes[outcome] <= LEVEL:
                    return outcome
        return "open"

    @cached_property
    def size(self) -> Size:
        """Of all effects together: smaller if one is (Holm over the parts), larger if all are."""
        found = {effect.size for effect in self.effects} - {"not printed"}
        if found and min(holm([effect.p_smaller for effect in self.effects])) <= LEVEL:
            return "smaller"
        if found & {"smaller", "open"}:
            return "open"
        sizes: tuple[Size, ...] = "as printed", "larger"
        return next((size for size in sizes if size in found), "not printed")

    @property
    def label(self) -> Label:
        """The one word for both readings; for theory what has been shown."""
        kind, holds = self.claim.kind, [check.holds for check in self.checks]
        if kind == "theory":
            return self._theory()
        direction, smaller = self.direction, self.size == "smaller"
        if not self.effects:
            direction = "open" if not holds or None in holds else "opposite" if False in holds else "holds"
        if direction == "holds":
            return "by construction" if kind == "definition" else "weaker than printed" if smaller else "reproduced"
        if direction == "open":
            return "smaller than printed, sign open" if smaller else "undecided"
        return "no difference" if direction == "equal" else "contradicted"

    def _theory(self) -> Label:
        shown = {(check.shows, check.holds) for check in self.checks}
        if any(check.refutes for check in self.checks):
            return "contradicted"
        if ("vacuity", True) in shown:
            return "vacuous"
        if not self.claim.proof or not shown or any(holds is None for _, holds in shown):
            return "unproved"
        return "true as corrected" if self.claim.corrected else "true"

    @property
    def open(self) -> bool:
        """Whether more runs could decide it."""
        return self.claim.kind == "run" and self.label in OPEN

    @property
    def counted(self) -> bool:
        """Whether it is in the headline: a run or system claim on real data with runs, or theory."""
        if self.claim.kind == "run":
            return self.on_real_data and not self.claim.beside
        return self.claim.kind != "definition"

    @property
    def group(self) -> str:
        """What it is counted with in the headline: its kind, of runs by budget."""
        return REDUCED if self.claim.kind == "run" and self.budget != FULL else self.claim.kind

    @property
    def on_real_data(self) -> bool:
        """Whether there is something to judge it on, and it is real."""
        return self.data_kind == "real" and bool(self.effects or any(c.holds is not None for c in self.checks))

    @cached_property
    def decisive(self) -> Part | None:
        """The part that the label hangs on: the one with least evidence for it."""
        if self.effects and not any(check.refutes for check in self.checks):
            if self.direction == "opposite":
                return min(self.effects, key=lambda e: (e.p["opposite"], e.chances["opposite"]))
            return max(self.effects, key=lambda e: (e.p["holds"], e.chances["holds"]))
        order = {False: 0, None: 1, True: 2}
        checks = sorted(self.checks, key=lambda check: (check.shows == "statement", order[check.holds]))
        return next((check for check in checks if check.refutes), checks[0] if checks else None)

    @property
    def seeds(self) -> int:
        """Fewest seeds of the looks at its effects."""
        return min((effect.look for effect in self.effects), default=0)

    def odds(self, count: int) -> float:
        """Return the chance that a look at `count` seeds shows all open parts, or one opposite, by what is seen."""
        share = LEVEL / self.step
        misses = [1 - effect.power(count, share) for effect in self.effects if self.step * effect.p["holds"] > LEVEL]
        against = [effect.power(count, share / len(self.effects), ["opposite"]) for effect in self.effects]
        shown = (1 - sum(misses)) * lucky(luck(self.effects), count)
        return max(0.0, shown, max(against, default=0.0) * lucky(0.5, count))

    @property
    def seeds_needed(self) -> int | None:
        """Seeds of a first look, or of the one that would decide it with 80 % power; None: over 20."""
        if self.effects and not self.seeds:
            return min(LOOKS)
        return next((count for count in LOOKS if self.odds(count) >= POWER), None)

    @property
    def next_look(self) -> int | None:
        """Seeds that are worth their runs: those that are needed, else of the last look if it may well decide it."""
        last = max(LOOKS)
        return self.seeds_needed or (last if self.odds(last) >= WORTH_A_LOOK else None)

    @property
    def too_short(self) -> tuple[int, int]:
        """In how many seeds, and of how many, a run of an open part ended before it could tell: seeds do not help."""
        left = ((e.too_short, e.look or len(e.seeds)) for e in self.effects if e.direction == "open")
        return max(left, default=(0, 0))

    @property
    def reason(self) -> str:
        """Why it is not decided, in words; which parts hold where the label is about others, or are left out."""
        return "; ".join(filter(None, [self._undecided, self.left_out]))

    @property
    def left_out(self) -> str:
        """Which parts are not judged, and why."""
        out = [part.excluded for part in self.parts if isinstance(part, Effect) and part.excluded]
        left = f"{len(out)} of {len(self.parts)} parts left out ({'; '.join(sorted(set(out)))})"
        return left if out else ""

    @property
    def _undecided(self) -> str:
        parts = f"{self.held} of {len(self.effects)} parts hold" if len(self.effects) > 1 else ""
        if self.claim.kind != "run" or self.label not in OPEN:
            return parts if self.claim.kind == "run" and self.label in ("no difference", "contradicted") else ""
        if not self.effects:
            return "" if self.left_out else NO_RUNS
        if not self.seeds:
            have = min(len(effect.seeds) for effect in self.effects)
            return f"{have} seed{'s' if have != 1 else ''} of {min(LOOKS)} that a first look needs"
        if any(np.isnan(effect.values).any() for effect in self.effects):
            return "a run has no value"
        if any(effect.too_coarse for effect in self.effects):
            return "an interval of width zero: measured too coarsely"
        last = max(LOOKS)
        what = f"more than {last} seeds would be needed"
        if need := self.seeds_needed:
            what = f"about {need} seeds would decide it"
        elif self.next_look:
            what = f"{last} seeds would decide it in {100 * self.odds(last):.0f} % of the cases"
        elif self.too_short[0]:
            what = "longer runs would be needed: in {} of {} seeds one ends before its target".format(*self.too_short)
        if self.own_p <= LEVEL:
            what = f"decided alone, not among {self.family} claims (Holm); {what}"
        elif all(effect.direction == "holds" for effect in self.effects):
            often = round(1 / luck(self.effects) ** self.seeds)
            what = f"{self.seeds} seeds agree by luck in 1 of {often} cases; {what}"
        return f"{parts}; {what}" if parts else what

    def with_margin(self, factor: float) -> Judgement:
        """Return the judgement if so many times as much were practically equal, by itself."""
        parts = list(self.parts)
        for i, part in enumerate(parts):
            if isinstance(part, Effect) and part.margin:
                parts[i] = replace(part, delta=part.scale.outer(factor * part.margin))
        found = replace(self, parts=tuple(parts))
        return replace(found, p=found.own_p * self.step)

    def rests_on(self) -> str:
        """Return in words where it comes from: figures, records, and the code that compares them."""
        where, line = self.claim.code
        figures, count, doubtful = ", ".join(self.artifacts) or "no figure", len(self.runs), len(self.unverified)
        doubts = f", {doubtful} UNVERIFIED: made by other code" * bool(doubtful)
        return f"{figures}; {count or 'no'} record{'s' * (count != 1)}{doubts}; {where}, line {line}"

    def sentence(self) -> str:
        """Return id, label, what it rests on, the statement and why it is undecided, as one line of text."""
        reduced = "" if self.budget == FULL else ", reduced budget"
        look = getattr(self.decisive, "look", 0)
        rests = f"{look} seeds, {self.budget}{reduced}" if look else self.claim.kind
        why = f" [{self.reason}]" if self.reason else ""
        return f"{self.claim.id} {self.label} ({rests}): {self.claim.statement}{why}"

    def row(self) -> dict[str, Any]:
        """Return the judgement as plain values, one row of the ledger and of its export."""
        return {name: value(self) for name, (_, value) in COLUMNS.items()}


def _deciding(read: Callable[[Any], Any], kind: Any = Effect, otherwise: Any = np.nan) -> Callable[[Judgement], Any]:
    """Return what reads the deciding part, if that is of this kind."""
    return lambda j: read(j.decisive) if isinstance(j.decisive, kind) else otherwise


COLUMNS: dict[str, tuple[str, Callable[[Judgement], Any]]] = {
    "claim": ("id, stable over releases", lambda j: j.claim.id),
    "paper": ("first part of the id", lambda j: j.claim.paper),
    "kind": ("run, system, theory or definition", lambda j: j.claim.kind),
    "counted": ("whether it is in the headline", lambda j: j.counted),
    "statement": ("what the paper says, in our words", lambda j: j.claim.statement),
    "source": ("where", lambda j: j.claim.source),
    "reading": ("theory: as printed or as corrected", lambda j: j.claim.reading),
    "endpoint": ("what is compared", lambda j: j.claim.endpoint),
    "null": ("true if the claim is not", lambda j: j.claim.null if j.claim.kind == "run" else ""),
    "label": ("the verdict, one word or phrase", lambda j: j.label),
    "direction": ("holds, opposite, equal or open", lambda j: j.direction if j.effects else ""),
    "size": ("as printed, smaller, larger, open or not printed", lambda j: j.size if j.effects else ""),
    "parts": ("number of parts", lambda j: len(j.effects) + len(j.checks)),
    "held": ("of which hold", lambda j: j.held + sum(check.holds is True for check in j.checks)),
    "decided_by": ("least certain part; if contradicted, the surest", _deciding(lambda part: part.name, Part, "")),
    "effect": ("its mean effect", _deciding(lambda effect: effect.estimate)),
    "low": ("end of its interval", _deciding(lambda effect: effect.interval[0])),
    "high": ("end of its interval", _deciding(lambda effect: effect.interval[1])),
    "unit": ("ratio, points or difference", _deciding(lambda effect: effect.scale.unit, otherwise="")),
    "printed": ("the effect that the paper prints", _deciding(lambda effect: effect.printed_shown)),
    "detail": ("what was compared, if it is exact", _deciding(lambda check: check.detail, Check, "")),
    "seeds": ("of the look at it", _deciding(lambda effect: effect.look, otherwise=0)),
    "p_holm": ("two-sided, over looks and claims", lambda j: j.p if j.effects else np.nan),
    "seeds_needed": ("for 80 % power; empty: over 20, or longer runs", lambda j: j.seeds_needed if j.open else None),
    "reason": ("why it is undecided, or what is left out", lambda j: j.reason),
    "budget": ("paper, or laptop: reduced", lambda j: j.budget if j.effects else ""),
    "dataset": ("name", lambda j: j.dataset if j.effects else ""),
    "data": ("real, re-encoded, partial or surrogate", lambda j: j.data if j.effects else ""),
    "artifact": ("which carry it", lambda j: " ".join(j.artifacts)),
    "runs": ("hashes of the records that its effects rest on", lambda j: " ".join(sorted(j.runs))),
    "judge": ("the function that compares them, module:name", lambda j: j.claim.code[0]),
    "command": ("prints it with all parts", lambda j: f"fl-core claims {j.claim.id}"),
}
"""Of the ledger and its export, with their meanings: a stable schema, to which columns are only added.

:meta hide-value:
"""

CLAIMS: dict[str, Claim] = {}


def make_claim(
    paper: str, number: str, source: str, statement: str, endpoint: str, judge: Judge, kind: Kind = "run", **more: Any
) -> Claim:
    """Return a claim of `paper`, e.g. ``"FEDASYNC"``, in the order in which a list of claims is read."""
    return Claim(f"{paper}-{number}", kind, statement, source, endpoint, judge, **more)


def exact(name: str, show: Callable[[], tuple[Any, str]], shows: Shows = "statement") -> Judge:
    """Return a judge with one exact statement, made of whether it holds and what was compared."""

    def judge(study: Study) -> list[Part]:
        holds, detail = show()
        return [Check(name, bool(holds), detail, shows)]

    return judge


def find_claim(name: str) -> Claim:
    """Return the claim with id `name`, in capitals or not."""
    known = {each.lower(): each for each in (CLAIMS if name in CLAIMS else claims())}
    if name.lower() not in known:
        raise unknown("claim", name, CLAIMS)
    return CLAIMS[known[name.lower()]]


def claims() -> dict[str, Claim]:
    """Return the claims of all papers by id."""
    for module in paper_modules("claims"):
        found = getattr(module, "CLAIMS", [])
        CLAIMS.update({each.id: each for each in found if isinstance(found, list)})
    return dict(CLAIMS)


def lucky(chance: float, seeds: int) -> bool:
    """Return whether agreement of so many seeds, each by luck with probability `chance`, is too rare to be luck."""
    return bool(seeds) and chance**seeds <= LEVEL


def judge(names: Iterable[str], study: Study) -> list[Judgement]:
    """Judge the claims called `names` on `study`, each once, in order of their ids, as one family."""
    return settled(judge_one(find_claim(name), study) for name in sorted(set(names)))


def judge_one(claim: Claim, study: Study) -> Judgement:
    """Judge one claim on `study`, by itself."""
    found = Judgement(claim, tuple(parts_of(claim, study)), study.dataset, study.data_kind, study.profile)
    return replace(found, p=found.own_p)


def parts_of(claim: Claim, study: Study) -> list[Part]:
    """Return what a claim compares on `study`, without effects that no seed has both sides of.

    An effect that rests on runs of a method that only guesses is shown and not judged.
    """
    found: list[Part] = []
    for part in claim.judge(study):
        if isinstance(part, Effect) and part.seeds and not (part.excluded or part.of_settings):
            lost = guessing(study, part)
            found.append(replace(part, excluded="; ".join(f"{method} is not trained" for method in lost)))
        elif not isinstance(part, Effect) or part.seeds:
            found.append(part)
    return found


def settled(judgements: Iterable[Judgement]) -> list[Judgement]:
    """Return the judgements with what the run claims of each paper share: variances, and Holm's correction.

    The correction is over those claims that as many seeds can decide, whatever the runs say.
    """
    found = list(judgements)
    families = [(j.claim.paper, j.claim.beside) if j.claim.kind == "run" and j.on_real_data else None for j in found]
    for family in set(families) - {None}:
        rows = [i for i, each in enumerate(families) if each == family]
        shared = iter(moderated([part for i in rows for part in found[i].parts if isinstance(part, Effect)]))
        for i in rows:
            parts = (next(shared) if isinstance(part, Effect) else part for part in found[i].parts)
            found[i] = replace(found[i], parts=tuple(parts))
        rows = [i for i in rows if found[i].decidable]
        own = [found[i].own_p for i in rows]
        for i, p in zip(rows, holm(own), strict=True):
            found[i] = replace(found[i], p=p, family=len(rows), step=sum(other >= found[i].own_p for other in own))
    return found


def ledger(judgements: Iterable[Judgement]) -> pd.DataFrame:
    """Return the judgements as a frame, one row a claim, with all :data:`COLUMNS` in their order."""
    return pd.DataFrame([judgement.row() for judgement in judgements], columns=list(COLUMNS))


def details(judgements: Iterable[Judgement]) -> pd.DataFrame:
    """Return every effect and check of the judgements as a frame, as text."""
    rows = []
    for judgement, part in ((each, part) for each in judgements for part in each.parts):
        value, interval, claimed = part.words()
        row: dict[str, Any] = {"claim": judgement.claim.id, "part": part.name, "effect": value, "interval": interval}
        if isinstance(part, Effect):
            printed = "–" if part.printed is None else f"{part.printed_shown:.3g}"
            row |= {"unit": part.scale.unit, "claimed": claimed, "printed": printed,
                    "direction": part.excluded or part.direction, "size": part.size,
                    "seeds": part.look or len(part.seeds)}  # fmt: skip
        else:
            says = {True: "holds", False: "fails", None: "nothing to check"}[part.holds]
            row |= {"unit": "–", "claimed": claimed, "printed": "–", "direction": says, "size": "–", "seeds": "–"}
        rows.append(row)
    return pd.DataFrame(rows)


def headline(judgements: Iterable[Judgement]) -> dict[str, Any]:
    """Return how many of the counted claims have each label, by kind and budget, and how many may be wrong.

    Holm's correction keeps the probability that any direction of a paper is wrong at 5 %, so no more than 5 % of the
    decided ones are expected to be; nor of the readings of size, each of which is made at 5 %.
    """
    counted = [each for each in judgements if each.counted]
    labels = {group: Counter(j.label for j in counted if j.group == group) for group in GROUPS}
    decided = sum(not j.open for j in counted if j.claim.kind == "run")
    return {"labels": labels, "decided": decided, "expected_wrong": LEVEL * decided}
