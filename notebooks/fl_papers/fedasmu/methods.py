"""The methods of FedASMU's tables and text with their settings, and what is varied of them."""

from __future__ import annotations

from typing import Any

from fl_core.algorithms import (
    MOON,
    PORT,
    Algorithm,
    ASOFed,
    AsyncPart,
    FedASMU,
    FedASMU0,
    FedASMUDA,
    FedASMUFA,
    FedASMUH1,
    FedASMUH2,
    FedASMUH3,
    FedAsync,
    FedAvg,
    FedBuff,
    FedDelay,
    FedDyn,
    FedProx,
    FedSA,
    SyncDrop,
)
from fl_core.formulas.fedasmu import matched_lambda
from fl_core.formulas.staleness import Polynomial
from fl_papers.fedasmu.columns import Column

SYNCHRONOUS = ("FedAvg", "FedProx", "MOON", "FedDyn")
ASYNCHRONOUS = ("FedAsync", "PORT", "ASO-Fed", "FedBuff", "FedSA")
METHODS = ("FedASMU", *SYNCHRONOUS, *ASYNCHRONOUS)
"""Rows of Tables 1 and 2."""
BASELINES = METHODS[1:]
EXTRA = ("FedDelay", "SyncDrop", "AsyncPart")
"""Further baselines, which only the paper's text reports."""
ABLATIONS = ("FedASMU-DA", "FedASMU-FA", "FedASMU-0")
HEURISTICS = ("H1", "H2", "slot 3", "H3")
"""Fixed slots 1 to 4; the paper has no name for the third (C44)."""

BUFFER = 5
"""Uploads that FedBuff collects, and that PORT waits for."""
FEDASMU: dict[str, type[FedASMU]] = {
    "FedASMU": FedASMU,
    "FedASMU-DA": FedASMUDA,
    "FedASMU-FA": FedASMUFA,
    "FedASMU-0": FedASMU0,
    "H1": FedASMUH1,
    "H2": FedASMUH2,
    "H3": FedASMUH3,
}
RATES = ("lr_lambda", "lr_sigma", "lr_iota", "lr_gamma", "lr_upsilon")
VARIANTS: dict[str, dict[str, Any]] = {
    "staleness bound 12": {"staleness_bound": 12},
    "printed gradients": {"server_grad": "printed"},
    "exact propagation": {"propagation": "exact"},
    "producer's aggregation": {"history": "producer"},
    "merge correction": {"merge_correction": True},
    "frozen weights": {"server_weight": "frozen_xi"},
    "initial values 1": {"lambda_0": 1.0, "gamma_0": 1.0},
    "largest rates": {"lr_lambda": 1e-3, "lr_sigma": 1e-3, "lr_iota": 0.1, "lr_gamma": 0.1, "lr_upsilon": 1e-3},
}
"""What differs from FedASMU as the tables have it: E17, E01, E06, A07, E09, 2.8, A02, and the rates of the first
column of Table 5 (E16)."""
TUNED: dict[str, tuple[str, tuple[float, ...]]] = {
    "FedProx": ("mu", (0.001, 0.1)),
    "MOON": ("mu", (0.1, 5.0)),
    "FedDyn": ("alpha", (0.1,)),
    "FedAsync": ("alpha", (0.3, 0.9)),
    "FedBuff": ("buffer", (3, 10)),
    "FedDelay": ("global_lr", (0.1, 0.3)),
    "ASO-Fed": ("step_factor", (0.2,)),
}
"""Baselines with a value that the paper tunes without printing it: its name, and others than that of the tables.

`step_factor` is one of the local step size. ASO-Fed multiplies that by the logarithm of a device's mean duration in
seconds, 4.6 to 6.2 in this world (BL-3.8): with a fifth its steps are about as long as those of the others."""


def make_method(
    method: str,
    column: Column,
    uploads: int,
    in_flight: int,
    changed: dict[str, Any],
    *,
    lambda_0: float | None,
    staleness_bound: int,
) -> tuple[Algorithm, int]:
    """Return a method with its settings, and how many uploads make a version.

    Parameters
    ----------
    method : str
        One of :data:`METHODS`, :data:`EXTRA`, :data:`ABLATIONS` or :data:`HEURISTICS`.
    column : Column
        With the learning rates of the control parameters.
    uploads, in_flight : int
        T in single uploads, and devices at work at a time.
    changed : dict
        Fields of the algorithm that differ from the standard ones.
    lambda_0 : float or None
        Of FedASMU; gamma_0 is the same. None: from T and the devices in flight (A02).
    staleness_bound : int
        tau of FedASMU.
    """
    rounds = {"clients_per_round": in_flight, **changed}
    single = {"concurrency": in_flight, **changed}
    match method:
        case "FedAvg":
            return FedAvg(**rounds, weighting="samples"), in_flight
        case "FedProx":
            return FedProx(**rounds), in_flight
        case "MOON":
            return MOON(**rounds), in_flight
        case "FedDyn":
            return FedDyn(**rounds), in_flight
        case "FedAsync":
            return FedAsync(**single, weight=Polynomial(a=0.5)), 1
        case "ASO-Fed":
            return ASOFed(**single), 1
        case "FedSA":
            return FedSA(**single, initial_versions=uploads // 5), 1
        case "FedDelay":
            return FedDelay(**single), 1
        case "SyncDrop":
            return SyncDrop(**single), 1
        case "AsyncPart":
            return AsyncPart(**single), 1
        case "PORT":
            return PORT(**single, min_uploads=BUFFER), BUFFER
        case "FedBuff":
            buffer = changed.get("buffer", BUFFER)
            return FedBuff(**{**single, "buffer": buffer}), buffer
    start = matched_lambda(uploads, in_flight) if lambda_0 is None else lambda_0
    settings: dict[str, Any] = {
        "lambda_0": start,
        "gamma_0": start,
        "staleness_bound": staleness_bound,
        "concurrency": in_flight,
        **dict(zip(RATES, column.rates, strict=True)),
        **changed,
    }
    if method == "slot 3":
        return FedASMU(**settings, slot=3), 1
    return FEDASMU[method](**settings), 1
