"""The papers' networks as a table: what they are made of, how large they are, and what an upload of one weighs."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from fl_core.models import network_size
from fl_core.report.tables import Table


@dataclass(frozen=True)
class Use:
    """A network as a paper uses it.

    Attributes
    ----------
    model : str
        As in :func:`fl_core.models.build_network`.
    shape : tuple of int
        Of one input.
    classes : int
    task : str
        Paper and data set.
    layers : str
        In words. ``conv 6@5`` is a convolution with 6 channels and 5x5 kernels, ``pool`` takes the maximum of 2x2
        pixels, ``fc`` is a dense layer; ReLU follows each but the last one.
    stated : int
        Number of parameters according to `by`: ``"paper"``, ``"authors' code"``, or ``"specification"`` where the
        paper gives layers at most (FedAsync, Table 2; FedASMU, Table 3) and the count follows from them.
    by : str
    """

    model: str
    shape: tuple[int, ...]
    classes: int
    task: str
    layers: str
    stated: int
    by: str


_COLOUR, _GREY = (3, 32, 32), (1, 28, 28)
_CODE, _SPEC = "authors' code", "specification"
_LENET = "conv 6@5, pool, conv 16@5, pool, fc 120, fc 84, fc"
_TWO = "conv {}@5, pool, conv {}@5, pool, fc {}, fc"
_FEDASYNC = "twice conv {}@3 with batch norm, pool, dropout 0.25"
_ALEXNET = (
    "conv 64@3 (stride 2), pool, conv 192@3, pool, conv 384@3, conv 256@3, conv 256@3, pool, dropout 0.5, fc 4096, "
    "dropout 0.5, fc 4096, fc"
)
_VGG = "conv 64@3, pool, conv 128@3, pool, then twice conv 256@3, twice 512@3, twice 512@3, each pair with pool, fc"
_VGG_SMALL = "conv 32@3, pool, conv 64@3, pool, then three pairs of conv 128@3, each with pool, fc 128, fc 128, fc"
_RESNET = "conv {}@3, then {} blocks of two conv each of {}@3, batch norm after each, mean over the image, fc"
_TEXT = "embedding of 128, 100 convolutions each over 3, 4 and 5 tokens, maximum over time, fc"

USES = (
    Use("linear", _GREY, 10, "calibration, Fashion-MNIST", "fc", 7_850, _SPEC),
    Use("lenet5", _GREY, 10, "FedASMU, Fashion-MNIST", f"border of 2, {_LENET}", 61_706, _SPEC),
    Use("lenet5", _COLOUR, 10, "FedASMU and WKAFL, CIFAR-10", _LENET, 62_006, _CODE),
    Use("lenet5", _COLOUR, 100, "FedASMU, CIFAR-100", "as above", 69_656, _SPEC),
    Use(
        "fedasync_cnn",
        (3, 24, 24),
        10,
        "FedAsync, CIFAR-10",
        f"{_FEDASYNC.format(64)}, {_FEDASYNC.format(128)}, fc 512, dropout 0.25, fc",
        2_625_866,
        _SPEC,
    ),
    Use("fedasmu_cnn", _COLOUR, 10, "FedASMU, CIFAR-10", "conv 64@2, conv 32@2, fc", 297_066, _SPEC),
    Use("fedasmu_cnn", _COLOUR, 100, "FedASMU, CIFAR-100", "as above", 2_889_156, _SPEC),
    Use("wkafl_cnn", _GREY, 10, "WKAFL, EMNIST MNIST", _TWO.format(32, 64, 512), 582_026, _CODE),
    Use("wkafl_cnn", _GREY, 62, "WKAFL, EMNIST ByClass", "as above", 608_702, _CODE),
    Use("celeba_cnn", (3, 84, 84), 2, "WKAFL, CelebA", "conv 10@4, pool, fc 100, fc", 1_600_792, _CODE),
    Use("fedluck_cnn", (1, 32, 32), 10, "FedLuck, Fashion-MNIST", _TWO.format(32, 32, 256), 234_090, _CODE),
    Use("vgg11s", _COLOUR, 10, "FedLuck, CIFAR-10", _VGG_SMALL, 865_482, _CODE),
    Use("lstm", (1, 32, 32), 10, "FedLuck, Speech Commands", "two LSTM of 128, last state, fc", 216_330, _CODE),
    Use(
        "resnet18", _COLOUR, 10, "SD-FEEL, CIFAR-10", _RESNET.format(64, 2, "64, 128, 256, 512"), 11_173_962, "paper"
    ),
    Use("resnet20", _COLOUR, 100, "FedASMU, CIFAR-100", _RESNET.format(16, 3, "16, 32, 64"), 275_572, _SPEC),
    Use("resnet20", (3, 64, 64), 200, "FedASMU, Tiny-ImageNet", "as above", 282_072, _SPEC),
    Use("alexnet", _COLOUR, 10, "FedASMU, CIFAR-10", _ALEXNET, 23_272_266, _SPEC),
    Use("alexnet", _COLOUR, 100, "FedASMU, CIFAR-100", "as above", 23_640_996, _SPEC),
    Use("vgg11", _COLOUR, 10, "FedASMU, CIFAR-10", _VGG, 9_225_610, _SPEC),
    Use("vgg11", _COLOUR, 100, "FedASMU, CIFAR-100", "as above", 9_271_780, _SPEC),
    Use("textcnn", (256,), 2, "FedASMU, IMDb", _TEXT, 2_714_502, _SPEC),
)
"""Every network on the inputs of its papers, and the number of parameters that is stated for it."""


def networks_table(uses: tuple[Use, ...] = USES) -> Table:
    """Return one row for each network and input of `uses`."""
    rows = []
    for use in uses:
        size = network_size(use.model, use.shape, use.classes)
        rows.append(
            {
                "network": use.model,
                "where": use.task,
                "input": " × ".join(map(str, use.shape)) if len(use.shape) > 1 else f"{use.shape[0]} tokens",
                "classes": use.classes,
                "parameters": size.parameters,
                "buffers": size.buffers,
                "MiB": size.mebibytes,
                "stated": f"{use.stated:,} ({use.by})",
                "layers": use.layers,
            }
        )
    return Table(pd.DataFrame(rows), digits=2, wrap={"layers": 16, "where": 8, "stated": 7})
