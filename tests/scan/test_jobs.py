"""Scans by several processes and by a dask cluster: the bytes of a serial run, whoever dies."""

import multiprocessing
import os
import signal
import sys
import time
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import nullcontext

import pytest

from flowsim import Grid, InputError, Interrupted, ModelChoice, Scan, cell_centres, write_scan
from flowsim.scan import workers as jobs_module
from flowsim.scan.plan import run_task

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


def test_chunks_of_a_broken_pool_are_followed_by_the_next():
    pools = []

    def open_pool(good):
        pools.append(good)
        return nullcontext((Dying(good), lambda: 3))

    goods = iter([2, 0, 4, 0, 100])
    found = dict(
        jobs_module._through(lambda: open_pool(next(goods)), run_task, SCAN.task, range(12))
    )
    assert sorted(found) == list(range(12))
    assert pools == [2, 0, 4, 0, 100]
    with pytest.raises(InputError, match="keep dying"):
        list(jobs_module._through(lambda: open_pool(0), run_task, SCAN.task, range(12)))
    assert len(pools) == 8


def test_a_worker_of_another_version_is_refused():
    task = SCAN.task(0)._replace(versions="flowsim 0.0.1")
    with pytest.raises(InputError, match=r"flowsim 0\.0\.1"):
        run_task(task)


def test_no_scheduler_is_one_sentence(tmp_path, monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr(jobs_module, "_CONNECT", 0.3)
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
