"""The compiled field, Jacobian and loss of the rank-one model with attention."""

import numpy as np
import pytest
import torch

from flowsim import BinaryChain, RankOneModel
from flowsim.flow.rows.smooth import attention as attention
from flowsim.flow.rows.smooth.attention_jacobian import linearise


def evaluate(y, reals, ints, size):
    memory, field, jacobian = np.zeros(size), np.empty(len(y)), np.empty((len(y), len(y)))
    assert linearise(y, reals, ints, memory, field, jacobian) == 0
    return field, jacobian, attention.loss(y, reals, ints, memory)


def points(model, count, generator):
    k = len(model.coordinates)
    return 4 * torch.rand(count, k, dtype=torch.float64, generator=generator) - 2


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("length", [1, 2, 5, 8])
@pytest.mark.parametrize(("p", "q"), [(0.5, 0.8), (0.2, 0.3), (0.97, 0.6)])
def test_one_pass_agrees_with_the_model(p, q, length, tied, generator):
    """Away from the kinks a width of 1e-12 changes nothing."""
    model = RankOneModel(BinaryChain(p, q), length, attention=True, tied=tied)
    constants = attention.constants(model.chain, length, tied, width=1e-12)
    theta, metric = points(model, 10, generator), np.array(model.metric)
    gradients, hessians = model.gradient(theta).numpy(), model.hessian(theta).numpy()
    for y, gradient, hessian, loss in zip(
        theta.numpy(), gradients, hessians, model.loss(theta).numpy(), strict=True
    ):
        field, jacobian, found = evaluate(y, *constants)
        assert np.abs(field + gradient / metric).max() <= 1e-12 * np.abs(gradient).max()
        difference = jacobian + hessian / metric[:, None]
        assert np.abs(difference).max() <= 1e-12 * np.abs(hessian).max()
        assert abs(found - loss) < 1e-13


@pytest.mark.parametrize("tied", [True, False])
def test_inside_the_rounded_kinks_the_field_is_the_smoothed_loss_s_gradient(tied, generator):
    model = RankOneModel(BinaryChain(0.5, 0.8), 4, attention=True, tied=tied)
    constants = attention.constants(model.chain, 4, tied, width=2.0)
    metric, h = np.array(model.metric), 1e-5
    for y in points(model, 5, generator).numpy():
        field, jacobian, _ = evaluate(y, *constants)
        slope, bend = np.empty(len(y)), np.empty((len(y), len(y)))
        for j in range(len(y)):
            up, down = (evaluate(y + sign * h * np.eye(len(y))[j], *constants) for sign in (1, -1))
            slope[j] = (up[2] - down[2]) / (2 * h)
            bend[:, j] = (up[0] - down[0]) / (2 * h)
        assert np.abs(field + slope / metric).max() < 1e-8
        assert np.abs(jacobian - bend).max() < 1e-7 * np.abs(jacobian).max()
