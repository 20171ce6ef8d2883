"""Reference pages that are written by the code they describe: modules, commands, the build itself."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from fl_core.experiments.profiles import PROFILES

SHOWN = ("torch", "torchvision", "numpy", "scipy", "pandas", "matplotlib", "papermill", "jupyter-book")


def write_all(folder: Path, package: Path, profile: str, seconds: Mapping[str, float]) -> None:
    """Write ``api.md``, ``cli.md`` and ``build.md`` into `folder`, from where pages include them."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in (
        ("api.md", api(package)),
        ("cli.md", cli()),
        ("build.md", build_record(profile, seconds)),
    ):
        (folder / name).write_text(text, encoding="utf-8")


def modules(package: Path) -> list[str]:
    """Return the dotted names of every public module under the folder of a package, parents first."""
    found = []
    for path in package.rglob("*.py"):
        parts = [package.name, *path.relative_to(package).with_suffix("").parts]
        if parts[-1] == "__init__":
            parts.pop()
        if not any(p.startswith("_") for p in parts) and parts[:2] != [package.name, "cli"]:
            found.append(".".join(parts))
    return sorted(found)


def api(package: Path) -> str:
    """Return the Markdown that documents every public module."""
    text = []
    for name in modules(package):
        depth = min(2 + max(name.count(".") - 1, 0), 3)
        text += [f"{'#' * depth} {name}", "", "```{eval-rst}", f".. automodule:: {name}"]
        text += ["   :members:", "   :ignore-module-all:", "   :exclude-members: model_config", "```", ""]
    return "\n".join(text)


def cli() -> str:
    """Return the Markdown with the help text of ``fl-core`` and each of its commands."""
    from typer.main import get_command

    from fl_core.cli import app

    text = []
    for name, shown in _help(get_command(app), ["fl-core"], None):
        text += [f"## {name}", "", "```text", shown.rstrip(), "```", ""]
    return "\n".join(text)


def build_record(profile: str, seconds: Mapping[str, float]) -> str:
    """Return the Markdown that says at which profile, with what and how long the pages were executed."""
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in SHOWN)
    rows = [f"| {name} | {value:.1f} |" for name, value in seconds.items()]
    return "\n".join(
        [
            f"Profile **{profile}**: {PROFILES[profile].meaning}.",
            "",
            f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores.",
            f"Python {platform.python_version()}, {versions}.",
            "",
            "| notebook | seconds |",
            "| --- | ---: |",
            *rows,
            f"| **all** | {sum(seconds.values()):.1f} |",
            "",
        ]
    )


def timings(profile: str, seconds: Mapping[str, float]) -> str:
    """Return the same record as JSON, for programs."""
    return json.dumps({"profile": profile, "seconds": {k: round(v, 2) for k, v in seconds.items()}}, indent=1) + "\n"


def _help(command: Any, path: list[str], parent: Any) -> Iterator[tuple[str, str]]:
    command.rich_markup_mode = None  # plain text: boxes do not fit a phone
    settings = {**command.context_settings, "terminal_width": 78}
    context = command.context_class(command, info_name=path[-1], parent=parent, **settings)
    yield " ".join(path), command.get_help(context)
    for name, sub in getattr(command, "commands", {}).items():
        if not sub.hidden:
            yield from _help(sub, [*path, name], context)
