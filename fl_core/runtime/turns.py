"""What server programs must keep to so that a run can be stored: a turn waits first, and changes nothing before."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from fl_core.runtime.checkpoint_file import CHECKSUM_BYTES, buffer
from fl_core.runtime.plain import Owned, Writer
from fl_core.runtime.programs import Program
from fl_core.runtime.server import ServerHandle

if TYPE_CHECKING:
    from fl_core.runtime.simulation import Simulation


def at_rest(run: Simulation) -> bool:
    """Say whether the state between two events can be stored: every server program is at the beginning of a turn."""
    return all(program.at_rest for program in alive(run).values())


def alive(run: Simulation) -> dict[tuple[int, str], Program]:
    """Return the server programs that are not over, by server and name."""
    return {key: program for key, program in run.programs.items() if program in run.kernel._alive}


def watch_turns(program: Program, server: ServerHandle) -> None:
    """Have a warning given if `program` changes, before it waits, what is stored: begun again, it would do so twice.

    The first turn may initialise the state. Of the others those are looked at whose numbers are powers of two, so
    that it costs next to nothing.
    """
    begin, turn, warned = program.begin, 0, False

    def watched() -> Any:
        nonlocal turn
        turn += 1
        coroutine = begin()
        return coroutine if warned or turn & (turn - 1) else _Watched(coroutine, program, server, warn)

    def warn() -> None:
        nonlocal warned
        warned = True
        warnings.warn(
            f"{program.name} changes server.state, or draws from server.rng, before it waits: unless that gives the "
            "same when it is done again, the run cannot be resumed from its checkpoints",
            stacklevel=2,
        )

    program.begin = watched


class _Watched:
    """A coroutine up to its first wait; then the program has the coroutine itself."""

    def __init__(
        self, coroutine: Coroutine[Any, Any, Any], program: Program, server: ServerHandle, warn: Callable[[], None]
    ) -> None:
        self.coroutine, self.program, self.server, self.warn = coroutine, program, server, warn
        self.close = coroutine.close

    def send(self, value: Any) -> Any:
        before = fingerprint(self.server)
        wish = self.coroutine.send(value)
        self.program.coroutine, self.program.send = self.coroutine, self.coroutine.send
        if self.program.at_rest and fingerprint(self.server) != before:
            self.warn()
        return wish


def fingerprint(server: ServerHandle) -> tuple[str, bytes]:
    """Return what tells two states of `server` apart, as far as a program may change it before it waits."""
    writer = Writer()
    text = writer.text(Owned("server.state", server.state)) + writer.text(server.rng.bit_generator.state)
    digest = hashlib.blake2b(digest_size=CHECKSUM_BYTES)
    for tensor in writer.tensors:
        digest.update(buffer(tensor))
    return text, digest.digest()
