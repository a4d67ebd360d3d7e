"""Scans by several processes and by a dask cluster: the bytes of a serial run, whoever dies."""

import itertools
import os
import pickle
import signal
import subprocess
import sys
from concurrent.futures import BrokenExecutor, Future
from contextlib import nullcontext, suppress
from pathlib import Path

import numpy as np
import pytest
from elsewhere import of_death, of_number

from flowsim import Grid, InputError, ModelSpec, read_record
from flowsim.scan import Scan, cell_centres, write_scan
from flowsim.scan import workers as jobs_module
from flowsim.scan.plan import run_task
from flowsim.scan.workers import Pool, run_chunks, run_pickled

AXES = {"e": cell_centres(-2, 2, 12), "w": cell_centres(-2, 2, 8)}
SCAN = Scan(ModelSpec.first("canonical"), Grid(AXES), chunk=8)


@pytest.fixture(scope="module")
def serial(tmp_path_factory):
    return write_scan(SCAN, tmp_path_factory.mktemp("serial") / "a.nc").read_bytes()


def processes():
    """The workers of this process, by their parents' numbers in /proc."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            number, rest = stat.read_text().split(" (", 1)
            state, parent = rest.rpartition(")")[2].split()[:2]
            command = stat.with_name("cmdline").read_text()
            if int(parent) == os.getpid() and state != "Z" and "popen_loky" in command:
                found.append(int(number))
    return found


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """Where temporary files go, which must all be gone at the end."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    yield folder
    assert list(folder.iterdir()) == []
    assert processes() == []


@pytest.mark.slow
def test_a_killed_process_changes_nothing(tmp_path, temporary, serial):
    """Two processes, one of which is killed after the first chunk: its pool is replaced."""
    killed = []

    def kill_one(labels):
        if not killed:
            workers = processes()
            assert len(workers) == 2
            killed.append(workers[0])
            os.kill(workers[0], signal.SIGKILL)

    write_scan(SCAN, tmp_path / "a.nc", jobs=2, progress=kill_one)
    assert killed
    assert (tmp_path / "a.nc").read_bytes() == serial


@pytest.mark.slow
@pytest.mark.turns
def test_errors_of_processes_come_after_the_results_that_were_ready(temporary):
    found = []
    with pytest.raises(InputError, match="two is refused") as error:
        for chunk, _ in run_chunks(of_number, int, range(3), jobs=2):
            found.append(chunk)
    assert set(found) <= {0, 1}
    assert "of_number" in str(error.value.__cause__)  # where in the worker
    found = []
    with pytest.raises(InputError, match="keep dying"):
        for chunk, _ in run_chunks(of_death, int, range(4), jobs=2):
            found.append(chunk)
    assert sorted(found) == [0, 2, 3]


MINE = """
import sys, flowsim, numpy as np

class DoubleWell(flowsim.Model):
    coordinates = ("x", "y")

    def __init__(self, tilt):
        self.tilt = tilt

    def options(self):
        return {"tilt": self.tilt}

    def loss(self, theta):
        x, y = theta.unbind(-1)
        return (x**2 - 1) ** 2 / 4 + y**2 / 2 + self.tilt * x

side = np.linspace(-1.5, 1.5, 6)
for tilt in (0.2, 0.1):
    scan = flowsim.scan.Scan(
        DoubleWell(tilt), flowsim.Grid({"x": side, "y": side}), chunk=9)
    try:
        flowsim.scan.write_scan(scan, sys.argv[1], resume=True, jobs=2)
    except flowsim.InputError as error:
        print(error)
"""


@pytest.mark.slow
@pytest.mark.turns
def test_a_model_of_the_script_itself_reaches_the_processes(tmp_path):
    """Without a guard, as in a notebook; and a scan of another model is another scan."""
    (tmp_path / "script.py").write_text(MINE)
    words = [sys.executable, "script.py", "a.nc"]
    done = subprocess.run(words, cwd=tmp_path, text=True, capture_output=True, timeout=100)
    assert (done.returncode, done.stderr) == (0, "")
    assert "record of other settings (tilt: 0.2, now 0.1)" in done.stdout
    record = read_record(tmp_path / "a.nc")
    assert record.attrs["model"] == "DoubleWell"
    wells = np.sign(record["limit_x"]).transpose("x", "y").to_numpy()
    assert (wells[:2] == -1).all() and (wells[-2:] == 1).all()
    (tmp_path / "script.py").write_text(MINE.replace("/ 4", "/ 5"))
    done = subprocess.run(words, cwd=tmp_path, text=True, capture_output=True, timeout=100)
    assert "source_digest: " in done.stdout


STARTING = """
import os, signal, threading, time
from loky.backend.process import LokyProcess
from flowsim.scan.workers import run_chunks

def start_and_interrupt(process):
    start(process)
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.3)

start, LokyProcess.start = LokyProcess.start, start_and_interrupt
threading.Thread(target=time.sleep, args=[60], daemon=True).start()  # the signal may reach it
try:
    list(run_chunks(abs, range(4).__getitem__, range(4), jobs=2))
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_an_interruption_between_the_starts_of_two_workers_leaves_none():
    """The first worker waited for work, and the process for its end."""
    words = [sys.executable, "-c", STARTING]
    done = subprocess.run(words, text=True, capture_output=True, timeout=60)
    assert done.stdout == "interrupted\n"


class Dying:
    """What submits to workers that die over every chunk but the first ``good``."""

    def __init__(self, good):
        self.good = good

    def __call__(self, pickled):
        future = Future()
        if self.good:
            self.good -= 1
            future.set_result(run_pickled(pickled))
        else:
            future.set_exception(BrokenExecutor())
        return future


def test_chunks_of_a_broken_cluster_are_asked_of_the_next(monkeypatch):
    pools = []

    def open_pool(address):
        pools.append(next(goods))
        return nullcontext(Pool(Dying(pools[-1]), pickle.loads, lambda: 3))

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


def test_what_is_no_address_is_refused_at_once(tmp_path, monkeypatch):
    distributed = pytest.importorskip("distributed")
    monkeypatch.setattr(distributed, "Client", None)  # which would wait for half a minute
    for address in ("", "nowhere", "tcp://x", "a:b", "nonsense://x:1"):
        with pytest.raises(InputError, match="no dask scheduler answers"):
            write_scan(SCAN, tmp_path / "a.nc", scheduler=address)
    assert list(tmp_path.iterdir()) == []


def test_without_dask_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(InputError, match=r"\.\[cluster\]"):
        write_scan(SCAN, tmp_path / "a.nc", scheduler="tcp://127.0.0.1:9")


@pytest.mark.slow
@pytest.mark.turns
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
