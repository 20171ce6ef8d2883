"""Buttons that lead from a page to its source, to an issue, and to machines that run it: Binder and Colab.

They are there if the repository's address is known: see :func:`fl_core.bookbuild.pipeline.repository`.
"""

from __future__ import annotations

import json
from typing import Any

from sphinx.application import Sphinx

from fl_core.bookbuild.pipeline import ROOT, repository

OWN = ("source-edit-button", "launch-buttons")
"""Buttons of pages that are files of the repository."""
FRESH = """
A machine of Colab is empty at first: let this be the first cell there. If Colab asks for a restart, do that, and go
on.

```text
!git clone -q --depth 1 --branch {branch} {url} /content/{name}
%cd /content/{name}
%pip install -q -e .[cluster]
import sys; sys.path[:0] = ["/content/{name}", "/content/{name}/notebooks"]
```
"""


def configure(app: Sphinx, config: Any) -> None:
    """Set the theme's options for buttons."""
    if (found := repository()) is None:
        return
    url, host, name, branch = found.groups(default="main")
    launch = {"notebook_interface": "jupyterlab", "binderhub_url": "https://mybinder.org"}
    launch |= {"colab_url": "https://colab.research.google.com"} if host == "github" else {}
    buttons = dict.fromkeys(("use_repository_button", "use_issues_button", "use_edit_page_button"), True)
    where = {"repository_url": url, "repository_branch": branch, "path_to_docs": ""}
    config.html_theme_options = {**config.html_theme_options, **where, **buttons, "launch_buttons": launch}
    if host == "github":
        app.connect(
            "source-read", lambda _, page, source: say(source, FRESH.format(url=url, name=name, branch=branch))
        )


def say(source: list[str], words: str) -> None:
    """Add to a notebook's box "Run this page" how to run it on a machine that has nothing."""
    if '"id": "run-this-page"' in source[0]:
        notebook = json.loads(source[0])
        [box] = [cell for cell in notebook["cells"] if cell.get("id") == "run-this-page"]
        lines, end, _ = "".join(box["source"]).rpartition("````")
        box["source"] = f"{lines}{words}{end}\n"
        source[0] = json.dumps(notebook)


def keep_true(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Take buttons away that would lead to a file that is not in the repository, as pages that code writes are."""

    def kept(buttons: list[dict[str, Any]]) -> list[dict[str, Any]]:
        rest = [each for each in buttons if each.get("label") not in OWN]
        return [each | {"buttons": kept(each["buttons"])} if "buttons" in each else each for each in rest]

    if not any((ROOT / f"{page}{suffix}").is_file() for suffix in (".ipynb", ".md")):
        context["header_buttons"] = kept(context["header_buttons"])


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect what Sphinx is to call."""
    app.connect("config-inited", configure)
    app.connect("html-page-context", keep_true, priority=502)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
