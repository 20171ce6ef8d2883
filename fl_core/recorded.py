"""A training step as one call into PyTorch.

A quarter of a step on a small mini-batch is Python's and autograd's work, and only one thread at a time may do it.
Yet a step is a list of operations that is always the same for inputs of one shape. So it is noted down while it is
done once, and the list becomes a function of TorchScript, which computes with the interpreter's lock released.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

AFTER = 150
"""Steps on inputs of one shape before they are recorded: what recording costs is saved in about as many."""
CHECKS = 3
"""Further steps that are done both ways, and have to give the same bits."""
LOOKS = (Tensor.numpy, Tensor.tolist, Tensor.__array__, Tensor.__dlpack__)
"""Functions that hand numbers to Python without an operation."""
UNSTEADY = torch.Tag.nondeterministic_seeded, torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output
"""Marks of operations that draw, or whose output has a shape, or is a number, that depends on numbers."""


class Steps:
    """Do `compute`, first as it is, then as its recording where that gives the same bits.

    `compute` gives a scalar for the tensors that it is called with, and else reads and changes those of `state`
    alone, all in main memory. What cannot be recorded is always done as it is: what draws random numbers, uses other
    tensors (buffers, a dropout's mask), or shows numbers to Python, or shapes that depend on them, to decide by.
    """

    def __init__(self, compute: Callable[..., Tensor], state: Sequence[Tensor]) -> None:
        self.compute, self.state = compute, state
        self._counts: dict[Any, int] = {}
        self._recorded: dict[Any, Callable[..., Tensor] | None] = {}

    def __call__(self, *given: Tensor) -> Tensor:
        """Return what ``compute(*given)`` does."""
        shapes = tuple((each.shape, each.stride(), each.dtype) for each in given)
        count = self._counts[shapes] = self._counts.get(shapes, 0) + 1
        if count == AFTER:
            result, self._recorded[shapes] = self._record(given)
            return result
        recorded = self._recorded.get(shapes)
        if recorded is None:
            return self.compute(*given)
        if count > AFTER + CHECKS:
            return self._run(recorded, given)
        result = self.compute(*given)
        if not self._agrees(recorded, given, result):
            self._recorded[shapes] = None
        return result

    def _record(self, given: Sequence[Tensor]) -> tuple[Tensor, Callable[..., Tensor] | None]:
        """Return what `compute` gives, and the function that does the same, if there is one."""
        recorder = Recorder([*given, *self.state])
        with recorder, _Looking(recorder):
            result = self.compute(*given)
        try:
            return result, torch.jit.CompilationUnit(recorder.source(result)).step
        except (RuntimeError, ValueError, AttributeError):  # no such function, or no TorchScript in this PyTorch
            return result, None

    def _run(self, recorded: Callable[..., Tensor], given: Sequence[Tensor]) -> Tensor:
        with torch.no_grad(), torch.jit.optimized_execution(False):  # what it optimises rounds otherwise
            return recorded(*given, *self.state)

    def _agrees(self, recorded: Callable[..., Tensor], given: Sequence[Tensor], result: Tensor) -> bool:
        """Return whether a recording gives the `result` of the step just done, and the same state, which stays."""
        wanted = [each.clone() for each in self.state]
        try:
            found = self._run(recorded, given)
            same = all(map(_same_bits, [found, *self.state], [result, *wanted]))
        except RuntimeError:
            same = False
        with torch.no_grad():
            for each, value in zip(self.state, wanted, strict=True):
                each.copy_(value)
        return same


class Recorder(TorchDispatchMode):
    """Note the operations that are done while it is active on the tensors `given`, and on what they lead to."""

    def __init__(self, given: Sequence[Tensor]) -> None:
        super().__init__()
        self.given, self.lines, self.obstacles = given, list[str](), list[str]()
        self._kept = list(given)  # so that no other tensor gets the number of one that has gone
        self._names = {id(each): f"t{number}" for number, each in enumerate(given)}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else the first operation imports a compiler, which takes seconds

    def __torch_dispatch__(
        self, func: Any, types: Iterable[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Do `func` and note it."""
        words = [self._word(each) for each in args]
        words += [f"{name}={self._word(each)}" for name, each in (kwargs or {}).items()]
        self.obstacles += [f"{func}: {tag}" for tag in UNSTEADY if tag in func.tags]
        result = func(*args, **(kwargs or {}))
        names = [self._name(each) for each in (result if isinstance(result, tuple | list) else (result,))]
        operation = func._schema.name.replace("::", ".")
        self.lines.append(f"{', '.join(names)} = torch.ops.{operation}({', '.join(words)})")
        return result

    def source(self, result: Tensor) -> str:
        """Return the function ``step`` of the tensors that were given, which returns `result`."""
        returned = self._word(result)
        if self.obstacles:
            raise ValueError(self.obstacles[0])
        parameters = ", ".join(f"t{number}: Tensor" for number in range(len(self.given)))
        body = "\n".join(f"    {line}" for line in [*self.lines, f"return {returned}"])
        return f"def step({parameters}) -> Tensor:\n{body}\n"

    def _name(self, made: Any) -> str:
        """Return the name of what an operation has made."""
        if made is None:
            return "_"
        if not isinstance(made, Tensor):
            self.obstacles.append(f"an operation gives {made!r} to Python")
        elif id(made) not in self._names:
            self._names[id(made)] = f"t{len(self._kept)}"
            self._kept.append(made)
        return self._names.get(id(made), "_")

    def _word(self, argument: Any) -> str:
        """Return an argument as TorchScript writes it."""
        match argument:
            case Tensor() if id(argument) in self._names:
                return self._names[id(argument)]
            case list() | tuple():
                return f"[{', '.join(map(self._word, argument))}]"
            case None | bool() | int():
                return repr(argument)
            case float() if math.isfinite(argument):
                return repr(argument)
            case torch.dtype() | torch.memory_format() | torch.layout():
                return str(argument)
            case torch.device():
                return f'torch.device("{argument}")'
        self.obstacles.append(f"an operation uses a {type(argument).__name__} from elsewhere")
        return "None"


class _Looking(TorchFunctionMode):
    """Tell a recorder of numbers that are shown to Python."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self.recorder = recorder

    def __torch_function__(
        self, func: Any, types: Iterable[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call `func`."""
        if func in LOOKS:
            self.recorder.obstacles.append(f"{func.__name__} shows numbers to Python")
        return func(*args, **(kwargs or {}))


def _same_bits(one: Tensor, other: Tensor) -> bool:
    return torch.equal(one.view(torch.int32), other.view(torch.int32))
