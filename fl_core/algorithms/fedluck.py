"""FedLuck: local steps and compression chosen for each device, aggregated periodically (Song et al., 2024)."""

from __future__ import annotations

from collections.abc import Sequence
from math import nan
from typing import TYPE_CHECKING, Literal

from pydantic import Field, model_validator

from fl_core.algorithms.base import Step, register
from fl_core.algorithms.fedper import PeriodicAggregation
from fl_core.formulas import fedluck as formulas
from fl_core.formulas.compression import Compressor, TopK
from fl_core.formulas.fedluck import Box, DevicePlan, UploadFit, Variant, plan_devices

if TYPE_CHECKING:
    from fl_core.runtime import DeviceHandle, ServerHandle, Upload


@register
class FedLuck(PeriodicAggregation):
    """Algorithm 1 with the plan of Eq. 15: made once for each device, from its alpha_i and beta_i, and kept.

    With both `fixed_steps` and `fixed_compression` it is FedPer; with one of them it is one of Table 2's methods.
    """

    solver: Literal["official_grid", "exact", "exact_ceil"] = "official_grid"
    """``"official_grid"``, "exact" or "exact_ceil"; see `fl_core.formulas.fedluck`."""
    contraction: Literal["printed", "tight"] = "printed"
    """``"tight"``: the factor has 1 in place of 2 - delta, which comes from a loose bound (E10)."""
    k_min: int = 2
    """Least local steps k_i."""
    k_max: int = 60
    """Most local steps."""
    delta_min: float = 0.01
    """Least fraction delta_i that is kept."""
    delta_max: float = 1.0
    """Largest fraction."""
    fixed_steps: int | None = Field(None, ge=1)
    """Everybody's k: only delta_i is optimised ("Opt. LF" by the paper's text, E12)."""
    fixed_compression: float | None = Field(None, gt=0, le=1)
    """Everybody's delta: only k_i is optimised ("Opt. CR" by the paper's text, E12)."""
    per_tensor: bool = False
    """Whether top-k keeps its part of each parameter tensor, as the authors' code does, or of all at once (A6)."""
    wire: Literal["values+indices", "bitmask", "ideal_fraction"] = "ideal_fraction"
    """How uploads are counted: "ideal_fraction" of the model (A9), "values+indices" or "bitmask"."""
    measure: bool = False
    """Whether alpha_i and beta_i are measured before the run (section 2.2); if not, the world declares them."""
    with_latency: bool = False
    """Whether the plan counts the latency of an upload on its own, not as a part of beta_i."""

    @model_validator(mode="after")
    def _box_is_not_empty(self) -> FedLuck:
        self.box()
        return self

    def box(self) -> Box:
        """Return where the plan is looked for."""
        box = Box(self.k_min, self.k_max, self.delta_min, self.delta_max)
        if self.fixed_steps is not None:
            box = box.fixed_steps(self.fixed_steps)
        return box if self.fixed_compression is None else box.fixed_compression(self.fixed_compression)

    def plan(self, alpha: object, beta: object, latency: object = 0.0) -> DevicePlan:
        """Return what devices with these alpha_i, beta_i and latencies do (Eq. 15)."""
        times, variant = (alpha, beta, self.period_seconds), Variant(contraction=self.contraction)
        return plan_devices(*times, solver=self.solver, box=self.box(), latency_seconds=latency, variant=variant)

    def times(self, device: DeviceHandle, model_bytes: int) -> tuple[float, UploadFit]:
        """Return alpha_i, and beta_i with the latency, as declared or as measured in trials before the run."""
        if not self.measure:
            latency = device.upload_seconds(0) if self.with_latency else 0.0
            return device.step_seconds(), UploadFit(device.upload_seconds(model_bytes) - latency, latency)
        steps = [device.step_seconds(trial) for trial in range(formulas.WARM_UP_STEPS + formulas.TIMED_STEPS)]
        rates = formulas.PROBE_RATES * formulas.PROBE_REPEATS
        fit = formulas.fit_upload_with_latency if self.with_latency else formulas.fit_upload
        sent = [device.upload_seconds(rate * model_bytes) for rate in rates]
        return formulas.mean_step_seconds(steps), fit(rates, sent)

    def combine_round(self, server: ServerHandle, uploads: Sequence[Upload]) -> Step:
        """Return the step of a round, and log the plan k_i, delta_i of each device when it first contributes."""
        planned = server.state.setdefault("planned", [])
        for upload in uploads:
            if upload.device not in planned:
                planned.append(upload.device)
                server.log(device=upload.device, steps=upload.steps, kept=upload.payload.get("kept", nan))
        return super().combine_round(server, uploads)

    def job(self, device: DeviceHandle, model_bytes: int) -> tuple[int, Compressor]:
        """Return k_i, and top-k with delta_i: planned at the first task."""
        if "plan" not in device.state:
            seconds_per_step, upload = self.times(device, model_bytes)
            made = self.plan(seconds_per_step, *upload)
            device.state["plan"] = (int(made.local_steps[0]), float(made.compression_rate[0]))
        steps, rate = device.state["plan"]
        return steps, TopK(delta=rate, per_tensor=self.per_tensor, wire=self.wire)
