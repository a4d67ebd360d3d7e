"""What of a found model belongs to the architecture, on networks whose answer is derived."""

import pytest
import torch

import flowsim
from flowsim.reduction.data_sets import origin_of_coordinates

T = torch.linspace(-1, 1, 8).double()


@pytest.mark.slow
@pytest.mark.turns
def test_three_equal_units_move_in_four_coordinates_whatever_the_data():
    """Units that start alike stay alike: the weights of one, (w₁, w₂), its output and a bias."""

    def loss_on(x, y):
        return lambda w: ((torch.tanh(x @ w["in"].T) @ w["out"] + w["bias"] - y) ** 2).mean()

    def draw(g):
        return loss_on(
            torch.randn(9, 2, generator=g).double(), torch.randn(9, generator=g).double()
        )

    start = {"in": torch.tensor([[0.5, -0.3]]).repeat(3, 1), "out": torch.full((3,), 0.4),
             "bias": torch.tensor(0.1)}  # fmt: skip
    # all inputs on one line: the weights' part across it never moves
    on_a_line = flowsim.reduce(loss_on(torch.stack([T, 2 * T], 1), T**2 + T), start)
    found = origin_of_coordinates(on_a_line, draw, start, draws=2)
    assert found == (10, 4, 3, 0, (4, 4))
    free = flowsim.reduce(draw(torch.Generator().manual_seed(5)), start)
    assert origin_of_coordinates(free, draw, start, draws=2)[1:4] == (4, 4, 0)
