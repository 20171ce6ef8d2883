"""Staleness functions s(u) of FedAsync (FA-7a to FA-7d): how much an update counts when it comes late.

Source: Xie, Koyejo & Gupta, "Asynchronous Federated Optimization" (2019), section on adaptive mixing.

Two forms of each. The functions are the formulas: they take a number, a NumPy array or a torch tensor of
staleness values u >= 0 and return the same kind, with s(0) = 1, 0 < s <= 1 but for underflow, and s never increasing.
The classes hold the parameters: frozen, validated, callable, and readable from a run specification as
``{"kind": "hinge", "a": 10, "b": 4}`` or ``"hinge(a=10, b=4)"`` wherever a field is a `StalenessWeight`.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import ConfigDict, Field, model_validator

from fl_core.config import Family
from fl_core.errors import nearest
from fl_core.formulas.checks import require

U = TypeVar("U", float, NDArray[Any], torch.Tensor)


def constant(u: U) -> U:
    """Return s(u) = 1: staleness is ignored (plain FedAsync, FA-6 with s = 1)."""
    u = _staleness(u)
    if isinstance(u, torch.Tensor):
        return torch.ones_like(u)
    return np.ones_like(u) if isinstance(u, np.ndarray) else 1.0


def linear(u: U, a: float) -> U:
    """Return s(u) = 1 / (a u + 1), FA-7a."""
    u = _staleness(u)
    require(0 < a < math.inf, "a", a, "> 0")
    return 1 / (a * u + 1)


def polynomial(u: U, a: float) -> U:
    """Return s(u) = (u + 1)^(-a), FA-7b; the paper's experiments use a = 0.5."""
    u = _staleness(u)
    require(0 < a < math.inf, "a", a, "> 0")
    return (u + 1) ** -a


def exponential(u: U, a: float) -> U:
    """Return s(u) = exp(-a u), FA-7c."""
    u = _staleness(u)
    require(0 < a < math.inf, "a", a, "> 0")
    if isinstance(u, torch.Tensor):
        return torch.exp(-a * u)
    return np.exp(-a * u) if isinstance(u, np.ndarray) else math.exp(-a * u)


def hinge(u: U, a: float, b: float) -> U:
    """Return s(u) = 1 for u <= b and 1 / (a (u - b) + 1) for u > b, FA-7d."""
    u = _staleness(u)
    require(0 < a < math.inf, "a", a, "> 0")
    require(0 <= b < math.inf, "b", b, ">= 0")
    late = (abs(u - b) + (u - b)) / 2  # max(u - b, 0), for numbers, arrays and tensors alike
    return 1 / (a * late + 1)


def _staleness(u: U) -> U:
    """Refuse u < 0 or not-a-number; turn integers into floats, whose powers do not overflow."""
    if isinstance(u, torch.Tensor):
        require(u >= 0, "u", u, ">= 0 (missed updates)")
        return u if u.is_floating_point() else u.to(torch.get_default_dtype())
    require(u >= 0, "u", u, ">= 0 (missed updates)")
    if isinstance(u, np.ndarray):
        return u if np.issubdtype(u.dtype, np.inexact) else u.astype(float)
    return float(u) if isinstance(u, int | np.integer) else u


class StalenessWeight(Family):
    """What all staleness weights share: strict about names, shown in compact form."""

    model_config: ClassVar[ConfigDict] = ConfigDict(allow_inf_nan=False)

    def __call__(self, u: U) -> U:
        """Return the weight of an update that missed u others."""
        raise NotImplementedError

    @model_validator(mode="before")
    @classmethod
    def _known_parameters(cls, data: Any) -> Any:
        for name in data if isinstance(data, dict) else ():
            if name not in cls.model_fields:
                kind = cls.model_fields["kind"].default
                valid = [field for field in cls.model_fields if field != "kind"]
                choices = f"{nearest(name, valid)} (valid: {', '.join(valid) or 'none'})"
                raise ValueError(f"staleness weight {kind!r} has no parameter {name!r}{choices}")
        return data

    def __str__(self) -> str:
        values = self.model_dump(exclude={"kind"})
        inner = ", ".join(f"{name}={str(value).removesuffix('.0')}" for name, value in values.items())
        kind = type(self).model_fields["kind"].default
        return f"{kind}({inner})" if inner else kind


class Constant(StalenessWeight):
    """s(u) = 1: every update counts the same, however late."""

    kind: Literal["constant"] = "constant"

    def __call__(self, u: U) -> U:
        return constant(u)


class Linear(StalenessWeight):
    """s(u) = 1 / (a u + 1), FA-7a."""

    kind: Literal["linear"] = "linear"
    a: float = Field(gt=0)

    def __call__(self, u: U) -> U:
        return linear(u, self.a)


class Polynomial(StalenessWeight):
    """s(u) = (u + 1)^(-a), FA-7b ("FedAsync+Poly")."""

    kind: Literal["polynomial"] = "polynomial"
    a: float = Field(default=0.5, gt=0)

    def __call__(self, u: U) -> U:
        return polynomial(u, self.a)


class Exponential(StalenessWeight):
    """s(u) = exp(-a u), FA-7c."""

    kind: Literal["exponential"] = "exponential"
    a: float = Field(gt=0)

    def __call__(self, u: U) -> U:
        return exponential(u, self.a)


class Hinge(StalenessWeight):
    """s(u) = 1 up to u = b, then 1 / (a (u - b) + 1), FA-7d ("FedAsync+Hinge")."""

    kind: Literal["hinge"] = "hinge"
    a: float = Field(default=10.0, gt=0)
    b: float = Field(default=4.0, ge=0)

    def __call__(self, u: U) -> U:
        return hinge(u, self.a, self.b)


STALENESS_WEIGHTS: dict[str, type[StalenessWeight]] = StalenessWeight.kinds


def staleness_weight(value: object) -> StalenessWeight:
    """Return the weight that `value` describes: an object, a dictionary, or a string like "linear(a=0.5)"."""
    return StalenessWeight.model_validate(value)
