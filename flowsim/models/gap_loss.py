"""The loss as a function of one number, the logit gap Δ, with the bias minimised out.

Without attention, with linear attention and with untied weights the predicted logits are f₀ after a
zero and f₁ = f₀ + Δ after a one, so the expected loss is ℓ(Δ). All of it is evaluated in log space:
Δ reaches ±10⁴ on ordinary grids.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from flowsim.chain import BinaryChain


def optimal_logit(chain: BinaryChain, gap: Tensor) -> Tensor:
    """The logit f₀ after a zero that minimises the loss at logit gap Δ.

    z = exp(f₀) is the positive root of π₀ e^Δ z² + (π₀ − π₁) z − π₁ = 0, the zero of the loss's
    derivative in the bias. Of the root's two forms the one without cancellation is taken.

    Args:
        chain: the data.
        gap: Δ, any shape.

    Returns:
        f₀, shape of ``gap``. Source: docs/derivations.md, 1.
    """
    pi0, pi1 = chain.stationary
    difference = (chain.q - chain.p) / (chain.q + chain.p)  # π₀ − π₁
    half_root = 0.5 * (gap + math.log(4 * pi0 * pi1))
    if difference == 0:
        return math.log(2 * pi1) - half_root
    # log of |π₀ − π₁| + sqrt((π₀ − π₁)² + 4 π₀π₁ e^Δ)
    log_abs = torch.full_like(gap, math.log(abs(difference)))
    log_sum = torch.logaddexp(log_abs, torch.logaddexp(2 * log_abs, 2 * half_root) / 2)
    if difference > 0:
        return math.log(2 * pi1) - log_sum
    return log_sum - gap - math.log(2 * pi0)


def cross_entropy(chain: BinaryChain, logit0: Tensor, logit1: Tensor) -> Tensor:
    """Expected next-symbol loss when the logit is f₀ after a zero and f₁ after a one.

    L = Σₓ πₓ [−t(x) log σ(fₓ) − (1 − t(x)) log σ(−fₓ)], t(0) = p, t(1) = 1 − q, in nats; a sum of
    positive terms. Source: AM Sec. 2.

    Args:
        chain: the data.
        logit0, logit1: f₀ and f₁, any broadcastable shapes.
    """
    pi0, pi1 = chain.stationary
    after_zero = chain.p * logsigmoid(logit0) + (1 - chain.p) * logsigmoid(-logit0)
    after_one = (1 - chain.q) * logsigmoid(logit1) + chain.q * logsigmoid(-logit1)
    return -pi0 * after_zero - pi1 * after_one


def residual0(chain: BinaryChain, logit0: Tensor) -> Tensor:
    """π₀ (σ(f₀) − p), the derivative of the expected loss in f₀."""
    pi0 = chain.stationary[0]
    low, high = torch.sigmoid(logit0) - chain.p, (1 - chain.p) - torch.sigmoid(-logit0)
    return pi0 * torch.where(logit0 > 0, high, low)


def residual1(chain: BinaryChain, logit1: Tensor) -> Tensor:
    """π₁ (σ(f₁) − (1 − q)), the derivative of the expected loss in f₁."""
    pi1 = chain.stationary[1]
    low, high = torch.sigmoid(logit1) - (1 - chain.q), chain.q - torch.sigmoid(-logit1)
    return pi1 * torch.where(logit1 > 0, high, low)


def gap_loss(chain: BinaryChain, gap: Tensor) -> Tensor:
    """ℓ(Δ): convex, ℓ(0) = h(π₁), smallest at Δ* where it is the entropy rate. In nats."""
    logit0 = optimal_logit(chain, gap)
    return cross_entropy(chain, logit0, logit0 + gap)


def gap_slope(chain: BinaryChain, gap: Tensor) -> Tensor:
    """ℓ′(Δ) = π₁ (σ(f₁) − (1 − q)), the factor A of every gradient; its sign is that of Δ − Δ*.

    With the positive root x of x² + 2(π₀ − π₁)x = 4π₀π₁ e^Δ, exp(f₁) = x/(2π₀), hence
    ℓ′ = π₁ (q x − 2π₀(1 − q))/(x + 2π₀). Where |Δ| ≥ 600 it has its limit. Own derivation.
    """
    pi0, pi1 = chain.stationary
    difference = (chain.q - chain.p) / (chain.q + chain.p)  # π₀ − π₁
    product = 4 * pi0 * pi1 * gap.clamp(-600.0, 600.0).exp()
    root = (product + difference**2).sqrt()
    x = product / (root + difference) if difference > 0 else root - difference
    return pi1 * (chain.q * x - 2 * pi0 * (1 - chain.q)) / (x + 2 * pi0)
