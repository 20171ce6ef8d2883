"""What holds, at a glance: the figure, the matrix and the sentences say what the ledger says."""

from __future__ import annotations

import json
import lzma
from pathlib import Path

import numpy as np
import pytest
from bs4 import BeautifulSoup

from fl_core.datasets import data_folder
from fl_core.experiments.claims import Claim, Judgement
from fl_core.experiments.evidence import POINTS, RATIO, Censored, Effect
from fl_core.experiments.ledger import judged
from fl_core.experiments.store import Store
from fl_core.report.tables import claims_table
from fl_core.report.verdicts import LOOKS, forest, headlines, matrix, sentence

NOISE = np.random.default_rng(0).normal(0, 0.01, 20)


def made(number: int, effect: Effect, p: float | None = None) -> Judgement:
    claim = Claim(f"PAPER-C{number:02d}", "run", f"Statement {number}.", "Fig. 1", "ratio", lambda study: [effect])
    judgement = Judgement(claim, (effect,), "fashion-mnist", "real", "laptop")
    return Judgement(claim, (effect,), "fashion-mnist", "real", "laptop", p=judgement.own_p if p is None else p)


def faster(factor: float, printed: float | None = None, claimed: str = "less") -> Effect:
    left = {seed: factor * float(np.exp(noise)) for seed, noise in enumerate(NOISE)}
    return Effect("part", left, dict.fromkeys(left, 1.0), RATIO, claimed, printed=printed)  # type: ignore[arg-type]


def test_what_is_claimed_is_right_of_the_line_whichever_way_it_is_measured():
    lower, higher = made(1, faster(0.5, 0.25)), made(2, faster(2.0, 4.0, "more"))
    points = made(3, Effect("part", {s: 0.7 + n for s, n in enumerate(NOISE)}, 0.6, POINTS, "more", printed=0.2))
    figure = forest(headlines([lower, higher, points]))
    ratios, accuracies = figure.axes
    dots = [line.get_xdata()[0] for line in ratios.lines if line.get_marker() == LOOKS[lower.label][2]]
    crosses = [line.get_xdata()[0] for line in ratios.lines if line.get_marker() == "x"]
    assert dots == pytest.approx([2, 2], rel=0.02)
    assert crosses == pytest.approx([4, 4])
    unreached = Effect("part", faster(0.5).left, Censored(dict.fromkeys(range(20), 1.0), range(20)), claimed="less")
    assert headlines([made(4, unreached), lower]) == [lower]  # its interval is open, and has no end to draw
    assert [line.get_xdata()[0] for line in accuracies.lines if line.get_marker() == "x"] == pytest.approx([20])


def test_every_claim_is_a_cell_that_leads_to_its_row():
    found = judged(paper="SDFEEL")
    cells = BeautifulSoup(matrix(found), "html.parser").select("a.claims-cell")
    rows = {row["id"] for row in BeautifulSoup(claims_table(found).to_html(), "html.parser").select("tr[id]")}
    assert [cell["data-label"] for cell in cells] == [each.label for each in found]
    assert {cell["href"].partition("#")[2] for cell in cells} == rows
    assert len(rows) == len(found)
    assert all(LOOKS[each.label][1] in cell.text for each, cell in zip(found, cells, strict=True))


def test_the_sentence_counts_what_the_ledger_has():
    found = judged(paper="SDFEEL")
    text = sentence(found, "SD-FEEL")
    runs = [each for each in found if each.claim.kind == "run" and each.counted]
    assert f"Of {len(runs)} claims about training" in text
    for label in {each.label for each in runs}:
        assert f"**{sum(each.label == label for each in runs)}** {label}" in text


def test_nothing_to_draw_is_no_error():
    assert forest([]).axes
    assert sentence([], "Nobody") == "**Nobody.** Of 0 claims about training: none judged."


@pytest.mark.thorough
@pytest.mark.parametrize("paper", ["FEDASYNC", "WKAFL", "SDFEEL", "FEDASMU", "FEDLUCK"])
def test_without_the_records_of_a_claim_the_sentence_of_its_paper_is_another(paper: str, tmp_path: Path):
    folder = data_folder() / "results"
    whole = judged(paper=paper, store=Store(folder, tmp_path / "cache"))
    claim = headlines(whole, each=1)[0]
    for pack in folder.glob("*.jsonl.xz"):
        with lzma.open(pack) as file:
            if not set(json.loads(file.readline())["runs"]) & set(claim.runs):
                (tmp_path / pack.name).symlink_to(pack)
    fewer = judged(paper=paper, store=Store(tmp_path, tmp_path / "cache"))
    assert sentence(fewer, paper) != sentence(whole, paper)
    without = next(found for found in fewer if found.claim.id == claim.claim.id)
    assert not without.runs
