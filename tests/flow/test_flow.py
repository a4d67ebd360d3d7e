import math

import pytest
import torch
from conftest import REFERENCE, uniform_starts
from scipy.integrate import solve_ivp

from flowsim import BinaryChain, InputError, find_limits
from flowsim.models import CanonicalModel
from flowsim.reference import integrate

MODEL = CanonicalModel(BinaryChain(0.5, 0.8))
TIMES = torch.linspace(0, 40, 9, dtype=torch.float64)


@pytest.mark.parametrize("row", REFERENCE["hitting_time"], ids=lambda r: f"{r['p']},{r['q']}")
def test_physical_time_reaches_the_reference_point(row):
    model = CanonicalModel(BinaryChain(row["p"], row["q"]))
    times = torch.tensor([0.0, row["time"]], dtype=torch.float64)
    end = integrate(model, torch.tensor([row["e0"], row["w0"]], dtype=torch.float64), times)[-1]
    assert abs(end[1] - row["w_at_time"]) < 1e-8
    assert abs(model.loss(end) - row["loss_at_time"]) < 1e-10


def test_same_path_as_an_independent_integrator(generator):
    start = uniform_starts(3, generator)
    path = integrate(MODEL, start, TIMES)
    assert path.shape == (9, 3, 2)

    def field(_, y):
        return MODEL.field(torch.from_numpy(y)).numpy()

    for i in range(3):
        reference = solve_ivp(
            field, (0, 40), start[i].numpy(), t_eval=TIMES.numpy(), rtol=1e-11, atol=1e-13
        )
        assert (path[:, i] - torch.from_numpy(reference.y.T)).abs().max() < 1e-8


def test_a_poisoned_row_costs_only_itself(generator):
    start = uniform_starts(5, generator)
    poison = torch.tensor([[math.nan, 1.0], [1e200, 1.0]], dtype=torch.float64)
    with pytest.warns(RuntimeWarning, match="1 of 7 starts .* NaN: trajectories"):
        path = integrate(MODEL, torch.cat([start, poison]), TIMES)
    assert torch.isnan(path[1:, 5:]).all()
    assert (path[:, :5] - integrate(MODEL, start, TIMES)).abs().max() < 1e-9


@pytest.mark.parametrize("times", [[0.0], [0.0, 0.0], [1.0, 0.5], [0.0, math.inf], [[0.0, 1.0]]])
def test_bad_times_are_refused(times):
    with pytest.raises(InputError, match="at least two increasing, finite times"):
        integrate(MODEL, torch.ones(2, dtype=torch.float64), torch.tensor(times))


def test_rows_that_are_not_finite_cost_only_themselves_and_progress_is_the_share_of_times():
    start = torch.tensor([[1.0, -1.0], [math.nan, 0.5]], dtype=torch.float64)
    seen = []
    path = integrate(MODEL, start, TIMES[:3], 1e-9, 1e-10, progress=seen.append)
    assert torch.equal(path[:, 0], integrate(MODEL, start[:1], TIMES[:3], 1e-9, 1e-10)[:, 0])
    assert path[1:, 1].isnan().all() and path[0, 1, 1] == 0.5
    assert seen[0] == 1 / 3 and seen[-1] == 2 / 3 and sorted(seen) == seen
    assert integrate(MODEL, start[1:], TIMES[:2])[1].isnan().all()


def test_one_row_without_kinks_has_met_none():
    found = find_limits(CanonicalModel(BinaryChain(0.5, 0.8)), torch.tensor([[1.0, 0.5]]).double())
    assert found.kinks.dtype == torch.int32 and found.kinks.tolist() == [0]
    assert found.sliding_time.dtype == torch.float64 and found.sliding_time.tolist() == [0.0]
