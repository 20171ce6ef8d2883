"""Figures that a reader moves with sliders: a formula, written once more as a script and held to the tested function.

The figure is one piece of HTML that needs no kernel and makes no request. Its script computes the curves from the
sliders; before it draws, it computes all points that Python computed, and refuses to draw if they differ by more than
1e-6. Without a script the page shows Python's numbers as a table.
"""

from __future__ import annotations

import html
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fl_core.errors import SpecError
from fl_core.report.interactive import as_json, asset, html_table
from fl_core.report.style import OTHERS

Curves = Mapping[str, Sequence[float] | np.ndarray]


@dataclass(frozen=True)
class Slider:
    """One number that the reader chooses."""

    name: str
    """As the formula calls it; `label`: as the page does."""
    label: str
    least: float
    most: float
    step: float
    value: float

    def html(self) -> str:
        """Return the input with its label and what it says."""
        return (
            f'<label>{html.escape(self.label)} = <output data-for="{self.name}">{self.value:g}</output>'
            f'<input type="range" name="{self.name}" min="{self.least:g}" max="{self.most:g}" step="{self.step:g}" '
            f'value="{self.value:g}" aria-label="{html.escape(self.label, quote=True)}"></label>'
        )


@dataclass(frozen=True)
class Explorable:
    """A figure for notebooks and the book.

    `compute` takes the sliders' values by name and returns ``x`` and every series; `script` is a function of ``p`` in
    JavaScript that does the same. Both are compared at all corners of the sliders and at their values.
    """

    title: str
    sliders: Sequence[Slider]
    compute: Callable[..., Curves]
    script: str
    x_label: str
    log: bool = False
    log_x: bool = False
    range: tuple[float, float] | None = None
    dashes: Sequence[str] = ()

    def checks(self) -> list[dict[str, Any]]:
        """Return what Python computes at the sliders' values and at every corner."""
        corners = itertools.product(*((slider.least, slider.most) for slider in self.sliders))
        points = [tuple(slider.value for slider in self.sliders), *corners]
        found = []
        for point in points:
            parameters = dict(zip((slider.name for slider in self.sliders), point, strict=True))
            computed = self.compute(**parameters)
            values = {name: [float(f"{v:.9g}") for v in curve] for name, curve in computed.items()}
            if not all(np.isfinite(curve).all() for curve in values.values()):
                raise SpecError(f"{self.title}: not finite at {parameters}")
            found.append({"parameters": parameters, "values": values})
        return found

    def _repr_html_(self) -> str:
        checks = self.checks()
        series = [name for name in checks[0]["values"] if name != "x"]
        data = {
            "title": self.title, "series": series, "x_label": self.x_label, "log": self.log, "log_x": self.log_x,
            "range": self.range, "colours": OTHERS[: len(series)], "checks": checks,
            "dashes": [*self.dashes, *[""] * len(series)][: len(series)],
        }  # fmt: skip
        table = html_table("The same in numbers", pd.DataFrame(checks[0]["values"]), "flx-scroll")
        return (
            f"<style>{asset('explorable.css')}</style>"
            f'<div class="flx" role="group" aria-label="{html.escape(self.title, quote=True)}">'
            f'<div class="flx-live" hidden><div class="flx-sliders">{"".join(s.html() for s in self.sliders)}</div>'
            '<svg viewBox="0 0 640 340" role="img"></svg><div class="flx-legend"></div></div>'
            f'<p class="flx-refusal"></p><details>{table}</details>'
            f'<script type="application/json">{as_json(data)}</script>'
            f"<script>{asset('explorable.js')}(document.currentScript.parentElement, {self.script});</script></div>"
        )

    def __repr__(self) -> str:
        return f"explorable: {self.title}, by {', '.join(slider.label for slider in self.sliders)}"
