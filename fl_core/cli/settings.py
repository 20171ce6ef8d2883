"""From words on a command line to a run specification."""

from __future__ import annotations

import ast
import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fl_core.errors import FlCoreError, SpecError, nearest, unknown

if TYPE_CHECKING:
    from fl_core.experiments.spec import RunSpec


def build_spec(path: Path | None, algorithm: str | None, settings: Sequence[str], seed: int | None) -> RunSpec:
    """Return the specification that a command line describes.

    Parameters
    ----------
    path : Path, optional
        A JSON file with a specification or a part of one.
    algorithm : str, optional
        Replaces the file's algorithm, with default parameters.
    settings : sequence of str
        ``"name=value"``: a dotted field of the run, or a parameter of the algorithm.
    seed : int, optional
    """
    from fl_core.algorithms import ALGORITHMS
    from fl_core.experiments.spec import RunSpec

    values = dict(map(read_setting, settings)) | ({} if seed is None else {"seed": seed})
    if algorithm is None:
        if path is None:
            valid = ", ".join(sorted(ALGORITHMS))
            raise SpecError(f"nothing to run: name an --algorithm (valid: {valid}) or a specification file")
        spec = RunSpec.from_file(path)
        return spec.changed(**_placed(values, type(spec.algorithm)))
    if algorithm not in ALGORITHMS:
        raise unknown("algorithm", algorithm, ALGORITHMS)
    chosen = ALGORITHMS[algorithm]
    fits_every_world = {"algorithm": "sgd"}  # replaced together with the settings, so that they are judged together
    base = RunSpec.from_file(path, **fits_every_world) if path else RunSpec(**fits_every_world)
    defaults = chosen.model_construct().model_dump(mode="json")
    return base.changed(algorithm={"name": algorithm, **defaults}, **_placed(values, chosen))


def read_setting(text: str) -> tuple[str, Any]:
    """Split ``"name=value"``; the value is JSON or a Python literal where it is one, else the text itself."""
    name, equals, value = (part.strip() for part in text.partition("="))
    if not equals or not name:
        raise SpecError(f"{text!r} is no setting; write --set NAME=VALUE, for example --set alpha=0.8")
    if value.lower() in ("none", "null"):
        return name, None
    for read in (json.loads, ast.literal_eval):
        with suppress(ValueError, SyntaxError):
            return name, read(value)
    return name, value


def read_seeds(text: str | None) -> list[int] | None:
    """Read ``"0,1,2"``."""
    if text is None:
        return None
    try:
        return [int(part) for part in text.strip("[] ").split(",")]
    except ValueError:
        raise SpecError(f"seeds {text!r} are not valid: write whole numbers with commas, for example 0,1,2") from None


def read_duration(option: str, text: str) -> float:
    """Read ``"90"``, ``"60s"``, ``"5m"`` or ``"1h"`` as seconds."""
    units = {"s": 1.0, "m": 60.0, "h": 3600.0}
    number, unit = (text[:-1], units[text[-1]]) if text[-1:] in units else (text, 1.0)
    try:
        seconds = float(number) * unit
    except ValueError:
        seconds = float("nan")
    if not 0 <= seconds < float("inf"):
        raise SpecError(f"{option} {text!r} is not valid: write a duration such as 60s, 5m or 1h")
    return seconds


def _placed(values: dict[str, Any], algorithm: type[Any]) -> dict[str, Any]:
    """Return the settings with bare parameters of `algorithm` moved to ``algorithm.…``."""
    from fl_core.experiments.explain import dotted_names
    from fl_core.experiments.spec import RunSpec

    placed = {}
    for name, value in values.items():
        head = name.partition(".")[0]
        if head in RunSpec.model_fields:
            placed[name] = value
        elif head in algorithm.model_fields:
            placed[f"algorithm.{name}"] = value
        else:
            raise _unknown_setting(name, algorithm, list(dotted_names(RunSpec)))
    return placed


def _unknown_setting(name: str, algorithm: type[Any], fields: list[str]) -> FlCoreError:
    from fl_core.experiments.explain import nearby

    parameters = list(algorithm.model_fields)
    inside = nearby(field for field in dict.fromkeys(fields) if field.endswith(f".{name}"))
    hint = f"; did you mean {' or '.join(map(repr, inside))}?" if inside else nearest(name, [*parameters, *fields])
    top = ", ".join(field for field in fields if "." not in field)
    return SpecError(
        f"unknown setting {name!r}{hint} (valid: {', '.join(parameters)} of {algorithm.name}; "
        f"{top} and what is inside them, see 'fl-core list fields')"
    )
