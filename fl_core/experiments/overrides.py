"""What a reader may change in an experiment, checked: the base of every paper's options."""

from __future__ import annotations

from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from fl_core.errors import SpecError, nearest
from fl_core.experiments.explain import explain


class Overrides(BaseModel):
    """What a reader may change besides profile, data set and seeds; a subclass has the fields and their defaults."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def of(cls, **overrides: Any) -> Self:
        """Return validated options.

        Raises
        ------
        SpecError
            If a name is unknown or a value not valid.
        """
        for name in overrides:
            if name not in cls.model_fields:
                valid = ", ".join(cls.model_fields)
                raise SpecError(f"unknown override {name!r}{nearest(name, cls.model_fields)} (valid: {valid})")
        try:
            return cls(**overrides)
        except ValidationError as error:
            raise SpecError(explain(error, cls)) from None

    @classmethod
    def changed(cls, **overrides: Any) -> dict[str, Any]:
        """Return those of `overrides` that differ from the defaults, so that a study names only what was changed."""
        return {name: value for name, value in overrides.items() if cls.of(**{name: value}) != cls()}
