"""The canonical model on symbols of a hidden chain, each flipped with the same chance."""

from __future__ import annotations

from typing import Any

from flowsim.models.canonical.model import CanonicalModel
from flowsim.models.flips.chain import FlippedChain


class FlipsModel(CanonicalModel):
    """θ = (e, w) on x_n = z_n, or 1 − z_n with chance ε, where z is the chain (p, q).

    A prediction that reads the present symbol alone has the loss, and so the flow and the basins,
    of the canonical model on the chain (p̃, q̃) of neighbouring symbols. Since ε < ½ keeps the sign
    of 1 − p − q, flips make no trap and remove none. The best loss is that of such a prediction,
    H(x' | x), which is above the entropy rate of x.

    Args:
        chain: the data, ``FlippedChain.of(BinaryChain(p, q), flip)``.
        bias: "optimal" (minimised out) or "dynamic" (θ = (e, w, b)).
    """

    name = "flips"
    heading = "canonical model of a hidden chain"
    chain: FlippedChain

    def _chain_words(self) -> str:
        p, q, flip = (f"{x:g}" for x in (self.chain.hidden.p, self.chain.hidden.q, self.chain.flip))
        return f"hidden chain $p$ = {p}, $q$ = {q}, flipped with chance {flip}: {self.chain.regime}"

    def options(self) -> dict[str, Any]:
        return {"flip": self.chain.flip, **super().options()}

    def attributes(self) -> dict[str, Any]:
        return {**super().attributes(), "p": self.chain.hidden.p, "q": self.chain.hidden.q}

    def __repr__(self) -> str:
        return f"FlipsModel({self.chain!r}, bias={super().options()['bias']!r})"
