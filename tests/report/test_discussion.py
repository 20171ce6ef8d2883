"""The discussion of a paper says what the ledger and the records say, and nothing stronger."""

from __future__ import annotations

import re
from dataclasses import replace
from importlib import import_module

import pytest

from fl_core.experiments.evidence import POINTS, RATIO, Effect
from fl_core.experiments.ledger import judged, papers
from fl_core.experiments.store import default_store
from fl_core.experiments.verify import published_records
from fl_core.report.discussion import LEADS, Diagnosis, borne_out, cost, discussion, own_size, portion

SEEDS = range(10)


def effect(values: float, claimed: str = "more", **more: object) -> Effect:
    left = {seed: values + 0.001 * (-1) ** seed for seed in SEEDS}
    return Effect("part", left, 0.0, POINTS, claimed, **more)


@pytest.mark.parametrize("paper", ["SDFEEL", "FEDASYNC"])
def test_every_decided_claim_stands_under_its_label_and_every_open_one_in_the_outlook(paper: str):
    text = discussion(paper).data
    runs = [each for each in judged(paper=paper) if each.counted and each.claim.kind == "run"]
    for label, lead in LEADS.items():
        names = {each.claim.id.partition("-")[2] for each in runs if each.label == label}
        [part] = [block for block in re.split(r"\n\n(?=\*\*)", text) if block.startswith(f"**{lead}**")] or [""]
        assert set(re.findall(r"(?m)^- \[(\w+)\]", part)) == names
    assert all(each.reason in text for each in runs if each.label in ("no difference", "contradicted"))
    _, _, outlook = text.partition("What would still change")
    assert all(f"[{each.claim.id.partition('-')[2]}]" in outlook for each in runs if each.open)


def test_a_share_is_one_of_the_printed_gain_or_saving():
    times = Effect("part", dict.fromkeys(SEEDS, 0.8), 1.0, RATIO, "less", printed=0.2)
    assert portion(times, 0.8) == pytest.approx(0.25)
    assert portion(effect(0.03, printed=0.12), 3.0) == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("parts", "word"),
    [
        ([effect(0.1)], "Borne out"),
        ([effect(-0.1)], "Refuted"),
        ([effect(0.0)], "Refuted"),
        ([effect(0.1), effect(-0.1)], "Mixed"),
        ([replace(effect(0.1), left={0: 0.1})], "Open"),
        ([effect(-0.1), replace(effect(0.1), excluded="rain is not trained")], "Refuted"),
        ([replace(effect(0.1), excluded="rain is not trained")], "Not judged"),
        ([], "Not tested"),
    ],
)
def test_a_diagnosis_is_borne_out_only_by_runs_of_its_own(parts: list[Effect], word: str):
    diagnosis = Diagnosis("C01", "it rains", "sdfeel-x8", lambda study: parts)
    assert borne_out(diagnosis, default_store())[0].startswith(f"**{word}**")


@pytest.mark.parametrize("paper", papers())
def test_diagnoses_are_about_claims_of_the_paper(paper: str):
    known = {each.claim.id for each in judged(paper=paper)}
    diagnoses = import_module(f"fl_papers.{paper.lower()}.claims").DIAGNOSES
    assert {f"{paper}-{number}" for each in diagnoses for number in each.about.split()} <= known
    # the runs that say something about it can be laid out and read
    assert all(borne_out(each, default_store())[0].startswith("**") for each in diagnoses)


def test_cost_is_that_of_the_published_records():
    rows = published_records(default_store()).set_index(["paper", "data"])
    hours = rows.loc[("sdfeel", "all"), "core-hours"]
    assert f"{hours:g} core-hours" in cost("SDFEEL")
    papers_only = rows.xs("all", level="data").drop(index="all")["core-hours"]
    assert papers_only.sum() == pytest.approx(rows.loc[("all", "all"), "core-hours"], abs=0.5)


def test_a_reduced_network_is_named_where_the_size_is_the_papers():
    assert "`fedluck-tab1`" in own_size("FEDLUCK")
    assert "reduced network `wkafl_cnn(width=0.25)`" in own_size("WKAFL")
    told = own_size("FEDASMU")
    assert "`fedasmu-fig6`" in told
    assert "`fedasmu-fig3`" not in told  # its panels are on other data
