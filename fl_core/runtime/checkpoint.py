"""Keep the whole state of a run on disk, and go on from it bit for bit.

A checkpoint is taken between two events, when every server program waits at the beginning of a turn. It holds the
clock, the timers, the server's and the devices' state, uploads that wait, and for each task in flight what it has
seen since its trigger: numbers as tensors, and JSON that says what they are. Nothing in it is executed.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError

from fl_core.errors import RunError
from fl_core.runtime import checkpoint_file
from fl_core.runtime.plain import Reader, Writer
from fl_core.runtime.state import state_of
from fl_core.runtime.turns import alive, at_rest, watch_turns

if TYPE_CHECKING:
    from fl_core.runtime.simulation import Simulation

FORMAT = 1
"""Raised when older checkpoints can no longer be read."""

CURRENT, PREVIOUS = "checkpoint.safetensors", "previous.safetensors"
PATIENCE = 100
"""After so many events at which a checkpoint was due and impossible, a warning says why."""


class Checkpoints:
    """Where a run keeps its last two states.

    Parameters
    ----------
    folder : Path
        Made if need be; it should hold nothing else.
    every_seconds : float
        Wall time between two checkpoints; 0: at every opportunity.
    identity : str
        What must be equal for a checkpoint to be used: the canonical specification of the run.
    code : str
        Digest of the code that computes the run; a checkpoint of other code is refused.
    when : callable, optional
        Instead of the time: told the number of events so far, says whether to write.

    Notes
    -----
    States may hold numbers, text, tensors, arrays, random generators, and lists, tuples, sets, deques and
    dictionaries of them; what was one object stays one object. A set comes back with its members, but may be iterated
    over in another order: sort them where the order matters.
    """

    def __init__(
        self,
        folder: Path,
        every_seconds: float = 60.0,
        identity: str = "",
        when: Callable[[int], bool] | None = None,
        code: str = "",
    ) -> None:
        self.folder, self.every_seconds, self.when = folder, every_seconds, when
        self.identity, self.code = identity, code
        self.written = 0
        self._current_is_whole = True
        self._missed, self._warned = 0, False
        self._restless: set[str] = set()

    def watch(self, run: Simulation) -> None:
        """Write checkpoints of `run` as it goes on."""
        self._run, self._next = run, time.monotonic() + self.every_seconds
        run.kernel.boundary = self._boundary
        for (number, _), program in alive(run).items():
            watch_turns(program, run.servers[number])

    def _boundary(self) -> None:
        run = self._run
        due = self.when(run.kernel.events) if self.when else time.monotonic() >= self._next
        if not due:
            return
        if at_rest(run):
            self.write(run)
            self._next, self._missed = time.monotonic() + self.every_seconds, 0
        else:
            self._miss(run)

    def _miss(self, run: Simulation) -> None:
        """Note that a checkpoint was due and impossible; if that goes on, say so, once."""
        restless = {str(program.name) for program in alive(run).values() if not program.at_rest}
        self._restless = (self._restless & restless or restless) if self._missed else restless
        self._missed += 1
        if self._missed >= PATIENCE and time.monotonic() >= self._next + self.every_seconds and not self._warned:
            self._warned = True
            warnings.warn(
                f"no checkpoint can be stored: {' and '.join(sorted(self._restless))} did not wait at the beginning "
                f"of a turn at any of the last {self._missed} events. A turn waits first, acts then, and returns; "
                "the runtime repeats it, so it needs no loop",
                stacklevel=2,
            )

    def write(self, run: Simulation) -> None:
        """Store the state of `run`, which must be between two events; the previous checkpoint is kept beside it.

        Raises
        ------
        RunError
            If the state holds something that cannot be stored, or if the file cannot be written.
        """
        run.measurements.collect()
        writer = Writer()
        text = writer.text(state_of(run))
        metadata = {"format": str(FORMAT), "identity": self.identity, "code": self.code, "torch": torch.__version__}
        fresh, current = self.folder / f"{CURRENT}.new", self.folder / CURRENT
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with fresh.open("wb") as file:
                checkpoint_file.write(file, metadata, text, writer.tensors)
            if current.exists() and self._current_is_whole:
                current.replace(self.folder / PREVIOUS)
            fresh.replace(current)
        except OSError as error:
            with suppress(OSError):
                fresh.unlink()
            raise RunError(
                f"cannot write a checkpoint to {self.folder} ({error.strerror or error}); what was stored there "
                "before is untouched, and the run goes on from it when it is resumed"
            ) from error
        self._current_is_whole = True
        self.written += 1

    def load(self) -> dict[str, Any] | None:
        """Return the state in the last checkpoint that can be used, or None if there is none.

        Raises
        ------
        RunError
            If there are checkpoints, but each of them is damaged, of another run or of another format.
        """
        problems = []
        for name in (CURRENT, PREVIOUS):
            path = self.folder / name
            if not path.exists():
                continue
            try:
                state = self._read(path)
            except (SafetensorError, OSError, ValueError) as error:
                problems.append(f"{path} {error}" if isinstance(error, _Unusable) else f"{path} is damaged ({error})")
                self._current_is_whole = False
                continue
            if problems:
                warnings.warn(f"{problems[0]}; the run goes on from the one before it", stacklevel=2)
            return state
        if problems:
            raise RunError(f"{'; '.join(problems)}; delete {self.folder} to begin again")
        return None

    def clear(self) -> None:
        """Delete the checkpoints of a run that has ended."""
        for name in (CURRENT, PREVIOUS, f"{CURRENT}.new"):
            (self.folder / name).unlink(missing_ok=True)
        if self.folder.is_dir() and not any(self.folder.iterdir()):
            self.folder.rmdir()

    def _read(self, path: Path) -> dict[str, Any]:
        header = checkpoint_file.read_metadata(path)
        if header["format"] != str(FORMAT):
            raise _Unusable(
                f"has format {header['format']}, but this version reads format {FORMAT}: finish the run with the "
                "version that wrote it"
            )
        if header["identity"] != self.identity:
            raise _Unusable("belongs to another run")
        if header.get("code", "") != self.code:
            raise _Unusable("was written by other code, so the run would be a mixture")
        text, tensors = checkpoint_file.read(path)
        if header["torch"] != torch.__version__:
            warnings.warn(
                f"{path} was written with PyTorch {header['torch']}, this is {torch.__version__}: "
                "the result may differ in the last bits from that of an uninterrupted run",
                stacklevel=2,
            )
        state: dict[str, Any] = Reader(tensors).full(json.loads(text))
        return state


class _Unusable(ValueError):
    """A whole checkpoint, but not one for this run."""
