"""Runs of FedASMU on quadratic losses that show what its control parameters do, and what q is made of (E15, E16)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
from torch import Tensor

from fl_core.algorithms.fedasmu import FedASMU
from fl_core.formulas.fedasmu import grad_estimate, matched_lambda
from fl_core.runtime import Budget, Evaluation, LocalTraining, Simulation
from fl_core.tasks import Quadratic
from fl_core.world import World

if TYPE_CHECKING:
    from fl_core.runtime import ServerHandle, Upload

DEVICES, PARALLEL, EPOCHS = 50, 5, 5


class Recorded(FedASMU):
    """FedASMU that keeps, for each upload, what q is made of."""

    name: ClassVar[str] = "fedasmu_recorded"

    def weigh(self, server: ServerHandle, upload: Upload) -> float:
        """Return alpha; keep the gradient estimate g_i and the direction of this aggregation."""
        gradient = grad_estimate(upload.start.model, upload.model, upload.lr, upload.steps)
        server.state.setdefault("vectors", []).append((upload.device, gradient, upload.model - server.model))
        return super().weigh(server, upload)


def control_run(updates: int, rates: dict[str, float], *, size: int = 20, **fields: Any) -> Simulation:
    """Return a run on 50 devices whose quadratic losses have different curvatures and minima.

    Parameters
    ----------
    updates : int
        T; lambda_0 and gamma_0 match it (A02, A04).
    rates : dict
        Learning rates of control parameters, by the name of the field.
    size : int
        Parameters of the model.
    **fields
        Others of :class:`~fl_core.algorithms.fedasmu.FedASMU`.
    """
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(DEVICES, size))
    task = Quadratic(rng.uniform(0.5, 2, (DEVICES, size)), centres, 3 * np.ones(size))
    scale = matched_lambda(updates, PARALLEL)
    algorithm = Recorded(**{"lambda_0": scale, "gamma_0": scale, **rates, **fields})
    run = Simulation(
        task,
        World.named("fedasmu", devices=DEVICES),
        algorithm,
        budget=Budget(updates=updates),
        seed=0,
        training=LocalTraining(lr=0.05, epochs=EPOCHS),
        evaluation=Evaluation(every_updates=updates),
    )
    run.run("sequential")
    return run


def control_log(run: Simulation) -> pd.DataFrame:
    """Return a row for each aggregation: device, weight, q, score, and the control parameters after it."""
    return pd.DataFrame(run.server.state["log"]).assign(weight=run.history.updates["weight"])


def pairs(run: Simulation) -> list[tuple[Tensor, Tensor]]:
    """Return (g_i, d_i) of each q of a run, in order."""
    last: dict[int, Tensor] = {}
    found = []
    for device, gradient, direction in run.server.state["vectors"]:
        if device in last:
            found.append((gradient, last[device]))
        last[device] = direction
    return found
