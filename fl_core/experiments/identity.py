"""Which code made a result: a digest of the source that a run's numbers depend on.

Comments, docstrings and blank lines do not count. Of fl_core counts what the algorithm, the runtime, the world, the
task and the partition import, followed name by name; of an algorithm that is defined elsewhere (a script, a notebook,
a package) its class with all bases, and the functions and constants of the same module that it uses.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import io
import platform
import sys
import tokenize
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from fl_core.algorithms import Algorithm
from fl_core.experiments.spec import RunSpec

PACKAGE = "fl_core"
ROOTS = (f"{PACKAGE}.runtime.simulation", f"{PACKAGE}.experiments.spec")
"""Where a run begins; of the second only what builds the parts of a simulation is numeric, see :data:`APART`."""
APART = tuple(
    f"{PACKAGE}.{name}"
    for name in ("algorithms", "experiments", "datasets.surrogates", "datasets.archives", "errors", "plugins")
)
"""Packages that are not followed from the roots: other algorithms, bookkeeping, and data whose bytes are recorded."""
INEXACT = ("batched",)
"""Executors that give the same numbers only up to rounding."""


def code_digest(spec: RunSpec) -> str:
    """Return 16 hexadecimal digits of the source that computes `spec`."""
    cls = type(spec.algorithm)
    return _digest_of(cls) if is_users(cls) else _digest_inside(cls)


def is_users(algorithm: Algorithm | type[Algorithm]) -> bool:
    """Return whether an algorithm's class, or a class that it is derived from, is defined outside of fl_core."""
    cls = algorithm if isinstance(algorithm, type) else type(algorithm)
    return any(not each.__module__.startswith(f"{PACKAGE}.") for each in _own_classes(cls))


def is_stale(spec: RunSpec, provenance: Mapping[str, Any]) -> bool:
    """Return whether a stored result is not to be used: its algorithm is the user's own and has changed since."""
    return is_users(spec.algorithm) and provenance.get("code") != code_digest(spec)


def circumstances(spec: RunSpec, executor: str) -> dict[str, str]:
    """Return what belongs to a result's identity besides its specification, as its provenance records it."""
    return {
        "code": code_digest(spec),
        "numbers": "rounded" if executor in INEXACT else "exact",
        "instructions": instructions(),
    }


def instructions() -> str:
    """Return the instruction set that PyTorch computes with here: ``"x86_64 AVX2"``."""
    return f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}"


@cache
def _digest_inside(cls: type[Algorithm]) -> str:
    """Return the digest of a class of fl_core; one of a user's may use what changes while the process goes on."""
    return _digest_of(cls)


def _digest_of(cls: type[Algorithm]) -> str:
    inside = {each.__module__ for each in _own_classes(cls) if each.__module__.startswith(f"{PACKAGE}.")}
    modules = {*_closure(*ROOTS), *(name for module in sorted(inside) for name in _closure(module, apart=False))}
    parts = [f"{name}\n{_source(name)}" for name in sorted(modules)]
    parts += [text for each in _own_classes(cls) if each.__module__ not in inside for text in _outside(each)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _own_classes(cls: type) -> list[type]:
    return [each for each in cls.__mro__ if issubclass(each, Algorithm) and each is not Algorithm]


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
    for node in ast.walk(ast.parse(_text(module))):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name.startswith(PACKAGE)]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PACKAGE):
            found += [_origin(str(node.module), alias.name) for alias in node.names]
    return tuple(found)


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
    return essence(_text(module))


def essence(source: str) -> str:
    """Return `source` without comments, docstrings and blank lines; what cannot be parsed stays as it is."""
    lines = source.splitlines()
    try:
        tree = ast.parse(source)
        tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    except (SyntaxError, tokenize.TokenError):
        return source
    for token in tokens:
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    for node in ast.walk(tree):
        for text in getattr(node, "body", ()) if isinstance(getattr(node, "body", ()), list) else ():
            if (
                isinstance(text, ast.Expr)
                and isinstance(text.value, ast.Constant)
                and isinstance(text.value.value, str)
            ):
                for row in range(text.lineno, (text.end_lineno or text.lineno) + 1):
                    lines[row - 1] = ""
    return "\n".join(line.rstrip() for line in lines if line.strip())


def _outside(cls: type) -> Iterator[str]:
    """Yield the source of a class defined outside of fl_core, and of what it uses of its own module."""
    seen: set[int] = set()

    def visit(thing: Any, module: str) -> Iterator[str]:
        if id(thing) in seen:
            return
        seen.add(id(thing))
        functions = [thing] if inspect.isfunction(thing) else [f for f in vars(thing).values() if _function(f)]
        yield _source_of(thing)
        for function in map(_function, functions):
            names = _names(function.__code__)
            for name in sorted(names & function.__globals__.keys()):
                value = function.__globals__[name]
                if (inspect.isfunction(value) or inspect.isclass(value)) and value.__module__ == module:
                    yield from visit(value, module)
                elif isinstance(value, bool | int | float | str | tuple | None):
                    yield f"{name} = {value!r}"

    yield from visit(cls, cls.__module__)


def _function(value: Any) -> Any:
    """Return the plain function behind a method of any kind, or None."""
    value = getattr(value, "__func__", value)
    value = value.fget if isinstance(value, property) else value
    return value if inspect.isfunction(value) else None


def _names(code: Any) -> set[str]:
    inner = (_names(each) for each in code.co_consts if inspect.iscode(each))
    return set(code.co_names).union(*inner)


def _source_of(thing: Any) -> str:
    """Return the source of a class or function; without one (typed at a prompt) its bytecode."""
    try:
        return essence(inspect.cleandoc(inspect.getsource(thing)))
    except (OSError, TypeError):
        functions = [thing] if inspect.isfunction(thing) else [f for f in map(_function, vars(thing).values()) if f]
        fields = {name: repr(info) for name, info in getattr(thing, "model_fields", {}).items()}
        version = ".".join(map(str, sys.version_info[:2]))
        return f"{thing.__qualname__} {version} {fields} " + " ".join(_bytecode(f.__code__) for f in functions)


def _bytecode(code: Any) -> str:
    constants = [_bytecode(each) if inspect.iscode(each) else repr(each) for each in code.co_consts]
    return f"{code.co_code.hex()} {code.co_names} {constants}"
