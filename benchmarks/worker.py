"""One contender of a benchmark in a process of its own, which its parent asks for run after run.

A process of its own gives every contender its own threads, compilation and peak memory, and keeps
it warm between the rounds in which the contenders take turns. The parent holds a ``Worker``; the
process runs ``python benchmarks/worker.py '{"module": …, "name": …, …}'`` and answers every line
on its standard input with one line of JSON.

A module of contenders has a dictionary ``CONTENDERS`` from names to functions of
(starts, task) that prepare and return ``run() -> array``; what is prepared is not timed.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

#: What a label array says of each start.
UNRESOLVED, GLOBAL_MINIMUM, LOCAL_MINIMUM = 0, 1, 2


class Worker:
    """The parent's end: starts the process, which runs once cold, and collects its timings."""

    def __init__(self, module: str, name: str, starts: np.ndarray, **task: Any) -> None:
        self.folder = tempfile.TemporaryDirectory()
        files = {key: str(Path(self.folder.name, f"{key}.npy")) for key in ("starts", "result")}
        np.save(files["starts"], starts)
        # the compiler's files are kept in a new folder, so that it always starts cold
        environment = os.environ | {"TORCHINDUCTOR_CACHE_DIR": self.folder.name}
        if module != "peers_diffrax":  # diffrax takes the threads it wants
            environment |= {"OMP_NUM_THREADS": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1"}
        command = [
            sys.executable,
            __file__,
            json.dumps({"module": module, "name": name} | task | files),
        ]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, text=True, env=environment
        )
        self.count = len(starts)
        self.first = self._answer()
        self.result = np.load(files["result"])
        self.rounds: list[dict[str, float]] = []

    def _answer(self) -> dict[str, float]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"a contender ended with exit code {self.process.wait()}")
        return json.loads(line)

    def run(self) -> None:
        """One more warm run."""
        assert self.process.stdin is not None
        self.process.stdin.write("run\n")
        self.process.stdin.flush()
        self.rounds.append(self._answer())

    def close(self) -> dict[str, float]:
        """End the process; medians per start, in µs, the cold start in s, peak memory in MiB."""
        self.process.communicate("")
        self.folder.cleanup()
        found = {"starts": self.count}
        for key in ("cpu", "wall"):
            warm = statistics.median([r[key] for r in self.rounds] or [self.first[key]])
            found[f"{key}_us"] = 1e6 * warm / self.count
            found[f"compile_{key}_s"] = max(0.0, self.first[key] - warm)
        found["peak_mib"] = max(r["peak"] for r in [self.first, *self.rounds])
        return found


def take_turns(workers: dict[str, Worker], rounds: int) -> dict[str, dict[str, float]]:
    """Every worker's medians, after ``rounds`` rounds in which each runs once."""
    for _ in range(rounds):
        for worker in workers.values():
            worker.run()
    return {name: worker.close() for name, worker in workers.items()}


def whole_process(command: list[str]) -> dict[str, float]:
    """CPU and wall time, in s, and peak memory, in MiB, of a command from start to end."""
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"{command[0]} ended with exit code {process.returncode}")
    return {
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "wall_s": wall,
        "peak_mib": usage.ru_maxrss / 1024,
    }


def main() -> None:
    """The process's end: run once cold, then once for every line."""
    task = json.loads(sys.argv[1])
    prepare = importlib.import_module(task["module"]).CONTENDERS[task["name"]]
    run = prepare(np.load(task["starts"]), task)
    answers = sys.stdout
    sys.stdout = sys.stderr

    def timed() -> tuple[np.ndarray, dict[str, float]]:
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        began, busy = time.perf_counter(), time.process_time()
        result = run()
        wall, cpu = time.perf_counter() - began, time.process_time() - busy
        after = resource.getrusage(resource.RUSAGE_CHILDREN)  # a compiler's processes
        cpu += after.ru_utime - children.ru_utime + after.ru_stime - children.ru_stime
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        return result, {"cpu": cpu, "wall": wall, "peak": peak}

    result, first = timed()
    np.save(task["result"], result)
    print(json.dumps(first), file=answers, flush=True)
    for _ in sys.stdin:
        print(json.dumps(timed()[1]), file=answers, flush=True)


if __name__ == "__main__":
    main()
