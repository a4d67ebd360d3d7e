"""A claim and its verdict, the table of them, and the random weights that claims are tried on."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from full_model.model.architecture import Architecture, Weights

TOLERANCE = 1e-10


@dataclass(frozen=True)
class Claim:
    """One line of the table: what is claimed, the number expected and found, and the verdict.

    ``error`` is the largest deviation over the seeds; for a claim about a sign, expected and found
    are words and the error is 0 (held at every seed) or the share of seeds where it failed.
    """

    claim: str
    expected: float | str
    found: float | str
    error: float
    passed: bool

    def as_dict(self) -> dict[str, float | str | bool]:
        """JSON-ready: claim, expected, found, error, passed."""
        return asdict(self)


def format_claims(claims: list[Claim]) -> str:
    """The table that ``flowsim verify`` prints: claim, expected, found, error, verdict."""

    def text(value: float | str) -> str:
        return value if isinstance(value, str) else f"{value:.6g}"

    rows = [("claim", "expected", "found", "error", "")]
    for c in claims:
        verdict = "ok" if c.passed else "FAILED"
        rows.append((c.claim, text(c.expected), text(c.found), f"{c.error:.1e}", verdict))
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    lines = []
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        lines.append("  ".join([*cells, row[4]]).rstrip())
    return "\n".join(lines)


def equal(
    claim: str,
    expected: float,
    found: list[float],
    tolerance: float = TOLERANCE,
    scale: float = 1.0,
) -> Claim:
    """The claim that all found numbers are the expected one.

    The error may be ``tolerance``, times ``scale`` where the terms that cancel are larger than 1.
    """
    worst = max(found, key=lambda number: abs(number - expected))
    error = abs(worst - expected)
    return Claim(claim, expected, worst, error, error <= tolerance * max(1.0, scale))


def held(claim: str, expected: str, found: list[bool]) -> Claim:
    """The claim that something is so at every seed."""
    failed = found.count(False)
    text = expected if failed == 0 else f"not so at {failed} of {len(found)} seeds"
    return Claim(claim, expected, text, failed / len(found), failed == 0)


def generator_of(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(g: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=g)


def free_weights(arch: Architecture, g: torch.Generator) -> Weights:
    """Free weights of standard deviation one half."""
    return {name: 0.5 * normal(g, *shape) for name, shape in arch.shapes.items()}


def norm(gradient: Weights) -> float:
    return math.sqrt(sum(float(part.square().sum()) for part in gradient.values()))
