"""The model of S states with uniform attention, which full training never leaves either."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from flowsim.interface import Integral
from flowsim.markov import SymmetricChain
from flowsim.models.on_chain import OnChain
from flowsim.models.states import HIDDEN_PER_STATE
from flowsim.models.states.distribution import ShareLaw, share_law
from flowsim.models.states.plane import StatesModel, StatesPlane

#: Numbers of an array of logits, at most.
_CHUNK = 4_000_000


class StatesAttentionModel(OnChain):
    """θ = (e, w, v): the plane of S states with attention W_O W_V = v|v| P, uniform over the past.

    With c = S/(S − 1), a = v|v|, f_t the share of state t among x_1 … x_n and
    u_t = 1{x_n = t} + a f_t − (1 + a)/S, the logit of t is, up to a number common to all,

        z_t = A u_t + B ReLU(u_t),   A = c e²,   B = c m w|w| A,

    and L the mean over n ≤ N of the expected cross-entropy of softmax(z), exact by enumeration of
    the shares. The metric is S (de² + 2m dw²) + 2(S − 1) dv². At v = 0 this is ``StatesModel``.
    The field jumps where a value of a opens or shuts units: nowhere for −1 < a < 1/(S − 1).
    Source: own derivation, docs/derivations/20.md.

    Args:
        chain: the data, symmetric on S states.
        length: N ≥ 1, the number of positions averaged over.
        hidden_per_state: m, at least 1.

    Raises:
        InputError: m or N is not an integer of at least 1, or the pasts are too many.

    >>> import flowsim
    >>> model = flowsim.models.StatesAttentionModel(flowsim.chains.SymmetricChain(3, 0.2), length=4)
    >>> round(float(model.loss([1.0, 0.5, 0.0])), 4), round(float(model.loss([1.0, 0.5, -0.5])), 4)
    (0.6949, 0.6509)
    """

    name = "states"
    long_names = MappingProxyType(
        {**OnChain.long_names, "p": "p = P(another state)", "v": "attention v, a = v|v|"}
    )
    heading = "uniform attention on $S$ states"
    attention = True

    coordinates = ("e", "w", "v")
    keeps_sign = (True, True, True)

    def __init__(
        self, chain: SymmetricChain, length: int, hidden_per_state: int = HIDDEN_PER_STATE
    ) -> None:
        #: The model at v = 0, where no row leaves it.
        self.without_attention = StatesModel(chain, hidden_per_state)
        self.chain, self.length, self.hidden_per_state = chain, length, hidden_per_state
        self.distribution: ShareLaw = share_law(chain, length)
        self.metric: tuple[float, ...] = (*self.without_attention.metric, 2.0 * (chain.states - 1))

    def __repr__(self) -> str:
        chosen = f"length={self.length}, hidden_per_state={self.hidden_per_state}"
        return f"StatesAttentionModel({self.chain!r}, {chosen})"

    @property
    def plane(self) -> StatesPlane:
        """The plane (w, e) with v held."""
        plane = self.without_attention
        return StatesPlane(self, *plane.to_canonical, plane.gap_factor)

    def integral(self) -> Integral:
        """Return the integral over the basin in the plane v = 0, for comparison."""
        return self.without_attention.integral()._replace(energy=None, of="plane $v$ = 0")

    def options(self) -> dict[str, Any]:
        """Return S, m, N and that there is attention, by name."""
        attends = {"attention": True, "length": self.length}
        return {**self.without_attention.options(), **attends}

    def _remark(self) -> str:
        """Return no remark."""
        return ""

    def loss(self, theta: Tensor) -> Tensor:
        """Return the expected cross-entropy in nats at θ, shape (...)."""
        return self.chain.entropy_rate + self.excess(theta)

    def gradient(self, theta: Tensor) -> Tensor:
        """Return ∇L, shape of θ.

        With δ_t = softmax(z)_t − P(x_n, t) and sums over t and the law,
        ∂L/∂A = Σ δ u, ∂L/∂B = Σ δ ReLU(u), ∂L/∂a = Σ δ (f − 1/S)(A + B 1{u > 0}).
        """
        return self._by_chunks(theta, self._gradient)

    def _by_chunks(self, theta: Tensor, quantity: Callable[[Tensor], Tensor]) -> Tensor:
        """Apply a quantity of rows (n, 3) to θ (..., 3), in chunks that fit the memory."""
        rows = theta.reshape(-1, 3).double()
        most = max(1, _CHUNK // self.distribution.share.size)
        found = torch.cat([quantity(part) for part in rows.split(most)]) if len(rows) else rows
        return found.reshape((*theta.shape[:-1], *found.shape[1:]))

    def _logit_terms(self, rows: Tensor) -> tuple[Tensor, ...]:
        """Return what logits are made of, for n rows, C classes of pasts and T groups of states.

        A, B (n, 1, 1); u, f − 1/S and the logits (n, C, T); then the law's weight (C,), the
        multiplicity (C, T) and the target of one state of a group (C, T).
        """
        e, w, v = rows[:, :, None, None].unbind(1)
        weight, share, multiplicity = (
            torch.as_tensor(part, device=rows.device) for part in self.distribution
        )
        states, m = self.chain.states, self.hidden_per_state
        ratio, a = states / (states - 1), v * v.abs()
        own = torch.zeros_like(share)
        own[:, 0] = 1.0
        beyond = (share - 1 / states).expand(len(rows), *share.shape)
        u = own - 1 / states + a * beyond
        big_a = ratio * e.square()
        big_b = ratio * m * w * w.abs() * big_a
        logits = big_a * u + big_b * u.clamp(min=0)
        target = own * (1 - self.chain.p) + (1 - own) * self.chain.p / (states - 1)
        return big_a, big_b, u, beyond, logits, weight, multiplicity, target

    def excess(self, theta: Tensor) -> Tensor:
        """Return the loss above the entropy rate, (...): a mean of relative entropies.

        With d = z − log t, whose mean by the target t is taken off, a relative entropy is
        log(1 + Σ t (exp(d) − 1 − d)), where nothing cancels next to d = 0.
        """
        return self._by_chunks(theta, self._excess)

    def _beyond_target(
        self, logits: Tensor, target: Tensor, multiplicity: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return z − log t less its mean by t, (n, C, T), and whether it is in [−1, 1], (n, C)."""
        beyond = logits.clone()
        beyond[..., 0] -= self.chain.target_logit_gap
        beyond -= (target * beyond).sum(-1, keepdim=True)
        return beyond, torch.where(multiplicity > 0, beyond.abs(), 0.0).amax(-1) <= 1.0

    def _excess(self, rows: Tensor) -> Tensor:
        """Return the loss above the entropy rate of rows (n, 3), shape (n,)."""
        *_, logits, weight, multiplicity, target = self._logit_terms(rows)
        target = multiplicity * target
        beyond, small = self._beyond_target(logits, target, multiplicity)
        top = torch.where(multiplicity > 0, beyond, -torch.inf).amax(-1, keepdim=True)
        far = (target * (beyond - top).exp()).sum(-1).log() + top.squeeze(-1)
        near = beyond.clamp(-1.0, 1.0)
        bend = torch.zeros_like(near)
        for k in range(20, 1, -1):  # (exp(d) − 1 − d)/d² by its series
            bend = bend * near + 1 / math.factorial(k)
        close = (target * bend * near * near).sum(-1).log1p()
        return (torch.where(small, close, far) * weight).sum(-1)

    def _gradient(self, rows: Tensor) -> Tensor:
        """Return ∇L of rows (n, 3), shape (n, 3)."""
        big_a, big_b, u, beyond, logits, weight, multiplicity, target = self._logit_terms(rows)
        target = multiplicity * target
        chance = torch.softmax(
            torch.where(multiplicity > 0, logits + multiplicity.log(), -torch.inf), dim=-1
        )
        past, small = self._beyond_target(logits, target, multiplicity)
        rise = past.clamp(-1.0, 1.0).expm1()  # softmax(z) − t, where the two are nearly the same
        mean = (target * rise).sum(-1, keepdim=True)
        close = target * (rise - mean) / (1 + mean)
        off = weight.unsqueeze(-1) * torch.where(small.unsqueeze(-1), close, chance - target)
        by_a = (off * u).sum((-2, -1))
        by_b = (off * u.clamp(min=0)).sum((-2, -1))
        by_share = (off * beyond * (big_a + big_b * (u > 0))).sum((-2, -1))
        e, w, v = rows.unbind(-1)
        ratio = self.chain.states / (self.chain.states - 1)
        gain = ratio * self.hidden_per_state * w * w.abs()
        along_w = 2 * ratio * self.hidden_per_state * w.abs() * ratio * e.square() * by_b
        return torch.stack(
            [2 * ratio * e * (by_a + gain * by_b), along_w, 2 * v.abs() * by_share], dim=-1
        )
