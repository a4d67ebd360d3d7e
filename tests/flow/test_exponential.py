"""The exponential step: its φ-functions, its order, and stiff systems with known solutions."""

import math
from dataclasses import dataclass

import numpy as np
import torch

from flowsim.flow.rows.exponential import EXPONENTIAL, phi_functions
from flowsim.flow.rows.stepping import Stop, run_rows


@dataclass(frozen=True)
class Well:
    """The flow of L = Σ rateᵢ θᵢ²/2 + bend·θ₀⁴/4 in the metric diag(metric), in its own chart."""

    rates: torch.Tensor
    metric: torch.Tensor
    bend: float = 0.0
    rtol: float = 1e-9
    end: float = math.inf

    @property
    def root(self):
        return self.metric.sqrt()

    def select(self, rows):
        return self

    def theta(self, y):
        return y

    y = theta

    def push(self, theta, vector):
        return vector

    def velocity(self, theta, hint):
        slope = self.rates * theta
        slope[:, 0] += self.bend * theta[:, 0] ** 3
        return -slope / self.metric, theta[:, :0]

    def linearise(self, theta, hint):
        hessian = torch.diag_embed(self.rates.expand_as(theta)).clone()
        hessian[:, 0, 0] += 3 * self.bend * theta[:, 0] ** 2
        return (self.velocity(theta, hint)[0], hessian, theta[:, :0])

    def field(self, y, hint=None):
        return self.velocity(y, hint)

    def scale(self, y):
        return self.rtol * torch.ones_like(y)

    def event(self, y):
        return None

    def settled(self, y, field):
        return field.abs().amax(dim=1) < 1e-12


def vector(*values):
    return torch.tensor(values, dtype=torch.float64)


def test_phi_functions_satisfy_their_recurrence_and_their_limits():
    z = torch.cat([-torch.logspace(-12, 5, 300, dtype=torch.float64), vector(0.0, 0.5, 3.0)])
    phi1, phi3, phi4 = phi_functions(z)
    torch.testing.assert_close(phi1 * z, torch.expm1(z), rtol=1e-14, atol=1e-300)
    torch.testing.assert_close(phi4 * z, phi3 - 1 / 6, rtol=1e-12, atol=1e-15)
    assert phi_functions(vector(0.0)) == (1.0, 1 / 6, 1 / 24)
    # φ₃ = ∫₀¹ e^{(1−s)z} s²/2 ds, by Gauss' rule where it is smooth
    s, weight = (torch.from_numpy(v) for v in np.polynomial.legendre.leggauss(30))
    s = (s + 1) / 2
    modest = z[z.abs() < 10]
    integral = (torch.exp(modest[:, None] * (1 - s)) * s**2 / 2) @ weight / 2
    torch.testing.assert_close(phi_functions(modest)[1], integral, rtol=1e-13, atol=1e-16)


def test_weights_satisfy_the_order_conditions():
    """Σ bᵢcᵢ² = 2φ₃ for order three, and Σ bᵢcᵢ³ = 6φ₄ for order four (c = ½, 1)."""
    _, phi3, phi4 = phi_functions(torch.linspace(-30, 0, 50, dtype=torch.float64))
    second, third = 16 * phi3 - 48 * phi4, -2 * phi3 + 12 * phi4
    torch.testing.assert_close(second / 4 + third, 2 * phi3)
    torch.testing.assert_close(second / 8 + third, 6 * phi4)
    torch.testing.assert_close(16 * phi3 / 4 - 2 * phi3, 2 * phi3)  # the embedded one


def test_a_linear_system_takes_one_exact_step_however_stiff():
    well = Well(vector(1.0, 30.0, 1e6), vector(1.0, 3.0, 0.5))
    start = vector(1.0, -2.0, 3.0)[None]
    field, memory = EXPONENTIAL.begin(well, start)
    end, _, _, error = EXPONENTIAL.attempt(well, start, field, memory, vector(0.7))
    exact = start * torch.exp(-0.7 * well.rates / well.metric)
    assert (end - exact).abs().max() < 1e-14
    assert error.abs().max() < 1e-13


def test_the_error_of_a_step_falls_with_its_fifth_power():
    """dθ/dt = −θ − θ³ has θ² = 1/((1/θ₀² + 1)e^{2t} − 1)."""
    well, start = Well(vector(1.0, 1e5), vector(1.0, 1.0), bend=1.0), vector(1.0, 1.0)[None]
    field, memory = EXPONENTIAL.begin(well, start)
    errors = []
    for step in (0.04, 0.02):
        end = EXPONENTIAL.attempt(well, start, field, memory, vector(step))[0]
        exact = (2 * math.exp(2 * step) - 1) ** -0.5
        errors.append(abs(end[0, 0].item() - exact))
    assert 0.8 * 2**5 < errors[0] / errors[1] < 1.3 * 2**5


def test_stiff_rows_settle_in_few_steps():
    well = Well(vector(1.0, 1e7), vector(1.0, 1.0), bend=1.0, rtol=1e-6)
    start = torch.stack([torch.linspace(-3, 3, 8, dtype=torch.float64)] * 2, dim=1)
    rows = run_rows(well, start, 200, method=EXPONENTIAL)
    assert (rows.stop == Stop.SETTLED).all()
    assert rows.y.abs().max() < 1e-11
    assert rows.evaluations.max() < 600  # an explicit method needs some 1e7
