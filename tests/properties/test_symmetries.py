"""What no number may depend on: the sign of e, the names of the symbols, when the clock began."""

from dataclasses import fields, replace
from functools import partial

import torch
from hypothesis import strategies as st
from properties.drawn import PLANAR, chances, gap_models, law, magnitudes, models, starts

import flowsim
from flowsim import Label, find_limits, trajectories
from flowsim.interface import conserved_values


def mirrored(model, theta):
    """The start with the embedding's sign changed: see tests/README.md."""
    names = model.coordinates
    if model.name == "rank-one":  # that of α: all coordinates but b
        return theta * torch.tensor([1.0 if name == "b" else -1.0 for name in names])
    changed = ("e", "u")
    return theta * torch.tensor([-1.0 if name in changed else 1.0 for name in names])


def relabelled(model, theta):
    """The model with p and q exchanged, and the start with the same predictions there."""
    chain = model.chain
    other = flowsim.ModelSpec.of(model).replace(p=chain.q, q=chain.p).build()
    part = dict(zip(model.coordinates, theta.unbind(-1), strict=True))
    if model.name == "rank-one":
        part |= {name: value + part["e"] for name, value in part.items() if "rho" in name}
        part |= {name: -part[name] for name in ("e", "b", "c") if name in part}
    elif model.dynamic_bias:
        part["b"] = -part["b"] - 2 * model.offset(theta) - model.logit_gap(theta)
    return other, torch.stack(list(part.values()), dim=-1)


def same_ends(found, expected):
    """Every number of both is the same, bit by bit."""
    for field in fields(found):
        values = getattr(found, field.name), getattr(expected, field.name)
        torch.testing.assert_close(*values, rtol=0, atol=0, equal_nan=True)


@law(12, 40, model=models(), data=st.data())
def test_the_sign_of_the_embedding(model, data):
    theta = data.draw(starts(len(model.coordinates)))
    other = mirrored(model, theta)
    for quantity in (model.loss, model.optimal_bias, partial(conserved_values, model)):
        assert torch.allclose(quantity(theta), quantity(other), rtol=1e-15, atol=0, equal_nan=True)
    assert torch.equal(model.gradient(other), mirrored(model, model.gradient(theta)))


@law(6, 25, model=gap_models(), data=st.data())
def test_the_sign_of_the_embedding_changes_no_end(model, data):
    theta = data.draw(starts(len(model.coordinates)))
    found, other = find_limits(model, theta), find_limits(model, mirrored(model, theta))
    same_ends(found, replace(other, theta=mirrored(model, other.theta)))


@law(12, 40, model=models().filter(lambda m: m.name not in ("states", "uniform")), data=st.data())
def test_the_names_of_the_symbols(model, data):
    """Exchanging 0 with 1 and p with q: the same loss at the start with the same predictions."""
    theta = data.draw(starts(len(model.coordinates), values=magnitudes(-12, 1)))
    other, moved = relabelled(model, theta)
    torch.testing.assert_close(other.loss(moved), model.loss(theta), rtol=1e-9, atol=0)
    back, again = relabelled(other, moved)
    assert back is model
    torch.testing.assert_close(again, theta, rtol=1e-9, atol=1e-9 * float(theta.abs().max()) ** 4)


@law(6, 25, pair=chances(), length=st.integers(1, 30), data=st.data())
def test_the_names_of_the_symbols_under_attention(pair, length, data):
    """Uniform attention, where |s| is the same at every position: N = 1, or w = 0, or a = 0."""
    theta = data.draw(starts(3, values=magnitudes(-12, 1)))
    still = data.draw(st.sampled_from([None, 1, 2]))
    if still is None:
        length = 1
    else:
        theta[:, still] = 0.0
    model, other = (flowsim.model("uniform", *x, length=length) for x in (pair, pair[::-1]))
    torch.testing.assert_close(other.loss(theta), model.loss(theta), rtol=1e-9, atol=0)


@law(6, 25, model=gap_models(PLANAR), data=st.data())
def test_the_names_of_the_symbols_change_no_label(model, data):
    theta = data.draw(starts(len(model.coordinates)))
    other, moved = relabelled(model, theta)
    found, again = find_limits(model, theta).label, find_limits(other, moved).label
    known = (found != Label.UNRESOLVED) & (again != Label.UNRESOLVED)
    assert torch.equal(found[known], again[known])


@law(1, 4, model=models(longest=5), data=st.data())
def test_the_clock_may_begin_anywhere(model, data):
    """θ at t₀ + t is the same for every t₀, and the flow over t + t is that over t, twice.

    The second as exactly as the flow carries the first half's error on, read off a start beside.
    Not of rows that a ReLU has stopped at w₁ = 0, where the flow is at rest from one side and moves
    away on the other: the point does not say which.
    """
    theta = data.draw(starts(len(model.coordinates), rows=3, values=magnitudes(-2, 0.3)))
    t = 2.0 ** data.draw(st.integers(-6, 6))
    began = t * data.draw(st.integers(-8, 8))
    path = trajectories(model, theta, [0.0, t, 2 * t])
    later = trajectories(model, theta, [began, began + t, began + 2 * t])
    torch.testing.assert_close(later, path, rtol=0, atol=0, equal_nan=True)
    known = path.isfinite().all(-1).all(0)
    assert known.all()
    known &= ~((path[1] == 0) & (theta != 0)).any(-1)
    beside = path[1] * (1 + 1e-8 * (-1.0) ** torch.arange(theta.shape[1]))
    again, carried = (trajectories(model, x, [0.0, t])[1][known] for x in (path[1], beside))
    off = (again - path[2, known]).abs().amax(-1)
    size = 1 + path[2, known].abs().amax(-1)
    assert (off <= 1e-6 * size + (carried - again).abs().amax(-1)).all()
