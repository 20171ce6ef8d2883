"""Settings every test shares: one intra-op thread per process, reproducible property tests."""

from __future__ import annotations

import os

# Two pytest workers with a thread pool each would fight for the cores; read before torch is imported,
# and inherited by the kernels that run the notebooks.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# A notebook whose kernel starts processes for its runs pays the imports of each; the workers are parallel already.
os.environ.setdefault("FL_CORE_JOBS", "1")

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

CALM = [HealthCheck.too_slow, HealthCheck.filter_too_much]
COMMON = {"deadline": None, "derandomize": True, "suppress_health_check": CALM}
settings.register_profile("repeatable", max_examples=25, **COMMON)
settings.register_profile("thorough", max_examples=100, **COMMON)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

DEAR = {"html", "open_page", "browser", "quick", "tiny"}
"""Fixtures that build the book, start a browser, measure speed or run a paper's grids: what needs one is thorough."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is thorough by its fixtures, before the tier is chosen; notebooks, which take longest, come first."""
    # A paper's before those that show the ledger of all, of which each then has kept its part.
    items.sort(key=lambda item: (item.path.suffix != ".ipynb", "fl_papers" not in item.path.parts))
    for item in items:
        if DEAR & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.thorough)


@pytest.fixture(scope="module")
def few_images() -> Iterator[None]:
    """Let the runs of a module have the first images only."""
    from few_images import cut

    with pytest.MonkeyPatch.context() as patch:
        cut(patch)
        yield


@pytest.fixture
def few_images_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let those of one test, where others of its module have processes, which read all images."""
    from few_images import cut

    cut(monkeypatch)
