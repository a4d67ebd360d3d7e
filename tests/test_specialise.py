"""Engines copied for every model: the copies call the model's functions and keep their own code."""

import subprocess
import sys
import textwrap

import pytest

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
