"""Models of examples/ against what else their formulas imply than the published numbers."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from elsewhere import loaded
from scipy.integrate import solve_ivp

import flowsim
from flowsim.interface import conserved_values
from flowsim.landscape.ends import Ends

FOLDER = Path(__file__).parents[2] / "examples"


def made(file, kind, **options):
    """A model of a class in a file of examples/."""
    return getattr(loaded(FOLDER / f"{file}.py"), kind)(**options)


def ends_of(model, starts):
    """The ends of some starts, the code of each start, and its limit."""
    limits, ends = (
        flowsim.find_limits(model, torch.tensor(starts, dtype=torch.float64)),
        Ends(model),
    )
    return ends.found, ends.identify(limits).tolist(), limits


def drift(model, starts, times):
    path = flowsim.trajectories(model, starts, times)
    kept = conserved_values(model, path)
    return float((kept - kept[0]).abs().max()), path


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.stem)
def test_an_example_is_one_class_in_at_most_forty_lines(path):
    text = path.read_text()
    assert len(text.splitlines()) <= 40
    assert text.count("\nclass ") == 1 and "(flowsim.Model):" in text
    assert re.search(r"arXiv \d{4}\.\d{4,5}|github\.com/", text)


def test_two_factors_keep_their_difference_and_end_on_either_branch_of_a_hyperbola():
    model = made("two_factor", "TwoFactor")
    starts = torch.tensor([[2.0, 0.5], [-1.0, 3.0], [0.3, -0.2], [-2.0, 1.0]]).double()
    times = torch.linspace(0, 5, 6).double()
    lost, path = drift(model, starts, times)
    assert lost < 1e-6 and float((path[-1] - path[0]).abs().max()) > 0.3
    found, codes, limits = ends_of(model, starts.tolist())
    captions = [end.caption(model.coordinates).partition(" (")[0] for end in found]
    assert captions == ["minima 1, a curve", "minima 2, a curve"]
    assert max(end.loss for end in found) < 1e-30
    # the larger of |a| and |b| keeps its sign, and so does a + b, which is never 0
    assert codes == [2, 2, 2, 1]
    torch.testing.assert_close(limits.theta.prod(1), torch.ones(4).double(), rtol=0, atol=1e-7)


def heads(theta, m):
    """The field of two heads as the paper has it, with both entries of every s_k."""
    v, s = theta[2:].reshape(2, 2), [np.array([p, 1 - p]) for p in theta[:2]]
    rest = np.diag([m, 1.0]) - sum(np.outer(v[k], s[k]) for k in (0, 1))
    moves = [(np.diag(s[k]) - np.outer(s[k], s[k])) @ rest.T @ v[k] for k in (0, 1)]
    return moves, np.concatenate([rest @ s[k] for k in (0, 1)])


def test_competing_heads_follow_the_written_field():
    model, rng = made("competing_heads", "CompetingHeads", ratio=1.4), np.random.default_rng(0)
    starts = np.concatenate([rng.uniform(0.1, 0.9, (5, 2)), rng.normal(size=(5, 4))], 1)
    field = model.field(torch.tensor(starts)).numpy()
    for theta, found in zip(starts, field, strict=True):
        moves, values = heads(theta, 1.4)
        assert np.allclose([move.sum() for move in moves], 0, atol=1e-14)  # each s_k stays
        assert np.allclose(found, [*(move[0] for move in moves), *values], rtol=0, atol=1e-13)
    # a gradient flow after all where s = sin²φ: its metric is 1 for values and 4 for φ
    slope = -model.gradient(torch.tensor(starts)).numpy()
    slope[:, :2] *= starts[:, :2] * (1 - starts[:, :2])
    assert np.allclose(field, slope, rtol=0, atol=1e-13)


@pytest.mark.slow
def test_coopetition_is_followed_as_by_a_stiff_integrator():
    model = made("coopetition", "Coopetition")
    start = np.array([0.05, 0.02, 0.1, 1.0])

    def field(_, theta):
        a, d, b, c = theta
        one, other = a * b * c - 1, d * b * c - 1
        left, right = one**2 / 2 + model.mu1, other**2 / 2 + model.mu2
        x, y = one * right, other * left
        return [-x * b * c - model.alpha * a * d**2, -y * b * c - model.alpha * a**2 * d,
                -x * a * c - y * d * c, -x * a * b - y * d * b]  # fmt: skip

    times = np.array([0.0, 3.0, 10.0, 100.0])
    known = solve_ivp(field, (0, 100), start, "Radau", times, rtol=1e-9, atol=1e-12).y.T
    lost, path = drift(model, torch.tensor(start[None]), torch.tensor(times))
    assert lost < 1e-6 and np.allclose(path[:, 0], known, rtol=0, atol=1e-6)


def test_steps_in_angle_and_norm_are_gradient_descent_on_the_weights():
    model = made("scale_invariance", "ScaleInvariance", decay=0.2, rate=0.3)
    weights = torch.tensor([0.5, 0.4], dtype=torch.float64)
    theta = torch.stack([weights[0].atan2(weights[1]), weights.norm().log()])
    for _ in range(20):
        x, y = weights
        slope = torch.stack([x * y**2, -y * x**2]) * 2 / weights.norm() ** 4
        weights = weights - 0.3 * (slope + 0.2 * weights)
        theta, _ = model.step(theta, theta[:0])
        place = theta[1].exp() * torch.stack([theta[0].sin(), theta[0].cos()])
        assert torch.allclose(place, weights, rtol=0, atol=1e-12)
