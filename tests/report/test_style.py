"""Drawings of a page: small, in its colours, and still the same drawing."""

from __future__ import annotations

import re

import matplotlib.pyplot as plt
import numpy as np

from fl_core.report.style import ORANGE, themed


def test_a_drawing_keeps_its_points_as_steps_between_them():
    x = np.linspace(0, 5, 400)
    figure, axis = plt.subplots(figsize=(2, 1))
    axis.fill_between(x, np.sin(x) - 1, np.sin(x) + 1)
    axis.text(0, 0, "word, $x$", color=ORANGE)
    svg = themed(figure, "A wave.").data
    [path] = [path for path in re.findall(r' d="([^"]*)"', svg) if path.count("l") > 700]
    steps = np.array([[float(n) for n in step.split()] for step in re.findall(r"l([^lMz]*)", path)])
    assert np.abs(steps.sum(0)).max() < 0.02  # it closes
    assert np.ptp(steps[:, 0].cumsum()) > 100
    assert 'aria-label="A wave."' in svg
    names, used = (set(re.findall(form, svg)) for form in (r'id="([^"]*)"', r'(?:href="|url\()#([^")]*)'))
    assert used <= names
    assert not names & set(re.findall(r'id="([^"]*)"', themed(plt.figure(), "Another.").data))
    assert "currentColor" in svg
    assert re.search(r"<tspan [^>]*fill: color-mix\(in srgb, #e69f00 55%, currentColor\)", svg)  # else too pale
