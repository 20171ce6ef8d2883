"""Square root and logarithm of whatever a formula is given: numbers, arrays, tensors, SymPy expressions."""

from __future__ import annotations

import importlib
import math
from typing import Any

import numpy as np
import torch


def sqrt(x: Any) -> Any:
    """Return the square root of `x`, of the kind of `x`."""
    return _elementary("sqrt", x)


def log(x: Any) -> Any:
    """Return the natural logarithm of `x`, of the kind of `x`."""
    return _elementary("log", x)


def _elementary(name: str, x: Any) -> Any:
    if isinstance(x, int | float):
        return getattr(math, name)(x)
    if isinstance(x, torch.Tensor):
        return getattr(torch, name)(x)
    if isinstance(x, np.ndarray | np.generic):
        return getattr(np, name)(x)
    return getattr(importlib.import_module("sympy"), name)(x)
