"""The columns of FedASMU's Tables 1 and 2: a network on a data set each, with the rates of Tables 5 and 6."""

from __future__ import annotations

from dataclasses import dataclass

from fl_core.errors import unknown

SURROGATE = "-surrogate"
"""What the name of a data set ends with that stands for a real one."""


@dataclass(frozen=True)
class Column:
    """A column of Table 1 or 2.

    Attributes
    ----------
    table : int
    model, data : str
        As the paper calls them.
    dataset, network : str
        Their names here.
    parameters, classes : int
    shape : tuple of int
        Of an input.
    target : float
        Accuracy whose time the table gives.
    lr : float
        eta_i (Tables 5 and 6).
    rates : tuple of float
        Learning rates of lambda, sigma, iota, gamma and upsilon there.
    width : float
        Of the network in the smaller profiles.
    samples : int
        Of a device, on average.
    small_lr : float or None
        Step size in the smaller profiles, if it is another.
    small_side : int or None
        Side of the images there, if it is another.
    share : float
        Of a device, times as many samples are used there as the profile says, if it has them.
    longer : int
        Times as many uploads there as the profile gives its data set: with fewer the network does not leave chance.
    small_target : float or None
        Accuracy whose time is given there, if the target is out of reach: three quarters of the way from guessing to
        what FedAvg ends with there, in hundredths.
    initial : str
        How initial values are drawn, in every profile. With PyTorch's, eight layers and more without normalisation
        do not leave chance within some hundred steps.
    """

    table: int
    model: str
    data: str
    dataset: str
    network: str
    parameters: int
    classes: int
    shape: tuple[int, ...]
    target: float
    lr: float = 0.03
    rates: tuple[float, ...] = (1e-4,) * 5
    width: float = 1.0
    samples: int = 500
    small_lr: float | None = None
    small_side: int | None = None
    share: float = 1.0
    longer: int = 1
    small_target: float | None = None
    initial: str = "pytorch"


_COLOUR, _C10, _C100 = (3, 32, 32), ("CIFAR-10", "cifar10"), ("CIFAR-100", "cifar100")
COLUMNS = {
    "lenet-cifar10": Column(
        1, "LeNet", *_C10, "lenet5", 62_006, 10, _COLOUR, 0.30, rates=(0.001, 0.001, 0.1, 0.1, 0.001), small_lr=0.1
    ),
    "lenet-cifar100": Column(
        1, "LeNet", *_C100, "lenet5", 69_656, 100, _COLOUR, 0.13, small_lr=0.1, small_target=0.07
    ),
    "cnn-cifar10": Column(
        1, "CNN", *_C10, "fedasmu_cnn", 297_066, 10, _COLOUR, 0.40, 0.028, (0.001, 0.001, 1e-4, 0.1, 0.001), 0.25,
        small_lr=0.1, share=0.5, small_target=0.20,
    ),
    "cnn-cifar100": Column(
        1, "CNN", *_C100, "fedasmu_cnn", 2_889_156, 100, _COLOUR, 0.15, 0.013, (1e-5,) * 5, width=0.25,
        small_lr=0.05, share=0.5, small_target=0.08,
    ),
    "resnet-cifar100": Column(
        1, "ResNet", *_C100, "resnet20", 275_572, 100, _COLOUR, 0.25, width=0.25, small_lr=0.1, small_side=16,
        share=2.5, small_target=0.07,
    ),
    "resnet-tiny-imagenet": Column(
        1, "ResNet", "Tiny-ImageNet", "tiny-imagenet", "resnet20", 282_072, 200, (3, 64, 64), 0.12, width=0.25,
        samples=1000, small_lr=0.1, small_side=16, share=2.5, longer=2, small_target=0.02,
    ),
    "alexnet-cifar10": Column(
        2, "AlexNet", *_C10, "alexnet", 23_272_266, 10, _COLOUR, 0.40, width=0.125, small_lr=0.1, initial="glorot",
        small_target=0.25,
    ),
    "alexnet-cifar100": Column(
        2, "AlexNet", *_C100, "alexnet", 23_640_996, 100, _COLOUR, 0.12, width=0.125, small_lr=0.1, initial="glorot",
        longer=3, small_target=0.04,
    ),
    "vgg-cifar10": Column(
        2, "VGG", *_C10, "vgg11", 9_225_610, 10, _COLOUR, 0.45, width=0.125, small_lr=0.1, share=0.5,
        initial="glorot", small_target=0.21,
    ),
    "vgg-cifar100": Column(
        2, "VGG", *_C100, "vgg11", 9_271_780, 100, _COLOUR, 0.12, width=0.125, small_lr=0.1, share=0.5,
        initial="glorot", longer=3, small_target=0.04,
    ),
    "textcnn-imdb": Column(
        2, "TextCNN", "IMDb", "imdb", "textcnn", 2_714_502, 2, (256,), 0.85, 0.001, width=0.25, samples=250,
        small_lr=0.3, longer=2, small_target=0.67,
    ),
    "lenet-fmnist": Column(
        2, "LeNet", "FMNIST", "fashion-mnist", "lenet5", 61_706, 10, (1, 28, 28), 0.70, 0.005, samples=600,
        small_lr=0.03,
    ),
}  # fmt: skip
"""By the name of the cell in the world ``fedasmu``."""


def columns_of(dataset: str) -> tuple[str, ...]:
    """Return the names of the columns of a data set or of its surrogate, in the order of the tables.

    Raises
    ------
    SpecError
        If it has none.
    """
    real = dataset.removesuffix(SURROGATE)
    found = tuple(name for name, column in COLUMNS.items() if column.dataset == real)
    if not found:
        raise unknown("data set of this experiment", dataset, {column.dataset for column in COLUMNS.values()})
    return found
