"""Fields that keep planes: populations stay positive, and come back from however little is left."""

import numpy as np
import torch

import flowsim
from flowsim import Label, Model
from flowsim.flow.any_loss import BatchState
from flowsim.flow.options import Steps


class May(Model):
    """Three competitors, each of which gives way to the next (May and Leonard)."""

    coordinates = ("a", "b", "c")

    def loss(self, theta):
        return (theta**2).sum(-1)

    def field(self, theta):
        a, b, c = theta.unbind(-1)
        return torch.stack([
            a * (1 - a - 0.8 * b - 1.3 * c), b * (1 - 1.3 * a - b - 0.8 * c),
            c * (1 - 0.8 * a - 1.3 * b - c),
        ], -1)  # fmt: skip


class Rivals(Model):
    """The one that has more at first excludes the other, all else alike."""

    coordinates = ("x", "y")

    def loss(self, theta):
        return (theta**2).sum(-1)

    def field(self, theta):
        x, y = theta.unbind(-1)
        return torch.stack([x * (1 - x - 1.5 * y), y * (1 - y - 1.5 * x)], -1)


def test_a_row_at_a_saddle_does_not_rest_while_what_is_nearly_gone_grows():
    steps, nothing = Steps(1e-6, 1e-12, 100), 1e-304
    near = torch.tensor([[nothing, 1.0, nothing], [1.0, nothing, nothing]], dtype=torch.float64)
    assert BatchState.at(May(), near, steps).revives().all()
    won = torch.tensor([[1.0, nothing]], dtype=torch.float64)
    assert not BatchState.at(Rivals(), won, steps).revives().any()


def test_the_excluded_fall_to_nothing_from_however_little_and_what_is_not_there_stays_away():
    starts = [[1e-8, 2e-8], [2e-20, 1e-20], [1.2, 1.1], [1e-8, 0.0], [0.0, 1e-8]]
    found = flowsim.find_limits(Rivals(), starts)
    assert (found.label == Label.LOCAL_MINIMUM).all()
    wanted = [[0, 1], [1, 0], [1, 0], [1, 0], [0, 1]]
    np.testing.assert_allclose(found.theta, wanted, atol=1e-9)
    assert found.theta[3, 1] == 0.0 and found.theta[4, 0] == 0.0
    ties = flowsim.find_limits(Rivals(), [[0.0, 0.0], [0.3, 0.3]])
    assert (ties.label != Label.LOCAL_MINIMUM).all()


class Pushed(Rivals):
    """x' = y² and y' = 1 − y leave both axes, though the first looks kept where y is 0."""

    def field(self, theta):
        x, y = theta.unbind(-1)
        return torch.stack([y**2 - x, 1 - y], -1)


def test_an_axis_that_only_looks_kept_is_crossed():
    path = flowsim.trajectories(Pushed(), [[-1.0, 0.0], [0.0, 0.0]], [0.0, 50.0])
    np.testing.assert_allclose(path[-1], 1.0, atol=1e-8)
