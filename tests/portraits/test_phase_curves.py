"""Nullclines and stable manifolds as curves of a portrait; fields have no minima."""

import numpy as np
import pytest
import torch

import flowsim
from flowsim.curves import curves_of
from flowsim.portraits.phase_curves import nullclines

SIDES = {"x": (-2.0, 2.0), "y": (-2.0, 2.0)}


class Nagumo(flowsim.Model):
    """FitzHugh and Nagumo's field: x′ = x − x³/3 − y + s, y′ = (x − y)/3."""

    coordinates = ("x", "y")

    def __init__(self, s: float = 0.0):
        self.s = s

    def field(self, theta):
        x, y = theta.unbind(-1)
        return torch.stack([x - x**3 / 3 - y + self.s, (x - y) / 3], -1)

    def loss(self, theta):
        return 0 * theta[..., 0]


def test_nullclines_are_the_zeros_of_either_component():
    found = nullclines(Nagumo().plane, SIDES, {})
    by_kind = {"nullcline, flow vertical": [], "nullcline, flow horizontal": []}
    for curve in found:
        by_kind[curve.kind].append(np.stack([curve.x, curve.y], 1))
    x, y = np.concatenate(by_kind["nullcline, flow vertical"]).T
    assert y == pytest.approx(x - x**3 / 3, abs=1e-4)
    assert np.ptp(x) == pytest.approx(4, abs=0.1)
    x, y = np.concatenate(by_kind["nullcline, flow horizontal"]).T
    assert y == pytest.approx(x, abs=1e-9)


def test_manifolds_and_nullclines_are_curves_of_a_portrait():
    well = flowsim.from_loss(lambda x, y: (x**2 - 1) ** 2 / 4 + (y - x) ** 2 / 2, "well")
    record = flowsim.portrait(
        well, window=SIDES, resolution=6, confirm=0, boundary=False,
        starts=flowsim.Points(["x", "y"], [[1.0, 0.0]]), curves=["nullclines", "manifolds"],
    )  # fmt: skip
    kinds = [curve.kind for curve in curves_of(record, "x", "y")]
    assert {"nullcline, flow vertical", "nullcline, flow horizontal", "stable manifold"} < {*kinds}
    assert {"minimum", "saddle"} < {*kinds}
    texts = [text.get_text() for text in flowsim.draw(record).legends[0].get_texts()]
    assert "stable manifold" in texts


@pytest.mark.parametrize(
    ("model", "curves", "sentence"),
    [("linear", ["manifolds"], "stable manifolds are curves only in a model of two coordinates"),
     ("canonical", ["isoclines"], "further curves are nullclines and manifolds, not isoclines")],
)  # fmt: skip
def test_other_curves_are_answered_in_one_sentence(model, curves, sentence):
    with pytest.raises(flowsim.InputError, match=sentence):
        flowsim.portrait(flowsim.model(model, 0.5, 0.8), resolution=4, curves=curves)
