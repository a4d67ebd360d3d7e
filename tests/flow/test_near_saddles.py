"""Starts close to saddles and maxima leave them the right way, and in the right time."""

import math

import numpy as np
import pytest
import torch

import flowsim
from flowsim import Label, Model


class Product(Model):
    """Layers of one number each that shall multiply to 1."""

    def __init__(self, depth):
        self.coordinates = tuple("abcdef"[:depth])

    def loss(self, theta):
        return (1 - theta.prod(-1)) ** 2 / 2


class Saddle(Model):
    """A saddle at (o, o) between two minima; along the axes, or along the diagonals."""

    coordinates = ("x", "y")

    def __init__(self, offset=0.0, turned=False):
        self.offset, self.turned = offset, turned

    def loss(self, theta):
        x, y = (theta - self.offset).unbind(-1)
        if self.turned:
            x, y = (x + y) / math.sqrt(2), (x - y) / math.sqrt(2)
        return x**2 / 2 - y**2 / 2 + y**4 / 4


@pytest.mark.slow
@pytest.mark.parametrize("depth, sigma", [(3, 1e-20), (6, 1e-6)])
def test_unequal_small_first_weights_end_on_the_side_that_their_invariants_say(depth, sigma):
    """wᵢ² − wⱼ² stays, so only the smallest layer crosses zero, where the product is negative."""
    starts = sigma * np.random.default_rng(3).normal(size=(4, depth))
    found = flowsim.find_limits(Product(depth), starts)
    assert (found.label == Label.LOCAL_MINIMUM).all() and found.loss.max() < 1e-12
    sign = np.sign(starts)
    sign[np.arange(4), np.abs(starts).argmin(1)] *= sign.prod(1)
    assert (np.sign(found.theta) == sign).all()


@pytest.mark.parametrize("offset, size", [(0.0, 1e-20), (1e3, 1e-9)])
def test_so_do_starts_beside_a_saddle_anywhere_in_any_direction(offset, size):
    starts = torch.tensor([[size, -size], [-size, size]], dtype=torch.float64) + offset
    found = flowsim.find_limits(Saddle(offset, True), starts)
    assert (found.label == Label.LOCAL_MINIMUM).all()
    across = (found.theta[:, 0] - found.theta[:, 1]) / math.sqrt(2)
    assert across.tolist() == pytest.approx([1.0, -1.0])
    on = flowsim.find_limits(Saddle(), [[0.0, 0.0], [0.3, 0.0], [1e-9, 0.0]])
    assert (on.label == Label.SADDLE).all()  # those on the line that it attracts end there


class FlatSaddle(Model):
    """A saddle in (x, y) that is one for every s, or without curvature in y."""

    coordinates = ("x", "y", "s")

    def __init__(self, cubic):
        self.cubic = cubic

    def loss(self, theta):
        x, y, _ = theta.unbind(-1)
        return x**2 / 2 + (y**3 if self.cubic else y**4 / 4 - y**2 / 2)


@pytest.mark.slow
@pytest.mark.turns
def test_what_rounding_hides_beside_a_flat_saddle_is_unresolved():
    """Several that stay tiny and move where they are larger; not what moves nowhere."""
    tiny = torch.tensor([[1.0, 0.0, 1e-20], [1.0, 1e-20, 1e-20]], dtype=torch.float64)
    assert (flowsim.find_limits(FlatSaddle(False), tiny[:1]).label == Label.SADDLE).all()
    assert (flowsim.find_limits(FlatSaddle(True), tiny).label == Label.SADDLE).all()
    leaves = tiny[1:] * torch.tensor([1.0, -1.0, 1.0])
    assert flowsim.find_limits(FlatSaddle(True), leaves).label == Label.INFINITY

    memory = flowsim.model("memory", 0.2)
    start = torch.tensor([[1.0, 2.0, 1.0, -1.0]], dtype=torch.float64)
    assert flowsim.find_limits(memory, 1e-9 * start).label == Label.LOCAL_MINIMUM
    assert flowsim.find_limits(memory, 1e-20 * start).label == Label.UNRESOLVED
