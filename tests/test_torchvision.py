"""torchvision's data sets and models are usable, with or without its compiled operators.

Operators can be declared once per process, so each statement runs in a process of its own.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

# A stand-in for a torchvision whose plain import works, or fails for a reason of its own.
FAKE = """
import importlib, sys, types
import fl_core._torchvision as ours
real, calls = importlib.import_module, []
def plain(name, package=None):
    if name != "torchvision":
        return real(name, package)
    calls.append(name)
    {body}
ours.importlib.import_module = plain
"""


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)


def passes(code: str) -> None:
    done = python(code)
    assert done.returncode == 0, done.stderr


def test_datasets_and_models_work():
    passes("""
import torch
from fl_core._torchvision import import_torchvision
tv = import_torchvision()
from torchvision import datasets, models, transforms
assert tv.datasets.FashionMNIST is datasets.FashionMNIST
image, label = datasets.FakeData(size=3, image_size=(3, 32, 32), transform=transforms.ToTensor())[0]
assert image.shape == (3, 32, 32) and 0 <= int(label) < 10
assert models.resnet18(num_classes=10).eval()(image[None]).shape == (1, 10)
""")


def test_both_operators_exist_afterwards():
    passes("""
import torch
from fl_core._torchvision import MISSING, import_torchvision
import_torchvision()
assert MISSING == ("nms", "qnms") and all(hasattr(torch.ops.torchvision, name) for name in MISSING)
""")


def test_a_second_call_is_harmless():
    passes("""
from fl_core import _torchvision as ours
first, library = ours.import_torchvision(), ours._library
assert ours.import_torchvision() is first and ours._library is library
""")


def test_importing_the_helper_declares_nothing():
    passes("""
import torch, fl_core._torchvision as ours
assert ours._library is None
""")


def test_nothing_is_declared_when_the_plain_import_works():
    passes(
        FAKE.format(body="return types.ModuleType(name)")
        + "assert ours.import_torchvision().__name__ == 'torchvision'\n"
        + "assert ours._library is None and calls == ['torchvision']\n"
    )


def test_operators_are_declared_only_after_the_plain_import_failed():
    body = """
    if len(calls) == 1:
        assert ours._library is None
        sys.modules["torchvision.half"] = types.ModuleType("torchvision.half")
        raise RuntimeError("operator torchvision::nms does not exist")
    assert "torchvision.half" not in sys.modules
    return types.ModuleType(name)"""
    passes(
        FAKE.format(body=body)
        + "import torch\ndeclared_already = hasattr(torch.ops.torchvision, 'nms')\n"
        + "ours.import_torchvision()\n"
        + "assert calls == ['torchvision'] * 2\n"
        + "assert (ours._library is None) == declared_already and hasattr(torch.ops.torchvision, 'qnms')\n"
    )


def test_operators_that_exist_are_never_declared_again():
    body = """
    if len(calls) == 1:
        raise RuntimeError("operator torchvision::nms does not exist")
    return types.ModuleType(name)"""
    passes(
        "import torch\nif not hasattr(torch.ops.torchvision, 'nms'):\n"
        "    theirs = torch.library.Library('torchvision', 'DEF')\n"
        "    theirs.define('nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor')\n"
        + FAKE.format(body=body)
        + "ours.import_torchvision()\nassert ours._library is None\n"
    )


@pytest.mark.parametrize(
    ("error", "seen"),
    [
        ("ModuleNotFoundError(\"No module named 'torchvision'\")", "No module named 'torchvision'"),
        ("RuntimeError('out of luck')", "out of luck"),
    ],
)
def test_other_failures_are_passed_on(error: str, seen: str):
    done = python(FAKE.format(body=f"raise {error}") + "ours.import_torchvision()")
    assert done.returncode != 0
    assert seen in done.stderr
