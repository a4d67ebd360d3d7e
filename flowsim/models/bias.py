"""The optimal bias where it has no closed form: one monotone scalar equation for each row.

With Σ weight·t = π₁ by stationarity, the loss is stationary in the bias where the mean predicted
probability is π₁. Written without cancellation (own derivation), that is

    Σ₀ weight σ(f) = Σ₁ weight σ(−f)          or, with π₀ − π₁ = δ,
    Σ₀ weight σ(−f) = Σ₁ weight σ(f) + δ,     f = h + β, Σₓ the sum over the law given x,

all terms positive. The second is for logits that fall with x where π₀ ≈ π₁: there both sides of the
first are close to π₀. The difference of the logs of both sides is close to linear in β, also where
all probabilities are saturated.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from flowsim.chain import BinaryChain
from flowsim.models.gap_loss import optimal_logit

#: A step this small ends the iteration: Halley's method leaves an error of its third power.
LAST_STEP = 3e-6
_MAX_ITERATIONS = 200


def weighted_sum(values: Tensor, weight: Tensor) -> Tensor:
    """Σ_j weight_j values_j for values (rows, J) and weights (1 or rows, J), shape (rows,)."""
    return values @ weight[0] if len(weight) == 1 else torch.linalg.vecdot(values, weight)


def entropy_given(chain: BinaryChain, x: int, logit: Tensor) -> Tensor:
    """−t log σ(f) − (1 − t) log σ(−f), t = t(x): the cross-entropy after symbol x, any shape."""
    target, other = ((chain.p, 1 - chain.p), (1 - chain.q, chain.q))[x]
    return -target * logsigmoid(logit) - other * logsigmoid(-logit)


def residual_given(chain: BinaryChain, x: int, logit: Tensor) -> Tensor:
    """σ(f) − t(x), its derivative, without cancellation for t near 0 or 1; any shape."""
    target, other = ((chain.p, 1 - chain.p), (1 - chain.q, chain.q))[x]
    if target <= other:
        return torch.sigmoid(logit) - target
    return other - torch.sigmoid(-logit)


def residual_and_slope(chain: BinaryChain, x: int, logit: Tensor) -> tuple[Tensor, Tensor]:
    """ω = σ(f) − t(x), as above, and v = σ(f)σ(−f), its derivative; ``logit`` is overwritten."""
    target, other = ((chain.p, 1 - chain.p), (1 - chain.q, chain.q))[x]
    rarer = target <= other
    u = (logit if rarer else logit.neg_()).sigmoid_()
    slope = torch.addcmul(u, u, u, value=-1.0)
    residual = u.sub_(min(target, other))
    return residual if rarer else residual.neg_(), slope


def optimal_shift(
    chain: BinaryChain,
    weights: Sequence[Tensor],
    h: Sequence[Tensor],
    bracket: tuple[Tensor, Tensor],
    coarse: tuple[Sequence[Tensor], Sequence[Tensor]] | None = None,
) -> Tensor:
    """β that minimises the loss with logits f = h + β, shape (rows,).

    The first guess takes every logit at its mean given x, where the loss depends on their gap
    alone; the root over fewer nodes, where given, is the second.

    Args:
        chain: the data.
        weights: of the nodes given x = 0 and x = 1, each (1 or rows, J); they sum to π₀ and π₁.
        h: logits up to the shift on the same nodes, each (rows, J).
        bracket: β is known to lie between these, each (rows,).
        coarse: ``weights`` and ``h`` of fewer nodes, if any.
    """
    guess_weights, guess_h = (weights, h) if coarse is None else coarse
    means = map(weighted_sum, guess_h, guess_weights)
    mean0, mean1 = (mean / pi for mean, pi in zip(means, chain.stationary, strict=True))
    start = optimal_logit(chain, mean1 - mean0) - mean0
    # only with a falling logit and about as many zeros as ones can the first form saturate
    pi0, pi1 = chain.stationary
    direct = mean1 - mean0 >= (0.0 if abs(pi0 - pi1) < 0.1 else -torch.inf)
    if coarse is not None:
        start = _solve(chain, *coarse, start, direct, bracket, 1e-2)
    return _solve(chain, weights, h, start, direct, bracket, LAST_STEP)


def _solve(
    chain: BinaryChain,
    weights: Sequence[Tensor],
    h: Sequence[Tensor],
    start: Tensor,
    direct: Tensor,
    bracket: tuple[Tensor, Tensor],
    last_step: float,
) -> Tensor:
    """β with Σ weight (σ(h + β) − t) = 0, by Halley's method inside a shrinking bracket.

    Rows do not see each other. A row with a value that is not finite returns NaN.

    Args:
        chain: the data.
        weights: of the nodes given x = 0 and x = 1, each (1 or rows, J); they sum to π₀ and π₁.
        h: logits up to the shift on the same nodes, each (rows, J).
        start: first guess, (rows,).
        direct: whether to solve the first form of the equation, (rows,), bool.
        bracket: β is known to lie between these, each (rows,).
        last_step: |step| at which a row is done.
    """
    delta = (chain.q - chain.p) / (chain.q + chain.p)
    # In y = ±β the sum over x = 0 rises and that over x = 1 falls, for either form.
    sign = torch.where(direct, 1.0, -1.0).to(start)
    h0, h1 = sign[:, None] * h[0], -sign[:, None] * h[1]
    extra0, extra1 = (max(0.0, d) * (~direct).to(start) for d in (-delta, delta))
    y = sign * start
    low = torch.where(direct, bracket[0], -bracket[1])
    high = torch.where(direct, bracket[1], -bracket[0])
    y = torch.where(y.isfinite(), y, (low + high) / 2)
    result = torch.full_like(y, torch.nan)
    weight0, weight1 = weights
    row = torch.arange(len(y), device=y.device)
    for _ in range(_MAX_ITERATIONS):
        sum0, slope0, bend0 = _log_sum(weight0, h0 + y[:, None], extra0)
        sum1, slope1, bend1 = _log_sum(weight1, h1 - y[:, None], extra1)
        value, slope, bend = sum0 - sum1, slope0 + slope1, bend0 - bend1
        newton = value / slope
        step = -newton / (1 - newton * bend / (2 * slope)).clamp(0.5, 2.0)
        low = torch.where(value < 0, torch.maximum(low, y), low)
        high = torch.where(value > 0, torch.minimum(high, y), high)
        trial = y + step
        trial = torch.where((trial >= low) & (trial <= high), trial, (low + high) / 2)
        trial = torch.where(value == 0, y, trial)
        done = (trial - y).abs() <= last_step
        done |= ~(high - low > 1e-15 * high.abs())  # also where something is not finite
        far = torch.maximum(sum0, sum1) < -100
        if far.any():  # both sums stay below 1e-43 up to the root: they are pure exponentials
            trial = torch.where(far, _exponential_root(weight0, weight1, h0, h1), trial)
            done |= far
        trial = torch.where(value.isnan() & ~far, torch.nan, trial)
        done |= trial.isnan()
        y = trial
        result[row[done]] = y[done]
        if done.all():
            break
        if done.any():
            left = ~done
            state = (row, y, low, high, h0, h1, extra0, extra1)
            row, y, low, high, h0, h1, extra0, extra1 = (t[left] for t in state)
            weight0, weight1 = (t if len(t) == 1 else t[left] for t in (weight0, weight1))
    else:
        result[row] = y
    return sign * result


def _log_sum(weight: Tensor, f: Tensor, extra: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """log(Σ weight σ(f) + extra) and its first two derivatives along f."""
    u = f.sigmoid_()
    square = u * u
    first, second, third = (weighted_sum(v, weight) for v in (u, square, square * u))
    total = first + extra
    slope = (first - second) / total
    return total.log(), slope, (first - 3 * second + 2 * third) / total - slope.square()


def _exponential_root(weight0: Tensor, weight1: Tensor, h0: Tensor, h1: Tensor) -> Tensor:
    """y with Σ weight exp(h₀ + y) = Σ weight exp(h₁ − y)."""
    log0 = torch.logsumexp(weight0.log() + h0, dim=-1)
    return (torch.logsumexp(weight1.log() + h1, dim=-1) - log0) / 2
