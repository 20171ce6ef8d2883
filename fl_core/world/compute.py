"""How fast devices compute: seconds per local step or per local epoch."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

from fl_core.config import Duration, Family, Seconds, ascending

Ratio = Annotated[float, Field(ge=1, allow_inf_nan=False)]


class Compute(Family):
    """A distribution of the time that a unit of local work takes.

    A kind says what is drawn once for each device and run, and, if `redrawn`, what multiplies that in each task.
    """

    redrawn: ClassVar[bool] = False
    per: Literal["step", "epoch"] = "step"
    """The unit: ``"step"``, one mini-batch, or ``"epoch"``, one pass over the device's data however much it has."""

    def draw(self, devices: int, rng: np.random.Generator) -> np.ndarray:
        """Return ``[n]`` seconds per unit of work, one for each device."""
        raise NotImplementedError

    def factor(self, rng: np.random.Generator) -> float:
        """Return what the seconds of one task are multiplied by, if `redrawn`."""
        raise NotImplementedError

    def mean_factor(self) -> float:
        """Return the mean of `factor`."""
        return 1.0


class ConstantCompute(Compute):
    """Every device needs the same time for a local step (one mini-batch)."""

    kind: Literal["constant"] = "constant"
    seconds_per_step: Seconds = 1.0
    """That time; of a local epoch if `per` says so."""

    def draw(self, devices: int, rng: np.random.Generator) -> np.ndarray:
        return np.full(devices, self.seconds_per_step)


class UniformCompute(Compute):
    """Seconds per local step drawn once per device, uniformly between `fastest` and `slowest`."""

    kind: Literal["uniform"] = "uniform"
    fastest: Seconds = 1.0
    """Least seconds that are drawn."""
    slowest: Seconds = 5.0
    """Most seconds that are drawn."""

    _ordered = ascending("fastest", "slowest", "seconds")

    def draw(self, devices: int, rng: np.random.Generator) -> np.ndarray:
        return rng.uniform(self.fastest, self.slowest, devices)


class RatioCompute(Compute):
    """Seconds drawn once per device so that the slowest is exactly `ratio` times the fastest (FedASMU, A15).

    The duration is ``fastest * (1 + (ratio - 1) * u)`` with u uniform on [0, 1); two devices, drawn at random, have
    u = 0 and u = 1. A single device is the fastest.
    """

    kind: Literal["ratio"] = "ratio"
    fastest: Seconds = 1.0
    """Seconds of the fastest device."""
    ratio: Ratio = 5.0
    """Slowest to fastest, >= 1."""
    distribution: Literal["uniform", "loguniform"] = "uniform"
    """``"uniform"``, or ``"loguniform"``: ``fastest * ratio**u``."""

    def draw(self, devices: int, rng: np.random.Generator) -> np.ndarray:
        u = rng.random(devices)
        pinned = rng.choice(devices, min(devices, 2), replace=False)
        u[pinned] = np.arange(len(pinned))
        times = self.ratio**u if self.distribution == "loguniform" else 1 + (self.ratio - 1) * u
        return np.asarray(self.fastest * times)


class GapCompute(Compute):
    r"""Speeds drawn once per device with a heterogeneity gap of exactly `ratio` (SD-FEEL, specification 2.4).

    The speeds are :math:`h_i=s(1+(H-1)v_i)`, where v are uniform draws rescaled so that the smallest is 0 and the
    largest 1, and s keeps a mean fixed; the time is inverse to the speed. A single device has the mean speed.
    """

    kind: Literal["gap"] = "gap"
    ratio: Ratio = 5.0
    """Gap H of the fastest speed to the slowest, >= 1."""
    seconds_per_step: Seconds = 1.0
    """Time at the speed that `fixed` names."""
    distribution: Literal["uniform", "loguniform", "two_class"] = "uniform"
    """``"uniform"``; ``"loguniform"``: the speed grows as ``H**v``; ``"two_class"``: half of the draws are slow, the
    others fast."""
    fixed: Literal["mean_speed", "mean_time", "fastest"] = "mean_speed"
    """What is the same for every H: ``"mean_speed"`` (the devices together are equally fast), ``"mean_time"`` (a step
    takes `seconds_per_step` on average), or ``"fastest"``."""

    def draw(self, devices: int, rng: np.random.Generator) -> np.ndarray:
        u = rng.random(devices)
        v = (u - u.min()) / (np.ptp(u) or 1.0)
        fast = ((u >= 0.5) & (v > 0)) | (v == 1)
        speeds = {
            "uniform": 1 + (self.ratio - 1) * v,
            "loguniform": self.ratio**v,
            "two_class": np.where(fast, self.ratio, 1.0),
        }[self.distribution]
        scales = {"mean_speed": speeds.mean(), "mean_time": 1 / np.mean(1 / speeds), "fastest": speeds.max()}
        return np.asarray(self.seconds_per_step * scales[self.fixed] / speeds)


class LogNormalCompute(Compute):
    """Seconds per local step drawn once per device from a log-normal: a few devices are very slow."""

    kind: Literal["lognormal"] = "lognormal"
    median: Seconds = 1.0
    """Median, in seconds."""
    sigma: float = Field(0.5, ge=0, le=5)
    """Standard deviation of the logarithm."""

    def draw(self, devices: int, rng: np.random.Generator) -> np.ndarray:
        return self.median * np.exp(self.sigma * rng.standard_normal(devices))


class TraceCompute(Compute):
    """Seconds per local step, given for each device."""

    kind: Literal["trace"] = "trace"
    seconds_per_step: tuple[Seconds, ...]
    """One entry for each device; of a local epoch if `per` says so."""

    def draw(self, devices: int, rng: np.random.Generator) -> np.ndarray:
        return np.array(self.seconds_per_step)

    def check(self, devices: int) -> None:
        if len(self.seconds_per_step) != devices:
            raise ValueError(f"compute trace has {len(self.seconds_per_step)} entries for devices = {devices}")


class ExponentialCompute(Compute):
    """Seconds drawn anew for each task: the device's factor times (`shift` + an exponentially distributed time).

    Without shift and factors, the first K of n devices to finish are a uniform draw of K (WKAFL, A1 and D8).
    """

    redrawn: ClassVar[bool] = True
    kind: Literal["exponential"] = "exponential"
    mean: Seconds = 1.0
    """Mean of the exponentially distributed time, in seconds."""
    shift: Duration = 0.0
    """Least time, in seconds."""
    factors: tuple[Seconds, Seconds] = (1.0, 1.0)
    """Bounds of the factor that is drawn uniformly, once per device."""

    @model_validator(mode="after")
    def _ordered(self) -> ExponentialCompute:
        if self.factors[1] < self.factors[0]:
            raise ValueError(f"factors = {self.factors} must be a lower and an upper bound")
        return self

    def draw(self, devices: int, rng: np.random.Generator) -> np.ndarray:
        return rng.uniform(*self.factors, devices)

    def factor(self, rng: np.random.Generator) -> float:
        return self.shift + rng.exponential(self.mean)

    def mean_factor(self) -> float:
        return self.shift + self.mean


class UniformTaskCompute(Compute):
    """Seconds drawn anew for each task, uniformly between `fastest` and `slowest`."""

    redrawn: ClassVar[bool] = True
    kind: Literal["uniform_per_task"] = "uniform_per_task"
    fastest: Duration = 0.0
    """Least seconds that are drawn."""
    slowest: Seconds = 2.0
    """Most seconds that are drawn."""

    _ordered = ascending("fastest", "slowest", "seconds")

    def draw(self, devices: int, rng: np.random.Generator) -> np.ndarray:
        return np.ones(devices)

    def factor(self, rng: np.random.Generator) -> float:
        return rng.uniform(self.fastest, self.slowest)

    def mean_factor(self) -> float:
        return (self.fastest + self.slowest) / 2
