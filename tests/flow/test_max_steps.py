"""More steps for starts that take long, in records and in the shell."""

import json

import numpy as np
import pytest
from command import run

import flowsim

DUFFING = """
import flowsim, torch
class Duffing(flowsim.Model):
    coordinates = ("x", "v")
    def loss(self, theta):
        x, v = theta.unbind(-1)
        return v**2 / 2 - x**2 / 2 + x**4 / 4
    def field(self, theta):
        x, v = theta.unbind(-1)
        return torch.stack([v, x - x**3 - 2 * v], -1)
"""


@pytest.fixture
def duffing(tmp_path):
    (tmp_path / "mine.py").write_text(DUFFING)
    space = {"__name__": "duffing"}
    exec(DUFFING, space)
    return space["Duffing"]()


def test_records_take_and_keep_the_number_of_steps(duffing):
    axes = {"x": np.array([0.4, 0.9]), "v": np.array([-0.3, 0.5])}
    few, many = (flowsim.scan(duffing, axes, max_steps=most) for most in (5, 20_000))
    assert (few["label"] == 0).all() and (many["label"] != 0).all()
    assert few.attrs["max_steps"] == 5
    assert "max_steps" not in flowsim.scan(duffing, axes).attrs
    cloud = flowsim.gaussian(duffing, np.array([0.5, 1.0]), 4, max_steps=5)
    assert (cloud["count_unresolved"] == 4).all()
    with pytest.raises(flowsim.InputError, match="max_steps"):
        flowsim.scan(duffing, axes, max_steps=0)


def test_the_shell_has_them(duffing, tmp_path):
    words = ["--model", "mine.py:Duffing", "--window", "x=-1:1,v=-1:1", "--grid", "2x2", "--json",
             "--quiet", "--confirm", "0", "--max-steps"]  # fmt: skip
    few = run("scan", *words, "5", "--out", "a.nc", cwd=tmp_path)
    assert few.returncode == 3 and json.loads(few.stdout)["unresolved"] == 4
    assert flowsim.read_record(tmp_path / "a.nc").attrs["max_steps"] == 5
    for command in ("portrait", "gaussian"):
        assert "--max-steps" in run(command, "--help", cwd=tmp_path).stdout
