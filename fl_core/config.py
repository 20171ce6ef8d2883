"""Frozen, strict pieces of a specification; those that come in kinds are known by name and can be written as text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Union, get_args

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, TypeAdapter, model_validator
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from fl_core.errors import SpecError, nearest

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Duration = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Config(BaseModel):
    """A frozen, strict piece of a specification; what a field means stands in a string below it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _true_is_no_number(cls, data: Any) -> Any:
        """Refuse what Python counts as 0 and 1 where a number is wanted."""
        for name, value in data.items() if isinstance(data, dict) else ():
            values = value if isinstance(value, list | tuple) else [value]
            if name in cls.model_fields and any(isinstance(each, bool) for each in values):
                kinds = set(_leaves(cls.model_fields[name].annotation))
                if kinds & {int, float} and bool not in kinds:
                    raise ValueError(f"{name} = {value!r} is not valid: it should be a number")
        return data


def refuse_second(what: str, name: str, cls: type, known: Mapping[str, type]) -> None:
    """Refuse another class with the name of one of the book's; one's own is replaced when a cell is run again."""
    old = known.get(name, cls)
    same = (old.__module__, old.__qualname__) == (cls.__module__, cls.__qualname__)
    if old.__module__.startswith(("fl_core.", "fl_papers.")) and not same:
        raise SpecError(f"the {what} {name!r} is there already; choose another name")


def ascending(low: str, high: str, unit: str) -> Any:
    """Return a validator of a model whose field `high` must not be below its field `low`."""

    def check(self: Any) -> Any:
        least, most = getattr(self, low), getattr(self, high)
        if most < least:
            raise ValueError(f"{high} = {most} {unit} must not be below {low} = {least}")
        return self

    return model_validator(mode="after")(check)


def _leaves(annotation: Any) -> Iterator[type]:
    """Yield the types that an annotation is made of; of choices their types."""
    for inner in get_args(annotation) or [annotation]:
        yield from _leaves(inner) if get_args(inner) else [inner if isinstance(inner, type) else type(inner)]


def is_family(cls: Any) -> bool:
    """Return whether `cls` is a family, not one of its kinds."""
    return isinstance(cls, type) and "kinds" in cls.__dict__


class Family(Config):
    """Base of pieces that come in kinds, told apart by the default of their field `kind`.

    A direct subclass is a family; a subclass of that with a `kind` is known once it is defined, wherever that is. A
    field that takes a family takes an object, a dictionary, or text such as ``"timed(period_seconds=5)"``.
    """

    if TYPE_CHECKING:
        kind: str
    kinds: ClassVar[dict[str, Any]]
    """The classes of a family by their kind."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if Family in cls.__bases__:
            cls.kinds = {}

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        if "kind" in cls.model_fields and not is_family(cls):
            refuse_second("kind", kind := cls.model_fields["kind"].default, cls, cls.kinds)
            cls.kinds[kind] = cls

    def check(self, count: int, /) -> None:
        """Refuse a number of devices, or of servers, that this kind does not fit."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        if not is_family(cls):
            return handler(source)
        # Validated by whatever kinds there are by then, and written as the class that it is.
        return core_schema.no_info_plain_validator_function(cls._of_any_kind)

    @classmethod
    def _of_any_kind(cls, value: Any) -> Any:
        if isinstance(value, str):
            try:
                kind, settings = read_named(value)
            except SpecError as error:
                raise ValueError(str(error)) from None  # so that the name of the field is added
            value = {"kind": kind, **settings}
        if isinstance(value, dict) and value.get("kind") not in cls.kinds:
            given, valid = value.get("kind"), ", ".join(sorted(cls.kinds))
            what = "is missing" if given is None else f"= {given!r} is not valid{nearest(given, cls.kinds)}"
            raise PydanticCustomError("unknown_kind", "{text}", {"text": f"kind {what} (valid: {valid})"})
        return _union(tuple(cls.kinds.values())).validate_python(value)


@lru_cache(maxsize=256)
def _union(classes: tuple[type[Family], ...]) -> TypeAdapter[Any]:
    union: Any = Union[classes]  # noqa: UP007
    return TypeAdapter(Annotated[union, Field(discriminator="kind")])


def read_named(text: str, what: str = "", example: str = "kind(a=1, b=2)") -> tuple[str, dict[str, Any]]:
    """Read ``"timed(period_seconds=5, per_tick=2)"`` as a name and its settings.

    A value is JSON, such as ``{"kind": "lost"}``, or else a word that ends at the next comma.

    Raises
    ------
    SpecError
        If it has another form; `what` says what was to be read, `example` how it could look.
    """

    def unreadable(cause: str = "") -> SpecError:
        plain = example.partition("(")[0]
        return SpecError(f"cannot read {what}{text!r}{cause}; write for example {plain!r} or {example!r}")

    match = re.fullmatch(r"\s*([^()\s=,]+)\s*(?:\((.*)\))?\s*", text, re.DOTALL)
    if match is None:
        raise unreadable()
    settings: dict[str, Any] = {}
    rest = (match[2] or "").strip(" ,")
    while rest:
        key, _, rest = (piece.strip() for piece in rest.partition("="))
        value, rest = _value(rest)
        if not key or "," in key or value == "":
            raise unreadable(f": {key!r} is not name=value")
        if key in settings:
            raise unreadable(f": {key!r} appears twice")
        settings[key] = value
    return match[1], settings


def _value(text: str) -> tuple[Any, str]:
    """Return the value that `text` begins with, and what comes after its comma."""
    with suppress(ValueError):
        value, end = json.JSONDecoder().raw_decode(text)
        if (rest := text[end:].lstrip())[:1] in ("", ","):
            return value, rest.lstrip(" ,")
    word, _, rest = text.partition(",")
    return word.strip().strip("'\""), rest.lstrip(" ,")
