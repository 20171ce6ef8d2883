"""What a profile decides about FedLuck's runs, what a reader may change, and the accuracies that are looked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal, NamedTuple

from pydantic import Field, field_validator

from fl_core.experiments.experiment import Options as Overrides
from fl_papers.fedluck.setups import setup_of


@dataclass(frozen=True)
class Scale:
    """What a profile decides.

    Attributes
    ----------
    seeds : tuple of int
    full : tuple of str
        Cells whose Figures 2 and 3 and tables have the paper's network, horizon and targets.
    width : float
        Width of the network in all other runs, relative to the paper's.
    seconds : dict
        Horizon of the cells that are not in `full`.
    test_samples : int
        Of the evaluations that targets are looked for in (A16); 0: all. The horizon always has all.
    heat_steps, heat_deltas : tuple
        Local steps k and kept fractions delta of Figure 1.
    heat_seconds, extra_seconds : float
        Longest run of Figure 1, and length of the runs with other periods and of the variants.
    periods : tuple of float
        T~ of those with other periods, as multiples of the task's.
    target_factor : float
        Accuracies that are looked for in the cells that are not in `full`, as a part of the paper's.
    heat_targets : dict
        Accuracy of Figure 1 by cell, where it is not the paper's.
    """

    seeds: tuple[int, ...]
    full: tuple[str, ...]
    width: float
    seconds: Mapping[str, float]
    test_samples: int
    heat_steps: tuple[int, ...]
    heat_deltas: tuple[float, ...]
    heat_seconds: float
    extra_seconds: float
    periods: tuple[float, ...]
    target_factor: float = 1.0
    heat_targets: Mapping[str, float] = field(default_factory=dict)


_STEPS, _DELTAS = (10, 20, 30, 40, 50, 60), (0.001, 0.005, 0.01, 0.05, 0.1, 0.5)
_PERIODS = (1 / 3, 1 / 2, 2 / 3, 1.0, 4 / 3, 2.0, 4.0)
_CELLS = ("cnn", "vgg11s", "lstm")
SCALES = {
    "smoke": Scale((0,), (), 0.125, dict.fromkeys(_CELLS, 13.0), 500, (10, 60), (0.01, 0.5), 7.0, 7.0, (1.0, 2.0)),
    "laptop": Scale(
        (0, 1, 2), ("cnn",), 0.25, {"vgg11s": 900.0, "lstm": 1_500.0}, 2_000, _STEPS, _DELTAS, 360.0, 200.0, _PERIODS,
        target_factor=0.5, heat_targets={"cnn": 0.8, "vgg11s": 0.25, "lstm": 0.25},
    ),
    "paper": Scale((0, 1, 2, 3, 4), _CELLS, 1.0, {}, 0, _STEPS, _DELTAS, 1_500.0, 800.0, _PERIODS),
}  # fmt: skip
PERIODS_PER_EVALUATION, HEAT_PERIODS_PER_EVALUATION = 2, 4
"""Periods T~ from one evaluation to the next (A16); FedBuff and FedAvg+TopK are measured at each version instead."""


class Target(NamedTuple):
    """An accuracy that the paper's tables look for, and the one that is looked for here."""

    printed: float
    here: float

    def __str__(self) -> str:
        paper = "" if self.printed == self.here else f" (paper: {100 * self.printed:g} %)"
        return f"{100 * self.here:g} %{paper}"


def targets(profile: str, dataset: str, partition: str) -> list[Target]:
    """Return the targets of Figure 3 (``"iid"``) or Table 1 (``"dirichlet"``), ascending."""
    setup, scale = setup_of(dataset), SCALES[profile]
    factor = 1.0 if setup.cell in scale.full else scale.target_factor
    return [Target(printed, factor * printed) for printed in setup.targets[partition]]


class Options(Overrides):
    """What a reader may change besides profile, data set and seeds; None leaves the paper's or the profile's value.

    Attributes
    ----------
    steps, delta : int, float or None
        FedPer's k and delta.
    dirichlet : float
        Concentration of the labels.
    solver : str
        FedLuck's.
    period_seconds : float or None
        T~ of all periodic methods.
    seconds : float or None
        Horizon of Figures 2 and 3 and of both tables.
    local_lr : float or None
        eta_l.
    per_tensor : bool
        Scope of top-k (A6).
    heat_steps, heat_deltas : tuple or None
        The grid of Figure 1, ascending.
    heat_target : float or None
        Its accuracy.
    heat_seconds : float or None
        Its longest run.
    """

    steps: int | None = Field(None, ge=1)
    delta: float | None = Field(None, gt=0, le=1)
    dirichlet: float = Field(1.0, gt=0, allow_inf_nan=False)
    solver: Literal["official_grid", "exact", "exact_ceil"] = "official_grid"
    period_seconds: float | None = Field(None, gt=0, allow_inf_nan=False)
    seconds: float | None = Field(None, gt=0, allow_inf_nan=False)
    local_lr: float | None = Field(None, gt=0, allow_inf_nan=False)
    per_tensor: bool = True
    heat_steps: tuple[Annotated[int, Field(ge=1)], ...] | None = Field(None, min_length=1)
    heat_deltas: tuple[Annotated[float, Field(gt=0, le=1)], ...] | None = Field(None, min_length=1)
    heat_target: float | None = Field(None, gt=0, lt=1)
    heat_seconds: float | None = Field(None, gt=0, allow_inf_nan=False)

    @field_validator("heat_steps", "heat_deltas")
    @classmethod
    def _sorted(cls, value: tuple[float, ...] | None) -> tuple[float, ...] | None:
        if value is not None and list(value) != sorted(set(value)):
            raise ValueError(f"{list(value)} must ascend, without repetitions")
        return value
