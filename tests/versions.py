"""``make versions``: the numerical tests with the lowest versions that pyproject.toml allows.

For every Python from 3.11 that the machine has, a virtual environment of its own is made with the
lower bound of each library, and tests are run in it. The README's test command runs them with the
newest. torch stays the build that constraints.txt pins, a CPU wheel: older ones would be downloaded
with gigabytes of CUDA. The result is ``tests/VERSIONS.md``.

    python tests/versions.py [--keep FOLDER]
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "tests" / "VERSIONS.md"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
#: What the tests below need beside the package.
TESTING = ("pytest", "pytest-timeout", "pytest-xdist", "mpmath", "hypothesis")
#: Tests whose numbers, files and figures rest on the libraries.
TESTS = (
    "test_markov.py", "models/test_models.py", "models/test_rank_one.py",
    "models/test_states_models.py", "landscape/test_landscape.py",
    "flow/test_uniform_rows.py", "flow/test_gap_engine.py", "records", "scan/test_starts.py",
)  # fmt: skip
#: Seconds for one environment's installation, and for its tests.
INSTALLS, RUNS = 1200, 1800


def requirements():
    """What pip is asked for: the lower bound of every library, and the pinned torch."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pinned = (ROOT / "constraints.txt").read_text()
    torch = re.search(r"^torch==(.+)$", pinned, re.MULTILINE)[0]
    others = [need for need in project["dependencies"] if not re.match(r"torch\b", need)]
    assert all(">=" in need for need in others), others
    return [torch, *(need.replace(">=", "==") for need in others)]


def interpreter(name):
    """The Python of that name, if there is one that runs; a shim may name one that is not."""
    found = shutil.which(f"python{name}")
    runs = found and subprocess.run([found, "-c", ""], capture_output=True).returncode == 0
    return found if runs else None


def installed(python, folder):
    """An environment with the lowest versions; its interpreter, or None where pip finds none."""
    own = folder / "bin" / "python"
    if not own.exists():
        subprocess.run([python, "-m", "venv", folder], check=True, timeout=INSTALLS)
        words = [own, "-m", "pip", "install", "-q", *requirements(), *TESTING]
        if subprocess.run(words, timeout=INSTALLS).returncode != 0:
            shutil.rmtree(folder)
            return None
    return own


def versions(python):
    """The versions of what pyproject names, as an environment has them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = [re.split(r"[>=<]", need)[0] for need in project["dependencies"]]
    text = (
        f"from importlib.metadata import version\nfor name in {names}: print(name, version(name))"
    )
    done = subprocess.run([python, "-c", text], capture_output=True, text=True, check=True)
    return ", ".join(done.stdout.splitlines())


def tested(python, folder):
    """What pytest's last line says, and whether all passed."""
    places = {"PYTHONPATH": str(ROOT), "NUMBA_CACHE_DIR": str(folder / "numba")}
    words = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=line", "-n", "2"]
    words += ["-W", "ignore::DeprecationWarning"]  # old libraries call newer ones by old names
    done = subprocess.run(
        [*words, *(str(ROOT / "tests" / test) for test in TESTS)],
        cwd=ROOT, env={**os.environ, **places}, capture_output=True, text=True, timeout=RUNS,
    )  # fmt: skip
    print(done.stdout[-4000:], flush=True)
    (last,) = re.findall(r"\d+ (?:passed|failed)[^\n]*", done.stdout)[-1:] or ["nothing ran"]
    return last.partition(" in ")[0], done.returncode == 0


def page(rows, absent):
    """The result as Markdown."""
    lines = [
        "# Versions",
        "",
        "What `make versions` found last: the numerical tests with the lowest versions that "
        "`pyproject.toml` allows. Every `.ci/run` has the newest, too: all tests run with them.",
        "torch is always the CPU build of `constraints.txt`: older ones would be downloaded with "
        "gigabytes of CUDA, so its own lower bound is not tried.",
        "",
        "| Python | tests | libraries |",
        "|---|---|---|",
        *(f"| {python} | {result} | {held} |" for python, result, held in rows),
    ]
    if absent:
        names = ", ".join(absent)
        lines += [
            "",
            f"Not run by that name on that machine, or without wheels there: Python {names}.",
        ]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--keep", type=Path, help="a folder for the environments, used again")
    given = parser.parse_args()
    rows, absent, good = [], [], True
    with tempfile.TemporaryDirectory() as temporary:
        for name in PYTHONS:
            python = interpreter(name)
            folder = (given.keep or Path(temporary)) / f"{name}-lowest"
            own = installed(python, folder) if python else None
            if not own:
                absent.append(name)
                print(f"python {name}: not on this machine, or no wheels for it", flush=True)
                continue
            result, passed = tested(own, folder)
            good &= passed
            rows.append((name, result, versions(own)))
            print(f"python {name}: {result}", flush=True)
    PAGE.write_text(page(rows, absent))
    sys.exit(not good)


if __name__ == "__main__":
    main()
