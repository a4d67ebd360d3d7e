"""Orbits with the logit gap as independent variable: the field, the step, and where they end."""

import math

import numpy as np
import pytest
import torch
from conftest import box
from scipy.integrate import solve_ivp

from flowsim import (
    BinaryChain,
    CanonicalModel,
    Label,
    LinearAttentionModel,
    Rule,
    Status,
    UntiedModel,
    find_limits,
)
from flowsim.flow.gap import field, loss
from flowsim.flow.gap.step import error, step
from flowsim.landscape.basins import SADDLE_ENERGY, analytic_basin
from flowsim.models.gap_loss import gap_loss, gap_slope

CHAINS = [(0.5, 0.8), (0.2, 0.3), (0.9, 0.9), (0.1, 0.1), (0.02, 0.9), (0.4, 0.6001)]
MODELS = [CanonicalModel, LinearAttentionModel, UntiedModel]


def three(row):
    """θ as three numbers, the canonical third being 0."""
    return (*row, 0.0) if len(row) == 2 else tuple(row)


def tuples(kind, sign, x, y, z, h):
    """A step from a point: its start, its end, the slopes and the stages."""
    slopes = field.rates(kind, sign, x, y, z)
    x1, y1, z1, *stages = step(kind, sign, h, x, y, z, *slopes)
    return (x, y, z), (x1, y1, z1), slopes, tuple(stages)


@pytest.mark.parametrize("far", [0, field.FAR])
@pytest.mark.parametrize("model", MODELS)
def test_coordinates_rates_and_steepness_are_those_of_the_model(model, far, generator):
    model = model(BinaryChain(0.5, 0.8))
    theta = box(100, len(model.coordinates), generator)
    gradient = model.logit_gap_gradient(theta)
    kind = field.KINDS[model.name] + far
    for row, slope in zip(theta.tolist(), gradient, strict=True):
        sign, *point = field.point_of(kind, *three(row))
        back = field.theta_of(kind, sign, *point, *row[:2])
        assert back == pytest.approx(three(row), rel=1e-14, abs=1e-14)
        assert field.gap(kind, sign, *point) == pytest.approx(model.logit_gap(row), rel=1e-12)
        squared = slope.square().sum().item()
        assert field.steepness(kind, sign, *point) == pytest.approx(squared, rel=1e-12)
        moved = [a + 1e-7 * b for a, b in zip(row, (slope / squared).tolist(), strict=True)]
        ahead = field.point_of(kind, *three(moved))[1:]
        found = [(b - a) / 1e-7 for a, b in zip(point, ahead, strict=True)]
        assert field.rates(kind, sign, *point) == pytest.approx(found, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize(("p", "q"), [*CHAINS, (0.3, 0.7), (0.5, 0.5), (1e-9, 0.3), (0.8, 0.2)])
def test_scalar_loss_and_slope_are_the_models(p, q):
    chain = BinaryChain(p, q)
    numbers = loss.numbers(chain)
    for gap in (-1e4, -500.0, -30.0, -2.0, -1e-9, 0.0, 1e-3, 1.7, 40.0, 1e5):
        at = torch.tensor(gap, dtype=torch.float64)
        assert loss.loss(numbers, gap) == pytest.approx(gap_loss(chain, at).item(), rel=1e-13)
        slope = loss.slope(numbers, gap - chain.target_logit_gap)
        assert slope == pytest.approx(gap_slope(chain, at).item(), rel=1e-9, abs=1e-15)


def test_the_slope_is_right_to_rounding_next_to_the_minimum():
    numbers = loss.numbers(BinaryChain(0.5, 0.8))
    curvature = loss.slope(numbers, 1e-6) / 1e-6
    for beyond in (1e-12, -1e-12, 1e-200):
        assert loss.slope(numbers, beyond) / beyond == pytest.approx(curvature, rel=1e-6)


@pytest.mark.parametrize("kind", range(3))
def test_the_step_is_of_order_eight_and_its_error_estimate_of_order_seven(kind):
    start = (0.7, 0.6, 0.9)
    ends, ratios = [], []
    for count in (1, 2, 4, 64):
        point = start
        for _ in range(count):
            before, point, slopes, stages = tuples(kind, 1.0, *point, 1.6 / count)
        ends.append(np.array(point))
        h = 1.6 / count
        ratios.append(error(kind, h, before, point, slopes, stages, 1.0, 0.0))
    errors = [np.abs(end - ends[-1]).max() for end in ends[:-1]]
    assert errors[0] / errors[1] > 2**7 and errors[1] / errors[2] > 2**7
    assert ratios[0] / ratios[1] > 2**6
    before, after, slopes, stages = tuples(kind, 1.0, *start, 1.6)
    estimate = error(kind, 1.6, before, after, slopes, stages, 1.0, 0.0)
    exact = np.abs(np.array(after) - ends[-1]) / np.abs(start)
    assert exact.max() < estimate < 1e4 * exact.max()


def test_the_error_allowed_is_relative_to_what_each_coordinate_is():
    def ratio(kind, point, rtol, atol=0.0, h=1.0):
        before, after, slopes, stages = tuples(kind, -1.0, *point, h)
        return error(kind, h, before, after, slopes, stages, rtol, atol)

    canonical, linear = (3.0, 0.1, 0.0), (3.0, 0.1, 0.5)
    for kind, point in ((0, canonical), (1, linear), (2, linear)):
        assert ratio(kind, point, 1e-9) == pytest.approx(10 * ratio(kind, point, 1e-8), rel=1e-9)
    assert ratio(0, canonical, 1e-9, 1.0) == ratio(0, canonical, 1e-9)
    assert ratio(1, linear, 1e-9, 1.0) <= ratio(1, linear, 1e-9)
    stages = ((0.0,) * 7, (1.0, 0.3, -0.2, 0.7, 0.1, 0.5, 0.9), (0.0,) * 7)
    ratios = [
        error(kind, 1.0, (1.0, before, 0.0), (1.0, after, 0.0), (0.0, 1.0, 0.0), stages, 1e-9, 0.0)
        for kind, before, after in (
            (0, 1.0, 1.0),
            (field.FAR, -5.0, -5.0),
            (0, 0.1, 1.0),
            (0, 1.0, 0.1),
            (0, 0.1, -0.1),
        )
    ]
    assert ratios[1] == pytest.approx(ratios[0], rel=1e-4)  # rtol of log w is rtol of w
    assert ratios[2] == pytest.approx(10 * ratios[0], rel=1e-9)
    assert ratios[3] == ratios[2] and ratios[4] == math.inf
    bad = ((0.0,) * 7, (1e300,) * 7, (0.0,) * 7)  # not finite: no step at all
    assert error(0, 1.0, canonical, canonical, (0.0, 1.0, 0.0), bad, 1e-9, 0.0) == math.inf


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(("p", "q"), CHAINS[:2])
def test_ends_are_those_of_another_integrator(model, p, q, generator):
    """scipy's DOP853 in θ itself, from Δ to the gap at which the orbit ends."""
    model = model(BinaryChain(p, q))
    start = box(20, len(model.coordinates), generator, 1.5)
    limits = find_limits(model, start)

    def slope(gap, theta):
        gradient = model.logit_gap_gradient(torch.from_numpy(theta)).numpy()
        return gradient / (gradient**2).sum()

    for row, end, label in zip(start, limits.theta, limits.label, strict=True):
        if label == Label.GLOBAL_MINIMUM:  # the field has a root's singularity at e = 0
            span = (model.logit_gap(row).item(), model.chain.target_logit_gap)
            found = solve_ivp(slope, span, row.numpy(), "DOP853", rtol=1e-12, atol=1e-12)
            assert np.abs(found.y[:, -1] - end.numpy()).max() < 1e-8
    assert (limits.label == Label.GLOBAL_MINIMUM).sum() >= 5


def checked(model, start, unresolved=0, **options):
    """Limits whose labels are the closed form's; at most so many are unresolved."""
    limits = find_limits(model, start, **options)
    expected = torch.where(analytic_basin(model)(start), 1, 2)
    resolved = limits.label != Label.UNRESOLVED
    assert (limits.label == expected)[resolved].all()
    assert (~resolved).sum() <= unresolved
    return limits


@pytest.mark.parametrize(
    ("kind", "p", "q"),
    [
        *((CanonicalModel, *chain) for chain in CHAINS),
        *((LinearAttentionModel, *chain) for chain in CHAINS[:2]),
    ],
)
def test_every_label_of_a_hundred_thousand_points_is_right(kind, p, q, generator):
    model = kind(BinaryChain(p, q))
    start = box(100_000, len(model.coordinates), generator)
    limits = checked(model, start)
    drift = (model.conserved(limits.theta) - model.conserved(start)).abs().amax(dim=1)
    assert drift.max() <= 1e-8
    assert drift.quantile(0.99) <= 3e-10
    gap = model.logit_gap(limits.theta)[limits.label == Label.GLOBAL_MINIMUM]
    assert (gap - model.chain.target_logit_gap).abs().max() <= 1e-12
    assert (limits.theta[limits.label == Label.LOCAL_MINIMUM, 0] == 0).all()


@pytest.mark.parametrize(("p", "q"), CHAINS[:2])
@pytest.mark.parametrize("rtol", [1e-10, 1e-3])
def test_every_label_in_a_band_around_the_separatrix_is_right(p, q, rtol, generator):
    model = CanonicalModel(BinaryChain(p, q))
    w = -2 * torch.rand(20_000, dtype=torch.float64, generator=generator)
    energy = SADDLE_ENERGY * (1 + 1e-4 * (2 * torch.rand_like(w, generator=generator) - 1))
    squared = energy + w.square() - w.abs().log()
    start = torch.stack([squared.sqrt(), w], dim=1)[squared > 1e-6]
    checked(model, start, rtol=rtol)


@pytest.mark.parametrize(("p", "q"), CHAINS[:2])
def test_no_label_stands_that_a_displaced_neighbour_does_not_share(p, q):
    """Within 1e-11 in e or w, on either side; beyond a hundred times that all are decided."""
    model = CanonicalModel(BinaryChain(p, q))
    sides = [-0.05, -0.2, -0.4, -0.6] if p + q > 1 else [-0.8, -1.2, -2.0, -2.9]
    w = torch.tensor(sides, dtype=torch.float64)
    steps = torch.linspace(-3, 3, 241, dtype=torch.float64).unsqueeze(1) * 1e-10
    squared = w.square() - w.abs().log() + SADDLE_ENERGY + steps
    start = torch.stack([squared.sqrt(), w.expand_as(squared)], dim=-1).reshape(-1, 2)
    label = find_limits(model, start).label
    neighbours = []
    for factor in (1 - 0.9e-11, 1 + 0.9e-11):
        for i in range(2):
            moved = start.clone()
            moved[:, i] *= factor
            neighbours.append(analytic_basin(model)(moved))
    shared = torch.stack(neighbours)
    divided = shared.any(dim=0) & ~shared.all(dim=0)
    assert (label[divided] == Label.UNRESOLVED).all()
    expected = torch.where(analytic_basin(model)(start), 1, 2)
    assert ((label == expected) | (label == Label.UNRESOLVED)).all()
    wide = torch.stack([analytic_basin(model)(start * f) for f in (1 - 1e-10, 1 + 1e-10)])
    clear = (wide[0] == wide[1]) & (steps.abs() > 2.5e-10).expand_as(squared).reshape(-1)
    assert clear.any() and divided.any()
    assert (label == expected)[clear].all()


def test_the_rule_tells_rows_that_neighbours_decided():
    model = CanonicalModel(BinaryChain(0.5, 0.8))
    w = -0.4
    squared = w * w - math.log(-w) + SADDLE_ENERGY
    offsets = torch.tensor([1.0, 1e-3, 1e-8, 3e-10, 0.0], dtype=torch.float64)
    start = torch.stack([(squared + offsets).sqrt(), torch.full_like(offsets, w)], dim=1)
    limits = find_limits(model, start)
    assert limits.rule.tolist() == [
        Rule.REACHED_MINIMA,
        Rule.REACHED_MINIMA,
        Rule.REACHED_MINIMA,
        Rule.SHADOWS,
        Rule.NONE,
    ]
    assert limits.label.tolist() == [Label.GLOBAL_MINIMUM] * 4 + [Label.UNRESOLVED]
    assert (limits.status[:4] == Status.CONVERGED).all()
    assert limits.evaluations[3] > 5 * limits.evaluations[0]


@pytest.mark.parametrize("kind", [CanonicalModel, LinearAttentionModel])
@pytest.mark.parametrize(("p", "q"), [*CHAINS[:2], (1e-6, 0.5), (0.999999, 0.999999)])
def test_labels_far_out_are_right_and_nearly_all_decided(kind, p, q, generator):
    model = kind(BinaryChain(p, q))
    shape = (20_000, len(model.coordinates))
    size = torch.exp(3 * torch.randn(shape, dtype=torch.float64, generator=generator))
    start = size * torch.randn(shape, dtype=torch.float64, generator=generator)
    checked(model, start, unresolved=2)


@pytest.mark.parametrize(("p", "q"), CHAINS[:2])
def test_untied_starts_with_equal_weights_end_in_the_saddle_or_not_as_their_energy_says(
    p, q, generator
):
    """e = ±u stays so; there Δ = ±e²g, and 2e² − w² − s log|w| is conserved."""
    model = UntiedModel(BinaryChain(p, q))
    e, w = box(2000, 2, generator).unbind(dim=1)
    u = e * torch.randint(0, 2, e.shape, generator=generator).mul(2).sub(1)
    limits = find_limits(model, torch.stack([e, u, w], dim=1))
    level = 2 * e.square() - w.square() - w.sign() * w.abs().log()
    side = model.logit_gap(torch.stack([e, u, w], dim=1)) * model.chain.target_logit_gap > 0
    learned = side | ((w < 0) & (level > SADDLE_ENERGY))
    expected = torch.where(learned, Label.GLOBAL_MINIMUM, Label.SADDLE)
    assert (limits.label == expected).all() and 100 < learned.sum() < 1900
    assert (limits.rule[~learned] == Rule.CAME_TO_REST).all()
    assert (limits.theta[:, 0].abs() == limits.theta[:, 1].abs()).all()


@pytest.mark.parametrize("rtol", [0.3, 1e-3])
def test_orbits_end_on_the_minima_however_loose_the_tolerance(rtol, generator):
    model = CanonicalModel(BinaryChain(0.2, 0.3))
    limits = find_limits(model, box(20_000, 2, generator), rtol=rtol)
    gap = model.logit_gap(limits.theta)[limits.label == Label.GLOBAL_MINIMUM]
    assert (gap - model.chain.target_logit_gap).abs().max() < 1e-5


@pytest.mark.parametrize("delta", [1e-13, -1e-15, 4e-16])
def test_labels_next_to_a_switching_factor_of_one(delta, generator):
    checked(CanonicalModel(BinaryChain(0.5, 0.5 + delta)), box(5_000, 2, generator))


def test_extreme_starts_have_an_answer_or_a_reason():
    model = CanonicalModel(BinaryChain(0.5, 0.8))
    small = torch.tensor([[1e-170, -1.0], [5e-324, 1.0], [0.3, -1e-320], [19.0, -1e-150],
                          [28.0, -1e-170], [1.0, 5e-324]], dtype=torch.float64)  # fmt: skip
    checked(model, small)
    large = torch.tensor([[1e3, -1.0], [1e3, 1e3], [1e-3, -1e3], [1e9, 1e3]], dtype=torch.float64)
    checked(model, large)
    lost = torch.tensor([[1e200, 1.0], [math.inf, 0.3], [0.5, math.nan], [1.0, -1e300]])
    limits = find_limits(model, lost)
    assert (limits.label == Label.UNRESOLVED).all() and (limits.rule == Rule.NONE).all()
    assert (limits.status == Status.FAILED).all()


@pytest.mark.parametrize("kind", MODELS)
def test_a_row_is_the_same_to_the_bit_alone_in_any_order_and_in_any_company(kind, generator):
    model = kind(BinaryChain(0.5, 0.8))
    start = box(300, len(model.coordinates), generator)
    whole = find_limits(model, start)
    order = torch.randperm(300, generator=generator)
    poison = torch.full((1, start.shape[1]), math.nan, dtype=torch.float64)
    company = torch.cat([poison, start[order]])
    among = find_limits(model, company)
    assert torch.equal(among.theta[1:], whole.theta[order])
    assert torch.equal(among.loss[1:], whole.loss[order])
    assert torch.equal(among.evaluations[1:], whole.evaluations[order])
    for i in (0, 17, 299):
        alone = find_limits(model, start[i])
        assert torch.equal(alone.theta, whole.theta[i]) and alone.label == whole.label[i]


def test_arrays_and_lists_are_as_good_as_tensors(generator):
    model = CanonicalModel(BinaryChain(0.5, 0.8))
    start = box(6, 2, generator).reshape(2, 3, 2)
    whole = find_limits(model, start)
    assert whole.theta.shape == (2, 3, 2) and whole.label.shape == (2, 3)
    for other in (start.numpy(), start.tolist()):
        assert torch.equal(find_limits(model, other).theta, whole.theta)
