"""How long one hundred branches of a model of three coordinates take, each around two folds.

    python benchmarks/continuation.py [--branches 100] [--rounds 3]

Of ¼(x² − 1)² + gx + ½(y − x²)² + (z − xy)², traced from as many places of its branch over g in
(−1, 1), stability and both folds included; the seconds are the best of the rounds.

With JaxCont (the extra ``benchmark``) the branches are traced beside it in the same rounds, from
places near g = −1 at its default longest step: all at once, compiled and vmapped, where it locates
no folds; and with its folds, which it finds for one branch a call, a tenth of them.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import flowsim
from flowsim.bifurcation.branches import Tracer
from flowsim.bifurcation.events import events_of
from flowsim.bifurcation.system import System


class Bent(flowsim.Model):
    coordinates = ("x", "y", "z")

    def __init__(self, g: float = 0.0):
        self.g = g

    def loss(self, theta: Tensor) -> Tensor:
        x, y, z = theta.unbind(-1)
        tilted = (x**2 - 1) ** 2 / 4 + self.g * x
        return tilted + (y - x**2) ** 2 / 2 + (z - x * y) ** 2


def timed(work: Callable[[], Any]) -> tuple[Any, float, float]:
    """What is returned, the seconds, and those of the processor."""
    begun, used = time.perf_counter(), time.process_time()
    found = work()
    return found, time.perf_counter() - begun, time.process_time() - used


def jaxcont_branches(count: int) -> dict[str, Callable[[], Any]]:
    """Two ways of JaxCont to the branches, by name: a call does all the work."""
    import jax
    import jax.numpy as jnp
    import jaxcont as jc

    jax.config.update("jax_enable_x64", True)

    def field(u: Any, g: Any, _: Any) -> Any:
        x, y, z = u
        of_y, of_z = y - x**2, 2 * (z - x * y)
        return -jnp.stack([x**3 - x + g - 2 * x * of_y - y * of_z, of_y - x * of_z, of_z])

    settings = jc.ContinuationPar(ds=0.02, ds_max=0.1, max_steps=200, newton_tol=1e-10)
    x = jnp.linspace(1.3, 1.32, count)
    starts, values = jnp.stack([x, x**2, x**3], 1), x - x**3

    def branch(u: Any, g: Any, **options: Any) -> Any:
        problem = jc.bif_problem(field, u0=u, p0=g)
        return jc.continuation(problem, p_span=(g, 1.0), settings=settings, **options)

    together = jax.jit(jax.vmap(lambda u, g: branch(u, g).branch))

    def with_folds() -> list[float]:
        some = range(0, count, 10)
        hits = [branch(starts[i], values[i], events=[jc.Fold()]).events for i in some]
        return [float(hit.p) for events in hits for hit in events]

    def without() -> Any:
        return jax.block_until_ready(together(starts, values))

    return {"vmapped, no folds": without, "with folds, a tenth of them": with_folds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--branches", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    system = System(flowsim.ModelSpec(Bent), "g", -1.0, 1.0)
    tracer = Tracer(system, torch.ones(3).double())
    x = torch.linspace(-1.3, 1.3, options.branches).double()
    starts, values = torch.stack([x, x**2, x**3], 1), x - x**3
    ways: dict[str, Callable[[], Any]] = {"flowsim": lambda: tracer.trace(starts, values)}
    try:
        ways |= jaxcont_branches(options.branches)
    except ImportError:
        print("JaxCont is not installed: pip install -e '.[benchmark]'")
    found: dict[str, Any] = {}
    seconds: dict[str, list[tuple[float, float]]] = {}
    for way, work in ways.items():
        found[way] = work()  # compiles
    for _ in range(options.rounds):
        for way, work in ways.items():
            seconds.setdefault(way, []).append(timed(work)[1:])
    branches = found["flowsim"]
    folds = [event.value for event in events_of(tracer, branches[:1])]
    points = sum(len(branch.value) for branch in branches)
    off = max(abs(abs(fold) - 2 / 27**0.5) for fold in folds)
    print(f"{len(branches)} branches, {points} points, folds off by {off:.1e}")
    own = min(seconds["flowsim"])
    for way, spent in seconds.items():
        wall, used = min(spent)
        print(f"{way:>28}: {wall:.3f} s, of the processor {used:.3f}, {used / own[1]:.2f} of ours")
    for way, folds in found.items():
        if way.startswith("with folds"):
            off = max(abs(abs(fold) - 2 / 27**0.5) for fold in folds)
            print(f"its {len(folds)} folds are off by {off:.1e}")
        elif way.startswith("vmapped"):
            print(f"its points: {int(folds.valid.sum())}")


if __name__ == "__main__":
    main()
