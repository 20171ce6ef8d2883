"""Artifacts as pictures."""

from __future__ import annotations

from matplotlib.figure import Figure

from fl_core.errors import RunError
from fl_core.experiments.artifacts import Artifact
from fl_core.experiments.study import Study
from fl_core.report.curves import plot_curves


def draw(artifact: Artifact, study: Study) -> tuple[Figure, str]:
    """Return the figure of `artifact` from the results of `study`, and its caption.

    Raises
    ------
    RunError
        If the study has no finished run that the figure shows.
    """
    frame = artifact.reduce(study)
    if frame.empty:
        raise RunError(f"{artifact.id} cannot be drawn: none of its runs at profile {study.profile} is stored")
    return plot_curves(frame, artifact.view), artifact.caption(study)
