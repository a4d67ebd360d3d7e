"""Shared by all tests: the reference table, one thread, precision, starts and the command line."""

import gc
import json
import random
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import command
import mpmath
import pytest
import torch

#: Fixtures of the tests that open pages in a browser.
pytest_plugins = ["pages"]

torch.set_num_threads(1)
sys.path.append(str(Path(__file__).parents[1] / "experiments"))
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in the background of a shell
    signal.signal(signal.SIGINT, signal.default_int_handler)

REFERENCE = json.loads((Path(__file__).parent / "reference.json").read_text())

#: Chains on both sides of p + q = 1, near it, and far from symmetric.
CHAINS = [(0.5, 0.8), (0.2, 0.3), (0.05, 0.6), (0.97, 0.35), (0.45, 0.56)]


def pytest_addoption(parser):
    parser.addoption("--shuffle", type=int, metavar="SEED", help="run the tests in a random order")
    words = "run all tests of the marker turns, not the third of them whose turn it is"
    parser.addoption("--every", action="store_true", help=words)
    words = "where the tests of the marker device compute (default: cpu)"
    parser.addoption("--device", choices=["cpu", "cuda"], default="cpu", help=words)


def pytest_configure(config):
    if config.getoption("device") == "cuda" and not torch.cuda.is_available():
        raise pytest.UsageError("--device cuda is asked for, and this machine has no CUDA device")


def pytest_sessionstart(session):
    worker = getattr(session.config, "workerinput", None)
    if worker and worker["workercount"] > 1:
        from engines import compile_shared  # loads both packages

        compile_shared(Path(session.config.option.basetemp).parent)


def pytest_collection_finish(session):
    """What is loaded by now stays: the search for garbage need not pass it again and again."""
    if session.items and not session.config.option.collectonly:
        gc.collect()
        gc.freeze()


def third_whose_turn_it_is(items):
    """Those of the marker ``turns`` that wait: all but each third, from the count of commits on."""
    count = ["git", "rev-list", "--count", "HEAD"]
    here = Path(__file__).parent
    done = subprocess.run(count, cwd=here, capture_output=True, text=True, check=False)
    first = int(done.stdout or 0) % 3
    taking = [item for item in items if item.get_closest_marker("turns")]
    return [item for at, item in enumerate(taking) if at % 3 != first]


def pytest_collection_modifyitems(config, items):
    """Tests take turns; files in a random order, and the tests of each file too."""
    named = any("::" in argument for argument in config.args)
    if not (named or config.getoption("every")):
        wait = set(third_whose_turn_it_is(items))
        config.hook.pytest_deselected(items=[item for item in items if item in wait])
        items[:] = [item for item in items if item not in wait]
    seed = config.getoption("shuffle", None)
    if seed is None:
        return
    draw = random.Random(seed)
    files = sorted({item.path for item in items})
    place = dict(zip(files, draw.sample(range(len(files)), len(files)), strict=True))
    items.sort(key=lambda item: (place[item.path], draw.random()))


@pytest.fixture(autouse=True)
def forty_digits():
    """mpmath computes with 40 digits, whichever tests run."""
    with mpmath.workdps(40):
        yield


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(20240607)


@pytest.fixture
def device(pytestconfig) -> str:
    """Where the tests of the marker ``device`` compute."""
    return pytestconfig.getoption("device")


@pytest.fixture
def flowsim(tmp_path):
    """Runs a command line in the test's own folder: exit code, stdout, stderr."""
    return partial(command.run, cwd=tmp_path)


def rows(*points) -> torch.Tensor:
    """The points, float64, shape (n, k)."""
    return torch.tensor(points, dtype=torch.float64)


def box(n: int, k: int, generator: torch.Generator, half_width: float = 3.0) -> torch.Tensor:
    """n points of the cube [−half_width, half_width]ᵏ, shape (n, k)."""
    return half_width * (2 * torch.rand(n, k, dtype=torch.float64, generator=generator) - 1)


def uniform_starts(n: int, generator: torch.Generator, half_width: float = 3.0) -> torch.Tensor:
    """n points of the square [−half_width, half_width]², shape (n, 2)."""
    return box(n, 2, generator, half_width)


def relative_error(found: float, expected: float) -> float:
    return abs(found - expected) / abs(expected) if expected else abs(found)


def slopes_of_gradient(model, theta: torch.Tensor, step: float = 1e-5) -> torch.Tensor:
    """The Hessian as central differences of ``model.gradient``, shape (..., k, k)."""
    slopes = [
        (model.gradient(theta + offset) - model.gradient(theta - offset)) / (2 * step)
        for offset in step * torch.eye(theta.shape[-1], dtype=theta.dtype)
    ]
    return torch.stack(slopes, dim=-1)
