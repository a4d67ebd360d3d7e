"""Curves of folds, crossings and flips in two parameters, at the places that are known."""

import json

import numpy as np
import pytest
import torch
from command import run

import flowsim
from flowsim.bifurcation import fold_curves, folds
from flowsim.bifurcation.events import Event
from flowsim.bifurcation.folds import Extended, followed
from flowsim.bifurcation.system import StepMap, System
from flowsim.errors import InputError
from flowsim.spec import ModelSpec


class Cusp(flowsim.Model):
    coordinates = ("x",)

    def __init__(self, a: float = 0.0, b: float = 0.0):
        self.a, self.b = a, b

    def loss(self, theta):
        x = theta[..., 0]
        return x**4 + self.a * x**2 + self.b * x


class Deep(flowsim.Model):
    """A deep linear network of equal weights and weight decay, of any depth."""

    coordinates = ("w",)

    def __init__(self, decay: float = 0.1, depth: float = 3.0):
        self.decay, self.depth = decay, depth

    def loss(self, theta):
        w = theta[..., 0].abs()
        return (1 - w**self.depth) ** 2 / 2 + self.decay * self.depth * w**2 / 2


class Well(flowsim.Model):
    coordinates = ("x",)

    def __init__(self, g: float = 0.0):
        self.g = g

    def loss(self, theta):
        return (theta[..., 0] ** 2 - 1) ** 2 / 4 + self.g * theta[..., 0]


def starts(k, count=12):
    return torch.randn(count, k, generator=torch.Generator().manual_seed(0)).double()


@pytest.mark.slow
def test_a_cusp_lies_where_it_is_known_to():
    """8a³ + 27b² = 0."""
    found = fold_curves(ModelSpec(Cusp), "b", [-3, 3], "a", [-2.0, 1.0], starts(1))
    a, b = found.curve_second.values, found.curve_value.values
    assert 8 * a**3 + 27 * b**2 == pytest.approx(np.zeros(len(a)), abs=1e-8)
    assert b.min() == pytest.approx(-((64 / 27) ** 0.5), abs=1e-8)
    assert [found.cusp_value.item(), found.cusp_second.item()] == pytest.approx([0, 0], abs=1e-8)
    assert found.cusp_x.item() == pytest.approx(0, abs=1e-8)


def test_folds_of_deep_networks_lie_where_theory_says_at_every_depth():
    """λ = w^{D−2}(1 − w^D) at w^D = (D − 2)/(2D − 2)."""
    system = System(ModelSpec(Deep), "decay", 0.2, 0.9, second=("depth", 2.2, 4.0))
    one, state = torch.ones(1).double(), torch.tensor([0.25 ** (1 / 3)]).double()
    event = Event("fold", 0.4724703937, state, 0, one, 0, 1)
    _, curve = followed(Extended(system, one, event, 3.0), 3.0)
    depth = curve.value
    power = (depth - 2) / (2 * depth - 2)
    known = power ** ((depth - 2) / depth) * (1 - power)
    assert 0.2 + 0.7 * curve.state[:, 2] == pytest.approx(known, abs=1e-8)
    assert (float(depth.min()), float(depth.max())) == pytest.approx((2.2, 4.0))


def test_the_trap_of_the_canonical_model_is_born_along_p_plus_q_equal_to_one():
    spec = ModelSpec("canonical", {"p": 0.5, "q": 0.3})
    system = System(spec, "q", 0.2, 0.8, second=("p", 0.3, 0.7))
    size, state = torch.ones(2).double(), torch.tensor([0.0, 1.0]).double()
    event = Event("pitchfork", 0.5, state, 0, torch.tensor([1.0, 0.0]).double(), 1, 1)
    _, curve = followed(Extended(system, size, event, 0.5), 0.5)
    assert curve.state[:, 4] * 0.6 + 0.2 + curve.value == pytest.approx(1.0, abs=1e-8)
    assert (float(curve.value.min()), float(curve.value.max())) == pytest.approx((0.3, 0.7))


@pytest.mark.parametrize(
    ("second", "known"),
    [("momentum", lambda x: 1 + x), ("g", None)],
)
def test_flips_of_steps_are_followed_over_a_second_number(second, known):
    """Heavy ball flips at 2(1 + β)/h; a tilt changes the curvature h = 3x² − 1, x³ − x = −g."""
    momentum = second == "momentum"
    step = StepMap(has_memory=momentum)
    side = (0.0, 0.8) if momentum else (-0.3, 0.3)
    system = System(ModelSpec(Well), "learning_rate", 0.1, 2.5, step, (second, *side))
    state, way = torch.tensor([1.0, 0.0]).double(), torch.tensor([-1.0, 2.0]).double()
    state, way = (state, way) if momentum else (state[:1], way[:1])
    event = Event("flip", 1.0, state, 0, way, 0, 1)
    _, curve = followed(Extended(system, torch.ones_like(way), event, 0.0), 0.0)
    part = curve.state[:, 2 * len(way)]
    x = curve.state[:, 0]
    rate = 2 / (3 * x**2 - 1) if known is None else known(curve.value)
    assert 0.1 + 2.4 * part == pytest.approx(rate, abs=1e-8)
    if known is None:
        assert x**3 - x == pytest.approx(-curve.value, abs=1e-8)
    assert float(curve.value.max()) == pytest.approx(side[1])


@pytest.mark.slow
@pytest.mark.turns
def test_the_command_resumes_draws_fold_curves_and_prints_cusps(tmp_path, monkeypatch):
    (tmp_path / "cusp.py").write_text(
        "import flowsim\nclass Cusp(flowsim.Model):\n    coordinates = ('x',)\n"
        "    def __init__(self, a=0.0, b=0.0):\n        self.a, self.b = a, b\n"
        "    def loss(self, theta):\n        x = theta[..., 0]\n"
        "        return x**4 + self.a * x**2 + self.b * x\n"
    )
    words = ["--model", "cusp.py:Cusp", "--over", "b=-3.0:3:2", "--and", "a=-2.0:1:2", "--json"]
    done = run("continue", *words, "--near", "b=9", "--near", "a=1", cwd=tmp_path)
    assert done.returncode and "both in their ranges" in done.stderr

    def stopped(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(folds, "followed", stopped)
        done = run("continue", *words, cwd=tmp_path)
    assert done.returncode and "--resume" in done.stderr
    search, sought = folds.diagram, []
    monkeypatch.setattr(folds, "diagram", lambda *given: sought.append(1) or search(*given))
    done = run("continue", *words, "--resume", cwd=tmp_path)
    assert len(sought) == 1  # at the other value of a
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["curves"] == {"fold": 1}
    assert found["cusps"] == [{"b": pytest.approx(0, abs=1e-8), "a": pytest.approx(0, abs=1e-8)}]
    stored = next(tmp_path.glob("folds*.nc"))
    near = ["--near", "b=1.1", "--near", "a=-1.0", "--out", "one.png"]
    done = run("continue", *words, *near, cwd=tmp_path)
    assert (len(sought), json.loads(done.stdout)["curves"]) == (2, {"fold": 1})  # at that a alone
    again = run("continue", "--from", stored.name, "--out", "again.png", cwd=tmp_path)
    assert again.returncode == 0, again.stderr


@pytest.mark.parametrize(
    ("second", "values", "words"),
    [
        ("b", [0.0, 1.0], "b is given twice"),
        ("a", [0.0], "at least two"),
        ("c", [0.0, 1.0], "no argument c"),
        ("a", [0.5, 1.0], "no fold, crossing or flip over b"),
    ],
)
def test_what_has_no_fold_curves_is_refused(second, values, words):
    with pytest.raises(InputError, match=words):
        fold_curves(ModelSpec(Cusp), "b", [-3, 3], second, values, starts(1))


class ThreeWells(Cusp):
    def loss(self, theta):
        x = theta[..., 0]
        return x**2 * (x**2 - 1) ** 2 + self.a * x**2 + self.b * x


def test_one_fold_of_several_is_followed():
    """Folds solve 15x⁴ − 12x² + 1 + a = 0, here at b = 0.3989 and 0.5524 and their negatives."""
    spec, sides = ModelSpec(ThreeWells), ([0.2, 0.7], "a", [-0.1, 0.1])
    starts, near = [[-1.0], [-0.2]], {"b": 0.35, "a": 0.0}
    record = fold_curves(spec, "b", *sides, starts=starts, near=near)
    x, a, b = (record[f"curve_{name}"].values for name in ("x", "second", "value"))
    assert record.sizes["curve"] == 1 and len(x) > 2
    assert x == pytest.approx(-np.sqrt(0.4 - np.sqrt(0.16 - (1 + a) / 15)), abs=1e-8)
    assert b == pytest.approx(8 * x**3 - 6 * x**5 - 2 * (1 + a) * x, abs=1e-8)
    for wrong in ({"b": 0.35}, {"b": 0.9, "a": 0.0}):
        with pytest.raises(InputError, match="both in their ranges"):
            fold_curves(spec, "b", *sides, starts=starts, near=wrong)
