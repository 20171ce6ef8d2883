"""Compressors of updates: what they lose, and exactly how many bytes they send; BL-4.1 to BL-4.9, FedLuck (L-a).

Each one is a frozen, validated object, built by name wherever a field is a `Compressor`: ``TopK(delta=0.1)``,
``{"kind": "topk", "delta": 0.1}`` or ``"topk(delta=0.1)"``. A new one is one class in one file of this package.
``COMPRESSORS`` holds all by their kind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from fl_core.formulas.compression.base import CompressorBase, Layout
from fl_core.formulas.compression.feedback import error_feedback, residual_bound
from fl_core.formulas.compression.identity import Identity
from fl_core.formulas.compression.quantised import QSGD, TernGrad, qsgd, terngrad
from fl_core.formulas.compression.selection import kept_count, random_k_indices, top_k_indices
from fl_core.formulas.compression.signs import ScaledSign, SignSGD, majority_vote
from fl_core.formulas.compression.sparse import RandomK, TopK, log2_choose, top_k
from fl_core.part import kinds, union

COMPRESSORS = kinds(__name__, CompressorBase)

if TYPE_CHECKING:
    Compressor = CompressorBase
else:
    Compressor = union(COMPRESSORS)

_ADAPTER: TypeAdapter[Any] = TypeAdapter(Compressor)


def compressor(value: object) -> CompressorBase:
    """Return the compressor that `value` describes: an object, a dictionary, or text like "topk(delta=0.1)".

    Raises
    ------
    ValueError
        The kind or a parameter is unknown, missing or out of range.
    """
    found: CompressorBase = _ADAPTER.validate_python(value)
    return found


__all__ = [
    "COMPRESSORS", "QSGD", "Compressor", "CompressorBase", "Identity", "Layout", "RandomK", "ScaledSign", "SignSGD",
    "TernGrad", "TopK", "compressor", "error_feedback", "kept_count", "log2_choose", "majority_vote", "qsgd",
    "random_k_indices", "residual_bound", "terngrad", "top_k", "top_k_indices",
]  # fmt: skip
