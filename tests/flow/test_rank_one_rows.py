"""Rank-one rows without attention: labels, limits and times against scipy's integration."""

import numpy as np
import pytest
import torch
from conftest import box, rows
from rounded_kinks import rank_one_end

from flowsim import BinaryChain, find_limits, hitting_times, trajectories
from flowsim.labels import Label, Rule, Status
from flowsim.models.rank_one.model import RankOneModel

CHAINS = [(0.5, 0.8), (0.2, 0.3), (0.9, 0.9), (0.97, 0.6), (0.04, 0.11)]
BOTH = [True, False]


def gaussian(model, n, generator, sigma=1.0):
    shape = n, len(model.coordinates)
    return sigma * torch.randn(shape, dtype=torch.float64, generator=generator)


def lifted(model, n, generator):
    return model.from_canonical(box(n, 2, generator))


def check_against_scipy(model, starts, widths=(1e-8,)):
    """How many starts end alike where kinks are rounded over the widths, and how many slid."""
    limits = find_limits(model, starts)
    learned = limits.label == Label.GLOBAL_MINIMUM
    times = torch.where(learned, hitting_times(model, starts, 1e-3, limits=limits), 0.0)
    found = torch.cat([learned[:, None], times[:, None], limits.theta], 1)
    decided = slid = 0
    for i, start in enumerate(starts.numpy()):
        known, *others = (rank_one_end(model, start, 1e-3, width) for width in widths)
        if all(np.allclose(known, other, 1e-5, 1e-5) for other in others):
            assert learned[i] or limits.label[i] == Label.LOCAL_MINIMUM
            firm = slice(None if learned[i] else 6)
            np.testing.assert_allclose(found[i, firm], known[firm], rtol=1e-5, atol=1e-5)
            decided, slid = decided + 1, slid + bool(limits.sliding_time[i] > 0)
    return decided, slid


def test_a_row_leaves_a_slide_to_the_side_whose_velocity_has_turned():
    """Two of 10⁵ Gaussian starts, which rounding had sent back to the slide they were leaving."""
    model = RankOneModel(BinaryChain(0.5, 0.8), 8)
    starts = torch.tensor([
        [-1.7741220919842564, 0.09112293163524925, 1.242710525855403, -0.34135046650503487,
         1.1883406868288522],
        [1.588491759792923, -0.3198560735383692, -0.7879288969307869, 1.5165310478559968,
         1.5844341817143057],
    ], dtype=torch.float64)  # fmt: skip
    limits = find_limits(model, starts)
    assert limits.status.tolist() == 2 * [Status.CONVERGED]
    assert limits.kinks.tolist() == [2, 1]
    assert check_against_scipy(model, starts)[1] == 2


@pytest.mark.parametrize(("p", "q"), [(0.5, 0.8), (0.97, 0.6)])
def test_at_one_position_a_row_stops_where_the_flow_is_not_unique(p, q):
    """There the slide along Y_1 = 0 begins to repel, and its two sides lead to different ends."""
    model = RankOneModel(BinaryChain(p, q), 1)
    start = rows([-3.789525469999006, 3.916998257095636, -1.3315559373639356, 0.7678454896663383,
                  -4.4739395382860785])  # fmt: skip
    for rtol in (1e-6, 1e-8, 1e-10, 1e-12):
        limits = find_limits(model, start, rtol=rtol)
        assert limits.label.item() == Label.UNRESOLVED and limits.status.item() == Status.FAILED
        e, rho, _, _, bias = limits.theta[0].tolist()
        assert rho == -e and bias == pytest.approx(np.log((1 - q) / q), abs=1e-4)
    assert hitting_times(model, start, 1e-3, limits=limits).isnan().all()
    path = trajectories(model, start[0], torch.tensor([0.0, 1.0, 1e3], dtype=torch.float64))
    assert path[:2].isfinite().all() and path[2].isnan().all()
    sides = limits.theta + 1e-6 * rows([0, 1, 0, 0, 0], [0, -1, 0, 0, 0])
    assert set(find_limits(model, sides).label.tolist()) == {1, 2}


@pytest.mark.slow
@pytest.mark.parametrize("i", [3, 4])
def test_limits_and_times_of_many_starts(i, generator):
    """Of every length, tied and not in turn."""
    (p, q), length, tied = CHAINS[i % 5], (1, 8, 1024, 10**6)[i // 2], BOTH[i % 2]
    model = RankOneModel(BinaryChain(p, q), length, tied=tied)
    clouds = [gaussian(model, 5, generator), gaussian(model, 5, generator, 3.0)]
    starts = torch.cat([*clouds, lifted(model, 5, generator)])
    decided, _ = check_against_scipy(model, starts, (1e-7, 1e-8))
    assert decided >= 8


@pytest.mark.parametrize("tied", BOTH)
def test_an_orbit_that_slides_is_right_to_a_hundred_thousandth(tied):
    model = RankOneModel(BinaryChain(0.2, 0.3), 8, tied=tied)
    starts = model.from_canonical(rows([0.5, -1.2], [-0.8, -1.6]))
    assert (find_limits(model, starts).kinks >= 1).all()
    assert check_against_scipy(model, starts) == (2, 2)


def test_every_start_is_decided(generator):
    for p, q in CHAINS:
        for length in (1, 64, 10**6):
            model = RankOneModel(BinaryChain(p, q), length)
            starts = torch.cat([lifted(model, 60, generator), gaussian(model, 60, generator, 3.0)])
            limits = find_limits(model, starts)
            stopped = limits.status == Status.FAILED  # where the flow is not unique
            assert torch.equal(limits.label == Label.UNRESOLVED, stopped)
            assert length == 1 or not stopped.any()
            below = model.loss(starts) < model.chain.stationary_entropy - 1e-12
            assert (limits.label[below] == Label.GLOBAL_MINIMUM).all()
            minima = limits.label == Label.GLOBAL_MINIMUM
            excess = limits.loss[minima] - model.chain.entropy_rate
            assert excess.abs().max() < 1e-12 and limits.gradient_norm[~stopped].max() < 1e-6


def test_critical_starts_are_called_what_they_are():
    model = RankOneModel(BinaryChain(0.5, 0.8), 8)  # p + q > 1: traps where the slope is positive
    bias = model.optimal_bias(rows([0.0, 0, 0, 0, 0])).item()
    cases = {
        (0.0, 0.5, 1.0, 1.0): Label.LOCAL_MINIMUM,  # open, slope 5
        (0.0, 0.5, 1.0, -1.0): Label.SADDLE,  # open, slope −3
        (0.0, 0.5, -1.0, 1.0): Label.LOCAL_MINIMUM,  # closed
        (0.0, 0.0, 1.0, -1.0): Label.SADDLE,  # a unit opens next to it
        (0.0, 0.0, 1.0, 1.0): Label.LOCAL_MINIMUM,
        (0.0, 0.5, 0.5, -0.5): Label.SADDLE,  # slope 0
    }
    limits = find_limits(model, rows(*[[*start, bias] for start in cases]))
    assert limits.label.tolist() == list(cases.values())
    assert (limits.rule == Rule.CRITICAL_START).all() and (limits.kinks == 0).all()
    untied = RankOneModel(BinaryChain(0.5, 0.8), 8, tied=False)
    assert find_limits(untied, rows([0.0, 0.5, 1, 1, bias, 0])).label.item() == Label.SADDLE
