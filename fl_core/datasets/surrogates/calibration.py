"""How hard the real data sets are known to be, and the training that tells whether their surrogates are as hard.

For each surrogate: the reference network, which should end within :data:`TOLERANCE` of the accuracy that is known for
the real data; a linear model, which should do clearly worse; the reference network on a part of the data, and with
20 % wrong labels, both of which should hurt. SGD on one machine, without augmentation; but for the network that takes
longest, plain and with a constant learning rate. :mod:`fl_core.experiments.calibration` makes these runs. CelebA's
surrogate has not been calibrated since it shows objects.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

TOLERANCE = 0.03
"""Of the accuracy, in which a surrogate counts as calibrated."""


@dataclass(frozen=True)
class Reference:
    """What is known about a real data set, and the same training on its surrogate."""

    dataset: str  # name of the real data set
    model: str
    known: float  # test accuracy after central training on the real data, in [0, 1]
    reported: str  # who reports it
    lr: float
    linear_lr: float  # learning rate of the linear model; 0: there is no linear model of the inputs
    epochs: float  # passes over the training data
    batch_size: int = 50
    points: int = 10  # evaluations on the way
    part: float = 0.1  # of the training data, for the run with less
    tail: int = 1  # evaluations at the end whose mean counts: at a constant rate accuracy never quite settles
    comparable: bool = True  # `known` is of such a network, trained centrally; else the difference says nothing
    initialisation: str = "glorot"
    momentum: float = 0.0
    decay: float = 1.0  # of the rate after each of the `points`: few passes end near what many reach if it falls
    controls: bool = True  # make the runs that should do worse, too: with one network for each surrogate
    real: bool = False  # train on the data set itself
    preprocessing: Any = None  # other than the default: a preset's name or fields; augmentation is part of it

    @property
    def training(self) -> str:
        """How the network is trained, in words."""
        words = [f"momentum {self.momentum:g}"] * (self.momentum > 0) + [f"rate × {self.decay:g}"] * (self.decay < 1)
        seen = "flipped" if isinstance(self.preprocessing, dict) else self.preprocessing
        return ", ".join([f"{self.epochs:g} passes", *words, *([seen] if seen else [])])

    def reached(self, accuracy: float) -> bool:
        """Return whether `accuracy` is within the tolerance of what is known; real data may be learned better."""
        return accuracy >= self.known - TOLERANCE and (self.real or accuracy <= self.known + TOLERANCE)

    @property
    def used(self) -> str:
        """Name of what is trained on: the surrogate, but where the real data are embedded or meant."""
        return self.dataset if self.real or self.dataset == "fashion-mnist" else f"{self.dataset}-surrogate"


REFERENCES = (
    Reference("cifar10", "lenet5", 0.67, lr=0.05, linear_lr=0.002, epochs=15, points=15, tail=4,
              reported="0.65 (kuangliu/pytorch-cifar, issue 13), 0.68 (dagleaves/VisionNETs); a linear model 0.40"),
    Reference("cifar100", "lenet5", 0.317, lr=0.05, linear_lr=0.002, epochs=12, points=12, tail=4,
              reported="0.317 (dagleaves/VisionNETs)"),
    Reference("tiny-imagenet", "lenet5", 0.195, lr=0.05, linear_lr=0.001, epochs=6, points=6, comparable=False,
              reported="no central figure for LeNet-5 was found; 0.195 is a federated, non-IID one for two "
                       "convolutions (pfllib.com/benchmark.html)"),
    Reference("tiny-imagenet", "resnet20", 0.50, lr=0.05, linear_lr=0, epochs=5, points=15,
              initialisation="pytorch", momentum=0.9, decay=0.77, controls=False,
              reported="the middle of what a ResNet-20 reaches: 0.554 on the validation set, 0.45 on the test set"
                       " (Yu, CS231n report)"),
    Reference("fashion-mnist", "lenet5", 0.90, lr=0.05, linear_lr=0.01, epochs=10,
              reported="0.876 to 0.916 for two convolutions with pooling: list of results in the data set's "
                       "repository (zalandoresearch/fashion-mnist); real data, as a check of this procedure"),
    Reference("emnist-mnist", "wkafl_cnn", 0.99, lr=0.05, linear_lr=0.01, epochs=4, points=8,
              initialisation="pytorch",
              reported="0.985 for a smaller network, LeNet, trained centrally on MNIST (Di-Chai/FedEval, "
                       "benchmarks)"),
    Reference("emnist-digits", "wkafl_cnn", 0.995, lr=0.03, linear_lr=0.01, epochs=1.5, points=6, part=0.01,
              initialisation="pytorch",
              reported="0.997 for a network of this kind after 60 epochs (austin-hill/EMNIST-CNN)"),
    Reference("emnist-byclass", "wkafl_cnn", 0.86, lr=0.03, linear_lr=0.01, epochs=1, points=4, part=0.01,
              initialisation="pytorch",
              reported="0.86 for a convolutional network (ryanjcooper/EMNIST, issue 5); 0.70 to 0.78 without "
                       "convolutions (Cohen et al., 2017, Table III)"),
    Reference("femnist", "wkafl_cnn", 0.85, lr=0.03, linear_lr=0.01, epochs=0.5, points=4, part=0.01,
              initialisation="pytorch",
              reported="0.851 for LeNet trained centrally (Di-Chai/FedEval, benchmarks)"),
    Reference("imdb", "textcnn", 0.87, lr=0.02, linear_lr=0, batch_size=32, epochs=5, points=5,
              initialisation="pytorch",
              reported="0.853 to 0.89 for small convolutional networks without pretrained embeddings "
                       "(wengbenjue's gist; harada4atsushi/keras-sample)"),
    Reference("speech-commands", "lstm", 0.71, lr=0.2, linear_lr=0.001, batch_size=64, epochs=24, points=12,
              tail=2, initialisation="pytorch",
              reported="no central figure is published; 0.710 is FedLuck's, ten devices, independent and "
                       "identically distributed (Table II)"),
)  # fmt: skip

_STEADY: dict[str, Any] = {"initialisation": "pytorch", "momentum": 0.9}
_LENET: dict[str, Any] = {"momentum": 0.9, "decay": 0.8, "preprocessing": {"flip": True}}
REAL = tuple(
    Reference(dataset, model, known, reported, lr, 0, epochs, points=epochs, real=True, controls=False, **more)
    for dataset, model, known, lr, epochs, reported, more in (
        ("mnist", "lenet5", 0.99, 0.05, 6, "0.9905 without distortions (LeCun et al., 1998)", {}),
        ("mnist", "wkafl_cnn", 0.99, 0.05, 4, "0.99 is the target of McMahan et al. (2017) for this kind of network",
         {"initialisation": "pytorch"}),
        ("fashion-mnist", "fedluck_cnn", 0.90, 0.05, 5,
         "0.876 to 0.916 for two convolutions with pooling (zalandoresearch/fashion-mnist)",
         {"initialisation": "pytorch", "decay": 0.6, "preprocessing": "fedluck-grey"}),
        ("cifar10", "lenet5", 0.67, 0.05, 15, "0.65 (kuangliu/pytorch-cifar, issue 13), 0.68 (dagleaves/VisionNETs)",
         {"tail": 4}),
        ("cifar10", "lenet5", 0.67, 0.01, 12, "as above", _LENET),
        ("cifar100-jpeg90", "lenet5", 0.317, 0.05, 12, "0.317 on the lossless images (dagleaves/VisionNETs)",
         {"tail": 4}),
        ("cifar100-jpeg90", "lenet5", 0.317, 0.01, 12, "as above", _LENET),
        ("imdb-49996", "textcnn", 0.87, 0.02, 5,
         "0.853 to 0.89 without pretrained embeddings (wengbenjue's gist; harada4atsushi/keras-sample)",
         {"initialisation": "pytorch", "batch_size": 32}),
        ("cifar10", "resnet18(width=0.125)", 0.823, 0.05, 10,
         "0.823 for a ResNet-20 half as wide, augmented, up to 160 passes (sapbot/resnet-cifar10-68k)",
         _STEADY | {"decay": 0.65, "preprocessing": "fedluck-colour"}),
        ("cifar10", "resnet18(width=0.125)", 0.823, 0.05, 30, "as above",
         _STEADY | {"decay": 0.88, "preprocessing": "fedluck-colour"}),
        ("cifar10", "fedasync_cnn(width=0.5)", 0.77, 0.02, 8,
         "0.75 after 25 passes, 0.79 after 50, for a network as wide (Keras, examples/cifar10_cnn)",
         _STEADY | {"decay": 0.6, "preprocessing": "fedasync"}),
        ("cifar10", "fedasmu_cnn", 0.67, 0.01, 5, "no figure for this network; LeNet-5's, which is as deep",
         _STEADY | {"decay": 0.6, "comparable": False}),
        ("speech-commands-3words", "lstm", 0.71, 0.2, 24, "no central figure; 0.710 is FedLuck's of ten words",
         {"initialisation": "pytorch", "batch_size": 64, "tail": 2, "comparable": False}),
    )
)  # fmt: skip
"""The same on the real data sets at hand. Rows were written down before their runs were made. LeNet-5's plain
trainings on colours came first and fell short; the second ones have rates that fall and flipped images. ResNet-18's
ten passes fell short by 0.033; the second row has thirty."""
