"""Import torchvision, with which data are compared, also beside a CPU-only torch that lacks its operators.

There the import stops at ``torchvision::nms``, then at ``torchvision::qnms``, two operators for object
detection. Declaring that they exist is enough for data sets, transforms and classification models.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

import torch

MISSING = ("nms", "qnms")
_library: torch.library.Library | None = None  # the declarations live as long as this object


def import_torchvision() -> ModuleType:
    """Return the module torchvision; its missing operators are declared if a plain import fails for want of them."""
    try:
        return importlib.import_module("torchvision")
    except RuntimeError as error:
        if "torchvision::" not in str(error):
            raise
    _forget_half_imported()
    _declare_operators()
    return importlib.import_module("torchvision")


def _declare_operators() -> None:
    global _library
    if hasattr(torch.ops.torchvision, "nms"):
        return
    _library = torch.library.Library("torchvision", "DEF")
    for name in MISSING:
        _library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


def _forget_half_imported() -> None:
    for name in [n for n in sys.modules if n == "torchvision" or n.startswith("torchvision.")]:
        del sys.modules[name]
