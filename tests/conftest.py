"""Settings every test shares: one intra-op thread per process, reproducible property tests."""

from __future__ import annotations

import os

# Two pytest workers with a thread pool each would fight for the cores; read before torch is imported,
# and inherited by the kernels that run the notebooks.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("repeatable", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

DEAR = {"html", "open_page", "browser", "quick"}
"""Fixtures that build the book, start a browser or measure speed: what needs one of them is thorough."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is thorough by its fixtures, before the tier is chosen."""
    for item in items:
        if DEAR & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.thorough)
