"""What `import flowsim` offers: names, help, and what editors see."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import flowsim
import full_model

NAMED_IN_HELP = {
    *("model", "find_limits", "trajectories", "hitting_times", "scan_basins", "write_scan"),
    *("portrait_record", "read_record", "draw", "InputError"),
}


@pytest.mark.parametrize("package", [flowsim, full_model], ids=lambda package: package.__name__)
def test_editors_know_every_name(package):
    stub = Path(package.__file__).with_suffix(".pyi")
    seen = {
        alias.asname: f"{node.module}.{alias.name}"
        for node in ast.parse(stub.read_text()).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    homes = {name: f"{package.__name__}.{home}.{name}" for name, home in package._HOME.items()}
    assert seen == homes
    assert package.__all__ == dir(package) == sorted(homes)


@pytest.mark.parametrize("name", flowsim.__all__)
def test_every_name_is_there(name):
    assert getattr(flowsim, name).__doc__


def test_other_names_are_not():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        flowsim.nothing  # noqa: B018


def test_the_first_page_of_help_lists_the_names_that_matter():
    lines = flowsim.__doc__.splitlines()
    assert len(lines) < 30
    listed = {line.split("(")[0].split()[0] for line in lines if line.startswith("    ")}
    assert listed >= NAMED_IN_HELP
    assert listed <= set(flowsim.__all__)


HIDDEN = """
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name in ("fcntl", "pwd", "resource", "termios"):
            raise ModuleNotFoundError(name=name)

for name in ("fcntl", "pwd", "resource", "termios"):
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Hidden())
import signal
del signal.pthread_sigmask
import importlib, pkgutil
for package in ("flowsim", "full_model"):
    for found in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
        if not found.name.endswith("__main__"):
            importlib.import_module(found.name)
from flowsim import *
if __name__ == "__main__":
    scan = Scan(ModelChoice(), 0.5, 0.8, Grid({"e": [0.5, 1.0], "w": [-0.3, 0.3]}), chunk=2)
    write_scan(scan, sys.argv[1])
    print(read_record(sys.argv[1]).sizes["e"])
"""


@pytest.mark.slow
def test_nothing_needs_what_only_unix_has(tmp_path):
    """What Windows lacks is hidden: everything imports all the same, and scans are written."""
    words = [sys.executable, "-W", "ignore", "-c", HIDDEN, str(tmp_path / "a.nc")]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["2"]
    assert [path.name for path in tmp_path.iterdir()] == ["a.nc"]
