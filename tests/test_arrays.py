"""Tensors, numpy arrays and lists mean the same numbers to every model."""

import numpy as np
import pytest
import torch
import xarray as xr

import flowsim
from flowsim.arrays import to_tensor

MODELS = [
    flowsim.model("canonical", 0.5, 0.8),
    flowsim.model("canonical", 0.5, 0.8, bias="dynamic"),
    flowsim.model("uniform", 0.5, 0.8, length=4),
    flowsim.model("linear", 0.5, 0.8),
    flowsim.model("untied", 0.5, 0.8),
    flowsim.model("rank-one", 0.5, 0.8, length=3),
    flowsim.model("rank-one", 0.5, 0.8, length=3, attention=True, tied=False),
]


def starts(model):
    k = len(model.coordinates)
    return np.linspace(-0.7, 0.9, 2 * k).reshape(2, k)


@pytest.mark.parametrize("model", MODELS, ids=repr)
@pytest.mark.parametrize("method", ["loss", "gradient", "optimal_bias"])
def test_models_answer_in_kind(model, method):
    theta = starts(model)
    expected = getattr(model, method)(torch.from_numpy(theta))
    assert isinstance(expected, torch.Tensor)
    given = [theta, theta.tolist(), tuple(map(tuple, theta)), xr.DataArray(theta)]
    for values in given:
        found = getattr(model, method)(values)
        assert isinstance(found, np.ndarray)
        assert np.array_equal(found, expected.numpy())
    one = getattr(model, method)(list(theta[0]))
    assert np.array_equal(one, getattr(model, method)(torch.from_numpy(theta[0])).numpy())


def test_what_is_conserved_answers_in_kind():
    for model in MODELS:
        expected = model.conserved(torch.from_numpy(starts(model)))
        found = model.conserved(starts(model).tolist())
        assert expected.keys() == found.keys()
        assert all(np.array_equal(found[name], expected[name].numpy()) for name in found)
        assert all(isinstance(value, np.ndarray) for value in found.values())


@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_another_number_of_columns_is_refused(model):
    for theta in (starts(model)[:, :-1], np.append(starts(model)[0], 1.0), 1.0):
        for method in (model.loss, model.gradient, model.optimal_bias, model.conserved):
            with pytest.raises(flowsim.InputError, match="theta needs shape"):
                method(theta)
            with pytest.raises(flowsim.InputError, match="theta needs shape"):
                method(torch.as_tensor(theta))


@pytest.mark.parametrize("bad", [["a", 1.0], [[1.0], [1.0, 2.0]], [1j, 2.0], None, [None, 1.0]])
def test_what_is_no_numbers_is_refused(bad):
    with pytest.raises(flowsim.InputError, match="starts must be"):
        to_tensor(bad, "starts")


def test_a_tensor_keeps_its_graph_and_an_array_its_owner():
    theta = torch.tensor([0.5, -0.4], dtype=torch.float64, requires_grad=True)
    MODELS[0].loss(theta).backward()
    assert torch.allclose(theta.grad, MODELS[0].gradient(theta.detach()))
    array = np.array([0.5, -0.4])
    to_tensor(array).zero_()
    assert array[0] == 0.5
    assert to_tensor(torch.ones(2)).dtype == torch.float64


def test_closed_forms_take_arrays():
    chain = flowsim.BinaryChain(0.5, 0.8)
    w = [-0.6, -0.3]
    found = flowsim.models.separatrix(chain, w)
    assert isinstance(found, np.ndarray)
    assert np.array_equal(
        found, flowsim.models.separatrix(chain, torch.tensor(w, dtype=torch.float64))
    )
    assert flowsim.models.separatrix(chain, -0.3) == found[1]
    assert flowsim.models.reaches_global_minimum(chain, [[1.0, -0.3], [1.0, 0.3]]).tolist() == [
        True,
        False,
    ]
    assert flowsim.models.energy([1.0, 2.0]) == pytest.approx(1 - 4 - np.log(2))


def test_a_model_says_what_it_is():
    assert list(map(repr, MODELS)) == [
        "CanonicalModel(p=0.5, q=0.8)",
        "CanonicalModel(p=0.5, q=0.8, bias='dynamic')",
        "AttentionModel(p=0.5, q=0.8, length=4)",
        "LinearAttentionModel(p=0.5, q=0.8)",
        "UntiedModel(p=0.5, q=0.8)",
        "RankOneModel(p=0.5, q=0.8, length=3)",
        "RankOneModel(p=0.5, q=0.8, length=3, attention=True, tied=False)",
    ]
