"""The view of a page and its link, without a browser."""

from dataclasses import replace
from urllib.parse import parse_qs

import pytest

from flowsim import InputError
from flowsim.cli.commands.cmd_explore import Explore, first_view
from flowsim.explorer.export import command_lines, python_lines
from flowsim.explorer.link import from_query, to_query
from flowsim.explorer.page.controls import Controls
from flowsim.explorer.training import FullSettings
from flowsim.explorer.view import MOST_STARTS, GaussianCloud, Start, View, Window
from flowsim.spec import ModelSpec

VIEWS = [
    View(),
    View().with_arguments(p=0.2, q=0.3).with_start(0.5, -1.2).with_start(-1.0, 0.25),
    View().with_model("states", states=7).with_arguments(p=0.9),
    replace(
        View().with_model("uniform", length=12).with_slice(0.25),
        cloud=GaussianCloud(0.1, -0.3, 0.2),
    ),
    replace(View().with_model("rank-one", attention=True).with_slice(-0.5), backward=True),
    replace(View().with_model("rank-one", tied=False), window=Window(-0.75, 0.5, -0.25, 1.0)),
    View().with_model("induction", length=9).with_start(0.5, 2.0),
    View().with_model("memory").with_arguments(flip=0.25),
    replace(View(), logs=("time", "loss")),
]


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.spec.name)
def test_a_link_restores_the_view(view):
    full = FullSettings("adamw", d=4, length=6, noise=0.02, learning_rate=2e-3, steps=777, seed=3)
    assert from_query(parse_qs(to_query(view))) == (view, FullSettings(), [])
    assert from_query(parse_qs(to_query(view, full))) == (view, full, [])


@pytest.mark.parametrize("query", [
    "p=2", "p=nan", "q=", "model=gpt", "model=%3Cscript%3E", "length=5", "fix-zz=0", "w=3:-3",
    "model=uniform&length=1000000", "start=a,b", "start=1e9,0", "cloud=0,0", "train=rm", "noise=-1",
])  # fmt: skip
def test_what_a_link_may_not_ask_for_changes_nothing(query):
    view, full, problems = from_query(parse_qs(query, keep_blank_values=True))
    assert len(problems) == 1
    assert (view, full) == (View(), FullSettings()) or "model=" in query


WELL = """
import pathlib
import flowsim

pathlib.Path(__file__).with_suffix(".was_run").touch()

class Well(flowsim.Model):
    coordinates = ("x", "y", "model")
    def __init__(self, g=0.2, n=2, word="a"):
        self.g, self.n, self.word = g, n, word
    def loss(self, theta):
        x, y, z = theta.unbind(-1)
        return (x**2 - 1) ** self.n / 4 + (y**2 + z**2) / 2 + self.g * x
"""


def test_a_link_restores_a_model_of_the_users_own(tmp_path):
    (tmp_path / "mine.py").write_text(WELL)
    usual = View(ModelSpec(f"{tmp_path / 'mine.py'}:Well"), window=Window(-2, 2, -1, 1))
    view = usual.with_model(usual.spec.name, g=-0.3).with_start(0.1, 0.2).with_slice(0.5)
    view = replace(view, window=Window(-4.0, 2.0, -1.0, 1.0))
    assert view.numbers == {"g": -0.3, "n": 2} and view.fixed_values == {"model": 0.5}
    assert from_query(parse_qs(to_query(view)), usual) == (view, FullSettings(), [])
    assert view.with_model("canonical").usual_window == Window()


def test_every_number_of_a_model_has_a_slider():
    sliders = Controls(View()).sliders
    assert {"p", "q", "length", "states", "flip", "hidden_per_state"} <= sliders.keys()
    ends = [(sliders[name].start, sliders[name].end) for name in ("p", "flip")]
    assert ends == [(0.01, 0.99), (0.0, 0.49)] and sliders["hidden_per_state"].step == 1
    view = View().with_model("memory").with_arguments(flip=0.25)
    assert "--set flip=0.25" in command_lines(view, FullSettings(), ())
    assert "flip=0.25" in python_lines(view, FullSettings(), ())
    assert View().with_model("states").with_model("memory").spec.get("states") == 2  # of at most 3
    with pytest.raises(InputError, match="flip must lie between 0 and"):
        view.with_arguments(flip=0.5)


def test_a_link_runs_no_file(tmp_path):
    (tmp_path / "mine.py").write_text(WELL)
    name = f"{tmp_path / 'mine.py'}:Well"
    view, _, (problem,) = from_query({"model": [name]})
    assert view == View() and "a link opens no model of your own" in problem
    assert not (tmp_path / "mine.was_run").exists()


def test_a_link_of_any_length_is_bounded():
    many = {"start": [b"0.1,0.2"] * 5000, "p": [b"0." + b"3" * 10**6], "\xff" * 500: [b"\xff"]}
    view, _, problems = from_query(many)
    assert len(view.starts) == MOST_STARTS and 0.33 < view.spec.get("p") < 0.34 and not problems


def test_bounds_are_kept():
    full = View(starts=(Start(0.0, 0.0),) * MOST_STARTS)
    for change in (
        lambda: full.with_start(0, 0),
        lambda: View().with_start(float("nan"), 0),
        lambda: View().with_arguments(q=1.0),
        lambda: replace(View(), window=Window(0, 1e-9, 0, 1)),
        lambda: View().with_slice(1.0),
        lambda: FullSettings(trainer="none"),
        lambda: FullSettings(steps=10**9),
        lambda: FullSettings(noise=float("nan")),
        lambda: FullSettings(d=True),
    ):
        with pytest.raises(InputError):
            change()


def test_starts_are_rounded_to_what_a_click_can_mean():
    assert View().with_start(0.123456789, -1.98765432).starts == (Start(0.123, -1.988),)
    near = replace(View(), window=Window(-0.003, 0.003, -0.003, 0.003))
    assert near.with_start(0.123456789, -0.00012345678).starts == (Start(0.123457, -0.000123),)


def test_the_command_opens_the_usual_view_and_chooses_no_axes_unasked():
    assert first_view(Explore()) == View()
    given = Explore(window=[{"w": (-1.0, 1.0), "e": (-2.0, 2.0)}])
    assert first_view(given) == replace(View(), window=Window(-1.0, 1.0, -2.0, 2.0))
