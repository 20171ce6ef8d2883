"""What FedASMU's claims take from formulas and small simulations alone, without training a network."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pandas as pd

from fl_core.algorithms import FedASMU, FedASMU0, FedAsync
from fl_core.formulas.fedasmu import (
    Aggregation,
    Controls,
    Form,
    blend,
    control_gradient,
    descend,
    grad_estimate,
    inner_product,
    matched_lambda,
    mixing_weight,
)
from fl_core.formulas.staleness import Polynomial
from fl_core.runtime import Budget, Evaluation, History, LocalTraining, Simulation
from fl_core.tasks import Quadratic
from fl_core.world import World
from fl_papers.fedasmu.schedule import arrivals
from fl_papers.fedasmu.trials import corrected_theorem, one_reporter

if TYPE_CHECKING:
    from fl_core.algorithms import Algorithm
    from fl_core.runtime import ServerHandle, Upload

DEVICES, PARALLEL, EPOCHS, LR, SIZE = 50, 5, 5, 0.05, 20
STEP = 0.01
"""Learning rate of the control parameters in :func:`steps_of_the_controls`."""
theorem = cache(corrected_theorem)
counterexample = cache(one_reporter)


@cache
def quadratics() -> tuple[np.ndarray, np.ndarray, Quadratic]:
    """Return curvatures and minima of random losses of 50 devices, ``[m, d]`` each, and the task."""
    rng = np.random.default_rng(0)
    curvature, centre = rng.uniform(0.5, 2, (DEVICES, SIZE)), rng.normal(size=(DEVICES, SIZE))
    return curvature, centre, Quadratic(curvature, centre, 3 * np.ones(SIZE))


class Paired(FedASMU):
    """FedASMU that measures how far each merged upload is from the global model, and its twin without the merge."""

    name: ClassVar[str] = "fedasmu_paired"

    def weigh(self, server: ServerHandle, upload: Upload) -> float:
        """Return alpha; log the two distances of :func:`distances`."""
        if "fresh_weight" in upload.payload:
            curvature, centre, _ = quadratics()
            c, start = centre[upload.device], upload.start.model.numpy()
            alone = c + (1 - upload.lr * curvature[upload.device]) ** upload.steps * (start - c)
            now = server.model.numpy()
            row = (np.linalg.norm(now - upload.model.numpy()), np.linalg.norm(now - alone))
            server.state.setdefault("distances", []).append(tuple(map(float, row)))
        return super().weigh(server, upload)


def simulate(algorithm: Algorithm, seed: int, updates: int) -> Simulation:
    """Return a finished run on :func:`quadratics` in FedASMU's world, whose speeds and triggers depend on `seed`."""
    run = Simulation(
        quadratics()[2],
        World.named("fedasmu", devices=DEVICES),
        algorithm,
        budget=Budget(updates=updates),
        seed=seed,
        training=LocalTraining(lr=LR, epochs=EPOCHS),
        evaluation=Evaluation(every_updates=updates),
    )
    run.run("sequential")
    return run


@cache
def distances(seed: int, updates: int = 300) -> pd.DataFrame:
    """Return ``merged`` and ``alone``: ‖w_t - w_o^i‖ at arrival, of each upload with a merge and of its twin without.

    The twin starts from the same model and does the same local steps, full gradients of a quadratic loss.
    """
    scale = matched_lambda(updates, PARALLEL)
    run = simulate(Paired(lambda_0=scale, gamma_0=scale), seed, updates)
    return pd.DataFrame(run.server.state["distances"], columns=["merged", "alone"])


@cache
def without_both_parts(updates: int = 200) -> tuple[History, History]:
    """Return the histories of FedASMU-0 and of FedAsync+Poly with a staleness bound, which drops some uploads."""
    bound = 6
    zero, fedasync = (
        simulate(algorithm, 0, updates).history
        for algorithm in (
            FedASMU0(staleness_bound=bound),
            FedAsync(weight=Polynomial(a=0.5), drop_above=bound - 1),
        )
    )
    return zero, fedasync


@cache
def steps_of_the_controls(form: Form, problems: int = 200) -> pd.DataFrame:
    """Take one step (3) on random problems and evaluate the loss of the device before and after it.

    w_o is the product of the device's previous upload: w_o = w_p + alpha (w_o'^i - w_p), as the appendix assumes.

    Returns
    -------
    DataFrame
        ``before``, ``after``: F_i(w_o) with the control parameters before and after the step.
    """
    rng = np.random.default_rng(0)
    rows = []
    for _ in range(problems):
        curvature, centre = rng.uniform(0.5, 2, 7), rng.normal(size=7)
        w_p, upload = 2 * rng.normal(size=7), 2 * rng.normal(size=7)
        version, staleness = int(rng.integers(1, 100)), int(rng.integers(2, 15))
        controls = Controls(rng.uniform(0.5, 5), rng.uniform(0.2, 0.9), rng.uniform(0, 0.3))

        w = blend(w_p, upload, mixing_weight(version, staleness, controls))
        g = grad_estimate(w, w - 1e-6 * curvature * (w - centre), 1e-6, 1)  # of one tiny local step
        q = inner_product(g, upload - w_p, 1.0, 1)
        slope = control_gradient(q, Aggregation(version, staleness, controls), form=form)
        changed = descend(controls, slope, Controls(STEP, STEP, STEP))
        after = blend(w_p, upload, mixing_weight(version, staleness, changed))
        rows.append([float(0.5 * curvature @ (point - centre) ** 2) for point in (w, after)])
    return pd.DataFrame(rows, columns=["before", "after"])


@cache
def dropped(staleness_bound: int) -> tuple[int, int]:
    """Return how many uploads a staleness bound drops until 5,000 are mixed in, and the largest staleness (E17)."""
    found = arrivals(5000, staleness_bound=staleness_bound)
    return int((~found["used"]).sum()), int(found["staleness"].max())
