"""Floor 0: what is learned. A task owns data, model and metrics; the runtime only moves vectors."""

from __future__ import annotations

from fl_core.tasks.base import (
    POOLED,
    BatchedTask,
    BatchedWorkspace,
    Contrast,
    ContrastiveWorkspace,
    Correction,
    LayeredWorkspace,
    Objective,
    Proximal,
    Task,
    Workspace,
)
from fl_core.tasks.classification import Classification
from fl_core.tasks.quadratic import Quadratic, QuadraticLosses

__all__ = [
    "POOLED", "BatchedTask", "BatchedWorkspace", "Classification", "Contrast", "ContrastiveWorkspace", "Correction",
    "LayeredWorkspace", "Objective", "Proximal", "Quadratic", "QuadraticLosses", "Task", "Workspace",
]  # fmt: skip
