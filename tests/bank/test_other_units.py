"""Units change nothing: those of the coordinates, where their zero is, and that of the loss."""

from functools import cache

import numpy as np
import pytest
import torch
from bank.outcomes import of_loss

import flowsim
from flowsim.landscape.ends import Ends


def random_wells(seed, size=1.0, shift=0.0, unit=1.0):
    """A random landscape of wells and hills in a bowl, in other units; and starts in it."""
    draws = np.random.default_rng(seed)
    centres, depths = draws.uniform(-2, 2, (4, 2)), draws.uniform(-0.5, 1.5, 4)

    def loss(x, y):
        x, y = (x - shift * size) / size, (y - shift * size) / size
        bowl = (x**2 + y**2) ** 2 / 50
        for (a, b), depth in zip(centres, depths, strict=True):
            bowl = bowl - depth * torch.exp(-((x - a) ** 2) - (y - b) ** 2)
        return unit * bowl

    starts = draws.uniform(-3, 3, (16, 2))
    return of_loss("wells", "x y", loss), (starts + shift) * size


def ends_in(seed, **units):
    model, starts = random_wells(seed, **units)
    found = flowsim.find_limits(model, torch.from_numpy(starts))
    ends = Ends(model)
    codes = ends.identify(found)
    return found.label.tolist(), codes.tolist(), [end.kind for end in ends.found]


#: Ends in the first units, one time for all others.
ends_at_first = cache(ends_in)

UNITS = [
    {"size": 1e-9}, {"size": 1e9}, {"unit": 1e-12}, {"unit": 1e12}, {"shift": 30.0},
    {"shift": -1e6}, {"shift": 1e3, "size": 1e-6, "unit": 1e3}, {"size": 1e-12, "unit": 1e-24},
    {"size": 1e9, "unit": 1e18}, {"shift": 1e5, "size": 1e-6, "unit": 1e15},
]  # fmt: skip


@pytest.mark.parametrize("units, seed", [
    pytest.param(units, i % 3, marks=[] if i in (0, 4, 8) else pytest.mark.slow)
    for i, units in enumerate(UNITS)
], ids=str)  # fmt: skip
def test_other_units_change_no_label_and_no_number(units, seed):
    label, codes, kinds = ends_at_first(seed)
    assert len(kinds) > 1 and min(label) > 0  # or there was nothing to confuse
    assert ends_in(seed, **units) == (label, codes, kinds)


@pytest.mark.slow
def test_other_units_change_no_share_of_a_portrait():
    shares = []
    for change in ({}, {"size": 1e-9}, {"size": 1e6}, {"unit": 1e-9}, {"shift": 1e3}):
        model, _ = random_wells(1, **change)
        size, shift = change.get("size", 1.0), change.get("shift", 0.0)
        window = dict.fromkeys("xy", ((shift - 3) * size, (shift + 2.8) * size))
        record = flowsim.portrait(model, window=window, resolution=4, confirm=0, boundary=False)
        shares.append((record.label.values.tolist(), record.curve_kind.values.tolist()))
    assert all(share == shares[0] for share in shares)
