"""The workload that every script here runs, its data, and the line that it prints."""

import argparse
import functools
import importlib
import json
import os
import platform
import shlex
import sys
import time
from importlib import metadata

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

LR, ALPHA = 0.03, 0.6
"""Of local training, and weight of an arriving model."""

clock = time.perf_counter


class LeNet5(nn.Module):
    """The network of ``fl_core.models``, which the environments of the others lack."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 6, 5, padding=2), nn.Conv2d(6, 16, 5)
        self.fc1, self.fc2, self.fc3 = nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, 10)

    def forward(self, images: Tensor) -> Tensor:
        x = F.relu(F.max_pool2d(self.conv1(images), 2))
        x = F.relu(F.max_pool2d(self.conv2(x), 2))
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x.flatten(1))))))


class Work:
    """So many `updates`, each an epoch of one device, `flight` devices at work, evaluated every `period` updates."""

    def __init__(self, data: str, small: bool, updates: int | None) -> None:
        self.name = "small" if small else "reference"
        self.devices, self.batch, self.flight, self.period = (1000, 10, 50, 1000) if small else (100, 50, 10, 100)
        self.updates = updates or (1000 if small else 300)
        file = np.load(data)
        self.train = torch.from_numpy(file["train_images"]), torch.from_numpy(file["train_labels"])
        self.test = torch.from_numpy(file["test_images"]), torch.from_numpy(file["test_labels"])
        self.owned = torch.from_numpy(file[self.name])  # [devices, samples]
        self.initial = torch.from_numpy(file["initial"])

    def network(self) -> LeNet5:
        """Return the initial model."""
        model = LeNet5()
        nn.utils.vector_to_parameters(self.initial.clone(), model.parameters())
        return model

    def device(self, number: int) -> tuple[Tensor, Tensor]:
        """Return the images and labels of a device."""
        return self.train[0][self.owned[number]], self.train[1][self.owned[number]]

    def accuracy(self, model: nn.Module) -> float:
        """Return the share of test images that `model` gets right."""
        with torch.inference_mode():
            batches = zip(*(each.split(500) for each in self.test), strict=True)
            return sum(int((model(x).argmax(1) == y).sum()) for x, y in batches) / len(self.test[1])

    def report(self, peer: str, package: str, seconds: float, jobs: int, accuracy: float) -> None:
        """Print what was done: `jobs` devices trained in all, those included whose model came too late."""
        line = {"peer": peer, "version": metadata.version(package), "workload": self.name, "updates": self.updates}
        line |= {"seconds": round(seconds, 3), "samples": jobs * self.owned.shape[1], "accuracy": round(accuracy, 4)}
        print("\n" + json.dumps(line | {"python": platform.python_version(), "torch": torch.__version__}), flush=True)


def complete_torchvision() -> None:
    """Let a torchvision be imported whose compiled part is for another PyTorch; nothing here computes with it."""
    try:
        importlib.import_module("torchvision")
    except RuntimeError:
        for name in ("nms", "qnms"):
            torch.library.define(f"torchvision::{name}", "(Tensor boxes, Tensor scores, float threshold) -> Tensor")


@functools.cache
def options() -> argparse.Namespace:
    """Return the words of the command line, also in a process that Flower's engine started."""
    parser = argparse.ArgumentParser(description="Run the workload and print one line of JSON.")
    parser.add_argument("--data", required=True, help="what run.py wrote")
    parser.add_argument("--small", action="store_true", help="1,000 devices with 60 images, 50 in flight, batch 10")
    parser.add_argument("--updates", type=int, help="fewer, to try it")
    parser.add_argument("--threads", type=int, default=2, help="of ours.py")
    parser.add_argument("--shipped", action="store_true", help="appfl.py: leave its garbage collections on")
    words = os.environ.setdefault("PEERS_COMMAND", shlex.join(sys.argv[1:]))
    del sys.argv[1:]  # some simulators read it, too
    return parser.parse_args(shlex.split(words))


@functools.cache
def load() -> Work:
    """Return the workload that the command line asks for."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    return Work(options().data, options().small, options().updates)
