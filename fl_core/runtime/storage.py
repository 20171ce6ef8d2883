"""What a checkpoint's file holds: states as tensors and JSON, nothing that could be executed, and a checksum."""

from __future__ import annotations

import hashlib
import json
import os
from collections import deque
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import torch
from safetensors import safe_open
from torch import Tensor

from fl_core.errors import RunError
from fl_core.runtime.local import Gradient, Peek, Trained
from fl_core.runtime.messages import Snapshot

LONG = 32
"""A list with at least so many numbers of one type is stored as a tensor."""

DTYPES = {
    torch.float64: "F64", torch.int64: "I64", torch.uint64: "U64", torch.complex64: "C64",
    torch.float32: "F32", torch.int32: "I32", torch.uint32: "U32",
    torch.float16: "F16", torch.bfloat16: "BF16", torch.int16: "I16", torch.uint16: "U16",
    torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip
"""What safetensors calls them."""

RESULTS: dict[str, Any] = {"trained": Trained, "gradient": Gradient, "peek": Peek, "snapshot": Snapshot}
NAMES = {kind: name for name, kind in RESULTS.items()}


class Owned(NamedTuple):
    """A value that the user's code has made: what cannot be stored is searched for in it, and named."""

    name: str
    value: Any
    owner: str = ""


class _Unstorable(Exception):
    """Holds what cannot be stored, in words, and where it is."""

    def __init__(self, what: str) -> None:
        self.what, self.path = what, ""


class Writer:
    """Turns a state into JSON and a list of tensors; what occurs twice is stored once."""

    def __init__(self) -> None:
        self.tensors: list[Tensor] = []
        self._places: dict[int, int] = {}
        self._objects: dict[int, int] = {}
        self._kept: list[Any] = []

    def text(self, value: Any) -> str:
        """Return `value` as JSON text; if it holds something that is no plain data, the error names where."""
        try:
            return json.dumps(self._plain(value))
        except _Unstorable as error:
            raise _refused(f"what a task has received, {error.path}," if error.path else "the state", error) from None
        except RecursionError:
            raise RunError("a checkpoint cannot hold a state that is nested so deeply") from None

    def _plain(self, value: Any) -> Any:
        kind = type(value)
        if value is None or kind in (bool, str, int, float):
            return value
        if kind is Tensor:
            return self._tensor(value)
        if kind in NAMES:
            fields = value if kind is Snapshot else [getattr(value, field) for field in kind.__annotations__]
            return {"!": NAMES[kind], "v": [self._plain(field) for field in fields]}
        if kind is tuple or kind is frozenset:
            return {"!": kind.__name__, "v": self._items(value)}
        if isinstance(value, np.generic):
            return {"!": "scalar", **self._array(np.array(value))}
        if kind is Owned:
            try:
                return self._plain(value.value)
            except _Unstorable as error:
                raise _refused(f"{value.name}{error.path}{value.owner}", error) from None
        if id(value) in self._objects:
            return {"!": "same", "v": self._objects[id(value)]}
        self._objects[id(value)] = len(self._objects)
        self._kept.append(value)  # an identity is unique only as long as its object lives
        return self._mutable(kind, value)

    def _mutable(self, kind: type, value: Any) -> Any:
        if kind is dict:
            if all(type(key) is str and key != "!" for key in value):
                return dict(zip(value, self._items(value.values(), value), strict=True))
            pairs = zip(self._items(value), self._items(value.values(), value), strict=True)
            return {"!": "dict", "v": [list(pair) for pair in pairs]}
        if kind is list:
            if len(value) >= LONG and (dtype := _common(value)) is not None:
                return {"!": "list", "v": self._place(torch.tensor(value, dtype=dtype))}
            return self._items(value)
        if kind in (deque, set):
            return {"!": kind.__name__, "v": self._items(value)} | ({"n": value.maxlen} if kind is deque else {})
        if kind is np.ndarray and not value.dtype.hasobject:
            return {"!": "array", **self._array(value)}
        if kind is np.random.Generator:
            return {"!": "generator", "v": self._plain(value.bit_generator.state)}
        if kind is torch.Generator and value.device.type == "cpu":
            return {"!": "torch_generator", "v": self._place(value.get_state())}
        raise _Unstorable(f"array of {value.dtype}" if kind is np.ndarray else kind.__name__)

    def _items(self, items: Any, keys: Any = None) -> list[Any]:
        plain: list[Any] = []
        try:
            for item in items:
                plain.append(self._plain(item))
        except _Unstorable as error:
            key = len(plain) if keys is None else list(keys)[len(plain)]
            error.path = f"[{key!r}]{error.path}"
            raise
        return plain

    def _array(self, array: np.ndarray) -> dict[str, Any]:
        fortran = array.flags.f_contiguous and not array.flags.c_contiguous
        flat = np.ascontiguousarray(array.ravel(order="F" if fortran else "C")).view(np.uint8)
        order = {"o": "F"} if fortran else {}
        return {"t": array.dtype.str, "s": list(array.shape), "v": self._place(torch.from_numpy(flat)), **order}

    def _tensor(self, tensor: Tensor) -> dict[str, Any]:
        if tensor.layout != torch.strided or tensor.device.type != "cpu" or tensor.dtype not in DTYPES:
            raise _Unstorable(f"tensor of type {tensor.dtype} on {tensor.device} with layout {tensor.layout}")
        laid_out = {} if tensor.is_contiguous() or 0 in tensor.stride() else {"s": list(tensor.stride())}
        return {"!": "tensor", "v": self._place(tensor), **laid_out}

    def _place(self, tensor: Tensor) -> int:
        if id(tensor) not in self._places:
            self._places[id(tensor)] = len(self.tensors)
            self._kept.append(tensor)
            self.tensors.append(tensor.detach().contiguous())
        return self._places[id(tensor)]


def _refused(where: str, error: _Unstorable) -> RunError:
    plain = "numbers, text, tensors, arrays, random generators, and lists, tuples, sets or dictionaries of them"
    return RunError(f"a checkpoint cannot hold {where}, a {error.what}: keep {plain}")


def _common(numbers: list[Any]) -> torch.dtype | None:
    """Return the type of tensor that holds `numbers` exactly, if they are all of one type."""
    kinds = set(map(type, numbers))
    if kinds == {float}:
        return torch.float64
    return torch.int64 if kinds == {int} and min(numbers) >= -(2**63) and max(numbers) < 2**63 else None


class Reader:
    """Rebuilds what a :class:`Writer` took apart."""

    def __init__(self, tensors: list[Tensor]) -> None:
        self.tensors = tensors
        self._objects: list[Any] = []

    def full(self, value: Any) -> Any:
        """Return the value that was stored."""
        if isinstance(value, list):
            items: list[Any] = self._made([])
            items.extend(map(self.full, value))
            return items
        if not isinstance(value, dict):
            return value
        made: Any
        if "!" not in value:
            made = self._made({})
            made.update((key, self.full(item)) for key, item in value.items())
            return made
        content = value["v"]
        match value["!"]:
            case "tensor" if "s" in value:  # the order of its numbers in memory is that of their summation
                stored = self.tensors[content]
                return torch.empty_strided(stored.shape, value["s"], dtype=stored.dtype).copy_(stored)
            case "tensor":
                return self.tensors[content]
            case "list":
                return self._made(self.tensors[content].tolist())
            case "array":
                return self._made(self._array(value))
            case "scalar":
                return self._array(value)[()]
            case "same":
                return self._objects[content]
            case "dict":
                made = self._made({})
                keys = [self.full(key) for key, _ in content]
                made.update(zip(keys, [self.full(item) for _, item in content], strict=True))
                return made
            case "deque":
                made = self._made(deque(maxlen=value["n"]))
                made.extend(map(self.full, content))
                return made
            case "set":
                made = self._made(set())
                made.update(map(self.full, content))
                return made
            case "generator":
                return self._generator(content)
            case "torch_generator":
                return self._made(torch.Generator()).set_state(self.tensors[content].clone())
            case "tuple" | "frozenset" as kind:
                return {"tuple": tuple, "frozenset": frozenset}[kind](map(self.full, content))
            case name:
                return RESULTS[name](*map(self.full, content))

    def _made(self, value: Any) -> Any:
        self._objects.append(value)
        return value

    def _array(self, value: dict[str, Any]) -> np.ndarray:
        flat = self.tensors[value["v"]].numpy().copy().view(value["t"])
        return flat.reshape(value["s"], order=value.get("o", "C"))

    def _generator(self, content: Any) -> np.random.Generator:
        place = len(self._objects)
        self._objects.append(None)
        state = self.full(content)
        generator = np.random.Generator(getattr(np.random, state["bit_generator"])())
        generator.bit_generator.state = state
        self._objects[place] = generator
        return generator


CHECKSUM_BYTES = 16


def write(file: BinaryIO, metadata: dict[str, str], text: str, tensors: list[Tensor]) -> None:
    """Write `text` and `tensors`, those of longer numbers first, and flush; nothing is held in memory twice."""
    tensors = [torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8), *tensors]
    order = sorted(range(len(tensors)), key=lambda place: -tensors[place].element_size())
    header: dict[str, Any] = {"__metadata__": metadata}
    end = 0
    for place in order:
        tensor = tensors[place]
        start, end = end, end + tensor.nbytes
        form = {"dtype": DTYPES[tensor.dtype], "shape": list(tensor.shape)}
        header[str(place)] = {**form, "data_offsets": [start, end]}
    form = {"dtype": "U8", "shape": [CHECKSUM_BYTES]}
    header["checksum"] = {**form, "data_offsets": [end, end + CHECKSUM_BYTES]}
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    digest = hashlib.blake2b(digest_size=CHECKSUM_BYTES)
    for piece in (len(head).to_bytes(8, "little"), head, *(buffer(tensors[place]) for place in order)):
        digest.update(piece)
        file.write(piece)
    file.write(digest.digest())
    file.flush()
    os.fsync(file.fileno())


def digest(*values: Any) -> bytes:
    """Return what tells two states apart."""
    writer = Writer()
    found = hashlib.blake2b("".join(map(writer.text, values)).encode(), digest_size=CHECKSUM_BYTES)
    for tensor in writer.tensors:
        found.update(buffer(tensor))
    return found.digest()


def read_metadata(path: Path) -> dict[str, str]:
    """Return the metadata of a file whose checksum is right; else ValueError."""
    digest = hashlib.blake2b(digest_size=CHECKSUM_BYTES)
    with path.open("rb") as file:
        left = os.fstat(file.fileno()).st_size - CHECKSUM_BYTES
        while left > 0 and (piece := file.read(min(left, 2**20))):
            digest.update(piece)
            left -= len(piece)
        if left or file.read() != digest.digest():
            raise ValueError("its checksum is wrong")
    with safe_open(path, "pt") as file:
        found: dict[str, str] = file.metadata()
        return found


def read(path: Path) -> tuple[str, list[Tensor]]:
    """Return text and tensors of a file."""
    with safe_open(path, "pt") as file:
        # Copies start where PyTorch lets tensors start: the last bits of a dot product depend on the address.
        text, *tensors = (file.get_tensor(str(place)).clone() for place in range(len(file.keys()) - 1))
    return text.numpy().tobytes().decode(), tensors


def buffer(tensor: Tensor) -> Any:
    """Return the bytes of a contiguous tensor."""
    return tensor.reshape(-1).view(torch.uint8).numpy().data
