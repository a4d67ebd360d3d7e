"""Scans over numeric arguments of any model, a user's class too."""

import json
import pickle

import cloudpickle
import numpy as np
import pytest

import flowsim
from flowsim import Grid, InputError, ModelSpec, read_record
from flowsim.scan import Scan, cell_centres, write_scan
from flowsim.scan.plan import run_task

MINE = """
import flowsim

class Tilted(flowsim.Model):
    coordinates = ("x", "y")

    def __init__(self, g: float = 0.2, n: int = 2, kind: str = "soft"):
        self.g, self.n, self.kind = g, n, kind

    def loss(self, theta):
        x, y = theta.unbind(-1)
        return (x**2 - 1) ** 2 / 4 + self.n * y**2 / 4 + self.g * x
"""
AXES = {"x": cell_centres(-2, 2, 11), "y": np.array([-0.5, 0.5])}
TILTS = (-0.3, 0.1)


def lowest_share(g):
    """The share of the starts beyond the barrier, a root of x³ − x + g, on the lower side."""
    barrier = np.median(np.roots([1, 0, -1, g]).real)
    return np.mean(AXES["x"] < barrier) if g > 0 else np.mean(AXES["x"] > barrier)


@pytest.fixture
def spec(tmp_path):
    (tmp_path / "mine.py").write_text(MINE)
    return ModelSpec(f"{tmp_path / 'mine.py'}:Tilted")


@pytest.mark.slow
@pytest.mark.turns
def test_each_value_has_the_scan_of_its_model(spec, tmp_path):
    scan = Scan(spec, Grid(AXES), over={"n": [2, 3], "g": TILTS}, confirm=1, chunk=25)
    assert scan.dims == ("g", "n", "x", "y") and scan.shape == (2, 2, 11, 2)
    record = read_record(write_scan(scan, tmp_path / "a.nc"), "scan")
    assert record["n"].dtype == np.int64 and record["g"].to_numpy().tolist() == [*TILTS]
    for g in TILTS:
        alone = flowsim.scan(spec.replace(g=g, n=3).build(), AXES)
        here = record.sel(g=g, n=3)
        np.testing.assert_array_equal(here["label"], alone["label"])
        np.testing.assert_allclose(here["limit_x"], alone["limit_x"], atol=1e-9)
        share = here["share"].sel(basin="minimum_1")
        assert float(share) == pytest.approx(lowest_share(g), abs=1e-12)
    assert record.attrs["confirm_agree"] == 1
    assert json.loads(record.attrs["arguments"]) == {"kind": "soft"}
    assert record.attrs["ends"].endswith("numbered by loss in each model")
    assert flowsim.draw(record.isel(n=0)).axes


def test_workers_get_the_text_that_was_run(spec, tmp_path):
    scan = Scan(spec, Grid(AXES), over={"g": TILTS}, chunk=30)
    (tmp_path / "mine.py").write_text("raise SystemExit('this file must not be run again')")
    sent = pickle.loads(cloudpickle.dumps(scan.task(1)))
    assert np.array_equal(run_task(sent), run_task(scan.task(1)))


def test_built_in_models_vary_whatever_they_have(tmp_path):
    uniform = ModelSpec("uniform", {"p": 0.2, "q": 0.3})
    axes = {"e": cell_centres(-2, 2, 4), "w": cell_centres(-2, 2, 4), "a": cell_centres(-1, 1, 2)}
    scan = Scan(uniform, Grid(axes), over={"length": (2, 4), "p": (0.2, 0.4)})
    record = read_record(write_scan(scan, tmp_path / "a.nc"), "scan")
    assert record["label"].dims == ("p", "length", "e", "w", "a")
    alone = flowsim.scan(flowsim.model("uniform", 0.4, 0.3, length=4), axes)
    np.testing.assert_array_equal(record["label"].sel(p=0.4, length=4), alone["label"])
    with pytest.raises(InputError, match="not of one p and one length: give p and length"):
        flowsim.spec.model_from_attributes(record.attrs)
    assert flowsim.spec.model_from_attributes(record.attrs, p=0.4, length=4).length == 4


@pytest.mark.parametrize(
    ("over", "said"),
    [
        ({"h": (1, 2)}, "has no argument h; it takes g, n, kind"),
        ({"kind": (1, 2)}, "several values of kind of .* must be numbers"),
        ({"n": (1.5, 2)}, "n of .* takes whole numbers"),
        ({"g": (0.2, 0.1)}, "several values of g must increase"),
        ({"g": ("a", "b")}, "g must be a number"),
    ],
)
def test_what_cannot_be_varied_is_told(spec, over, said):
    with pytest.raises(InputError, match=said):
        Scan(spec, Grid(AXES), over=over)


def test_a_model_as_it_is_has_no_other_values(spec):
    with pytest.raises(InputError, match="is one model: give a ModelSpec to vary g"):
        Scan(spec.build(), Grid(AXES), over={"g": TILTS})


def test_the_shell_takes_a_range_where_it_takes_a_value(flowsim, tmp_path):
    (tmp_path / "mine.py").write_text(MINE)
    words = ["--model", "mine.py:Tilted", "--set", "kind=hard", "--grid", "11x2", "--window"]
    words += ["x=-2:2,y=-1:1", "--confirm", "0", "--quiet"]
    assert flowsim("scan", *words, "--set", "g=0.1:0.3:3") == (0, "", "")
    record = read_record(tmp_path / "scan_Tilted_kindhard_g0.1to0.3_grid11x2.nc")
    shares = record["share"].sel(basin="minimum_1").to_numpy()
    assert shares == pytest.approx([lowest_share(g) for g in (0.1, 0.2, 0.3)], abs=1e-12)
    assert json.loads(record.attrs["arguments"]) == {"n": 2, "kind": "hard"}
    for text, said in (("g=0:1:3", "is given twice"), ("n=1:2:3", "takes whole numbers")):
        code, _, error = flowsim("scan", *words, "--set", "g=0.1", "--set", text)
        assert code == 2 and said in error
