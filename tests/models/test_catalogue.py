"""The list of models, and what each family says of itself."""

import copy
import pickle
import subprocess
import sys

import pytest
import torch

from flowsim import (
    AttentionModel,
    BinaryChain,
    InductionModel,
    InputError,
    ModelChoice,
    RankOneModel,
    SymmetricChain,
    reduced_model,
)
from flowsim.models.catalogue import MODELS, families_with, family_of
from flowsim.models.rank_one.family import FAMILY as RANK_ONE
from flowsim.models.untied.family import FAMILY as UNTIED

#: Options that are not as usual, of the models that have such.
UNUSUAL = {
    "canonical": {"bias": "dynamic"},
    "uniform": {"length": 3},
    "rank-one": {"length": 2, "attention": True, "tied": False},
    "states": {"states": 3, "attention": True, "length": 2, "hidden_per_state": 5},
    "induction": {"length": 4},
}
#: Whose loss is a function of the gap.
GAP = ("canonical", "linear", "untied")
CHOICES = [ModelChoice(name, **UNUSUAL.get(name, {})) for name in MODELS]


def test_every_name_has_a_family_and_its_options_are_what_its_models_say():
    for choice in CHOICES:
        family = choice.family
        assert family is family_of(choice.name) and family.name == choice.name
        data = {name: about.default for name, about in family.data.items()}
        model = choice.on(choice.chain(**data))
        assert model.name == choice.name and ModelChoice.of(model) == choice
        assert {*model.options()} == {*choice.options} <= {*family.options}


@pytest.mark.parametrize("choice", CHOICES, ids=lambda choice: choice.name)
def test_a_choice_is_a_value(choice):
    for again in (pickle.loads(pickle.dumps(choice)), copy.deepcopy(choice)):
        assert again == choice and hash(again) == hash(choice) and repr(again) == repr(choice)
    assert choice != ModelChoice("linear", bias="dynamic")
    with pytest.raises(AttributeError, match="made anew"):
        choice.length = 5


def test_what_a_model_lacks_is_as_without_it():
    choice = ModelChoice("canonical", bias="optimal", attention=False, tied=True, states=None)
    assert choice == ModelChoice() and [*choice.options] == ["bias"]
    assert (choice.length, choice.states, choice.attention, choice.tied) == (
        None,
        None,
        False,
        True,
    )
    with pytest.raises(AttributeError, match="no model has an option 'depth'"):
        choice.depth  # noqa: B018


def test_a_rank_one_model_is_tied_and_has_no_attention_unless_it_is_asked_for():
    assert ModelChoice("rank-one").options == {"length": 8, "attention": False, "tied": True}
    defaults = {name: option.default for name, option in RANK_ONE.options.items()}
    assert defaults == ModelChoice("rank-one").options and RANK_ONE.tied and not UNTIED.tied


def test_a_chain_says_what_else_would_be_given():
    assert reduced_model("states", SymmetricChain(7, 0.5)).options()["states"] == 7


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("softmax", {}, "model must be one of canonical, uniform"),
        ("canonical", {"depth": 2}, "no model has an option 'depth'"),
        ("linear", {"length": 3}, "no length; omit it, or choose uniform, rank-one, states or"),
        ("canonical", {"attention": True}, "no attention; omit it, or choose rank-one or states"),
        ("untied", {"tied": False}, "no untied weights; omit it, or choose rank-one"),
        ("rank-one", {"bias": "dynamic"}, "always has its bias as a coordinate; omit bias"),
        ("states", {}, "needs states, the number of states"),
    ],
)
def test_other_names_and_options_are_refused_in_one_sentence(name, options, said):
    with pytest.raises(InputError, match=said):
        ModelChoice(name, **options)


def test_families_are_asked_before_anything_large_is_imported():
    """So that help and mistakes in options appear at once."""
    code = (
        "import sys, flowsim.cli.main, full_model.comparison.comparable as c\n"
        "assert c.COMPARABLE and not {'torch', 'numba', 'xarray'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert [family.name for family in families_with("states")] == ["states"]


def test_orbits_of_a_portrait_start_inside_its_window():
    for choice in CHOICES:
        data = {name: about.default for name, about in choice.family.data.items()}
        orbits = torch.tensor([*choice.on(choice.chain(**data)).plane.orbits])
        assert ((orbits > 0) & (orbits < 1)).all(), choice.name


def test_an_induction_model_is_built_on_a_law_of_kernels_alone():
    family = family_of("induction")
    with pytest.raises(InputError, match="the record's kernels are from beta"):
        family.read_chain({"prior": "beta"}, {"length": 5})
    assert family.read_chain({"prior": "dirichlet"}, {"length": 5}) is family.chain({})
    with pytest.raises(InputError, match="needs a law of kernels, not Bin"):
        ModelChoice("induction").on(BinaryChain(0.5, 0.8))


def test_tolerances_are_as_find_limits_says():
    models = [choice.on(choice.chain(p=0.5, q=0.8)) for choice in map(ModelChoice, GAP)]
    assert all(model.flow().rtol == 1e-10 for model in models)
    chain = BinaryChain(0.5, 0.8)
    for model, rtol in ((RankOneModel(chain, 8), 1e-8), (InductionModel(5), 1e-8),
                        (AttentionModel(chain, 8), 1e-6)):  # fmt: skip
        assert model.flow().rtol == rtol


def test_a_pace_is_how_fast_what_is_learned_decays():
    p, q = 0.2, 0.9
    for name in ("canonical", "linear", "rank-one"):
        model = ModelChoice(name).on(BinaryChain(p, q))
        assert model.pace() == pytest.approx(p * q / (p + q) ** 2 * abs(1 - p - q))
