"""Checks of the papers' theorems on the single-layer model: ``verify``.

Every claim is evaluated on the exact population loss with weights drawn at random wherever the
statement leaves them free, over several seeds; the worst seed is reported. The claims are Thm. 1's
global minima and App. D's trained weights, Thms. 2 and 3 on the unigram, and the lemmas.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from flowsim.chain import BinaryChain
from flowsim.errors import InputError
from flowsim.models.rank_one.point import RankOnePoint
from flowsim.running import threads
from full_model.lift.initial import normal
from full_model.lift.lifting import lift_rank_one
from full_model.model.architecture import Architecture, Weights
from full_model.model.batches import threads_for, widest
from full_model.model.population import PopulationLoss
from full_model.model.sources import MarkovSource
from full_model.model.transformer import forward

TOLERANCE = 1e-10


@dataclass(frozen=True)
class Claim:
    """One line of the table: a claim, the number expected and found, and whether it passed.

    ``error`` is the largest deviation over the seeds; for a claim about a sign, expected and found
    are words and the error is 0 (held at every seed) or the share of seeds where it failed.

    >>> import full_model
    >>> full_model.Claim("unigram loss", 0.6663, 0.6663, error=0.0, passed=True).passed
    True
    """

    claim: str
    expected: float | str
    found: float | str
    error: float
    passed: bool

    def as_dict(self) -> dict[str, float | str | bool]:
        """JSON-ready: claim, expected, found, error, passed."""
        return asdict(self)


def format_claims(claims: list[Claim]) -> str:
    """The table that ``flowsim verify`` prints.

    >>> import full_model
    >>> claim = full_model.Claim("unigram loss", 0.6663, 0.6663, error=0.0, passed=True)
    >>> print(full_model.format_claims([claim]))
    claim         expected  found   error
    unigram loss  0.6663    0.6663  0.0e+00  ok
    """

    def text(value: float | str) -> str:
        return value if isinstance(value, str) else f"{value:.6g}"

    rows = [("claim", "expected", "found", "error", "")]
    for c in claims:
        passed = "ok" if c.passed else "FAILED"
        rows.append((c.claim, text(c.expected), text(c.found), f"{c.error:.1e}", passed))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    cells = (map(str.ljust, row, widths) for row in rows)
    return "\n".join("  ".join(row).rstrip() for row in cells)


def equal(claim: str, expected: float, found: list[float], tolerance: float = TOLERANCE,
          scale: float = 1.0) -> Claim:  # fmt: skip
    """Make the claim that all found numbers are the expected one; the worst is shown.

    The error may be ``tolerance``, times ``scale`` where the terms that cancel are larger than 1.
    """
    worst = max(found, key=lambda number: abs(number - expected))
    error = abs(worst - expected)
    return Claim(claim, expected, worst, error, error <= tolerance * max(1.0, scale))


def sign_claim(claim: str, expected: str, found: list[bool]) -> Claim:
    """Make the claim that a sign, named in ``expected``, was as expected at every seed."""
    failed = found.count(False)
    text = expected if failed == 0 else f"not so at {failed} of {len(found)} seeds"
    return Claim(claim, expected, text, failed / len(found), failed == 0)


def generator_of(seed: int) -> torch.Generator:
    """A new generator of torch with that seed."""
    return torch.Generator().manual_seed(seed)


def free_weights(arch: Architecture, g: torch.Generator) -> Weights:
    """Draw all weights of one model from N(0, ¼)."""
    return {name: 0.5 * normal(g, *shape) for name, shape in arch.shapes.items()}


def norm(gradient: Weights) -> float:
    """The Euclidean norm of a gradient over all weights."""
    return math.sqrt(sum(float(part.square().sum()) for part in gradient.values()))


def global_minima(chain: BinaryChain, loss: PopulationLoss, seeds: list[int]) -> list[Claim]:
    """Check that the minima that Thm. 1 constructs are global: loss, gradient, predictions.

    They are built from the embedding alone (W_2 = 0), and through the feed-forward layer.
    """
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
    """Draw weights with W_2 = W_O = 0, ⟨u, e⟩ = Δ*, ⟨u, p_n⟩ = 0, b = log p/(1−p), else free."""
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
    """Draw weights lifted from rank-one points with Δ = ε c (1 + 2 w₁w₂) = Δ*, α of any signs.

    W_O = 0; queries, keys and values are free.
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
    """Check App. D's predictions of trained rank-one weights at (p, q) = (0.2, 0.3), eq. (26).

    There α and the hidden signs are not normalised: e = 0.3618 α, α ∈ {±1}^d, and β = 5 of the
    r = 16 hidden units open after a one.
    """
    d, r, opening = 4, 16, 5
    e, p, w1, b = 0.3618, -0.1539, 0.3264, -0.1229
    arch = Architecture(d, 1, hidden=r)
    numbers = [torch.tensor(v, dtype=torch.float64)
               for v in (e * d**0.5, w1 * d, w1 * d, 0.0, 0.0, b, e * d**0.5)]  # fmt: skip
    rho = torch.full((1,), p * d**0.5, dtype=torch.float64)
    point = RankOnePoint(numbers[0], rho, *numbers[1:])
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


#: Below this |p + q − 1| rounding hides the signs.
_NEAR_SIGNS = 1e-4
#: Below this (p + q − 1)²π₀π₁, the size of the block's smallest eigenvalues, rounding decides too.
_ROUNDED = 1e-14


def unigram_point(chain: BinaryChain, loss: PopulationLoss, seeds: list[int]) -> list[Claim]:
    """Check Thm. 2, or untied Thm. 3, at θ_π: loss, gradient, Hessian and its signs.

    θ_π has e = 0 (and u = 0), W_O = W_2 = 0, b = log π₁/π₀, the rest free.
    """
    arch = loss.arch
    pi0, pi1 = chain.stationary
    excess = chain.switching_factor - 1
    near_signs = abs(excess) < _NEAR_SIGNS or excess**2 * pi0 * pi1 < _ROUNDED
    names = ["bias", "embedding"] if arch.tied else ["bias", "unembedding", "embedding"]
    values, slopes, blocks, spectra, elsewhere, signs = [], [], [], [], [], []
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
        # Haynsworth: the block's signs are those of 1 and of its Schur complement, if untied
        # [Cov εI; εI 0] with ε = p + q − 1 ≠ 0, of d signs of each kind
        negative = positive = arch.d
        if arch.tied:
            spread = torch.cov(weights["positions"].mT, correction=0).reshape(arch.d, arch.d)
            schur = spread + 2 * excess * torch.eye(arch.d, dtype=spread.dtype)
            negative, positive = _inertia(torch.linalg.eigvalsh(schur))
        signs.append(_inertia(found) == (negative, positive + 1))
    title = "Thm. 2, tied" if arch.tied else "Thm. 3, untied"
    matrix = "π₀π₁[1 uᵀ; u V]" if arch.tied else "π₀π₁[1 uᵀ 0; u mean pₙpₙᵀ (p+q−1)I; 0 · 0]"
    claims = [
        equal(f"{title}: loss is h(π₁)", chain.stationary_entropy, values),
        equal(f"{title}: gradient", 0.0, slopes),
        equal(f"{title}: Hessian block minus {matrix}", 0.0, blocks),
        equal(f"{title}: error of the block's eigenvalues", 0.0, spectra),
        equal(f"{title}: Hessian outside the block", 0.0, elsewhere),
    ]
    if not near_signs:
        at, is_so = "p + q > 1", "positive definite"
        if not arch.tied:
            at, is_so = f"p + q = {excess + 1:g}", "indefinite"
        elif excess <= 0:
            at, is_so = "p + q < 1", "as the Schur complement"
        claims.append(sign_claim(f"{title}: block at {at}", is_so, signs))
    return claims


def expected_block(positions: Tensor, excess: float, tied: bool) -> Tensor:
    """Build the Hessian's block, divided by π₀π₁: of Thm. 2 by (b, e), of Thm. 3 by (b, u, e).

    From positions (N, d) and ``excess`` = p + q − 1; shape (1 + d, 1 + d) or (1 + 2d, 1 + 2d).
    """
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
    """Count the negative and the positive eigenvalues, beyond rounding."""
    small = 1e-12 * float(eigenvalues.abs().max().clamp(min=1e-3))
    return int((eigenvalues < -small).sum()), int((eigenvalues > small).sum())


def hessian_rows(
    loss: PopulationLoss, weights: Weights, names: list[str], g: torch.Generator
) -> tuple[Tensor, float]:
    """Compute the Hessian's block over the weights ``names``, and what is seen outside of it.

    It is the largest |entry| in the block's rows, or of the rest times a random vector.
    """
    free = {name: w.clone().requires_grad_() for name, w in weights.items()}
    others = [name for name in free if name not in names]
    slopes = torch.autograd.grad(loss(free), list(free.values()), create_graph=True)
    gradient = dict(zip(free, slopes, strict=True))
    rows, outside = [], 0.0
    for name in names:
        for entry in gradient[name].reshape(-1):
            row = torch.autograd.grad(entry, [free[k] for k in names + others],
                                      retain_graph=True, materialize_grads=True)  # fmt: skip
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


#: Groups of claims: three of a tied model, three of an untied one.
GROUPS = 6


def verify(
    chain: BinaryChain,
    d: int = 4,
    length: int = 6,
    seeds: Iterable[int] = range(8),
    progress: Callable[[int], object] | None = None,
) -> list[Claim]:
    """Check AM's theorems 1 to 3, lemmas 1 and 2, and the numbers of App. D on the full model.

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

    Sources: AM Thms. 1, 2, 3, Lemmas 1, 2, App. D. Tied weights reach the global minimum without
    the feed-forward layer only for p + q ≤ 1; beyond, that construction is checked untied. AM
    claims definiteness (Thm. 2) for p + q > 1; elsewhere the sign of the block's Schur complement
    is checked. The bound 2(p + q − 1) on the block's eigenvalues does not hold numerically and is
    left out, as are signs where |p + q − 1| is so small that rounding decides them.

    >>> import flowsim, full_model
    >>> claims = full_model.verify(flowsim.BinaryChain(0.5, 0.8), d=2, length=3, seeds=[0])
    >>> all(claim.passed for claim in claims)
    True
    """
    seeds = list(seeds)
    if not seeds:
        raise InputError("verify needs at least one seed")
    claims = []
    for tied in (True, False):
        arch = Architecture(d, length, tied=tied)
        loss = PopulationLoss(arch, MarkovSource.of(chain))
        with threads(threads_for(loss.tokens.numel() * widest(arch, length))):
            for group in (global_minima, unigram_point, _lemmas):
                claims += group(chain, loss, seeds)
                if progress is not None:
                    progress(1)
    return claims + appendix_d()


def divergence(t: Tensor, logits: Tensor) -> Tensor:
    """KL(t ‖ σ(logit)) of two binary laws in nats, from the logit; t in (0, 1)."""
    one = t * (t.log() - logsigmoid(logits))
    return one + (1 - t) * ((-t).log1p() - logsigmoid(-logits))


def _lemmas(chain: BinaryChain, loss: PopulationLoss, seeds: list[int]) -> list[Claim]:
    """Check Lemmas 1, L = E KL(P(·|x_n) ‖ f_θ) + entropy rate, and 2, ∇L = E (f_θ − t) ∇logit."""
    arch, kind = loss.arch, "tied" if loss.arch.tied else "untied"
    probability, t = loss.probability[0], loss.targets[0]
    gaps, slopes, losses, sizes = [], [], [], []
    for seed in seeds:
        weights = free_weights(arch, generator_of(seed))
        value, gradient = loss.value_and_gradient(weights)
        free = {name: w.requires_grad_() for name, w in weights.items()}
        logits = forward(arch, free, loss.tokens)
        kl = float((divergence(t, logits.detach()).mean(-1) * probability).sum())
        losses.append(float(value))
        sizes.append(norm(gradient))
        gaps.append(float(value) - kl - chain.entropy_rate)
        residual = probability.unsqueeze(-1) * (logits.detach().sigmoid() - t) / arch.length
        by_lemma = torch.autograd.grad((residual * logits).sum(), list(free.values()))
        off = [(a - gradient[name]).abs().max() for name, a in zip(free, by_lemma, strict=True)]
        slopes.append(float(max(off)))
    return [
        equal(f"Lemma 1, {kind}: loss minus KL minus entropy rate", 0.0, gaps, scale=max(losses)),
        equal(f"Lemma 2, {kind}: gradient minus E (f − t) ∇logit", 0.0, slopes, scale=max(sizes)),
    ]
