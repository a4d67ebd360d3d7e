"""The canonical model with uniform attention over a finite past, θ = (e, w, a), exactly.

Zero queries and keys spread the attention evenly, so the logit at position n sees the past through
m_n = (1/n) Σ_{i≤n} (x_i − ½) alone, with s = x − ½ + a·m:

    logit = e²[s + 4w|w| ReLU(s)] + b,      L = (1/N) Σ_n E cross-entropy.

The expectation is a finite sum over the law of (x_n, m_n); nothing is sampled.
Source: LG (canonical parameters); the exact law is own derivation.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from flowsim.chain import BinaryChain
from flowsim.errors import InputError
from flowsim.models.autograd import Gradient, Hessian, Loss
from flowsim.models.base import described, of_theta
from flowsim.models.bias import entropy_given, optimal_shift
from flowsim.models.past_law import check_length, running_mean_law
from flowsim.models.uniform.expansion import Expansion, class_sums, expand
from flowsim.models.uniform.nodes import NOT_FINITE, Nodes, NodeTable, affine_logits, node_table

#: Node values computed at once: temporaries take a few times 8 bytes of this.
CHUNK = 2**17


class AttentionModel:
    """The reduced model with uniform attention, θ = (e, w, a), or (e, w, a, b) with dynamic bias.

    The loss is convex in b, so b is minimised out ("optimal") or one more coordinate ("dynamic").
    For |a| < 1 the loss is smooth but at w = 0, where only its first derivatives exist; beyond, the
    ReLU switches side inside the law and L is piecewise smooth, with ReLU'(0) = 0. No conserved
    quantity is known. ``loss`` can be differentiated twice and ``gradient`` once, by torch.autograd
    and by torch.func (grad, hessian, jacfwd, jacrev, vmap).

    Args:
        chain: the data.
        length: N ≥ 1, the number of positions averaged over.
        bias: "optimal" or "dynamic".
        compress: sum over few nodes instead of all atoms of the law, with errors below 1e-11.

    Raises:
        InputError: N not an integer, below 1 or too large for the memory; unknown bias.
    """

    name = "uniform"

    coordinates: tuple[str, ...] = ("e", "w", "a")
    keeps_sign: tuple[bool, ...] = (True, True, False)
    conserved_names: tuple[str, ...] = ()
    loss_of_gap = False

    def __init__(
        self, chain: BinaryChain, length: int, bias: str = "optimal", compress: bool = True
    ) -> None:
        if bias not in ("optimal", "dynamic"):
            raise InputError(f'bias must be "optimal" or "dynamic", not {bias!r}')
        self.chain, self.length, self.compress = chain, check_length(length), compress
        running_mean_law(chain, self.length)
        self.dynamic_bias = bias == "dynamic"
        if self.dynamic_bias:
            self.coordinates = (*self.coordinates, "b")
            self.keeps_sign = (*self.keeps_sign, False)
        self.metric = (1.0,) * len(self.coordinates)

    def __repr__(self) -> str:
        return described(self)

    @of_theta
    def loss(self, theta: Tensor) -> Tensor:
        """Exact expected next-symbol cross-entropy in nats, shape (...) for θ of shape (..., k)."""
        return Loss.apply(self, theta)

    @of_theta
    def gradient(self, theta: Tensor) -> Tensor:
        """∇L, shape of ``theta``. With ω = weight (σ(f) − t), f the logit,

        ∂L/∂e = 2e Σ ω [s + 4w|w| ReLU(s)], ∂L/∂w = 8|w|e² Σ ω ReLU(s),
        ∂L/∂a = e² Σ ω m [1 + 4w|w| 1{s>0}] and, for a dynamic bias, ∂L/∂b = Σ ω.
        """
        return Gradient.apply(self, theta)

    @of_theta
    def optimal_bias(self, theta: Tensor) -> Tensor:
        """The bias b that minimises the loss at θ, shape (...); a stored bias is ignored.

        Where the logits of the two symbols lie so far apart that no bias changes the loss by more
        than 1e-20, it rests on the far tails of the law, which compression leaves out. Carries no
        derivative.
        """
        return self.by_rows(theta, "bias")

    @of_theta
    def conserved(self, theta: Tensor) -> Tensor:
        """Shape (..., 0): no conserved quantity is known."""
        return theta.new_zeros(*theta.shape[:-1], 0)

    @of_theta
    def hessian(self, theta: Tensor) -> Tensor:
        """∂²L by automatic differentiation, shape (..., k, k), without the jumps at ReLU kinks."""
        return Hessian.apply(self, theta)

    def plane_covariance(self, w: Tensor, a: Tensor) -> Tensor:
        """C(w, a) = (1/N) Σ_n Cov(x_n, s_n + 4w|w| ReLU(s_n)), broadcast shape of w and a.

        Near the plane e = 0 of critical points, L = h(π₁) − λ C e² + O(e⁴), so ∂²L/∂e² = −2λC: a
        point of the plane is a local minimum where λC < 0, a maximum across the plane where
        λC > 0, and C = 0 is the saddle curve. For |a| < 1 in closed form,

            C = π₀π₁ {1 + a c̄ + 4w|w| [½ + a(π₁ − ½ + π₀ c̄)]},  c̄ = (1/N) Σ_n (1 − λⁿ)/(n(1 − λ)),

        and from the law beyond, without derivative.
        """
        w, a = torch.broadcast_tensors(w, a)
        gamma = 4 * w * w.abs()
        pi0, pi1 = self.chain.stationary
        lam = self.chain.second_eigenvalue
        n = torch.arange(1, self.length + 1, dtype=torch.float64)
        mean = float(((1 - lam**n) / n).mean()) / (1 - lam)
        closed = 1 + a * mean + gamma * (0.5 + a * (pi1 - 0.5 + pi0 * mean))
        result = pi0 * pi1 * closed
        beyond = a.abs() >= 1
        theta = torch.stack([torch.ones_like(a), w, a], dim=-1)[beyond]
        result[beyond] = self.by_rows(theta, "covariance")
        return result

    def table(self, device: torch.device) -> NodeTable:
        """The law's nodes on a device."""
        return node_table(self.chain, self.length, self.compress, device)

    def by_rows(self, theta: Tensor, quantity: str) -> Tensor:
        """One quantity for all rows, group by group and chunk by chunk."""
        rows = theta.detach().reshape(-1, theta.shape[-1]).double()
        k = rows.shape[-1]
        shape = {"gradient": (k,), "hessian": (k, k)}.get(quantity, ())
        result = rows.new_full((len(rows), *shape), torch.nan)
        table = self.table(theta.device)
        groups = table.groups(rows)
        for group, index in _chunks(groups, table):
            result[index] = getattr(self, f"_{quantity}")(rows[index], group, table)
        return result.reshape((*theta.shape[:-1], *shape))

    def _shift(self, rows: Tensor, group: int, table: NodeTable, nodes: list[Nodes]) -> Tensor:
        """β = b − e²/2 at the optimal bias or, where b is a coordinate, at that."""
        if self.dynamic_bias:
            return rows[:, 3] - rows[:, 0].square() / 2
        return self._optimal_shift(rows, group, table, nodes)

    def _optimal_shift(
        self, rows: Tensor, group: int, table: NodeTable, nodes: list[Nodes]
    ) -> Tensor:
        e, w, a = rows[:, :3].unbind(-1)
        ends = torch.tensor([-1.0, -1.0, 1.0, 1.0, 0.0], device=rows.device) / 2
        s = ends + a[:, None] * torch.tensor([-0.5, 0.5, -0.5, 0.5, 0.0], device=rows.device)
        h = e[:, None] ** 2 * (s + 0.5 + (4 * w * w.abs())[:, None] * s.clamp(min=0.0))
        centre = math.log(self.chain.p / self.chain.q)
        bracket = centre - h.amax(-1) - 1, centre - h.amin(-1) + 1
        affine, guess = affine_logits(rows), None
        if (coarse := table.coarse_nodes(group, a)) is not None:
            guess = [n.weight for n in coarse], [n.logits(affine) for n in coarse]
        logits = [n.logits(affine) for n in nodes]
        return optimal_shift(self.chain, [n.weight for n in nodes], logits, bracket, guess)

    def _bias(self, rows: Tensor, group: int, table: NodeTable) -> Tensor:
        nodes = table.nodes(group, rows[:, 2])
        return self._optimal_shift(rows, group, table, nodes) + rows[:, 0].square() / 2

    def _loss(self, rows: Tensor, group: int, table: NodeTable) -> Tensor:
        nodes = table.nodes(group, rows[:, 2])
        affine, shift = affine_logits(rows), self._shift(rows, group, table, nodes)
        total = torch.zeros_like(shift)
        for law in nodes:
            f = law.logits(affine, shift)
            total = total + law.integrate(entropy_given(self.chain, law.x, f))
        return total

    def _gradient(self, rows: Tensor, group: int, table: NodeTable) -> Tensor:
        return self._expand(rows, group, table, second=False).gradient

    def _covariance(self, rows: Tensor, group: int, table: NodeTable) -> Tensor:
        """C from the law, for e = 1."""
        pi0, pi1 = self.chain.stationary
        nodes, affine = table.nodes(group, rows[:, 2]), affine_logits(rows)
        given0, given1 = (n.integrate(n.logits(affine)) for n in nodes)
        return pi0 * given1 - pi1 * given0

    def _hessian(self, rows: Tensor, group: int, table: NodeTable) -> Tensor | None:
        return self._expand(rows, group, table, second=True).hessian

    def _expand(self, rows: Tensor, group: int, table: NodeTable, second: bool) -> Expansion:
        nodes = table.nodes(group, rows[:, 2])
        shift = self._shift(rows, group, table, nodes)
        sums = class_sums(self.chain, nodes, affine_logits(rows), shift)
        return expand(sums, rows, second)


def _chunks(groups: Tensor, table: NodeTable) -> Iterator[tuple[int, Tensor]]:
    """Every group that is finite with the indices of its rows, a bounded number at a time."""
    for group in groups.unique().tolist():
        if group != NOT_FINITE:
            members = (groups == group).nonzero()[:, 0]
            for index in members.split(max(1, CHUNK // table.size(group))):
                yield group, index
