"""FedAsync's Figure 1 and Tables 1 and 2: what the paper shows without an experiment."""

from __future__ import annotations

from typing import Any

import pandas as pd
import torch
from torch import nn

from fl_core.algorithms import FedAsync
from fl_core.experiments.study import Study
from fl_core.models import Dropout, build_network
from fl_core.runtime import Budget, LocalTraining, Simulation
from fl_core.tasks import Quadratic
from fl_core.world import TraceCompute, World

NOTATION = (
    ("n", "number of devices", "num_clients", "world.devices"),
    ("T", "number of global epochs", "num_updates", "budget.updates"),
    ("t; x_t", "global epoch; the global model after t updates", "version", "server.version, server.model"),
    ("τ", "version of the model that a device started from", "base_version", "upload.based_on"),
    ("t − τ", "staleness as the paper counts it: a fresh model has 1", "paper_staleness", "convention='paper'"),
    ("δ = t − 1 − τ", "staleness here: versions missed, a fresh model has 0", "staleness", "upload.staleness"),
    ("H", "local iterations of a task", "local_steps", "training.epochs, training.steps"),
    ("D_i; z", "data of device i; a mini-batch of it", "batch", "partition, training.batch_size"),
    ("F; f(x; z)", "mean over devices of the expected loss; the loss of one mini-batch", "loss", "tasks"),
    ("γ", "local learning rate", "lr", "training.lr"),
    ("ρ", "proximal weight", "prox_rho", "algorithm.rho"),
    ("α; α_t", "mixing hyper-parameter; the weight used at epoch t", "alpha_t", "algorithm.alpha, .schedule"),
    ("s(·); a, b", "staleness function and its parameters", "weight", "algorithm.weight"),
    ("L; μ", "smoothness; strong or weak convexity", "smoothness, strong_convexity", "–"),
    ("V₁; V₂", "bounds on a gradient's deviation and second moment", "grad_deviation_bound, …", "–"),
    ("β", "contraction factor of the theorems", "beta", "–"),
    ("k; S_t", "FedAvg: devices per round; the chosen ones", "clients_per_round", "algorithm.clients_per_round"),
    ("K", "largest t − τ of the experiments", "max_staleness", "world.max_staleness"),
)  # fmt: skip
"""Symbol, meaning, name in the formulas, and where a run sets or shows it."""

PRINTED = (
    ("conv1", "convolution, 64 channels, kernel 3, padding 1", "data"),
    ("activation1", "activation", "conv1"),
    ("batchnorm1", "batch normalisation", "activation1"),
    ("conv2", "convolution, 64 channels, kernel 3, padding 1", "batchnorm1"),
    ("activation2", "activation", "conv2"),
    ("batchnorm2", "batch normalisation", "activation2"),
    ("pooling1", "max pooling, size 2", "batchnorm2"),
    ("dropout1", "dropout, probability 0.25", "pooling1"),
    ("conv3", "convolution, 128 channels, kernel 3, padding 1", "dropout1"),
    ("activation3", "activation", "conv3"),
    ("batchnorm3", "batch normalisation", "activation3"),
    ("conv4", "convolution, 128 channels, kernel 3, padding 1", "batchnorm3"),
    ("activation4", "activation", "conv4"),
    ("batchnorm4", "batch normalisation", "activation4"),
    ("pooling2", "max pooling, size 2", "batchnorm4"),
    ("dropout2", "dropout, probability 0.25", "pooling2"),
    ("flatten1", "flatten", "dropout2"),
    ("fc1", "dense, 512 outputs", "flatten1"),
    ("activation5", "activation", "fc1"),
    ("dropout3", "dropout, probability 0.25", "activation5"),
    ("fc3", "dense, 10 outputs", "dropout3"),
    ("softmax", "softmax", "fc3"),
)
"""Layer, what Table 2 prints of it, and its input."""


def notation(study: Study) -> pd.DataFrame:
    """Return the paper's Table 1, corrected and completed (specification, section 1)."""
    return pd.DataFrame(NOTATION, columns=["symbol", "meaning", "in fl_core.formulas", "in a run"])


def network_table(study: Study) -> pd.DataFrame:
    """Return the paper's Table 2 beside the network that is really built: ``fedasync_cnn`` on 3x24x24 pixels.

    Returns
    -------
    DataFrame
        ``layer``, ``input`` and ``paper`` (what is printed), ``built`` (the same words, read off the module),
        ``output`` (shape), ``parameters`` (trained numbers), ``statistics`` (running ones), ``multiply_adds`` (an
        image); the last row is the total.
    """
    network = build_network("fedasync_cnn", (3, 24, 24), 10)
    shapes: dict[nn.Module, tuple[int, ...]] = {}
    for module in network.children():
        module.register_forward_hook(lambda module, _, output: shapes.update({module: tuple(output.shape[1:])}))
    network.eval()(torch.zeros(1, 3, 24, 24))
    rows: list[dict[str, Any]] = []
    for (layer, paper, before), module in zip(PRINTED[:-1], network.children(), strict=True):
        trained = sum(p.numel() for p in module.parameters())
        rows.append(
            {
                "layer": layer,
                "input": before,
                "paper": paper,
                "built": _words(module),
                "output": "×".join(map(str, shapes[module])),
                "parameters": trained,
                "statistics": sum(v.numel() for v in module.state_dict().values() if v.is_floating_point()) - trained,
                "multiply_adds": _multiply_adds(module, shapes[module]),
            }
        )
    layer, paper, before = PRINTED[-1]
    rows.append({"layer": layer, "input": before, "paper": paper, "built": "part of the loss"})
    columns = ("parameters", "statistics", "multiply_adds")
    rows.append({"layer": "total"} | {column: sum(row.get(column, 0) for row in rows) for column in columns})
    return pd.DataFrame(rows).astype(dict.fromkeys(columns, "Int64"))


def three_workers(study: Study) -> pd.DataFrame:
    """Return the timeline that completes Figure 1: three workers that need 3, 5 and 7 s, always busy (oracle O14).

    The run is a real one, of FedAsync on a trivial loss.

    Returns
    -------
    DataFrame
        One row per arrival: ``worker``, ``start`` and ``end`` (virtual seconds), ``base`` (version it started from),
        ``version`` (the one it made) and ``staleness``.
    """
    durations = {"A": 3.0, "B": 5.0, "C": 7.0}
    count = len(durations)
    simulation = Simulation(
        Quadratic([[1.0]] * count, [[0.0]] * count, [1.0]),
        World(devices=count, compute=TraceCompute(seconds_per_step=tuple(durations.values()))),
        FedAsync(concurrency=count),
        budget=Budget(updates=12),
        training=LocalTraining(steps=1),
    )
    updates = simulation.run().update_frame()
    names = list(durations)
    frame = pd.DataFrame(
        {
            "worker": [names[device] for device in updates["device"]],
            "start": 0.0,
            "end": updates["seconds"].astype(float),
            "base": updates["version"] - 1 - updates["staleness"],
            "version": updates["version"],
            "staleness": updates["staleness"],
        }
    )
    frame["start"] = frame["end"] - frame["worker"].map(durations)
    return frame


def _words(module: nn.Module) -> str:
    match module:
        case nn.Conv2d():
            return (
                f"convolution, {module.out_channels} channels, kernel {module.kernel_size[0]}, "
                f"padding {module.padding[0]}"
            )
        case nn.ReLU():
            return "activation"
        case nn.BatchNorm2d():
            return "batch normalisation"
        case nn.MaxPool2d():
            return f"max pooling, size {module.kernel_size}"
        case nn.Flatten():
            return "flatten"
        case nn.Linear():
            return f"dense, {module.out_features} outputs"
        case Dropout():
            return f"dropout, probability {module.probability:g}"
    raise TypeError(f"no words for {module}")


def _multiply_adds(module: nn.Module, output: tuple[int, ...]) -> int:
    if isinstance(module, nn.Conv2d):
        return module.weight.numel() * output[1] * output[2]
    return module.weight.numel() if isinstance(module, nn.Linear) else 0
