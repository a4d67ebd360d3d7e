"""How long starts take that do not come to rest: kinks, infinity, closed orbits, chaos.

    python benchmarks/waiting.py [--starts 1 64] [--only NAME ...]

Starts are drawn evenly from a box, always the same. The table has the seconds of CPU time and the
steps for a start, and the labels.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
from torch import Tensor

import flowsim
from flowsim import Label

Formula = Callable[..., object]


def lorenz(x: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor, ...]:
    return 10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z


def may_leonard(x: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor, ...]:
    def grows(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        return a * (1 - a - 0.8 * b - 1.5 * c)

    return grows(x, y, z), grows(y, z, x), grows(z, x, y)


def magnets(x: Tensor, y: Tensor, u: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    a, b = -0.2 * u - 0.25 * x, -0.2 * v - 0.25 * y
    for across, up in ((1.0, 0.0), (-0.5, 0.75**0.5), (-0.5, -(0.75**0.5))):
        far = ((across - x) ** 2 + (up - y) ** 2 + 0.09) ** 1.5
        a, b = a + (across - x) / far, b + (up - y) / far
    return u, v, a, b


#: Names of coordinates, the least and the largest of them at a start, and a loss or a field.
SYSTEMS: dict[str, tuple[str, float, float, Formula]] = {
    "double well": ("xy", -2, 2, lambda x, y: (x**2 - 1) ** 2 / 4 + y**2 / 2),
    "|x| + y²": ("xy", -2, 2, lambda x, y: x.abs() + y**2),
    "cone": ("xy", -2, 2, lambda x, y: (x**2 + y**2).sqrt()),
    "√|x| + y²": ("xy", -2, 2, lambda x, y: x.abs().sqrt() + y**2),
    "e⁻ˣ + y²": ("xy", -2, 2, lambda x, y: (-x).exp() + y**2),
    "scale invariance": ("xy", 0.2, 2, lambda x, y: x**2 / (x**2 + y**2) + 0.05 * (x**2 + y**2)),
    "−x⁴": ("xy", 0.5, 2, lambda x, y: y**2 - x**4),
    "oscillator": ("xy", -2, 2, lambda x, y: (y, -x)),
    "Lotka-Volterra": ("xy", 0.2, 2, lambda x, y: (x - x * y, x * y - y)),
    "van der Pol, μ = 1": ("xy", -2, 2, lambda x, y: (y, (1 - x**2) * y - x)),
    "van der Pol, μ = 10": ("xy", -2, 2, lambda x, y: (y, 10 * (1 - x**2) * y - x)),
    "Duffing, damping 0.02": ("xy", -2, 2, lambda x, y: (y, x - x**3 - 0.02 * y)),
    "spiral outwards": ("xy", -2, 2, lambda x, y: (y, y - 2 * x)),
    "magnetic pendulum": ("xyuv", -2, 2, magnets),
    "May-Leonard": ("xyz", 0.2, 2, may_leonard),
    "Lorenz": ("xyz", -5, 20, lorenz),
}


def model_of(coordinates: str, formula: Formula) -> flowsim.Model:
    """The model of a loss, or of a field when the formula has a value for every coordinate."""

    def loss(self: flowsim.Model, theta: Tensor) -> Tensor:
        found = formula(*theta.unbind(-1))
        return theta.square().sum(-1) if isinstance(found, tuple) else found  # type: ignore

    def field(self: flowsim.Model, theta: Tensor) -> Tensor:
        return torch.stack(formula(*theta.unbind(-1)), -1)  # type: ignore

    parts = {"coordinates": tuple(coordinates), "loss": loss, "__module__": __name__}
    values = formula(*torch.ones(len(coordinates), 1, dtype=torch.float64))
    if isinstance(values, tuple):
        parts["field"] = field
    return type("Own", (flowsim.Model,), parts)()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--starts", type=int, nargs="+", default=[1, 64])
    parser.add_argument("--only", nargs="+", choices=SYSTEMS, default=list(SYSTEMS), metavar="NAME")
    given = parser.parse_args()
    torch.set_num_threads(1)
    flowsim.find_limits(model_of(*SYSTEMS["double well"][::3]), [[0.5, 0.5]])  # loads the rest
    print(f"{'system':>24}{'starts':>8}{'s a start':>11}  labels")
    for name in given.only:
        coordinates, low, high, formula = SYSTEMS[name]
        model = model_of(coordinates, formula)
        for count in given.starts:
            generator = torch.Generator().manual_seed(0)
            drawn = torch.rand(count, len(coordinates), generator=generator, dtype=torch.float64)
            began = time.process_time()
            found = flowsim.find_limits(model, low + (high - low) * drawn)
            took = (time.process_time() - began) / count
            labels = [Label(int(label)).name.lower() for label in found.label]
            counts = ", ".join(f"{labels.count(x)} {x}" for x in sorted(set(labels)))
            print(f"{name:>24}{count:8d}{took:11.3f}  {counts}", flush=True)


if __name__ == "__main__":
    main()
