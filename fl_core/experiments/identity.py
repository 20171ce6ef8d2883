"""Which code made a result: a digest of the source that a run's numbers depend on.

Comments, docstrings and blank lines do not count. Of fl_core counts what the algorithm, the runtime, the world, the
task and the partition import, followed name by name; of what is defined elsewhere (an algorithm, a network or a world
of a script, a notebook, a package) the class with all bases, and all functions and values of one's own that it uses.
"""

from __future__ import annotations

import ast
import dis
import hashlib
import importlib
import inspect
import io
import platform
import sys
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache, lru_cache, partial
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np
import torch
from pydantic import BaseModel
from torch import Tensor, nn

from fl_core.algorithms import Algorithm
from fl_core.datasets import OWN, STEPS
from fl_core.experiments.spec import RunSpec
from fl_core.models.registry import MODELS

PACKAGE = "fl_core"
BASES = ("pydantic", "builtins", "abc", "typing")
"""Packages of the bases of all classes of a specification."""
PLAIN = (bool, int, float, complex, str, bytes, type(None), type(...))
"""What is written as it is."""
ANNOTATIONS = ("__annotate__", "__annotate_func__")
"""Functions that Python 3.14 makes of a class's annotations; they hold on to its whole body, docstrings included."""
ROOTS = (f"{PACKAGE}.runtime.simulation", f"{PACKAGE}.experiments.spec", f"{PACKAGE}.onednn")
"""Where a run begins, and what replaces a function of PyTorch; of the second only what builds the parts of a
simulation is numeric, see :data:`APART`."""
APART = tuple(
    f"{PACKAGE}.{name}"
    for name in ("algorithms", "experiments", "datasets.surrogates", "datasets.archives", "errors", "plugins")
)
"""Packages that are not followed from the roots: other algorithms, bookkeeping, and data whose bytes are recorded."""
EXACT = "exact"
INEXACT = ("batched",)
"""Executors that give the same numbers only up to rounding."""


def code_digest(spec: RunSpec) -> str:
    """Return 16 hexadecimal digits of the source that computes `spec`."""
    own = own_parts(spec)
    return _digest(type(spec.algorithm), _Own(own)) if own else _digest_inside(type(spec.algorithm))


def own_parts(spec: RunSpec) -> list[Any]:
    """Return what of a specification is defined outside of fl_core: classes of its pieces, network, data, a step."""
    pieces: list[Any] = [spec]
    for piece in pieces:  # it grows
        for value in vars(piece).values():
            pieces += [each for each in (value if type(value) is tuple else (value,)) if isinstance(each, BaseModel)]
    parts: list[Any] = [cls for cls in dict.fromkeys(map(type, pieces)) if _is_outside(cls)]
    network = MODELS.get(spec.model.partition("(")[0])
    parts += [network] * (network is not None and not network.__module__.startswith(f"{PACKAGE}."))
    parts += [own.load for own in [OWN.get(spec.dataset)] if own]
    return parts + [STEPS[name] for name in [spec.preprocessing.own] if name]


def network_digest(spec: RunSpec) -> str:
    """Return 64 hexadecimal digits of the code of a network of one's own; of those of the book an empty text."""
    network = MODELS[spec.model.partition("(")[0]]
    own = _Own([network]).texts if network in own_parts(spec) else ()
    return hashlib.sha256("\n".join(own).encode()).hexdigest() if own else ""


@lru_cache(256)
def _is_outside(cls: type) -> bool:
    """Return whether a class, or one that it is derived from, is defined outside of fl_core."""
    return not all(each.__module__.startswith((f"{PACKAGE}.", *BASES)) for each in cls.__mro__)


def is_stale(spec: RunSpec, provenance: Mapping[str, Any]) -> bool:
    """Return whether a stored result is not to be used: part of it is the user's own and has changed since."""
    if spec.dataset in OWN and provenance.get("data_sha256") != OWN[spec.dataset].dataset.sha256:
        return True
    return bool(own_parts(spec)) and provenance.get("code") != code_digest(spec)


def circumstances(spec: RunSpec, executor: str) -> dict[str, str]:
    """Return what belongs to a result's identity besides its specification, as its provenance records it."""
    return {
        "code": code_digest(spec),
        "numbers": "rounded" if executor in INEXACT else EXACT,
        "instructions": instructions(),
    }


def instructions() -> str:
    """Return the instruction set that PyTorch computes with here: ``"x86_64 AVX2"``.

    With ``AMX``, too, where MKL multiplies matrices otherwise than on other processors with AVX-512.
    """
    amx = getattr(torch.cpu, "_is_amx_tile_supported", bool)()
    return f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}{' AMX' * amx}"


def _digest(cls: type[Algorithm], own: _Own | None = None) -> str:
    """Return the digest of what an algorithm of fl_core, and what is somebody's own, are computed by."""
    own_classes = [each for each in cls.__mro__ if issubclass(each, Algorithm) and each is not Algorithm]
    used = {each.__module__ for each in own_classes if each.__module__.startswith(f"{PACKAGE}.")}
    used |= own.modules if own else set()
    modules = {*_closure(*ROOTS), *(name for module in sorted(used) for name in _closure(module, apart=False))}
    parts = [f"{name}\n{_source(name)}" for name in sorted(modules)] + (own.texts if own else [])
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


_digest_inside = cache(_digest)


@cache
def _closure(*roots: str, apart: bool = True) -> frozenset[str]:
    """Return the modules of fl_core that `roots` import, directly or not, with the roots."""
    found: set[str] = set()
    open_ends = list(roots)
    while open_ends:
        name = open_ends.pop()
        if name in found or (name not in roots and name.startswith(APART if apart else APART[1:])):
            continue
        found.add(name)
        open_ends += _imports(name)
    return frozenset(found)


@cache
def _imports(module: str) -> tuple[str, ...]:
    """Return the modules of fl_core that a module imports; a name that a package hands on counts as its origin."""
    found = []
    for node in _statements(ast.parse(_text(module))):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name.startswith(PACKAGE)]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PACKAGE):
            found += [_origin(str(node.module), alias.name) for alias in node.names]
    return tuple(found)


def _statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield a tree and all statements in it; :func:`ast.walk` yields five times as many nodes."""
    found = [tree]
    for node in found:  # it grows
        yield node
        for block in ("body", "handlers", "orelse", "finalbody", "cases"):
            found += getattr(node, block, ())


@cache
def _origin(package: str, name: str) -> str:
    """Return the module that defines what ``from package import name`` gives."""
    if _path(f"{package}.{name}") is not None:
        return f"{package}.{name}"
    path = _path(package)
    if path is not None and path.name == "__init__.py":
        for node in ast.parse(_text(package)).body:
            if not isinstance(node, ast.ImportFrom) or node.module in (None, package):
                continue
            if any(name == (alias.asname or alias.name) for alias in node.names):
                return _origin(str(node.module), name)
    return package


@cache
def _path(module: str) -> Path | None:
    try:
        found = find_spec(module)
    except ModuleNotFoundError:
        return None
    return Path(found.origin) if found and found.origin else None


def _text(module: str) -> str:
    path = _path(module)
    return path.read_text(encoding="utf-8") if path else ""


@cache
def _source(module: str) -> str:
    """Return the essence of a module, and the tables beside it that it names."""
    text, path = _text(module), _path(module)
    tables = sorted(path.parent.glob("*.json")) if path else ()
    return "\n".join([essence(text), *(table.read_text(encoding="utf-8") for table in tables if table.name in text)])


def essence(source: str) -> str:
    """Return `source` without comments, docstrings and blank lines; what cannot be parsed stays as it is."""
    lines = source.splitlines()
    try:
        tree = ast.parse(source)
        tokens = tokenize.generate_tokens(io.StringIO(source).readline) if "#" in source else ()
        comments = [token.start for token in tokens if token.type == tokenize.COMMENT]
    except (SyntaxError, tokenize.TokenError):
        return source
    for row, column in comments:
        lines[row - 1] = lines[row - 1][:column]
    for node in _statements(tree):
        for text in getattr(node, "body", ()):
            match text:
                case ast.Expr(ast.Constant(str())):
                    for row in range(text.lineno, (text.end_lineno or text.lineno) + 1):
                        lines[row - 1] = ""
    return "\n".join(line.rstrip() for line in lines if line.strip())


class _Own:
    """What somebody's own code is, as it is in memory: a file may have been edited since it was imported.

    Followed from the parts of a specification: bytecode, without docstrings and places in files, and all that it uses
    of other own modules, closures, defaults and constants, lists and tensors too.
    """

    def __init__(self, parts: Iterable[Any]) -> None:
        self.texts = ["Python {}.{}".format(*sys.version_info)]  # another version has another bytecode
        self.modules: set[str] = set()
        """Those of fl_core that are used."""
        self._seen: dict[int, Any] = {}
        parts = list(parts)
        self._packages = {getattr(part, "__module__", "").partition(".")[0] for part in parts}
        for part in parts:
            self._visit(part)

    def _visit(self, value: Any) -> None:
        if isinstance(value, PLAIN):
            self.texts.append(repr(value))
            return
        if id(value) in self._seen or isinstance(value, ModuleType):
            return
        self._seen[id(value)] = value
        self.texts.append(getattr(value, "__qualname__", type(value).__qualname__))
        if isinstance(value, dict | list | tuple | set | frozenset):
            inner = value.items() if isinstance(value, dict) else value
            for each in sorted(inner, key=repr) if isinstance(value, set | frozenset) else list(inner):
                self._visit(each)
            for each in (type(value), getattr(value, "default_factory", None)):
                if each is not None and self._is_own(each.__module__):
                    self._visit(each)
        elif isinstance(value, Tensor):
            self._visit(value.detach().cpu().flatten().view(torch.uint8).numpy())
        elif isinstance(value, np.ndarray) and not value.dtype.hasobject:
            self.texts.append(hashlib.sha256(value.tobytes()).hexdigest())
        elif isinstance(value, np.ndarray) or hasattr(type(value), "to_numpy"):  # or of pandas, whose repr is cut
            self._visit(value.tolist() if isinstance(value, np.ndarray) else value.to_numpy())
            self._visit([getattr(value, name, None) for name in ("index", "columns")])
        elif isinstance(value, CodeType):
            self._code(value)
        elif isinstance(value, partial):
            self._visit([value.func, value.args, value.keywords])
        elif (function := _function(value)) is not None:
            self._function(function)
        elif isinstance(value, type):
            self._class(value)
        elif self._is_own(type(value).__module__):
            slots = (vars(each).get("__slots__", ()) for each in type(value).__mro__)
            names = [name for each in slots for name in ([each] if isinstance(each, str) else each)]
            held = {name: getattr(value, name, None) for name in names if not name.startswith("__")}
            self._visit([type(value), getattr(value, "__dict__", None), held])
        elif isinstance(value, nn.Module):
            self._visit([repr(value), value.state_dict()])
        elif " at 0x" not in (words := repr(value)):
            self.texts.append(words)

    def _class(self, cls: type) -> None:
        for each in cls.__mro__:
            if self._is_own(each.__module__):
                for name, value in sorted(vars(each).items()):
                    if name not in ANNOTATIONS and (_function(value) or not name.startswith("__")):
                        self._visit((name, value))

    def _function(self, function: FunctionType) -> None:
        if self._is_own(function.__module__):
            self._code(function.__code__, function.__doc__)
            self._visit([function.__defaults__, function.__kwdefaults__])
            self._used(function)

    def _code(self, code: CodeType, documentation: str | None = None) -> None:
        self.texts += [code.co_code.hex(), code.co_exceptiontable.hex()]
        self.texts += [*code.co_names, *code.co_varnames, *code.co_freevars]
        is_said = documentation is not None and code.co_consts[:1] == (documentation,)
        self._visit(list(code.co_consts[is_said:]))

    def _used(self, function: FunctionType) -> None:
        """Follow what a function finds outside of itself: its closure, globals, and what it names of own modules."""
        for cell in function.__closure__ or ():
            with suppress(ValueError):  # not yet filled
                self._visit(cell.cell_contents)
        looked_up, names, imported = _names(function.__code__)
        found = [function.__globals__[name] for name in sorted(looked_up & function.__globals__.keys())]
        for value in [*found, *map(_module, sorted(imported))]:
            if isinstance(value, ModuleType) and self._is_own(value.__name__):
                self._visit([vars(value)[name] for name in sorted(names & vars(value).keys())])
            else:
                self._visit(value)

    def _is_own(self, module: str | None) -> bool:
        """Return whether a module is neither of fl_core, which is noted, nor of a library."""
        top = (module or "").partition(".")[0]
        if top == PACKAGE:
            self.modules.add(str(module))
            return False
        if top in self._packages or module is None:
            return True
        file = getattr(sys.modules.get(module), "__file__", None) or ""
        return top not in sys.stdlib_module_names and "site-packages" not in Path(file).parts


def _module(name: str) -> ModuleType | None:
    with suppress(Exception):  # it will fail in the run, too
        return importlib.import_module(name)
    return None


def _function(value: Any) -> Any:
    """Return the plain function behind a method of any kind, or None."""
    for inner in ("__func__", "fget", "func", "wrapped", "__wrapped__"):
        if not inspect.isfunction(value) and not isinstance(value, type | partial):
            value = getattr(value, inner, value)
    return value if inspect.isfunction(value) else None


def _names(code: CodeType) -> tuple[set[str], set[str], set[str]]:
    """Return the globals that code looks up, all names in it, and the modules that it imports when it runs."""
    looked_up, names, imported = set(), set(code.co_names), set()
    for each in dis.get_instructions(code):
        if each.opname in ("LOAD_GLOBAL", "LOAD_NAME"):  # not an attribute that has the name of a global by chance
            looked_up.add(str(each.argval))
        elif each.opname == "IMPORT_NAME":
            imported.add(str(each.argval))
    for inner in filter(inspect.iscode, code.co_consts):
        for found, more in zip((looked_up, names, imported), _names(inner), strict=True):
            found |= more
    return looked_up, names, imported
