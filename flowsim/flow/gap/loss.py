"""ℓ(Δ) and ℓ′(Δ) of ``models.gap_loss`` for one number, compiled.

``chain`` holds p, q, π₀, π₁ and Δ*.
"""

from __future__ import annotations

import math

from flowsim.chain import BinaryChain
from flowsim.compiled import compiled

Chain = tuple[float, float, float, float, float]


def numbers(chain: BinaryChain) -> Chain:
    """What the compiled functions need of the chain."""
    return chain.p, chain.q, *chain.stationary, chain.target_logit_gap


@compiled
def slope(chain: Chain, gap: float) -> float:
    """ℓ′(Δ), of the sign of Δ − Δ*."""
    p, q, pi0, pi1, _ = chain
    difference = (q - p) / (q + p)
    product = 4.0 * pi0 * pi1 * math.exp(min(max(gap, -600.0), 600.0))
    root = math.sqrt(product + difference * difference)
    x = product / (root + difference) if difference > 0 else root - difference
    return pi1 * (q * x - 2.0 * pi0 * (1.0 - q)) / (x + 2.0 * pi0)


@compiled
def log_sigmoid(x: float) -> float:
    return min(x, 0.0) - math.log1p(math.exp(-abs(x)))


@compiled
def log_add(a: float, b: float) -> float:
    """log(eᵃ + eᵇ)."""
    return max(a, b) + math.log1p(math.exp(-abs(a - b)))


@compiled
def loss(chain: Chain, gap: float) -> float:
    """ℓ(Δ) in nats: the cross-entropy at the logits f₀ and f₀ + Δ with the best f₀."""
    p, q, pi0, pi1, _ = chain
    difference = (q - p) / (q + p)
    half_root = 0.5 * (gap + math.log(4.0 * pi0 * pi1))
    if difference == 0:
        logit = math.log(2.0 * pi1) - half_root
    else:
        log_abs = math.log(abs(difference))
        log_sum = log_add(log_abs, log_add(2.0 * log_abs, 2.0 * half_root) / 2.0)
        if difference > 0:
            logit = math.log(2.0 * pi1) - log_sum
        else:
            logit = log_sum - gap - math.log(2.0 * pi0)
    after_zero = p * log_sigmoid(logit) + (1.0 - p) * log_sigmoid(-logit)
    after_one = (1.0 - q) * log_sigmoid(logit + gap) + q * log_sigmoid(-logit - gap)
    return -pi0 * after_zero - pi1 * after_one
