"""What a newcomer waits for: the explorer's address, a figure redrawn, training, a scan's writing.

    python benchmarks/first_hour.py [explore] [redraw] [train] [write]

- explore: from the start of ``flowsim explore`` to its address, in turn with an import of what
  serves it.
- redraw: ``flowsim portrait --from`` of a stored portrait, in turn with an import of what draws.
- train: 500 steps of a small transformer, alone and beside two busy loops in turn.
- write: a scan of 400 x 400 on one process: following the starts, and all that comes after it.

Printed are medians of seconds and of the processor's seconds. Other work on the machine makes the
first longer; how many processes wanted the processor is said too.
"""

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

FLOWSIM = [sys.executable, "-m", "flowsim"]
#: What an import has to load before a figure can be drawn, or a page served.
DRAWS = [sys.executable, "-c", "import flowsim.cli.main, flowsim.drawing.any_record, h5netcdf"]
SERVES = [sys.executable, "-c", "import flowsim.cli.main, flowsim.explorer.server"]
ROUNDS = 3
TRAIN = ["train", "--p", "0.5", "--q", "0.8", "--init", "lifted", "--theta", "0.5,-1.2",
         "--trainer", "adamw-papers", "--steps", "500", "--length", "8", "--overwrite"]  # fmt: skip


def now(who: int = resource.RUSAGE_CHILDREN) -> np.ndarray:
    """The clock, and the processor's seconds of ended children or of this process."""
    used = resource.getrusage(who)
    return np.array([time.perf_counter(), used.ru_utime + used.ru_stime])


def seconds(words: list[str], folder: str) -> np.ndarray:
    """What one process took."""
    began = now()
    subprocess.run(words, cwd=folder, check=True, capture_output=True)
    return now() - began


def address(folder: str) -> np.ndarray:
    """What the explorer took until it said its address."""
    words, began = [*FLOWSIM, "explore", "--no-browser", "--port", "0"], time.perf_counter()
    server = subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    while "http://" not in server.stdout.readline():
        pass
    took = time.perf_counter() - began
    fields = Path(f"/proc/{server.pid}/stat").read_text().rsplit(")", 1)[1].split()
    server.terminate()
    server.communicate()
    return np.array([took, (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")])


def in_turn(one: Callable[[], np.ndarray], other: Callable[[], np.ndarray]) -> np.ndarray:
    """What both took, in turn, after a first round that is not counted: (rounds, 2, 2)."""
    return np.array([[one(), other()] for _ in range(ROUNDS + 1)][1:])


def told(names: tuple[str, str], found: np.ndarray) -> None:
    """A line with the medians of both, their difference and their ratio."""
    parts = []
    for what, (a, b) in zip(("seconds", "of the processor"), np.median(found, 0).T, strict=True):
        parts.append(f"{what}: {names[0]} {a:.2f}, {names[1]} {b:.2f}, {b - a:+.2f}, {b / a:.2f} ×")
    print(f"{'; '.join(parts)}; {len(found)} rounds, load {os.getloadavg()[0]:.1f}", flush=True)


def explore(folder: str) -> None:
    """The explorer's address beside an import."""
    told(("import", "address"), in_turn(lambda: seconds(SERVES, folder), lambda: address(folder)))


def redraw(folder: str) -> None:
    """A figure of a stored portrait beside an import."""
    seconds([*FLOWSIM, "portrait", "--p", "0.5", "--q", "0.8", "--out", "a.png"], folder)
    again = [*FLOWSIM, "portrait", "--from", "a.nc", "--out", "b.png", "--overwrite"]
    found = in_turn(lambda: seconds(DRAWS, folder), lambda: seconds(again, folder))
    told(("import", "redrawn"), found)


def train(folder: str) -> None:
    """500 steps alone and beside two busy loops."""

    def beside() -> np.ndarray:
        with busy():
            return seconds([*FLOWSIM, *TRAIN], folder)

    told(("alone", "beside"), in_turn(lambda: seconds([*FLOWSIM, *TRAIN], folder), beside))


@contextmanager
def busy() -> Iterator[None]:
    """Two processes that only count, in sessions of their own; they end with this one."""
    counts = f"import os\nwhile os.getppid() == {os.getpid()}: pass"
    loop = [sys.executable, "-c", counts]
    loops = [subprocess.Popen(loop, start_new_session=True) for _ in range(2)]
    try:
        yield
    finally:
        for one in loops:
            one.kill()
            os.waitpid(one.pid, 0)


def write(folder: str) -> None:
    """The part of a scan that comes after the last start was followed."""
    import flowsim

    for name, fixed in (("canonical", {}), ("uniform", {"a": 0.0}), ("rank-one", {})):
        for side in (8, 400):  # the first loads what compiles and writes
            axis = flowsim.scan.cell_centres(-3, 3, side)
            starts = flowsim.Grid({"e": axis, "w": axis}, fixed)
            scan = flowsim.scan.Scan(flowsim.ModelSpec(name, {"p": 0.5, "q": 0.8}), starts)
            times = [now(resource.RUSAGE_SELF)]

            def followed(_: np.ndarray, times: list[np.ndarray] = times) -> None:
                times.append(now(resource.RUSAGE_SELF))

            flowsim.scan.write_scan(scan, Path(folder, f"{name}{side}.nc"), progress=followed)
            ended = now(resource.RUSAGE_SELF)
        print(f"{name}:", end=" ")
        told(("computing", "the rest"), np.array([[times[-1] - times[0], ended - times[-1]]]))


PARTS = {"explore": explore, "redraw": redraw, "train": train, "write": write}

if __name__ == "__main__":
    for part in sys.argv[1:] or PARTS:
        with tempfile.TemporaryDirectory() as place:
            print(f"{part}:", end=" ", flush=True)
            PARTS[part](place)
