"""Tests that wrong arguments are refused, as a table: what is called or given, and what the error says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


def refuses(
    error: type[Exception],
    *rows: tuple[Any, str],
    by: Callable[[Any], object] = lambda call: call(),
    match: str = "{}",
) -> Callable[..., None]:
    """Return a test, one for each row, that `by` of its first value raises an `error` that its second one matches."""

    @pytest.mark.parametrize(("given", "says"), rows)
    def refused(given: Any, says: str) -> None:
        with pytest.raises(error, match=match.format(says)):
            by(given)

    return refused
