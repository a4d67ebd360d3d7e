"""The unigram's critical set e = 0: the matrix S whose sign says whether it traps gradient flow.

At embedding 0 (untied: unembedding 0 too) and b = log(π₁/π₀) every single-layer model predicts the
unigram and is critical, whatever its other weights. The loss's second variation in the embedding,
the bias eliminated, is π₀π₁ S (own derivation, docs/derivations/12.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from flowsim.chain import BinaryChain
from flowsim.chains.hidden import SeenChain
from flowsim.errors import InputError
from flowsim.models.memory.model import DECAYS
from full_model.lift.projection import first_sign
from full_model.model.architecture import Architecture, Weights, check_weights
from full_model.model.transformer import convolve, forward, scan, visible_positions

#: An eigenvector's sign is that of its first entry above this share of the largest.
_SHARE = 1e-3
#: Eigenvalues within so many units in the last place of the largest count as zero.
_ROUNDING = 1e4
#: The share of its smallest eigenvalue by which S may change while the embedding dies.
_AT_REST = 0.25


@dataclass(frozen=True)
class UnigramTrap:
    """Behaviour of gradient flow around the point of the set e = 0 with these other weights.

    Attributes:
        matrix: S, (..., d, d); untied (..., 2d, 2d) over (unembedding, embedding).
        eigenvalues: of S, ascending, (..., d).
        eigenvectors: in the columns, each with its first sizeable entry positive.
        smooth: no ReLU's input vanishes at e = 0, so that S is the second variation there (...).
        at_rest: the other weights hardly move while (e, b) fall to the set (...). S then changes by
            less than a quarter of its smallest eigenvalue, in the spectral norm, to second order.
            If S is not positive definite, only points of the set are at rest.

    >>> import flowsim, full_model, torch
    >>> arch, chain = full_model.Architecture(d=2, length=3), flowsim.BinaryChain(0.5, 0.8)
    >>> weights = full_model.lift_canonical(torch.tensor([0.0, 1.0], dtype=torch.float64), arch)
    >>> full_model.unigram_trap(arch, weights, chain).at_rest
    tensor(True)
    """

    matrix: Tensor
    eigenvalues: Tensor
    eigenvectors: Tensor
    smooth: Tensor
    at_rest: Tensor

    @property
    def smallest(self) -> Tensor:
        """The smallest eigenvalue of S, (...)."""
        return self.eigenvalues[..., 0]

    @property
    def is_trap(self) -> Tensor:
        """Return whether gradient flow is trapped, (...).

        It is where S is positive definite beyond rounding, the point smooth and the rest at rest.
        """
        return _positive(self.eigenvalues) & self.smooth & self.at_rest


def unigram_trap(arch: Architecture, weights: Weights, chain: BinaryChain) -> UnigramTrap:
    """Eigenvalues and eigenvectors of S, and whether the other weights are at rest.

    Args:
        arch, weights, chain: as of ``trap_matrix``. Here the weights' own e and b count too: they
            say how far the point is from the set e = 0, hence how much the rest still moves.

    Returns:
        UnigramTrap; ``is_trap`` says whether gradient flow from these weights stays at the unigram.

    Raises:
        InputError: as ``trap_matrix``.

    >>> import flowsim, full_model, torch
    >>> arch, chain = full_model.Architecture(d=2, length=3), flowsim.BinaryChain(0.5, 0.8)
    >>> weights = full_model.initial_weights(arch, "balanced", seeds=[0])
    >>> bool((full_model.unigram_trap(arch, weights, chain).eigenvalues < 0).any())
    True
    """
    _check(arch, weights)
    z, hidden, jacobian = _at_zero(arch, weights, chain)
    matrix = _matrix(arch, z, jacobian, chain)
    values, vectors = torch.linalg.eigh(matrix)
    vectors = vectors * first_sign(vectors.mT, _SHARE).unsqueeze(-2)
    away = off_the_set(arch, weights, chain)
    at_rest = (away == 0).all(-1)
    if arch.tied:
        inside = _positive(values)
        later = where_it_ends(arch, weights, chain, torch.where(inside.unsqueeze(-1), away, 0.0))
        change = torch.linalg.matrix_norm(trap_matrix(arch, later, chain) - matrix, 2)
        at_rest = at_rest | (inside & (change <= _AT_REST * values[..., 0]))
    smooth = (hidden != 0) | (arch.activation != "relu")
    return UnigramTrap(matrix, values, vectors, smooth.flatten(-2).all(-1), at_rest)


def trap_matrix(arch: Architecture, weights: Weights, chain: BinaryChain) -> Tensor:
    """S: at e = 0 and b = log(π₁/π₀) the loss is h(π₁) + ½ π₀π₁ eᵀSe + O(|e|³), b at its best.

    With y_n and z_n the network's vectors at e = 0, which depend on n alone, D_n the slopes of
    the hidden units there, a_ni the attention weights, p̄_n = Σ_i a_ni p_i,
    C_n = Σ_i a_ni (p_i − p̄_n)(p_i − p̄_n)ᵀ, A = W_QᵀW_K/√d and λ = 1 − p − q

        S = Cov_n(z_n) + (p + q − 1)(J + Jᵀ),   J = mean_n (I + W_2 D_n W_1) T_n,
        T_n = I + W_O W_V [C_n Aᵀ + Σ_{i≤n} a_ni λ^(n−i) (I + (p_i − p̄_n) p_nᵀ A)],

    summed over heads; T_n = I without attention. On a hidden process p + q − 1 and λ^k are those of
    what is seen: minus the eigenvalue of neighbours and Cov(x_{n+1}, x_{n−k})/Cov(x_{n+1}, x_n). Of
    a state-space layer T_n = I + W_O Σ_{k<n} λ^k diag(g_k) W_V, g its response to an impulse.
    Untied, over (unembedding, embedding),

        S = [Cov_n(z_n), (p + q − 1) J; (p + q − 1) Jᵀ, 0].

    Args:
        arch: one layer without layer norm, read as one logit; a convolution only before a linear
            recurrence; everything else is free.
        weights: (..., *shape); embedding, unembedding and bias are not looked at.
        chain: the data; a ``SeenChain`` of a hidden process.

    Returns:
        (..., d, d), or (..., 2d, 2d) untied. A ReLU whose input is 0 counts as shut.

    Raises:
        InputError: another architecture, or weights that do not fit it.

    Cost: N² d² per head with attention, and N r d² for J. Source: own derivation, section 12;
    for W_2 = W_O = 0 the blocks of AM Thms. 2 and 3.

    >>> import flowsim, full_model, torch
    >>> arch, chain = full_model.Architecture(d=2, length=3), flowsim.BinaryChain(0.5, 0.8)
    >>> weights = full_model.initial_weights(arch, "balanced", seeds=[0])
    >>> full_model.trap_matrix(arch, weights, chain).numpy().round(1)
    array([[[-0.6, -1.2],
            [-1.2, -0.6]]])
    """
    _check(arch, weights)
    z, _, jacobian = _at_zero(arch, weights, chain)
    return _matrix(arch, z, jacobian, chain)


def _check(arch: Architecture, weights: Weights) -> None:
    """InputError unless S is defined for the architecture and the weights are its own."""
    if arch.layers != 1 or arch.layer_norm or arch.output != "binary":
        raise InputError("S is for one layer without layer norm, read as one logit")
    if arch.channel_activation or (arch.convolution and arch.attention != "ssm"):
        raise InputError("S is known of convolutions before a linear recurrence alone")
    if arch.attention == "selective" or arch.gated:
        raise InputError("S is not known of a selective or a gated recurrence")
    check_weights(arch, weights)


def _at_zero(arch: Architecture, weights: Weights, chain: BinaryChain) -> tuple[Tensor, ...]:
    """Compute, at e = 0, z (..., N, d), the hidden units' inputs (..., N, r) and J (..., d, d)."""
    lags = chain.second_eigenvalue ** torch.arange(arch.length).double()
    if isinstance(chain, SeenChain):  # Cov(x_{n+1}, x_{n−k})/Cov(x_{n+1}, x_n), λ^k of a chain
        lags = torch.from_numpy(chain.lag_ratios(arch.length))
    still = weights | {"embedding": torch.zeros_like(weights["embedding"])}
    trace: dict[str, Tensor] = {}
    one = torch.zeros(1, arch.length, dtype=torch.long, device=weights["bias"].device)
    forward(arch, still, one, trace)
    y = trace["0.y"].squeeze(-3)
    lead = y.shape[:-2]
    up = weights.get("0.up", y.new_zeros(*lead, 0, arch.d))
    down = weights.get("0.down", y.new_zeros(*lead, arch.d, 0))
    hidden = y @ up.mT
    if arch.activation == "relu":
        active, slopes = hidden.relu(), (hidden > 0).to(hidden)
    else:
        active = torch.nn.functional.gelu(hidden)
        bell = (-hidden.square() / 2).exp() / math.sqrt(2 * math.pi)
        slopes = torch.special.ndtr(hidden) + hidden * bell
    z = y + active @ down.mT
    if arch.attention == "none":
        eye = torch.eye(arch.d, dtype=up.dtype, device=up.device)
        return z, hidden, eye + down @ (slopes.mean(-2).unsqueeze(-1) * up)
    if arch.attention == "ssm":
        mixing = _state_space_mixing(arch, weights, lags)
    else:
        mixing = _mixing(arch, weights, trace.get("0.pattern"), lags)
    opened = torch.einsum("...nr,...ra,...nab->...rb", slopes, up, mixing)
    return z, hidden, mixing.mean(-3) + down @ opened / slopes.shape[-2]


def _matrix(arch: Architecture, z: Tensor, jacobian: Tensor, chain: BinaryChain) -> Tensor:
    """Assemble S, (..., d, d) or untied (..., 2d, 2d), from the vectors z_n and from J."""
    excess = -chain.second_eigenvalue
    centred = z - z.mean(-2, keepdim=True)
    spread = centred.mT @ centred / arch.length
    if arch.tied:
        return spread + excess * (jacobian + jacobian.mT)
    top = torch.cat([spread, excess * jacobian], dim=-1)
    bottom = torch.cat([excess * jacobian.mT, torch.zeros_like(spread)], dim=-1)
    return torch.cat([top, bottom], dim=-2)


def _mixing(arch: Architecture, weights: Weights, pattern: Tensor | None, lags: Tensor) -> Tensor:
    """Compute the matrices T_n, (..., N, d, d), of attention.

    ``pattern``: a_ni (..., 1, heads, N, N), None if uniform; ``lags``: λ^k for k < N.
    """
    d, heads = arch.d, arch.heads
    value = weights["0.value"].unflatten(-2, (heads, -1))
    out = weights["0.out"].unflatten(-1, (heads, -1)).movedim(-2, -3)
    through = out @ value  # W_O W_V of each head, (..., heads, d, d)
    here = through.new_zeros(1, arch.length, d)  # p_n, with one axis more, for the heads
    if arch.positions == "learned":
        here = weights["positions"].unsqueeze(-3)
    if pattern is None:
        visible = visible_positions(arch.length, arch.window, here.device).to(here)
        form, attention = torch.zeros_like(through), visible / visible.sum(-1, keepdim=True)
    else:
        query, key = (weights[f"0.{k}"].unflatten(-2, (heads, -1)) for k in ("query", "key"))
        form, attention = query.mT @ key / math.sqrt(d // heads), pattern.squeeze(-4)
    off = here - here.mean(-2, keepdim=True)  # second moments about a point nearby
    centre = attention @ off
    products = (off.unsqueeze(-1) * off.unsqueeze(-2)).flatten(-2)
    moments = (attention @ products).unflatten(-1, (d, d))
    moments = moments - centre.unsqueeze(-1) * centre.unsqueeze(-2)  # C_n
    place = torch.arange(arch.length, device=here.device)
    distance = (place[:, None] - place).clamp(min=0)
    lagged = attention * lags.to(here)[distance]
    total = lagged.sum(-1, keepdim=True)
    pulled = (lagged @ off - total * centre).unsqueeze(-1) * (here @ form).unsqueeze(-2)
    eye = torch.eye(d, dtype=here.dtype, device=here.device)
    inner = moments @ form.mT.unsqueeze(-3) + total.unsqueeze(-1) * eye + pulled
    return eye + (through.unsqueeze(-3) @ inner).sum(-4)


def _state_space_mixing(arch: Architecture, weights: Weights, lags: Tensor) -> Tensor:
    """Compute the matrices T_n, (..., N, d, d), of a linear recurrence; ``lags``: λ^k for k < N."""
    value, out, raw = (weights[f"0.{name}"] for name in ("value", "out", "decay"))
    impulse = raw.new_zeros(*raw.shape[:-1], 1, arch.length, arch.states_kept)
    impulse[..., 0, :] = 1.0
    assert arch.decay is not None
    response = scan(DECAYS[arch.decay](raw), convolve(weights.get("0.value_taps"), impulse))
    total = (lags.to(raw)[:, None] * response.squeeze(-3)).cumsum(-2)  # (..., N, m)
    through = (out.unsqueeze(-3) * total.unsqueeze(-2)) @ value.unsqueeze(-3)
    return torch.eye(arch.d, dtype=raw.dtype, device=raw.device) + through


def _positive(values: Tensor) -> Tensor:
    """Return whether ascending eigenvalues (..., k) are all positive beyond rounding, (...)."""
    rounding = _ROUNDING * torch.finfo(values.dtype).eps
    return values[..., 0] > rounding * values.abs().amax(-1)


def off_the_set(arch: Architecture, weights: Weights, chain: BinaryChain) -> Tensor:
    """Return how far weights are from the set e = 0: (b − log(π₁/π₀), e), (..., 1 + d).

    Untied, (b − log(π₁/π₀), u, e), (..., 1 + 2d).
    """
    bias = (weights["bias"] - math.log(chain.p / chain.q)).unsqueeze(-1)
    names = ["embedding"] if arch.tied else ["unembedding", "embedding"]
    return torch.cat([bias, *(weights[name] for name in names)], dim=-1)


def where_it_ends(
    arch: Architecture, weights: Weights, chain: BinaryChain, away: Tensor
) -> Weights:
    """Predict the other weights after y = (b − b*, e) has fallen to 0, to second order in y.

    ``away`` is y now. With H the Hessian in y and X = ∫ y yᵀ dt along y′ = −Hy, that is
    HX + XH = y yᵀ, the others move by −½ ∂ tr(HX)/∂(others), X kept.
    """
    pi0, pi1 = chain.stationary
    free = {name: w.detach().requires_grad_() for name, w in weights.items()}
    with torch.enable_grad():
        z, _, jacobian = _at_zero(arch, free, chain)
        mean = z.mean(-2)
        one = torch.ones_like(mean[..., :1, None])
        corner = _matrix(arch, z, jacobian, chain) + mean.unsqueeze(-1) * mean.unsqueeze(-2)
        top = torch.cat([one, mean.unsqueeze(-2)], dim=-1)
        block = torch.cat([top, torch.cat([mean.unsqueeze(-1), corner], dim=-1)], dim=-2)
        block = pi0 * pi1 * block
        values, vectors = torch.linalg.eigh(block.detach())
        start = (vectors.mT @ away.unsqueeze(-1)).squeeze(-1)
        rates = values.unsqueeze(-1) + values.unsqueeze(-2)
        rates = torch.where(_positive(values)[..., None, None], rates, 1.0)
        integral = start.unsqueeze(-1) * start.unsqueeze(-2) / rates
        integral = vectors @ integral @ vectors.mT
        slope = torch.autograd.grad(
            (block * integral).sum(), list(free.values()), materialize_grads=True
        )
    return {k: w - g / 2 for (k, w), g in zip(weights.items(), slope, strict=True)}
