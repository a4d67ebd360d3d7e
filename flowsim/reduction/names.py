"""A basis of a span that a person can read: directions of single weights, signs and names."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

import torch
from torch import Tensor

#: Eigenvalues and entries closer than this are equal.
_SAME = 1e-7
#: A pivot is the first entry that is not smaller than this part of the largest.
_PIVOT = 0.3


def readable(
    basis: Tensor, shapes: Mapping[str, tuple[int, ...]]
) -> tuple[Tensor, tuple[str, ...], dict[str, str]]:
    """Turn a basis (P, k) of a span of weights into one that a person can read, with names.

    ``shapes`` are those of the tensors of weights, by name. Returns orthonormal vectors (P, k) of
    the same span; their names, which Python takes; and, by name, what a figure calls those that are
    not just the name of a tensor.

    If the span holds directions of one tensor alone, these come first among equals and are
    named after it. Directions that move several tensors in fixed proportions are named after all
    of them, ``up_minus_down``. Each vector has as few weights as a reduced row echelon form gives
    it, unit length, and its first large entry is positive; they are ordered by that entry.
    """
    sizes = [math.prod(shape) for shape in shapes.values()]
    groups = []
    rest = basis
    for part in rest.split(sizes):  # directions of this tensor alone
        values, vectors = torch.linalg.eigh(part.T @ part)
        alone = values > 1 - _SAME
        if bool(alone.any()):
            groups.append(basis @ vectors[:, alone])
    if groups:
        pure = torch.cat(groups, 1)
        left, values, _ = torch.linalg.svd(rest - pure @ (pure.T @ rest), full_matrices=False)
        rest = left[:, values > 0.5]
    groups += _coupled(rest, sizes) if rest.shape[1] else []
    vectors = torch.cat([_sparse(group) for group in groups], 1)
    order = sorted(range(vectors.shape[1]), key=lambda i: _first(vectors[:, i]))
    vectors = vectors[:, order]
    vectors = vectors * torch.stack([v[_first(v)].sign() for v in vectors.T])
    return vectors, *_names(vectors, shapes)


def _first(vector: Tensor) -> int:
    """The index of the first entry that is large beside the largest."""
    return int((vector.abs() > _PIVOT * vector.abs().max()).nonzero()[0, 0])


def _coupled(basis: Tensor, sizes: list[int]) -> list[Tensor]:
    """Split a span (P, q) into parts (P, ·), in each of which tensors move in fixed proportions.

    ``sizes`` are the numbers of weights of the tensors. One part, if no proportions are fixed.
    """
    shares = [part.T @ part for part in basis.split(sizes)]
    mixed = sum(math.sqrt(2 + i) * share for i, share in enumerate(shares))
    assert isinstance(mixed, Tensor)
    values, vectors = torch.linalg.eigh(mixed)
    parts = []
    start = 0
    for i in range(1, len(values) + 1):
        if i == len(values) or values[i] - values[i - 1] > _SAME:
            parts.append(vectors[:, start:i])
            start = i
    for share in shares:  # else the proportions are not fixed
        if any(float((share @ p - p @ (p.T @ share @ p)).abs().max()) > _SAME for p in parts):
            return [basis]
    return [basis @ part for part in parts]


def echelon(rows: Tensor, pivot: float) -> Tensor:
    """Bring independent rows (q, m) into reduced echelon form, with pivots of 1.

    The next pivot is in the first column with an entry above this part of the largest one left.
    """
    rows = rows.clone()
    used: list[int] = []
    for _ in range(len(rows)):
        left = rows.abs()
        left[used] = 0.0
        column = int((left.amax(0) > pivot * left.max()).nonzero()[0, 0])
        row = int(left[:, column].argmax())
        rows[row] = rows[row] / rows[row, column]
        others = torch.arange(len(rows), device=rows.device) != row
        rows[others] = rows[others] - rows[others, column, None] * rows[row]
        used.append(row)
    return rows[used]


def _sparse(group: Tensor) -> Tensor:
    """An orthonormal basis (P, m) of the same space with many zeros, by elimination."""
    rows = echelon(group.T, _PIVOT)
    rows = torch.where(rows.abs() < _SAME * rows.abs().amax(1, keepdim=True), 0.0, rows)
    found: list[Tensor] = []
    for row in rows:  # disjoint rows are orthogonal already
        for earlier in found:
            row = row - (row @ earlier) * earlier
        found.append(row / row.norm())
    return torch.stack(found, 1)


def _names(
    vectors: Tensor, shapes: Mapping[str, tuple[int, ...]]
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Name vectors (P, k) of weights after the tensors that they move, each differently.

    Returns the names; and, by name, what a figure calls those that are not the name of a tensor.
    """
    short = _identifiers(shapes)
    sizes = [math.prod(shape) for shape in shapes.values()]
    plain, called = [], []
    for vector in vectors.T:
        names: list[str] = []
        for name, part in zip(short, vector.split(sizes), strict=True):
            if len(part) and float(part.norm()) > _SAME:
                sign = "_plus_" if part[_first(part)] > 0 else "_minus_"
                names += [sign, name] if names else [name]
        few, more = len(names) <= 5, f"{names[0]} and {len(names) // 2}"
        plain.append("".join(names) if few else more.replace(" ", "_"))
        words = "".join(names).replace("_plus_", " + ").replace("_minus_", " − ")
        called.append(words if few else f"{more} more")
    names, text = [], {}
    for i, name in enumerate(plain):
        alike = [j for j, other in enumerate(plain) if other == name]
        number = "" if len(alike) == 1 else f"_{alike.index(i) + 1}"
        names.append(name + number)
        if called[i] != name:
            text[name + number] = called[i] + number.replace("_", " ")
    return tuple(names), text


def _identifiers(shapes: Mapping[str, tuple[int, ...]]) -> list[str]:
    """A name for each tensor that Python takes: its last word where that says which one it is."""
    last = [name.split(".")[-1] for name in shapes]
    found: list[str] = []
    for name, word in zip(shapes, last, strict=True):
        vague = last.count(word) > 1 or word in ("weight", "bias")
        text = re.sub(r"\W", "_", name if vague else word).strip("_")
        digits, rest = re.match(r"(\d*)_*(.*)", text).groups()  # type: ignore[union-attr]
        text = rest + (f"_{digits}" if rest and digits else digits)
        text = text if text.isidentifier() else f"weights_{text}"
        found.append(text if text not in found else f"{text}_{len(found)}")
    return found
