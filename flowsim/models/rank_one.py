"""The rank-one manifold: coordinates in which the full transformer's gradient flow is exact.

Embedding e·α, positions ρ_n·α, W_1 = (w₁/√d) 1 αᵀ, W_2 = (w₂/√d) α 1ᵀ with r/d = 4 hidden units per
dimension, W_V = v β αᵀ, W_O = o α βᵀ, zero queries and keys, a bias b and, untied, an unembedding
c·α: gradient flow never leaves this set. With X_i = e x_i + ρ_i, Y_n = X_n + o v (1/n) Σ_{i≤n} X_i,

    logit_n = u [Y_n + 4 w₂ ReLU(w₁ Y_n)] + b,      u = e (tied) or c (untied).

Source: docs/derivations.md, 7; LG for the rank-one form.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from flowsim.arrays import accepts_arrays
from flowsim.chain import BinaryChain
from flowsim.errors import InputError
from flowsim.models.autograd import Gradient, Hessian, Loss, second_derivatives
from flowsim.models.base import described, of_theta
from flowsim.models.bias import entropy_given, optimal_shift, residual_given
from flowsim.models.past_law import check_length, joint_law
from flowsim.models.rank_one_point import RankOnePoint

#: r/d, hidden units per embedding dimension, as in AM.
WIDTH_RATIO = 4.0
#: With attention the ReLU's kink is rounded off over this width of w₁Y, to both sides, where orbits
#: are followed to limits, paths and times (``flow.rows.smooth.attention``); ``loss`` is exact.
RELU_WIDTH = 1e-4
#: Values computed at once: temporaries take about ten times 8 bytes of this.
_CHUNK = 2**20
#: Peak bytes per unit of N(N + 1) with attention: the law, then a row's temporaries.
_BYTES = 250


class RankOneModel:
    """The reduced model on the rank-one manifold; its flow is −G⁻¹∇L with the induced metric G.

    Coordinates without attention: (e, rho, w1, w2, b) with metric (1, N, 4, 4, 1), all positions
    being equal; with attention: (e, rho1, …, rhoN, w1, w2, o, v, b) with metric 1 except 4 for w1
    and w2. Untied, c comes last. The ReLU makes the loss piecewise smooth; ReLU'(0) = 0, as in
    torch. The gradient is discontinuous where w₁Y_n = 0, and orbits may slide along that set.

    Conserved are w₁² − w₂² ("feed_forward_balance"), o² − v² ("attention_balance") and, untied,
    e² + Σ_n ρ_n² − c² ("embedding_balance"): the logit without b is homogeneous in (e, ρ) and c.

    Args:
        chain: the data.
        length: N ≥ 1.
        attention: whether the attention layer is there; its cost is about N² per row.
        tied: whether the unembedding is the embedding.

    Raises:
        InputError: N is not an integer, below 1 or too large for the memory.
    """

    name = "rank-one"
    loss_of_gap = False

    def __init__(
        self, chain: BinaryChain, length: int, attention: bool = False, tied: bool = True
    ) -> None:
        self.chain, self.attention, self.tied = chain, attention, tied
        self.length = check_length(length, _BYTES if attention else 0)
        count = self.length if attention else 1
        rho = [f"rho{n}" for n in range(1, count + 1)] if attention else ["rho"]
        layer = ["o", "v"] if attention else []
        self.coordinates = ("e", *rho, "w1", "w2", *layer, "b", *([] if tied else ["c"]))
        position = 1.0 if attention else float(self.length)
        ones = [1.0] * (len(layer) + 1 + (not tied))
        self.metric = (1.0, *[position] * count, WIDTH_RATIO, WIDTH_RATIO, *ones)
        self.keeps_sign = (False,) * len(self.coordinates)
        names = [("feed_forward_balance", True), ("attention_balance", attention)]
        names.append(("embedding_balance", not tied))
        self.conserved_names = tuple(name for name, present in names if present)
        if attention:
            law = joint_law(chain, self.length) / self.length
            n = np.arange(1, count + 1)
            share = np.arange(count + 1)[None, :] / n[:, None]
        else:  # only the symbol matters; the shared position stands for all
            law = np.array(chain.stationary)[None, :, None]
            share = np.zeros((1, 1))
        self._law = torch.as_tensor(law)  # P(x_n = x, S_n = S)/N, axes (n, x, S)
        self._share = torch.as_tensor(share)  # S/n, axes (n, S)

    def __repr__(self) -> str:
        return described(self)

    @of_theta
    def loss(self, theta: Tensor) -> Tensor:
        """Exact expected next-symbol cross-entropy in nats, shape (...) for θ of shape (..., k)."""
        return Loss.apply(self, theta)

    @of_theta
    def gradient(self, theta: Tensor) -> Tensor:
        """∇L, shape of ``theta``; the flow is −∇L divided by the metric."""
        return Gradient.apply(self, theta)

    @of_theta
    def hessian(self, theta: Tensor) -> Tensor:
        """∂²L by automatic differentiation, shape (..., k, k), without the jumps at ReLU kinks."""
        return Hessian.apply(self, theta)

    @of_theta
    def optimal_bias(self, theta: Tensor) -> Tensor:
        """The bias b that minimises the loss at θ, shape (...); the stored bias is ignored."""
        return self.by_rows(theta, "bias")

    def stiffness(self, theta: Tensor) -> Tensor:
        """Trace of G⁻¹ Σ law·s·∇f ∇fᵀ with s = max(σ′(f), t(1 − t)), shape (...).

        Near the target it bounds the largest curvature of the loss in the metric, so that a step
        well below its inverse is stable (own derivation; the Gauss-Newton matrix). The positions
        count as one that moves N times slower.
        """
        return self.by_rows(theta, "stiffness")

    def by_rows(self, theta: Tensor, quantity: str) -> Tensor:
        """One quantity for all rows, chunk by chunk."""
        rows = theta.detach().reshape(-1, theta.shape[-1]).double()
        chunks = rows.split(max(1, _CHUNK // self._law.numel()))
        values = torch.cat([getattr(self, f"_{quantity}")(chunk) for chunk in chunks])
        return values.reshape(theta.shape[:-1] + values.shape[1:])

    @of_theta
    def conserved(self, theta: Tensor) -> Tensor:
        """The conserved quantities in the order of ``conserved_names``, shape (..., count)."""
        part = self._split(theta)
        values = [part["w1"].square() - part["w2"].square()]
        if self.attention:
            values.append(part["o"].square() - part["v"].square())
        if not self.tied:
            positions = part["rho"].square().sum(-1) * self.metric[1]
            values.append(part["e"].square() + positions - part["c"].square())
        return torch.stack(values, dim=-1)

    @accepts_arrays
    def from_canonical(self, theta: Tensor) -> Tensor:
        """The lift of canonical coordinates: a point of this model with the same logits.

        As ``RankOnePoint.from_canonical``, with c = e and b, if not given, at its optimum.

        Args:
            theta: (e, w) or, with attention, (e, w, a), optionally followed by b; shape (..., k).

        Returns:
            Shape (..., len(coordinates)).

        Raises:
            InputError: ``theta`` has another number of columns.
        """
        given = theta.shape[-1] - 2 - self.attention
        if given not in (0, 1):
            names = "(e, w, a)" if self.attention else "(e, w)"
            raise InputError(
                f"canonical coordinates are {names}, optionally with b, "
                f"not {theta.shape[-1]} columns"
            )
        canonical, count = theta[..., : 2 + self.attention], len(self._law)
        bias = theta[..., -1] if given else 0.0
        point = RankOnePoint.from_canonical(canonical, count, bias)
        lifted = point.to_coordinates(self.attention, self.tied)
        if not given:
            lifted[..., self.coordinates.index("b")] = self.optimal_bias(lifted)
        return lifted

    def point(self, theta: Tensor) -> RankOnePoint:
        """The point at θ of shape (..., k) by names, with all N positions."""
        return RankOnePoint.from_coordinates(theta, self.length, self.attention, self.tied)

    @of_theta
    def to_canonical(self, theta: Tensor) -> Tensor:
        """(e, w) or (e, w, a) with w|w| = w₁w₂ and a = o v, shape (..., 2 or 3).

        Inverts :meth:`from_canonical` on its image, up to b; elsewhere it is a projection.
        """
        return self.point(theta).to_canonical()[..., : 2 + self.attention]

    def _split(self, theta: Tensor) -> dict[str, Tensor]:
        """Coordinates by name, each (...), the positions together as (..., 1 or N)."""
        count = len(self._law)
        part = {"e": theta[..., 0], "rho": theta[..., 1 : 1 + count]}
        names = self.coordinates[1 + count :]
        part.update(zip(names, theta[..., 1 + count :].unbind(-1), strict=True))
        part["u"] = part["e"] if self.tied else part["c"]
        return part

    def _inner(self, part: dict[str, Tensor], x: int) -> tuple[Tensor, Tensor]:
        """Y after symbol x and the mean of X over the past, (rows, n, S) or less."""
        current = _wide(part["e"]) * x + part["rho"][:, :, None]
        if not self.attention:
            return current, torch.zeros_like(current)
        n = torch.arange(1, self.length + 1, device=current.device)
        mean_rho = part["rho"].cumsum(-1) / n
        mean = _wide(part["e"]) * self._share.to(current.device) + mean_rho[:, :, None]
        return current + _wide(part["o"] * part["v"]) * mean, mean

    def _output(self, part: dict[str, Tensor], y: Tensor) -> Tensor:
        """Y + 4 w₂ ReLU(w₁ Y), the logit up to the factor u and the bias."""
        return y + WIDTH_RATIO * _wide(part["w2"]) * (_wide(part["w1"]) * y).clamp(min=0.0)

    def _loss(self, rows: Tensor) -> Tensor:
        part = self._split(rows)
        total = torch.zeros_like(part["b"])
        for x, law in enumerate(self._law.to(rows.device).unbind(1)):
            f = _wide(part["u"]) * self._output(part, self._inner(part, x)[0]) + _wide(part["b"])
            total = total + (law * entropy_given(self.chain, x, f)).sum((1, 2))
        return total

    def _gradient(self, rows: Tensor) -> Tensor:
        part = self._split(rows)
        sums = {name: torch.zeros_like(part["b"]) for name in ("e", "w", "mean", "b", "u")}
        by_y = torch.zeros_like(part["rho"])  # of Y_n, the sum over x and S
        for x, law in enumerate(self._law.to(rows.device).unbind(1)):
            y, mean = self._inner(part, x)
            output = self._output(part, y)
            f = _wide(part["u"]) * output + _wide(part["b"])
            omega = law * residual_given(self.chain, x, f)
            by_output = _wide(part["u"]) * omega
            by_relu = WIDTH_RATIO * by_output * (_wide(part["w1"]) * y > 0)
            here = by_output + _wide(part["w1"] * part["w2"]) * by_relu
            by_y += here.sum(2)
            sums["e"] += x * here.sum((1, 2))
            sums["w"] += (by_relu * y).sum((1, 2))
            sums["b"] += omega.sum((1, 2))
            sums["u"] += (omega * output).sum((1, 2))
            if self.attention:
                share = self._share.to(rows.device)
                sums["e"] += part["o"] * part["v"] * (here * share).sum((1, 2))
                sums["mean"] += (here * mean).sum((1, 2))
        by_rho = by_y
        columns = {"w1": part["w2"] * sums["w"], "w2": part["w1"] * sums["w"], "b": sums["b"]}
        if self.attention:
            n = torch.arange(1, self.length + 1, device=rows.device)
            later = (by_y / n).flip(-1).cumsum(-1).flip(-1)  # Σ_{k≥n} of ∂L/∂Y_k / k
            by_rho = by_y + (part["o"] * part["v"])[:, None] * later
            columns |= {"o": part["v"] * sums["mean"], "v": part["o"] * sums["mean"]}
        by_e = sums["e"] + sums["u"] if self.tied else sums["e"]
        columns["c"] = sums["u"]
        tail = [columns[name] for name in self.coordinates[1 + by_rho.shape[1] :]]
        return torch.cat([by_e[:, None], by_rho, torch.stack(tail, dim=-1)], dim=-1)

    def _stiffness(self, rows: Tensor) -> Tensor:
        part, total = self._split(rows), torch.zeros_like(rows[:, 0])
        zero = torch.zeros_like(part["e"])
        inner = _wide(part["o"] * part["v"] if self.attention else zero)
        u, w1, w2 = (_wide(part[name]) for name in ("u", "w1", "w2"))
        share = self._share.to(rows.device)
        for x, law in enumerate(self._law.to(rows.device).unbind(1)):
            y, mean = self._inner(part, x)
            output, relu = self._output(part, y), (w1 * y).clamp(min=0.0)
            open_y = (w1 * y > 0) * y
            slope = u * (1 + WIDTH_RATIO * w1 * w2 * (w1 * y > 0))
            by_e = slope * (x + inner * share) + (output if self.tied else 0.0)
            squares = by_e.square() + (slope * (1 + inner)).square() / self.length + 1
            squares = squares + WIDTH_RATIO * u.square() * (relu.square() + (w2 * open_y).square())
            if self.attention:
                ways = part["o"].square() + part["v"].square()
                squares = squares + _wide(ways) * (slope * mean).square()
            if not self.tied:
                squares = squares + output.square()
            chance = torch.sigmoid(u * output + _wide(part["b"]))
            target = self.chain.p if x == 0 else 1 - self.chain.q
            weight = law * (chance * (1 - chance)).clamp(min=target * (1 - target))
            total = total + (weight * squares).sum((1, 2))
        return total

    def _hessian(self, rows: Tensor) -> Tensor:
        return second_derivatives(self._loss, rows)

    def _bias(self, rows: Tensor) -> Tensor:
        part = self._split(rows)
        outputs = [self._output(part, self._inner(part, x)[0]) for x in (0, 1)]
        shape = (len(rows), *self._law[:, 0].shape)
        h = [(_wide(part["u"]) * output).expand(shape).flatten(1) for output in outputs]
        weights = [law.flatten()[None] for law in self._law.to(rows.device).unbind(1)]
        low, high = h[0].aminmax(dim=-1)
        low1, high1 = h[1].aminmax(dim=-1)
        centre = math.log(self.chain.p / self.chain.q)
        bracket = (
            centre - torch.maximum(high, high1) - 1,
            centre - torch.minimum(low, low1) + 1,
        )
        return optimal_shift(self.chain, weights, h, bracket)


def _wide(value: Tensor) -> Tensor:
    """One value per row, to be broadcast over n and S."""
    return value[:, None, None]
