"""Compiled code on disk: used again, never in the way; and engines copied for every model."""

import gc
import os
import subprocess
import sys
import textwrap
from contextlib import contextmanager

import pytest
from engines import ENGINES
from numba.core.dispatcher import Dispatcher
from numba.core.runtime import _nrt_python, rtsys

PROGRAM = """
from flowsim.compiled import compiled

@compiled
def sixth(x):
    return 6.0 * x

print(sixth(7.0))
"""


@pytest.fixture
def program(tmp_path):
    """Runs the program in a process of its own: what it prints, and what it compiled."""
    (tmp_path / "program.py").write_text(PROGRAM)

    def run(**variables):
        environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache"), **variables}
        done = subprocess.run(
            [sys.executable, "program.py"], cwd=tmp_path, env=environment, capture_output=True,
            text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def files(folder, ending):
    (found,) = folder.glob(f"cache/*/*.{ending}")
    return found


def test_code_is_kept(program, tmp_path):
    assert program() == "42.0\n"
    kept = files(tmp_path, "nbc"), files(tmp_path, "nbi")
    before = [(path.read_bytes(), path.stat().st_mtime_ns) for path in kept]
    assert program() == "42.0\n"
    assert [(path.read_bytes(), path.stat().st_mtime_ns) for path in kept] == before


def test_without_a_folder_code_is_compiled_every_time(program, tmp_path):
    (tmp_path / "file").write_text("no folder")
    blocked = str(tmp_path / "file" / "cache")
    assert program(NUMBA_CACHE_DIR=blocked) == "42.0\n"


@contextmanager
def every_array_is_freed():
    """Arrays made in compiled code in between are freed, each once."""
    _nrt_python.memsys_enable_stats()
    before = rtsys.get_allocation_stats()
    yield
    after = rtsys.get_allocation_stats()
    _nrt_python.memsys_disable_stats()
    assert after.mi_alloc - before.mi_alloc == after.mi_free - before.mi_free
    assert after.alloc - before.alloc == after.free - before.free


@pytest.mark.parametrize("name", ENGINES)
def test_no_array_is_left_behind(name):
    with every_array_is_freed():
        ENGINES[name]()


def test_arrays_come_only_from_makers():
    for use in ENGINES.values():
        use()
    gc.unfreeze()  # what conftest.py took out of the collector's sight
    objects = gc.get_objects()
    gc.freeze()
    for found in objects:  # what this process compiled, and did not take from the disk
        if issubclass(type(found), Dispatcher) and found.targetoptions.get("_nrt") is False:
            for signature in found.nopython_signatures:
                assert "array" not in str(signature.return_type).lower(), found


ENGINE = """
from flowsim.compiled import hook, template

@hook
def rate(y, scale):
    return 0.0

@template
def step(y, h, scale):
    return y + h * rate(y, scale)

@template
def follow(y, n, scale):
    for _ in range(n):
        y = step(y, 0.5, scale)
    return y
"""
MODELS = """
from flowsim.compiled import compiled, specialise
import engine

@compiled
def grow(y, scale):
    return scale * y

@compiled
def fall(y, scale):
    return -scale * y

up = specialise((engine,), "up", rate=grow)
down = specialise((engine,), "down", rate=fall)
rest = specialise((engine,), "rest")
"""
USE = """
import models
print([e.follow(1.0, 2, 1.0) for e in (models.up, models.down, models.rest)])
hits = [sum(e.follow.stats.cache_hits.values()) for e in (models.up, models.down, models.rest)]
print(hits)
"""


@pytest.fixture
def folder(tmp_path):
    for name, text in (("engine", ENGINE), ("models", MODELS), ("use", USE)):
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(text))
    return tmp_path


def test_copies_are_told_apart_also_by_the_disk(folder, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(folder / "cache"))
    for hits in ("[0, 0, 0]", "[1, 1, 1]"):
        run = subprocess.run(
            [sys.executable, "use.py"], cwd=folder, capture_output=True, text=True, check=True
        )
        assert run.stdout.splitlines() == ["[2.25, 0.25, 1.0]", hits]


def test_a_hook_that_the_engine_has_not(folder, monkeypatch):
    monkeypatch.syspath_prepend(folder)
    import models

    with pytest.raises(TypeError, match="the engine has no hook slope"):
        models.specialise((models.engine,), "none", slope=models.grow)
