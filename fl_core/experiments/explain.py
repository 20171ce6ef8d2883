"""Turn pydantic's report on bad input into one line that names the field, the value, and what would be valid."""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt, MultipleOf
from pydantic import BaseModel, ValidationError

from fl_core.config import is_family
from fl_core.errors import FlCoreError, RunError, nearest

FROZEN = "what has parameters never changes; declare them as fields, keep the rest in server.state or device.state"
"""What is said to who sets an attribute."""
LONGEST = 60
"""Characters of a wrong value that are shown."""


def explain(
    error: ValidationError, model: type[BaseModel] | None = None, owner: str = "", more_names: Iterable[str] = ()
) -> str:
    """Return one line: every fault with its field, the value, and what would be valid.

    Valid names and whole intervals are those of `model`, which was built; `owner` is what the fields are parameters
    of, e.g. ``"fedasync"``. For a name that was given without its place `more_names`, dotted, are suggested, too.
    """
    dotted = [*more_names, *(dotted_names(model) if model else ())]
    return "; ".join(dict.fromkeys(_explain_one(dict(fault), model, owner, dotted) for fault in error.errors()))


@contextmanager
def in_one_line() -> Iterator[None]:
    """Say in one line, too, what pydantic reported while a program of a run went on."""
    try:
        yield
    except RunError as error:
        if not isinstance(cause := error.__cause__, ValidationError):
            raise
        where = str(error).partition(f": {type(cause).__name__}: ")[0]
        raise RunError(f"{where}: {explain(cause)}") from cause


def dotted_names(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Yield the names of all fields of `model` and of the models inside it, as ``"world.devices"``."""
    for name, info in model.model_fields.items():
        yield prefix + name
        for inner in dict.fromkeys(_models(info.annotation)):
            yield from (n for n in dotted_names(inner, f"{prefix}{name}.") if not n.endswith(".kind"))


def expected(annotation: Any, metadata: Iterable[Any] = ()) -> str:
    """Say in words what a field takes: ``"a number in (0, 1]"``; empty if there are no words for it."""
    annotation, metadata = _bare(annotation, metadata)
    members = get_args(annotation) if _is_union(annotation) else (annotation,)
    words = [_one(member, metadata) for member in members if member is not types.NoneType]
    return " or ".join(words + ["null"] * (types.NoneType in members)) if all(words) else ""


def _explain_one(fault: dict[str, Any], model: type[BaseModel] | None, owner: str, dotted: list[str]) -> str:
    names, annotation, metadata = _locate(model, fault["loc"])
    name, context, value = ".".join(names), fault.get("ctx", {}), fault["input"]
    match fault["type"]:
        case "value_error":
            cause = context["error"]
            complete = isinstance(cause, FlCoreError) or name.rpartition(".")[2] in str(cause)
            return str(cause) if complete else f"{name}: {cause}"
        case "extra_forbidden":
            place = annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None
            return _unknown_field(names, place, owner, dotted)
        case "unknown_kind":
            return f"{name}.{fault['msg']}"
        case "frozen_instance":
            return f"{name} = {_shown(value)} cannot be set: {FROZEN}"
        case "missing":
            words = expected(annotation, metadata)
            return f"{name} is missing" + (f": it should be {words}" if words else "")
    words = expected(annotation, metadata) or fault["msg"].removeprefix("Input ").removeprefix("should be ")
    if fault["type"] == "finite_number":
        words = words.replace("a number", "a finite number")
    hint = nearest(value, get_args(annotation)) if get_origin(annotation) is Literal else ""
    return f"{name} = {_shown(value)} is not valid: it should be {words}{hint}"


def _unknown_field(names: list[str], place: type[BaseModel] | None, owner: str, dotted: list[str]) -> str:
    name, leaf = ".".join(names), names[-1]
    what, of = ("parameter", f" of {owner}") if owner else ("field", "")
    if place and (kind := _kind(place)):
        of += f" of kind {kind!r}"
    valid = [field for field in place.model_fields if field != "kind"] if place else []
    elsewhere = nearby(other for other in dict.fromkeys(dotted) if len(names) == 1 and other.endswith(f".{leaf}"))
    hint = f"; did you mean {' or '.join(map(repr, elsewhere))}?" if elsewhere else nearest(leaf, valid)
    return f"unknown {what} {name!r}{of}{hint}" + (f" (valid: {', '.join(valid)})" if valid else "")


def nearby(names: Iterable[str]) -> list[str]:
    """Return those of the dotted `names` that lie least deep."""
    found = list(names)
    return [name for name in found if name.count(".") == min(other.count(".") for other in found)]


def _locate(model: type[BaseModel] | None, path: Iterable[int | str]) -> tuple[list[str], Any, tuple[Any, ...]]:
    """Follow pydantic's location; return it without the tags of unions, and the annotation found there.

    For a field that does not exist the annotation is that of the model that lacks it.
    """
    names: list[str] = []
    annotation: Any = model
    metadata: tuple[Any, ...] = ()
    for part in path:
        annotation, metadata = _bare(annotation, metadata)
        of_kind = next((cls for cls in _models(annotation) if _kind(cls) == part), None)
        if of_kind is not None and annotation is not of_kind:
            annotation, metadata = of_kind, ()
            continue
        if isinstance(part, int) and names:
            names[-1] += f"[{part}]"
        else:
            names.append(str(part))
        inner = next(iter(_models(annotation)), None)
        if inner is not None:
            info = inner.model_fields.get(str(part))
            annotation, metadata = (info.annotation, tuple(info.metadata)) if info else (inner, ())
        else:
            annotation, metadata = next(iter(get_args(annotation)), None), ()
    annotation, metadata = _bare(annotation, metadata)
    return names, annotation, metadata


def _bare(annotation: Any, metadata: Iterable[Any]) -> tuple[Any, tuple[Any, ...]]:
    """Unpack ``Annotated``."""
    collected = tuple(metadata)
    while get_origin(annotation) is Annotated:
        annotation, *more = get_args(annotation)
        for item in more:
            collected += tuple(getattr(item, "metadata", None) or (item,))
    return annotation, collected


def _is_union(annotation: Any) -> bool:
    return get_origin(annotation) in (Union, types.UnionType)


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the models that a value of this annotation may be."""
    annotation, _ = _bare(annotation, ())
    if _is_union(annotation):
        for member in get_args(annotation):
            yield from _models(member)
    elif is_family(annotation):
        yield from annotation.kinds.values()
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation


def _kind(model: type[BaseModel]) -> str | None:
    """Return the kind that a class of a family is."""
    return str(model.model_fields["kind"].default) if "kind" in model.model_fields else None


def _one(annotation: Any, metadata: tuple[Any, ...]) -> str:
    if is_family(annotation):
        return f"an object with a kind (valid: {', '.join(sorted(annotation.kinds))})"
    if get_origin(annotation) is Literal:
        return "one of " + ", ".join(map(repr, get_args(annotation)))
    if get_origin(annotation) in (tuple, list):
        each = expected(get_args(annotation)[0])
        return "a list" + (f", each {each}" if each else "")
    if annotation in (int, float):
        return ("an integer" if annotation is int else "a number") + _interval(metadata)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel) and annotation.model_fields:
        return f"an object with the fields {', '.join(annotation.model_fields)}"
    return {str: "text", bool: "true or false"}.get(annotation, "")


def _interval(metadata: tuple[Any, ...]) -> str:
    low = next((item for item in metadata if isinstance(item, Ge | Gt)), None)
    high = next((item for item in metadata if isinstance(item, Le | Lt)), None)
    below = "" if low is None else f">= {low.ge}" if isinstance(low, Ge) else f"> {low.gt}"
    above = "" if high is None else f"<= {high.le}" if isinstance(high, Le) else f"< {high.lt}"
    steps = "".join(f", a multiple of {item.multiple_of}" for item in metadata if isinstance(item, MultipleOf))
    if below and above:
        left, right = "[("[isinstance(low, Gt)], "])"[isinstance(high, Lt)]
        return f" in {left}{below.split()[1]}, {above.split()[1]}{right}{steps}"
    return f" {below or above}{steps}" if below or above else steps


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
