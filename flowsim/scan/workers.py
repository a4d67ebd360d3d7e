"""The chunks of a large piece of work, done by this process, by several, or by a dask cluster.

All three give the same bytes; the chunks of a worker that dies are computed again.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
import traceback
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    wait,
)
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for_pipes
from multiprocessing.process import BaseProcess
from typing import Any, TypeAlias, TypeVar, cast

from flowsim.errors import InputError

#: What is found of one chunk.
Result = TypeVar("Result")

#: Times that the worker of one chunk may die, or a cluster without finishing a chunk in between.
_PATIENCE = 3
#: Seconds to wait for a scheduler's answer.
CONNECT = 10

#: One end of the pipe between this process and a worker.
_Pipe: TypeAlias = "Connection[Any, Any]"

_DYING = (
    "the workers keep dying, perhaps for want of memory; the chunks that were finished are kept"
)
_NEVER_BEGAN = (
    "the workers end before they begin: every worker loads the script that asks for several jobs, "
    'which must be a file that does so below if __name__ == "__main__":'
)


def run_chunks(
    work: Callable[[Any], Result],
    task: Callable[[int], Any],
    chunks: Iterable[int],
    jobs: int = 1,
    scheduler: str | None = None,
) -> Generator[tuple[int, Result], None, None]:
    """Results of the given chunks as (chunk, result), in the order in which they are finished.

    Args:
        work: what is done of one chunk, a pure function at the top of its module.
        task: its argument by the number of the chunk: plain data.
        chunks: which chunks.
        jobs: processes; 1 computes in this one.
        scheduler: address of a running dask scheduler, which then does the work instead.

    Raises:
        InputError: no scheduler answers, dask is not installed, workers die again and again, or
            none begins, as for a script without ``if __name__ == "__main__"``.
    """
    if scheduler is not None:
        return _by_cluster(scheduler, work, task, chunks)
    if jobs > 1:
        return by_processes(jobs, work, task, chunks)
    return ((chunk, work(task(chunk))) for chunk in chunks)


def by_processes(
    jobs: int,
    work: Callable[[Any], Result],
    task: Callable[[int], Any],
    chunks: Iterable[int],
) -> Generator[tuple[int, Result], None, None]:
    """Results of spawned processes, of which none is left when this ends, however it ends.

    Each process has a pipe of its own and none shares a lock with another, so that each may die at
    any moment, in the middle of a result too: its pipe then ends, and its chunk goes to another.
    ``ProcessPoolExecutor`` reads the results of all from one pipe, and waits for ever for the rest
    of a result whose worker was killed.
    """
    waiting, deaths, began = deque(chunks), Counter[int](), False
    workers: dict[_Pipe, BaseProcess] = {}  # by the parent's end of their pipes
    busy: dict[_Pipe, int] = {}

    def give(pipe: _Pipe) -> None:
        busy[pipe] = waiting.popleft()
        with suppress(OSError):  # it is dead, and its pipe says so below
            pipe.send(task(busy[pipe]))

    try:
        while waiting or busy:
            for _ in range(min(jobs, len(waiting) + len(busy)) - len(workers)):
                _start_worker(work, workers)
            for pipe in [pipe for pipe in workers if pipe not in busy][: len(waiting)]:
                give(pipe)
            failed: Exception | None = None
            for ready in wait_for_pipes(list(busy)):
                pipe = cast(_Pipe, ready)
                chunk = busy.pop(pipe)
                try:
                    answer = pipe.recv()
                except (EOFError, OSError):
                    workers.pop(pipe).join()
                    deaths[chunk] += 1
                    if not began or deaths[chunk] == _PATIENCE:
                        raise InputError(_DYING if began else _NEVER_BEGAN) from None
                    waiting.append(chunk)
                    continue
                if answer is None:  # it has begun
                    began, busy[pipe] = True, chunk
                    continue
                result, error = answer
                if waiting:  # before this process turns to the result
                    give(pipe)
                if error is None:
                    yield chunk, result
                failed = failed or error
            if failed is not None:  # after the good results
                raise failed
    finally:  # after an error or Ctrl-C the chunks under way are abandoned
        for pipe, process in workers.items():
            process.kill()
            process.join()
            pipe.close()


def _start_worker(work: Callable[[Any], Result], workers: dict[_Pipe, BaseProcess]) -> None:
    """Start a process and enter it, with Ctrl-C blocked for it: the parent answers that."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, work), daemon=True)
    masks = hasattr(signal, "pthread_sigmask")  # Windows: a worker ignores it once it has begun
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}) if masks else None
    try:
        process.start()
    finally:
        if before is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()  # of which the worker has the only one now, so that its end is the pipe's
    workers[ours] = process


def _serve(pipe: _Pipe, work: Callable[[Any], Any]) -> None:
    """In a worker: None, then (result, None) or (None, error) for each task until the pipe ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()

    def end_with_parent() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()
    with suppress(EOFError, OSError):
        pipe.send(None)
        while True:
            task = pipe.recv()
            result, failed = None, None
            try:
                result = work(task)
            except Exception as error:
                error.add_note(f"in a worker:\n{traceback.format_exc()}")
                failed = error
            pipe.send((result, failed))


def _by_cluster(
    address: str,
    work: Callable[[Any], Result],
    task: Callable[[int], Any],
    chunks: Iterable[int],
) -> Generator[tuple[int, Result], None, None]:
    """Results of a dask cluster; when workers are lost, a new client asks for what is missing."""
    waiting, broken = deque(chunks), 0
    while waiting:
        running: dict[Future[Result], int] = {}
        try:
            with open_cluster(address) as (pool, limit):
                while waiting or running:
                    while waiting and len(running) < limit():
                        future = pool.submit(work, task(waiting[0]))
                        running[future] = waiting.popleft()
                    done = wait(running, return_when=FIRST_COMPLETED).done
                    for future in sorted(done, key=_has_failed):  # good results first
                        result = future.result()
                        broken = 0
                        yield running.pop(future), result
        except _lost_workers():
            broken += 1
            if broken == _PATIENCE:
                raise InputError(_DYING) from None
            waiting.extend(running.values())


def _has_failed(future: Future[Result]) -> bool:
    return future.cancelled() or future.exception() is not None


@contextmanager
def open_cluster(address: str) -> Iterator[tuple[Executor, Callable[[], int]]]:
    """The workers of a running dask scheduler, and how many chunks they should have at a time."""
    try:
        from distributed import Client
        from distributed.comm import parse_address, parse_host_port
        from distributed.comm.registry import get_backend
    except ImportError:
        raise InputError("--scheduler needs dask.distributed: install flowsim[cluster]") from None
    for name in ("distributed", "distributed.core", "distributed.client", "distributed.comm"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # repeats the error
    try:
        kind, place = parse_address(address)  # a client of a bad address ends after half a minute
        get_backend(kind)
        if kind in ("tcp", "tls"):
            parse_host_port(place)
        client = Client(address, timeout=CONNECT, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"no dask scheduler answers at {address!r} ({reason})") from None
    try:
        pool = client.get_executor(pure=False)
        yield pool, lambda: 2 * sum(client.ncores().values()) + 2
    finally:
        client.close()


def _lost_workers() -> tuple[type[BaseException], ...]:
    """What a future raises when its worker, or the scheduler, went away."""
    here: tuple[type[BaseException], ...] = (BrokenExecutor, CancelledError)
    try:
        from distributed import KilledWorker
        from distributed.comm import CommClosedError
    except ImportError:
        return here
    return (*here, CommClosedError, KilledWorker)
