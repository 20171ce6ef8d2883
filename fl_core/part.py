"""What the parts of a specification have in common, and how those that come in kinds are found."""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
from typing import Annotated, Any, TypeVar, Union

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


class Part(BaseModel):
    """A frozen, strict piece of a specification."""

    model_config = ConfigDict(frozen=True, extra="forbid")


Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Duration = Annotated[float, Field(ge=0, allow_inf_nan=False)]

P = TypeVar("P", bound=Part)


def kinds(package: str, base: type[P]) -> dict[str, type[P]]:
    """Return the subclasses of `base` in the modules of `package`, by their `kind`.

    This is why a new kind is one class in one file: a module that lies in the package is found.
    """
    found = {}
    for module in pkgutil.iter_modules(importlib.import_module(package).__path__):
        for value in vars(importlib.import_module(f"{package}.{module.name}")).values():
            if isinstance(value, type) and issubclass(value, base) and "kind" in value.model_fields:
                found[value.model_fields["kind"].default] = value
    return found


def union(classes: dict[str, type[P]]) -> Any:
    """Return the annotation of a field that takes any of `classes`, told apart by their `kind`, or given as text."""
    return Annotated[Union[tuple(classes.values())], Field(discriminator="kind"), BeforeValidator(_from_text)]  # noqa: UP007


def tagged(text: str) -> dict[str, Any] | None:
    """Read ``"timed(period_seconds=5)"`` as ``{"kind": "timed", "period_seconds": 5}``; None: it has another form.

    Raises
    ------
    ValueError
        If what stands after an equals sign is not JSON.
    """
    match = re.fullmatch(r"\s*([\w-]+)\s*(?:\((.*)\))?\s*", text)
    if match is None:
        return None
    pairs = [piece.partition("=") for piece in (match[2] or "").split(",") if piece.strip()]
    return {"kind": match[1], **{key.strip(): json.loads(value) for key, _, value in pairs}}


def _from_text(value: Any) -> Any:
    """Read text; leave all else as it is."""
    if not isinstance(value, str):
        return value
    try:
        return tagged(value) or value
    except ValueError:
        kind = value.partition("(")[0].strip()
        raise ValueError(f"cannot read {value!r}; write for example {kind!r} or '{kind}(a=1, b=2)'") from None
