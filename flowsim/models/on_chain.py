"""Common parts of models of one Markov chain: their end losses, and the plane (w, e)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from inspect import signature
from itertools import pairwise, product
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from flowsim.chain import BinaryChain
from flowsim.chains.hidden import SeenChain
from flowsim.curves import Curve
from flowsim.errors import InputError
from flowsim.inheritance import Former
from flowsim.interface import (
    EndLosses,
    Integral,
    Plane,
    Range,
    RecordedModel,
    accepts_theta,
    difference_above,
    theta_at,
)
from flowsim.labels import CriticalPoint
from flowsim.markov import GapChain
from flowsim.models.canonical.basins import minima_curve
from flowsim.models.canonical.gaussian_integral import gaussian_limits, gaussian_probability


def require_first_order(chain: BinaryChain) -> None:
    """Raise InputError for a ``SeenChain``: attention reads more than one symbol of its process."""
    if isinstance(chain, SeenChain):
        raise InputError(
            "with attention the past of a hidden process counts, not its neighbours alone: take a "
            "model without attention, or memory"
        )


def unigram_logit(chain: BinaryChain) -> float:
    """Return log(π₁/π₀), the logit of the unigram's prediction."""
    return math.log(chain.p / chain.q)


def beyond_targets(chain: BinaryChain) -> tuple[float, float]:
    """Return by how much the unigram's logit, log(π₁/π₀), is above those of p and of 1 − q.

    log(1 + λ/q) and log(1 − λ/(1 − q)), which vanish at p + q = 1.
    """
    p, q, lam = chain.p, chain.q, chain.second_eigenvalue
    first, second = lam / q, -lam / (1 - q)
    after_zero = math.log1p(first) if abs(first) < 0.5 else math.log1p(-p) - math.log(q)
    after_one = math.log1p(second) if abs(second) < 0.5 else math.log(p) - math.log1p(-q)
    return after_zero, after_one


class OnChain(RecordedModel):
    """A model of one chain, whose first coordinate is e. The points e = 0 predict the unigram.

    Attributes:
        chain: the data.
        dynamic_bias: whether the bias is a coordinate.
        tied: whether the unembedding is the embedding.
        heading: the first line of the title; by default the name.
    """

    chain: Any
    p, q = Former("p", "chain.p"), Former("q", "chain.q")
    heading = ""
    dynamic_bias = False
    tied = True
    long_names: Mapping[str, str] = MappingProxyType(
        {
            "w": "feed-forward weight w",
            "e": "embedding e",
            "u": "unembedding u",
            "a": "attention a",
            "b": "bias b",
            "p": "p = P(0→1)",
            "q": "q = P(1→0)",
            "length": "positions N",
        }
    )

    @property
    def title(self) -> str:  # type: ignore[override]
        """The heading; the variant of the model and its chain; at most one remark."""
        chosen = self.options()
        words = ["with attention"] * bool(chosen.get("attention"))
        words += ["untied"] * (not chosen.get("tied", True))
        words += ["bias as a coordinate"] * self.dynamic_bias
        sizes = {"states": "S", "hidden_per_state": "m", "length": "N"}
        words += [
            f"${letter}$ = {chosen[name]}" for name, letter in sizes.items() if name in chosen
        ]
        return "\n".join(
            [
                self.heading or self.name.rpartition(":")[2],
                ", ".join([*words, self._chain_words()]),
                *filter(None, [self._remark()]),
            ]
        )

    def _chain_words(self) -> str:
        """Return the title's words for the chain, p, q and the regime."""
        if isinstance(self.chain, SeenChain):
            named = self.chain.process.name
            source = "of a hidden process" if named.startswith("[") else f"of {named}"
            numbers = f"$p$ = {self.chain.p:.4g}, $q$ = {self.chain.q:.4g}"
            sign = self.chain.regime.removeprefix("p + q ")
            return f"first-order projection {source}\n{numbers}: $p + q$ {sign}"
        if not hasattr(self.chain, "q"):
            return f"Markov chain $p$ = {self.chain.p:g}: ${self.chain.regime}$"
        p, q, regime = f"{self.chain.p:g}", f"{self.chain.q:g}", self.chain.regime
        sign = regime.removeprefix("p + q ")
        beyond = "" if sign.startswith("=") else f" {sign}"
        total = f"{self.chain.switching_factor:.15g}{beyond}"
        return f"Markov chain $p$ = {p}, $q$ = {q}: $p + q$ = {total}"

    def _remark(self) -> str:
        """Return the title's remark on tied models' bad minima at p + q < 1, or nothing.

        In a transformer e = τv with v orthogonal to the manifold's α makes the logit b + τ²x, which
        lowers the loss, whatever the other weights (docs/derivations/12.md).
        """
        whole = "the whole transformer, $d$ ≥ 2, has saddles at $e$ = 0"
        alone = f"(minima of this model alone: {whole})"
        return alone if self.tied and self.chain.second_eigenvalue > 0 else ""

    def __repr__(self) -> str:
        usual = signature(type(self)).parameters
        own = [f"{k}={v!r}" for k, v in self.options().items() if v != usual[k].default]
        words = [f"p={self.chain.p!r}", f"q={self.chain.q!r}", *own]
        return f"{type(self).__name__}({', '.join(words)})"

    def __setattr__(self, attribute: str, value: Any) -> None:
        """Set an attribute; InputError for a number in place of the chain."""
        if attribute == "chain" and isinstance(value, (int, float)):
            raise InputError(
                f"{type(self).__name__} takes a chain, such as BinaryChain(0.5, 0.8), not "
                f'{value!r}; flowsim.model("{self.name}", 0.5, 0.8) takes p and q'
            )
        super().__setattr__(attribute, value)

    def _choose_bias(self, bias: str) -> None:
        """Minimise the bias out, or make it the last coordinate; InputError for another word."""
        if bias not in ("optimal", "dynamic"):
            raise InputError(f'bias must be "optimal" or "dynamic", not {bias!r}')
        self.dynamic_bias = bias == "dynamic"
        if self.dynamic_bias:
            self.keeps_sign = (*self.keeps_sign, False)
            self.coordinates = (*self.coordinates, "b")

    @accepts_theta
    def optimal_bias(self, theta: Tensor) -> Tensor:
        """The bias that minimises the loss at θ, shape (...); 0 of a model without a bias."""
        return torch.zeros_like(theta[..., 0])

    @property
    def plane(self) -> Plane:
        """The plane (w, e)."""
        return ChainPlane(self)

    def end_losses(self) -> EndLosses:
        """Return the losses of the global minima and the unigram, and what decides between them."""
        chain: GapChain = self.chain
        law, lam = chain.stationary, float(chain.second_eigenvalue)
        best, trap, spread = chain.entropy_rate, chain.stationary_entropy, law[0] * law[-1]
        return EndLosses(
            best, trap, chain.mutual_information, spread * abs(lam), spread * max(abs(lam), 0.1),
            self.excess, self.basin, self.classify, integral=self.integral,
        )  # fmt: skip

    @accepts_theta
    def excess(self, theta: Tensor) -> Tensor:
        """Return the loss above the entropy rate at θ, shape (...)."""
        return difference_above(self.loss(theta), self.chain.entropy_rate)

    @accepts_theta
    def basin(self, theta: Tensor) -> Tensor | None:
        """Return a mask of starts that reach the best loss, by a closed form; None without one."""
        return None

    @accepts_theta
    def classify(self, theta: Tensor, decisive: bool = False) -> Tensor | None:
        """Return labels of critical points, int8 (...); None to take their loss and curvature."""
        return None

    def integral(self) -> Integral | None:
        """Return the integral over the canonical model's basin, for comparison."""
        return canonical_integral(self.chain)._replace(of="canonical model")

    def attributes(self) -> dict[str, Any]:
        """Return attributes of a record, with p, q, hidden process and regime of the chain."""
        own = {name: getattr(self.chain, name) for name in "pq" if hasattr(self.chain, name)}
        own |= {"process": self.chain.process.name} if isinstance(self.chain, SeenChain) else {}
        return {**super().attributes(), **own, "regime": self.chain.regime}


def canonical_integral(chain: GapChain, scale: float = 1.0, ratio: float = 1.0) -> Integral:
    """Return the integral over the canonical model's basin of starts with e ~ N(0, (scale σ)²).

    The deviation of w is that of e times ``ratio``.
    """
    limits = gaussian_limits(chain, ratio)
    return Integral(lambda sigma: gaussian_probability(chain, scale * sigma, ratio), *limits)


#: Names of curves of critical points of one kind.
KINDS = {
    CriticalPoint.LOCAL_MAXIMUM: "local maxima",
    CriticalPoint.SADDLE: "saddles",
    CriticalPoint.LOCAL_MINIMUM: "local minima",
    CriticalPoint.GLOBAL_MINIMUM: "global minima",
}


def sample_graph(
    graph: Callable[[Tensor], Tensor],
    across: Range,
    up: Range,
    points: int,
) -> tuple[Tensor, Tensor]:
    """Return x and y of the graph y(x) over ``across``, denser where it is steep or ends."""
    x, (low, high) = torch.linspace(*across, points, dtype=torch.float64), up
    y = graph(x)
    for _ in range(60):
        far = ~(y.diff().abs() <= (high - low) / 200)  # or one of the two is none
        inside = y.abs() <= max(-low, high)
        left, right = x[:-1], x[1:]
        size = torch.maximum(left.abs(), right.abs())
        jumps = far & (inside[1:] | inside[:-1]) & (x.diff() > 1e-7 * size)
        if not jumps.any():
            break
        left, right = left[jumps], right[jumps]
        # even in the logarithm: a separatrix comes as near to 0 as exp(-y²)
        between = (left.sign() + right.sign()) / 2 * left.abs().sqrt() * right.abs().sqrt()
        between = torch.where((left == 0) | (right == 0), (left + right) * 1e-9, between)
        x, order = torch.cat([x, between]).sort()
        y = torch.cat([y, graph(between)])[order]
    return x, y


class ChainPlane(Plane):
    """(w, e) of a model of one chain; the points (w, 0) are critical, and −e mirrors e.

    Coordinates that are not fixed are 0, but for an unembedding u, which is e, and the best b.
    """

    model: OnChain
    x, y = "w", "e"
    #: The model that has the separatrix, where it is another one; w of the canonical model over
    #: this one's; whether the critical points on e = 0 take long to find.
    separatrix_of = ""
    per_w = 1.0
    slow_line = False

    def __init__(self, model: OnChain, starts: tuple[tuple[str, ...], ...] = ()) -> None:
        super().__init__(model)
        starts = starts or self.defaults.starts
        refused = {"b", "u"} & {*starts[0]} or not model.tied
        why = "Gaussian starts (e, w) or (e, w, a) need a tied model, bias optimal"
        self.defaults = replace(
            self.defaults, starts=starts, no_cloud=why if refused else "", third=None, space={}
        )

    def embed(self, values: Mapping[str, Tensor]) -> Tensor:
        """Return θ (..., k) at the given coordinates; u is e, and b the best one, unless given."""
        theta = super().embed({"u": values["e"], **values})
        if self.model.dynamic_bias and "b" not in values:
            theta[..., -1] = self.model.optimal_bias(theta)
        return theta

    def mirrored(self, fixed: Mapping[str, float]) -> bool:
        """Return True: the point (w, −e) has the same orbits as (w, e), mirrored."""
        return True

    def curves(
        self,
        window: Mapping[str, Range],
        fixed: Mapping[str, float],
        points: int = 1201,
        quick: bool = False,
    ) -> list[Curve]:
        """Return the separatrix, the global minima and the critical points on e = 0 in a window.

        ``quick`` leaves out the points on e = 0 where they take long to find.
        """
        found: list[Curve] = []
        both = (1, -1) if self.mirrored(fixed) else (1,)
        for kind, graph, of in (("separatrix", self.separatrix, self.separatrix_of),
                                ("global minima", self.minima, "")):  # fmt: skip
            x, y = sample_graph(partial(graph, fixed=fixed), window[self.x], window[self.y], points)
            if y.isfinite().any():
                found += [Curve(kind, x, sign * y, of) for sign in both]
        if quick and self.slow_line:
            return found
        # the critical points e = 0 by kind: pieces of the axis, and the saddles between them
        low, high = window[self.x]
        x = torch.linspace(low, high, points, dtype=torch.float64)
        kinds = self.axis_kinds(x, fixed)
        if kinds is None:
            return found
        saddles = self.saddles(x, fixed)
        for left, right in pairwise([low, *saddles.tolist(), high]):
            inside = kinds[(x > left) & (x < right)]
            if len(inside):
                kind = KINDS[CriticalPoint(int(inside.mode().values))]
                found.append(Curve(kind, x.new_tensor([left, right]), x.new_zeros(2)))
        if self.model.chain.second_eigenvalue == 0 and not (fixed.get("a") or fixed.get("v")):
            at = -(0.5**0.5) / self.per_w  # where no logit depends on the symbol either
            y = x.new_tensor(window[self.y])
            found.append(Curve("global minima", torch.full_like(y, at), y))
        return [*found, *(Curve("saddle", at[None], torch.zeros_like(at[None])) for at in saddles)]

    def separatrix(self, x: Tensor, fixed: Mapping[str, float]) -> Tensor:
        """Return the e ≥ 0 of the basins' boundary above each w, by a closed form; else NaN."""
        return torch.full_like(x, torch.nan)

    def minima(self, x: Tensor, fixed: Mapping[str, float]) -> Tensor:
        """Return the e of global minima above each w, by the canonical model; NaN where unknown.

        Its curves hold without attention and without a fixed bias.
        """
        flat = "b" not in fixed and not fixed.get("a")
        return minima_curve(self.model.chain, x) if flat else torch.full_like(x, torch.nan)

    def axis_kinds(self, x: Tensor, fixed: Mapping[str, float]) -> Tensor | None:
        """Return the kinds of the points (w, 0), by the sign of ∂²L/∂e²; None with a fixed bias.

        ∂²L/∂e² is read off the gradient a little above the line, where it is ∂L/∂e / e. With
        attention its sign is that of −λC(w, a), and C = 0 is the saddle curve
        (docs/derivations/06.md).
        """
        if "b" in fixed:
            return None
        eigenvalue, law = self.model.chain.second_eigenvalue, self.model.chain.stationary
        if eigenvalue == 0:
            return torch.full_like(x, CriticalPoint.GLOBAL_MINIMUM, dtype=torch.int8)
        curvature = self.curvature(x, fixed)
        flat = curvature.abs() < 1e-10 * law[0] * law[-1] * abs(eigenvalue)
        return torch.where(flat, 0.0, torch.sign(curvature)).to(torch.int8)

    def saddles(self, x: Tensor, fixed: Mapping[str, float]) -> Tensor:
        """Return the w of saddles (w, 0): where the curvature in e changes sign, by bisection."""
        if self.model.chain.second_eigenvalue == 0:
            return x[:0]
        above = self.curvature(x, fixed) > 0
        change = above[1:] != above[:-1]
        low, high, below = x[:-1][change], x[1:][change], above[:-1][change]
        for _ in range(45):
            middle = (low + high) / 2
            same = (self.curvature(middle, fixed) > 0) == below
            low, high = torch.where(same, middle, low), torch.where(same, high, middle)
        return (low + high) / 2

    def curvature(self, x: Tensor, fixed: Mapping[str, float]) -> Tensor:
        """Return ∂²L/∂e² at e = 0 above each x = w, shape of x."""
        theta = theta_at(self, x, torch.zeros_like(x), fixed)
        theta[..., 0] = 1e-6
        return self.model.gradient(theta)[..., 0] / 1e-6


#: Starts (e, w, a) of orbits in space, and those around the origin.
_FAR = tuple(product((-1.6, 0.5, 1.6), (-1.9, -1.1, -0.35, 0.35, 1.5), (-0.7, 0.1, 0.8)))
_NEAR = tuple(product((-0.12, 0.12), (-0.28, -0.1, 0.1, 0.28), (-0.28, 0.0, 0.28)))


class AttentionPlane(ChainPlane):
    """(w, e) with a held; in space (e, w, a), unless the bias is a coordinate too."""

    def __init__(
        self, model: OnChain, starts: tuple[tuple[str, ...], ...] = (), in_space: bool = True
    ) -> None:
        super().__init__(model, starts)
        if in_space and not model.dynamic_bias:
            self.defaults = replace(
                self.defaults,
                third="a",
                space={"w": (-2.5, 2.5), "e": (-2.0, 2.0), "a": (-1.0, 1.0)},
                far=_FAR,
                near=_NEAR,
            )
