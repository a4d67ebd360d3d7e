"""Numbers of other programs beside ours, as the table of docs/validation.md.

    python benchmarks/validation.py [--only CASE …] [--out docs/validation.csv]

"Theirs" is what a program's documents, tests or reference files state. Each of ours is computed
here; what flowsim cannot compute is a row too, with the reason.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

import flowsim
from flowsim.bifurcation import continuation, fold_curves

MATCONT = "MatCont 7.6 (reference file {} of JaxCont 0.4.0)"


class Field(flowsim.Model):
    """A flow that is no gradient flow."""

    def loss(self, theta: Tensor) -> Tensor:
        return 0 * theta[..., 0]


class Cubic(flowsim.Model):
    coordinates = ("u",)

    def __init__(self, p: float = 0.0) -> None:
        self.p = p

    def loss(self, theta: Tensor) -> Tensor:
        u = theta[..., 0]
        return u**4 / 12 - u**2 / 2 - self.p * u


class Imperfect(flowsim.Model):
    coordinates = ("u",)

    def __init__(self, p: float = 0.0, b: float = 0.2) -> None:
        self.p, self.b = p, b

    def loss(self, theta: Tensor) -> Tensor:
        u = theta[..., 0]
        return u**4 / 4 - self.p * u**2 / 2 - self.b * u


class Shifted(flowsim.Model):
    coordinates = ("u",)

    def __init__(self, first: float = 1.2, second: float = -5.0) -> None:
        self.first, self.second = first, second

    def loss(self, theta: Tensor) -> Tensor:
        u = theta[..., 0] - 2
        return -((self.first - 1) * u + (self.second + 4) * u**2 / 2 + u**4 / 4)


class Modes(flowsim.Model):
    """−x + λLx − x³, of which L has the eigenvalue 1/i i times, to i = 3."""

    coordinates = tuple(f"x_{i}" for i in range(1, 7))

    def __init__(self, strength: float = 0.5) -> None:
        self.strength = strength

    def loss(self, theta: Tensor) -> Tensor:
        slower = torch.tensor([1, 1 / 2, 1 / 2, 1 / 3, 1 / 3, 1 / 3]).to(theta)
        strength = torch.as_tensor(self.strength).to(theta)[..., None]
        rest = theta.square() / 2 - strength * slower * theta.square() / 2 + theta**4 / 4
        return rest.sum(-1)


class VanDerPol(Field):
    coordinates = ("x", "y")

    def __init__(self, mu: float = -0.5) -> None:
        self.mu = mu

    def field(self, theta: Tensor) -> Tensor:
        x, y = theta.unbind(-1)
        return torch.stack([y, self.mu * (1 - x**2) * y - x], -1)


class AdaptiveControl(Field):
    coordinates = ("x", "y", "z")

    def __init__(self, alpha: float = 1.5) -> None:
        self.alpha = alpha

    def field(self, theta: Tensor) -> Tensor:
        x, y, z = theta.unbind(-1)
        return torch.stack([y, z, -self.alpha * z - y - x + x**2], -1)


class Nagumo(Field):
    coordinates = ("x", "y")

    def field(self, theta: Tensor) -> Tensor:
        x, y = theta.unbind(-1)
        return torch.stack([(x - x**3 - y) / 0.1, x - 3 * y], -1)


def events(
    kind: type[flowsim.Model], name: str, low: float, high: float, starts: list[list[float]]
) -> dict[str, list[float]]:
    """The values of the parameter at events of a branch diagram, by kind."""
    record = continuation(flowsim.ModelSpec(kind), name, np.linspace(low, high, 5), starts)
    found: dict[str, list[float]] = {}
    for event, value in zip(record.event_kind.values, record.event_value.values, strict=True):
        found.setdefault(str(event), []).append(float(value))
    return found


def cubic_fold() -> float:
    return events(Cubic, "p", 0.3, 0.9, [[2.0], [-1.5]])["fold"][0]


def imperfect_fold() -> float:
    return events(Imperfect, "p", -0.5, 2.0, [[-1.2], [1.5], [0.1]])["fold"][0]


def cusp() -> tuple[float, ...]:
    record = fold_curves(
        flowsim.ModelSpec(Shifted), "first", np.linspace(0.0, 2.0, 3), "second",
        np.linspace(-6.0, -3.0, 3), [[1.0], [2.0], [3.0]],
    )  # fmt: skip
    return float(record.cusp_value[0]), float(record.cusp_second[0])


def modes() -> tuple[float, ...]:
    found = events(Modes, "strength", 0.5, 3.5, [[0.1] * 6])
    return tuple(sorted({round(v, 9) for v in found.get("pitchfork", [])}))


def van_der_pol() -> float:
    return events(VanDerPol, "mu", -0.5, 0.6, [[0.1, 0.0]])["hopf"][0]


def adaptive_control() -> float:
    return events(AdaptiveControl, "alpha", 0.5, 1.6, [[0.0, 0.0, 0.0]])["hopf"][0]


def nagumo() -> float:
    state = flowsim.boundary.edge_state(Nagumo(), [0.8, 0.2], [-0.8, -0.1])
    return float(np.linalg.norm(state.theta))


class Case(NamedTuple):
    """One row of the table.

    Attributes:
        program, case: whose number, and of what.
        theirs, tolerance: as they state them; the tolerance is theirs too.
        ours: how it is computed, or why not.
    """

    program: str
    case: str
    theirs: tuple[float, ...] | float
    tolerance: float
    ours: Callable[[], float | tuple[float, ...]] | str


ATTRACTORS = "Attractors.jl ({})"
SWINGS = (
    "fails: trajectories swing hundreds of times before they rest, and eight of them take over "
    "20 s of a processor"
)
CASES = {
    "cubic": Case(MATCONT.format("MC-EQ-001"), "fold of u′ = u − u³/3 + p, p > 0",
                  0.666666666666, 5e-4, cubic_fold),
    "van der Pol": Case(MATCONT.format("MC-EQ-002"), "Hopf point of x″ = μ(1 − x²)x′ − x over μ",
                        0.0, 5e-4, van_der_pol),
    "adaptive": Case(MATCONT.format("MC-EQ-003"),
                     "Hopf point of adaptive control, x‴ = −αx″ − x′ − x + x², over α",
                     0.999997742302781, 5e-4, adaptive_control),
    "cusp": Case("JaxCont 0.4.0 (MC-C2-001)",
                 "cusp of (p − 1) + (q + 4)(u − 2) + (u − 2)³: p, q", (1.0, -4.0), 1e-3, cusp),
    "imperfect": Case("JaxCont 0.4.0 (example 6)", "fold of pu − u³ + b, b = 0.2: 3 (b/2)^⅔",
                      3 * 0.1 ** (2 / 3), 1e-8, imperfect_fold),
    "modes": Case("BifurcationKit.jl (test_bif_detection)",
                  "−x + λLx − x³, L = diag(1/i, i-fold), to i = 3 of 5: λ of bifurcations",
                  (1.0, 2.0, 3.0), 1e-8, modes),
    "Nagumo": Case(ATTRACTORS.format("edge tracking"),
                   "edge state of FitzHugh and Nagumo's field, ε = 0.1, β = 3: distance from the "
                   "origin", 0.0, 1e-4, nagumo),
    "shock": Case(ATTRACTORS.format("minimal critical shock"),
                  "magnetic pendulum at rest at a magnet, d = 0.2, α = 0.2, ω = 0.8: distance in "
                  "(x, y)", 0.3923, 1e-4, SWINGS),
    "share": Case(ATTRACTORS.format("basins' fractions"),
                  "magnetic pendulum from rest, uniform in (−2, 2)²: share of the magnet at "
                  "(1, 0), of 1000 draws", 0.347, 0.03, SWINGS),
    "Thomas": Case(ATTRACTORS.format("edge tracking"),
                   "edge state of Thomas's field, b = 0.16: norm", 4.06585, 1e-3,
                   "fails: it is chaotic and `edge_state` looks for saddles"),
    "Newton": Case(ATTRACTORS.format("minimal critical shock"),
                   "Newton's map of z³ − 1: distance of a root", 0.622, 6.22e-3,
                   "fails: distances are of flows, not of maps"),
    "Lorenz-84": Case("BifurcationKit.jl 0.5.2 (reference of JaxCont's MC-C2-001)",
                      "Bogdanov–Takens point of Lorenz-84: F, T",
                      (1.4467167011153617, 0.020940169683322584), 1e-3,
                      "fails: such points are not located"),
    "cycles": Case(MATCONT.format("MC-LC-002"), "bifurcations of torBPC1's limit cycles", np.nan,
                   5e-3, "fails: cycles of flows are not continued"),
    "normal form": Case("BifurcationKit.jl (testNF)", "normal form of a transcritical point: b₁₁",
                        3.23, np.nan, "fails: normal forms are not computed"),
}  # fmt: skip


def row(case: Case) -> tuple[str, str, str, str, str, str]:
    """The columns of a case: those of the class, and whether ours agrees."""

    def text(values: float | tuple[float, ...]) -> str:
        rounded = ["0" if abs(x) <= 1e-12 else f"{x:.12g}" for x in np.atleast_1d(values)]
        return "several" if rounded == ["nan"] else " ".join(rounded)

    allowed = "" if np.isnan(case.tolerance) else f"{case.tolerance:g}"
    theirs = np.atleast_1d(case.theirs)
    if isinstance(case.ours, str):
        return case.program, case.case, text(case.theirs), allowed, case.ours, "no"
    ours = np.atleast_1d(case.ours())
    agrees = len(ours) == len(theirs) and bool((np.abs(ours - theirs) <= case.tolerance).all())
    found = text(tuple(ours.tolist())) or "none"
    return case.program, case.case, text(case.theirs), allowed, found, "yes" if agrees else "no"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=[*CASES], choices=[*CASES])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for name in options.only:
        rows.append(row(CASES[name]))
        print(*rows[-1], sep=" | ", flush=True)
    if options.out is not None:
        with options.out.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerows([("program", "case", "theirs", "tolerance", "ours", "agrees"), *rows])


if __name__ == "__main__":
    main()
