"""The chunks of a large piece of work, done by this process, by several, or by a dask cluster.

All three give the same bytes. Processes and clusters are used through the one interface of
``concurrent.futures``; the chunks of a worker that dies are computed again.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
    wait,
)
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar

from flowsim.errors import InputError

#: What is found of one chunk.
Result = TypeVar("Result")

#: Times that workers may die one after the other without a chunk being finished in between.
_PATIENCE = 3
#: Seconds to wait for a scheduler's answer.
_CONNECT = 10

#: An executor and how many chunks it should have at a time.
_Pool = tuple[Executor, Callable[[], int]]


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
        InputError: no scheduler answers, dask is not installed, or workers die again and again.
    """
    if scheduler is not None:
        return _through(lambda: _cluster(scheduler), work, task, chunks)
    if jobs > 1:
        return _through(lambda: _processes(jobs), work, task, chunks)
    return ((chunk, work(task(chunk))) for chunk in chunks)


def _through(
    open_pool: Callable[[], AbstractContextManager[_Pool]],
    work: Callable[[Any], Result],
    task: Callable[[int], Any],
    chunks: Iterable[int],
) -> Generator[tuple[int, Result], None, None]:
    """Results of a pool; when it breaks, another computes the chunks that are missing."""
    waiting, broken = deque(chunks), 0
    while waiting:
        running: dict[Future[Result], int] = {}
        try:
            with open_pool() as (pool, limit):
                while waiting or running:
                    while waiting and len(running) < limit():
                        future = _submit(pool, work, task(waiting[0]))
                        running[future] = waiting.popleft()
                    done = wait(running, return_when=FIRST_COMPLETED).done
                    for future in sorted(done, key=_has_failed):  # good results first
                        result = future.result()
                        broken = 0
                        yield running.pop(future), result
        except _lost_workers():
            broken += 1
            if broken == _PATIENCE:
                raise InputError(
                    "the workers keep dying, perhaps for want of memory; "
                    "the chunks that were finished are kept"
                ) from None
            waiting.extend(running.values())


def _has_failed(future: Future[Result]) -> bool:
    return future.cancelled() or future.exception() is not None


def _submit(pool: Executor, work: Callable[[Any], Result], task: object) -> Future[Result]:
    """Submit a chunk, with Ctrl-C blocked for processes that this starts: the parent handles it."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows: a worker ignores Ctrl-C once it has begun
        return pool.submit(work, task)
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return pool.submit(work, task)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


@contextmanager
def _processes(jobs: int) -> Iterator[_Pool]:
    """A pool of spawned processes, of which none is left when this is left."""
    before = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(
        jobs, mp_context=multiprocessing.get_context("spawn"), initializer=_begin_worker
    )
    try:
        yield pool, lambda: jobs + 2
        pool.shutdown()
    finally:  # after an error or Ctrl-C the chunks under way are abandoned
        pool.shutdown(wait=False, cancel_futures=True)
        for process in set(multiprocessing.active_children()) - before:
            process.terminate()


def _begin_worker() -> None:
    """Ignore Ctrl-C, which the parent handles, and end when the parent ends, however it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()

    def end_with_parent() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()


@contextmanager
def _cluster(address: str) -> Iterator[_Pool]:
    """The workers of a running dask scheduler."""
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
        client = Client(address, timeout=_CONNECT, set_as_default=False)
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
