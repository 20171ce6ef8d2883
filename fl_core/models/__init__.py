"""Floor 0: the papers' networks by name, and the flat vector that a model is on the wire."""

from fl_core.models.dropout import Dropout, named_dropouts
from fl_core.models.flat import FlatModel
from fl_core.models.initial import INITIALISATIONS, initialise
from fl_core.models.lenet import LeNet5
from fl_core.models.named import MODELS, build_network, canonical, options

__all__ = [
    "INITIALISATIONS",
    "MODELS",
    "Dropout",
    "FlatModel",
    "LeNet5",
    "build_network",
    "canonical",
    "initialise",
    "named_dropouts",
    "options",
]
