"""A diagonal linear recurrence over positions, and the convolution that may stand before it."""

from __future__ import annotations

import torch
from torch import Tensor


def scan(decay: Tensor, inputs: Tensor) -> Tensor:
    """h_n = a ⊙ h_{n−1} + u_n with h_0 = 0, for a (..., m) and u (..., batch, n, m), in log₂ N
    rounds.

    After the round with shift s, h_n is the sum of a^k u_{n−k} over k < 2s.

    >>> import torch
    >>> from full_model.model.state_space import scan
    >>> scan(torch.tensor([-0.5]), torch.ones(1, 4, 1)).flatten().tolist()
    [1.0, 0.5, 0.75, 0.625]
    """
    power, h, shift = decay[..., None, None, :], inputs, 1
    if h.shape[-2] == 1:
        return h + 0 * power  # differentiable by the decay, which a single position does not show
    while shift < h.shape[-2]:
        h = torch.cat([h[..., :shift, :], h[..., shift:, :] + power * h[..., :-shift, :]], dim=-2)
        power, shift = power * power, 2 * shift
    return h


def convolve(taps: Tensor | None, inputs: Tensor) -> Tensor:
    """u_n + Σ_{j<w} K_j ⊙ u_{n−j} for K (..., w, m), causal and by channels; u without taps."""
    if taps is None:
        return inputs
    found = inputs
    for j in range(min(taps.shape[-2], inputs.shape[-2])):
        late = taps[..., j, None, None, :] * inputs[..., : inputs.shape[-2] - j, :]
        found = found + torch.nn.functional.pad(late, (0, 0, j, 0))
    return found
