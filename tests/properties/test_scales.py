"""Units decide nothing: rescaled and shifted coordinates and losses have the same ends."""

import numpy as np
import pytest
import torch

from flowsim import Ends, find_limits, from_loss

#: Factor of the coordinates, what is added to them (in old units), factor of the loss.
UNITS = [
    (2.0**20, 0.0, 1.0), (2.0**-20, 0.0, 1.0), (1e6, 0.0, 1.0), (3.0, 0.0, 1.0), (1e-3, 0.0, 7.0),
    (1.0, 100.0, 1.0), (1.0, -1e4, 1.0), (1.0, 0.0, 2.0**30), (1.0, 0.0, 1e-6), (1e3, 50.0, 1e3),
]  # fmt: skip


def drawn(seed):
    """A random loss of two coordinates with several minima in a bowl."""
    rng = np.random.default_rng(seed)
    rates, turns = rng.uniform(1.5, 4.0, (3, 2)), rng.uniform(0, 6, 3)

    def f(x, y):
        waves = sum(torch.sin(a * x + b * y + c) for (a, b), c in zip(rates, turns, strict=True))
        return (x**2 + y**2) / 4 + waves

    return f


def ends_in(f, start, size=1.0, shift=0.0, height=1.0):
    """Names, places in old units, and codes, of the model in other units."""
    model = from_loss(lambda x, y: height * f(x / size - shift, y / size - shift), "drawn")
    limits, ends = find_limits(model, (start + shift) * size), Ends(model)
    codes = ends.codes(limits.label, limits.theta, limits.loss)
    return ends.names, torch.stack([end.theta / size - shift for end in ends.found]), codes


@pytest.mark.parametrize("seed, every", [
    (2, 3), *(pytest.param(seed, 1, marks=pytest.mark.slow) for seed in range(3))
])  # fmt: skip
def test_units_change_no_label_no_number_and_no_share(seed, every):
    f = drawn(seed)
    start = torch.tensor(np.random.default_rng(seed).uniform(-3, 3, (24, 2)))
    names, places, codes = ends_in(f, start)
    assert len(names) > 2
    for units in UNITS[::every]:
        found = ends_in(f, start, *units)
        assert found[0] == names, units
        torch.testing.assert_close(found[1], places, rtol=0, atol=1e-6)
        assert torch.equal(found[2], codes), units
