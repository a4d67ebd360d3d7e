"""The set e = 0 with all other weights free, checked: it is critical, and S is its Hessian."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from flowsim.chain import BinaryChain
from full_model.model.population import PopulationLoss
from full_model.theorems.claims import Claim, equal, free_weights, generator_of, held, norm
from full_model.theorems.trap import trap_matrix
from full_model.theorems.unigram import hessian_rows

#: Eigenvalues within this share of the largest are taken to have no sign.
_UNSIGNED = 1e-9
#: Below this |p + q − 1| the unigram is as good as the bigram, hence no trap.
_NOTHING_TO_LEARN = 1e-4
#: Rounding of the Hessian's entries over the tolerance of a claim. Dividing by a smaller π₀π₁ lets
#: errors of rounding alone be larger than that.
_ROUNDED = 1e-5


def unigram_set(chain: BinaryChain, loss: PopulationLoss, seeds: list[int]) -> list[Claim]:
    """e = 0 (and u = 0), b = log π₁/π₀, attention and feed-forward free: gradient, Hessian, sign.

    The Hessian in (b, e) or (b, u, e) is automatic differentiation's of the enumerated loss; with b
    eliminated and divided by π₀π₁ it must be S, and call the same seeds traps. Source: own
    derivation, docs/derivations.md, section 12.
    """
    arch = loss.arch
    pi0, pi1 = chain.stationary
    names = ["bias", "embedding"] if arch.tied else ["bias", "unembedding", "embedding"]
    slopes, errors, elsewhere, lowest, wanted, kinds, expected = [], [], [], [], [], [], []
    rounded = _ROUNDED / (pi0 * pi1)
    for seed in seeds:
        g = generator_of(seed)
        weights = free_weights(arch, g)
        for name in names:
            weights[name] = torch.zeros_like(weights[name])
        weights["bias"] = torch.tensor(math.log(pi1 / pi0), dtype=torch.float64)
        slopes.append(norm(loss.value_and_gradient(weights)[1]))
        block, rest = hessian_rows(loss, weights, names, g)
        schur = block[1:, 1:] - torch.outer(block[1:, 0], block[0, 1:]) / block[0, 0]
        found, reference = trap_matrix(arch, weights, chain), schur / (pi0 * pi1)
        largest = max(float(reference.abs().max()), float(block.abs().max()) / (pi0 * pi1))
        scale = max(1.0, largest, rounded)
        errors.append(float((found - reference).abs().max()) / scale)
        elsewhere.append(rest)
        values, others = torch.linalg.eigvalsh(found), torch.linalg.eigvalsh(reference)
        lowest.append(float(values[0]))
        wanted.append(float(others[0]))
        kinds.append(_kind(values, scale))
        expected.append(_kind(others, scale))
    title = f"e = {'' if arch.tied else 'u = '}0, all else free"
    least = min(range(len(seeds)), key=lambda i: lowest[i])
    size = max(rounded, *(abs(number) for number in lowest))
    claims = [
        equal(f"{title}: gradient", 0.0, slopes),
        equal(f"{title}: Hessian/π₀π₁, b eliminated, minus S, relative", 0.0, errors),
        equal(f"{title}: Hessian outside (b, e)", 0.0, elsewhere),
        equal(f"{title}: smallest eigenvalue of S", wanted[least], [lowest[least]], scale=size),
    ]
    if abs(chain.second_eigenvalue) >= _NOTHING_TO_LEARN:
        same = [kinds == expected]
        claims.append(held(f"{title}: the Hessian's verdict", _verdict(expected), same))
    return claims


def _kind(values: Tensor, scale: float) -> str:
    """What the signs of ascending eigenvalues say of the point."""
    if abs(float(values[0])) <= _UNSIGNED * scale:
        return "undecided"
    return "trap" if values[0] > 0 else "saddle"


def _verdict(kinds: list[str]) -> str:
    """How many of the drawn points are what, for instance "trap at 5, saddle at 3 of 8 seeds"."""
    counts = [(word, kinds.count(word)) for word in ("trap", "saddle", "undecided")]
    parts = [f"{word} at {count}" for word, count in counts if count]
    return f"{', '.join(parts)} of {len(kinds)} seeds"
