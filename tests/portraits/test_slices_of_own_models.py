"""Slices and views in space of a user's own model of three coordinates, by its closed form."""

import json

import numpy as np
import pytest
from command import run

import flowsim
from flowsim import InputError, ModelSpec, draw, read_record, write_record
from flowsim import portrait as portrait_record
from flowsim.explorer.export import command_lines, python_lines
from flowsim.explorer.layers import ends_of
from flowsim.explorer.training import FullSettings
from flowsim.explorer.view import View, Window
from flowsim.interface import with_axes

TILTED = '''
import flowsim

class Tilted(flowsim.Model):
    """Two wells along s = x + y + z: of s the flow is ds/dt = -3(s³ - s + g) in every slice."""
    coordinates = ("x", "y", "z")

    def __init__(self, g: float = 0.2):
        self.g = g

    def loss(self, theta):
        s = theta.sum(-1)
        return (s**2 - 1) ** 2 / 4 + self.g * s + (theta.square().sum(-1) - s**2 / 3) / 2
'''
#: The sums s of the lower well, of the saddle that parts the basins, and of the other well.
LOW, EDGE, HIGH = sorted(np.roots([1, 0, -1, 0.2]).real)
SIDES = {"x": (-2.0, 1.5), "y": (-1.0, 2.0), "z": (-1.5, 1.0)}
SLICES = [("xy", {}), ("zx", {"y": -0.5})]
FILE = ["--model", "mine.py:Tilted", "--quiet"]


@pytest.fixture
def mine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(TILTED)
    return tmp_path


@pytest.fixture
def model(mine):
    return ModelSpec("mine.py:Tilted").build()


def window(names):
    return {name: SIDES[name] for name in names}


@pytest.mark.slow
@pytest.mark.turns
@pytest.mark.parametrize(("names", "fixed"), SLICES)
def test_a_slice_has_the_basins_of_the_closed_form(names, fixed, model):
    across, up = names
    record = portrait_record(model, resolution=9, window=window(names), fixed=fixed, confirm=4)
    assert record["label"].dims == (up, across)
    (other,) = {*"xyz"} - {*names}
    held = fixed.get(other, 0.0)
    assert record.attrs["held"] == other and record.attrs[other] == held
    expected = np.where(record[up] + record[across] + held < EDGE, 1, 2)
    np.testing.assert_array_equal(record["label"], expected)
    assert record.attrs["confirm_agree"] == record.attrs["confirm_cells"] == 4
    edge = record[f"boundary_{across}"] + record[f"boundary_{up}"] + held
    assert edge.size > 5 and np.abs(edge - EDGE).max() < 3 / 9 / 2**6
    write_record(record, "slice.nc")
    ax = draw(read_record("slice.nc")).axes[0]
    assert (ax.get_xlabel(), ax.get_ylabel()) == (f"${across}$", f"${up}$")
    assert f"Tilted, at ${other}$ = {held:g}" in ax.get_title()
    low, high = SIDES[across]
    assert ax.get_xlim() == (pytest.approx(low), pytest.approx(high))


@pytest.mark.slow
@pytest.mark.turns
def test_the_command_line_draws_a_slice_and_draws_it_again_from_its_file(mine):
    words = ["--window", "z=-1:1,y=-2:2", "--fix", "x=0.3", "--resolution", "6", "--json"]
    done = run("portrait", *FILE, *words, "--confirm", "2", cwd=mine)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["fixed"] == {"x": 0.3}
    record = read_record(mine / "portrait_Tilted_x0.3_z_y.nc")
    assert record["label"].dims == ("y", "z")
    words = ["--from", "portrait_Tilted_x0.3_z_y.nc", "--out", "again.png"]
    done = run("portrait", *words, cwd=mine)
    assert done.returncode == 0 and "mine.py:Tilted" in done.stdout
    assert "fixed\n  x  " in done.stdout and "0.3\n" in done.stdout
    words = ["--window", "z=-1:1,y=-2:2", "--fix", "x=0.3", "--grid", "4x4", "--out", "scan.nc"]
    assert run("scan", *FILE, *words, cwd=mine).returncode == 0
    assert run("portrait", "--from", "scan.nc", cwd=mine).returncode == 0


def test_what_is_no_slice_is_told_in_python(model):
    for sides in ({"x": (1.0, -1.0)}, {"x": (0.0, np.nan)}):
        with pytest.raises(InputError, match="the window in x must be LOW < HIGH"):
            portrait_record(model, window=sides)
    with pytest.raises(InputError, match="has two axes of x, y, z, not y, y"):
        with_axes(model, "y", "y")
    four = flowsim.from_loss(lambda x, y, z, u: x**2 + y**2 + z**2 + u**2, "four")
    for flat in (four, with_axes(four, "z", "u")):
        with pytest.raises(InputError, match="the four model, as chosen, has no view in space"):
            flowsim.portraits.phase_space(flat)


def test_a_model_with_a_plane_of_its_own_keeps_it():
    model = flowsim.model("canonical", 0.5, 0.8)
    assert with_axes(model, "e", "w") is model
    with pytest.raises(InputError, match=r"plane is \(w, e\), not \(w, a\)"):
        with_axes(model, "w", "a")


@pytest.mark.slow
@pytest.mark.turns
def test_orbits_in_space_end_where_the_closed_form_says(model, mine):
    record = flowsim.portraits.phase_space(model, window=window("xyz"))
    path = np.stack([record[f"orbit_{name}"] for name in "xyz"], axis=-1)
    for i, name in enumerate("xyz"):
        assert SIDES[name][0] < path[0, :, i].min() < path[0, :, i].max() < SIDES[name][1]
    low = path[0].sum(-1) < EDGE
    assert 0 < low.sum() < low.size and record.attrs["orbits_unfinished"] == 0
    np.testing.assert_array_equal(record["orbit_label"], np.where(low, 1, 2))
    np.testing.assert_allclose(path[-1].sum(-1), np.where(low, LOW, HIGH), atol=1e-6)
    assert "near_label" not in record and "plane" not in record
    write_record(record, "space.nc")
    figure = draw(read_record("space.nc"))
    (ax,) = figure.axes
    assert [ax.get_xlabel(), ax.get_ylabel(), ax.get_zlabel()] == ["$x$", "$y$", "$z$"]
    assert (ax.get_xlim(), ax.get_ylim(), ax.get_zlim()) == tuple(SIDES.values())
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert [text[:12] for text in texts] == ["to minimum 1", "to minimum 2"]
    marks = [np.array(line.get_data_3d()).sum() for line in ax.lines if line.get_marker() in "^"]
    np.testing.assert_allclose(marks, HIGH, atol=1e-6)


def test_the_explorer_shows_a_slice(mine):
    view = View(ModelSpec("mine.py:Tilted"), axes=("y", "z"), window=Window(-1, 1, -2, 2))
    assert (view.x, view.y, view.slice_name) == ("y", "z", "x")
    assert ends_of(view) is ends_of(view.with_slice(0.3))
    command = command_lines(view.with_slice(0.3), FullSettings(), ()).splitlines()[0]
    assert "--window=y=-1:1,z=-2:2" in command and "--fix x=0.3" in command
    assert "with_axes(model, *('y', 'z'))" in python_lines(view, FullSettings(), ())
    assert view.with_model("canonical").axes == ()
