"""Symmetries and invariants of a found model, and how many coordinates are due to its data."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations, combinations_with_replacement, product
from typing import Any, NamedTuple

import torch
from torch import Tensor

from flowsim.errors import InputError, require_integer
from flowsim.reduction.found import ReducedNetwork, reduce
from flowsim.reduction.names import echelon
from flowsim.running import quickly

#: Losses that differ by less, in parts of their spread over random points, are equal.
_EQUAL = 1e-9
#: Singular values below this part of the largest are zero; what a coefficient below is dropped.
_ZERO, _DROPPED = 1e-9, 1e-6
#: All sets of signs are tried up to so many coordinates, polynomials up to so many monomials.
_ALL_SIGNS, _MONOMIALS = 10, 1400
#: Fields are bracketed with those they came from up to so many times.
_DEPTH = 3


@dataclass(frozen=True)
class Symmetries:
    """Changes of coordinates that preserve a loss; all others tried do not.

    Attributes:
        flips: sets of coordinates whose signs can be changed together; every other such set that
            was tried is made of these.
        swaps: pairs of coordinates that can be exchanged, and the sign that both get.
        all_signs: whether all sets of signs were tried, or single ones and pairs alone.
    """

    flips: tuple[tuple[str, ...], ...]
    swaps: tuple[tuple[str, str, int], ...]
    all_signs: bool


@dataclass(frozen=True)
class Conserved:
    """Polynomials that are constant along the flow.

    Attributes:
        polynomials: those found, as text; not those that are products and sums of others.
        independent: how many of them are independent of each other, by their gradients.
        allowed: how many independent conserved quantities there can be, polynomial or not: k less
            the dimension that the fields and their brackets span at a random point.
        fields: of how many losses all are conserved. Of one loss ``allowed`` is k − 1, as of any
            flow, and of two it is at least k − 8, since three rounds of brackets are taken: it says
            little there for a large k, and more with more losses.
        degree: up to which was looked.
    """

    polynomials: tuple[str, ...]
    independent: int
    allowed: int
    fields: int
    degree: int


class Origin(NamedTuple):
    """Numbers of coordinates from a start by the architecture, and by this data.

    Attributes:
        weights: how many there are.
        architecture: the dimension that holds the flow for every data set drawn.
        data: the coordinates of the model found for this data: at most ``architecture``, unless
            this data leads out of what the draws span.
        beyond_draws: how many of these lie outside what the draws span.
        draws: the dimension found for each data set drawn.
    """

    weights: int
    architecture: int
    data: int
    beyond_draws: int
    draws: tuple[int, ...]


def _points(model: ReducedNetwork, count: int, seed: int) -> Tensor:
    """Standard normal draws of a model's coordinates, (count, k)."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(count, len(model.coordinates), generator=generator, dtype=torch.float64)
    return drawn.to(model.start)


@quickly
def symmetries(model: ReducedNetwork) -> Symmetries:
    """Sign changes and exchanges of two coordinates that preserve the loss.

    They are tried at random points. Exchanges of several pairs at once are not looked for.

    Args:
        model: what ``reduce`` found.

    >>> import torch, flowsim
    >>> start = {"a": torch.tensor([0.3]), "b": torch.tensor([0.1])}
    >>> model = flowsim.reduce(lambda w: (w["a"] @ w["b"] - 1) ** 2, start)
    >>> flowsim.reduction.symmetries(model).flips
    (('a', 'b'),)
    """
    k, points = len(model.coordinates), _points(model, 6, 2)
    loss = model.loss(points).detach()
    spread = float((loss.amax() - loss.amin()).clamp_min(1e-300))

    def same(moved: Tensor) -> Tensor:
        """Mask (m,) of the changes, with moved points (m, n, k), that preserve all n losses."""
        found = model.loss(moved.reshape(-1, k)).detach().reshape(moved.shape[:-1])
        return ((found - loss).abs() <= _EQUAL * spread).all(-1)

    every = k <= _ALL_SIGNS
    sets = [s for size in range(1, (k if every else 2) + 1) for s in combinations(range(k), size)]
    signs = torch.ones(len(sets), k, dtype=points.dtype).to(points)
    for row, chosen in zip(signs, sets, strict=True):
        row[list(chosen)] = -1.0
    good = [set(s) for s, ok in zip(sets, same(signs[:, None] * points), strict=True) if ok]
    flips: list[set[int]] = []
    for rest in good:  # small ones first; what is a product of earlier ones is left out
        for other in flips:
            if max(other) in rest:
                rest ^= other
        if rest:
            flips = [f ^ rest if max(rest) in f else f for f in flips] + [rest]
    pairs = [(i, j, s) for i, j in combinations(range(k), 2) for s in (1, -1)]
    swapped = points.repeat(len(pairs), 1, 1)
    for row, (i, j, sign) in zip(swapped, pairs, strict=True):
        row[:, [i, j]] = sign * row[:, [j, i]]
    names = model.coordinates
    found = [(names[i], names[j], s) for (i, j, s), ok in zip(pairs, same(swapped), strict=True)
             if ok]  # fmt: skip
    return Symmetries(
        tuple(tuple(names[i] for i in sorted(f)) for f in sorted(flips, key=sorted)),
        tuple(found),
        every,
    )


@quickly
def conserved(model: ReducedNetwork, *others: ReducedNetwork, degree: int = 4) -> Conserved:
    """Polynomials of the coordinates that the flow conserves, up to a degree.

    Q is conserved where ∇Q·∇L = 0. Its coefficients solve a linear system with a row for each
    random point, and are a null vector of it.

    Args:
        model: whose flow it is.
        others: the same network and start with other data; then what all of them conserve.
        degree: at least 1.

    Raises:
        InputError: another span, or too many monomials.

    Source: arXiv 2307.00144 counts conserved quantities by the Lie algebra of the fields; own
    derivation otherwise.

    >>> import torch, flowsim
    >>> start = {"a": torch.tensor([0.3]), "b": torch.tensor([0.1])}
    >>> model = flowsim.reduce(lambda w: (w["a"] @ w["b"] - 1) ** 2, start)
    >>> flowsim.reduction.conserved(model).polynomials
    ('a² − b²',)
    """
    for other in others:
        same = other.basis.shape == model.basis.shape
        one, two = (torch.cat([m.basis, m.origin[:, None]], 1) for m in (other, model))
        if not same or not torch.allclose(one, two, atol=1e-6):
            raise InputError(f"{other.name} is on another span than {model.name}")
    k, models = len(model.coordinates), (model, *others)
    powers = [p for size in range(1, degree + 1)
              for p in combinations_with_replacement(range(k), size)]  # fmt: skip
    if len(powers) > _MONOMIALS:
        raise InputError(
            f"{k} coordinates have {len(powers)} monomials up to degree {degree}; at most "
            f"{_MONOMIALS} are looked through"
        )
    points = _points(model, math.ceil(1.5 * len(powers) / len(models)) + 20, 3)
    slopes = _monomial_gradients(powers, points)
    rows = torch.cat([torch.einsum("nmk,nk->nm", slopes, m.gradient(points)) for m in models])
    found: list[Tensor] = []
    for size in range(1, degree + 1):
        column = [i for i, p in enumerate(powers) if len(p) <= size]
        null = _null_space(rows[:, column])
        padded = rows.new_zeros(len(null), len(powers))
        padded[:, column] = null
        found += _independent_of(padded, _products(found, powers, size))
    at, independent = _points(model, 3, 4), 0
    if found:
        slopes = _monomial_gradients(powers, at)
        gradients = torch.einsum("nmk,qm->nqk", slopes, torch.stack(found))
        independent = max(map(_rank, gradients))
    texts = tuple(_as_text(q, powers, model.coordinates) for q in found)
    allowed = k - _spanned_by_brackets(models, at[0], k - independent)
    return Conserved(texts, independent, allowed, len(models), degree)


@quickly
def origin_of_coordinates(
    model: ReducedNetwork,
    draw: Callable[[torch.Generator], Callable[..., Tensor]],
    weights: Any,
    draws: int = 6,
    seed: int = 0,
) -> Origin:
    """Reduce the network on random data sets and losses, and compare with the model of this data.

    A space that holds the flow for all data is structural (arXiv 2510.09564). It contains the spans
    of all draws; with generic draws a few of them span it.

    Args:
        model: what ``reduce`` found for this data.
        draw: gives a loss of the weights on a data set of its own, from a seeded generator.
        weights: the start, as ``reduce`` takes it.
        draws: how many data sets are drawn, at least 1.
        seed: of the generator.

    Raises:
        InputError: ``reduce`` finds no model for a draw.

    With inputs (1, 1)·t alone, the data keeps the difference of the first weights:

    >>> import torch, flowsim
    >>> def loss_on(x, y):
    ...     return lambda w: ((torch.tanh(x @ w["in"].T) @ w["out"] - y) ** 2).mean()
    ...
    >>> start = {"in": torch.tensor([[0.5, -0.3]]).repeat(4, 1), "out": torch.full((4,), 0.4)}
    >>> t = torch.linspace(-1, 1, 8).double()
    >>> model = flowsim.reduce(loss_on(torch.stack([t, t], 1), t), start)
    >>> def draw(g):
    ...     x, y = torch.randn(8, 2, generator=g), torch.randn(8, generator=g)
    ...     return loss_on(x.double(), y.double())
    ...
    >>> origin = flowsim.reduction.origin_of_coordinates(model, draw, start)
    >>> origin.weights, origin.architecture, origin.data
    (12, 3, 2)
    """
    require_integer("draws", draws, 1)
    generator = torch.Generator().manual_seed(seed)
    bases = [reduce(draw(generator), weights).basis for _ in range(draws)]
    together = torch.cat(bases, 1)
    architecture = _rank(together.T)
    beyond_draws = _rank(torch.cat([together, model.basis], 1).T) - architecture
    return Origin(
        len(model.basis), architecture, len(model.coordinates), beyond_draws,
        tuple(basis.shape[1] for basis in bases),
    )  # fmt: skip


def _monomial_gradients(powers: list[tuple[int, ...]], points: Tensor) -> Tensor:
    """Gradients (n, m, k) at points (n, k) of m monomials.

    A monomial is the tuple of the coordinates' indices whose product it is: (0, 0, 2) is x² z.
    """
    found = points.new_zeros(len(points), len(powers), points.shape[1])
    for m, power in enumerate(powers):
        for i in set(power):
            rest = list(power)
            rest.remove(i)
            found[:, m, i] = power.count(i) * points[:, rest].prod(1)
    return found


def _null_space(rows: Tensor) -> Tensor:
    """A basis (q, m) of the null space of a matrix (n, m), in reduced echelon form."""
    rows = rows / rows.norm(dim=1, keepdim=True).clamp_min(1e-300)
    scale = rows.norm(dim=0).clamp_min(1e-300)
    _, sizes, right = torch.linalg.svd(rows / scale, full_matrices=True)
    rows = echelon(right[int((sizes > _ZERO * sizes[0]).sum()) :] / scale, _DROPPED)
    return torch.where(rows.abs() < _DROPPED, 0.0, rows)


def _products(found: list[Tensor], powers: list[tuple[int, ...]], degree: int) -> Tensor:
    """Polynomials whose sums are all that products of the ``found`` ones give up to a degree.

    A polynomial is its coefficients, (m,), of the monomials ``powers``; they are rows, (q, m).
    """
    place = {power: i for i, power in enumerate(powers)}
    every = list(found)
    for _ in range(degree // 2):
        for a in list(every):
            for b in found:
                top = max(len(powers[i]) for i in a.nonzero()[:, 0].tolist()) + max(
                    len(powers[i]) for i in b.nonzero()[:, 0].tolist()
                )
                if top > degree:
                    continue
                both = torch.zeros_like(a)
                for i in a.nonzero()[:, 0].tolist():
                    for j in b.nonzero()[:, 0].tolist():
                        both[place[tuple(sorted(powers[i] + powers[j]))]] += a[i] * b[j]
                if not any(torch.allclose(both, other) for other in every):
                    every.append(both)
    return torch.stack(every) if every else torch.zeros(0, len(powers), dtype=torch.float64)


def _independent_of(rows: Tensor, known: Tensor) -> list[Tensor]:
    """The rows (m,) of ``rows`` that are no sums of ``known`` rows (q, m) and of earlier ones."""
    found: list[Tensor] = []
    rank = _rank(known) if len(known) else 0
    for row in rows:
        more = torch.cat([known.to(row), torch.stack([*found, row])])
        if _rank(more) > rank:
            rank += 1
            found.append(row)
    return found


def _rank(rows: Tensor) -> int:
    """The rank of a matrix whose rows are made as long as each other, to 1e-7."""
    rows = rows / rows.norm(dim=1, keepdim=True).clamp_min(1e-300)
    sizes = torch.linalg.svdvals(rows)
    return int((sizes > 1e-7 * sizes[0].clamp_min(1e-300)).sum())


def _spanned_by_brackets(models: tuple[ReducedNetwork, ...], at: Tensor, most: int) -> int:
    """The dimension that gradient fields and their brackets span at a point; at most ``most``."""
    Field = Callable[[Tensor], Tensor]

    def gradient(model: ReducedNetwork) -> Field:
        """∇L as a function of coordinates (k,)."""
        return torch.func.grad(lambda c: model.network.one(model.embed(c)))

    def bracket(f: Field, g: Field) -> Field:
        """The Lie bracket of two fields: the change of g along f less that of f along g."""

        def field(c: Tensor) -> Tensor:
            along_f = torch.func.jvp(g, (c,), (f(c),))[1]
            return along_f - torch.func.jvp(f, (c,), (g(c),))[1]

        return field

    first = [gradient(model) for model in models]
    latest, vectors = first, [f(at).detach() for f in first]
    rank, before = _rank(torch.stack(vectors)), 0
    for depth in range(_DEPTH if len(models) > 1 else 0):
        pairs = combinations(first, 2) if depth == 0 else product(first, latest)
        before, latest = rank, []
        for f, g in pairs:
            if rank >= most:
                return rank
            latest.append(bracket(f, g))
            vectors.append(latest[-1](at).detach())
            rank = _rank(torch.stack(vectors))
        if rank == before:
            break
    return rank


def _as_text(polynomial: Tensor, powers: list[tuple[int, ...]], names: tuple[str, ...]) -> str:
    """The polynomial of these coefficients and powers as text, such as x² − 0.5 y."""
    words = ""
    for i in polynomial.nonzero()[:, 0].tolist():
        value, power = float(polynomial[i]), powers[i]
        factors = [
            names[j] + ("", "", "²", "³", "⁴")[min(power.count(j), 4)] for j in sorted(set(power))
        ]
        number = "" if abs(abs(value) - 1) < 1e-6 else f"{abs(value):.5g} "
        sign = (" − " if words else "−") if value < 0 else (" + " if words else "")
        words += sign + number + " ".join(factors)
    return words
