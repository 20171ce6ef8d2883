"""The table of notation: its names are those of the library, and fresh uploads count as its formulas count them."""

from __future__ import annotations

import importlib
import inspect
import re

import pytest

from fl_core.bookbuild.chapters import ROOT
from fl_core.formulas import fedasmu, fedasync, fedluck, sdfeel, staleness, wkafl

PAGE = (ROOT / "book/notation.md").read_text(encoding="utf-8")
FRESH = {
    "FedAsync": fedasync.staleness_argument(0, "paper"),
    "WKAFL": next(u for u in (0, 1) if wkafl.temporal_weight(u) == 1),
    "SD-FEEL": next(u for u in (0, 1) if sdfeel.staleness_discount(u) == 0.5),
    "FedLuck": fedluck.rounds_per_job(0.5, 1.0),
    "in the code": next(u for u in (0, 1) if staleness.polynomial(u, 0.5) == 1),
}


def test_fresh_uploads_count_as_the_formulas_count_them():
    head = next(line for line in PAGE.splitlines() if line.startswith("| quantity"))
    row = next(line for line in PAGE.splitlines() if line.startswith("| a fresh upload"))
    said = dict(zip(*([cell.strip() for cell in line.split("|")] for line in (head, row)), strict=True))
    said["in the code"] = re.findall(r"in the code (\d)", row)[0]
    assert {name: int(said[name]) for name in FRESH} == {name: int(value) for name, value in FRESH.items()}
    with pytest.raises(ValueError, match="a fresh upload has 1"):
        fedasmu.weight_score(1, int(said["FedASMU"]) - 1, fedasmu.Controls(1, 0.5, 0))


def test_names_are_those_of_the_library():
    names = re.findall(r"[`<](fl_core\.[\w.]+)[>`]", PAGE)
    assert len(names) > 6
    for name in names:
        _, room, *inside = name.split(".")
        found = importlib.import_module(f"fl_core.{room}")
        for part in inside:
            if not hasattr(found, part) and hasattr(found, "__path__"):
                found = importlib.import_module(f"{found.__name__}.{part}")
                continue
            assert (
                hasattr(found, part)
                or f"{part}:" in (source := inspect.getsource(found))
                or f"self.{part} =" in source
            )
            found = getattr(found, part, None)
