"""The loss of two symbols at any length: a recursion over the memory in place of all words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.interpolate import BarycentricInterpolator

from flowsim.errors import InputError, require_integer

if TYPE_CHECKING:
    from torch import Tensor

    from flowsim.models.memory.model import MemoryModel

#: Chebyshev's nodes to begin with, and at most; the error allowed in nats.
_NODES, _MOST_NODES, _ERROR = 32, 1024, 1e-12


def loss_at_length(model: MemoryModel, theta: Tensor, length: int) -> float:
    """L of N positions at one point, for S = 2, in a time that grows as N.

    The hidden state z, the symbol x and the memory M = Σ κ^k c(x_{n−k}) are a Markov chain, so the
    loss of the next j positions is

        g_j(z, x, M) = E[−log p(x′ | x, M) + g_{j−1}(z′, x′, κM + c(x′))],  g_0 = 0.

    Each g_j is analytic in M, and kept by its values at Chebyshev's nodes, as many as make the loss
    agree to 1e-12 with that of half of them.

    Raises:
        InputError: another S than 2, N below 1, or logits too steep for 1024 nodes.

    Source: own derivation, docs/derivations/21.md.

    >>> import flowsim, torch
    >>> from flowsim.models.memory.recursion import loss_at_length
    >>> model, theta = flowsim.model("memory", 0.9), torch.tensor([0.5, -1.2, 1.0, -0.7]).double()
    >>> abs(loss_at_length(model, theta, 2) - float(model.loss(theta))) < 1e-12
    True
    """
    require_integer("length", length, 1)
    if model.states != 2:
        raise InputError(f"the recursion over the memory is of two symbols, not {model.states}")
    e, w, v, _ = (float(x) for x in theta)
    kappa, own = float(model.kappa(theta)), np.array([-0.5, 0.5])
    a, gain = v * abs(v), 2 * e * e * (2 + 2 * model.hidden_per_state * w * abs(w))
    T = model.process.transitions  # (x, z, z′)
    pi = np.array(model.process.hidden.stationary)
    nodes, before = _NODES, np.inf
    while nodes <= _MOST_NODES:
        reach = 0.5 / (1 - abs(kappa))
        memory = reach * np.cos(np.pi * np.arange(nodes) / (nodes - 1))
        between = BarycentricInterpolator(memory, np.eye(nodes), random_state=0)
        onwards = [between(kappa * memory + c) for c in own]  # values at the next memory
        gap = gain * (own[:, None] + a * memory)  # logit of 1 less that of 0, by (x, M)
        lost = np.stack([np.logaddexp(0, gap), np.logaddexp(0, -gap)])  # by (x′, x, M)
        here = np.einsum("nz,nxm->zxm", T.sum(2), lost)
        later = np.zeros_like(here)
        for _ in range(length):
            moved = np.stack([later[:, x] @ onwards[x].T for x in range(2)])  # (x′, z′, M)
            later = here + np.einsum("xzt,xtm->zm", T, moved)[:, None]
        first = np.stack([between(own[x]) @ later[:, x].T for x in range(2)])  # (x, z)
        found = float(np.einsum("z,xzt,xt->", pi, T, first)) / length
        if abs(found - before) < _ERROR:
            return found
        nodes, before = 2 * nodes, found
    raise InputError("the logits are too steep for a recursion over the memory at this point")
