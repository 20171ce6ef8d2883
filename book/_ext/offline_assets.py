"""Keep the HTML book self-contained: no page may load anything from another host.

MathJax comes from the wheel ``sphinx-mathjax-offline`` instead of a content network, and only the one file
that is used is copied. A script or style sheet of another host fails the build. What is on the pages already, or
serves only the makers of the theme, is not shipped.
"""

from __future__ import annotations

import importlib
import json
import re
import shutil
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

BUNDLE = "tex-mml-svg.js"  # has its glyphs inside: no font files, so file:// works in every browser
REPAIRS: dict[str, Any] = {
    r'<div role="list" class="citation-list">': '<div class="citation-list">',  # its children are no list items
    r' role="doc-biblioentry"': "",
    r' id="(?:(?:exercise|solution|proof)-content|proof)"': "",  # the same of all on a page
    r"<th\b([^>]*?)(?: scope=\"col\")?\s*>(?:\s|&nbsp;|<p></p>)*</th>": r"<td\1></td>",
    r'<dl>\n(<dd><em class="sig-param">.*?)</dl>': lambda found: (  # parameters without what they define
        f'<div class="sig-params">\n{found[1].replace("<dd>", "<div>").replace("</dd>", "</div>")}</div>'
    ),
    r"<table\b.*?</table>": lambda table: re.sub(
        r'(?<=<span class="pre">)[^<]{16,}', lambda name: re.sub(r"(?<=[._/:])(?=\w)", "<wbr>", name[0]), table[0]
    ),
}


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


def slim(app: Sphinx, exception: Exception | None) -> None:
    """Leave out the outputs of the notebooks that can be downloaded, and the theme's source maps."""
    if exception is None and app.builder.format == "html":
        for path in Path(app.outdir, "_sources").rglob("*.ipynb"):
            notebook = json.loads(path.read_text(encoding="utf-8"))
            for cell in notebook["cells"]:
                if cell["cell_type"] == "code":
                    cell |= {"outputs": [], "execution_count": None}
            path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        for path in Path(app.outdir, "_static").rglob("*.map"):
            path.unlink()


def forbid_remote_assets(app: Sphinx, pagename: str, templatename: str, context: dict, doctree: Any) -> None:
    """Stop the build when a page would load a script or a style sheet from another host."""
    files = [*context.get("script_files", []), *context.get("css_files", [])]
    remote = [str(f) for f in files if "://" in str(getattr(f, "filename", f))]
    if remote:
        raise ExtensionError(f"{pagename} would load {remote} from the network")


def repair_markup(app: Sphinx, pagename: str, templatename: str, context: dict, doctree: Any) -> None:
    """Mend what readers of the screen stumble over, and let long names in tables break behind their parts."""
    for wrong, right in REPAIRS.items():
        if "body" in context:
            context["body"] = re.sub(wrong, right, context["body"], flags=re.DOTALL)


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect the steps above to the build."""
    app.connect("config-inited", use_local_mathjax)
    app.connect("html-page-context", forbid_remote_assets, priority=900)
    app.connect("html-page-context", repair_markup)
    app.connect("build-finished", copy_mathjax)
    app.connect("build-finished", slim)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
