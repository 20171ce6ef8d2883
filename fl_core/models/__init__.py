"""Floor 0: the papers' networks by name, and the flat vector that a model is on the wire."""

from fl_core.models.flat import FlatModel
from fl_core.models.initial import INITIALISATIONS, initialise
from fl_core.models.networks import Dropout, LeNet5, named_dropouts
from fl_core.models.registry import (
    MODELS,
    Size,
    build_network,
    canonical,
    network_size,
    num_parameters,
    options,
    register_model,
)
from fl_core.onednn import avoid_overrun

avoid_overrun()

__all__ = [
    "INITIALISATIONS", "MODELS", "Dropout", "FlatModel", "LeNet5", "Size", "build_network", "canonical", "initialise",
    "named_dropouts", "network_size", "num_parameters", "options", "register_model",
]  # fmt: skip
