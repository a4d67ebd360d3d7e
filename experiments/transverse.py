"""Small steps off the rank-one manifold: what they cost, and how they grow along its orbits."""

import torch
from torch import Tensor

from flowsim.models.rank_one.model import WIDTH_RATIO, RankOneModel


def transverse_hessian(model: RankOneModel, theta: Tensor) -> Tensor:
    """Second derivatives of the loss across the manifold, (M, 4, 4), at θ (M, 5).

    For one direction orthogonal to α, with η that component of the embedding, P/√N of every
    position, a/√r of every row of W_1 and c/√r of every column of W_2 (unit metric each), and
    Y_x = ρ + x e, the logits change by

        ηP/√N + x η² + 1{w₁Y_x > 0} 2[w₁ Y_x ηc + w₂ e a(P/√N + x η)]     (2 = √(r/d))

    beyond third order; the d − 1 directions do not mix. Axes (η, P, a, c). Own derivation.
    """
    e, rho, w1, w2, b = theta.unbind(-1)
    root, width = model.length**0.5, WIDTH_RATIO**0.5
    hessian = theta.new_zeros(len(theta), 4, 4)
    for x, chance in enumerate(model.chain.stationary):
        y = rho + x * e
        logit = e * (y + WIDTH_RATIO * w2 * (w1 * y).clamp(min=0)) + b
        target = 1 - model.chain.q if x else model.chain.p
        omega = chance * (logit.sigmoid() - target)  # ∂L/∂f_x
        opened = omega * width * (w1 * y > 0)
        hessian[:, 0, 0] += 2 * x * omega
        for (i, j), entry in {
            (0, 1): omega / root,
            (0, 2): x * opened * w2 * e,
            (0, 3): opened * w1 * y,
            (1, 2): opened * w2 * e / root,
        }.items():
            hessian[:, i, j] += entry
            hessian[:, j, i] += entry
    return hessian


def attention_coupling(model: RankOneModel, theta: Tensor) -> Tensor:
    """K (M,) of δL = K ⟨W_Oᵀα, W_V α⟩, what small W_V and W_O add to the loss at θ (M, 5).

    Attention without W_Q and W_K is the mean of the past, α(ρ + e S/n), and reaches the logit along
    α alone, so that K is the derivative by o·v at o·v = 0. Then (W_Oᵀα)′ = −K W_V α and the other
    way round: W_Oᵀα ± W_V α are multiplied by exp(∓∫K dt), in all d directions alike. Queries and
    keys enter at third order. Own derivation.
    """
    attended = RankOneModel(model.chain, model.length, attention=True)
    e, rho, w1, w2, b = theta.unbind(-1)
    column = {"e": e, "w1": w1, "w2": w2, "b": b, "o": torch.zeros_like(e), "v": torch.ones_like(e)}
    point = torch.stack([column.get(name, rho) for name in attended.coordinates], -1)
    return attended.gradient(point)[:, attended.coordinates.index("o")]


def attention_gain(
    model: RankOneModel, theta: Tensor, until: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Descent on the manifold from θ (M, 5), and what it does to small W_V and W_O.

    Returns:
        The largest factor (M,) by which a unit step in them is multiplied up to that time, the
        time (M,) of it, and the factors (M, 2) of W_Oᵀα + W_V α and W_Oᵀα − W_V α at the end.
    """
    state, metric = theta.clone(), theta.new_tensor(model.metric)
    clock, factors = theta.new_zeros(len(theta)), theta.new_ones(len(theta), 2)
    gain, when = theta.new_ones(len(theta)), clock.clone()
    while len(rows := (clock < until).nonzero()[:, 0]):
        here = state[rows]
        step = torch.minimum(0.8 / model.stiffness(here), until - clock[rows])
        change = step * attention_coupling(model, here)
        factors[rows] *= 1 + torch.stack([-change, change], -1)
        state[rows] = here - step[:, None] * model.gradient(here) / metric
        clock[rows] += step
        size = factors[rows].abs().amax(-1)
        grown = size > gain[rows]
        gain[rows[grown]], when[rows[grown]] = size[grown], clock[rows[grown]]
    return gain, when, factors


def follow(
    model: RankOneModel, theta: Tensor, until: float, save: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradient descent on the manifold, and what it does to small steps off it.

    Args:
        theta: (M, 5) starts.
        until: time to stop at.
        save: (T,) increasing times at which to keep the propagator, one row only.

    Returns:
        The largest factor (M,) by which the embedding's component across has outgrown a unit
        step off the manifold in (η, P, a, c), the time (M,) of it, and propagators (T, 4, 4).
    """
    state, metric = theta.clone(), theta.new_tensor(model.metric)
    propagator = torch.eye(4, dtype=theta.dtype).repeat(len(theta), 1, 1)
    clock = theta.new_zeros(len(theta))
    gain, when = theta.new_ones(len(theta)), clock.clone()
    kept: list[Tensor] = []
    while len(rows := (clock < until).nonzero()[:, 0]):
        here = state[rows]
        aim = until if save is None or len(kept) == len(save) else float(save[len(kept)])
        step = torch.minimum(0.8 / model.stiffness(here), aim - clock[rows])[:, None]
        moved = propagator[rows] - step[..., None] * (
            transverse_hessian(model, here) @ propagator[rows]
        )
        propagator[rows], state[rows] = moved, here - step * model.gradient(here) / metric
        clock[rows] += step[:, 0]
        if save is not None and float(clock[0]) >= aim and len(kept) < len(save):
            kept.append(propagator[0].clone())
        size = moved[:, 0].norm(dim=-1)
        grown = size > gain[rows]
        gain[rows[grown]], when[rows[grown]] = size[grown], clock[rows[grown]]
    return gain, when, torch.stack(kept) if kept else propagator[:0]
