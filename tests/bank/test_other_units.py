"""Units change nothing: those of the coordinates, where their zero is, and that of the loss."""

from functools import cache

import numpy as np
import pytest
import torch
from bank.outcomes import of_loss, system

import flowsim
from flowsim.landscape.ends import Ends


def random_wells(seed, size=1.0, shift=0.0, unit=1.0, k=2, turn=0.0):
    """A random landscape of wells and hills in a bowl, in other units; and starts in it.

    With ``turn`` its descent is turned: a field that spirals into the wells.
    """
    draws = np.random.default_rng(seed)
    centres, depths = draws.uniform(-2, 2, (4, k)), draws.uniform(-0.5, 1.5, 4)

    def loss(*theta):
        theta = [(x - shift * size) / size for x in theta]
        bowl = sum(x**2 for x in theta) ** 2 / 50
        for centre, depth in zip(centres, depths, strict=True):
            bowl = bowl - depth * torch.exp(
                -sum((x - c) ** 2 for x, c in zip(theta, centre, strict=True))
            )
        return unit * bowl

    names, starts = " ".join("xyz"[:k]), (draws.uniform(-3, 3, (16, k)) + shift) * size
    model = of_loss("wells", names, loss)
    if not turn:
        return model, starts
    skew = np.triu(draws.normal(size=(k, k)), 1)
    matrix = -torch.from_numpy(np.eye(k) + turn * (skew - skew.T))

    def field(*theta):
        return (model.gradient(torch.stack(theta, -1)) @ matrix.T).unbind(-1)

    return system("turning", names, field, loss), starts


def ends_in(seed, few=16, steps="", **units):
    model, starts = random_wells(seed, **units)
    starts = torch.from_numpy(starts[:few])
    if steps:
        rate = 0.05 * units.get("size", 1.0) ** 2 / units.get("unit", 1.0)
        found = flowsim.descend(model, starts, optimizer=steps, learning_rate=rate, steps=5000)
    else:
        found = flowsim.find_limits(model, starts)
    ends = Ends(model)
    codes = ends.identify(found)
    return found.label.tolist(), codes.tolist(), [end.kind for end in ends.found]


#: Ends in the first units, one time for all others.
ends_at_first = cache(ends_in)

UNITS = [
    {"size": 1e-9}, {"unit": 1e12}, {"shift": -1e6}, {"size": 1e-12, "unit": 1e-24},
    {"shift": 1e5, "size": 1e-6, "unit": 1e15},
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.turns
@pytest.mark.parametrize("units, seed", [(u, i % 3) for i, u in enumerate(UNITS)], ids=str)
def test_other_units_change_no_label_and_no_number(units, seed):
    label, codes, kinds = ends_at_first(seed)
    assert len(kinds) > 1 and min(label) > 0  # or there was nothing to confuse
    assert ends_in(seed, **units) == (label, codes, kinds)


TURNS = [pytest.mark.slow, pytest.mark.turns]
#: Of three coordinates: a loss, a field that turns, and steps of optimizers.
FLOWS = [{}, {"turn": 1.0}, {"steps": "gd"}, {"steps": "momentum"}]


@pytest.mark.parametrize("flow, seed, few", [
    ({"turn": 1.0}, 2, 2),
    *(pytest.param(flow, 10 + i, 10, marks=TURNS) for i, flow in enumerate(FLOWS)),
], ids=str)  # fmt: skip
def test_other_units_change_nothing_in_three_coordinates(flow, seed, few):
    """The zero lies 10 to 42 sizes away, and sizes and losses have any unit."""
    draws = np.random.default_rng(seed)
    size, unit = 10.0 ** draws.uniform(-9, 9, 2)
    units = {"size": size, "shift": draws.uniform(10, 42), "unit": unit}
    label, codes, kinds = ends_in(seed, few, k=3, **flow)
    assert min(label) > 0
    assert ends_in(seed, few, k=3, **flow, **units) == (label, codes, kinds)
