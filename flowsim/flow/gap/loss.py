"""ℓ(Δ) and ℓ′(Δ) of ``models.gap_loss`` and of S logits, for one number, compiled.

``chain`` holds p, q, π₀, π₁, Δ* and S: 0 for the binary loss, whose bias is minimised out; and what
the slope of that loss needs at every call: d, P* and x* of ``slope``, zero for S logits. The
gap is that of the plane that the engine follows: of S logits it is Δ over ``gap_factor``.
"""

from __future__ import annotations

import math

from flowsim.chain import BinaryChain
from flowsim.compiled import compiled
from flowsim.markov import SymmetricChain

Chain = tuple[float, float, float, float, float, float, float, float, float]


def numbers(chain: BinaryChain) -> Chain:
    """What the compiled functions need of a binary chain."""
    p, q = chain.p, chain.q
    pi0, pi1 = chain.stationary
    last = 4.0 * (1.0 - p) * (1.0 - q) / (p + q) ** 2
    difference, end = (q - p) / (q + p), 2.0 * pi0 * (1.0 - q) / q
    return p, q, pi0, pi1, chain.target_logit_gap, 0.0, difference, last, end


def numbers_of_states(chain: SymmetricChain) -> Chain:
    """What they need of S logits on a symmetric chain."""
    share, states = 1.0 / chain.states, float(chain.states)
    target = chain.target_logit_gap / gap_factor(states)
    return chain.p, chain.p, share, share, target, states, 0.0, 0.0, 0.0


@compiled
def gap_factor(states: float) -> float:
    """Δ over the gap of the plane, 4S/(S − 1)."""
    return 4.0 * states / (states - 1.0)


@compiled
def _slope_of_states(chain: Chain, beyond: float) -> float:
    p, factor = chain[0], gap_factor(chain[5])
    beyond = min(max(factor * beyond, -600.0), 600.0)
    return factor * p * (1.0 - p) * math.expm1(beyond) / ((1.0 - p) * math.exp(beyond) + p)


@compiled
def _loss_of_states(chain: Chain, gap: float) -> float:
    p, others = chain[0], math.log(chain[5] - 1.0)
    beyond = gap_factor(chain[5]) * gap - others
    return -(1.0 - p) * log_sigmoid(beyond) + p * (others - log_sigmoid(-beyond))


@compiled
def slope(chain: Chain, beyond: float) -> float:
    """ℓ′ at Δ = Δ* + ``beyond``, with the sign of ``beyond`` and right to rounding next to Δ*.

    With d = π₀ − π₁ and the positive root x of x² + 2dx = P, P = 4π₀π₁ e^Δ, it is
    π₁ q (x − x*)/(x + 2π₀), and (x − x*)(x* + P/x) = P − P*. Where |Δ − Δ*| ≥ 600 it has its
    limit. Source: docs/derivations.md, 2 and 13.
    """
    if chain[5] > 0.0:
        return _slope_of_states(chain, beyond)
    _, q, pi0, pi1, _, _, d, last, end = chain
    beyond = min(max(beyond, -600.0), 600.0)
    if abs(beyond) < 0.5:
        rise = math.expm1(beyond)
        factor = 1.0 + rise
    else:
        factor = math.exp(beyond)
        rise = factor - 1.0
    product = last * factor
    big = math.sqrt(product + d * d) + abs(d)
    small = product / big  # x and P/x are these two
    x, inverse = (small, big) if d > 0.0 else (big, small)
    return pi1 * q * last * rise / ((x + 2.0 * pi0) * (end + inverse))


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
    if chain[5] > 0.0:
        return _loss_of_states(chain, gap)
    p, q, pi0, pi1, _, _, difference, _, _ = chain
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


@compiled
def gap_at(chain: Chain, start: float, end: float, wanted: float) -> float:
    """The gap between start and end, where ℓ is monotone, with ℓ(Δ) = wanted.

    Newton's method, bracketed, until it moves no more.
    """
    above, below = start, end  # where the loss is above and below what is wanted
    gap = 0.5 * (start + end)
    for _ in range(200):
        excess = loss(chain, gap) - wanted
        if excess > 0.0:
            above = gap
        else:
            below = gap
        last, steep = gap, slope(chain, gap - chain[4])
        gap = gap - excess / steep if steep != 0.0 else math.nan
        if not (min(above, below) <= gap <= max(above, below)):
            gap = 0.5 * (above + below)
        if abs(gap - last) <= 1e-16 * abs(gap):
            break
    return gap
