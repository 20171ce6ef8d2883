"""Floor 0: data sets by name, real or surrogate, and how their samples are divided among devices."""

from __future__ import annotations

from fl_core.datasets.base import Archive, Dataset, Source, Split, Surrogate
from fl_core.datasets.partitions import (
    IID,
    Dirichlet,
    DirichletPerDevice,
    Natural,
    Partition,
    Shards,
    WKAFLPartition,
)
from fl_core.datasets.preprocessing import NamedPreprocessing, Preprocessing, Samples
from fl_core.datasets.registry import (
    SurrogateNotice,
    actual,
    all_sources,
    all_surrogates,
    data_folder,
    datasets_folder,
    kind_of,
    load_dataset,
    names,
    sizes,
)

__all__ = [
    "IID",
    "Archive",
    "Dataset",
    "Dirichlet",
    "DirichletPerDevice",
    "NamedPreprocessing",
    "Natural",
    "Partition",
    "Preprocessing",
    "Samples",
    "Shards",
    "Source",
    "Split",
    "Surrogate",
    "SurrogateNotice",
    "WKAFLPartition",
    "actual",
    "all_sources",
    "all_surrogates",
    "data_folder",
    "datasets_folder",
    "kind_of",
    "load_dataset",
    "names",
    "sizes",
]
