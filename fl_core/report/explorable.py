"""Figures that a reader moves: formulas with sliders, and comparisons of methods on which axis and by how much.

Each is one piece of HTML that needs no kernel and makes no request. Before its script draws, it computes what Python
computed (a formula's points to 1e-6, a comparison's ends of all axes), and refuses to draw if they differ. Without a
script the page shows Python's numbers: a table, or dots with intervals.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import scipy

from fl_core.errors import SpecError
from fl_core.report.interactive import as_json, asset, html_table
from fl_core.report.style import BLACK, DASHES, OTHERS, line_of

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
    """A formula with sliders, written once more as a script and held to the tested function.

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
        corners = product(*((slider.least, slider.most) for slider in self.sliders))
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


Readings = Mapping[str, Mapping[int, pd.DataFrame]]
"""By method and seed, a row for each measurement, ascending."""
POINTS = 100
"""Readings of a run that are kept at most."""
MOST_SEEDS = 40
LEVEL = 0.95


def in_units(frame: pd.DataFrame) -> pd.DataFrame:
    """Return measurements with virtual time in thousands of seconds and uploads in gigabytes beside them."""
    kiloseconds, gigabytes = frame["seconds"].to_numpy() / 1e3, frame["bytes_up"].to_numpy() / 1e9
    return frame.assign(kiloseconds=kiloseconds, gigabytes=gigabytes)


@dataclass(frozen=True)
class Mark:
    """A printed value of the first metric: that of the end, for differences, or one that is reached at `x`."""

    setting: str
    method: str
    value: float
    axis: str = ""
    x: float = 0.0


@dataclass(frozen=True)
class Comparison:
    """The readings of every seed, of which the script draws means, bands and paired differences.

    Axes, metrics and settings go from the column or key to words.
    """

    title: str
    settings: Mapping[str, Readings]
    axes: Mapping[str, str]
    metrics: Mapping[str, str]
    against: str
    """The method that others are compared with first."""
    marks: Sequence[Mark] = ()
    log: Sequence[str] = ()
    """Metrics on a logarithmic ordinate."""
    slide: str = ""
    """What a slider over the settings is called; without a word there is a list of them."""

    @cached_property
    def runs(self) -> dict[str, dict[str, dict[int, dict[str, np.ndarray]]]]:
        """By setting, method and seed what the figure has; settings with one method alone are left out."""
        found = {
            setting: {
                m: {s: self._thinned(run) for s, run in seeds.items()} for m, seeds in readings.items() if seeds
            }
            for setting, readings in self.settings.items()
        }
        return {setting: methods for setting, methods in found.items() if len(methods) > 1}

    def _thinned(self, frame: pd.DataFrame) -> dict[str, np.ndarray]:
        """Return the columns evenly thinned and rounded to five digits."""
        whole = frame.drop_duplicates(next(iter(self.axes)), keep="last")
        rows = np.unique(np.linspace(0, len(whole) - 1, min(POINTS, len(whole))).round().astype(int))
        columns = (*self.axes, *self.metrics)
        return {c: np.array([float(f"{v:.5g}") for v in whole[c].iloc[rows]]) for c in columns}

    @property
    def methods(self) -> list[str]:
        """All methods, in the order in which settings name them."""
        return list(dict.fromkeys(method for readings in self.runs.values() for method in readings))

    def reference(self, setting: str, axis: str) -> str:
        """Return what others are compared with in a setting: the first method where an axis does not count for it."""
        return min(self.on(setting, axis) or [self.against], key=lambda method: method != self.against)

    def on(self, setting: str, axis: str) -> list[str]:
        """Return the methods of a setting that an axis counts for, as a single machine's knows no communications."""
        return [m for m, own in self.runs[setting].items() if all(run[axis][-1] > 0 for run in own.values())]

    def end(self, setting: str, axis: str) -> float:
        """Return how far all runs of a setting go on an axis."""
        methods = self.on(setting, axis)
        return float(min((run[axis][-1] for m in methods for run in self.runs[setting][m].values()), default=0.0))

    def at_end(self, setting: str, axis: str, metric: str, part: float = 1.0) -> dict[str, list[float]]:
        """Return by method the mean there, its difference to the reference, and half the width of its interval.

        With a `part` below 1 not at the end of the axis, but at this part of the way there.

        The difference is paired by seed, its interval that of Student's t; NaN where less than two seeds are.
        """
        at = part * self.end(setting, axis)
        values = {
            m: {seed: float(np.interp(at, run[axis], run[metric])) for seed, run in self.runs[setting][m].items()}
            for m in self.on(setting, axis)
        }
        reference = values.get(self.reference(setting, axis), {})
        return {m: [float(np.mean([*own.values()])), *_difference(own, reference)] for m, own in values.items()}

    def _checks(self) -> Iterator[dict[str, Any]]:
        for setting, axis, metric in product(self.runs, self.axes, self.metrics):
            against, found = self.reference(setting, axis), self.at_end(setting, axis, metric)
            plain = {m: [_plain(float(f"{v:.9g}")) for v in row] for m, row in found.items()}
            yield {"setting": setting, "axis": axis, "metric": metric, "against": against, "found": plain}

    def looks(self) -> dict[str, tuple[str, str]]:
        """Return colour and dash pattern of each method; what comes before a comma is the book's name of it."""
        found: dict[str, tuple[str, str]] = {}
        families = [method.partition(",")[0] for method in self.methods]
        for method, family in zip(self.methods, families, strict=True):
            colour = line_of(family, shown=families)["color"]
            dash = DASHES[sum(c == colour for c, _ in found.values()) % len(DASHES)]
            found[method] = colour, "" if isinstance(dash, str) else " ".join(f"{2 * length:g}" for length in dash[1])
        return {m: ("currentColor" if colour == BLACK else colour, dash) for m, (colour, dash) in found.items()}

    def _repr_html_(self) -> str:
        if not self.runs:
            return '<p class="themed">(no stored runs to compare)</p>'
        pool: dict[tuple[float, ...], int] = {}

        def kept(run: Mapping[str, np.ndarray]) -> list[int]:
            return [pool.setdefault(tuple(column), len(pool)) for column in run.values()]

        runs = {
            setting: {
                method: {str(seed): kept(run) for seed, run in seeds.items()} for method, seeds in found.items()
            }
            for setting, found in self.runs.items()
        }
        data = {
            "title": self.title, "axes": self.axes, "metrics": self.metrics, "against": self.against,
            "log": list(self.log), "slide": self.slide,
            "marks": [vars(mark) for mark in self.marks], "looks": self.looks(), "runs": runs,
            "t": [0, 0, *(float(f"{scipy.stats.t.ppf((1 + LEVEL) / 2, n - 1):.12g}") for n in range(2, MOST_SEEDS))],
            "arrays": [[_plain(v) for v in column] for column in pool],
            "checks": list(self._checks()),
        }  # fmt: skip
        title = html.escape(self.title, quote=True)
        return (
            f'<style>{asset("comparison.css")}</style><div class="flc flx" role="group" aria-label="{title}">'
            f'<div class="flc-live" hidden></div><div class="flc-still">{self._still()}</div>'
            f'<p class="flx-refusal"></p><script type="application/json">{as_json(data)}</script>'
            f"<script>{asset('comparison.js')}(document.currentScript.parentElement);</script></div>"
        )

    def _still(self) -> str:
        """Return what is shown without a script: for each setting, differences at the end as dots with intervals."""
        axis, metric = next(iter(self.axes)), next(iter(self.metrics))
        looks, parts = self.looks(), []
        for setting in self.runs:
            found = self.at_end(setting, axis, metric)
            reach = max([abs(row[1]) + (0 if np.isnan(row[2]) else row[2]) for row in found.values()] + [1e-9])
            rows = []
            for place, (method, (mean, difference, half)) in enumerate(found.items()):
                y, low, x, high = 22 * place + 14, *(420 + 140 * (difference + s * half) / reach for s in (-1, 0, 1))
                line = "" if np.isnan(half) else f'<path d="M{low:.1f} {y}H{high:.1f}" stroke="{looks[method][0]}"/>'
                dot = "" if np.isnan(x) else f'<circle cx="{x:.1f}" cy="{y}" r="4" fill="{looks[method][0]}"/>'
                said = f"{html.escape(method)}: {mean:.4g} ({difference:+.3g} ± {half:.2g})".replace("nan", "–")
                rows.append(f'{line}{dot}<text x="0" y="{y + 4}">{said}</text>')
            words = f"{setting + ': ' if setting else ''}{self.metrics[metric]} where all runs have come to, "
            words += f"{self.end(setting, axis):.4g} ({self.axes[axis]}), and difference to "
            words += f"{self.reference(setting, axis)} (95 % interval)"
            svg = f'<path d="M420 0V{22 * len(found)}" class="flx-grid"/>{"".join(rows)}'
            label = f'role="img" aria-label="{html.escape(words, quote=True)}"'
            svg = f'<svg viewBox="0 0 570 {22 * len(found) + 4}" {label}>{svg}</svg>'
            parts.append(f"<p>{html.escape(words)}</p>{svg}")
        return "".join(parts)

    def __repr__(self) -> str:
        return f"comparison: {self.title}, of {', '.join(self.methods)}"


def _plain(value: float) -> float | None:
    """Return a number as short JSON; one that is not finite is none."""
    if not np.isfinite(value):
        return None
    return int(value) if value == int(value) else float(value)


def _difference(own: Mapping[int, float], reference: Mapping[int, float]) -> tuple[float, float]:
    both = [own[seed] - reference[seed] for seed in own if seed in reference]
    if len(both) < 2:
        return (both[0] if both else np.nan), np.nan
    half = scipy.stats.t.ppf((1 + LEVEL) / 2, len(both) - 1) * np.std(both, ddof=1) / np.sqrt(len(both))
    return float(np.mean(both)), float(half)
