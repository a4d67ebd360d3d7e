"""ℓ(Δ) and ℓ′(Δ) in torch, in other forms than the compiled ones: what those are held against."""

import math

import torch

from flowsim.models.gap_family.base import cross_entropy


def optimal_logit(chain, gap):
    """The zero of the loss's derivative in the bias, in log space, without cancellation."""
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


def gap_loss(chain, gap):
    logit0 = optimal_logit(chain, gap)
    return cross_entropy(chain, logit0, logit0 + gap)


def gap_slope(chain, gap):
    """π₁ (σ(f₁) − (1 − q)) with exp(f₁) = x/(2π₀), x the positive root of x² + 2(π₀ − π₁)x = P."""
    pi0, pi1 = chain.stationary
    difference = (chain.q - chain.p) / (chain.q + chain.p)  # π₀ − π₁
    product = 4 * pi0 * pi1 * gap.clamp(-600.0, 600.0).exp()
    root = (product + difference**2).sqrt()
    x = product / (root + difference) if difference > 0 else root - difference
    return pi1 * (chain.q * x - 2 * pi0 * (1 - chain.q)) / (x + 2 * pi0)
