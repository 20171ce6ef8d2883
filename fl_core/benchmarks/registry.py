"""All parts, by name."""

from __future__ import annotations

from collections.abc import Iterable

from fl_core.benchmarks.data import data
from fl_core.benchmarks.edge import clusters
from fl_core.benchmarks.formulas import formulas
from fl_core.benchmarks.kasync import kasync
from fl_core.benchmarks.limit import limit
from fl_core.benchmarks.part import Part
from fl_core.benchmarks.runtime import kernel, memory
from fl_core.benchmarks.throughput import batched, overhead, reference, scaling, small, synchronous
from fl_core.errors import unknown

PARTS: dict[str, Part] = {
    part.name: part
    for part in (
        reference,
        synchronous,
        overhead,
        small,
        kernel,
        memory,
        kasync,
        clusters,
        scaling,
        batched,
        limit,
        data,
        formulas,
    )
}


def find_parts(names: Iterable[str]) -> list[Part]:
    """Return the parts called `names`, each once and in this order; all of them if there is no name.

    Raises
    ------
    SpecError
        If there is no such part.
    """
    wanted = list(dict.fromkeys(names)) or list(PARTS)
    for name in wanted:
        if name not in PARTS:
            raise unknown("part", name, PARTS)
    return [PARTS[name] for name in wanted]
