"""Artifacts as pictures and tables."""

from __future__ import annotations

from matplotlib.figure import Figure

from fl_core.errors import RunError
from fl_core.experiments.artifacts import Artifact, Columns, Curves
from fl_core.experiments.study import Study
from fl_core.report.curves import plot_curves
from fl_core.report.tables import Table


def draw(artifact: Artifact, study: Study) -> tuple[Figure | Table, str]:
    """Return the figure or the table of `artifact` from the results of `study`, and its caption.

    Raises
    ------
    RunError
        If the study has no finished run that the artifact shows.
    """
    frame, view, caption = artifact.reduce(study), artifact.view, artifact.caption(study)
    if frame.empty:
        raise RunError(f"{artifact.id} cannot be drawn: none of its runs at profile {study.profile} is stored")
    if isinstance(view, Columns):
        return Table(frame, view.names, view.digits, view.wrap), caption
    return (plot_curves(frame, view) if isinstance(view, Curves) else view(frame)), caption
