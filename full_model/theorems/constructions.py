"""Weights that the papers write down, checked: Thm. 1's global minima and App. D's trained ones."""

from __future__ import annotations

import math

import torch

from flowsim.chain import BinaryChain
from flowsim.models.rank_one.point import RankOnePoint
from full_model.lift.lifting import lift_rank_one
from full_model.model.architecture import Architecture, Weights
from full_model.model.population import PopulationLoss
from full_model.model.transformer import forward
from full_model.theorems.claims import Claim, equal, free_weights, generator_of, norm, normal


def global_minima(chain: BinaryChain, loss: PopulationLoss, seeds: list[int]) -> list[Claim]:
    """Thm. 1: the embedding alone (W_2 = 0), and through the feed-forward layer."""
    arch, claims = loss.arch, []
    kind = "tied" if arch.tied else "untied"
    builders = {"feed-forward": _feed_forward_minimum}
    if not arch.tied or chain.target_logit_gap >= 0:
        builders = {"linear": _linear_minimum} | builders
    for name, build in builders.items():
        values, slopes, misses = [], [], []
        for seed in seeds:
            weights = build(chain, arch, generator_of(seed))
            value, gradient = loss.value_and_gradient(weights)
            values.append(float(value))
            slopes.append(norm(gradient))
            predicted = forward(arch, weights, loss.tokens).sigmoid()
            misses.append(float((predicted - loss.targets[0]).abs().max()))
        title = f"Thm. 1, {name} construction, {kind}"
        claims += [
            equal(f"{title}: loss is the entropy rate", chain.entropy_rate, values),
            equal(f"{title}: gradient", 0.0, slopes),
            equal(f"{title}: largest error of a predicted probability", 0.0, misses),
        ]
    return claims


def _linear_minimum(chain: BinaryChain, arch: Architecture, g: torch.Generator) -> Weights:
    """W_2 = W_O = 0, ⟨u, e⟩ = Δ*, ⟨u, p_n⟩ = 0, b = log p/(1−p); everything else is free."""
    weights = free_weights(arch, g)
    gap = chain.target_logit_gap
    u = torch.nn.functional.normalize(normal(g, arch.d), dim=0)
    if arch.tied:
        u = u * math.sqrt(gap)
        weights["embedding"] = u
    else:
        u = u * (0.5 + float(torch.rand(1, generator=g)))
        free = normal(g, arch.d)
        weights["unembedding"] = u
        weights["embedding"] = free + u * (gap - free @ u) / (u @ u)
    if gap > 0 or not arch.tied:
        weights["positions"] -= torch.outer(weights["positions"] @ u, u) / (u @ u)
    for name in ("0.down", "0.out"):
        weights[name] = torch.zeros_like(weights[name])
    weights["bias"] = torch.tensor(math.log(chain.p) - math.log1p(-chain.p), dtype=torch.float64)
    return weights


def _feed_forward_minimum(chain: BinaryChain, arch: Architecture, g: torch.Generator) -> Weights:
    """The canonical point with Δ = Δ*, α any signs; W_O = 0, and W_Q, W_K, W_V are free.

    ε c (1 + 2 w₁w₂) = Δ* and the ReLU is shut after a zero, where the logit is b − ε c/2.
    """
    weights = free_weights(arch, g)
    eps = 0.6 + torch.rand((), dtype=torch.float64, generator=g)
    c = eps if arch.tied else 0.6 + torch.rand((), dtype=torch.float64, generator=g)
    w1 = 0.5 + torch.rand((), dtype=torch.float64, generator=g)
    w2 = (chain.target_logit_gap / (eps * c) - 1) / (2 * w1)
    b = math.log(chain.p) - math.log1p(-chain.p) + eps * c / 2
    zero = torch.zeros_like(eps)
    rho = (-eps / 2).expand(arch.length)
    alpha = torch.where(normal(g, arch.d) < 0, -1.0, 1.0).double() / math.sqrt(arch.d)
    point = RankOnePoint(eps, rho, w1, w2, zero, zero, b, c)
    lifted = lift_rank_one(point, arch, alpha)
    return lifted | {name: weights[name] for name in ("0.query", "0.key", "0.value")}


def appendix_d() -> list[Claim]:
    """App. D: trained rank-one weights at (p, q) = (0.2, 0.3), eq. (26), through the full model.

    There α and the hidden signs are not normalised: e = 0.3618 α, α ∈ {±1}^d, and β = 5 of the
    r = 16 hidden units open after a one.
    """
    d, r, opening = 4, 16, 5
    e, p, w1, b = 0.3618, -0.1539, 0.3264, -0.1229
    arch = Architecture(d, 1, hidden=r)
    one = torch.ones((), dtype=torch.float64)
    point = RankOnePoint(
        e * math.sqrt(d) * one,
        torch.full((1,), p * math.sqrt(d), dtype=torch.float64),
        w1 * d * one,
        w1 * d * one,
        0 * one,
        0 * one,
        b * one,
        e * math.sqrt(d) * one,
    )
    signs = torch.where(torch.arange(r) < opening, 1.0, -1.0).double()
    logits = forward(arch, lift_rank_one(point, arch, hidden_signs=signs), torch.tensor([[1], [0]]))
    published = {"1": (0.819055, 0.694036), "0": (-1.389671, 0.199460)}
    claims = []
    for (symbol, (logit, probability)), found in zip(
        published.items(), logits[:, 0].tolist(), strict=True
    ):
        predicted = 1 / (1 + math.exp(-found))
        claims += [
            equal(f"App. D: logit after x = {symbol}", logit, [found], 1e-6),
            equal(f"App. D: P(1) after x = {symbol}", probability, [predicted], 1e-6),
        ]
    return claims
