"""The logits of the rank-one family from its coordinates alone, for tests to compare with."""

import torch


def rank_one_logits(point, tokens, width_ratio=4.0, open_share=1.0):
    """The equation of ``flowsim.models.rank_one.point``, shape (..., batch, n).

    ``tokens`` are zeros and ones, (batch, n) or (..., batch, n), ``width_ratio`` is r/d and
    ``open_share`` is φ, the share of hidden signs that are +1.
    """
    n = tokens.shape[-1]

    def wide(number):
        return number[..., None, None]

    x = wide(point.eps) * tokens + point.rho[..., None, :n]
    count = torch.arange(1, n + 1, dtype=x.dtype, device=x.device)
    y = x + wide(point.o * point.v) * x.cumsum(-1) / count
    up = wide(point.w1) * y
    hidden = open_share * up.relu() - (1 - open_share) * (-up).relu()
    return wide(point.c) * (y + width_ratio * wide(point.w2) * hidden) + wide(point.b)
