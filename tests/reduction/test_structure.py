"""Symmetries and conserved polynomials, of models whose own are known."""

import numpy as np
import pytest
import torch
from networks import normal, number, regression

import flowsim
from flowsim import InputError
from flowsim.reduction.structure import conserved, symmetries


def on_axis(axes, which, sizes=(0.3, 0.5, 0.2)):
    v, k, q = sizes
    return {"v": number([v]), "key": k * axes[:, which][None], "query": q * axes[:, which][None]}


def test_linear_attention_in_context_comes_out():
    axes, spectrum = torch.linalg.qr(normal(4, 4, seed=3))[0], number([2.0, 1.0, 0.7, 0.4])
    models = [
        flowsim.reduce(regression(s, axes=axes), on_axis(axes, 1), steps=20)
        for s in (spectrum, number([1.5, 0.6, 0.3, 0.2]))
    ]
    assert models[0].coordinates == ("v", "key", "query")
    theta = normal(6, 3)
    p, trace, law = theta.prod(1), 4.1, 1.0
    known = trace / 2 - law**2 * p + law**2 * p**2 / 2 * (law * (1 + 1 / 16) + trace / 16)
    np.testing.assert_allclose(models[0].loss(theta), known, rtol=1e-11)
    found = conserved(*models)
    assert found.polynomials == ("v² − query²", "key² − query²")
    assert found.independent == found.allowed == 2 and found.fields == 2
    kept = symmetries(models[0])
    assert kept.flips == (("v", "key"), ("v", "query"))
    assert {pair[:2] for pair in kept.swaps} == {("v", "key"), ("v", "query"), ("key", "query")}


def test_products_of_conserved_ones_are_left_out():
    model = flowsim.reduce(lambda w: (w["a"] * w["b"] - 1) ** 2, {"a": number(0.5), "b": number(1)})
    assert conserved(model, degree=4).polynomials == ("a² − b²",)


def test_other_spans_are_refused():
    one = flowsim.reduce(lambda w: (w["a"] - 1) ** 2, {"a": number(0.5)})
    two = flowsim.reduce(lambda w: (w["a"] * w["b"] - 1) ** 2, {"a": number(0.5), "b": number(1)})
    with pytest.raises(InputError, match="another span"):
        conserved(one, two)
