"""Worlds by name: a paper's setting with what varies in it, found in the papers' own folders."""

from __future__ import annotations

from functools import cache
from typing import Any, ClassVar

from pydantic import Field, ValidationError

from fl_core.config import Config
from fl_core.errors import SpecError, nearest, unknown
from fl_core.plugins import paper_modules
from fl_core.world.world import World

_REGISTERED: dict[str, type[NamedWorld]] = {}


class NamedWorld(Config):
    """A paper's setting with what varies in it; a subclass that has a `name` is known by it once it is defined."""

    name: ClassVar[str]
    devices: int = Field(100, ge=1)

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        if "name" in cls.__dict__:
            _REGISTERED[cls.name] = cls

    def world(self) -> World:
        """Return the world that these settings stand for."""
        raise NotImplementedError


@cache
def _load_papers() -> None:
    for module in ("world", "experiment"):
        list(paper_modules(module))


def named_worlds() -> dict[str, type[NamedWorld]]:
    """Return the settings of every named world, by its name: those of all papers, and those defined elsewhere."""
    _load_papers()
    return dict(sorted(_REGISTERED.items()))


def named(name: str, **settings: Any) -> World:
    """Return the world called `name` with its `settings`; fields of :class:`World` replace what results."""
    if not isinstance(name, str) or (name not in _REGISTERED and name not in named_worlds()):
        raise unknown("world", name, named_worlds())
    chosen = _REGISTERED[name]
    for setting in settings:
        if setting not in {**chosen.model_fields, **World.model_fields}:
            valid = ", ".join(chosen.model_fields)
            hint = nearest(setting, [*chosen.model_fields, *World.model_fields])
            raise SpecError(
                f"unknown setting {setting!r} of world {name}{hint} (valid: {valid}; the fields of every world)"
            )
    own = {key: value for key, value in settings.items() if key in chosen.model_fields}
    replaced = {key: value for key, value in settings.items() if key not in own}
    try:
        world = chosen(**own).world()
        return World(**{**dict(world), **replaced}) if replaced else world
    except ValidationError as error:
        raise SpecError(f"world {name}: {'; '.join(map(_explained, error.errors()))}") from None


def _explained(fault: Any) -> str:
    """Return one sentence for one of pydantic's findings."""
    place = ".".join(map(str, fault["loc"]))
    if fault["type"] == "value_error":
        return f"{place}: {fault['ctx']['error']}" if place else str(fault["ctx"]["error"])
    return f"{place} = {fault['input']!r} is not valid: it {fault['msg'].removeprefix('Input ')}"
