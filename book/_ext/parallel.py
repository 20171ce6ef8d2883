"""Let Sphinx read pages in several processes: say it of three extensions that are ready for it and do not say so."""

from __future__ import annotations

from typing import Any

from sphinx.application import Sphinx
from sphinx_proof.domain import ProofDomain


def allow(app: Sphinx, env: Any, docnames: list[str]) -> None:
    """Declare what numbers sections when all pages are read, and what serves another format."""
    for name in ("sphinx_multitoc_numbering", "sphinx_jupyterbook_latex"):
        app.extensions[name].parallel_read_safe = True


def nothing_to_merge(domain: ProofDomain, docnames: list[str], other: dict) -> None:
    """Merge theorems of pages that another process has read: they stand in a list that is merged elsewhere."""


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect both to the build."""
    ProofDomain.merge_domaindata = nothing_to_merge
    app.connect("env-before-read-docs", allow)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
