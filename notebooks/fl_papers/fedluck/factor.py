"""FedLuck's key convergence factor as a map with sliders for a device; the page finds the minimum by itself.

Like :mod:`fl_core.report.interactive`, the figure is one piece of HTML that needs no kernel and makes no request. The
script minimises the factor by itself and refuses to draw where its minima are not those of the planner.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from string import Template
from typing import Any

import numpy as np
import pandas as pd

from fl_core.errors import SpecError
from fl_core.formulas.fedluck import Box, job_seconds, plan_devices, rounds_per_job
from fl_core.report.interactive import as_json, asset, html_table
from fl_core.report.style import VERMILION
from fl_papers.fedluck import theory

OFFICIAL = Box()  # The authors' box.
RANGES = {"alpha": (0.005, 2.0), "beta": (0.05, 200.0), "period": (0.1, 30.0)}  # Ends of the sliders, seconds.
BANDS = {
    1.01: "#FDE725", 1.05: "#A5DB36", 1.1: "#4AC16D", 1.25: "#1FA187", 1.5: "#277F8E", 2: "#365C8D", 4: "#46327E",
}  # fmt: skip
"""Colour up to a multiple of the minimum; what is above the last one is darker."""
BEYOND = "#2D0B45"
MARKS = {
    "smallest in the box, whole k": '<circle class="flf-best" cx="8" cy="8" r="5"/>',
    "local minimum for any k > 0": '<path class="flf-stationary" d="M2 8l6-6 6 6-6 6z"/>',
    "saddle": '<path class="flf-saddle" d="M3 3l10 10m0-10l-10 10"/>',
}


@dataclass(frozen=True)
class InteractiveFactor:
    """A figure for notebooks and the book; see :func:`interactive_factor`."""

    data: dict[str, Any]  # What the script gets, plain values for JSON.
    table: pd.DataFrame = field(repr=False)  # The text alternative: the best plan of each device.

    def _repr_html_(self) -> str:
        names = [html.escape(device["name"]) for device in self.data["devices"]]
        return Template(asset("factor.html", __file__)).substitute(
            title="Key convergence factor over local steps and compression rate",
            colours=f"--flf-mark:{VERMILION}",
            devices="".join(f'<option value="{i}">{name}</option>' for i, name in enumerate(names)),
            legend="".join(_legend()),
            tables=html_table("The same in numbers: the best plan of each device", self.table, "flf-scroll"),
            data=as_json(self.data),
            style=asset("factor.css", __file__),
            script=asset("factor.js", __file__),
        )

    def __repr__(self) -> str:
        return f"interactive map of the key convergence factor for {len(self.data['devices'])} devices"


def interactive_factor(
    devices: Mapping[str, tuple[float, float]], period_seconds: float, box: Box = OFFICIAL
) -> InteractiveFactor:
    """Make a map of phi(k, delta), Eq. 14, with sliders for alpha, beta and the length of a round.

    It shows itself as the last expression of a notebook cell.
    """
    if not devices:
        raise SpecError("a map of the key convergence factor needs at least one device")
    if box.k_min == box.k_max or box.delta_min == box.delta_max:
        raise SpecError(f"the map needs a box in which k and delta are free, got {box}")
    given = [("period", "the round", period_seconds)]
    given += [(kind, name, t) for name, pair in devices.items() for kind, t in zip(RANGES, pair, strict=False)]
    for kind, name, seconds in given:
        low, high = RANGES[kind]
        if not low <= seconds <= high:
            raise SpecError(f"{kind} of {name} must lie in [{low:g}, {high:g}] s, got {seconds!r}")
    times = [(float(a), float(b), float(period_seconds)) for a, b in devices.values()]
    shown = [{"name": name, "alpha": a, "beta": b} for name, (a, b, _) in zip(devices, times, strict=True)]
    bands = [{"most": float(most), "colour": colour} for most, colour in BANDS.items()]
    data = {
        "devices": shown,
        "period": float(period_seconds),
        "box": [box.k_min, box.k_max, box.delta_min, box.delta_max],
        "ranges": RANGES,
        "bands": [*bands, {"most": None, "colour": BEYOND}],
        "threshold": theory.COMPRESSION_THRESHOLD,
        "checks": list(_checks(times, box)),
    }
    return InteractiveFactor(data, plans(devices, period_seconds, box))


def plans(devices: Mapping[str, tuple[float, float]], period_seconds: float, box: Box = OFFICIAL) -> pd.DataFrame:
    """Return the exact plan of each device, with what its jobs are like.

    Columns: ``device``, ``α`` and ``β`` (s), ``β/T̃``, ``k``, ``δ``, ``φ``, ``job`` (s), ``τ`` (Eq. 7).
    """
    alpha, beta = np.array(list(devices.values()), dtype=np.float64).T
    k, delta, factor = plan_devices(alpha, beta, period_seconds, solver="exact", box=box)
    job = job_seconds(k, delta, alpha, beta)
    columns = {"device": list(devices), "α": alpha, "β": beta, "β/T̃": beta / period_seconds, "k": k, "δ": delta}
    return pd.DataFrame({**columns, "φ": factor, "job": job, "τ": rounds_per_job(job, period_seconds)})


def _checks(own: list[tuple[float, float, float]], box: Box) -> Iterator[list[float | None]]:
    """Yield times of devices, their best plan, and where phi is stationary: what the script must find too."""
    rng = np.random.default_rng(0)
    drawn = np.exp([rng.uniform(np.log(low), np.log(high), 40) for low, high in RANGES.values()]).T
    for alpha, beta, period in [*own, *drawn.tolist()]:
        best = plan_devices(alpha, beta, period, solver="exact", box=box)
        points: list[float | None] = []
        for branch in (theory.interior_minimum, theory.saddle_point, theory.uncompressed_minimum):
            kappa, delta, *_ = map(float, branch(beta / period))
            points += [None if value != value else value for value in (kappa * (period / alpha), delta)]
        yield [alpha, beta, period, int(best.local_steps[0]), *(float(c[0]) for c in best[1:]), *points[:-1]]


def _legend() -> Iterator[str]:
    for most, colour in BANDS.items():
        words = f"{most:g} × smallest" if most > 2 else f"+{100 * (most - 1):.0f} %"
        yield f'<span><i style="background:{colour}"></i>≤ {words}</span>'
    yield f'<span><i style="background:{BEYOND}"></i>more</span>'
    for text, mark in MARKS.items():
        yield f'<span><svg viewBox="0 0 16 16" aria-hidden="true">{mark}</svg>{text}</span>'
