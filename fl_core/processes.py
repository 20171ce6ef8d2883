"""Processes that end when they should: with their parent, however that ends, and soon when interrupted."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

T = TypeVar("T")
WORKER = "fl-core worker"
"""Name of the threads that compute local jobs."""
GRACE_SECONDS = 1.0
"""So long may workers take to clear up after themselves before they are killed."""
PR_SET_PDEATHSIG = 1
"""Linux's name for the signal that a process gets when its parent has ended."""


def end_on_signals(silently: bool = False) -> None:
    """Have SIGTERM and SIGHUP end this process as Ctrl-C does, so that it clears up; nothing more is said then.

    One that is ignored stays so: nohup wants that of SIGHUP.
    """

    def interrupt(number: int, frame: object) -> None:
        if silently:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        raise KeyboardInterrupt

    for name in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, name) and signal.getsignal(number := getattr(signal, name)) != signal.SIG_IGN:
            signal.signal(number, interrupt)


def usable_cores() -> int:
    """Return the number of processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def begin_worker() -> None:
    """Let a worker process end with its parent, and leave Ctrl-C to that, which ends its workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_on_signals(silently=True)
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def end_with_parent() -> None:
    """Have the system end this process, and those that it forks, as soon as their parents have ended (Linux)."""

    def bind() -> None:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

    if sys.platform == "linux":
        bind()
        os.register_at_fork(after_in_child=bind)


@contextmanager
def pool(jobs: int, begin: Callable[[], None] = begin_worker) -> Iterator[ProcessPoolExecutor]:
    """Yield a pool of spawned processes; if the caller is interrupted, end them without waiting for their work."""
    workers = ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn"), initializer=begin)
    try:
        yield workers
    except BaseException:
        processes = list((workers._processes or {}).values())
        workers.shutdown(wait=False, cancel_futures=True)
        end(processes)
        raise
    workers.shutdown()


def apart(number: int, function: Callable[..., T], arguments: Sequence[Any]) -> list[T | None]:
    """Call `function` in `number` spawned processes and return its results, None where the process was killed.

    One that is killed takes none of the others with it.
    """
    context, answers, processes = multiprocessing.get_context("spawn"), [], []
    try:
        for _ in range(number):
            answer, send = context.Pipe(duplex=False)
            processes.append(context.Process(target=_answer, args=(send, function, arguments), daemon=True))
            processes[-1].start()
            send.close()
            answers.append(answer)
        return [_received(answer) for answer in answers]
    finally:
        end(processes)


def end(processes: Iterable[BaseProcess]) -> None:
    """End `processes`: those that are still there are asked to, and killed if they do not in time."""
    alive, by = [process for process in processes if process.is_alive()], time.monotonic() + GRACE_SECONDS
    for process in alive:
        process.terminate()
    for process in alive:
        process.join(max(0.0, by - time.monotonic()))
        process.kill()


def _answer(send: Any, function: Callable[..., Any], arguments: Sequence[Any]) -> None:
    begin_worker()
    try:
        send.send(function(*arguments))
    except Exception as error:
        send.send(error)
    except KeyboardInterrupt:
        os._exit(1)


def _received(answer: Any) -> Any:
    try:
        found = answer.recv()
    except EOFError:
        return None
    if isinstance(found, Exception):
        raise found
    return found
