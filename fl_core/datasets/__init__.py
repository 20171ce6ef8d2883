"""Floor 0: data sets by name, real or surrogate, and how their samples are divided among devices."""

from __future__ import annotations

from fl_core.datasets.base import Archive, Dataset, Source, Split, Splits, Surrogate
from fl_core.datasets.own import OWN, register_dataset
from fl_core.datasets.partitions import (
    IID,
    PARTITIONS,
    Dirichlet,
    DirichletPerDevice,
    Natural,
    Partition,
    PartitionStatistics,
    Shards,
    WKAFLPartition,
    partition_statistics,
)
from fl_core.datasets.preprocessing import (
    PRESETS,
    STEPS,
    NamedPreprocessing,
    Preprocessing,
    Samples,
    register_preprocessing,
    with_label_noise,
)
from fl_core.datasets.registry import (
    SurrogateNotice,
    actual,
    all_sources,
    all_surrogates,
    data_folder,
    datasets_folder,
    described,
    differs,
    kind_of,
    load_dataset,
    names,
    num_classes,
    sizes,
    stands_for,
)

__all__ = [
    "IID", "OWN", "PARTITIONS", "PRESETS", "STEPS", "Archive", "Dataset", "Dirichlet", "DirichletPerDevice",
    "NamedPreprocessing", "Natural", "Partition", "PartitionStatistics", "Preprocessing",
    "Samples", "Shards", "Source", "Split", "Splits", "Surrogate", "SurrogateNotice", "WKAFLPartition",
    "actual", "all_sources", "all_surrogates", "data_folder", "datasets_folder", "described", "differs", "kind_of",
    "load_dataset", "names", "num_classes", "partition_statistics",
    "register_dataset", "register_preprocessing", "sizes", "stands_for", "with_label_noise",
]  # fmt: skip
