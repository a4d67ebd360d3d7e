"""Scans by several processes and by a dask cluster: the bytes of a serial run, whoever dies."""

import itertools
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import closing, nullcontext

import numpy as np
import pytest

from flowsim import Grid, InputError, Interrupted, ModelChoice, Scan, cell_centres, write_scan
from flowsim.scan import workers as jobs_module
from flowsim.scan.plan import run_task
from flowsim.scan.workers import run_chunks

AXES = {"e": cell_centres(-2, 2, 12), "w": cell_centres(-2, 2, 8)}
SCAN = Scan(ModelChoice(), 0.5, 0.8, Grid(AXES), chunk=8)


@pytest.fixture(scope="module")
def serial(tmp_path_factory):
    return write_scan(SCAN, tmp_path_factory.mktemp("serial") / "a.nc").read_bytes()


@pytest.mark.slow
def test_a_killed_process_changes_nothing(tmp_path, serial):
    """Two processes, one of which is killed after the first chunk: its pool is replaced."""
    killed = []

    def kill_one(labels):
        if not killed:
            workers = multiprocessing.active_children()
            assert len(workers) == 2
            killed.append(workers[0].pid)
            os.kill(workers[0].pid, signal.SIGKILL)

    write_scan(SCAN, tmp_path / "a.nc", jobs=2, progress=kill_one)
    assert killed
    assert (tmp_path / "a.nc").read_bytes() == serial
    assert not multiprocessing.active_children()


def test_an_interrupt_leaves_no_process_behind(tmp_path, serial):
    def interrupt(labels):
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted, match="--resume"):
        write_scan(SCAN, tmp_path / "a.nc", jobs=2, progress=interrupt)
    deadline = time.monotonic() + 20
    while multiprocessing.active_children() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not multiprocessing.active_children()
    assert list((tmp_path / "a.nc.parts").glob("*.part"))
    write_scan(SCAN, tmp_path / "a.nc", resume=True)
    assert (tmp_path / "a.nc").read_bytes() == serial


def large(task):
    """16 MB, far more than a pipe takes at once."""
    return np.full(2_000_000, float(task))


def dying_in_its_result(task):
    """The first process that does a chunk ends a second later, while it sends what it found."""
    folder, chunk = task
    tries = folder / str(chunk)
    if not tries.exists():
        threading.Timer(1.0, os._exit, [1]).start()
    with tries.open("a") as process:
        process.write(f"{os.getpid()} ")
    return large(chunk)


def of_number(number):
    if number == 2:
        raise InputError("two is refused")
    return number


def of_death(number):
    if number == 1:
        os._exit(1)
    return number


@pytest.mark.slow
def test_processes_may_die_in_the_middle_of_a_result(tmp_path):
    """Whose rest nobody waits for: neither the loop nor, after an interruption, the exit."""
    begin = time.monotonic()
    with closing(run_chunks(large, int, range(3), jobs=2)) as results:
        _, first = next(results)
        time.sleep(1)  # the others write, and nobody reads
        assert multiprocessing.active_children()
    assert not multiprocessing.active_children() and time.monotonic() - begin < 60
    assert (first == first[0]).all()


@pytest.mark.slow
def test_a_result_that_broke_off_is_computed_again(tmp_path):
    found = {}
    for chunk, values in run_chunks(dying_in_its_result, lambda c: (tmp_path, c), range(3), jobs=2):
        if not found:
            time.sleep(3)  # the others write, nobody reads, and they end
        found[chunk] = values
    assert sorted(found) == [0, 1, 2]
    assert all((values == chunk).all() for chunk, values in found.items())
    tries = sorted(len((tmp_path / str(chunk)).read_text().split()) for chunk in range(3))
    assert tries == [1, 2, 2]


@pytest.mark.slow
def test_errors_of_processes_come_after_the_results_that_were_ready():
    found = []
    with pytest.raises(InputError, match="two is refused") as error:
        for chunk, _ in run_chunks(of_number, int, range(3), jobs=2):
            found.append(chunk)
    assert set(found) <= {0, 1}
    assert "in a worker" in error.value.__notes__[0] and "of_number" in error.value.__notes__[0]
    found = []
    with pytest.raises(InputError, match="keep dying"):
        for chunk, _ in run_chunks(of_death, int, range(4), jobs=2):
            found.append(chunk)
    assert sorted(found) == [0, 2, 3]
    assert not multiprocessing.active_children()


@pytest.mark.slow
def test_a_script_that_every_worker_would_run_is_told_so(tmp_path):
    (tmp_path / "script.py").write_text(
        "from flowsim.scan.workers import run_chunks\nprint(list(run_chunks(abs, int, [1], 2)))"
    )
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, text=True, capture_output=True, timeout=60
    )
    assert done.returncode == 1
    assert 'below if __name__ == "__main__":' in done.stderr.splitlines()[-1]


class Dying(Executor):
    """A pool whose workers die over every chunk but the first ``good``."""

    def __init__(self, good):
        self.good = good

    def submit(self, function, *arguments):
        future = Future()
        if self.good:
            self.good -= 1
            future.set_result(function(*arguments))
        else:
            future.set_exception(BrokenExecutor())
        return future


def test_chunks_of_a_broken_cluster_are_asked_of_the_next(monkeypatch):
    pools = []

    def open_pool(address):
        pools.append(next(goods))
        return nullcontext((Dying(pools[-1]), lambda: 3))

    monkeypatch.setattr(jobs_module, "open_cluster", open_pool)
    goods = iter([2, 0, 4, 0, 100])
    found = dict(run_chunks(run_task, SCAN.task, range(12), scheduler="x"))
    assert sorted(found) == list(range(12))
    assert pools == [2, 0, 4, 0, 100]
    goods = itertools.repeat(0)
    with pytest.raises(InputError, match="keep dying"):
        list(run_chunks(run_task, SCAN.task, range(12), scheduler="x"))
    assert len(pools) == 8


def test_a_worker_of_another_version_is_refused():
    task = SCAN.task(0)._replace(versions="flowsim 0.0.1")
    with pytest.raises(InputError, match=r"flowsim 0\.0\.1"):
        run_task(task)


def test_no_scheduler_is_one_sentence(tmp_path, monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr(jobs_module, "CONNECT", 0.3)
    for address in ("tcp://127.0.0.1:9", "nonsense://x", "nowhere"):
        with pytest.raises(InputError, match="no dask scheduler answers"):
            write_scan(SCAN, tmp_path / "a.nc", scheduler=address)
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_address_is_refused_at_once(tmp_path, monkeypatch):
    distributed = pytest.importorskip("distributed")
    monkeypatch.setattr(distributed, "Client", None)  # which would wait for half a minute
    for address in ("", "nowhere", "tcp://x", "a:b", "nonsense://x:1"):
        with pytest.raises(InputError, match="no dask scheduler answers"):
            write_scan(SCAN, tmp_path / "a.nc", scheduler=address)
    assert list(tmp_path.iterdir()) == []


def test_without_dask_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(InputError, match=r"flowsim\[cluster\]"):
        write_scan(SCAN, tmp_path / "a.nc", scheduler="tcp://127.0.0.1:9")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # distributed's own, about ports and unclosed sockets
def test_a_dask_cluster_gives_the_serial_bytes_also_when_a_worker_dies(tmp_path, serial):
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as cluster:
        address = cluster.scheduler_address
        write_scan(SCAN, tmp_path / "a.nc", scheduler=address)
        assert (tmp_path / "a.nc").read_bytes() == serial
        killed = []

        def kill_one(labels):
            if not killed:
                with distributed.Client(address, set_as_default=False) as client:
                    killed.append(client.run(os.getpid).popitem()[1])
                os.kill(killed[0], signal.SIGKILL)

        write_scan(SCAN, tmp_path / "b.nc", scheduler=address, progress=kill_one)
        assert killed
        assert (tmp_path / "b.nc").read_bytes() == serial
