"""Orbits with the logit gap as their clock: against the orbits in rescaled time, and alone."""

import math

import pytest
import torch

from flowsim import (
    BinaryChain,
    CanonicalModel,
    InputError,
    Label,
    LinearAttentionModel,
    UntiedModel,
    find_limits,
)
from flowsim.flow.gap.clock import follow_by_gap, from_clock_chart, to_clock_chart
from flowsim.flow.gap.orbits import GapOrbit
from flowsim.flow.limits import _CAREFUL
from flowsim.landscape.basins import analytic_basin
from flowsim.landscape.labels import Rule

CHAINS = [(0.5, 0.8), (0.2, 0.3), (0.9, 0.9), (0.1, 0.1), (0.02, 0.9), (0.4, 0.6001)]
MODELS = [CanonicalModel, LinearAttentionModel, UntiedModel]


def box(n, k, generator):
    return 6 * torch.rand(n, k, dtype=torch.float64, generator=generator) - 3


@pytest.mark.parametrize("kind", MODELS)
def test_the_rates_are_the_normalized_gradient_of_the_gap(kind, generator):
    model = kind(BinaryChain(0.5, 0.8))
    theta = box(200, len(model.coordinates), generator)
    y, signs = to_clock_chart(model, theta)
    numerators, size = model.clock_rates(y, signs)
    rates = torch.stack(numerators) / size
    assert torch.allclose(from_clock_chart(model, y, signs), theta, rtol=1e-14, atol=0)

    gradient = model.logit_gap_gradient(theta)
    squared = gradient.square().sum(dim=1)
    factor = {"square": 2 * theta, "log": 2 / theta, "plain": torch.ones_like(theta)}
    for i, kind_of_y in enumerate(model.clock_chart):  # dyᵢ/dθᵢ
        expected = factor[kind_of_y][:, i] * gradient[:, i] / squared
        assert torch.allclose(rates[i], expected, rtol=1e-11, atol=1e-13)
    over = 4 * theta[:, 0].square() if "square" in model.clock_chart else 1.0
    assert torch.allclose(size * over, squared, rtol=1e-12, atol=0)


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize(("p", "q"), CHAINS[:2])
def test_limits_are_those_of_the_orbits_in_rescaled_time(kind, p, q, generator):
    model = kind(BinaryChain(p, q))
    start = box(400, len(model.coordinates), generator)
    met = follow_by_gap(model, start, 1e-11, 1e-12)
    target = torch.full_like(start[:, 0], model.chain.target_logit_gap)
    orbit = GapOrbit.from_start(model, start, target, _CAREFUL, 1e-12)
    slow = orbit.follow(start, 1000)
    decided = met.at_minima | met.at_plane
    assert decided.double().mean() > 0.99
    rule = torch.where(met.at_minima, Rule.REACHED_MINIMA, Rule.TRAPPED_BY_PLANE)
    assert (rule == slow.rule)[decided].all()
    size = slow.theta.abs().clamp_min(1e-3)
    assert ((met.theta - slow.theta).abs() / size)[decided].max() < 1e-8


def limits_never_wrong(model, start):
    """Limits whose labels are the closed form's, save one in a thousand that are unresolved."""
    limit = find_limits(model, start)
    expected = torch.where(analytic_basin(model)(start), 1, 2)
    resolved = limit.label != Label.UNRESOLVED
    assert (limit.label == expected)[resolved].all()
    assert (~resolved).sum() <= len(start) // 1000
    return limit


@pytest.mark.parametrize(
    ("kind", "p", "q"),
    [
        *((CanonicalModel, *chain) for chain in CHAINS),
        *((LinearAttentionModel, *chain) for chain in CHAINS[:2]),
    ],
)
def test_no_wrong_label_on_a_hundred_thousand_points(kind, p, q, generator):
    model = kind(BinaryChain(p, q))
    start = box(100_000, len(model.coordinates), generator)
    limit = limits_never_wrong(model, start)
    assert (model.conserved(limit.theta) - model.conserved(start)).abs().max() <= 1e-8
    at_minima = limit.label == Label.GLOBAL_MINIMUM
    gap = model.logit_gap(limit.theta)[at_minima]
    assert (gap - model.chain.target_logit_gap).abs().max() <= 1e-9


@pytest.mark.parametrize(("p", "q"), CHAINS[:2])
def test_no_wrong_label_in_a_band_around_the_separatrix(p, q, generator):
    model = CanonicalModel(BinaryChain(p, q))
    saddle = -(1 + math.log(2)) / 2
    w = -2 * torch.rand(20_000, dtype=torch.float64, generator=generator)
    energy = saddle * (1 + 1e-4 * (2 * torch.rand(len(w), dtype=w.dtype, generator=generator) - 1))
    squared = energy + w.square() - w.abs().log()
    limits_never_wrong(model, torch.stack([squared.sqrt(), w], dim=1)[squared > 1e-6])


def test_a_row_does_not_depend_on_its_neighbours_pool_or_order(generator):
    model = CanonicalModel(BinaryChain(0.5, 0.8))
    start = box(500, 2, generator)
    whole = follow_by_gap(model, start, 1e-10, 1e-12)
    small = follow_by_gap(model, start, 1e-10, 1e-12, pool=37)
    order = torch.randperm(500, generator=generator)
    shuffled = follow_by_gap(model, start[order], 1e-10, 1e-12)
    alone = follow_by_gap(model, start[:1], 1e-10, 1e-12)
    for other, theirs in ((small, whole.theta), (shuffled, whole.theta[order])):
        assert (other.theta - theirs).abs().max() < 1e-12
    assert (alone.theta - whole.theta[:1]).abs().max() < 1e-12
    assert (small.at_plane == whole.at_plane).all()
    assert (shuffled.at_minima == whole.at_minima[order]).all()


def test_only_models_of_the_gap_can_be_compiled():
    model = CanonicalModel(BinaryChain(0.5, 0.8), bias="dynamic")
    with pytest.raises(InputError, match="compiled"):
        find_limits(model, torch.ones(1, 3, dtype=torch.float64), compile=True)


@pytest.mark.slow
def test_compiled_steps_find_the_same_limits(generator):
    model = CanonicalModel(BinaryChain(0.5, 0.8))
    start = box(3000, 2, generator)
    eager, compiled = find_limits(model, start), find_limits(model, start, compile=True)
    assert (eager.label == compiled.label).all()
    assert (eager.theta - compiled.theta).abs().max() < 1e-9
