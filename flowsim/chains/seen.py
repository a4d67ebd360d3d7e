"""The first-order binary chain that a model sees which reads one symbol of a hidden process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from flowsim.chain import BinaryChain
from flowsim.chains.hidden import HiddenMarkovProcess
from flowsim.errors import InputError


@dataclass(frozen=True)
class SeenChain(BinaryChain):
    """The first-order projection of a hidden process of two symbols.

    p̃ = P(x' = 1 | x = 0) and q̃ = P(x' = 0 | x = 1) of neighbouring symbols. A prediction that reads
    the present symbol alone has the same loss on both, hence the same flow and the same basins. The
    best loss of this chain is that of such a prediction, H(x' | x), above the process's own.

    Attributes:
        process: whose symbols are seen.

    >>> import flowsim
    >>> from flowsim.chains.hidden import process
    >>> from flowsim.chains.seen import SeenChain
    >>> seen = SeenChain.of(process("golden-mean"))
    Traceback (most recent call last):
        ...
    flowsim.errors.InputError: p must be a number strictly between 0 and 1, not 1.0
    >>> SeenChain.of(process("even")).regime
    'p + q < 1'
    """

    process: HiddenMarkovProcess

    @classmethod
    def of(cls, process: HiddenMarkovProcess) -> Self:
        """The chain of neighbouring symbols.

        Raises:
            InputError: another number of symbols than two, or neighbours that never occur.
        """
        if process.symbols != 2:
            raise InputError(
                f"a binary model sees two symbols, and this process has {process.symbols}"
            )
        kernel = process.neighbours.kernel
        return cls(float(kernel[0, 1]), float(kernel[1, 0]), process)

    def lag_ratios(self, count: int) -> np.ndarray:
        """Cov(x_{n+1}, x_{n−k})/Cov(x_{n+1}, x_n) for k < count; λ^k of flips.

        Raises:
            InputError: neighbours are not correlated, so that the ratios are not defined.
        """
        T = self.process.transitions
        ahead = np.array(self.process.hidden.stationary) @ T[1]
        mean, kernel, found = self.process.stationary[1], T.sum(0), []
        for _ in range(count):
            found.append(float((ahead @ T[1]).sum() - mean**2))
            ahead = ahead @ kernel
        if abs(found[0]) < 1e-12:
            raise InputError("neighbouring symbols of this process are not correlated")
        return np.array(found) / found[0]
