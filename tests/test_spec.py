"""The value that names a model."""

import copy
import inspect
import pickle
import subprocess
import sys

import cloudpickle
import pytest

import flowsim
from flowsim import BinaryChain, InputError
from flowsim.spec import (
    BUILT_IN,
    ModelSpec,
    attributes_of,
    built_in,
    import_object,
    models_with,
    parameters,
    spec_of,
)

#: Arguments that are not the defaults, of the models that have such.
UNUSUAL = {
    "canonical": {"bias": "dynamic"},
    "uniform": {"length": 3},
    "rank-one": {"length": 2, "attention": True, "tied": False},
    "states": {"states": 3, "attention": True, "length": 2, "hidden_per_state": 5},
    "induction": {"length": 4},
    "memory": {"states": 3, "flip": 0.1, "length": 3, "decay": "positive"},
}
SPECS = [ModelSpec.first(name, **UNUSUAL.get(name, {})) for name in BUILT_IN]


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_a_model_and_its_record_lead_back_to_its_spec(spec):
    model = spec.build()
    assert model.name == spec.name and ModelSpec.of(model) == spec == spec_of(attributes_of(model))
    assert model is spec.build()


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_a_spec_is_a_value(spec):
    for again in (pickle.loads(pickle.dumps(spec)), copy.deepcopy(spec)):
        assert again == spec and hash(again) == hash(spec) and repr(again) == repr(spec)
    assert spec != ModelSpec.first("linear", bias="dynamic")
    with pytest.raises(AttributeError):
        spec.target = "canonical"


@pytest.mark.parametrize("name", BUILT_IN)
def test_the_defaults_are_those_of_the_constructor(name):
    kind = built_in(name)
    usual = inspect.signature(import_object(kind.home)).parameters
    for argument, about in parameters(kind).items():
        if argument in usual and usual[argument].default not in (inspect.Parameter.empty, None):
            assert about.default == usual[argument].default


def test_what_is_usual_what_must_be_given_and_how_far_sliders_go():
    chance = (0.001, 0.999)
    for model, name, *said in [
        ("canonical", "p", 0.5, True, chance), ("canonical", "q", 0.8, True, chance),
        ("uniform", "length", 8, False, (1, 64)), ("rank-one", "tied", True, False, None),
        ("rank-one", "attention", False, False, None), ("states", "states", 5, True, (2, 50)),
        ("states", "p", 0.9, True, chance), ("states", "hidden_per_state", 4, False, (1, 50)),
        ("states", "attention", False, False, None), ("memory", "flip", 0.2, False, (0.0, 0.49)),
        ("memory", "states", 2, False, (2, 3)), ("memory", "length", 2, False, (1, 8)),
    ]:  # fmt: skip
        about = parameters(built_in(model))[name]
        assert [about.default, about.required, about.slider] == said


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("softmax", {}, "model must be one of canonical, uniform"),
        ("canonical", {"depth": 2}, "no model has an option 'depth'"),
        ("canonical", {}, "needs p and q: chance of 1 after 0, chance of 0 after 1"),
        (
            "linear",
            {"length": 3},
            "no length; omit it, or choose uniform, rank-one, states, induction or",
        ),
        ("canonical", {"attention": True}, "no attention; omit it, or choose rank-one or states"),
        ("rank-one", {"bias": "dynamic"}, "always has its bias as a coordinate; omit bias"),
        ("states", {"p": 0.5}, "needs states: the number of states"),
        ("states", {"p": 0.5, "q": 0.5}, "takes no q"),
        ("states", {"p": 0.5, "states": 3, "length": 4}, "no length without attention; omit it"),
        ("induction", {"p": 0.5}, "draws the kernel of every sequence: omit p and q"),
        ("induction", {"prior": "gamma"}, "the kernels are from gamma: build the model by"),
        ("canonical", {"process": "flips", "p": 0.5}, "the process gives p and q: omit p"),
        ("memory", {"p": 0.9, "flip": 1.0}, "flip must be a number from 0 up to, but not, 1"),
        ("memory", {"p": 0.9, "flip": -0.1}, "flip must be a number from 0 up to, but not, 1"),
        ("memory", {"p": 0.9, "flip": True}, "flip must be a number from 0 up to, but not, 1"),
        ("memory", {"p": 0.9, "length": 19}, "19 positions of 2 states make more words than are"),
    ],
)
def test_other_names_and_arguments_are_refused_in_one_sentence(name, arguments, said):
    with pytest.raises(InputError) as refused:
        ModelSpec(name, arguments).build()
    assert said in str(refused.value)


def test_a_record_of_several_values_says_what_to_give():
    attributes = {"model": "uniform", "p": 0.5, "bias": "optimal"}
    with pytest.raises(InputError, match="not of one q and one length: give q and length"):
        flowsim.spec.model_from_attributes(attributes)
    model = flowsim.spec.model_from_attributes(attributes, q=0.8, length=3)
    assert model.chain == BinaryChain(0.5, 0.8) and model.length == 3


def test_arguments_are_known_before_anything_large_is_imported():
    """So that help and mistakes in options appear at once."""
    code = (
        "import sys, flowsim.cli.main, full_model.comparison.comparable as c\n"
        "from flowsim.spec import models_with\n"
        "assert c.COMPARABLE and models_with('p')\n"
        "assert not {'torch', 'numba', 'xarray'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert [*models_with("states")] == ["states", "memory"]


WELL = """
import flowsim

class Well(flowsim.Model):
    coordinates = ("x", "y")

    def __init__(self, g: float = 0.2):
        self.g = g

    def loss(self, theta):
        return ((theta - self.g) ** 2).sum(-1)
"""


def test_a_file_is_run_once_and_its_text_travels_with_the_spec(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(WELL)
    spec = ModelSpec(f"{path}:Well", {"g": 0.1})
    sent = cloudpickle.dumps((spec, spec.replace(g=0.3)))
    path.write_text(WELL.replace("class Well", "class Other"))
    code = (
        "import pickle, sys; spec, other = pickle.load(sys.stdin.buffer)\n"
        "assert spec.build().g == 0.1 and other.build().g == 0.3 and spec != other"
    )
    done = subprocess.run([sys.executable, "-c", code], input=sent, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    assert pickle.loads(pickle.dumps(spec)) == spec and spec.build().name == f"{path}:Well"
    with pytest.raises(InputError, match="has no class Well; it has Other"):
        ModelSpec(f"{path}:Well")


def test_a_class_is_a_target_too():
    space = {"__name__": "a_notebook"}
    exec(WELL, space)
    spec = ModelSpec(space["Well"], {"g": 0.1})
    assert spec.name == "Well" and spec.build().g == 0.1 and ModelSpec.of(spec.build()) == spec
    with pytest.raises(InputError, match="Well has no argument h; it takes g"):
        spec.replace(h=1.0)
    with pytest.raises(InputError, match="no class derived from"):
        ModelSpec(dict)


@pytest.mark.parametrize(
    ("name", "said"), [("ModelChoice", "ModelSpec\\("), ("reduced_model", "model\\(name, p, q")]
)
def test_names_that_went_are_answered_with_the_new_ones(name, said):
    with pytest.raises(AttributeError, match=said):
        getattr(flowsim, name)


def test_records_of_the_former_model_of_flips_are_on_its_process():
    former = {"model": "flips", "p": 0.5, "q": 0.8, "flip": 0.1, "bias": "optimal"}
    found = flowsim.spec.model_from_attributes(former)
    assert found.chain.process.name == "flips:p=0.5,q=0.8,epsilon=0.1"
    with pytest.raises(InputError, match="flips is now the canonical model on a hidden process"):
        flowsim.model("flips", 0.5, 0.8)
