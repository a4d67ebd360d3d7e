"""p and q from 1e-9 to 1 − 1e-9, coordinates from 1e-12 to 1e3: every number that exists, no other.

A warning is an error in every test; a run without end is one with more steps than its bound.
"""

import mpmath
import torch
from hypothesis import strategies as st
from mpmath import mpf
from properties.drawn import PLANAR, chances, gap_models, law, magnitudes, models, starts

import flowsim
from flowsim import Label, find_limits
from flowsim.flow import settling_times
from flowsim.interface import conserved_values
from flowsim.models import energy
from flowsim.models.canonical.basins import SADDLE_ENERGY, SADDLE_W

#: More evaluations of a field than any orbit with the default bounds on its steps takes.
EVALUATIONS = 2_000_000


def softplus(x):
    return mpmath.log1p(mpmath.exp(-abs(x))) + max(x, 0)


def sigmoid(x):
    return 1 / (1 + mpmath.exp(-x))


def close(found, expected, rtol, atol=0):
    assert abs(mpf(found) - expected) <= rtol * abs(expected) + atol, (found, expected)


@law(15, 83, model=gap_models(PLANAR), data=st.data())
def test_loss_bias_and_gradient_in_forty_digits(model, data):
    """The cross-entropy at the bias found, and that the bias's residuals cancel there."""
    theta = data.draw(starts(len(model.coordinates), rows=1))
    p, q = mpf(model.chain.p), mpf(model.chain.q)
    pi0, pi1 = q / (p + q), p / (p + q)
    gap = float(model.logit_gap(theta))
    offset = float(model.offset(theta))
    f0 = mpf(float(model.optimal_bias(theta))) + offset
    f1 = f0 + gap
    loss = pi0 * (p * softplus(-f0) + (1 - p) * softplus(f0))
    loss += pi1 * ((1 - q) * softplus(-f1) + q * softplus(f1))
    close(model.loss(theta).item(), loss, 1e-12 * (1 + abs(gap) * 1e-3), 1e-15 * abs(offset))
    first, second = pi0 * (sigmoid(f0) - p), pi1 * (sigmoid(f1) - (1 - q))
    size = pi0 * min(sigmoid(f0) + p, 2) + pi1 * min(sigmoid(f1) + 1 - q, 2)
    close(first + second, mpf(0), 0, 1e-13 * (1 + abs(gap) + abs(offset)) * size)
    slope = float(model.slope_at(model.logit_gap(theta)))
    assert model.gradient(theta).isfinite().all()
    # where p + q rounds to 1, so does the Δ* from which the slope is reckoned, to 0
    rounded = abs(mpmath.log((1 - p) * (1 - q) / (p * q)) - mpf(model.chain.target_logit_gap))
    allowed = 1e-12 * (1 + abs(gap) + abs(offset)) + rounded
    close(slope, second, 0, allowed * pi1 * min(sigmoid(f1) + 1 - q, 2))


@law(12, 40, model=models(), data=st.data())
def test_no_number_is_missing(model, data):
    theta = data.draw(starts(len(model.coordinates)))
    loss = model.loss(theta)
    for values in (loss, model.gradient(theta), model.optimal_bias(theta)):
        assert values.isfinite().all()
    assert (loss >= model.chain.entropy_rate * (1 - 1e-9)).all()
    w = theta[:, model.coordinates.index("w")] if "w" in model.coordinates else torch.ones(1)
    assert (conserved_values(model, theta).isfinite().all(dim=1) | (w == 0)).all()


def decided(model, theta):
    """The closed form's basin, and where its own rounding does not decide."""
    point = model.canonical(theta) if model.name == "states" else theta
    e, w = point[:, 0], point[:, 1]
    size = 1 + e.square() + w.square() + w.abs().clamp_min(1e-300).log().abs()
    clear = ((energy(point) - SADDLE_ENERGY).abs() > 1e-13 * size) | (w >= 0)
    if model.name == "linear":
        share = 2 * (1 + theta[:, 2]).square()
        clear &= (e.square() - share).abs() > 1e-13 * (e.square() + share)
        clear &= (share > 1e-24) | ((w - SADDLE_W).abs() > 1e-12)  # critical but for rounding
    return model.basin(theta), clear


@law(20, 166, model=gap_models(("canonical", "linear", "states")), data=st.data())
def test_every_label_is_the_closed_forms(model, data):
    theta = data.draw(starts(len(model.coordinates), rows=20))
    found = find_limits(model, theta).label
    basin, clear = decided(model, theta)
    if model.chain.second_eigenvalue == 0:
        basin, clear = torch.ones_like(basin), torch.ones_like(clear)
    known = (found != Label.UNRESOLVED) & clear
    assert torch.equal((found == Label.GLOBAL_MINIMUM)[known], basin[known])
    if model.chain.mutual_information > 1e-13:  # else no loss is told from another in float64
        assert known.double().mean() >= 0.5 or (~clear).any()


@law(10, 40, pair=chances(), data=st.data())
def test_untied_starts_off_the_diagonals_learn(pair, data):
    """e² − u² is conserved, so that e = u = 0, which is critical, is far where they differ."""
    model = flowsim.model("untied", *pair)
    theta = data.draw(starts(3, rows=20, values=magnitudes(-3, 3)))
    theta = theta[(theta[:, 0].abs() / theta[:, 1].abs()).log().abs() > 1e-3]
    if len(theta):
        assert (find_limits(model, theta).label == Label.GLOBAL_MINIMUM).all()


@law(4, 16, pair=chances(), data=st.data())
def test_uniform_attention_over_one_position_is_linear(pair, data):
    theta = data.draw(starts(3, rows=8, values=magnitudes(-6, 1)))
    uniform, linear = flowsim.model("uniform", *pair, length=1), flowsim.model("linear", *pair)
    torch.testing.assert_close(uniform.loss(theta), linear.loss(theta), rtol=1e-9, atol=0)
    if linear.chain.second_eigenvalue == 0:
        return  # every end is a global minimum
    found = find_limits(uniform, theta).label
    basin, clear = decided(linear, theta)
    known = (found != Label.UNRESOLVED) & clear
    assert torch.equal((found == Label.GLOBAL_MINIMUM)[known], basin[known])


@law(2, 6, model=models(longest=6), data=st.data())
def test_every_orbit_ends_and_its_label_fits_its_loss(model, data):
    theta = data.draw(starts(len(model.coordinates), rows=4))
    found = find_limits(model, theta)
    assert (found.evaluations <= EVALUATIONS).all()
    known = found.label != Label.UNRESOLVED
    assert found.theta[known].isfinite().all()
    chain, loss = model.chain, found.loss
    assert (loss[known] <= model.loss(theta)[known] * (1 + 1e-6)).all()
    above = (loss - chain.entropy_rate) / max(chain.entropy_rate, chain.mutual_information)
    assert (above[found.label == Label.GLOBAL_MINIMUM].abs() < 1e-6).all()


@law(7, 25, model=gap_models(), data=st.data())
def test_every_start_that_moves_has_a_time(model, data):
    theta = data.draw(starts(len(model.coordinates), values=magnitudes(-6, 1)))
    limits = find_limits(model, theta)
    excess = model.loss(theta) - limits.loss
    times = settling_times(model, theta, limits=limits)
    visible = (excess > 1e-9 * limits.loss) & (limits.label != Label.UNRESOLVED)
    visible &= limits.rule != flowsim.Rule.CRITICAL_START
    assert (times[visible] > 0).all()
