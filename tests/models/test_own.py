"""A model of a user's own: from a file, a module, an object, a formula; and what is told of it."""

import json

import numpy as np
import pytest
import torch
from command import assert_refused, run

import flowsim
from flowsim import InputError, ModelSpec, from_loss
from flowsim.curves import Curve
from flowsim.interface import conserved_values
from flowsim.noise import end_probabilities
from flowsim.records.model_attributes import source_attributes
from flowsim.scan import cell_centres

WELL = '''
import flowsim

class DoubleWell(flowsim.Model):
    """Two wells, tilted by g."""
    coordinates = ("x", "y")

    def __init__(self, g: float = 0.2):
        self.g = g

    def loss(self, theta):
        x, y = theta.unbind(-1)
        return (x**2 - 1) ** 2 / 4 + y**2 / 2 + self.g * x
'''
WINDOW = {"x": (-2.0, 2.0), "y": (-2.0, 2.0)}
AXES = {"x": np.linspace(-2, 2, 6), "y": np.linspace(-2, 2, 6)}
#: The critical points of (x² − 1)²/4 + g x, from numpy's roots: a hill between two wells.
ROOTS = {g: sorted(np.roots([1, 0, -1, g]).real) for g in (0.2, 0.1)}
WELLS = {g: roots[::2] for g, roots in ROOTS.items()}


@pytest.fixture
def mine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(WELL)
    return tmp_path


def well():
    return from_loss(lambda x, y, g=0.2: (x**2 - 1) ** 2 / 4 + y**2 / 2 + g * x, "well")


def test_a_file_names_a_model_that_keeps_its_arguments(mine):
    model = ModelSpec("mine.py:DoubleWell", {"g": 0.1}).build()
    assert model.name == "mine.py:DoubleWell" and model.g == 0.1
    assert ModelSpec.of(model).options == {"g": 0.1}
    record = flowsim.scan(model, AXES)
    assert record.attrs["model"] == "mine.py:DoubleWell"
    assert json.loads(record.attrs["arguments"]) == {"g": 0.1}
    assert record.attrs["source"] == WELL and len(record.attrs["source_digest"]) == 64
    ends = sorted(np.unique(record["limit_x"].to_numpy().round(6)))
    np.testing.assert_allclose(ends, WELLS[0.1], atol=1e-6)


class Bordered(flowsim.Model):
    """The double well with a border of its own, which is no mirror image of another."""

    coordinates = ("x", "y")

    def loss(self, theta):
        x, y = theta.unbind(-1)
        return (x**2 - 1) ** 2 / 4 + y**2 / 2 + 0.2 * x

    @property
    def plane(self):
        return Border(self)


class Border(flowsim.Plane):
    def curves(self, window, fixed, points=1201, quick=False):
        x = np.linspace(*window[self.x], points)
        return [Curve("separatrix", x, 1 + x**2 / 10)]


def test_a_plane_of_its_own_keeps_the_critical_points_and_draws_its_border_once():
    record = flowsim.portrait(Bordered(), resolution=4, window=WINDOW, confirm=0)
    assert len(flowsim.summarize(record)["critical_points"]) == 3
    axes = flowsim.draw(record).axes[0]
    borders = [np.asarray(line.get_ydata()) for line in axes.lines if len(line.get_xdata()) > 1000]
    assert len(borders) == 1 and (borders[0] >= 1).all()


def test_a_portrait_is_drawn_from_its_file_alone(mine):
    words = ["--model", "mine.py:DoubleWell", "--set", "g=0.1", "--window", "x=-2:2,y=-2:2"]
    words += ["--resolution", "4", "--confirm", "0", "--no-orbits"]
    done = run("portrait", *words, "--quiet", "--json", cwd=mine)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    shares, points = summary["fraction"], summary["critical_points"]
    assert set(shares) == {"minimum_1", "minimum_2"} and sum(shares.values()) == 1
    (mine / "mine.py").write_text("raise SystemExit('this file must not be run')")
    name = "portrait_DoubleWell_g0.1.nc"
    record = flowsim.read_record(mine / name)
    assert record.attrs["cells_minimum_1"] == record.attrs["cells_minimum_2"] == 8
    assert [point["kind"] for point in points] == ["minimum", "saddle", "minimum"]
    found = [[p["x"], p["y"]] for p in points]
    np.testing.assert_allclose(found, [(x, 0) for x in ROOTS[0.1]], rtol=1e-7, atol=1e-9)
    places = [x for x, _ in found]
    at = {(line.get_label(), *line.get_xdata()) for line in flowsim.draw(record).axes[0].lines}
    assert {("minimum", *places[::2]), ("saddle", *places[1:2])} <= at
    assert run("portrait", "--from", name, "--out", "again.png", cwd=mine).returncode == 0
    with pytest.raises(InputError, match=r"the record's model is 'mine.py:DoubleWell'"):
        flowsim.spec.model_from_attributes(record.attrs)


BAD = {
    "shape": ("return theta", r"has the shape \(3, 2\) for θ of shape \(3, 2\); it must be \(3,\)"),
    "numpy": ("return theta.sum(-1).detach().numpy()", "is ndarray, not a tensor"),
    "detached": ("return theta.detach().sum(-1)", "is not differentiable"),
    "nan": ("return (-theta.square().sum(-1)).log()", "is finite at no start, such as x = -"),
    "changes": ("theta *= 2; return theta.sum(-1)", "changes its argument"),
    "mixes": ("return (theta - theta.mean(0)).square().sum(-1)", "mixes the rows"),
    "raises": ("return 1 / 0", "failed: ZeroDivisionError"),
    "float": ("return theta.sum(-1).float()", "it must be float64"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_loss_is_told_in_a_sentence(name, mine):
    body, reason = BAD[name]
    head = "import flowsim\nclass Bad(flowsim.Model):\n    coordinates = ('x', 'y')\n"
    (mine / "bad.py").write_text(f"{head}    def loss(self, theta):\n        {body}\n")
    done = run("portrait", "--model", "bad.py:Bad", "--resolution", "4", "--quiet", cwd=mine)
    assert_refused(done, "bad.py:Bad")
    model = ModelSpec("bad.py:Bad").build()
    with pytest.raises(InputError, match=reason):
        flowsim.find_limits(model, [[-1.0, -0.5], [0.5, -2.0]])


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_told(mine):
    words = ["scan", "--model", "mine.py:DoubleWell", "--grid", "2x2", "--confirm", "0", "--device"]
    assert_refused(run(*words, "cuda", cwd=mine), "this machine has no CUDA device")
    done = run(*words, "auto", cwd=mine)
    assert done.returncode == 0, done.stderr


class Doubled(flowsim.models.InductionModel):
    def loss(self, theta):
        return 2 * super().loss(theta)


def test_a_subclass_with_another_loss_forgets_the_levels_of_its_parent():
    assert Doubled(5).end_losses() is None
    assert flowsim.models.InductionModel(5).classify([[0.0, 0.0]], True).shape == (1,)


def test_the_source_of_a_class_of_a_notebook_is_its_cell():
    import linecache

    text = WELL.replace("DoubleWell", "InACell")
    linecache.cache["<cell 1>"] = (len(text), None, text.splitlines(True), "<cell 1>")
    space = {"__name__": "no_such_module"}
    exec(compile(text, "<cell 1>", "exec"), space)
    source = source_attributes(space["InACell"]())["source"]
    assert source.startswith("class InACell") and source.strip().endswith("self.g * x")


def test_the_interface_is_what_an_author_needs():
    """At most fifteen public members of a model, and ten of a plane."""
    kinds = flowsim.Model, flowsim.Plane
    model, plane = ({*vars(kind), *kind.__annotations__} for kind in kinds)
    plane |= vars(well().plane).keys()
    assert sum(not name.startswith("_") for name in model) <= 15
    assert sum(not name.startswith("_") for name in plane) <= 10


class Rows(flowsim.Model):
    """A loss that loops over its rows, of which there must be one."""

    coordinates = ("x", "y")

    def loss(self, theta):
        rows = theta.reshape(-1, 2)
        wells = [((x - 1) ** 2 if x > 0 else (x + 1) ** 2) / 2 + y**2 / 2 for x, y in rows]
        return torch.stack(wells).reshape(theta.shape[:-1])


def test_a_loss_that_loops_over_its_rows_is_never_asked_of_none():
    model, none = Rows(), torch.zeros(0, 2, dtype=torch.float64)
    assert model.field(none).shape == (0, 2)
    assert model.jacobian(none).shape == (0, 2, 2)


LINE = """
import flowsim


class Line(flowsim.Model):
    coordinates = ("x",)

    def loss(self, theta):
        return (theta[..., 0] ** 2 - 1) ** 2 / 4


class Mine(flowsim.models.CanonicalModel):
    pass
"""


def test_a_model_of_one_coordinate_has_scans_and_shares_but_no_portrait(mine):
    (mine / "line.py").write_text(LINE)
    words = ["--model", "line.py:Line", "--window", "x=-1:2", "--grid", 8, "--confirm", 0]
    done = run("scan", *words, "--out", "a.nc", cwd=mine)
    assert done.returncode == 0, done.stderr
    record = flowsim.read_record(mine / "a.nc")
    np.testing.assert_allclose(record.limit_x, np.sign(record.x), atol=1e-6)
    np.testing.assert_allclose(record.share, [0, 3 / 8, 5 / 8])
    model = ModelSpec("line.py:Line").build()
    cloud = flowsim.gaussian(model, [1.0], samples=9)
    assert (cloud.count_minimum_1 + cloud.count_minimum_2).values.tolist() == [9]
    seed = torch.Generator().manual_seed(0)
    noise = end_probabilities(model, {"x": np.array([-1.0, 1.0])}, [0.1], 0.1, seed, seeds=3)
    assert flowsim.draw(noise).axes[0].get_ylabel() == "share of the paths"
    done = run("portrait", "--model", "line.py:Line", cwd=mine)
    assert_refused(done, "the model line.py:Line has one coordinate, and no plane")


def test_a_class_derived_from_a_built_in_model_takes_the_arguments_of_its_chain(mine):
    (mine / "line.py").write_text(LINE)
    model = ModelSpec("line.py:Mine", {"p": 0.5, "q": 0.8}).build()
    assert model.chain == flowsim.BinaryChain(0.5, 0.8)
    assert ModelSpec.of(model).options == {"p": 0.5, "q": 0.8, "bias": "optimal"}
    words = ["--p", 0.5, "--q", "0.2:0.8:2", "--grid", "4x4", "--confirm", 0, "--out", "a.nc"]
    done = run("scan", "--model", "line.py:Mine", *words, cwd=mine)
    assert done.returncode == 0, done.stderr
    axes = {"e": cell_centres(-3, 3, 4), "w": cell_centres(-3, 3, 4)}
    built_in = flowsim.scan(flowsim.model("canonical", 0.5, 0.8), axes)
    found = flowsim.read_record(mine / "a.nc")
    np.testing.assert_array_equal(found.label[1], built_in.label)
    done = run("scan", "--model", "line.py:Mine", "--grid", "4x4", cwd=mine)
    assert_refused(done, "line.py:Mine needs p, q: give --set p=")


def test_members_of_former_versions_answer_with_the_new_ones():
    with pytest.raises(AttributeError, match=r"no with_axes: use flowsim\.interface\.with_axes"):
        well().with_axes("x", "y")
    for name in flowsim.interface.FORMER:
        with pytest.raises(AttributeError, match=f"'well' object has no {name}: use "):
            getattr(well(), name)
    with pytest.raises(AttributeError, match="no holds: use fixable"):
        _ = well().plane.holds
    with pytest.raises(AttributeError, match=r"'UntiedModel' object has no p: use chain\.p"):
        _ = flowsim.model("untied", 0.5, 0.8).p
    with pytest.raises(InputError, match="Old defines subtitle: write the second line of title"):
        type("Old", (flowsim.Model,), {"coordinates": ("x",), "subtitle": "of old"})
    kept = {"coordinates": ("x",), "conserved": lambda self, theta: theta}
    with pytest.raises(InputError, match="conserved of Kept must return a dict"):
        conserved_values(type("Kept", (flowsim.Model,), kept)(), torch.ones(2, 1))
