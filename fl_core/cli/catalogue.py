"""What there is to choose from, by name, with parameters, defaults and meanings: ``fl-core list``.

Nothing is written down twice: names come from the registries, meanings from docstrings.
"""

from __future__ import annotations

import inspect
import re
import shutil
import textwrap
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from pydantic import BaseModel

from fl_core.cli.examples import KINDS
from fl_core.errors import unknown

Row = tuple[str, str, str]
"""Name, default, meaning."""


@dataclass(frozen=True)
class Item:
    """One choice."""

    name: str
    meaning: str
    parameters: tuple[Row, ...] = ()


ALONE = {
    "records": "the published runs, and how many of them are verified by this code",
    "fields": "everything that --set can change",
}
"""What is only listed when it is asked for, and what it is."""


def show(kind: str | None, width: int | None = None) -> str:
    """Return the text that ``fl-core list [kind]`` prints."""
    width = width or min(110, shutil.get_terminal_size((100, 24)).columns)
    if kind is None:
        rows = [(name, ", ".join(item.name for item in items_of(name))) for name in KINDS if name not in ALONE]
        rows += ALONE.items()
        return "\n".join(_wrapped(name, 14, text, width) for name, text in rows)
    if kind not in KINDS:
        raise unknown("list", kind, KINDS)
    items = items_of(kind)
    name_width = max((len(item.name) for item in items), default=0) + 2
    lines = [line for item in items for line in _lines(item, name_width, width)]
    return "\n".join([*lines, "", f"Use: {USES[kind]}"])


def items_of(kind: str) -> list[Item]:
    """Return all choices of a kind (one of :data:`~fl_core.cli.examples.KINDS`)."""
    if kind in OTHERS:
        return OTHERS[kind]()
    return _registered(kind)


def meanings(cls: type) -> dict[str, str]:
    """Return the meaning of each attribute that the NumPy-style docstring of `cls` describes."""
    lines = inspect.cleandoc(cls.__doc__ or "").splitlines()
    found: dict[str, str] = {}
    names: list[str] = []
    inside = False
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if following.startswith("---"):
            inside, names = line == "Attributes", []
        elif inside and line.startswith(" "):
            found |= {name: f"{found.get(name, '')} {line.strip()}".strip() for name in names}
        elif inside and " : " in line:
            names = [name.strip() for name in line.partition(" : ")[0].split(",")]
    return {name: _plain(text) for name, text in found.items()}


def parameters(model: type[BaseModel], prefix: str = "", defaults: BaseModel | None = None) -> tuple[Row, ...]:
    """Return name, default and meaning of every field of `model` but its kind; parts without a kind are unfolded."""
    from fl_core.experiments.explain import expected

    told = {name: text for cls in reversed(model.__mro__) if cls.__doc__ for name, text in meanings(cls).items()}
    rows: list[Row] = []
    for name, info in model.model_fields.items():
        default = getattr(defaults, name) if defaults else info.get_default()
        if name == "kind":
            continue
        if isinstance(default, BaseModel) and "kind" not in type(default).model_fields:
            rows += parameters(type(default), f"{prefix}{name}.", default)
        else:
            words = _described(model, name) or told.get(name) or expected(info.annotation, info.metadata)
            rows.append((prefix + name, "required" if info.is_required() else _short(default), words))
    return tuple(rows)


def _lines(item: Item, name_width: int, width: int) -> list[str]:
    lines = [_wrapped(item.name, name_width, item.meaning, width)]
    first = max((len(name) for name, _, _ in item.parameters), default=0) + 2
    second = max((len(default) for _, default, _ in item.parameters), default=0) + 2
    for name, default, meaning in item.parameters:
        head = f"    {name:<{first}}{default:<{second}}"
        if len(head) + 45 <= width:
            lines.append(_wrapped(head, len(head), meaning, width))
        else:
            lines += [head.rstrip(), _wrapped("", 8, meaning, width)]
    return lines


def _wrapped(head: str, indent: int, text: str, width: int) -> str:
    wrapped = textwrap.wrap(text, max(30, width - indent)) or [""]
    return "\n".join([f"{head:<{indent}}{wrapped[0]}".rstrip(), *(" " * indent + line for line in wrapped[1:])])


def _short(value: Any) -> str:
    if isinstance(value, BaseModel) and "kind" in type(value).model_fields:
        defaults = {name: field.default for name, field in type(value).model_fields.items()}
        inner = ", ".join(f"{name}={_short(v)}" for name, v in value if name != "kind" and v != defaults[name])
        return f"{value.kind}({inner})" if inner else str(value.kind)  # type: ignore[attr-defined]
    return "none" if value is None else str(value)


def _summary(thing: Any) -> str:
    """Return the first paragraph of a docstring, as one line."""
    return _plain(" ".join(inspect.cleandoc(thing.__doc__ or "").split("\n\n")[0].split()))


def _described(model: type[BaseModel], name: str) -> str:
    """Return what stands below the field, in the class or, where it only changes the default, in a base."""
    fields = (getattr(base, "model_fields", {}).get(name) for base in model.__mro__)
    return next((_plain(" ".join(field.description.split())) for field in fields if field and field.description), "")


def _plain(text: str) -> str:
    return re.sub(r"``([^`]*)``|`([^`]*)`", r"\1\2", text)


REGISTRIES = {
    "algorithms": ("fl_core.algorithms", "ALGORITHMS"),
    "weights": ("fl_core.formulas.staleness", "StalenessWeight"),
    "compressors": ("fl_core.formulas.compression", "Compressor"),
    "partitions": ("fl_core.datasets", "Partition"),
    "worlds": ("fl_core.world", "named_worlds"),
    "compute": ("fl_core.world", "Compute"),
    "availability": ("fl_core.world", "Availability"),
    "graphs": ("fl_core.world.topology", "Graph"),
    "triggers": ("fl_core.world", "Trigger"),
    "faults": ("fl_core.world", "Fault"),
}
"""Where the classes of a kind are known by name: a dictionary, a family, or a function that returns them."""


def _registered(kind: str) -> list[Item]:
    module, name = REGISTRIES[kind]
    found = getattr(import_module(module), name)
    classes = found() if kind == "worlds" else dict(sorted(getattr(found, "kinds", found).items()))
    return [Item(name, _summary(cls), parameters(cls)) for name, cls in classes.items()]


def _models() -> list[Item]:
    from fl_core.models import MODELS, options

    return [Item(name, _summary(make), parameters(options(name))) for name, make in sorted(MODELS.items())]


def _datasets() -> list[Item]:
    from fl_core.datasets.registry import all_sources, all_surrogates

    real = [Item(source.name, source.title) for source in all_sources().values()]
    return real + [Item(surrogate.name, surrogate.about) for surrogate in all_surrogates().values()]


def _preprocessing() -> list[Item]:
    from fl_core.datasets.preprocessing import PRESETS, Preprocessing

    named = [
        Item(name, ", ".join(f"{field}={value}" for field, value in fields.items()))
        for name, fields in PRESETS.items()
    ]
    return [Item("fields", _summary(Preprocessing), parameters(Preprocessing)), *named]


def _fields() -> list[Item]:
    from fl_core.experiments.spec import RunSpec

    told = {name: _described(RunSpec, name) for name in RunSpec.model_fields}
    groups: dict[str, list[Row]] = {}
    for row in parameters(RunSpec):
        head, dot, _ = row[0].partition(".")
        groups.setdefault(head if dot else "run", []).append(row)
    return [Item(name, told.get(name, "The run as a whole."), tuple(rows)) for name, rows in groups.items()]


def _executors() -> list[Item]:
    from fl_core.runtime import executors

    return [Item(name, _summary(getattr(executors, name.title()))) for name in executors.EXECUTORS]


def _artifacts() -> list[Item]:
    from fl_core.experiments.artifacts import artifacts

    return [Item(name, f"{artifact.title} ({artifact.reference})") for name, artifact in artifacts().items()]


def _profiles() -> list[Item]:
    from fl_core.experiments.experiment import PROFILES

    return [Item(name, meaning) for name, meaning in PROFILES.items()]


def _notebooks() -> list[Item]:
    from fl_core.bookbuild.chapters import committed

    return [Item(name, "") for name in committed().values()]


def _records() -> list[Item]:
    from fl_core.experiments.store import default_store
    from fl_core.experiments.verify import published_records

    items = []
    for row in published_records(default_store()).to_dict("records"):
        name, data, number = (row.pop(key) for key in ("paper", "data", "records"))
        words = ", ".join(f"{count} {what}" for what, count in row.items() if count)
        items += [Item(f"{name} ({data} data)", f"{number}: {words}")] * (number > 0)
    return items


OTHERS = {
    "records": _records,
    "models": _models,
    "datasets": _datasets,
    "preprocessing": _preprocessing,
    "artifacts": _artifacts,
    "profiles": _profiles,
    "executors": _executors,
    "notebooks": _notebooks,
    "fields": _fields,
}

USES = {
    "algorithms": "fl-core run --algorithm NAME --set PARAMETER=VALUE",
    "weights": "fl-core run --algorithm fedasync --set weight='hinge(a=10, b=4)'",
    "compressors": "fl-core run --algorithm fedper --set compressor='topk(delta=0.1)'",
    "models": "fl-core run --set model='NAME(OPTION=VALUE)'",
    "datasets": "fl-core run --set dataset=NAME",
    "partitions": "fl-core run --set partition='dirichlet(alpha=0.3)'",
    "preprocessing": "fl-core run --set preprocessing=NAME, or --set preprocessing.FIELD=VALUE",
    "worlds": "fl-core run --set world='fedasmu(devices=50)'",
    "compute": "fl-core run --set world.compute='uniform(fastest=1, slowest=10)'",
    "availability": (
        'fl-core run --set world.availability=\'{"kind": "periodic", "period_seconds": 60, "available": 0.5}\''
    ),
    "graphs": 'fl-core run --set world.clusters=\'{"servers": 6, "graph": {"kind": "star"}}\'',
    "triggers": 'fl-core run --set world.trigger=\'{"kind": "timed", "period_seconds": 10}\'',
    "faults": 'fl-core run --set world.faults=\'[{"kind": "lost", "probability": 0.1}]\'',
    "artifacts": "fl-core regenerate NAME",
    "profiles": "fl-core regenerate ARTIFACT --profile NAME",
    "executors": "fl-core run --executor NAME",
    "notebooks": "fl-core regenerate NAME",
    "records": "fl-core verify 'PAPER-*'",
    "fields": "fl-core run --set NAME=VALUE",
}
"""How a choice is made, by kind."""
