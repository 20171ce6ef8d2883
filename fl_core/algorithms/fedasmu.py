"""FedASMU: asynchronous training whose mixing weights learn, with fresh models in mid-training (Liu et al., 2024)."""

from __future__ import annotations

import os
import tempfile
from math import isfinite, nan
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from fl_core.algorithms.base import register
from fl_core.algorithms.fresh_merge import FreshMerge, Rate, Slot
from fl_core.config import Seconds
from fl_core.formulas import fedasmu as formulas
from fl_core.formulas.fedasmu import Controls, Half, PastAggregation
from fl_core.formulas.fedasync import alpha_t
from fl_core.formulas.staleness import Polynomial, StalenessWeight
from fl_core.world.triggers import Timed

if TYPE_CHECKING:
    from fl_core.runtime import ServerHandle, Upload

ServerWeight = Literal["dynamic", "frozen_xi", "fedasync_poly"]
REPORTED = "slot", "fresh_weight", "reward", "gamma", "upsilon"
"""What a device says of its request, for ``history.learned``."""

Backend = Literal["ram", "memmap", "float16", "sketch"]


class Mixture(NamedTuple):
    """What the server makes of an upload."""

    model: Tensor
    """``[d]``."""
    weight: float
    """alpha."""
    controls: Controls = Controls(nan, nan, nan)
    """Those of the device, after their step."""
    score: float = nan
    """xi."""
    projected: float = nan
    """How many controls were moved to stay in their range; NaN: there was no step."""


@register
class FedASMU(FreshMerge):
    """Algorithms 1 and 2. An upload is mixed in on arrival; each device has its own parameters of the mixing weight.

    What a device does is in :class:`~fl_core.algorithms.fresh_merge.FreshMerge`, with the fields that belong to it.
    The server keeps ``server.state["devices"]``: for each device its control parameters, when and how its last upload
    was mixed in, and the direction of that, until the next one of the same device.
    """

    server_weight: ServerWeight = "dynamic"
    """``"dynamic"``: Eq. 2 with Eq. 3; "frozen_xi": Eq. 2 with the initial parameters; "fedasync_poly": that of
    FedAsync, alpha s^-a, with `static_alpha` and `static_weight`."""
    staleness_bound: int = Field(99, ge=1)
    """tau: an upload whose staleness (1 if it is fresh) is above it is dropped and changes nothing."""
    lambda_0: float = Field(29.66013673, ge=0, allow_inf_nan=False)
    """Initial lambda; the default matches FedAsync's mean weight over 5,000 versions with 10 devices in flight (A02),
    `fl_core.formulas.fedasmu.matched_lambda` gives it for other runs."""
    sigma_0: float = Field(0.5, ge=0, allow_inf_nan=False)
    """Initial sigma."""
    iota_0: float = Field(0.0, ge=0, allow_inf_nan=False)
    """Initial iota."""
    lr_lambda: float = Rate
    """Learning rate of lambda."""
    lr_sigma: float = Rate
    """Learning rate of sigma."""
    lr_iota: float = Rate
    """Learning rate of iota."""
    mu_alpha: float = Field(1.0, gt=0, allow_inf_nan=False)
    """Scale of alpha."""
    static_alpha: float = Field(0.6, gt=0, le=1)
    """alpha of "fedasync_poly"."""
    static_weight: StalenessWeight = Polynomial(a=0.5)
    """s of "fedasync_poly"."""
    server_grad: Literal["derived", "printed"] = "derived"
    """``"derived"``, or "printed" with the paper's signs and logarithm (E01, E02)."""
    grad_divisor: Literal["steps", "epochs"] = "steps"
    """What the update of a device is divided by to get a gradient: its "steps", or its "epochs" (E08)."""
    history: Literal["own_last", "producer"] = "own_last"
    """Which aggregation the gradient goes through: "own_last", the device's last one, or "producer", the one that
    made the version it started from (A07)."""
    propagation: Literal["none", "exact"] = "none"
    """``"none"``, as printed, or "exact": times what later aggregations have left of it (E06)."""
    sqrt_offset_server: Literal[0, 1] = 1
    """What is added to t under the root: 1 counts rounds from 1; 0 as printed (E04)."""
    directions: Backend = "ram"
    """How they are kept: in main memory, "ram"; on disk, "memmap"; in half precision, "float16"; or as a "sketch" of
    `sketch_size` numbers. An update of the server passes four times over vectors with "ram", once more with
    `merge_correction`, and more often with the other forms. After a run is resumed, directions that were on disk are
    in main memory until they are replaced."""
    sketch_size: int = Field(1024, ge=1)
    """Numbers of a sketch."""
    trigger_period: Seconds = 10.0
    """Time between two ticks, unless the world declares a trigger."""
    trigger_size: int = Field(10, ge=1)
    """Devices triggered at a tick."""
    concurrency: int = Field(10, ge=1)
    """Devices in flight, at most."""

    async def scheduler(self, server: ServerHandle) -> None:
        """Trigger idle devices at every tick."""
        period, size = self.trigger_period, self.trigger_size
        await server.keep_busy(Timed(period_seconds=period, per_tick=size, concurrency=self.concurrency))

    async def updater(self, server: ServerHandle) -> None:
        """Weigh each arrival (2, 3) and mix it in (1), or drop it."""
        [upload] = await server.receive()
        if not self.keeps(upload.staleness):
            server.discard(upload)
            return
        made = self.weigh(server, upload)
        self.learn_meta(server, upload)
        server.commit(made.model, weight=made.weight)

    def combine(
        self, model: Tensor, uploaded: Tensor, version: int, staleness: int, controls: Controls,
        past: PastAggregation | None = None, q: float = 0.0, left: float = 1.0,
    ) -> Mixture:  # fmt: skip
        """Return the mixture (1) with the weight (2), after a step of the controls (3) through a `past` aggregation.

        `version` is t, `staleness` the paper's t - o + 1; `q` is <g_i, d_i>, and `left` the part that later
        aggregations have left of the past one.
        """
        if self.server_weight == "fedasync_poly":
            weight = alpha_t(self.static_alpha, version + 1, staleness - 1, self.static_weight)
            return Mixture(formulas.blend(model, uploaded, weight), weight)
        projected = nan
        if past is not None:
            rates, options = Controls(self.lr_lambda, self.lr_sigma, self.lr_iota), self.sqrt_offset_server
            slopes = formulas.control_gradient(q, past, self.mu_alpha, sqrt_offset=options, form=self.server_grad)
            gradient = Controls(*(left * slope for slope in slopes))
            moved = formulas.descend_controls(controls, gradient, rates)
            controls = formulas.project_controls(moved, self.server_grad) if self.project else moved
            projected = sum(a != b for a, b in zip(moved, controls, strict=True))
        score = formulas.weight_score(version, staleness, controls, sqrt_offset=self.sqrt_offset_server)
        weight = formulas.squash(score, self.mu_alpha)
        return Mixture(formulas.blend(model, uploaded, weight), weight, controls, score, projected)

    def keeps(self, missed: int) -> bool:
        """Return whether an upload that missed so many updates, and so has staleness `missed` + 1, is used."""
        return missed < self.staleness_bound

    def weigh(self, server: ServerHandle, upload: Upload) -> Mixture:
        """Return what becomes of `upload`, having updated the control parameters of its device (section 2.3)."""
        t, staleness = server.iteration, upload.staleness + 1  # the paper's t - o + 1
        static = self.server_weight == "fedasync_poly"
        own = {} if static else server.state.setdefault("devices", {}).setdefault(upload.device, {})
        controls = Controls(*own.get("controls", (self.lambda_0, self.sigma_0, self.iota_0)))
        past, direction = self._past(server, upload, own) if self.server_weight == "dynamic" else (None, None)
        q = nan if past is None else self._inner_product(server, upload, direction)
        if not isfinite(q):  # it may overflow when training diverges
            past = None
        left = 1.0
        if past is not None and self.propagation == "exact":
            kept, origin = _kept(server), upload.base_version
            # What was mixed in no earlier than the device's start, as where staleness is drawn, is not in its model.
            left = formulas.propagation(kept, past.version, origin) if past.version < origin else 0.0
        made = self.combine(server.model, upload.model, t, staleness, controls, past, q, left)
        row = {"device": upload.device, **{n: upload.payload[n] for n in REPORTED if n in upload.payload}}
        if not static:
            own["controls"] = tuple(made.controls)
            row |= {"score": made.score, **made.controls._asdict()}
        if self.server_weight == "dynamic":
            self._remember(server, upload, own, (t, staleness, tuple(made.controls)), made.weight)
            row |= {"inner_product": q if past is not None else nan, "projected": made.projected}
        server.log(**row)
        return made

    def _inner_product(self, server: ServerHandle, upload: Upload, direction: Any) -> float:
        """Return q, in two passes over vectors (three with the jump of a merge)."""
        trained = slice(server.num_parameters)
        difference = upload.start.model[trained] - upload.model[trained]
        if "jump" in upload.payload:
            difference += upload.jump
        divisor = upload.steps if self.grad_divisor == "steps" else upload.epochs
        if self.directions in ("ram", "memmap"):
            return formulas.inner_product(difference, direction, upload.lr, divisor)
        found = product(difference, direction, self.directions, self.sketch_size, self._seed(server))
        return found / (upload.lr * divisor)

    def _past(self, server: ServerHandle, upload: Upload, own: dict[str, Any]) -> tuple[PastAggregation | None, Any]:
        """Return the aggregation that the gradient goes through, with its direction; None: there is none yet."""
        if self.history == "own_last":
            if "past" not in own:
                return None, None
            record, direction = own.pop("past"), own.pop("direction")
        else:
            made = server.state.get("made", {})
            if upload.base_version not in made:
                return None, None
            record, direction = made[upload.base_version]
        version, staleness, controls = record
        return PastAggregation(version, staleness, Controls(*controls)), direction

    def _remember(
        self, server: ServerHandle, upload: Upload, own: dict[str, Any], record: tuple[Any, ...], weight: float
    ) -> None:
        """Keep what this aggregation is, with its direction w_o^i - w_t before mixing."""
        trained = slice(server.num_parameters)
        direction = upload.model[trained] - server.model[trained]
        kept = keep(direction, self.directions, self.sketch_size, self._seed(server))
        if self.history == "own_last":
            own["past"], own["direction"] = record, kept
        else:
            made = server.state.setdefault("made", {})
            for version in made.keys() - server.base_versions.values():
                del made[version]
            made[server.iteration + 1] = (record, kept)
        if self.propagation == "exact":
            _kept(server).append(1 - weight)

    def _seed(self, server: ServerHandle) -> int:
        """Return the seed of the run's sketches, where there are any."""
        return int(server.stream("sketch").integers(2**62)) if self.directions == "sketch" else 0


def _kept(server: ServerHandle) -> list[float]:
    """Return what each version has kept of the one before, up to the present one; other servers' leave it whole."""
    kept: list[float] = server.state.setdefault("kept", [])
    kept.extend([1.0] * (server.iteration - len(kept)))
    return kept


@register
class FedASMUDA(FedASMU):
    """Without dynamic aggregation: uploads are weighted as in FedAsync; devices ask for fresh models."""

    name: ClassVar[str] = "fedasmu_da"
    server_weight: ServerWeight = "fedasync_poly"


@register
class FedASMUFA(FedASMU):
    """Without fresh models: the server's weights learn, nobody asks."""

    name: ClassVar[str] = "fedasmu_fa"
    slot: Slot = "none"


@register
class FedASMU0(FedASMUFA):
    """Without both: FedAsync+Poly with a staleness bound."""

    name: ClassVar[str] = "fedasmu_0"
    server_weight: ServerWeight = "fedasync_poly"


@register
class FedASMUH1(FedASMU):
    """Everybody asks after the first epoch."""

    name: ClassVar[str] = "fedasmu_h1"
    slot: Slot = "first"


@register
class FedASMUH2(FedASMU):
    """Everybody asks after half of the epochs, rounded down."""

    name: ClassVar[str] = "fedasmu_h2"
    slot: Slot = "middle"


@register
class FedASMUH3(FedASMU):
    """Everybody asks before the last epoch."""

    name: ClassVar[str] = "fedasmu_h3"
    slot: Slot = "last"


def keep(direction: Tensor, backend: Backend, size: int, seed: int) -> Any:
    """Return `direction` ``[p]`` as plain data in the form of `backend`; `size` and `seed` are those of sketches."""
    match backend:
        case "ram":
            return direction
        case "memmap":
            return on_disk(direction)
        case "float16":
            return list(formulas.to_half(direction))
        case "sketch":
            return formulas.sketch(direction, size, seed)


def product(vector: Tensor, kept: Any, backend: Backend, size: int, seed: int) -> float:
    """Return the inner product of `vector` ``[p]`` with what :func:`keep` has returned."""
    match backend:
        case "ram" | "memmap":
            return float(vector @ kept)
        case "float16":
            return formulas.half_product(vector, Half(*kept))
        case "sketch":
            return float(formulas.sketch(vector, size, seed) @ kept)


def on_disk(vector: Tensor) -> Tensor:
    """Return an equal tensor in a file that has no name and goes with it (in the folder of ``TMPDIR``).

    The system writes it out and forgets it in main memory when that gets short.
    """
    handle, path = tempfile.mkstemp(prefix="fl_core-", suffix=".direction")
    try:
        os.truncate(handle, vector.nbytes)
        mapped = torch.from_file(path, shared=True, size=vector.numel(), dtype=vector.dtype)
    finally:
        os.close(handle)
        os.unlink(path)
    return mapped.copy_(vector)
