"""The chunks of a large piece of work, done by this process, by several, or by a dask cluster.

All three give the same bytes; the chunks of a worker that dies are computed again.
"""

from __future__ import annotations

import logging
import os
import pickle
import shutil
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent import futures
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, TypeVar

from flowsim.errors import InputError

#: Result of one chunk.
Result = TypeVar("Result")

#: Times that workers may die without finishing a chunk in between.
_PATIENCE = 3
#: Seconds to wait for a scheduler's answer.
CONNECT = 10

_DYING = (
    "the workers keep dying, perhaps for want of memory; the chunks that were finished are kept"
)


class Pool(NamedTuple):
    """Workers: how to submit pickled work, how to read an answer, how many tasks may wait."""

    submit: Callable[[bytes], futures.Future[Any]]
    result: Callable[[Any], Any]
    limit: Callable[[], int]


def run_chunks(
    work: Callable[[Any], Result],
    task: Callable[[int], Any],
    chunks: Iterable[int],
    jobs: int = 1,
    scheduler: str | None = None,
) -> Generator[tuple[int, Result], None, None]:
    """Compute chunks, and yield (chunk, result) in the order in which they are finished.

    ``task`` gives the task of a chunk by its number, ``work`` the result of a task.

    Work and tasks reach other processes by cloudpickle, so that both may hold what a script or a
    notebook defines.

    Raises:
        InputError: no scheduler answers, dask is not installed, or workers die again and again.
    """
    waiting = deque(chunks)
    if scheduler is not None:
        return _by_workers(partial(open_cluster, scheduler), work, task, waiting)
    if jobs > 1:
        return _by_workers(partial(open_processes, min(jobs, len(waiting))), work, task, waiting)
    return ((chunk, work(task(chunk))) for chunk in waiting)


def _by_workers(
    open_pool: Callable[[], AbstractContextManager[Pool]],
    work: Callable[[Any], Result],
    task: Callable[[int], Any],
    waiting: deque[int],
) -> Generator[tuple[int, Result], None, None]:
    """Yield (chunk, result) from a pool of workers; after a loss a new one does what is missing."""
    import cloudpickle

    broken = 0
    while waiting:
        running: dict[futures.Future[Any], int] = {}
        try:
            with open_pool() as pool:
                while waiting or running:
                    # after a loss one at a time, so that what kills a worker takes no other along
                    while waiting and len(running) < (1 if broken else pool.limit()):
                        future = pool.submit(cloudpickle.dumps((work, task(waiting[0]))))
                        running[future] = waiting.popleft()
                    done = futures.wait(running, return_when=futures.FIRST_COMPLETED).done
                    # good results first
                    for future in sorted(done, key=lambda x: x.cancelled() or bool(x.exception())):
                        result = pool.result(future.result())
                        broken = 0
                        yield running.pop(future), result
        except _lost_workers():
            broken += 1
            if broken == _PATIENCE:
                raise InputError(_DYING) from None
            waiting.extend(running.values())


def run_pickled(pickled: bytes) -> bytes:
    """In a worker: do pickled work, a pair (work, task), and return the pickled result."""
    import cloudpickle

    work, task = pickle.loads(pickled)
    found: bytes = cloudpickle.dumps(work(task))
    return found


@contextmanager
def open_processes(jobs: int) -> Iterator[Pool]:
    """Open a pool of processes, of which none is left when this ends, however it ends.

    Work and results lie in files. All processes share the pool's two pipes, and one that is killed
    in the middle of a long message leaves the others waiting for its rest; the names of files are
    so short that a pipe takes them whole or not at all.

    A thread starts the processes: Python interrupts the main thread alone, and one that is
    interrupted between two starts leaves the first process waiting for work forever.
    """
    from loky import ProcessPoolExecutor

    with TemporaryDirectory(prefix="flowsim-", ignore_cleanup_errors=True) as folder:
        pool = ProcessPoolExecutor(
            jobs, initializer=_exit_with_parent, initargs=(os.getpid(), folder)
        )
        names = (Path(folder, str(number)) for number in count())

        def submit(pickled: bytes) -> futures.Future[Any]:
            """Write the work to a new file, and let a process answer in it."""
            name = next(names)
            name.write_bytes(pickled)
            return starter.submit(pool.submit, _answer_in_file, name).result()

        starter = futures.ThreadPoolExecutor(1, initializer=_block_signals)
        try:
            yield Pool(submit, _load_result, lambda: 2 * jobs)
        finally:
            starter.shutdown()
            pool.shutdown(kill_workers=True)


def _answer_in_file(path: Path) -> Path:
    """In a worker: do the pickled work in a file, and put its result in the place of the work."""
    path.write_bytes(run_pickled(path.read_bytes()))
    return path


def _load_result(path: Path) -> Any:
    """Read the result in a file, and remove the file."""
    result = pickle.loads(path.read_bytes())
    path.unlink()
    return result


def _block_signals() -> None:
    """Block Ctrl-C and SIGTERM in all processes that this thread starts: the parent kills them."""
    if hasattr(signal, "pthread_sigmask"):  # not on Windows
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})


def _exit_with_parent(parent: int, folder: str) -> None:
    """In a worker: end, and remove the folder, when the parent is no more."""

    def watch() -> None:
        """Wait until the parent is no more, then remove the folder and end."""
        while os.getppid() == parent:
            time.sleep(0.5)
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def open_cluster(address: str) -> Iterator[Pool]:
    """Open the workers of a running dask scheduler as a pool."""
    try:
        from distributed import Client
        from distributed.comm import parse_address, parse_host_port
        from distributed.comm.registry import get_backend
    except ImportError:
        raise InputError('--scheduler needs dask.distributed: pip install ".[cluster]"') from None
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
        executor = client.get_executor(pure=False)
        yield Pool(
            partial(executor.submit, run_pickled),
            pickle.loads,
            lambda: 2 * sum(client.ncores().values()) + 2,
        )
    finally:
        client.close()


def _lost_workers() -> tuple[type[BaseException], ...]:
    """The exceptions of a future whose worker, or scheduler, is gone."""
    here: tuple[type[BaseException], ...] = (futures.BrokenExecutor, futures.CancelledError)
    try:
        from distributed import KilledWorker
        from distributed.comm import CommClosedError
    except ImportError:
        return here
    return (*here, CommClosedError, KilledWorker)
