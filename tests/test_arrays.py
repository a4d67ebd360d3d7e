"""Tensors, numpy arrays and lists mean the same numbers to every model."""

import numpy as np
import pytest
import torch
import xarray as xr

import flowsim
from flowsim.arrays import to_tensor

MODELS = [
    flowsim.model("canonical", 0.5, 0.8),
    flowsim.model("uniform", 0.5, 0.8, length=4),
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


def test_a_model_says_what_it_is():
    assert list(map(repr, MODELS)) == [
        "CanonicalModel(p=0.5, q=0.8)",
        "UniformAttentionModel(p=0.5, q=0.8, length=4)",
        "RankOneModel(p=0.5, q=0.8, length=3, attention=True, tied=False)",
    ]
