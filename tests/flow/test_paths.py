"""Many trajectories at once: against the batch that shares its steps, and each row for itself."""

import math

import pytest
import torch
from conftest import rows

import flowsim
from flowsim import BinaryChain, InputError, find_limits, trajectories
from flowsim.flow import settling_times
from flowsim.interface import theta_at
from flowsim.models import CanonicalModel, LinearAttentionModel, UntiedModel
from flowsim.models.canonical.basins import SADDLE_ENERGY, minima_curve
from flowsim.reference import integrate

MODEL = CanonicalModel(BinaryChain(0.5, 0.8))
#: Uneven, from far below every time scale on, and not from zero on.
TIMES = 3 + torch.cat([torch.zeros(1), torch.logspace(-4, math.log10(40), 14)]).double()


def difference(model, start, times, **tolerances):
    """Largest difference from ``integrate``, which shares only the field."""
    exact = integrate(model, start, times, 1e-12, 1e-13)
    found = trajectories(model, start, times, **tolerances)
    assert found.shape == exact.shape
    return (found - exact).abs().max()


@pytest.mark.parametrize(("kind", "start"), [
    (CanonicalModel, (1e-6, 0.3)), (LinearAttentionModel, (1e-6, 0.3, 0.2)),
    (UntiedModel, (1e-6, 1e-6, 0.3)),
])  # fmt: skip
def test_small_starts_leave_the_plane_in_time(kind, start):
    """Beside the plane e = 0, which repels here, e grows by a factor in the same time."""
    model = kind(BinaryChain(0.2, 0.3))
    times = torch.tensor([0.0, 0.5, 2.0, 8.0, 32.0], dtype=torch.float64)
    exact = integrate(model, rows(start), times, 1e-11, 1e-20)
    torch.testing.assert_close(trajectories(model, rows(start), times), exact, rtol=2e-8, atol=0)
    shrink = torch.tensor([1e-2 if x == 1e-6 else 1.0 for x in start], dtype=torch.float64)
    late = settling_times(model, rows(start) * torch.stack([shrink**i for i in (1, 2, 3)]), 0.5)
    assert float(late.diff().diff().abs()) < 1e-9 * float(late[-1])


def test_a_path_is_as_right_between_the_ends_of_its_steps_as_there():
    starts = {"canonical": (1.2, -0.9), "linear": (1.2, -0.9, 0.3), "untied": (1.2, 0.7, -0.9)}
    for name, start in starts.items():
        model = flowsim.model(name, 0.5, 0.8)
        assert difference(model, rows(start), torch.linspace(0, 2, 41).double()) < 5e-10


def test_beside_a_equal_minus_one_the_error_is_that_of_a_and_not_that_of_the_gap():
    model = LinearAttentionModel(BinaryChain(0.05, 0.05))
    start, times = rows((0.01, 1.0, -1.0), (0.01, 1.0, -0.999), (0.01, 1.0, -1.001)), [0, 1, 8, 32]
    exact = integrate(model, start, times, 1e-11, 1e-13)
    assert (trajectories(model, start, times) - exact).abs().max() < 2e-10


def test_starts_that_cross_zero_fall_into_the_plane_lie_far_out_or_on_the_separatrix():
    w = torch.linspace(-0.65, -0.05, 6, dtype=torch.float64)
    on_separatrix = torch.stack([(SADDLE_ENERGY + w.square() - w.abs().log()).sqrt(), w], dim=1)
    crossing_and_trapped = rows((1.2, -0.3), (-1.2, -0.3), (0.4, -0.3), (0.7, 0.5), (0.01, 1.4))
    times = torch.linspace(0, 30, 7).double()
    for start in (on_separatrix, crossing_and_trapped):
        assert difference(MODEL, start, times) < 1e-8
    early = torch.linspace(0, 0.05, 4).double()
    assert difference(MODEL, rows((7.0, 7.0), (7.0, -7.0), (0.1, 10.0), (-10.0, 0.1)), early) < 1e-8


def test_starts_that_never_move_stay_and_zero_coordinates_stay_zero():
    w = torch.tensor([-1.2], dtype=torch.float64)
    minimum = torch.stack([minima_curve(MODEL.chain, w), w], dim=1)
    still = torch.cat([rows((0.0, 0.7), (0.0, 0.0), (0.0, -math.sqrt(0.5))), minimum])
    found = trajectories(MODEL, torch.cat([still, rows((0.8, 0.0))]), TIMES)
    assert torch.equal(found[:, :4], still.expand(len(TIMES), 4, 2))
    assert (found[:, 4, 1] == 0).all() and (found[:, 4, 0].diff() < 0).all()
    untied = UntiedModel(MODEL.chain)
    assert (
        difference(untied, rows((0.0, 1.0, 0.5), (1.0, -1.0, 0.0), (0.0, 0.0, 1.0)), TIMES) < 1e-9
    )


@pytest.mark.parametrize(
    ("p", "q", "start"),
    [
        (2.8e-4, 4.5e-5, (1.0, -66.6)),
        (2.8e-4, 4.5e-5, (-30.0, 5.0)),
        (1 - 1e-9, 1 - 1e-9, (3.0, -2.0)),
        (1e-9, 0.5, (1e-6, 0.3)),
        (0.5, 0.8, (100.0, 100.0)),
        (0.5, 0.8, (60.0, 0.1)),
    ],
)
def test_paths_from_extreme_settings_end_where_the_limits_are(p, q, start):
    model = CanonicalModel(BinaryChain(p, q))
    end = torch.from_numpy(find_limits(model, start).theta)
    path = trajectories(model, torch.tensor(start), torch.tensor([0.0, 1e-3, 1.0, 1e12]))
    assert torch.isfinite(path).all()
    assert (model.loss(path).diff() <= 1e-12).all()
    assert (path[-1] - end).abs().max() < 1e-6 * (1 + end.abs().max())


@pytest.mark.parametrize("times", [[0.0], [0.0, 0.0], [1.0, 0.5], [0.0, math.inf], [[0.0, 1.0]]])
def test_bad_times_are_refused(times):
    with pytest.raises(InputError, match="at least two increasing, finite times"):
        trajectories(MODEL, torch.ones(2, dtype=torch.float64), torch.tensor(times))
    with pytest.raises(InputError, match=r"of the shape \(T, 1\)$"):
        trajectories(MODEL, torch.ones((1, 2), dtype=torch.float64), torch.tensor(times))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("canonical", {}),
        ("rank-one", {"length": 4}),
        pytest.param("canonical", {"bias": "dynamic"}, marks=pytest.mark.slow),
    ],
    ids=["gap", "rows", "any loss"],
)
def test_each_start_may_have_times_of_its_own(name, options):
    """The same as one start after the other."""
    of = flowsim.model(name, 0.5, 0.8, **options)
    e, w = torch.tensor([[1.0, 1.0, 0.3], [-1.2, 1.2, 0.4]], dtype=torch.float64)
    starts = theta_at(of.plane, w, e, {})
    times = torch.tensor([[0.0, 1.0, 2.0], [0.5, 3.0, 2.1], [7.0, 9.0, 40.0]], dtype=torch.float64)
    path = trajectories(of, starts, times)
    for i, start in enumerate(starts):
        assert torch.equal(path[:, i], trajectories(of, start, times[:, i]))
    with pytest.raises(InputError, match="of the shape"):
        trajectories(of, starts, times[:, :2])
