"""What is proven of the single-layer model, by the papers and by us, checked: ``verify``.

Every claim is evaluated on the exact population loss with weights drawn at random wherever the
statement leaves them free, over several seeds; the worst seed is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from flowsim.chain import BinaryChain
from flowsim.errors import InputError
from full_model.model.architecture import Architecture
from full_model.model.population import PopulationLoss
from full_model.model.source import MarkovSource
from full_model.model.transformer import forward
from full_model.theorems.claims import Claim, equal, format_claims, free_weights, generator_of, norm
from full_model.theorems.constructions import appendix_d, global_minima
from full_model.theorems.unigram import unigram_point
from full_model.theorems.unigram_set import unigram_set

__all__ = ["Claim", "format_claims", "verify"]

#: Groups of claims: four of a tied model, four of an untied one.
GROUPS = 8


def verify(
    chain: BinaryChain,
    d: int = 4,
    length: int = 6,
    seeds: Iterable[int] = range(8),
    progress: Callable[[int], object] | None = None,
) -> list[Claim]:
    """Check AM's theorems 1 to 3, lemmas 1 and 2, the numbers of App. D, and S on the full model.

    Args:
        chain: the data, any p and q.
        d: embedding dimension, at least 1; the feed-forward width is 4d.
        length: N, at least 1, small enough to enumerate 2^N sequences.
        seeds: one set of random free weights each, at least one seed.
        progress: called with the number of groups of claims checked, ``GROUPS`` in all.

    Returns:
        The claims in the papers' order. All of them passed on a correct implementation.

    Raises:
        InputError: no seed, or d or N out of range.

    Sources: AM Thms. 1, 2, 3, Lemmas 1, 2, App. D; for S, the matrix whose sign says whether e = 0
    traps with all other weights free, own derivation (docs/derivations.md). Three remarks of our
    own. Tied weights reach the global minimum without the feed-forward layer only for p + q ≤ 1, so
    that construction is checked untied beyond. AM claims definiteness (Thm. 2) for p + q > 1;
    elsewhere the sign that the Schur complement of the same block predicts is checked. The bound
    2(p + q − 1) on the block's eigenvalues is left out: it does not hold numerically. Claims about
    signs are left out where |p + q − 1| is so small that rounding decides them.
    """
    seeds = list(seeds)
    if not seeds:
        raise InputError("verify needs at least one seed")
    claims = []
    for tied in (True, False):
        arch = Architecture(d, length, tied=tied)
        loss = PopulationLoss(arch, MarkovSource.of(chain))
        for group in (global_minima, unigram_point, unigram_set, _lemmas):
            claims += group(chain, loss, seeds)
            if progress is not None:
                progress(1)
    return claims + appendix_d()


def divergence(t: Tensor, logits: Tensor) -> Tensor:
    """KL(t ‖ σ(logit)) of two binary laws in nats, from the logit; t in (0, 1)."""
    one = t * (t.log() - logsigmoid(logits))
    return one + (1 - t) * ((-t).log1p() - logsigmoid(-logits))


def _lemmas(chain: BinaryChain, loss: PopulationLoss, seeds: list[int]) -> list[Claim]:
    """Lemma 1, L = E KL(P(·|x_n) ‖ f_θ) + entropy rate, and Lemma 2, ∇L = E (f_θ − t) ∇logit."""
    arch, kind = loss.arch, "tied" if loss.arch.tied else "untied"
    law, t = loss.law[0], loss.targets[0]
    gaps, slopes, losses, sizes = [], [], [], []
    for seed in seeds:
        weights = free_weights(arch, generator_of(seed))
        value, gradient = loss.value_and_gradient(weights)
        free = {name: w.requires_grad_() for name, w in weights.items()}
        logits = forward(arch, free, loss.tokens)
        kl = float((divergence(t, logits.detach()).mean(-1) * law).sum())
        losses.append(float(value))
        sizes.append(norm(gradient))
        gaps.append(float(value) - kl - chain.entropy_rate)
        residual = law.unsqueeze(-1) * (logits.detach().sigmoid() - t) / loss.length
        by_lemma = torch.autograd.grad((residual * logits).sum(), list(free.values()))
        off = [
            float((found - gradient[name]).abs().max())
            for name, found in zip(free, by_lemma, strict=True)
        ]
        slopes.append(max(off))
    return [
        equal(f"Lemma 1, {kind}: loss minus KL minus entropy rate", 0.0, gaps, scale=max(losses)),
        equal(f"Lemma 2, {kind}: gradient minus E (f − t) ∇logit", 0.0, slopes, scale=max(sizes)),
    ]
