"""Losses of models with attention as sums over their law by torch, for autograd."""

import numpy as np
import torch
from torch.nn.functional import softplus

from flowsim.models.past_law import joint_law


def cross_entropy(weight, logit, target):
    return (weight * (softplus(logit, threshold=500) - target * logit)).sum()


def law_of(chain, length):
    """x, n, S, weight and target of every (n, x, S), as tensors."""
    law = joint_law(chain, length)
    n, x, total = np.nonzero(law > 0)
    weight, target = law[n, x, total] / length, np.where(x == 1, 1 - chain.q, chain.p)
    return [torch.tensor(part, dtype=torch.float64) for part in (x, n + 1, total, weight, target)]


def uniform_loss(chain, length):
    """The loss of uniform attention at (e, w, a, b)."""
    x, n, total, weight, target = law_of(chain, length)

    def loss(theta):
        e, w, a, b = theta
        s = x - 0.5 + a * (total / n - 0.5)
        return cross_entropy(weight, e * e * (s + 4 * w * w.abs() * s.relu()) + b, target)

    return loss


def best_bias(loss, theta):
    """The b that minimises a loss at (e, w, a), by Newton's method from the best of a lattice."""
    place = torch.linspace(-60, 60, 61, dtype=torch.float64)
    b = min(place, key=lambda b: float(loss([*theta, b]))).clone()
    for _ in range(8):
        b.requires_grad_(True)
        (slope,) = torch.autograd.grad(loss([*theta, b]), b, create_graph=True)
        (bend,) = torch.autograd.grad(slope, b)
        b = (b - slope / bend).detach()
    return b


def rank_one_logits(chain, length, tied, width=0.0):
    """The logits of every (n, x, S) with attention, the ReLU's kink rounded over a width."""
    x, n, total = law_of(chain, length)[:3]
    at = n.long() - 1

    def relu(z):
        inside = (z + width) ** 2 / (4 * width) if width else z
        return torch.where(z.abs() < width, inside, z.relu())

    def logits(theta):
        e, rho, (w1, w2, o, v, b) = theta[0], theta[1 : length + 1], theta[length + 1 : length + 6]
        u = e if tied else theta[length + 6]
        mean = (e * total + rho.cumsum(0)[at]) / n
        inner = e * x + rho[at] + o * v * mean
        return u * (inner + 4 * w2 * relu(w1 * inner)) + b

    return logits


def rank_one_loss(chain, length, tied, width=0.0):
    """The loss of the rank-one model with attention."""
    weight, target = law_of(chain, length)[3:]
    logits = rank_one_logits(chain, length, tied, width)
    return lambda theta: cross_entropy(weight, logits(theta), target)
