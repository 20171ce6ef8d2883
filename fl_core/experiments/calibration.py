"""Is a surrogate as hard as the real data set? The papers' reference networks, trained centrally, answer.

For each surrogate: the reference network, which should end within :data:`TOLERANCE` of the accuracy that is known for
the real data; a linear model, which should do clearly worse; the reference network on a part of the data, and with
20 % wrong labels, both of which should hurt. SGD on one machine, without augmentation; but for the network that takes
longest, plain and with a constant learning rate.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fl_core.algorithms import SGD
from fl_core.datasets import IID, sizes
from fl_core.errors import unknown
from fl_core.experiments.run import Result
from fl_core.experiments.spec import RunSpec
from fl_core.experiments.store import Store
from fl_core.experiments.study import Entry, Study, load_study
from fl_core.runtime import Budget, Evaluation, LocalTraining
from fl_core.world import World

TOLERANCE = 0.03
"""Of the accuracy, in which a surrogate counts as calibrated."""
NOISE = 0.2
REFERENCE, LINEAR, LESS, NOISY = "reference network", "linear model", "less data", "20 % wrong labels"


@dataclass(frozen=True)
class Reference:
    """What is known about a real data set, and the same training on its surrogate.

    Attributes
    ----------
    dataset : str
        Name of the real data set.
    model : str
    known : float
        Test accuracy after central training on the real data, in [0, 1].
    reported : str
        Who reports it.
    lr, linear_lr : float
        Learning rates of the network and of the linear model; `linear_lr` 0: there is no linear model of the inputs.
    batch_size : int
    epochs : float
        Passes over the training data.
    points : int
        Evaluations on the way.
    part : float
        Of the training data, for the run with less: smaller where so few passes are made that a tenth is plenty.
    tail : int
        Evaluations at the end whose mean counts: at a constant rate accuracy never quite settles.
    comparable : bool
        Whether `known` is a figure for this network, centrally trained; otherwise it is the nearest one there is, and
        nothing follows from the difference.
    initialisation : str
    momentum : float
        Of SGD.
    decay : float
        Factor of the learning rate after each of the `points`: few passes end near what many reach if it falls.
    controls : bool
        Whether the runs that should do worse are made too; one network for each surrogate is enough for that.
    """

    dataset: str
    model: str
    known: float
    reported: str
    lr: float
    linear_lr: float
    epochs: float
    batch_size: int = 50
    points: int = 10
    part: float = 0.1
    tail: int = 1
    comparable: bool = True
    initialisation: str = "glorot"
    momentum: float = 0.0
    decay: float = 1.0
    controls: bool = True

    def entries(self, seed: int = 0) -> list[Entry]:
        """Return the runs: at most four, all on the surrogate (for an embedded data set on the real one)."""
        if not self.controls:
            return [self._entry(REFERENCE, seed)]
        train, _ = sizes(self._used)
        found = [
            self._entry(REFERENCE, seed),
            self._entry(LESS, seed, 0.5, partition=IID(samples_per_device=int(self.part * train))),
            self._entry(NOISY, seed, 0.5, label_noise=NOISE),
        ]
        if self.linear_lr:
            found.insert(1, self._entry(LINEAR, seed, model="linear", training=self._training(self.linear_lr)))
        return found

    @property
    def _used(self) -> str:
        return self.dataset if self.dataset == "fashion-mnist" else f"{self.dataset}-surrogate"

    def _training(self, lr: float) -> LocalTraining:
        changed: dict[str, Any] = {}
        if self.momentum:
            changed |= {"momentum": self.momentum, "momentum_reset": False}
        if self.decay < 1:
            changed |= {"lr_decay": self.decay, "lr_decay_versions": 1}
        return LocalTraining(lr=lr, batch_size=self.batch_size, **changed)

    def _entry(self, variant: str, seed: int, part: float = 1.0, **changed: Any) -> Entry:
        """Return one run of `part` of the steps."""
        steps = self.epochs * sizes(self._used)[0] / self.batch_size
        block = max(1, round(steps / self.points))
        fields: dict[str, Any] = {
            "dataset": self._used,
            "model": self.model,
            "algorithm": SGD(block=block),
            "training": self._training(self.lr),
            "world": World(devices=1),
            "budget": Budget(updates=max(1, round(part * self.points))),
            "evaluation": Evaluation(every_updates=1),
            "initialisation": self.initialisation,
            "seed": seed,
        }
        labels = {"dataset": self.dataset, "network": self.model, "variant": variant, "seed": seed}
        return Entry(RunSpec(**(fields | changed)), labels)


REFERENCES = (
    Reference(
        dataset="cifar10",
        model="lenet5",
        known=0.67,
        reported="0.65 (kuangliu/pytorch-cifar, issue 13), 0.68 (dagleaves/VisionNETs); a linear model 0.40",
        lr=0.05,
        linear_lr=0.002,
        epochs=15,
        points=15,
        tail=4,
    ),
    Reference(
        dataset="cifar100",
        model="lenet5",
        known=0.317,
        reported="0.317 (dagleaves/VisionNETs)",
        lr=0.05,
        linear_lr=0.002,
        epochs=12,
        points=12,
        tail=4,
    ),
    Reference(
        dataset="tiny-imagenet",
        model="lenet5",
        known=0.195,
        reported="no central figure for LeNet-5 was found; 0.195 is a federated, non-IID one for two convolutions "
        "(pfllib.com/benchmark.html)",
        lr=0.05,
        linear_lr=0.001,
        epochs=6,
        points=6,
        comparable=False,
    ),
    Reference(
        dataset="tiny-imagenet",
        model="resnet20",
        known=0.50,
        reported="the middle of what a ResNet-20 reaches: 0.554 on the validation set, 0.45 on the test set "
        "(Yu, CS231n report)",
        lr=0.05,
        linear_lr=0,
        epochs=5,
        points=15,
        initialisation="pytorch",
        momentum=0.9,
        decay=0.77,
        controls=False,
    ),
    Reference(
        dataset="fashion-mnist",
        model="lenet5",
        known=0.90,
        reported="0.876 to 0.916 for two convolutions with pooling: list of results in the data set's repository "
        "(zalandoresearch/fashion-mnist); real data, as a check of this procedure",
        lr=0.05,
        linear_lr=0.01,
        epochs=10,
    ),
    Reference(
        dataset="emnist-mnist",
        model="wkafl_cnn",
        known=0.99,
        reported="0.985 for a smaller network, LeNet, trained centrally on MNIST (Di-Chai/FedEval, benchmarks)",
        lr=0.05,
        linear_lr=0.01,
        epochs=4,
        points=8,
        initialisation="pytorch",
    ),
    Reference(
        dataset="emnist-digits",
        model="wkafl_cnn",
        known=0.995,
        reported="0.997 for a network of this kind after 60 epochs (austin-hill/EMNIST-CNN)",
        lr=0.03,
        linear_lr=0.01,
        epochs=1.5,
        points=6,
        part=0.01,
        initialisation="pytorch",
    ),
    Reference(
        dataset="emnist-byclass",
        model="wkafl_cnn",
        known=0.86,
        reported="0.86 for a convolutional network (ryanjcooper/EMNIST, issue 5); 0.70 to 0.78 without convolutions "
        "(Cohen et al., 2017, Table III)",
        lr=0.03,
        linear_lr=0.01,
        epochs=1,
        points=4,
        part=0.01,
        initialisation="pytorch",
    ),
    Reference(
        dataset="femnist",
        model="wkafl_cnn",
        known=0.85,
        reported="0.851 for LeNet trained centrally (Di-Chai/FedEval, benchmarks)",
        lr=0.03,
        linear_lr=0.01,
        epochs=0.5,
        points=4,
        part=0.01,
        initialisation="pytorch",
    ),
    Reference(
        dataset="celeba",
        model="celeba_cnn",
        known=0.89,
        reported="0.888 for LeNet trained centrally (Di-Chai/FedEval, benchmarks)",
        lr=0.015,
        linear_lr=0.0003,
        epochs=4,
        points=8,
        initialisation="pytorch",
    ),
    Reference(
        dataset="imdb",
        model="textcnn",
        known=0.87,
        reported="0.853 to 0.89 for small convolutional networks without pretrained embeddings "
        "(wengbenjue's gist; harada4atsushi/keras-sample)",
        lr=0.02,
        linear_lr=0,
        batch_size=32,
        epochs=5,
        points=5,
        initialisation="pytorch",
    ),
    Reference(
        dataset="speech-commands",
        model="lstm",
        known=0.71,
        reported="no central figure is published; 0.710 is FedLuck's, ten devices, independent and identically "
        "distributed (Table II)",
        lr=0.2,
        linear_lr=0.001,
        batch_size=64,
        epochs=24,
        points=12,
        tail=2,
        initialisation="pytorch",
    ),
)


def calibration(store: Store, datasets: Iterable[str] = ()) -> Study:
    """Return the runs of `datasets` (names of real ones; none: all), with what `store` has of their results.

    Raises
    ------
    SpecError
        If a data set has no reference.
    """
    known = list(dict.fromkeys(reference.dataset for reference in REFERENCES))
    for name in (names := list(datasets) or known):
        if name not in known:
            raise unknown("data set with a reference", name, known)
    entries = [entry for name in names for found in REFERENCES if found.dataset == name for entry in found.entries()]
    return load_study(Study("laptop", "surrogates", tuple(entries), {}), store)


def table(study: Study) -> pd.DataFrame:
    """Return a row for each data set and network: known and measured accuracy, the difference, what the controls say.

    ``measured`` is a mean over the last evaluations; ``calibrated`` is whether the difference is within
    :data:`TOLERANCE`, None if the run is missing or there is no comparable figure. ``less data`` and ``wrong labels``
    are differences to the reference network after the same number of steps. NaN: a run is missing.
    """
    rows = []
    for reference in REFERENCES:
        runs = {entry.labels["variant"]: result for entry, result in runs_of(study, reference)}
        curves = {name: result.history.evaluations["test_accuracy"] for name, result in runs.items()}
        if not any(entry.labels["dataset"] == reference.dataset for entry in study.entries):
            continue
        reached = _end(curves.get(REFERENCE), reference.tail)
        decided = reference.comparable and not math.isnan(reached)
        rows.append(
            {
                "data set": reference.dataset,
                "network": reference.model,
                "known": reference.known,
                "measured": reached,
                "difference": reached - reference.known,
                "calibrated": abs(reached - reference.known) <= TOLERANCE if decided else None,
                "linear": _end(curves.get(LINEAR), reference.tail),
                "less data": _against_reference(curves, LESS, reference.tail),
                "wrong labels": _against_reference(curves, NOISY, reference.tail),
                "reported": reference.reported,
            }
        )
    return pd.DataFrame(rows)


def runs_of(study: Study, reference: Reference) -> list[tuple[Entry, Result]]:
    """Return the finished runs of one reference."""
    return study.select(dataset=reference.dataset, network=reference.model)


def _end(curve: list[float] | None, tail: int) -> float:
    """Return the mean of the last `tail` values, but never of the initial model's; NaN without a curve."""
    return float(np.mean(curve[1:][-tail:])) if curve else math.nan


def _against_reference(curves: dict[str, list[float]], variant: str, tail: int) -> float:
    """Return how much better (negative: worse) a variant ends than the reference network is after as many steps."""
    if variant not in curves or REFERENCE not in curves:
        return math.nan
    return _end(curves[variant], tail) - _end(curves[REFERENCE][: len(curves[variant])], tail)
