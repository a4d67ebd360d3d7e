"""Networks and starts whose coordinates reduce_networks.py counts: losses of their weights."""

import math
from collections.abc import Callable

import torch
from papers import ABOVE, BELOW
from torch import Tensor

from flowsim import MarkovChain
from flowsim.chains import DirichletPrior
from full_model import (
    Architecture,
    MarkovSource,
    PopulationLoss,
    PriorSource,
    RankOnePoint,
    lift_canonical,
    lift_rank_one,
    lift_states,
)

Weights = dict[str, Tensor]
Loss = Callable[[Weights], Tensor]
#: Losses of the same weights with different data, and a start.
Case = tuple[tuple[Loss, ...], Weights]


def number(value: object) -> Tensor:
    """In double precision."""
    return torch.tensor(value, dtype=torch.float64)


def normal(*shape: int, seed: int = 0) -> Tensor:
    """Standard normal numbers."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def population(arch: Architecture, source: MarkovSource | PriorSource) -> Loss:
    """The exact loss of one transformer."""
    losses = PopulationLoss(arch, source)
    return lambda weights: losses({name: w[None] for name, w in weights.items()})[0]


def layer(attention: str, canonical: bool, tied: bool = True) -> Case:
    """The papers' layer, d = 4 and N = 4, from a canonical or another start of rank one."""
    arch = Architecture(d=4, length=4, attention=attention, tied=tied)
    if canonical:
        start = lift_canonical(number([0.7, -0.6]), arch, bias=0.1)
    else:
        other = {"o": 0.3, "v": 0.2} if attention == "softmax" else {"o": 0.0, "v": 0.0}
        other |= {"eps": 0.7, "w1": 0.6, "w2": -0.5, "b": 0.1, "c": 0.7 if tied else 0.4}
        point = {name: number(value) for name, value in other.items()}
        start = lift_rank_one(RankOnePoint(rho=number([-0.35, -0.3, -0.2, -0.4]), **point), arch)
    return tuple(population(arch, MarkovSource.of(chain)) for chain in (ABOVE, BELOW)), start


def noisy_layer() -> Case:
    """The papers' layer with noise 0.02 on all weights of a canonical start."""
    losses, start = layer("none", True)
    return losses, {
        n: w + 0.02 * normal(*w.shape, seed=i) for i, (n, w) in enumerate(start.items())
    }


def states_layer(states: int) -> Case:
    """One tied layer on S states, from the start of its planar model."""
    arch = Architecture(
        d=4, length=3, hidden=2 * states, states=states, output="states", attention="none"
    )
    chains = (MarkovChain.symmetric(states, p) for p in (0.7, 0.3))
    losses = tuple(population(arch, MarkovSource.of(chain)) for chain in chains)
    return losses, lift_states(number([0.8, -0.5]), arch)


def induction_head(arch: Architecture) -> Weights:
    """An induction head in three directions of the residual stream: symbol, the one before, out."""
    start = {name: torch.zeros(shape, dtype=torch.float64) for name, shape in arch.shapes.items()}
    symbol, before, out = torch.eye(arch.d, dtype=torch.float64)[:3]
    for name, size, row, column in (
        ("0.value", 0.7, symbol, symbol), ("0.out", 0.6, before, symbol),
        ("1.query", 0.9, symbol, symbol), ("1.key", 0.8, symbol, before),
        ("1.value", 0.7, symbol, symbol), ("1.out", 0.5, out, symbol),
        ("embedding", 0.8, number([1.0, -1.0]), symbol),
        ("unembedding", 0.5, number([1.0, -1.0]), out),
    ):  # fmt: skip
        start[name] = size * torch.outer(row, column)
    if arch.has_relative:
        start["0.relative"][0, 1] = 0.5
    return start


def in_context(positions: str) -> Case:
    """Two layers of attention alone, on kernels drawn for every sequence of five symbols."""
    arch = Architecture(3, 5, 2, hidden=0, states=2, output="states", tied=False,
                        positions=positions)  # fmt: skip
    return (population(arch, PriorSource(DirichletPrior(2))),), induction_head(arch)


def two_layers(x: Tensor, y: Tensor) -> Loss:
    """Least squares of a two-layer ReLU network."""
    return lambda w: ((torch.relu(x @ w["first"].T) @ w["second"] - y) ** 2).mean()


def relu(opposite: bool) -> Case:
    """Six hidden units that are equal, or three and their opposites; 20 random examples."""
    signs = number([1.0, -1.0 if opposite else 1.0] * 3)
    losses = tuple(two_layers(normal(20, 2), normal(20, seed=seed)) for seed in (1, 2))
    return losses, {"first": signs[:, None] * number([0.5, -0.3]), "second": 0.4 * signs}


def deep(target: Tensor) -> Loss:
    """Three square matrices whose product is to be a target."""
    return lambda w: ((w["c"] @ w["b"] @ w["a"] - target) ** 2).sum() / 2


def deep_linear(sizes: tuple[float, float, float] | None) -> Case:
    """Three 5 × 5 matrices of these sizes along the target's first axes, or random ones."""
    u, s, v = torch.linalg.svd(normal(5, 5, seed=5))
    losses = tuple(deep(u @ torch.diag(t * s) @ v) for t in (number([1.0] * 5), normal(5) + 3))
    if sizes is None:
        return losses, {name: 0.2 * normal(5, 5, seed=i) for i, name in enumerate("abc")}
    inner = torch.outer(v[0], v[0])
    start = {"a": inner, "b": inner, "c": torch.outer(u[:, 0], v[0])}
    return losses, {n: x * w for x, (n, w) in zip(sizes, start.items(), strict=True)}


def regression(spectrum: Tensor, length: int = 16, axes: Tensor | None = None) -> Loss:
    """Linear attention with a head v kᵀ… qᵀ on regression in context, its loss over all data.

    L(U) = ½ Tr Λ − Tr Λ²U + ½ Tr [(1 + 1/N) Λ² + Λ Tr Λ/N] U Λ Uᵀ, U = Σ v k qᵀ over heads.
    """
    axes = torch.eye(len(spectrum), dtype=torch.float64) if axes is None else axes
    law = axes @ torch.diag(spectrum) @ axes.T
    square = (1 + 1 / length) * law @ law + law * law.trace() / length

    def loss(weights: Weights) -> Tensor:
        u = torch.einsum("h,hi,hj->ij", weights["v"], weights["key"], weights["query"])
        return law.trace() / 2 - (law @ law @ u).trace() + (square @ u @ law @ u.T).trace() / 2

    return loss


def linear_attention(which: int) -> Case:
    """One head, whose key and query lie along one of the data's four axes."""
    axes = torch.linalg.qr(normal(4, 4, seed=3))[0]
    spectra = (number([2.0, 1.0, 0.7, 0.4]), number([1.5, 0.6, 0.3, 0.2]))
    along = axes[:, which][None]
    start = {"v": number([0.3]), "key": 0.5 * along, "query": 0.2 * along}
    return tuple(regression(s, axes=axes) for s in spectra), start


def turn(*angles: float) -> Tensor:
    """A rotation of as many planes."""
    return torch.block_diag(
        *(number([[math.cos(a), -math.sin(a)], [math.sin(a), math.cos(a)]]) for a in angles)
    )


def group(*generators: Tensor) -> Tensor:
    """All products of some orthogonal matrices, (n, D, D)."""
    found = [torch.eye(len(generators[0]), dtype=torch.float64)]
    for one in found:  # grows meanwhile
        for other in (one @ g for g in generators):
            if all(float((other - known).abs().max()) > 1e-9 for known in found):
                found.append(other)
    return torch.stack(found)


def pairs_in_context(tokens: Tensor, places: Tensor, turned: Tensor) -> Case:
    """Two items, each with its label after it, then one item again, whose label is the target.

    Task and network of Musat et al., arXiv 2511.01033, as its summaries have them: two layers of
    attention without values, each of which puts what it finds beside what it was given; keys and
    queries merged; weights from zero; least squares. An item has a token and a place p, its label
    another token and the place Mp. Their data are isotropic. Here two draws of tokens and places
    are moved by all elements of two groups, so that the loss is exact and symmetrical.

    Args:
        tokens, places: two groups, (n, D, D).
        turned: M, which commutes with all of ``places``.
    """
    d, e = tokens.shape[1], places.shape[1]
    item, label, place = normal(2, 2, d), normal(2, 2, d, seed=1), normal(2, 3, e, seed=2)
    after = place @ turned.T
    said = torch.stack([item[:, 0], label[:, 0], item[:, 1], label[:, 1]], 1)
    asked = torch.stack([torch.cat([said, item[:, i, None]], 1) for i in (0, 1)])
    at = torch.stack([place[:, 0], after[:, 0], place[:, 1], after[:, 1], place[:, 2]], 1)
    many = (len(tokens), len(places), 2, 2)  # the item asked for, the draw
    stream = torch.cat([
        torch.einsum("gij,qslj->gqsli", tokens, asked)[:, None].expand(*many, 5, d),
        torch.einsum("gij,slj->gsli", places, at)[:, None].expand(*many, 5, e),
    ], -1).flatten(0, 3)  # fmt: skip
    answer = torch.einsum("gij,sqj->gqsi", tokens, label)[:, None].expand(*many, d).flatten(0, 3)
    earlier = torch.ones(5, 5, dtype=torch.float64).tril(-1)

    def attend(asking: Tensor, seen: Tensor, score: Tensor) -> Tensor:
        mask = earlier[-asking.shape[1] :]
        scores = (asking @ score @ seen.mT).masked_fill(mask == 0, -1e9)
        return torch.cat([asking, (torch.softmax(scores, -1) * mask) @ seen], -1)

    def loss(weights: Weights) -> Tensor:
        seen = attend(stream, stream, weights["first"])
        last = attend(seen[:, -1:], seen, weights["second"])[:, 0]
        return ((last @ weights["out"].T - answer) ** 2).sum(-1).mean() / 2

    n = d + e
    shapes = {"first": (n, n), "second": (2 * n, 2 * n), "out": (d, 4 * n)}
    return (loss,), {name: torch.zeros(s, dtype=torch.float64) for name, s in shapes.items()}


#: Turns of a plane by thirds, those with mirror images, those of a tetrahedron, of two planes.
THIRDS = group(turn(2 * math.pi / 3))
TRIANGLE = group(turn(2 * math.pi / 3), torch.diag(number([1, -1])))
TETRAHEDRON = group(torch.eye(3, dtype=torch.float64).roll(1, 0), torch.diag(number([1, -1, -1])))
FIFTHS = group(turn(0.4 * math.pi, 0.8 * math.pi))
QUARTER = turn(math.pi / 2)

#: Each made when it is asked for.
NETWORKS: dict[str, Callable[[], Case]] = {
    "layer, canonical": lambda: layer("none", True),
    "layer with softmax attention, canonical": lambda: layer("softmax", True),
    "layer, rank one": lambda: layer("none", False),
    "layer with softmax attention, rank one": lambda: layer("softmax", False),
    "untied layer, rank one": lambda: layer("none", False, tied=False),
    "layer on 3 states": lambda: states_layer(3),
    "layer on 5 states": lambda: states_layer(5),
    "pairs in context": lambda: pairs_in_context(TRIANGLE, THIRDS, QUARTER),
    "pairs in context, tokens in space": lambda: pairs_in_context(TETRAHEDRON, THIRDS, QUARTER),
    "pairs in context, two angles": lambda: pairs_in_context(TRIANGLE, FIFTHS, turn(1.0, 2.2)),
    "pairs in context, equal places": lambda: pairs_in_context(TRIANGLE, TRIANGLE, turn(0.0)),
    "induction head, learned positions": lambda: in_context("learned"),
    "induction head, relative positions": lambda: in_context("relative"),
    "two-layer ReLU, equal units": lambda: relu(False),
    "two-layer ReLU, opposite units": lambda: relu(True),
    "deep linear, aligned": lambda: deep_linear((0.2, 0.3, 0.4)),
    "deep linear, aligned, equal sizes": lambda: deep_linear((0.2, 0.2, 0.2)),
    "linear attention, first axis": lambda: linear_attention(0),
    "linear attention, second axis": lambda: linear_attention(1),
    "deep linear, random": lambda: deep_linear(None),
    "layer, noise 0.02 on all weights": noisy_layer,
}
