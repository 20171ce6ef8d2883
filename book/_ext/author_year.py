"""A bibliography whose labels read like its citations: [Xie et al., 2019], not [1]."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from pybtex.plugin import register_plugin
from pybtex.style.formatting.plain import Style as PlainStyle
from pybtex.style.labels import BaseLabelStyle
from sphinx.application import Sphinx


class AuthorYearLabels(BaseLabelStyle):
    """Label entries with family name and year, and a letter where these coincide."""

    def format_labels(self, sorted_entries: Iterable[Any]) -> Iterator[str]:
        """Yield one label per entry, in order."""
        labels = [self.format_label(entry) for entry in sorted_entries]
        total, seen = Counter(labels), Counter[str]()
        for label in labels:
            letter = chr(ord("a") + seen[label]) if total[label] > 1 else ""
            seen[label] += 1
            yield label + letter

    def format_label(self, entry: Any) -> str:
        """Return ``Xie et al., 2019`` for an entry with more than two authors."""
        names = [" ".join(person.last_names) for person in entry.persons["author"]]
        who = " and ".join(names) if len(names) < 3 else f"{names[0]} et al."
        return f"{who}, {entry.fields['year']}"


class AuthorYearStyle(PlainStyle):
    """The plain style, with these labels, sorted by author and year."""

    default_sorting_style = "author_year_title"
    default_label_style = AuthorYearLabels


def setup(app: Sphinx) -> dict[str, Any]:
    """Make the style known under the name ``author_year``."""
    register_plugin("pybtex.style.formatting", "author_year", AuthorYearStyle)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
