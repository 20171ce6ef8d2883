"""Keep the HTML book self-contained: no page may load anything from another host.

MathJax comes from the wheel ``sphinx-mathjax-offline`` instead of a content network, and only the one file
that is used is copied. A script or style sheet of another host fails the build.
"""

from __future__ import annotations

import importlib
import shutil
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

BUNDLE = "tex-mml-svg.js"  # has its glyphs inside: no font files, so file:// works in every browser


def use_local_mathjax(app: Sphinx, config: Any) -> None:
    """Point every page at the copied file."""
    config.mathjax_path = f"mathjax/{BUNDLE}"


def copy_mathjax(app: Sphinx, exception: Exception | None) -> None:
    """Copy the file beside the other static ones."""
    if exception is None and app.builder.format == "html":
        package = importlib.import_module("sphinx-mathjax-offline")
        target = Path(app.outdir, "_static", "mathjax")
        target.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(Path(str(package.__file__)).parent / "static" / "mathjax" / BUNDLE, target / BUNDLE)


def forbid_remote_assets(app: Sphinx, pagename: str, templatename: str, context: dict, doctree: Any) -> None:
    """Stop the build when a page would load a script or a style sheet from another host."""
    files = [*context.get("script_files", []), *context.get("css_files", [])]
    remote = [str(f) for f in files if "://" in str(getattr(f, "filename", f))]
    if remote:
        raise ExtensionError(f"{pagename} would load {remote} from the network")


def repair_markup(app: Sphinx, pagename: str, templatename: str, context: dict, doctree: Any) -> None:
    """Drop a wrong role: docutils calls the bibliography a list, but its children are no list items."""
    if "body" in context:
        wrong = '<div role="list" class="citation-list">'
        context["body"] = context["body"].replace(wrong, '<div class="citation-list">')


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect the steps above to the build."""
    app.connect("config-inited", use_local_mathjax)
    app.connect("html-page-context", forbid_remote_assets, priority=900)
    app.connect("html-page-context", repair_markup)
    app.connect("build-finished", copy_mathjax)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
