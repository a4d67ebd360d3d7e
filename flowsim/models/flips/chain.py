"""The chain of neighbouring symbols of a hidden chain with flips."""

from __future__ import annotations

from dataclasses import dataclass

from flowsim.chain import BinaryChain
from flowsim.errors import InputError


@dataclass(frozen=True)
class FlippedChain(BinaryChain):
    """The first-order chain with the same pairs of neighbours as a flipped hidden chain.

    p̃ = P(x' = 1 | x = 0) and q̃ = P(x' = 0 | x = 1) of the symbols x that are seen.

    Attributes:
        hidden: the chain (p, q) of z.
        flip: ε, the chance that x is 1 − z, at every place alike.
    """

    hidden: BinaryChain
    flip: float

    @classmethod
    def of(cls, hidden: BinaryChain, flip: float) -> FlippedChain:
        """The chain of x: 1 − p̃ − q̃ = (1 − 2ε)² (1 − p − q) π₀π₁/(π̃₀π̃₁).

        Raises:
            InputError: ε is not in [0, ½).
        """
        if isinstance(flip, bool) or not isinstance(flip, (int, float)) or not 0 <= flip < 0.5:
            raise InputError(f"flip must be a chance from 0 up to, but not, 0.5, not {flip!r}")
        zero, one = hidden.stationary
        seen_zero, seen_one = zero + flip * (one - zero), one + flip * (zero - one)
        eigenvalue = (1 - 2 * flip) ** 2 * hidden.second_eigenvalue
        eigenvalue *= (zero / seen_zero) * (one / seen_one)
        return cls(seen_one * (1 - eigenvalue), seen_zero * (1 - eigenvalue), hidden, float(flip))
