"""How figures look: one colour and marker per algorithm in the whole book, one dash pattern per parameter value."""

from __future__ import annotations

import csv
import hashlib
import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from fl_core.report import HTML

# Okabe and Ito's palette: told apart with every kind of colour vision, and dark enough on white.
BLACK, BLUE, VERMILION, GREEN = "#222222", "#0072B2", "#D55E00", "#009E73"
PURPLE, ORANGE, SKY, GREY = "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F"
INK = "#000000", BLACK, "#262626", "#333333", "#444444", "#4c4c4c", "#555555", "#666666"
"""What has the colour of a page's text; words on a light ground of their own are of another black."""
PALE = "#ececec", "#f6f6f6", "#e3f0f8"
"""Grounds of bars and boxes that are hardly there, in light and in dark."""

SMALL = 9.6
"""Points of the smallest letters of a figure of the book: with less they have less than 8 px on a phone."""

COLOURS = {
    "black": BLACK, "blue": BLUE, "vermilion": VERMILION, "green": GREEN, "purple": PURPLE, "orange": ORANGE,
    "sky": SKY, "grey": GREY,
}  # fmt: skip


def _methods() -> Iterator[tuple[str, dict[str, Any]]]:
    for row in csv.DictReader(Path(__file__).with_name("methods.csv").read_text(encoding="utf-8").splitlines()):
        width = {"linewidth": float(row["linewidth"])} if row["linewidth"] else {}
        yield row["method"], {"color": COLOURS[row["color"]], "marker": row["marker"], **width}


METHODS = dict(_methods())
"""Line properties of a method, from ``methods.csv``; variants are thin and their markers hollow, so that the plain
method under an identical variant stays visible."""
OTHERS = [BLUE, VERMILION, GREEN, PURPLE, BLACK, ORANGE, SKY, GREY]
"""Colours of what is no method of the book, in the order in which a figure shows it."""
DASHES = ["-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1.5, 2))]


def log_ordinate(axis: Axes) -> None:
    """Let the ordinate be logarithmic, with plain numbers at 1, 2 and 5."""
    axis.set_yscale("log")
    axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.yaxis.set_major_formatter("{x:g}")
    axis.yaxis.set_minor_formatter(NullFormatter())


RC: Any = {
    "figure.dpi": 130, "figure.constrained_layout.use": True, "font.size": 11,
    "axes.titlesize": 11, "axes.titlelocation": "left", "axes.spines.top": False, "axes.spines.right": False,
    "axes.grid": True, "grid.alpha": 0.3, "legend.frameon": False, "legend.fontsize": 10,
    "lines.linewidth": 1.8, "lines.markersize": 5, "lines.markerfacecolor": "none", "lines.markeredgewidth": 1.2,
}  # fmt: skip


@contextmanager
def style() -> Iterator[None]:
    """Draw in the style of the book; a figure is closed then, as a notebook would show an open one a second time."""
    before = plt.get_fignums()
    with plt.rc_context(RC):
        yield
    for number in set(plt.get_fignums()).difference(before):
        plt.close(number)


@contextmanager
def drawing(size: tuple[float, float], rows: int = 1, columns: int = 1, rc: Any = None, **more: Any) -> Iterator[Any]:
    """Give a figure in the style of the book, and its axes; `rc` changes the style, `more` is for the axes."""
    with style(), plt.rc_context(rc):
        yield plt.subplots(rows, columns, figsize=size, **more)


def line_of(method: str, position: int = 0, shown: Sequence[str] = ()) -> dict[str, Any]:
    """Return the line properties of a method; one that is not in :data:`METHODS` has a colour that others shown lack.

    `position`, the place of the curve's parameter value among those shown, sets the dash pattern.
    """
    others = [name for name in shown if name not in METHODS]
    taken = {METHODS[name]["color"] for name in shown if name in METHODS}
    free = [colour for colour in OTHERS if colour not in taken] or OTHERS
    colour = free[others.index(method) % len(free) if method in others else 0]
    return {**METHODS.get(method, {"color": colour, "marker": ""}), "linestyle": DASHES[position % len(DASHES)]}


def themed(figure: Figure, said: str) -> HTML:
    """Return a figure as vectors that take the page's colours; `said` is read out in its place."""
    drawn = io.StringIO()
    with plt.rc_context({"svg.fonttype": "none", "svg.hashsalt": "fl_core"}):
        figure.savefig(drawn, format="svg", transparent=True)
    plt.close(figure)
    return HTML(vectors(drawn.getvalue(), said))


def vectors(svg: str, said: str) -> str:
    """Return an SVG for a page: what is black or grey in it has the colour of the text, what is white of the ground.

    Words that are white stand on something dark, and stay white. Coloured ones come nearer to the text: a colour that
    is good for a line is too pale for letters.
    """
    svg = re.sub(
        r'<metadata>.*?</metadata>|(?<=<g) id="[^"]*"| id="image[^"]*"', "", svg[svg.index("<svg") :], flags=re.DOTALL
    )
    svg = re.sub(r" transform=\"rotate\(-0 [^\"]*\"|(?<='DejaVu Sans'), '.*?(?=, sans-serif)", "", svg)
    svg = re.sub('(?<= [xy]=")[^"]*', lambda at: re.sub(r"(\.\d\d)\d+", r"\1", at[0]), svg)
    svg = re.sub(r'(?<= d=")[MLz\d\s.-]+(?=")', _shorter, svg)
    own = hashlib.sha256(svg.encode()).hexdigest()[:8]  # else two drawings of a page share names
    svg = re.sub(r'(?<=\bid=")|(?<=href="#)|(?<=url\(#)', f"d{own}-", svg)
    ground = "var(--pst-color-background, #fff)"
    svg = re.sub(r"<(?!text)\w+ [^>]*", lambda tag: tag[0].replace("#ffffff", ground), svg)
    svg = re.sub(rf"fill: ({'|'.join(PALE)})\b", "fill: currentColor; fill-opacity: 0.1", svg)
    svg = re.sub("|".join(INK), "currentColor", svg)
    coloured = rf"(<t(?:ext|span) [^>]*fill: )({'|'.join(COLOURS.values())})\b"
    svg = re.sub(coloured, r"\1color-mix(in srgb, \2 55%, currentColor)", svg, flags=re.IGNORECASE)
    width = float(re.findall(r'width="([\d.]+)pt"', svg)[0]) * RC["figure.dpi"] / 72
    label = f'class="themed" fill="currentColor" role="img" aria-label="{escape(said, quote=True)}"'
    return svg.replace("<svg ", f'<svg {label} style="max-width:min(44rem,{width:.0f}px)" ', 1)


def _shorter(path: re.Match[str]) -> str:
    """Write lines as the steps between their points, in hundredths: a page has many of them."""
    short, (x, y) = "", (0, 0)
    for kind, *numbers in re.findall(r"([MLz])\s*([\d.-]*)\s*([\d.-]*)", path[0]):
        if kind == "z":
            short += "z"
            continue
        to_x, to_y = (round(100 * float(number)) for number in numbers)
        short += f"M{to_x / 100:g} {to_y / 100:g}" if kind == "M" else f"l{(to_x - x) / 100:g} {(to_y - y) / 100:g}"
        x, y = to_x, to_y
    return short
