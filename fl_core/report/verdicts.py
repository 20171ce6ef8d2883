"""What holds, at a glance: printed and measured effects on one axis, the matrix of all claims, a sentence a paper."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fl_core.experiments.claims import OPEN, REDUCED, Judgement, Label
from fl_core.experiments.evidence import Effect
from fl_core.experiments.ledger import judged
from fl_core.report import HTML, Markdown, display
from fl_core.report.interactive import asset
from fl_core.report.style import BLUE, GREEN, GREY, PURPLE, SKY, VERMILION, drawing
from fl_core.report.tables import anchor

LOOKS: dict[Label, tuple[str, str, str]] = {
    "reproduced": (GREEN, "●", "o"),
    "weaker than printed": (BLUE, "◐", "D"),
    "no difference": (PURPLE, "=", "s"),
    "contradicted": (VERMILION, "✕", "X"),
    "smaller than printed, sign open": (SKY, "◔", "v"),
    "undecided": (GREY, "○", "o"),
    "true": (GREEN, "▲", "^"),
    "true as corrected": (BLUE, "△", "^"),
    "vacuous": (PURPLE, "∅", "s"),
    "unproved": (GREY, "◌", "o"),
    "by construction": (GREY, "≡", "s"),
}
"""Colour, sign and marker of each label: no label is told by its colour alone."""
WORDS = {"run": "training", "system": "clock and bytes", "theory": "theory", "definition": "definitions"}
STATEMENT = 70
"""Characters of a statement beside its row."""
EACH = 4
"""Headline claims of a paper in the forest."""


def headlines(judgements: Iterable[Judgement], each: int = EACH) -> list[Judgement]:
    """Return the first claims of every paper about training with a measured effect, a printed one going first."""
    found: dict[str, list[Judgement]] = {}
    for judgement in judgements:
        part = judgement.decisive
        if judgement.claim.kind == "run" and judgement.counted and isinstance(part, Effect) and _known(part):
            found.setdefault(judgement.claim.paper, []).append(judgement)
    for rows in found.values():
        rows.sort(key=lambda j: getattr(j.decisive, "printed", None) is None)  # stable: else the paper's order
    return [judgement for rows in found.values() for judgement in rows[:each]]


def _known(effect: Effect) -> bool:
    return effect.scale.unit in UNITS and bool(np.isfinite([*effect.interval, *np.ravel(effect.sides)]).all())


def forest(judgements: Sequence[Judgement], names: Mapping[str, str] | None = None) -> Figure:
    """Draw the effects of claims: ours as a dot with its interval, the printed one as a cross.

    What is claimed is to the right of the line: ratios on a logarithmic axis, accuracies in percentage points below.
    """
    panels = {unit: [j for j in judgements if _effect(j).scale.unit == unit] for unit in ("ratio", "points")}
    panels = {unit: rows for unit, rows in panels.items() if rows} or {"ratio": []}
    heights = [len(rows) + 0.8 for rows in panels.values()]
    size = 5.2, 0.29 * sum(heights) + 1.3  # letters that can be read at half the width of a page, and on a phone
    letters = {"font.size": 9, "axes.titlesize": 9, "legend.fontsize": 8.5}
    with drawing(size, len(panels), rc=letters, height_ratios=heights, squeeze=False) as (figure, axes):
        for axis, (unit, rows) in zip(axes[:, 0], panels.items(), strict=True):
            _panel(axis, unit, rows, names or {})
        shown = [label for label in LOOKS if any(j.label == label for j in judgements)]
        handles = [Line2D([], [], ls="", label="printed in the paper", marker="x", color="#555555", markersize=7)]
        handles += [
            Line2D(
                [], [], color=LOOKS[label][0], marker=LOOKS[label][2], label=label, markerfacecolor=_filling(label)
            )
            for label in shown
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=2, handlelength=1.6)
    return figure


def _effect(judgement: Judgement) -> Effect:
    part = judgement.decisive
    assert isinstance(part, Effect)
    return part


def _panel(axis: Axes, unit: str, rows: Sequence[Judgement], names: Mapping[str, str]) -> None:
    labels = []
    for place, judgement in enumerate(rows):
        effect, (color, _, marker) = _effect(judgement), LOOKS[judgement.label]
        turned = [_turn(effect, unit, value) for value in (effect.estimate, *effect.interval)]
        low, high = sorted(turned[1:])
        axis.plot([low, high], [place, place], color=color, lw=2)
        axis.plot(turned[0], place, marker, color=color, markerfacecolor=_filling(judgement.label), markersize=7)
        said = re.sub(r"( \([^)]*\))?\.$", "", judgement.claim.statement)
        said = textwrap.shorten(said, STATEMENT, placeholder=" …")
        across = axis.get_yaxis_transform()
        axis.vlines(float(unit == "ratio"), place - 0.15, place + 0.3, color="#999999", lw=1, zorder=1)
        axis.text(0.005, place - 0.33, said, transform=across, fontsize=7.5, color="#555555", va="center")
        if effect.printed is not None:
            printed = _turn(effect, unit, effect.printed_shown)
            axis.plot(printed, place, "x", color="#555555", markersize=7, markeredgewidth=1.8)
        paper, _, number = judgement.claim.id.partition("-")
        labels.append(f"{names.get(paper, paper)} {number}")
    axis.set_yticks(range(len(rows)), labels)
    axis.set_ylim(len(rows) - 0.5, -0.7)
    axis.grid(visible=False)  # lines would run across the sentences
    if unit == "ratio":
        axis.set_xscale("log")
        low, high = axis.get_xlim()
        low, high = axis.set_xlim(max(low, 0.05), min(high, 50))  # an interval that is wider says no more
        near = () if high > 8 * low else (0.8, 1.25)  # over more decades they would overlap
        ticks = [t for t in (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, *near) if low <= t <= high]
        axis.set_xticks(ticks, minor=False)
        axis.set_xticks([], minor=True)
        axis.xaxis.set_major_formatter("{x:g}×")
        axis.set_title("times as good as what it is compared with: right of 1 as claimed")
    else:
        axis.set_xlim(*np.clip(axis.get_xlim(), -50, 50))  # as above
        axis.set_title("accuracy, percentage points: right of 0 as claimed")


def _filling(label: Label) -> str:
    return "white" if label in OPEN else LOOKS[label][0]


def _turn(effect: Effect, unit: str, value: float) -> float:
    """Return a shown effect so that what is claimed is larger, and the bound of the claim is 1 or 0."""
    null = effect.scale.shown(effect.null)
    if unit == "ratio":
        ratio = value / null
        return 1 / ratio if effect.claimed == "less" and ratio else ratio
    return (null - value) if effect.claimed == "less" else value - null


def matrix(
    judgements: Iterable[Judgement], pages: str = "../fl_papers", names: Mapping[str, str] | None = None
) -> str:
    """Return all claims as HTML, a cell each, with filters; a cell leads to its row on the paper's page.

    `pages` is the way from the page that shows it to the papers' folders.
    """
    found = list(judgements)
    papers = list(dict.fromkeys(j.claim.paper for j in found))
    called = {paper: (names or {}).get(paper, paper) for paper in papers}
    labels = [label for label in LOOKS if any(j.label == label for j in found)]
    choices: dict[str, dict[str, str]] = {
        "paper": called,
        "kind": {kind: words for kind, words in WORDS.items() if any(j.claim.kind == kind for j in found)},
        "label": {label: label for label in labels},
    }
    selects = "".join(
        f'<label>{name} <select data-field="{name}"><option value="">all</option>'
        + "".join(f'<option value="{escape(key)}">{escape(text)}</option>' for key, text in options.items())
        + "</select></label>"
        for name, options in choices.items()
        if len(options) > 1
    )
    rows = []
    for paper in papers:
        cells = "".join(_cell(j, pages) for j in found if j.claim.paper == paper)
        rows.append(f'<div class="claims-row"><div class="claims-paper">{escape(called[paper])}</div>{cells}</div>')
    legend = "".join(
        f'<span><b style="color:{LOOKS[label][0]}">{LOOKS[label][1]}</b> {label}</span>' for label in labels
    )
    return f'<div class="claims-matrix"><div class="claims-filters">{selects}</div>{"".join(rows)}' \
           f'<div class="claims-legend">{legend}</div></div><script>{asset("matrix.js")}</script>'  # fmt: skip


def _cell(judgement: Judgement, pages: str) -> str:
    claim, label = judgement.claim, judgement.label
    color, sign, _ = LOOKS[label]
    number = claim.id.partition("-")[2]
    words = escape(f"{claim.id}, {WORDS[claim.kind]}: {claim.statement} – {label}", quote=True)
    link = f"{pages}/{claim.paper.lower()}/replication.html#{anchor(claim.id)}"
    return (
        f'<a class="claims-cell" href="{link}" title="{words}" aria-label="{words}" data-paper="{claim.paper}" '
        f'data-kind="{claim.kind}" data-label="{label}" style="--label:{color}"><span>{sign}</span>'
        f"<small>{escape(number)}</small></a>"
    )


def front(paper: str, name: str) -> None:
    """Show what the ledger says of a paper, for the first screen of its page: the sentence, and a cell a claim."""
    found = judged(paper=paper)
    display(Markdown(sentence(found, name)), HTML(matrix(found, "..", {paper: name})))


def lesson(paper: str, name: str) -> Markdown:
    """Return what the ledger says of a paper, for the end of its lecture: the first headline, and the sentence."""
    found = judged(paper=paper)
    text = sentence(found, name)
    for first in headlines(found, each=1):
        link = f"replication.html#{anchor(first.claim.id)}"
        said = f"{first.claim.statement.rstrip('.')}: **{first.label}** ({measured(first)})"
        text = f"The headline claim ([{first.claim.id}]({link})). {said}.\n\n{text}"
    return Markdown(text)


def sentence(judgements: Iterable[Judgement], name: str) -> str:
    """Return in Markdown what was found of a paper: claims by label, and the clearest effect each way."""
    found = [j for j in judgements if j.counted]
    runs = [j for j in found if j.claim.kind == "run"]
    counts = Counter(j.label for j in runs)
    told = [f"**{counts[label]}** {label}" for label in LOOKS if counts[label]]
    reduced = sum(j.group == REDUCED for j in runs)
    budget = f" ({'all' if reduced == len(runs) else reduced} at a reduced budget)" if reduced else ""
    text = f"**{name}.** Of {len(runs)} claims about training{budget}: {', '.join(told) or 'none judged'}."
    against = "contradicted" if counts["contradicted"] else "weaker than printed"
    for label, lead in (("reproduced", "Clearest"), (against, against.split()[0].capitalize())):
        best = _clearest([j for j in runs if j.label == label])
        if best:
            text += f" {lead}: {best.claim.statement.rstrip('.')} ({measured(best)})."
    theory = Counter(j.label for j in found if j.claim.kind == "theory")
    if theory:
        text += f" Theory: {', '.join(f'{theory[label]} {label}' for label in LOOKS if theory[label])}."
    return text


def _clearest(judgements: Sequence[Judgement]) -> Judgement | None:
    return min(judgements, key=lambda j: (bool(j.left_out), j.p), default=None)


UNITS = {"ratio": "×", "points": " points"}
"""What stands behind a number."""


def measured(judgement: Judgement) -> str:
    """Return the effect that a label hangs on, its interval and the printed one, in words."""
    effect = judgement.decisive
    if not isinstance(effect, Effect):
        return "exact"
    value, interval, _ = effect.words()
    unit = UNITS.get(effect.scale.unit, "")
    printed = "" if effect.printed is None else f", printed {effect.printed_shown:.3g}{unit}"
    return f"{value}{unit} {interval}{printed}, {effect.look} seeds"
