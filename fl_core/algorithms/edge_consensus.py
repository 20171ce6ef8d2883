"""The consensus phase: after training, edge servers agree on one model by exchanges with their neighbours alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fl_core.algorithms.edge_updates import cluster_weights
from fl_core.formulas.sdfeel_graphs import ConstantMixing, consensus_phase, synchronous_mixing_matrix

if TYPE_CHECKING:
    from fl_core.runtime import Simulation


class Agreement(NamedTuple):
    """What the servers hold after the consensus phase, and what it took."""

    models: NDArray[np.float64]
    """``[D, d]``, each server's model."""
    rounds: int
    seconds: float
    """Virtual time of the exchanges, which are not part of the run."""


def gossip_consensus(
    simulation: Simulation,
    tolerance: float = 1e-6,
    *,
    relative: bool = False,
    mixing: ConstantMixing = "laplacian_safe",
) -> Agreement:
    """Let the servers of a finished run exchange models until no two are further apart than `tolerance` (2.3).

    What a run measures and returns, ``history.model``, is the exact data-weighted mean; this is how servers come to
    it without a cloud. Other matrices than the Laplacian ones lead to the plain mean instead (E-06).

    Parameters
    ----------
    simulation : Simulation
        After its run; its servers' models stay as they are.
    tolerance : float, optional
        Largest Euclidean distance of two models, > 0.
    relative : bool, optional
        Whether `tolerance` is a part of the distance at the end of the run.
    mixing : str, optional
        Constant matrix, as in :class:`fl_core.algorithms.SyncSDFeel`.

    Raises
    ------
    ValueError
        `tolerance` is not positive.
    """
    servers = simulation.servers
    matrix = synchronous_mixing_matrix(
        [server.neighbours for server in servers], cluster_weights(simulation.clusters), mixing
    )
    models = np.stack([server.model.numpy().astype(float) for server in servers])
    found = consensus_phase(models, matrix, tolerance, relative=relative)
    return Agreement(found.models, found.rounds, found.rounds * servers[0].backhaul_seconds)
