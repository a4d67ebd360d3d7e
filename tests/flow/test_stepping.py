"""The row stepper on systems with closed solutions, beside torchdiffeq's own batch solver."""

from dataclasses import dataclass, replace

import torch
from torchdiffeq import odeint

from flowsim.flow.rows.stepping import Stop, run_rows


@dataclass(frozen=True)
class Decay:
    """y′ = −rate·y in the first column, s′ = 1 in the second; ends at s = target."""

    rate: torch.Tensor
    target: torch.Tensor
    rtol: float = 1e-10

    def select(self, rows):
        return replace(self, rate=self.rate[rows], target=self.target[rows])

    def field(self, y, hint=None):
        return torch.stack([-self.rate * y[:, 0], torch.ones_like(y[:, 1])], dim=1), y[:, :0]

    def scale(self, y):
        return self.rtol * torch.ones_like(y)

    def event(self, y):
        return y[:, 1] - self.target, torch.ones_like(y[:, 1])

    def settled(self, y, field):
        return torch.zeros_like(y[:, 0], dtype=torch.bool)


def decay(n, rtol=1e-10):
    rate = torch.logspace(-2, 2, n, dtype=torch.float64)
    return Decay(rate, 1 + torch.arange(n, dtype=torch.float64) / n, rtol)


def start(n):
    return torch.tensor([[1.0, 0.0]], dtype=torch.float64).repeat(n, 1)


def test_rows_land_on_the_event_with_the_exact_solution():
    problem = decay(50)
    rows = run_rows(problem, start(50), max_steps=10_000)
    assert (rows.stop == Stop.LANDED).all()
    assert (rows.y[:, 1] - problem.target).abs().max() < 1e-11
    assert (rows.y[:, 0] - torch.exp(-problem.rate * problem.target)).abs().max() < 1e-9


def test_every_row_has_its_own_step():
    rows = run_rows(decay(50), start(50), max_steps=10_000)
    assert rows.evaluations[-1] > 5 * rows.evaluations[0]


def test_the_pool_s_size_changes_nothing():
    whole = run_rows(decay(50), start(50), max_steps=10_000)
    small = run_rows(decay(50), start(50), max_steps=10_000, pool=7)
    assert torch.equal(small.stop, whole.stop)
    assert torch.equal(small.evaluations, whole.evaluations)
    assert (small.y - whole.y).abs().max() < 1e-12


def test_error_follows_the_tolerance():
    errors = []
    for rtol in (1e-5, 1e-7, 1e-9):
        problem = decay(20, rtol)
        rows = run_rows(problem, start(20), max_steps=10_000)
        exact = torch.exp(-problem.rate * problem.target)
        errors.append((rows.y[:, 0] - exact).abs().max())
    assert errors[0] > 10 * errors[1] > 100 * errors[2]


def test_agrees_with_torchdiffeq_on_the_same_problem():
    problem = decay(8)
    rows = run_rows(problem, start(8), max_steps=10_000)
    for i in range(8):
        one = problem.select(torch.tensor([i]))
        times = torch.stack([torch.tensor(0.0).double(), problem.target[i]])
        path = odeint(
            lambda _, y, one=one: one.field(y)[0], start(1), times, rtol=1e-10, atol=1e-12,
            method="dopri8", options={"step_t": times[1:]},
        )  # fmt: skip
        assert (path[-1, 0] - rows.y[i]).abs().max() < 1e-9


def test_budget_and_poison_are_reported():
    rows = run_rows(decay(5), start(5), max_steps=2)
    assert (rows.stop == Stop.RUNNING).all()
    poisoned = start(5)
    poisoned[2, 0] = torch.nan
    rows = run_rows(decay(5), poisoned, max_steps=10_000)
    assert rows.stop.tolist() == [Stop.LANDED] * 2 + [Stop.FAILED] + [Stop.LANDED] * 2
