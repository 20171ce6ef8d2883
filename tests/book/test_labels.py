"""What the chapters show has a label: figures, sections and equations. None of those that readers cite gets lost.

``python tests/book/test_labels.py`` writes the list anew, after a label was added on purpose.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from fl_core.bookbuild.chapters import committed

LIST = Path(__file__).with_name("labels.txt")


def labels() -> list[str]:
    found = set()
    for path in committed():
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            source = "".join(cell["source"])
            figure = cell["metadata"].get("mystnb", {}).get("figure", {}).get("name")
            found |= {f"figure {figure}"} if figure else set()
            if cell["cell_type"] == "markdown":
                found |= {f"label {name}" for name in re.findall(r"^\(([\w:-]+)\)=$", source, re.M)}
                found |= {f"math {name}" for name in re.findall(r"^:label: ([\w:-]+)", source, re.M)}
    return sorted(found)


def test_no_figure_section_or_equation_is_lost():
    assert sorted(set(LIST.read_text(encoding="utf-8").split("\n")) - {""} - set(labels())) == []


if __name__ == "__main__":
    LIST.write_text("\n".join(labels()) + "\n", encoding="utf-8")
