"""The built book, made once for every test that reads it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def html(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the pages: FL_BOOK_HTML when set, else a strict build at profile smoke."""
    given = os.environ.get("FL_BOOK_HTML")
    if given:
        return Path(given).resolve()
    from fl_core.bookbuild import build_book

    return build_book("smoke", build=tmp_path_factory.mktemp("book"))
