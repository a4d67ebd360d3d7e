"""Time to the first picture: whole processes, alternating, medians and ratios.

    python benchmarks/startup.py [rounds]

Three commands are started in turn: the bare import of torch, torchdiffeq and pyplot (the
yardstick), ``flowsim portrait --p 0.5 --q 0.8`` as it runs by default, and ``flowsim --help``.
"""

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

YARDSTICK = [sys.executable, "-c", "import torch, torchdiffeq, matplotlib.pyplot"]
FLOWSIM = str(Path(sys.executable).with_name("flowsim"))


def seconds(command: list[str], folder: str) -> float:
    """Wall time of one process."""
    began = time.perf_counter()
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def main(rounds: int = 7) -> None:
    """Print the median times and the two ratios."""
    portrait = [FLOWSIM, "portrait", "--p", "0.5", "--q", "0.8", "--overwrite"]
    commands = {"import": YARDSTICK, "portrait": portrait, "--help": [FLOWSIM, "--help"]}
    with tempfile.TemporaryDirectory() as folder:
        for command in commands.values():  # warm the disk
            seconds(command, folder)
        times: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(rounds):
            for name, command in commands.items():
                times[name].append(seconds(command, folder))
    medians = {name: statistics.median(values) for name, values in times.items()}
    for name, value in medians.items():
        print(f"{name:10s} {value:7.3f} s   {value / medians['import']:6.3f} × import")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
