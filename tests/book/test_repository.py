"""One setting gives buttons to source, issues and machines that run a page; without it there is none."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fl_core.bookbuild.chapters import ROOT

pytestmark = pytest.mark.thorough
PAGE = "notebooks/0_start/start_here"
CONF = """
import sys
sys.path.insert(0, {ext!r})
extensions = ["myst_nb", "sphinx_book_theme", "repository"]
html_theme, root_doc, nb_execution_mode = "sphinx_book_theme", {page!r}, "off"
html_theme_options = {{"use_repository_button": False}}
"""


def built(folder: Path, address: str) -> str:
    """Build a notebook with its box and a page that is no file of the repository; return the notebook's page."""
    box = "````{admonition} Run this page\n```bash\npapermill\n```\n````\n"
    cells = [{"cell_type": "markdown", "metadata": {}, "id": "title", "source": "# Title"}]
    cells += [{"cell_type": "markdown", "metadata": {}, "id": "run-this-page", "source": box}]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    notebook = {"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}
    (folder / f"{PAGE}.ipynb").parent.mkdir(parents=True)
    (folder / f"{PAGE}.ipynb").write_text(json.dumps(notebook, indent=1))
    (folder / "made.md").write_text("---\norphan: true\n---\n# Made\n")
    (folder / "conf.py").write_text(CONF.format(ext=str(ROOT / "book/_ext"), page=PAGE))
    command = [sys.executable, "-m", "sphinx", "-q", "-W", str(folder), str(folder / "html")]
    env = os.environ | {"FL_CORE_REPOSITORY": address}
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr
    return (folder / f"html/{PAGE}.html").read_text(encoding="utf-8")


def links(html: str, host: str) -> set[str]:
    return set(re.findall(rf'href="(https://{host}[^"]*)"', html))


@pytest.mark.parametrize(("address", "branch"), [("", "main"), (".git", "main"), ("/tree/next/one", "next/one")])
def test_buttons_lead_to_the_file_in_the_repository(address: str, branch: str, tmp_path: Path):
    html = built(tmp_path, f"https://github.com/someone/a-book{address}")
    file = f"{branch}/{PAGE}.ipynb"
    assert links(html, "colab") == {f"https://colab.research.google.com/github/someone/a-book/blob/{file}"}
    binder = f"https://mybinder.org/v2/gh/someone/a-book/{branch}?urlpath=lab/tree/{PAGE}.ipynb"
    assert links(html, "mybinder") == {binder}
    github = {each.partition("?")[0] for each in links(html, "github.com/someone")}
    home = "https://github.com/someone/a-book"
    assert github == {home, f"{home}/edit/{file}", f"{home}/issues/new"}
    assert f"!git clone -q --depth 1 --branch {branch} {home} /content/a-book" in re.sub("<[^>]+>", "", html)
    made = (tmp_path / "html/made.html").read_text(encoding="utf-8")
    assert links(made, "(?:colab|mybinder)") == set()
    assert not [each for each in links(made, "github.com/someone") if "/edit/" in each]


def test_colab_is_offered_for_github_only(tmp_path: Path):
    html = built(tmp_path, "https://gitlab.com/someone/a-book")
    assert links(html, "mybinder") == {
        f"https://mybinder.org/v2/gl/someone%2Fa-book/main?urlpath=lab/tree/{PAGE}.ipynb"
    }
    assert links(html, "colab") == set()
    assert "/content/" not in html


def test_without_an_address_there_is_no_button(tmp_path: Path):
    html = built(tmp_path, "")
    assert links(html, "(?:colab|mybinder|github|gitlab)[^/]*/(?!executablebooks)") == set()
    assert "/content/" not in html
