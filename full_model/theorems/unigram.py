"""The unigram solution on the full weights, checked: Thm. 2 (tied) and Thm. 3 (untied)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from flowsim.chain import BinaryChain
from full_model.model.architecture import Weights
from full_model.model.population import PopulationLoss
from full_model.theorems.claims import Claim, equal, free_weights, generator_of, held, norm

_PERTURBATIONS = 64
#: Below this |p + q − 1| rounding hides the signs, and far below it those of small steps.
_NEAR_SIGNS, _NEAR_STEPS = 1e-4, 1e-2
#: Below this (p + q − 1)²π₀π₁, the size of the block's smallest eigenvalues, rounding decides too.
_ROUNDED = 1e-14


def unigram_point(chain: BinaryChain, loss: PopulationLoss, seeds: list[int]) -> list[Claim]:
    """Thms. 2 and 3 at θ_π: e = 0 (and u = 0), W_O = W_2 = 0, b = log π₁/π₀, the rest free."""
    arch = loss.arch
    pi0, pi1 = chain.stationary
    excess = chain.switching_factor - 1
    near_signs = abs(excess) < _NEAR_SIGNS or excess**2 * pi0 * pi1 < _ROUNDED
    near_steps = abs(excess) < _NEAR_STEPS
    names = ["bias", "embedding"] if arch.tied else ["bias", "unembedding", "embedding"]
    values, slopes, blocks, spectra, elsewhere, signs, moves = [], [], [], [], [], [], []
    for seed in seeds:
        g = generator_of(seed)
        weights = free_weights(arch, g)
        for name in (*names, "0.out", "0.down"):
            weights[name] = torch.zeros_like(weights[name])
        weights["bias"] = torch.tensor(math.log(pi1 / pi0), dtype=torch.float64)
        value, gradient = loss.value_and_gradient(weights)
        values.append(float(value))
        slopes.append(norm(gradient))
        block, rest = hessian_rows(loss, weights, names, g)
        expected = expected_block(weights["positions"], excess, arch.tied) * pi0 * pi1
        blocks.append(float((block - expected).abs().max()))
        found, wanted = torch.linalg.eigvalsh(block), torch.linalg.eigvalsh(expected)
        spectra.append(float((found - wanted).abs().max()))
        elsewhere.append(rest)
        signs.append(_inertia(found) == _predicted_inertia(weights["positions"], excess, arch.tied))
        moves.append(_moves(loss, weights, block, names, g))
    title = "Thm. 2, tied" if arch.tied else "Thm. 3, untied"
    matrix = "π₀π₁[1 uᵀ; u V]" if arch.tied else "π₀π₁[1 uᵀ 0; u mean pₙpₙᵀ (p+q−1)I; 0 · 0]"
    claims = [
        equal(f"{title}: loss is h(π₁)", chain.stationary_entropy, values),
        equal(f"{title}: gradient", 0.0, slopes),
        equal(f"{title}: Hessian block minus {matrix}", 0.0, blocks),
        equal(f"{title}: error of the block's eigenvalues", 0.0, spectra),
        equal(f"{title}: Hessian outside the block", 0.0, elsewhere),
    ]
    if near_signs:
        return claims
    if not arch.tied:
        claims.append(held(f"{title}: block at p + q = {excess + 1:g}", "indefinite", signs))
        if not near_steps:
            claims.append(held(f"{title}: some small step", "lowers the loss", moves))
    elif excess > 0:
        claims.append(held(f"{title}: block at p + q > 1", "positive definite", signs))
        if not near_steps:
            claims.append(held(f"{title}: every small step tried", "raises the loss", moves))
    else:
        claims.append(held(f"{title}: block at p + q < 1", "as the Schur complement", signs))
    return claims


def expected_block(positions: Tensor, excess: float, tied: bool) -> Tensor:
    """The bracket of Thm. 2 over (b, e), or of Thm. 3 over (b, u, e)."""
    n, d = positions.shape
    mean, second = positions.mean(0), positions.mT @ positions / n
    eye = torch.eye(d, dtype=positions.dtype)
    block = torch.zeros(1 + d, 1 + d, dtype=positions.dtype)
    block[0, 0], block[0, 1:], block[1:, 0] = 1.0, mean, mean
    block[1:, 1:] = second + 2 * excess * eye if tied else second
    if tied:
        return block
    whole = torch.zeros(1 + 2 * d, 1 + 2 * d, dtype=positions.dtype)
    whole[: 1 + d, : 1 + d] = block
    whole[1 : 1 + d, 1 + d :] = whole[1 + d :, 1 : 1 + d] = excess * eye
    return whole


def _inertia(eigenvalues: Tensor) -> tuple[int, int]:
    """How many eigenvalues are negative and positive, beyond rounding."""
    small = 1e-12 * float(eigenvalues.abs().max().clamp(min=1e-3))
    return int((eigenvalues < -small).sum()), int((eigenvalues > small).sum())


def _predicted_inertia(positions: Tensor, excess: float, tied: bool) -> tuple[int, int]:
    """Haynsworth: the block's signs are those of 1 and of its Schur complement.

    Tied: Cov(p_n) + 2(p+q−1)I. Untied: [Cov εI; εI 0] with ε = p+q−1 ≠ 0, d signs of each kind.
    """
    d = positions.shape[1]
    spread = torch.cov(positions.mT, correction=0).reshape(d, d)
    eye = torch.eye(d, dtype=positions.dtype)
    if tied:
        negative, positive = _inertia(torch.linalg.eigvalsh(spread + 2 * excess * eye))
    else:
        negative, positive = d, d
    return negative, positive + 1


def hessian_rows(
    loss: PopulationLoss, weights: Weights, names: list[str], g: torch.Generator
) -> tuple[Tensor, float]:
    """The Hessian's block over ``names``, and the largest entry seen outside of it.

    Outside means the rest of the block's rows, and the product of the Hessian with a random vector
    over all other weights.
    """
    free = {name: w.clone().requires_grad_() for name, w in weights.items()}
    others = [name for name in free if name not in names]
    gradient = dict(
        zip(
            free,
            torch.autograd.grad(loss(free), list(free.values()), create_graph=True),
            strict=True,
        )
    )
    rows, outside = [], 0.0
    for name in names:
        for entry in gradient[name].reshape(-1):
            row = torch.autograd.grad(
                entry,
                [free[k] for k in names + others],
                retain_graph=True,
                materialize_grads=True,
            )
            rows.append(torch.cat([part.reshape(-1) for part in row[: len(names)]]))
            outside = max([outside, *(float(part.abs().max()) for part in row[len(names) :])])
    probe = sum(
        (gradient[k] * torch.randn(free[k].shape, dtype=torch.float64, generator=g)).sum()
        for k in others
    )
    if isinstance(probe, Tensor) and probe.requires_grad:
        product = torch.autograd.grad(probe, [free[k] for k in others], materialize_grads=True)
        outside = max([outside, *(float(part.abs().max()) for part in product)])
    return torch.stack(rows), outside


def _moves(
    loss: PopulationLoss, weights: Weights, block: Tensor, names: list[str], g: torch.Generator
) -> bool:
    """Tied: random steps of all weights all raise the loss. Untied: the steepest one lowers it.

    A tied step has length 0.01 λ_min, where the second order outweighs the third, half of its
    square in the block's weights: a direction drawn from all weights alike has so little there that
    rounding would decide.
    """
    eigenvalues, vectors = torch.linalg.eigh(block)
    base = float(loss(weights))
    if loss.arch.tied:
        radius = 0.01 * max(float(eigenvalues[0]), 0.0)
        steps = _random_steps(weights, names, g)
        moved = {name: w + radius * steps[name] for name, w in weights.items()}
        return bool((loss(moved) > base).all())
    for size in (1e-1, 1e-2, 1e-3, 1e-4):
        moved, start = dict(weights), 0
        for name in names:
            count = weights[name].numel()
            step = vectors[start : start + count, 0].reshape(weights[name].shape)
            moved[name], start = weights[name] + size * step, start + count
        if float(loss(moved)) < base:
            return True
    return False


def _random_steps(weights: Weights, names: list[str], g: torch.Generator) -> Weights:
    """Unit steps of all weights, each (64, *shape), with length 1/√2 in ``names`` and outside."""
    steps = {
        name: torch.randn((_PERTURBATIONS, *w.shape), dtype=w.dtype, generator=g)
        for name, w in weights.items()
    }
    for part in (names, [name for name in steps if name not in names]):
        squares = [steps[name].reshape(_PERTURBATIONS, -1).square().sum(1) for name in part]
        length = (2 * torch.stack(squares).sum(0)).sqrt()
        for name in part:
            steps[name] = steps[name] / length.reshape(-1, *[1] * weights[name].ndim)
    return steps
