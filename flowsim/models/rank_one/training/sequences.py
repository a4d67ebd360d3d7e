"""Sequences as the loss of a batch, or of the population, reads them: atoms (n, x, S, y).

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
    """The A atoms of one or more losses, one loss after the other, as arrays."""

    place: np.ndarray  # position n − 1 of every atom, int64, shape (A,), in any order
    #: Symbol x, share S/n, weight, weight followed by a one, (4, A); weights of a loss sum to one.
    values: np.ndarray
    bounds: np.ndarray  # where the atoms of each loss begin, and the end of the last, int64


def population_atoms(chain: BinaryChain, positions: int, attention: bool) -> Atoms:
    """Return the atoms of one loss, the exact expected loss at N = ``positions`` positions."""
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
    """Draw ``batches`` fresh batches and return their atoms; each batch is a loss.

    They are drawn as in the training of full models: every symbol takes one uniform number u, the
    first is 1 where u ≥ π₀, another where u ≥ P(0 | the one before). With attention every symbol
    of a batch is an atom.
    """
    size = (batches, batch, length + 1)
    u = torch.rand(size, dtype=torch.float64, generator=generator).numpy()
    zero_below = np.array([chain.stationary[0], 1 - chain.p, chain.q])
    each = batch if attention else 2  # atoms of every position
    place = np.tile(np.arange(length).repeat(each), batches)
    values = np.zeros((4, len(place)))
    if not attention:
        values[0, 1::2] = 1.0
    _count(u, zero_below, attention, each, values)
    values[2:] /= batch * length
    return Atoms(place, values, np.arange(batches + 1) * (each * length))


@compiled
def _count(
    u: np.ndarray, zero_below: np.ndarray, attention: bool, each: int, values: np.ndarray
) -> None:
    """Add to values[2] how often each atom occurs, and to values[3] how often a one follows it.

    ``u`` (batches, batch, N + 1) are the uniform numbers, ``each`` the atoms of a position: all
    its symbols with attention, whose x and share of ones are written too, else (n, 0) and (n, 1).
    """
    for t in range(u.shape[0]):
        for i in range(u.shape[1]):
            x, ones = 1 if u[t, i, 0] >= zero_below[0] else 0, 0
            for n in range(u.shape[2] - 1):
                y = 1 if u[t, i, n + 1] >= zero_below[1 + x] else 0
                ones += x
                j = (t * (u.shape[2] - 1) + n) * each + (i if attention else x)
                if attention:
                    values[0, j], values[1, j] = x, ones / (n + 1)
                values[2, j] += 1.0
                values[3, j] += y
                x = y
