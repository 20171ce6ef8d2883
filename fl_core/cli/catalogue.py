"""What there is to choose from, by name, with parameters, defaults and meanings: ``fl-core list``.

Nothing is written down twice: names come from the registries, meanings from docstrings.
"""

from __future__ import annotations

import ast
import inspect
import re
import shutil
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fl_core.cli.app import Json, app, as_text
from fl_core.errors import known
from fl_core.plugins import load_plugins

if TYPE_CHECKING:
    from pydantic import BaseModel

Row = tuple[str, str, str]
"""Name, default, meaning."""


@dataclass(frozen=True)
class Item:
    """One choice."""

    name: str
    meaning: str
    parameters: tuple[Row, ...] = ()


@dataclass(frozen=True)
class Kind:
    """What can be chosen in one place."""

    use: str  # how a choice is made
    module: str = ""  # where the classes are known by name,
    table: str | Callable[[Any], list[Item]] = ""  # in a dictionary, a family, or a function; or what makes the items
    alone: str = ""  # what it is, if it is listed only when it is asked for


KINDS = {
    "algorithms": Kind("run --algorithm NAME --set PARAMETER=VALUE", "fl_core.algorithms", "ALGORITHMS"),
    "weights": Kind(
        "run --algorithm fedasync --set weight='hinge(a=10, b=4)'", "fl_core.formulas.staleness", "StalenessWeight"),
    "compressors": Kind(
        "run --algorithm fedper --set compressor='topk(delta=0.1)'", "fl_core.formulas.compression", "Compressor"),
    "models": Kind(
        "run --set model='NAME(OPTION=VALUE)'", "fl_core.models",
        lambda m: [Item(name, summary(m.MODELS[name]), parameters(m.options(name))) for name in sorted(m.MODELS)]),
    "datasets": Kind("run --set dataset=NAME"),
    "partitions": Kind("run --set partition='dirichlet(alpha=0.3)'", "fl_core.datasets", "Partition"),
    "preprocessing": Kind("run --set preprocessing=NAME, or --set preprocessing.FIELD=VALUE"),
    "worlds": Kind("run --set world='fedasmu(devices=50)'", "fl_core.world", "named_worlds"),
    "compute": Kind("run --set world.compute='uniform(fastest=1, slowest=10)'", "fl_core.world", "Compute"),
    "availability": Kind(
        'run --set world.availability=\'{"kind": "periodic", "period_seconds": 60, "available": 0.5}\'',
        "fl_core.world", "Availability"),
    "graphs": Kind(
        'run --set world.clusters=\'{"servers": 6, "graph": {"kind": "star"}}\'', "fl_core.world.topology", "Graph"),
    "triggers": Kind(
        'run --set world.trigger=\'{"kind": "timed", "period_seconds": 10}\'', "fl_core.world", "Trigger"),
    "faults": Kind('run --set world.faults=\'[{"kind": "lost", "probability": 0.1}]\'', "fl_core.world", "Fault"),
    "artifacts": Kind(
        "regenerate NAME", "fl_core.experiments.artifacts",
        lambda m: [Item(name, f"{each.title} ({each.reference})") for name, each in m.artifacts().items()]),
    "profiles": Kind(
        "regenerate ARTIFACT --profile NAME", "fl_core.experiments.experiment",
        lambda m: [Item(*row) for row in m.PROFILES.items()]),
    "executors": Kind(
        "run --executor NAME", "fl_core.runtime.executors",
        lambda m: [Item(name, summary(getattr(m, name.title()))) for name in m.EXECUTORS]),
    "notebooks": Kind(
        "regenerate NAME", "fl_core.bookbuild.chapters",
        lambda m: [Item(name, "") for name in m.committed().values()]),
    "records": Kind("verify 'PAPER-*'", alone="the published runs, and how many of them are verified by this code"),
    "fields": Kind("run --set NAME=VALUE", alone="everything that --set can change"),
}  # fmt: skip

LIST = """\b
Examples:
  fl-core list               all names, one kind per line
  fl-core list algorithms    parameters, defaults and meanings
  fl-core list fields        everything that 'fl-core run --set' can change
"""


@app.command("list", epilog=LIST)
def show(
    kind: Annotated[str | None, typer.Argument(
        metavar="KIND", help=f"{', '.join(KINDS)}; without it the names of all.")] = None,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Show what there is to choose from, with meanings."""
    if as_json:
        chosen = [known("list", kind, KINDS)] if kind else [name for name, what in KINDS.items() if not what.alone]
        typer.echo(as_text({name: [_plainly(item) for item in items_of(name)] for name in chosen}))
        return
    typer.echo(text_of(kind, min(110, shutil.get_terminal_size((100, 24)).columns)))


def text_of(kind: str | None, width: int = 100) -> str:
    """Return the choices of a kind, or the names of all."""
    if kind is None:
        listed = {name: what.alone or ", ".join(item.name for item in items_of(name)) for name, what in KINDS.items()}
        return "\n".join(_wrapped(name, 14, text, width) for name, text in listed.items())
    items = items_of(known("list", kind, KINDS))
    name_width = max((len(item.name) for item in items), default=0) + 2
    lines = [line for item in items for line in _lines(item, name_width, width)]
    return "\n".join([*lines, "", f"Use: fl-core {KINDS[kind].use}"])


def _plainly(item: Item) -> dict[str, Any]:
    rows = [dict(zip(("name", "default", "meaning"), row, strict=True)) for row in item.parameters]
    return {"name": item.name, "meaning": item.meaning, "parameters": rows}


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


def items_of(kind: str) -> list[Item]:
    """Return all choices of a kind."""
    load_plugins()
    what = KINDS[kind]
    if callable(what.table):
        return what.table(import_module(what.module))
    if what.table:
        found = getattr(import_module(what.module), what.table)
        classes = found() if inspect.isfunction(found) else getattr(found, "kinds", found)
        return [Item(name, summary(cls), parameters(cls)) for name, cls in sorted(classes.items())]
    items: list[Item] = globals()[f"_{kind}"]()
    return items


def parameters(model: type[BaseModel], prefix: str = "", defaults: BaseModel | None = None) -> tuple[Row, ...]:
    """Return name, default and meaning of every field of `model` but its kind; parts without a kind are unfolded."""
    from fl_core.experiments.explain import expected

    rows: list[Row] = []
    for name, info in model.model_fields.items():
        default = getattr(defaults, name) if defaults else info.get_default()
        if name == "kind":
            continue
        if hasattr(type(default), "model_fields") and "kind" not in type(default).model_fields:
            rows += parameters(type(default), f"{prefix}{name}.", default)
        else:
            words = described(model, name) or expected(info.annotation, info.metadata)
            rows.append((prefix + name, "required" if info.is_required() else _short(default), words))
    return tuple(rows)


def _short(value: Any) -> str:
    fields = getattr(type(value), "model_fields", {})
    if "kind" in fields:
        inner = ", ".join(f"{name}={_short(v)}" for name, v in value if name != "kind" and v != fields[name].default)
        return f"{value.kind}({inner})" if inner else str(value.kind)
    return "none" if value is None else str(value)


def summary(thing: Any) -> str:
    """Return the first paragraph of a docstring, as one line."""
    return _plain((inspect.getdoc(thing) or "").split("\n\n")[0])


def described(model: type[BaseModel], name: str) -> str:
    """Return what stands below the field, in the class or, where it only changes the default, in a base."""
    below = (words[name] for words in map(_below, model.__mro__) if name in words)
    return _plain(model.model_fields[name].description or next(below, ""))


@cache
def _below(cls: type) -> dict[str, str]:
    """Return the strings below the fields of a class, which pydantic would look for at each import."""
    try:
        [body] = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    except (OSError, TypeError):  # of what is built in, or was typed in
        return {}
    assert isinstance(body, ast.ClassDef)
    return {
        field.target.id: text.value.value
        for field, text in pairwise(body.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)
    }


def _plain(text: str) -> str:
    return re.sub(r"``([^`]*)``|`([^`]*)`", r"\1\2", " ".join(text.split()))


def _datasets() -> list[Item]:
    from fl_core.datasets import OWN, all_sources, all_surrogates

    real = [Item(source.name, source.title) for source in all_sources().values()]
    real += [Item(name, summary(own.load)) for name, own in OWN.items()]
    return real + [Item(surrogate.name, surrogate.about) for surrogate in all_surrogates().values()]


def _preprocessing() -> list[Item]:
    from fl_core.datasets import PRESETS, STEPS, Preprocessing

    named = {
        name: ", ".join(f"{field}={value}" for field, value in fields.items()) for name, fields in PRESETS.items()
    }
    named |= {name: summary(step) for name, step in STEPS.items()}
    return [Item("fields", summary(Preprocessing), parameters(Preprocessing)), *map(Item, named, named.values())]


def _fields() -> list[Item]:
    from fl_core.experiments.spec import RunSpec

    groups: dict[str, list[Row]] = {}
    for row in parameters(RunSpec):
        head, dot, _ = row[0].partition(".")
        groups.setdefault(head if dot else "run", []).append(row)
    told = {name: described(RunSpec, name) for name in RunSpec.model_fields}
    return [Item(name, told.get(name, "The run as a whole."), tuple(rows)) for name, rows in groups.items()]


def _records() -> list[Item]:
    from fl_core.experiments.store import default_store
    from fl_core.experiments.verify import published_records

    items = []
    for row in published_records(default_store()).to_dict("records"):
        name, data, number = (row.pop(key) for key in ("paper", "data", "records"))
        words = ", ".join(f"{count} {what}" for what, count in row.items() if count)
        items += [Item(f"{name} ({data} data)", f"{number}: {words}")] * (number > 0)
    return items
