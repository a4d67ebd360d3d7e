"""Ends that are found: grouped by place, connection, and where they grow without bound."""

from functools import cache

import numpy as np
import pytest
import torch

from flowsim import Label, from_loss
from flowsim.flow.orbits import find_limits
from flowsim.landscape import Ends

MODELS = {
    "six wells": (
        lambda x, y: (4 - 2.1 * x**2 + x**4 / 3) * x**2 + x * y + (-4 + 4 * y**2) * y**2,
        ["minimum"] * 6, [0] * 6,
    ),
    "two curves": (lambda a, b: (a * b - 1) ** 2 / 2, ["minimum"] * 2, [1, 1]),
    "a circle": (lambda x, y: (x**2 + y**2 - 1) ** 2 + 1, ["minimum"], [1]),
    "four surfaces": (lambda a, b, c: (a * b * c - 1) ** 2 / 2, ["minimum"] * 4, [2] * 4),
    "a saddle": (lambda x, y: y**2 - x**2, ["infinity"] * 2, [0, 0]),
}  # fmt: skip


@cache
def limits_of(name, shift):
    """The model, and the limits of 32 starts drawn from [−2, 2]ᵏ."""
    model = from_loss(MODELS[name][0], "model")
    source = torch.Generator().manual_seed(3 + shift)
    starts = 4 * torch.rand(32, len(model.coordinates), generator=source).double() - 2
    return model, find_limits(model, starts)


def ends_of(name, shift=0):
    """The ends of a model, the codes of its starts, and their limits."""
    model, limits = limits_of(name, shift)
    ends = Ends(model)
    return ends, ends.identify(limits), limits


@pytest.mark.parametrize("name", MODELS)
def test_every_start_is_decided_and_ends_are_told_apart(name):
    ends, codes, _ = ends_of(name)
    _, kinds, flat = MODELS[name]
    assert [end.kind for end in ends.found] == kinds
    assert [end.dimension for end in ends.found] == flat
    assert (codes > 0).all() and set(codes.tolist()) == set(range(1, len(kinds) + 1))
    losses = [end.loss for end in ends.found]
    np.testing.assert_allclose(losses, sorted(losses), atol=1e-9)
    numbers = [f"{kind}_{kinds[: i + 1].count(kind)}" for i, kind in enumerate(kinds)]
    assert ends.names == ["unresolved", *numbers]


def test_the_wells_are_those_of_the_six_hump_camel():
    """Dixon & Szegő: the lowest two at ±(0.0898, −0.7126), loss −1.0316."""
    ends, _, _ = ends_of("six wells")
    for end in ends.found[:2]:
        assert abs(end.loss + 1.0316284535) < 1e-9
        np.testing.assert_allclose(end.theta.abs(), [0.08984201, 0.7126564], atol=1e-7)


@pytest.mark.parametrize("off", [1e-8, -1e-8])
def test_what_is_not_known_of_minima_at_a_kink_does_not_number_them(off):
    model = from_loss(lambda x, y: (x - 0.3).abs() + (y**2 - 1) ** 2, "kink")
    theta = torch.tensor([[0.3 + off, 1.0], [0.3 - off, -1.0]]).double()
    label = torch.full((2,), Label.LOCAL_MINIMUM)
    assert Ends(model).codes(label, theta, model.loss(theta)).tolist() == [2, 1]


def test_later_starts_get_the_codes_of_the_ends_that_are_known():
    ends, _, _ = ends_of("six wells")
    names, (_, codes, limits) = ends.names, ends_of("six wells", shift=1)
    again = ends.identify(limits)
    assert ends.names == names
    torch.testing.assert_close(again, codes)
