"""Programs of numpy do what torch does, or torch does it."""

import numpy as np
import pytest
import torch

import flowsim
from flowsim.flow.any_loss import BatchState
from flowsim.flow.options import Steps
from flowsim.flow.replay import Replay

WEIGHTS = torch.linspace(-1, 1, 12, dtype=torch.float64).reshape(3, 4)

#: Losses of x, y and z that use many functions, all positive coordinates.
LOSSES = {
    "powers": lambda x, y, z: (x**2 - 1) ** 2 / 4 + y**3 + z**-1 + x**0.5 + (y * z) ** 1.5,
    "exponentials": lambda x, y, z: (-x).exp() + (1 + y).log() + z.expm1() + x.log1p(),
    "waves": lambda x, y, z: x.sin() * y.cos() + z.tanh() + (x * z).atan(),
    "sigmoids": lambda x, y, z: x.sigmoid() + torch.nn.functional.softplus(y - z) + z.square(),
    "kinks": lambda x, y, z: (x - 1).abs() + torch.relu(y - z) + torch.maximum(x, z),
    "choices": lambda x, y, z: torch.where(x > y, x * y, z**2).clamp(max=2.0) + x**2,
    "a network": lambda x, y, z: (torch.stack([x, y, z], -1) @ WEIGHTS).tanh().square().mean(-1),
}


def rows(count, k=3):
    return 0.2 + torch.rand(
        count, k, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    )


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("what", ["loss", "field", "jacobian"])
def test_the_program_does_what_torch_does(name, what):
    model = flowsim.from_loss(LOSSES[name], "own")
    replay = Replay(lambda theta: (getattr(model, what)(theta),), 1)
    for count in (16, 48):
        (found,) = replay(rows(count))
        torch.testing.assert_close(found, getattr(model, what)(rows(count)).detach())
    assert list(replay.programs.values()) != [None]


def test_steps_of_losses_and_fields_are_replayed():
    """Or a change here makes them slow, and no other test notices."""
    for formula in (LOSSES["exponentials"], LOSSES["a network"]):
        state = BatchState.at(flowsim.from_loss(formula, "own"), rows(16), Steps(1e-6, 1e-12, 9))
        h, other = state.h / 10, state.select(slice(None))
        assert torch.equal(state.advance(h), other._advance(h))
        for column in ("y", "theta", "field", "jacobian", "h", "time", "way", "short"):
            torch.testing.assert_close(getattr(state, column), getattr(other, column))
        (replay,) = state.replays.values()
        assert None not in replay.programs.values()


def looks(theta):
    return theta * 2 if bool((theta > 0).all()) else theta


def leaves_torch(theta):
    return theta + torch.from_numpy(np.sin(theta.numpy()))


def counts_rows(theta):
    return theta * (2.0 if len(theta) > 20 else 1.0)


def draws(theta):
    return theta * torch.rand(len(theta), 1, dtype=torch.float64)


def rounds(theta):
    return torch.div(theta, 0.1, rounding_mode="floor")


def beside_the_diagonal(theta):
    return torch.diag_embed(theta, offset=1)


@pytest.mark.parametrize(
    "function", [looks, leaves_torch, counts_rows, rounds, beside_the_diagonal]
)
def test_what_depends_on_values_is_called_as_it_is(function):
    replay = Replay(lambda theta: (function(theta),), 1)
    for theta in (rows(16), -rows(48)):
        assert torch.equal(replay(theta)[0], function(theta))
    assert list(replay.programs.values()) == [None]


def test_what_is_random_is_called_as_it_is():
    replay = Replay(lambda theta: (draws(theta),), 1)
    first, second = replay(rows(16))[0], replay(rows(16))[0]
    assert not torch.equal(first, second)


def test_what_is_changed_in_place_is_computed_anew():
    def function(theta):
        moved = theta.clone()
        first = (moved.mul_(2) * 3, moved + theta)
        return torch.cat([*first, moved.add_(1) * 3, moved + theta], 1)

    replay = Replay(lambda theta: (function(theta),), 1)
    torch.testing.assert_close(replay(rows(16))[0], function(rows(16)))
    torch.testing.assert_close(replay(rows(48))[0], function(rows(48)))
    assert None not in replay.programs.values()


@pytest.mark.parametrize("start", [torch.nan, torch.inf])
def test_starts_of_which_none_is_a_number_are_unresolved(start):
    well = flowsim.from_loss(lambda x, y: (x**2 - 1) ** 2 / 4 + y**2 / 2, "well")
    theta = torch.tensor([[start, 0.0]], dtype=torch.float64)
    assert flowsim.find_limits(well, theta).label.tolist() == [flowsim.Label.UNRESOLVED]
    assert flowsim.hitting_times(well, theta, 1e-3).isnan().all()
