"""FedLuck's tasks as the paper has them: data set, network, rates, targets and the fixed values of the methods.

Sections 2.6 and 6.3 of the specification.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from fl_core.errors import unknown


@dataclass(frozen=True)
class Setup:
    """A task of the paper.

    Attributes
    ----------
    cell : str
        Its name in the world ``fedluck``.
    model : str
        The paper's network.
    parameters : int
        Of the paper's network.
    shape : tuple of int
        What the network reads.
    preprocessing : str or dict
        As a run specification takes it.
    local_lr, batch_size, global_lr, period_seconds : float
        eta_l, mini-batch, eta_g and T~.
    seconds : float
        Horizon of Figure 2 and Table 2.
    longer : dict
        Methods that run so many times longer, for the targets of Figure 3 and Table 1.
    targets : dict
        Accuracies of Figure 3 (``"iid"``) and Table 1 (``"dirichlet"``).
    fedper, fedavg_topk : (int, float)
        Local steps k and kept fraction delta.
    fedbuff, fedasync : int
        Local steps.
    fixed_compression, fixed_steps : float, int
        What the methods that optimise one variable do not.
    heat_target : float
        Accuracy whose rounds Figure 1 counts; CIFAR-10, which the figure lacks, has the first target of Figure 3.
    """

    cell: Literal["cnn", "vgg11s", "lstm"]
    model: str
    parameters: int
    shape: tuple[int, int, int]
    preprocessing: Any
    local_lr: float
    batch_size: int
    global_lr: float
    period_seconds: float
    seconds: float
    longer: dict[str, float]
    targets: dict[str, tuple[float, ...]]
    fedper: tuple[int, float]
    fedbuff: int
    fedasync: int
    fedavg_topk: tuple[int, float]
    fixed_compression: float
    fixed_steps: int
    heat_target: float


_CNN = Setup(
    "cnn", "fedluck_cnn", 234_090, (1, 32, 32), "fedluck-grey",
    0.01, 64, 0.7, 1.5, 800.0, {"FedAsync": 1.5, "FedAvg+TopK": 2.0},
    {"iid": (0.65, 0.75, 0.85), "dirichlet": (0.65, 0.75, 0.85)},
    (10, 0.3), 20, 13, (20, 0.5), 0.3, 10, 0.85,
)  # fmt: skip
_VGG = Setup(
    "vgg11s", "vgg11s", 865_482, (3, 32, 32), "fedluck-colour",
    0.01, 32, 1.0, 3.0, 6000.0, {"FedBuff": 1.5, "FedAvg+TopK": 1.5},
    {"iid": (0.50, 0.60, 0.70), "dirichlet": (0.50, 0.60, 0.65)},
    (8, 0.1), 13, 20, (13, 0.2), 0.1, 7, 0.50,
)  # fmt: skip
_LSTM = Setup(
    "lstm", "lstm", 216_330, (1, 32, 32), {},
    0.016, 64, 1.0, 1.5, 6000.0, {"FedAvg+TopK": 1.5},
    {"iid": (0.50, 0.56, 0.62), "dirichlet": (0.50, 0.60, 0.63)},
    (5, 0.2), 10, 5, (8, 0.5), 0.16, 20, 0.50,
)  # fmt: skip
SETUPS = {
    "fashion-mnist": _CNN,
    "cifar10": _VGG,
    "cifar10-surrogate": _VGG,
    "speech-commands": _LSTM,
    "speech-commands-surrogate": _LSTM,
}


def setup_of(dataset: str) -> Setup:
    """Return the paper's task on a data set.

    Raises
    ------
    SpecError
        If the paper has none.
    """
    if dataset not in SETUPS:
        raise unknown("data set of this experiment", dataset, SETUPS)
    return SETUPS[dataset]
