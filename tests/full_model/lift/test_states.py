"""The plane of S states, and three numbers with uniform attention, are the full model's own."""

from itertools import product

import numpy as np
import pytest
import torch

from flowsim import Label, MarkovChain, find_limits, model
from flowsim.models import StatesAttentionModel
from full_model import Architecture, MarkovSource, PopulationLoss, lift_states
from full_model.lift.states import simplex

F64 = torch.float64
#: S, p, m, N: on both sides of each threshold.
CASES = [(2, 0.8, 4, 4), (3, 0.5, 2, 3), (5, 0.9, 2, 2)]
STARTS = [(0.9, 0.3), (0.9, -0.35), (-0.7, 0.2), (-1.2, -0.6), (0.3, -1.1)]
#: With attention, at (e, w, v): no other unit opens; others open too; the own one may be shut.
THREE = [(2, 0.65, 1, 4), (3, 0.8, 2, 3)]
POINTS = [(0.7, 0.4, 0.39), (0.6, -0.5, 1.14), (-0.8, 0.3, -1.18)]


def full(states, p, m, length, attention="softmax"):
    """The loss of the full model and the reduced model of the same plane."""
    arch = Architecture(
        d=states + 1, length=length, hidden=m * states, states=states, output="states",
        attention=attention,
    )  # fmt: skip
    loss = PopulationLoss(arch, MarkovSource.of(MarkovChain.symmetric(states, p)))
    return loss, model("states", states=states, p=p, hidden_per_state=m)


def descend(loss, reduced, start, rate, steps):
    """The full weights after gradient descent, and the lift of the reduced point."""
    theta = torch.tensor(start, dtype=F64)
    weights = lift_states(theta, loss.arch)
    metric = torch.tensor(reduced.metric, dtype=F64)
    for _ in range(steps):
        gradient = loss.value_and_gradient(weights)[1]
        weights = {name: w - rate * gradient[name] for name, w in weights.items()}
        theta = theta - rate * reduced.gradient(theta) / metric
    return weights, lift_states(theta, loss.arch)


def apart(weights, other):
    return max(float((w - other[name]).abs().max()) for name, w in weights.items())


@pytest.mark.parametrize("states", [2, 3, 5, 10])
def test_the_simplex_is_regular(states):
    for d in (states - 1, states + 3):
        corners = simplex(states, d)
        inner = corners @ corners.T
        expected = torch.full_like(inner, -1 / (states - 1)).fill_diagonal_(1)
        assert (inner - expected).abs().max() < 1e-15
        assert corners.sum(0).abs().max() < 1e-15


@pytest.mark.parametrize(
    ("case", "start"), [*product(CASES, STARTS), *product(THREE, POINTS)], ids=str
)
def test_the_full_loss_its_gradient_and_its_metric_are_those_of_the_few_numbers(case, start):
    """With J the lift's Jacobian and M the metric JᵀJ, the full gradient is J M⁻¹ ∇L."""
    (loss, plane), theta = full(*case), torch.tensor(start, dtype=F64)
    _, _, m, length = case
    reduced = plane if len(start) == 2 else StatesAttentionModel(plane.chain, length, m)
    parts = torch.autograd.functional.jacobian(
        lambda x: tuple(lift_states(x, loss.arch).values()), theta
    )
    along = torch.cat([part.reshape(-1, len(start)) for part in parts])
    metric = torch.tensor(reduced.metric, dtype=F64)
    assert torch.allclose(along.T @ along, metric.diag(), rtol=0, atol=1e-12)
    value, gradient = loss.value_and_gradient(lift_states(theta, loss.arch))
    assert float(value) == pytest.approx(float(reduced.loss(theta)), abs=1e-13)
    found = torch.cat([gradient[name].flatten() for name in loss.arch.shapes])
    assert torch.allclose(found, along @ (reduced.gradient(theta) / metric), rtol=0, atol=1e-12)


@pytest.mark.parametrize("case", [c for c in CASES if c[1] > 0.5], ids=str)
def test_gradient_descent_stays_in_the_plane(case):
    for start in STARTS[:3]:
        weights, lifted = descend(*full(*case), start, 0.5, 40)
        assert apart(weights, lifted) < 1e-12


@pytest.mark.slow
def test_below_the_threshold_rounding_opens_the_trap():
    """The plane's trap is a saddle of the full model, and in floating point no run stays there."""
    loss, reduced = full(3, 0.5, 2, 1, "none")
    start = torch.tensor([0.3, -1.1], dtype=F64)
    assert find_limits(reduced, start).label == Label.LOCAL_MINIMUM
    weights, lifted = descend(loss, reduced, start.tolist(), 0.5, 100)
    assert apart(weights, lifted) < 1e-9
    weights, lifted = descend(loss, reduced, start.tolist(), 0.5, 2000)
    information = reduced.chain.mutual_information
    assert float(loss(lifted)) == pytest.approx(reduced.chain.stationary_entropy, rel=1e-14)
    assert float(loss(weights)) < reduced.chain.stationary_entropy - 0.5 * information


def unigram_hessian(chain):
    """∇²L of the tied full model at E = W_O = W_2 = 0, b = log π, and where E lies in it."""
    arch = Architecture(d=2, length=2, hidden=3, states=chain.states, output="states")
    loss = PopulationLoss(arch, MarkovSource.of(chain))
    generator = torch.Generator().manual_seed(1)
    point = {name: torch.zeros(shape, dtype=F64) for name, shape in arch.shapes.items()}
    for name in ("0.up", "0.value", "0.query", "0.key"):
        point[name] = torch.randn(arch.shapes[name], dtype=F64, generator=generator)
    point["bias"] = torch.tensor(chain.stationary, dtype=F64).log()
    sizes = [w.numel() for w in point.values()]

    def value(flat):
        parts = zip(point, flat.split(sizes), strict=True)
        return loss({name: part.reshape(arch.shapes[name]) for name, part in parts})

    flat = torch.cat([w.flatten() for w in point.values()])
    gradient = torch.autograd.functional.jacobian(value, flat)
    assert gradient.abs().max() < 1e-14
    return torch.autograd.functional.hessian(value, flat)


def crossing(states, seed):
    """A kernel that goes round more than back, which stays as often as to cross the threshold."""
    rng = np.random.default_rng(seed)
    round_trip = np.roll(np.eye(states), 1, axis=1)
    kernel = 1 + 0.8 * (round_trip - round_trip.T) + 0.2 * rng.random((states, states))
    np.fill_diagonal(kernel, 0)
    kernel /= kernel.sum(axis=1, keepdims=True)
    low, high = 0.0, 0.9
    for _ in range(60):
        middle = (low + high) / 2
        mixed = MarkovChain((1 - middle) * kernel + middle * np.eye(states))
        low, high = (middle, high) if mixed.covariance_eigenvalue < 0 else (low, middle)
    sides = [low - 0.03, low + 0.03]
    return [MarkovChain((1 - t) * kernel + t * np.eye(states)) for t in sides]


SYMMETRIC = [MarkovChain.symmetric(s, (s - 1) / s + off)
             for s in (2, 5) for off in (-0.02, 0.02)]  # fmt: skip
IRREVERSIBLE = [chain for s in (3, 4) for chain in crossing(s, s)]


@pytest.mark.parametrize("chain", SYMMETRIC + IRREVERSIBLE, ids=lambda c: f"{c.states}, {c.regime}")
def test_the_unigram_is_what_the_chain_predicts(chain):
    """The smallest eigenvalue of the whole Hessian; the unigram's flat directions give 0."""
    hessian = unigram_hessian(chain)
    predicted = -2 * chain.covariance_eigenvalue
    lowest = float(torch.linalg.eigvalsh(hessian)[0])
    assert lowest == pytest.approx(min(predicted, 0), abs=1e-12)
    size = 2 * chain.states
    block = torch.linalg.eigvalsh(hessian[:size, :size])
    known = -2 * torch.linalg.eigvalsh(torch.from_numpy(chain.covariance))
    assert torch.allclose(block, known.repeat_interleave(2).sort().values, atol=1e-13, rtol=0)
    assert (chain.unigram == "a saddle") == (lowest < -1e-6)
