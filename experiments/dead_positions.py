"""The ladder of dead positions: the plateaus and ends between the unigram and the bigram loss.

Without attention, tied, on the rank-one manifold with a ρ_n of its own at every position, p + q > 1
and w₁ > 0 > w₂: a position whose both symbols shut all hidden units, ρ_n < 0 and ρ_n + ε < 0, is
dead. With k of N positions open gradient flow lingers at the loss ``plateaus[k]`` and then tends to
``ends[k]`` at infinity. Source: own derivation, docs/derivations/17.md.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr
from scipy.stats import binom

from flowsim.chain import BinaryChain


class LadderLosses(NamedTuple):
    """Losses in nats with k = 0 … N open positions, (N + 1,) each, both decreasing in k.

    Attributes:
        plateaus: L_k, where gradient flow with a steep feed-forward layer lingers.
        ends: L∞(k), its limit; no weights of the rank-one manifold without attention that have
            N − k dead positions have a smaller loss.

    >>> import flowsim
    >>> rungs = ladder_losses(flowsim.BinaryChain(0.5, 0.8), length=2)
    >>> rungs.plateaus.round(4), rungs.ends.round(4)
    (array([0.6663, 0.6539, 0.619 ]), array([0.6663, 0.6426, 0.619 ]))
    """

    plateaus: np.ndarray
    ends: np.ndarray


def ladder_losses(chain: BinaryChain, length: int) -> LadderLosses:
    """The plateaus and the ends of the ladder.

    With φ = k/N, β = [φπ₁(1−q) + (1−φ)π₁]/[φπ₁ + 1 − φ], h the binary entropy and H(a, β) the
    cross-entropy −a log β − (1 − a) log(1 − β)

        L_k = φ[π₀h(p) + π₁H(1−q, β)] + (1−φ)H(π₁, β),
        L∞(k) = φ·(entropy rate) + (1−φ)·h(π₁).

    Args:
        chain: the data, p + q > 1.
        length: N ≥ 1.

    >>> import flowsim
    >>> ladder_losses(flowsim.BinaryChain(0.5, 0.8), length=3).ends.round(4)
    array([0.6663, 0.6505, 0.6348, 0.619 ])
    """
    open_share = np.arange(length + 1) / length
    dead_share = 1 - open_share
    pi0, pi1 = chain.stationary
    mixed = open_share * pi1 * (1 - chain.q) + dead_share * pi1
    beta = mixed / (open_share * pi1 + dead_share)
    after_zero = -chain.p * math.log(chain.p) - (1 - chain.p) * math.log1p(-chain.p)
    after_one = _cross_entropy(1 - chain.q, beta)
    plateaus = open_share * (pi0 * after_zero + pi1 * after_one)
    plateaus += dead_share * _cross_entropy(pi1, beta)
    ends = open_share * chain.entropy_rate + dead_share * chain.stationary_entropy
    return LadderLosses(plateaus, ends)


def rung_probabilities(chain: BinaryChain, length: int, spread: float, gain: float) -> np.ndarray:
    """P(k positions stay open), k = 0 … N, from Gaussian ε and ρ_n and a steep layer, (N + 1,).

    With the bias at log(π₁/π₀) and ε < 0 the open positions are those with ρ_n > 0; with ε > 0 they
    are those with ρ_n > −ε*, where ε* = √(|Δ*|/(gain − 1)) is the embedding that is learned:

        ½ Binomial(N, ½) + ½ Binomial(N, Φ(ε*/spread)).

    The law is that of small logits, spread²·gain ≪ 1, and of gain ≫ 1. LG's recommended start with
    W_1 = 1 and W_2 = −1 has the gain 4d².

    Args:
        chain: the data, p + q > 1.
        length: N ≥ 1.
        spread: deviation of ε and of every ρ_n, positive.
        gain: −4w₁w₂, more than 1.

    >>> import flowsim
    >>> chain = flowsim.BinaryChain(0.5, 0.8)
    >>> law = rung_probabilities(chain, length=3, spread=0.02, gain=256.0)
    >>> law.round(3)
    array([0.063, 0.188, 0.188, 0.562])
    """
    learned = math.sqrt(-chain.target_logit_gap / (gain - 1))
    k = np.arange(length + 1)
    return (binom.pmf(k, length, 0.5) + binom.pmf(k, length, ndtr(learned / spread))) / 2


def _cross_entropy(truth: float, predicted: np.ndarray) -> np.ndarray:
    return -truth * np.log(predicted) - (1 - truth) * np.log1p(-predicted)
