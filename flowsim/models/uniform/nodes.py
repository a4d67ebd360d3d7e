"""Rows of parameters grouped by the steepness of their logits, and the nodes they are summed over.

The compressed law of ``quadrature`` as tensors on the device of the parameters, for
both current symbols x. Rows with |a| < 1 have no ReLU kink inside the law and share their nodes;
every other row gets the nodes of its own kink.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import torch
from torch import Tensor

from flowsim.chain import BinaryChain
from flowsim.models.bias import weighted_sum
from flowsim.models.past_law import Atoms, running_mean_law
from flowsim.models.uniform.quadrature import ORDER, GaussTree, Rule

#: The level of rows too steep for any rule: they are summed over all atoms.
EXACT = -1
#: The group of rows that are not finite.
NOT_FINITE = -9

#: Classes (x, o) of rows with |a| < 1, where the ReLU is open after a one, and of all rows.
SMOOTH = ((0, 0), (1, 1))
KINKED = ((0, 0), (0, 1), (1, 0), (1, 1))


def affine_logits(theta: Tensor) -> Tensor:
    """C and K of every class, shape (n, 4, 2), classes as in KINKED, for θ = (e, w, a, …)."""
    e, w, a = theta[:, :3].unbind(-1)
    square, gamma = e * e, 4 * w * w.abs()
    columns = []
    for x, o in KINKED:
        columns += [square * (x + o * (x - 0.5) * gamma), square * a * (1 + o * gamma)]
    return torch.stack(columns, dim=1).view(-1, len(KINKED), 2)


@dataclass
class Nodes:
    """The law of m given the current symbol x, and where the ReLU is open.

    ``m`` and ``weight`` have shape (1 or rows, J); ``open``, shape (rows, J), is 1 where
    s = x − ½ + a·m > 0 and else 0, or None where it is x, as for every |a| < 1.
    """

    x: int
    m: Tensor
    weight: Tensor
    open: Tensor | None = None

    @cached_property
    def by_class(self) -> list[Tensor]:
        """weight · (1, m, m²) of the nodes with the ReLU closed and of those with it open.

        Two tensors of shape (rows, J, 3), or one of shape (J, 3) where ``open`` is None.
        """
        powers = torch.stack([self.weight, self.weight * self.m, self.weight * self.m**2], dim=2)
        if self.open is None:
            return [powers[0]]
        return [powers * (1 - self.open)[:, :, None], powers * self.open[:, :, None]]

    def logits(self, affine: Tensor, shift: Tensor | float = 0.0) -> Tensor:
        """f = β + C + K m, shape (rows, J), from :func:`affine_logits` and the shift β, (rows,)."""
        closed, opened = affine[:, 2 * self.x], affine[:, 2 * self.x + 1]
        if self.open is None:
            level, steep = (opened if self.x else closed).unbind(1)
            return torch.addcmul((level + shift)[:, None], steep[:, None], self.m)
        level, steep = closed.unbind(1)
        risen, steeper = (opened - closed).unbind(1)
        level = torch.addcmul((level + shift)[:, None], risen[:, None], self.open)
        steep = torch.addcmul(steep[:, None], steeper[:, None], self.open)
        return torch.addcmul(level, steep, self.m)

    def integrate(self, values: Tensor) -> Tensor:
        """Σ weight · values over the nodes, shape (rows,)."""
        return weighted_sum(values, self.weight)

    def at(self, a: Tensor) -> Nodes:
        """The same with the ReLU open where s > 0 for each a of shape (rows,); ReLU'(0) = 0."""
        s = self.x - 0.5 + a[:, None] * self.m
        return Nodes(self.x, self.m, self.weight, (s > 0).to(s))


class NodeTable:
    """All nodes of one chain and length on one device; :func:`node_table` keeps them.

    Args:
        chain: the data.
        length: N.
        compress: whether to compress the law; else every row is summed over all atoms.
        device: where the tensors live.
    """

    def __init__(
        self, chain: BinaryChain, length: int, compress: bool, device: torch.device
    ) -> None:
        self.device = device
        laws = running_mean_law(chain, length)
        self._trees = [GaussTree(law) for law in laws] if compress else []
        self._steepest = min((tree.depth for tree in self._trees), default=EXACT)
        self._kinks = [KinkTable(x, tree, device) for x, tree in enumerate(self._trees)]
        self._rules: dict[int, list[Rule]] = {}
        self._shared: dict[tuple[int, str], list[Nodes]] = {(EXACT, "smooth"): self._nodes(laws)}

    def groups(self, theta: Tensor) -> Tensor:
        """A number for each row of θ = (e, w, a, …): 2·level, plus one if |a| ≥ 1.

        Only then can the ReLU's kink lie inside the law. A level's rule serves slopes up to
        2^level of the logit in m; the steepest slope is κ = e²|a| max(1, |1 + 4w|w||).
        """
        e, w, a = theta[:, :3].unbind(-1)
        kappa = e.square() * a.abs() * (1 + 4 * w * w.abs()).abs().clamp(min=1.0)
        level = kappa.log2().ceil().clamp(min=0.0)
        level = torch.where(level <= self._steepest, level, float(EXACT))
        finite = kappa.isfinite() & w.isfinite()
        return torch.where(finite, 2 * level + (a.abs() >= 1), float(NOT_FINITE)).long()

    def size(self, group: int) -> int:
        """Number of nodes per row of both symbols together, at most."""
        level, kinked = divmod(group, 2)
        if kinked and level != EXACT:
            rules = self._rule(level)
            return sum(k.size(rule) for k, rule in zip(self._kinks, rules, strict=True))
        return sum(nodes.m.shape[-1] for nodes in self._shared_nodes(level, "smooth"))

    def nodes(self, group: int, a: Tensor) -> list[Nodes]:
        """Nodes for x = 0 and 1 for rows of one group with the given a, shape (rows,)."""
        level, kinked = divmod(group, 2)
        if not kinked:
            return self._shared_nodes(level, "smooth")
        if level == EXACT:
            return [nodes.at(a) for nodes in self._shared_nodes(level, "smooth")]
        both = zip(self._kinks, self._rule(level), strict=True)
        return [kink.nodes(rule, a).at(a) for kink, rule in both]

    def coarse_nodes(self, group: int, a: Tensor) -> list[Nodes] | None:
        """Fewer nodes for a first guess, with errors of some per cent; None without compression."""
        level, kinked = divmod(group, 2)
        if not self._trees:
            return None
        level = min(8, self._steepest) if level == EXACT else level
        shared = self._shared_nodes(level, "coarse")
        return [nodes.at(a) for nodes in shared] if kinked else shared

    @property
    def nbytes(self) -> int:
        """Memory of the nodes built so far or, without compression, of all atoms."""
        exact = (EXACT, "smooth")
        shared = [v for k, v in self._shared.items() if not self._trees or k != exact]
        tensors = [t for nodes in shared for law in nodes for t in (law.m, law.weight)]
        tensors += [t for kink in self._kinks for t in vars(kink).values() if isinstance(t, Tensor)]
        indices = [a for rules in self._rules.values() for rule in rules for a in rule[3:]]
        return sum(t.nbytes for t in tensors) + sum(a.nbytes for a in indices)

    def _rule(self, level: int) -> list[Rule]:
        if level not in self._rules:
            self._rules[level] = [tree.rule(2.0**level) for tree in self._trees]
        return self._rules[level]

    def _shared_nodes(self, level: int, which: str) -> list[Nodes]:
        if (level, which) not in self._shared:
            laws = [getattr(rule, which) for rule in self._rule(level)]
            self._shared[level, which] = self._nodes(laws)
        return self._shared[level, which]

    def _nodes(self, laws: list[Atoms] | tuple[Atoms, Atoms]) -> list[Nodes]:
        nodes = []
        for x, law in enumerate(laws):
            m, weight = (torch.as_tensor(v, device=self.device)[None] for v in law)
            nodes.append(Nodes(x, m, weight))
        return nodes


class KinkTable:
    """One symbol's tree as tensors, for rows with the ReLU kink at m = (½ − x)/a inside the law."""

    def __init__(self, x: int, tree: GaussTree, device: torch.device) -> None:
        self.x, self.depth = x, tree.depth
        self.m, self.weight = (torch.as_tensor(v, device=device) for v in tree.atoms)
        self.bin_m, self.bin_weight = (
            torch.as_tensor(v, device=device) for v in (tree.node, tree.weight)
        )
        self.start = torch.as_tensor(tree.start, device=device)
        self.leaf_size = int(self.start.diff().max())

    def size(self, rule: Rule) -> int:
        """Number of nodes per row."""
        halves = ORDER * (self.depth - int(rule.leaf_level.min()))
        return len(rule.binned.m) + halves + self.leaf_size

    def nodes(self, rule: Rule, a: Tensor) -> Nodes:
        """For each a, |a| ≥ 1, of shape (rows,): nodes none of whose bins has the kink inside.

        All nodes of the bins, those of the kink's bin with weight zero; then the halves without
        kink on every level below that bin; then the atoms of the kink's leaf. Shape (rows, J).
        """
        kink = (0.5 - self.x) / a
        leaf = ((kink + 0.5) * 2**self.depth).long().clamp(0, 2**self.depth - 1)
        node_bin, leaf_bin, leaf_level = (
            torch.as_tensor(v, device=a.device)
            for v in (rule.node_bin, rule.leaf_bin, rule.leaf_level)
        )
        binned_m, binned_weight = (torch.as_tensor(v, device=a.device) for v in rule.binned)
        weights = [torch.where(node_bin == leaf_bin[leaf, None], 0.0, binned_weight)]
        points = [binned_m.expand_as(weights[0])]
        for level in range(int(rule.leaf_level.min()) + 1, self.depth + 1):
            half = 2**level - 1 + ((leaf >> (self.depth - level)) ^ 1)
            below = (leaf_level[leaf] < level)[:, None]
            points.append(self.bin_m[half])
            weights.append(self.bin_weight[half] * below)
        index = self.start[leaf, None] + torch.arange(self.leaf_size, device=a.device)
        inside = index < self.start[leaf + 1, None]
        index = index.clamp(max=len(self.m) - 1)
        points.append(self.m[index])
        weights.append(self.weight[index] * inside)
        m = torch.cat(points, dim=-1)
        return Nodes(self.x, m, torch.cat(weights, dim=-1))


@lru_cache(maxsize=16)
def node_table(chain: BinaryChain, length: int, compress: bool, device: torch.device) -> NodeTable:
    """The :class:`NodeTable` of a chain and length, built once and kept."""
    return NodeTable(chain, length, compress, device)
