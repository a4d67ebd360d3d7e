import math

import mpmath
import numpy as np
import pytest
import torch
from conftest import REFERENCE, relative_error, rows, uniform_starts
from oracle import Canonical

from flowsim import (
    BinaryChain,
    InputError,
    Label,
    Status,
    find_limits,
    hitting_times,
    trajectories,
)
from flowsim.flow import settling_times
from flowsim.models import (
    CanonicalModel,
    LinearAttentionModel,
    energy,
    reaches_global_minimum,
)
from flowsim.models.canonical.basins import SADDLE_ENERGY

NAMES = {"global": Label.GLOBAL_MINIMUM, "local": Label.LOCAL_MINIMUM}


def model_at(p, q):
    return CanonicalModel(BinaryChain(p, q))


@pytest.mark.parametrize("row", REFERENCE["limit"], ids=lambda r: f"{r['p']},{r['q']},{r['e0']}")
def test_reference_limits(row):
    limit = find_limits(model_at(row["p"], row["q"]), rows(row["e0"], row["w0"]))
    assert limit.label == NAMES[row["label"]]
    assert limit.status == Status.CONVERGED
    assert (limit.theta - rows(row["e"], row["w"])).abs().max() <= 1e-11
    assert limit.gradient_norm < 1e-9


@pytest.mark.parametrize("row", REFERENCE["hitting_time"], ids=lambda r: f"{r['p']},{r['q']}")
def test_reference_hitting_times(row):
    start = rows(row["e0"], row["w0"])
    time = hitting_times(model_at(row["p"], row["q"]), start, row["excess_fraction"])
    assert relative_error(time.item(), row["time"]) <= 1e-11


@pytest.mark.slow
def test_second_set_end_points_and_times_by_quadrature():
    p, q, e, w = "0.5", "0.8", 1.1, -0.15
    model, oracle = model_at(float(p), float(q)), Canonical(p, q)
    start = rows(e, w)
    limit = find_limits(model, start)
    mpmath.mp.dps = 16  # a quadrature in a quadrature
    end_e, end_w = oracle.global_end(e, w, float(limit.theta[1]))
    assert abs(limit.theta[0] - float(end_e)) < 1e-9
    assert abs(limit.theta[1] - float(end_w)) < 1e-9
    # the time to the excess that the flow has when w is halfway to its end
    halfway = (mpmath.mpf(w) + end_w) / 2
    squared = oracle.energy(mpmath.mpf(e), mpmath.mpf(w)) + halfway**2
    squared += mpmath.sign(halfway) * mpmath.log(abs(halfway))
    floor = oracle.loss_of_gap(oracle.target)[0]
    excess = oracle.loss_of_gap(squared * (1 + 2 * halfway * abs(halfway)))[0] - floor
    fraction = float(excess / (oracle.point(e, w)[1] - floor))
    expected = oracle.time_to(e, w, halfway)
    assert relative_error(hitting_times(model, start, fraction).item(), expected) < 1e-9


@pytest.mark.parametrize(("p", "q"), [(0.5, 0.8), (0.2, 0.3)])
def test_near_the_separatrix_right_or_unresolved_never_wrong(p, q, generator):
    """Starts with E − E_s = ±10^−k: resolved down to 1e-9, then honest."""
    model = model_at(p, q)
    right = rows(-0.05, -0.2, -0.4, -0.6) if p + q > 1 else rows(-0.8, -1.2, -2.0, -2.9)
    offset = 10.0 ** -torch.arange(6, 17, dtype=torch.float64)
    offset = torch.cat([offset, -offset]).unsqueeze(1)
    squared = right.square() - right.abs().log() + SADDLE_ENERGY + offset
    start = torch.stack([squared.sqrt(), right.expand_as(squared)], dim=-1)
    label = find_limits(model, start).label
    expected = torch.where(energy(start) > SADDLE_ENERGY, 1, 2)
    assert ((label == expected) | (label == Label.UNRESOLVED)).all()
    resolved = offset.abs().expand_as(squared) >= 0.99e-9
    assert (label == expected)[resolved].all()
    assert (label == Label.UNRESOLVED).any()


@pytest.mark.parametrize("delta", [1e-9, -1e-15])
def test_next_to_a_switching_factor_of_one(delta):
    model = model_at(0.5, 0.5 + delta)
    axis = torch.linspace(-2.97, 2.97, 60, dtype=torch.float64)
    start = torch.cartesian_prod(axis, axis)
    expected = reaches_global_minimum(model.chain, start)
    assert torch.equal(find_limits(model, start).label == Label.GLOBAL_MINIMUM, expected)


@pytest.mark.parametrize("rtol", [0.0, -1e-3, math.nan, math.inf])
def test_bad_tolerances_are_refused(rtol):
    with pytest.raises(InputError, match="rtol must be a positive number"):
        find_limits(model_at(0.5, 0.8), rows(1.0, 1.0), rtol=rtol)


def test_bad_shapes_and_fractions_are_refused():
    with pytest.raises(InputError, match=r"\(e, w\)"):
        find_limits(model_at(0.5, 0.8), torch.zeros(4, 3, dtype=torch.float64))
    with pytest.raises(InputError, match="strictly between 0 and 1"):
        hitting_times(model_at(0.5, 0.8), rows(1.0, 1.0), fraction=1.0)
    assert torch.isnan(hitting_times(model_at(0.5, 0.8), rows(0.0, 1.0)))


def test_starts_that_never_learn_have_a_time_to_settle_alone(generator):
    model = model_at(0.5, 0.8)
    start = uniform_starts(60, generator)
    limits = find_limits(model, start)
    learned, settled = hitting_times(model, start), settling_times(model, start, limits=limits)
    assert torch.isfinite(settled).all()
    assert torch.equal(torch.isfinite(learned), limits.label == Label.GLOBAL_MINIMUM)
    assert torch.equal(learned[learned > 0], settled[learned > 0])
    path = trajectories(model, start[:9], torch.tensor([0.0, *sorted(settled[:9].tolist())]))
    for i, place in enumerate(settled[:9].argsort().argsort()):
        left = model.loss(path[1 + place, i]) - limits.loss[i]
        expected = 1e-3 * (model.loss(start[i]) - limits.loss[i]).item()
        assert left.item() == pytest.approx(expected, rel=1e-6)
    for other in (start.numpy(), start.tolist()):
        found = settling_times(model, other)
        assert isinstance(found, np.ndarray) and (found == settled.numpy()).all()


def test_large_weights_a_hair_from_the_minima_are_on_them():
    """Δ is 0 at a = −1, but the minima are 5e-13 away; it had been taken for a plateau."""
    model = LinearAttentionModel(BinaryChain(0.9, 0.25))
    limits = find_limits(model, rows([-1000, -1000, -1], [-1000, 0, -1], [0, -1000, -1]))
    assert (limits.label == Label.GLOBAL_MINIMUM).tolist() == [True, True, False]
