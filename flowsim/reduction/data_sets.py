"""Coordinates that belong to the architecture, and those that belong to this data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from flowsim.errors import require_integer
from flowsim.reduction.found import ReducedNetwork, reduce
from flowsim.running import quickly

#: Singular values below this part of the largest are rounding.
_RANK = 1e-8


class Origin(NamedTuple):
    """Numbers of coordinates from a start by the architecture, and by this data.

    Attributes:
        weights: how many there are.
        architecture: the dimension that holds the flow for every data set drawn.
        data: the coordinates of the model found for this data: at most ``architecture``, unless
            this data leads out of what the draws span.
        beyond_draws: how many of these lie outside what the draws span.
        draws: the dimension found for each data set drawn.
    """

    weights: int
    architecture: int
    data: int
    beyond_draws: int
    draws: tuple[int, ...]


@quickly
def origin_of_coordinates(
    model: ReducedNetwork,
    draw: Callable[[torch.Generator], Callable[..., Tensor]],
    weights: Any,
    draws: int = 6,
    seed: int = 0,
) -> Origin:
    """Reduce the network on random data sets and losses, and compare with the model of this data.

    A space that holds the flow for all data is structural (arXiv 2510.09564). It contains the spans
    of all draws; with generic draws a few of them span it.

    Args:
        model: what ``reduce`` found for this data.
        draw: gives a loss of the weights on a data set of its own, from a seeded generator.
        weights: the start, as ``reduce`` takes it.
        draws: how many data sets are drawn, at least 1.
        seed: of the generator.

    Raises:
        InputError: ``reduce`` finds no model for a draw.

    With inputs (1, 1)·t alone, the data keeps the difference of the first weights:

    >>> import torch, flowsim
    >>> from flowsim.reduction.data_sets import origin_of_coordinates
    >>> def loss_on(x, y):
    ...     return lambda w: ((torch.tanh(x @ w["in"].T) @ w["out"] - y) ** 2).mean()
    ...
    >>> start = {"in": torch.tensor([[0.5, -0.3]]).repeat(4, 1), "out": torch.full((4,), 0.4)}
    >>> t = torch.linspace(-1, 1, 8).double()
    >>> model = flowsim.reduce(loss_on(torch.stack([t, t], 1), t), start)
    >>> def draw(g):
    ...     x, y = torch.randn(8, 2, generator=g), torch.randn(8, generator=g)
    ...     return loss_on(x.double(), y.double())
    ...
    >>> origin = origin_of_coordinates(model, draw, start)
    >>> origin.weights, origin.architecture, origin.data
    (12, 3, 2)
    """
    require_integer("draws", draws, 1)
    generator = torch.Generator().manual_seed(seed)
    bases = [reduce(draw(generator), weights).basis for _ in range(draws)]
    together = torch.cat(bases, 1)
    architecture = _rank(together)
    beyond_draws = _rank(torch.cat([together, model.basis], 1)) - architecture
    return Origin(
        len(model.basis),
        architecture,
        len(model.coordinates),
        beyond_draws,
        tuple(basis.shape[1] for basis in bases),
    )


def _rank(directions: Tensor) -> int:
    values = torch.linalg.svdvals(directions)
    return int((values > _RANK * values[0]).sum())
