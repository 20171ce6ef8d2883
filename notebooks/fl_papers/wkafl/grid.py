"""The runs behind WKAFL's Figures 2 and 5 to 10, Tables 2 and 3, and Appendix A.

Comparisons by level of staleness and by label skew (Algorithm 4), with true and with aliased staleness (E30);
ablations and comparison on data divided by writer or celebrity; Zeno++, and Byzantine uploads. Settings are those of
:mod:`fl_papers.wkafl.setups`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import Field

from fl_core.algorithms import GSGM, SASGD, TWAFL, WKAFL, KAsynchronous, ZenoPP
from fl_core.datasets import Natural, WKAFLPartition
from fl_core.experiments import calibration
from fl_core.experiments.experiment import Options as Overrides
from fl_core.experiments.spec import RunSpec
from fl_core.experiments.study import Entry
from fl_core.runtime import Budget, Evaluation, LocalTraining
from fl_core.world import World
from fl_papers.wkafl.setups import (
    ABLATIONS,
    GSGM_FACTORS,
    METHODS,
    SETUPS,
    Level,
    Snapshot,
    network,
    scale_of,
    setup_of,
)


class Options(Overrides):
    """What a reader may change besides profile, data set and seeds.

    Attributes
    ----------
    snapshots : tuple of str or None
        Modes of staleness: ``"copy"`` (true) and ``"aliased"`` (as in the authors' programs); None: the profile's.
    labels : tuple of int
        Labels per device, where label skew is varied.
    lr_factors : tuple of float
        Factors of all learning rates (A17).
    byzantine : float
        Share of uploads that are turned round and made ten times as long, where there are such.
    model : str or None
        Another network.
    """

    snapshots: tuple[Snapshot, ...] | None = Field(None, min_length=1)
    labels: tuple[int, ...] = Field((1, 5, 10), min_length=1)
    lr_factors: tuple[float, ...] = Field((1.0,), min_length=1)
    byzantine: float = Field(0.1, ge=0, le=1)
    model: str | None = None


def comparison(profile: str, dataset: str, seeds: Sequence[int] | None, **overrides: Any) -> list[Entry]:
    """Return the runs of Tables 2 and 3 and Figures 7 to 10: by level, by labels per device, in both modes.

    Where devices are owners of data (EMNIST ByClass, CelebA) there is one cell, that of Figure 6. On CIFAR-10 there
    is also LeNet-5 trained centrally (claim C30).
    """
    make = _Maker(profile, dataset, seeds, Options.of(**overrides))
    return make.reference() + [
        make.entry(method, level, labels, snapshot, factor, seed)
        for seed in make.seeds
        for snapshot in make.snapshots
        for factor in make.options.lr_factors
        for level, labels in make.cells()
        for method in METHODS
        if method != "GSGM" or make.with_gsgm(level)
    ]


def ablations(profile: str, dataset: str, seeds: Sequence[int] | None, **overrides: Any) -> list[Entry]:
    """Return the runs of Figure 5: WKAFL and, one by one, without its three components."""
    make = _Maker(profile, dataset, seeds, Options.of(**overrides))
    return [
        make.entry(method, make.setup.skew_level, make.options.labels[0], snapshot, 1.0, seed)
        for seed in make.seeds
        for snapshot in make.snapshots
        for method in ("WKAFL", *ABLATIONS)
    ]


def motivation(profile: str, dataset: str, seeds: Sequence[int] | None, **overrides: Any) -> list[Entry]:
    """Return the runs of Figure 2 a: staleness weights and momentum alone, at a constant learning rate (A13)."""
    make = _Maker(profile, dataset, seeds, Options.of(**overrides))
    level = make.setup.levels[0]
    return [
        make.entry("No Grad-Sel", level, 1, "copy", 1.0, seed, role="motivation", lr_staleness_factor=0.0)
        for seed in make.seeds
    ]


def byzantine(profile: str, dataset: str, seeds: Sequence[int] | None, **overrides: Any) -> list[Entry]:
    """Return the runs of Appendix A (WKAFL and Zeno++, P = 100, one label), without and with Byzantine uploads."""
    make = _Maker(profile, dataset, seeds, Options.of(**overrides))
    return [
        make.entry(method, (100, 10 if method == "WKAFL" else 1), 1, "copy", 1.0, seed, role="byzantine", share=share)
        for seed in make.seeds
        for share in dict.fromkeys((0.0, make.options.byzantine))
        for method in ("WKAFL", "Zeno++")
    ]


def gsgm_rates(profile: str, dataset: str, seeds: Sequence[int] | None, **overrides: Any) -> list[Entry]:
    """Return GSGM's runs of Table 3 with true staleness, at its learning rate and at smaller ones (A17)."""
    make = _Maker(profile, dataset, seeds, Options.of(**overrides))
    labels = make.options.labels if make.setup.min_samples is None else make.options.labels[:1]
    return [
        make.entry("GSGM", make.setup.skew_level, count, "copy", factor, seed)
        for seed in make.seeds
        for count in labels
        for factor in GSGM_FACTORS
    ]


class _Maker:
    """Builds the entries of one profile, data set and choice of options."""

    def __init__(self, profile: str, dataset: str, seeds: Sequence[int] | None, chosen: Options) -> None:
        self.dataset, self.options, self.setup = dataset, chosen, setup_of(dataset)
        self.scale = scale_of(profile, dataset)
        self.seeds = tuple(self.scale.seeds if seeds is None else seeds)
        self.snapshots = chosen.snapshots or self.scale.snapshots
        self.model = chosen.model or network(profile, dataset)
        self.test_samples = 0 if profile == "paper" else self.setup.test_samples
        self.updates = self.scale.updates or self.setup.updates

    def cells(self) -> Iterator[tuple[Level, int]]:
        """Yield each pair of level and labels per device once: the levels at one label, the labels at one level."""
        first = self.options.labels[0]
        cells = [(level, first) for level in self.setup.levels]
        if self.setup.min_samples is None:
            cells += [(self.setup.skew_level, labels) for labels in self.options.labels]
        yield from dict.fromkeys(cells)

    def reference(self) -> list[Entry]:
        """Return, on CIFAR-10, the run of its network on pooled data by which the surrogate was calibrated."""
        if self.setup is not SETUPS["cifar10"]:
            return []
        [known] = [each for each in calibration.REFERENCES if each.dataset == "cifar10"]
        spec = calibration.entries(known)[0].spec.changed(dataset=self.dataset)
        return [Entry(spec, {"method": "SGD", "role": "reference", "seed": self.seeds[0]})]

    def with_gsgm(self, level: Level) -> bool:
        """Say whether the paper compares GSGM at `level`: Table 3 and Figure 6 do."""
        return level == self.setup.skew_level

    def entry(
        self,
        method: str,
        level: Level,
        labels: int,
        snapshot: str,
        factor: float,
        seed: int,
        *,
        role: str = "curve",
        share: float = 0.0,
        **changed: Any,
    ) -> Entry:
        clients, count = max(level[1], level[0] // self.scale.shrink), level[1]
        natural = self.setup.min_samples
        faults = [{"kind": "corrupted", "how": "scaled", "factor": -10.0, "probability": share}] if share else []
        updates = self.scale.zeno_updates if role == "byzantine" else self.updates
        seconds = 20.0 * updates / clients if role == "byzantine" else None  # Zeno++ may reject without end
        spec = RunSpec(
            dataset=self.dataset,
            partition=WKAFLPartition(labels_per_device=labels) if natural is None else Natural(min_samples=natural),
            model=self.model,
            initialisation="pytorch",
            preprocessing="wkafl",
            world=World.named("wkafl", devices=clients, faults=faults),
            algorithm=self.algorithm(method, count, snapshot, factor, updates, changed),
            training=LocalTraining(batch_size=self.setup.batch_size),
            budget=Budget(updates=updates, seconds=seconds),
            evaluation=Evaluation(
                every_updates=max(1, updates // self.scale.evaluations), test_samples=self.test_samples
            ),
            seed=seed,
        )
        given = {"method": method, "clients": clients, "aggregated": count, "level": clients / count, "role": role}
        where = {"labels": labels if natural is None else None, "snapshot": snapshot, "lr_factor": factor}
        return Entry(spec, {**given, **where, "byzantine": share, "seed": seed})

    def algorithm(
        self, method: str, count: int, snapshot: str, factor: float, updates: int, changed: dict[str, Any]
    ) -> KAsynchronous:
        common: dict[str, Any] = {"num_aggregated": count, "client_snapshot": snapshot}
        if method == "Zeno++":
            return ZenoPP(**common, lr=ZenoPP().lr * factor)
        if method in self.setup.lrs:
            common["lr"] = factor * self.setup.lrs[method]
            if method == "GSGM":
                return GSGM(**common, momentum_alpha=self.setup.gsgm_alpha)
            return TWAFL(**common) if method == "TWAFL" else SASGD(**common)
        parameters = {**self.setup.wkafl, **changed, "lr": factor * self.setup.wkafl["lr"]}
        begins = max(1, round(self.setup.stage2_share * updates))
        return WKAFL(
            **common, **parameters, without=ABLATIONS.get(method), stage_rule="iteration", stage_threshold=begins
        )
