"""Any name of a coordinate is drawn; a record is kept whatever becomes of its figure."""

import io

import numpy as np
import pytest
from command import assert_refused, run

import flowsim
from flowsim.drawing.style import symbol

NAMES = [("weight_0_1", "L$2")]


def model_of(names):
    def loss(self, theta):
        x, y = theta[..., 0], theta[..., 1]
        return (x**2 - 1) ** 2 / 4 + y**2 / 2 + 0.2 * x + (theta[..., 2:] ** 2).sum(-1)

    return type("Named", (flowsim.Model,), {"coordinates": names, "loss": loss})()


def drawn(record):
    flowsim.draw(record).savefig(io.BytesIO(), format="png")


@pytest.mark.parametrize("names", NAMES, ids=map(str, NAMES))
def test_any_name_is_drawn(names, tmp_path):
    model = model_of((*names, "r_0_1"))
    record = flowsim.portrait(model, resolution=4, confirm=0, boundary=False, fixed={"r_0_1": 0.0})
    assert record["label"].dims == names[::-1]
    flowsim.write_record(record, tmp_path / "a.nc")
    drawn(flowsim.read_record(tmp_path / "a.nc"))


@pytest.mark.parametrize(
    ("name", "text"),
    [("w", "$w$"), ("w_1", "$w_{1}$"), ("w1", "$w_{1}$"), ("w_in", "$w_{in}$"),
     ("w_in_1", "w_in_1"), ("alpha", "alpha"), ("L$2", r"L\$2"), ("ψ", "ψ")],
)  # fmt: skip
def test_mathematics_are_letters_with_one_subscript(name, text):
    assert symbol(name) == text


@pytest.mark.parametrize("names", [("label", "loss"), ("limit_x", "x")], ids=str)
def test_names_that_a_record_needs_are_refused_before_anything_is_computed(names):
    model = model_of(names)
    for make in (
        lambda: flowsim.portrait(model, resolution=4, confirm=0, boundary=False),
        lambda: flowsim.scan(model, dict.fromkeys(names, np.array([0.5, 1.0]))),
        lambda: flowsim.gaussian(model, np.array([0.5, 1.0]), 4),
    ):
        with pytest.raises(flowsim.InputError, match=r"has a variable .* already"):
            make()
    assert flowsim.find_limits(model, [[0.5, 0.5]]).theta.shape == (1, 2)


@pytest.mark.parametrize("name", ["", "a/b", "a,b"])
def test_names_that_no_command_can_say_are_refused(name):
    with pytest.raises(flowsim.InputError, match="coordinate"):
        flowsim.find_limits(model_of((name, "y")), [[0.5, 0.5]])


def test_a_record_is_kept_where_its_figure_cannot_be_drawn(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import flowsim\nclass Bad(flowsim.Model):\n    coordinates = ('x', 'y')\n"
        "    def loss(self, theta): return (theta**2).sum(-1)\n"
        "    title = '$x_1_2$'\n"
    )
    words = ["--model", "mine.py:Bad", "--resolution", "4", "--confirm", "0", "--out", "a.png"]
    done = run("portrait", *words, cwd=tmp_path)
    assert_refused(done, "the figure cannot be drawn")
    assert "the record is kept in 'a.nc'" in done.stderr
    assert flowsim.read_record(tmp_path / "a.nc").attrs["kind"] == "portrait"
    assert not (tmp_path / "a.png").exists()
