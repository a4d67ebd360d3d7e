"""What the loss of a batch, or of the population, sees of its sequences: atoms (n, x, S, y).

A rank-one logit at position n depends on the symbol x_n and, with attention, on the share S_n/n of
ones so far. So a loss is a weighted sum over atoms (n, x, S/n), each with its weight and the part
of the weight that is followed by a one. Without attention there are 2N of them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from flowsim.chain import BinaryChain
from flowsim.compiled import compiled
from flowsim.models.past_law import joint_law


class Atoms(NamedTuple):
    """The atoms of one loss after the other.

    Attributes:
        place: position n − 1 of every atom, int64, shape (A,), in any order.
        values: shape (4, A): symbol x, share S/n, weight, weight followed by a one. The weights of
            a loss sum to one.
        bounds: where the atoms of each loss begin, and the end of the last, int64.
    """

    place: np.ndarray
    values: np.ndarray
    bounds: np.ndarray


def population_atoms(chain: BinaryChain, positions: int, attention: bool) -> Atoms:
    """The exact expected loss at N positions."""
    after = np.array([chain.p, 1 - chain.q])
    if not attention:
        place = np.repeat(np.arange(positions), 2)
        x = np.tile([0.0, 1.0], positions)
        weight = np.tile(np.array(chain.stationary) / positions, positions)
        share = np.zeros(2 * positions)
    else:
        law = joint_law(chain, positions) / positions
        place, symbol, ones = np.nonzero(law > 1e-290)
        weight, x, share = law[place, symbol, ones], symbol.astype(float), ones / (place + 1)
    values = np.stack([x, share, weight, weight * after[x.astype(int)]])
    return Atoms(place, values, np.array([0, len(place)]))


def sampled_atoms(
    chain: BinaryChain,
    batches: int,
    batch: int,
    length: int,
    attention: bool,
    generator: torch.Generator,
) -> Atoms:
    """Fresh batches, each a loss, drawn like those of full models in training.

    Every symbol takes one uniform number u: the first is 1 where u ≥ π₀, another where u ≥
    P(0 | the one before). With attention every symbol of a batch is an atom.
    """
    size = (batches, batch, length + 1)
    u = torch.rand(size, dtype=torch.float64, generator=generator).numpy()
    zero_below = np.array([chain.stationary[0], 1 - chain.p, chain.q])
    each = batch * length if attention else 2 * length
    place = np.empty(batches * each, dtype=np.int64)
    values = np.zeros((4, batches * each))
    (_list_symbols if attention else _count_symbols)(u, zero_below, place, values)
    return Atoms(place, values, np.arange(batches + 1) * each)


@compiled
def _count_symbols(
    u: np.ndarray, zero_below: np.ndarray, place: np.ndarray, values: np.ndarray
) -> None:
    """Atoms (n, 0) and (n, 1) of every step, weighted by how often they occur in the batch."""
    steps, batch, ends = u.shape
    length = ends - 1
    for t in range(steps):
        low = 2 * length * t
        for n in range(length):
            for x in range(2):
                place[low + 2 * n + x] = n
                values[0, low + 2 * n + x] = x
        for i in range(batch):
            x = 1 if u[t, i, 0] >= zero_below[0] else 0
            for n in range(length):
                y = 1 if u[t, i, n + 1] >= zero_below[1 + x] else 0
                values[2, low + 2 * n + x] += 1.0
                values[3, low + 2 * n + x] += y
                x = y
        for j in range(low, low + 2 * length):
            values[2, j] /= batch * length
            values[3, j] /= batch * length


@compiled
def _list_symbols(
    u: np.ndarray, zero_below: np.ndarray, place: np.ndarray, values: np.ndarray
) -> None:
    """One atom for every symbol of every step, position after position."""
    steps, batch, ends = u.shape
    length = ends - 1
    for t in range(steps):
        low = batch * length * t
        for i in range(batch):
            x = 1 if u[t, i, 0] >= zero_below[0] else 0
            ones = 0
            for n in range(length):
                y = 1 if u[t, i, n + 1] >= zero_below[1 + x] else 0
                ones += x
                j = low + n * batch + i
                place[j] = n
                values[0, j], values[1, j] = x, ones / (n + 1)
                values[2, j], values[3, j] = 1.0 / (batch * length), y / (batch * length)
                x = y
