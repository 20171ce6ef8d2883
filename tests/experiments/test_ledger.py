"""The ledger: the same labels in the command, the page and the export, from the same union of runs."""

from __future__ import annotations

import io
import json
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from commands import call, invoke

from fl_core.datasets import data_folder
from fl_core.errors import SpecError
from fl_core.experiments import ledger
from fl_core.experiments.artifacts import artifacts, find_artifacts
from fl_core.experiments.claims import COLUMNS, NO_RUNS, Check, Claim, Judgement, claims, judge_one
from fl_core.experiments.evidence import POINTS, Censored, Effect
from fl_core.experiments.measures import BySeed
from fl_core.experiments.store import Store, default_store
from fl_core.experiments.study import Study
from fl_core.experiments.verify import is_verified
from fl_core.report.replication import Replication

PAPER = "SDFEEL"


@pytest.fixture(autouse=True)
def published(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the published runs, not those of this machine."""
    monkeypatch.setenv("FL_CORE_RESULTS", str(data_folder() / "results"))


def command(*words: str) -> str:
    return call("claims", *words)


def page(**changed: object) -> Replication:
    from fl_papers.sdfeel.experiment import SDFeel

    chosen = {"PROFILE": "smoke", "SHOW": "published", "DATASET": "fashion-mnist", "SEEDS": None, "RECOMPUTE": False}
    carriers = [name for name in artifacts() if name.startswith(("sdfeel-fig2", "sdfeel-x13"))]
    return Replication(chosen | changed, SDFeel, {"figure 2": carriers})


def test_the_command_the_page_and_the_export_say_the_same():
    found = {j.claim.id: j for j in ledger.judged(paper=PAPER)}
    assert found.keys() == {name for name, claim in claims().items() if claim.paper == PAPER}
    rows = ledger.frame(found.values()).set_index("claim")
    exported = pd.read_csv(io.StringIO(command("--paper", "sdfeel", "--csv")), keep_default_na=False)
    assert list(exported.columns) == list(COLUMNS)
    assert dict(zip(exported["claim"], exported["label"], strict=True)) == rows["label"].to_dict()
    as_json = json.loads(command("--paper", "sdfeel", "--json"))
    assert {row["claim"]: row["label"] for row in as_json} == rows["label"].to_dict()
    shown = page().judged()
    assert {j.claim.id: j for j in shown} == {j.claim.id: found[j.claim.id] for j in shown}
    assert len(shown) > 5
    text = command("--paper", "sdfeel")
    assert all(name in text for name in found)
    assert ledger.in_short(found.values()) in text
    records = {outline.spec.hash: outline for outline in default_store().outlines()}
    for each in found.values():
        assert set(each.unverified) == {key for key in each.runs if not is_verified(records[key])}
    one = next(each for each in found.values() if each.runs)
    count = len(one.runs)
    said = ledger.in_short([replace(one, unverified=tuple(one.runs))])
    assert f"Of the {count} records that they rest on {count} are UNVERIFIED" in said
    assert "UNVERIFIED" not in ledger.in_short([replace(one, unverified=())])
    assert ledger.in_short([]) == "No claim."


def test_a_page_with_other_parameters_judges_its_own_study_and_says_so():
    other = page(SEEDS=[0, 1]).judged()
    assert not any(judgement.stored for judgement in other)
    assert {judgement.seeds for judgement in other} == {0}


def test_regenerating_a_figure_prints_the_labels_of_the_ledger():
    """It judged the runs of the one figure, and said "inconclusive" where the page said "reproduced"."""
    carried = sorted(artifacts()["fedasync-fig3"].claims)
    said = call("regenerate", "fedasync-fig3", "--profile", "laptop")
    assert "Judged on all stored runs, as by 'fl-core claims':" in said
    for judgement in ledger.judged(carried):
        assert judgement.sentence() in said


def test_one_claim_is_shown_with_all_parts():
    [found] = ledger.judged(["SDFEEL-C02"])
    text = command("sdfeel-c02")
    assert found.sentence() in text
    assert all(part.name in text for part in found.parts)
    with pytest.raises(SpecError, match="did you mean 'SDFEEL-C02'"):
        ledger.judged(["SDFEEL-C002"])
    refusal = invoke("claims", "--paper", "sdfel")
    assert (refusal.exit_code, "did you mean 'SDFEEL'" in refusal.stderr) == (2, True)


def test_a_claim_on_its_own_says_that_its_records_are_of_other_code(monkeypatch: pytest.MonkeyPatch):
    assert "UNVERIFIED" not in command("sdfeel-c02")
    try:
        with monkeypatch.context() as edited:
            edited.setattr("fl_core.experiments.verify.code_digest", lambda spec: "edited since")
            edited.setattr(ledger, "_source", lambda: "edited since")  # as that digest would be
            ledger._of_paper.cache_clear()
            [found] = ledger.judged(["SDFEEL-C02"])
            doubts = f"{len(found.runs)} records, {len(found.runs)} UNVERIFIED: made by other code; "
            assert doubts in command("sdfeel-c02")
    finally:
        ledger._of_paper.cache_clear()


def test_undecided_ones_say_what_they_need():
    rows = pd.read_csv(io.StringIO(command("--paper", "sdfeel", "--undecided", "--csv")), keep_default_na=False)
    assert set(rows["label"]) <= {"undecided", "smaller than printed, sign open"}
    assert (rows["reason"] != "").all()


def test_of_no_claims_there_are_no_judgements():
    assert ledger.judged([]) == []


def test_judgements_are_kept_under_the_name_of_all_that_they_rest_on(tmp_path, monkeypatch, recwarn):
    monkeypatch.setattr(ledger, "data_folder", lambda: tmp_path)
    asked, store = [], Store(tmp_path / "published", tmp_path / "own")
    parts = (
        Check("exact", np.bool_(True), "2 = 2"),
        Effect("a", BySeed({0: 0.5, 1: 0.6}, ["probe"]), Censored({0: 0.4, 1: 0.3}, [1]), POINTS, "less", delta=0.1),
    )
    claim = Claim("X-C01", "run", "", "", "", lambda study: parts)

    def judge(claim: Claim) -> Judgement:
        asked.append(claim.id)
        if len(asked) == 3:
            warnings.warn("a record is damaged", stacklevel=1)
        return judge_one(claim, Study("paper", "fashion-mnist", (), {}))

    def ask(name: str) -> int:
        [found] = ledger._kept([claim], name, judge, store, store.state(["run"]))
        assert (found.parts, found.budget, found.data_kind) == (parts, "paper", "real")
        assert (found.parts[1].right.at_least, found.parts[1].left.runs) == ({1}, {"probe"})
        return len(asked)

    assert [ask(name) for name in ("one", "one", "another")] == [1, 1, 2]
    assert [ask("damaged record"), ask("damaged record"), ask("damaged record")] == [3, 4, 4]
    assert [str(each.message) for each in recwarn] == ["a record is damaged"]
    kept = tmp_path / "cache" / "claims" / "one.json"
    for number, damaged in enumerate(("{", "[" * 100_000, kept.read_text().replace("0.6", "0.7")), 5):
        kept.write_text(damaged)
        assert [ask("one"), ask("one")] == [number, number]
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "unasked.json.gz").touch()
    assert ask("one") == 7
    (tmp_path / "own" / "run.json.gz").touch()  # the record that it lacked
    assert [ask("one"), ask("one")] == [8, 8]
    (tmp_path / "own" / "run.json.gz").write_text("another")
    assert ask("one") == 9
    monkeypatch.setattr(ledger, "MOST_KEPT", 2)
    assert ask("yet another") == 10
    assert len(list((tmp_path / "cache" / "claims").iterdir())) <= 3


def test_what_a_judgement_looked_up_is_remembered_with_it_and_other_code_is_another_name(tmp_path, monkeypatch):
    asked: list[tuple[str, dict[str, str]]] = []

    def kept(wanted, name, judge, store, looked_up):
        found = [judge(claim) for claim in wanted]
        asked.append((name, dict(looked_up)))
        return found

    monkeypatch.setattr(ledger, "_kept", kept)
    store = Store(tmp_path, tmp_path)
    for source in ("one", "one", "another"):
        monkeypatch.setattr(ledger, "_source", lambda source=source: source)
        (tmp_path / f"record{len(asked)}").touch()
        ledger.judged(paper=PAPER, store=store)
    for names in ([name for name, _ in asked[::2]], [name for name, _ in asked[1::2]]):
        assert (names[0] == names[1], names[1] == names[2]) == (True, False)
    carriers = [each for each in find_artifacts(["sdfeel-*"]) if each.claims]
    known = {entry.key for each in carriers for entry in each.grid("paper", seeds=range(3))}
    assert known <= asked[0][1].keys()
    assert [looked_up for _, looked_up in asked[1::2]] == [{}] * 3  # what no run says


def test_what_figures_without_runs_carry_is_not_judged_again_for_another_record(monkeypatch):
    """FedAsync's theorems were, whose figures take options: ten seconds for each new record."""
    monkeypatch.setattr(ledger, "_kept", lambda wanted, *_: groups.append({claim.id for claim in wanted}) or [])
    groups: list[set[str]] = []
    with pytest.raises(KeyError):
        ledger.judged(paper="FEDASYNC")
    by_runs, without = groups
    assert {"FEDASYNC-C26", "FEDASYNC-C28", "FEDASYNC-C29"} < without
    assert "FEDASYNC-C21" in by_runs


def test_a_claim_has_a_row_for_the_authors_programs_as_released(tmp_path: Path):
    found = {j.claim.id: j for j in ledger.judged(paper="FEDLUCK", store=Store(tmp_path, tmp_path))}
    written, released = found["FEDLUCK-C08"], found["FEDLUCK-C08-released"]
    assert (written.counted, released.counted) == (False, False)
    assert (released.claim.beside, released.label, released.reason) == ("released", "undecided", NO_RUNS)
    assert released.claim.endpoint == written.claim.endpoint


def test_the_columns_of_the_export_are_explained():
    text = (data_folder() / "README.md").read_text()
    for column, (meaning, _) in COLUMNS.items():
        assert f"| `{column}` | {meaning} |" in text


def test_the_committed_export_is_what_this_code_says_of_the_published_runs():
    """Every claim as it is worded now, its label, and the numbers and checks that it has it from.

    After new runs are published, ``fl-core claims --export`` writes it anew.
    """
    committed = pd.read_csv(data_folder() / ledger.EXPORT)
    text = ledger.as_csv(ledger.judged())
    pd.testing.assert_frame_equal(pd.read_csv(io.StringIO(text)), committed, rtol=1e-3)
