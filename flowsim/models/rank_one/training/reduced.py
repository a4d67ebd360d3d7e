"""Training in rank-one coordinates: exactly what an optimizer does to lifted weights.

From weights lifted with α = β = (±1 … ±1)/√d every optimizer that treats the entries of a weight
alike keeps them lifted, with the population loss and with sampled batches. So full training is a
map in (e, ρ_1 … ρ_N, w1, w2[, o, v], b[, c]). Source: own derivation, docs/derivations/10.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from flowsim.arrays import Numbers
from flowsim.errors import InputError
from flowsim.interface import starts_of
from flowsim.labels import Label, Rule, Status
from flowsim.models.rank_one.point import WIDTH_RATIO
from flowsim.models.rank_one.training import steps as loops
from flowsim.models.rank_one.training.sequences import Atoms, population_atoms, sampled_atoms
from flowsim.training.optimizer_choice import CLIP_GUARD, OptimizerChoice, chosen
from flowsim.training.rule import rule_of
from flowsim.training.trained import AT_UNIGRAM, LEARNED_POPULATION, LEARNED_SAMPLED, Trained

#: Times at which the exact loss is looked at, beside the last steps.
_LOOKS = 100
#: Atoms of batches held at once, and row·steps·atoms between two looks at the clock.
_ATOMS, _WORK = 2**14, 2**27
#: Steps within which a row is expected to come back if it goes round in a circle.
_PERIODS = 64
#: Steps at the end of which each is looked at, so that no short period is missed.
LAST = 8
#: A figure's words for how far runs come, in the order of their codes.
PROGRESS = {
    "unresolved": "unresolved",
    "global_minimum": "learns the bigram",
    "local_minimum": "trapped at the unigram for good",
    "plateau": "at the unigram when the steps end",
    "between": "between unigram and bigram when the steps end",
    "above": "loss above the unigram's when the steps end",
    "equal": "unigram and bigram have the same loss",
    "periodic": "large steps go round in a circle",
    "diverged": "diverges",
}
#: The usual relative displacement of a transformer's start.
USUAL_NUDGE = 1e-12


class ReducedTraining:
    """Training of the full transformer from lifted weights, followed in reduced coordinates.

    The transformer has embedding dimension d, hidden width 4d, and as many positions as the model.
    Unless each start is to have its own, all see the same batches, those that
    ``full_model.Trainer`` draws for a single model from a generator with the seed; so a start's run
    does not depend on the other starts.

    Args:
        model: the rank-one model, with or without attention, tied or untied.
        optimizer: an ``OptimizerChoice``, or a name (gd, momentum, adam, adamw) with ``numbers``.
        numbers: as of ``OptimizerChoice.named``.

    Attributes:
        coordinates: the names of the columns of a state. Positions have one ρ each, but for the
            population loss without attention, where all stay equal.

    Raises:
        InputError: another model, or what ``OptimizerChoice.named`` refuses.

    >>> import flowsim
    >>> model = flowsim.model("rank-one", 0.5, 0.8, length=4)
    >>> flowsim.training.ReducedTraining(model, "gd", steps=50).coordinates
    ('e', 'rho', 'w1', 'w2', 'b')
    """

    #: See ``flowsim.training.rule``.
    columns: Mapping[str, str] = MappingProxyType(
        {"progress": "i1", "loss": "<f8", "open_share": "<f8", "learned_step": "<f8"}
    )
    progress: Mapping[str, str] = PROGRESS

    @staticmethod
    def completed(choice: OptimizerChoice) -> OptimizerChoice:
        """Return the choice with d = 8 and the usual nudge unless given."""
        nudge = USUAL_NUDGE if choice.nudge is None else choice.nudge
        return replace(choice, d=choice.d or 8, nudge=nudge, own=False)

    def __init__(self, model: Any, optimizer: OptimizerChoice | str, **numbers: Any) -> None:
        if rule_of(model) is None:
            raise InputError(
                f"optimizers have reduced maps in the rank-one model, not in the {model.name} one"
            )
        optimizer = chosen(optimizer, numbers).on(model)
        self.model, self.optimizer = model, optimizer
        self.sampled = optimizer.loss == "sampled"
        self.positions = model.length if model.attention or self.sampled else 1
        rho = [f"rho{n + 1}" for n in range(self.positions)] if self.positions > 1 else ["rho"]
        after = model.coordinates[model.coordinates.index("w1") :]
        self.coordinates = ("e", *rho, *after)
        self._exact = population_atoms(model.chain, self.positions, model.attention)
        adam, momentum = optimizer.trainer == "adamw", optimizer.has_momentum and optimizer.momentum
        # in the order of ``steps``
        self._kinds = np.array([self.positions, model.attention, model.tied, adam], dtype=np.int64)
        reals = optimizer.beta1, optimizer.beta2, optimizer.epsilon, momentum, optimizer.clip or 0
        self._reals = np.array([*reals, CLIP_GUARD], dtype=float)

    def run(
        self,
        theta0: Numbers,
        progress: Callable[[int], object] | None = None,
        own_batches: bool = False,
        keep: Collection[int] = (),
    ) -> Trained:
        """Train from every start and say what became of it.

        Args:
            theta0: starts in the model's coordinates, shape (n, k); ``model.from_canonical`` lifts.
            progress: called with how many more steps were taken, summed over the starts.
            own_batches: give each start batches of its own, those of a ``full_model.Trainer`` with
                one model for each start; they depend on the number and order of the starts.
            keep: numbers of steps, from 0 to all, after which coordinates and losses are kept.

        Raises:
            InputError: wrong number of coordinates, or a step to keep that is not taken.
        """
        rows = self.states(theta0)
        failed = ~np.isfinite(rows).all(axis=1)
        rows[failed] = 0.0
        moments, steps = np.zeros((2, *rows.shape)), self.optimizer.steps
        generator = torch.Generator().manual_seed(self.optimizer.seed)
        looks = sorted({*(steps * i // _LOOKS for i in range(1, _LOOKS + 1)),
                        *range(max(1, steps - LAST + 1), steps + 1)} - {0})  # fmt: skip
        if not all(0 <= step <= steps for step in keep):
            raise InputError(f"steps to keep must be from 0 to {steps}")
        losses: list[np.ndarray] = []
        kept: dict[int, tuple[Tensor, Tensor]] = {}
        done = 0
        for stop in sorted({*looks, *keep}):
            self._advance(rows, moments, done, stop, generator, progress, own_batches)
            done, loss = stop, self.losses(rows)
            losses += [loss] if stop in looks else []
            kept |= {stop: (self._in_model(rows), torch.from_numpy(loss))} if stop in keep else {}
        found = self._labelled(self._in_model(rows), np.array(looks), np.array(losses))
        if kept:
            found.path, found.path_loss = (torch.stack(x) for x in zip(*kept.values(), strict=True))
        found.state = torch.from_numpy(rows)
        found.status[self._come_back(rows, moments, found)] = Status.PERIODIC
        lost = torch.from_numpy(failed)  # starts that were not finite
        found.label[lost], found.rule[lost] = Label.UNRESOLVED, Rule.NONE
        found.status[lost] = Status.FAILED
        for values in (found.theta, found.loss, found.open_share, found.learned_step, found.state):
            values[lost] = torch.nan
        found.progress = _progress(found)
        return found if isinstance(theta0, Tensor) else found.numpy()

    def _labelled(self, theta: Tensor, looks: np.ndarray, losses: np.ndarray) -> Trained:
        """Label runs that ended at θ (n, k) by their losses (looks, n) after ``looks`` steps.

        One has learned if its loss came close to the entropy rate and stayed so to the end.
        """
        chain, last = self.model.chain, losses[-1].copy()
        gap = chain.mutual_information if chain.second_eigenvalue else np.nan
        with np.errstate(over="ignore", invalid="ignore"):  # of runs that diverge
            share = (losses - chain.entropy_rate) / gap
        below = share <= (LEARNED_SAMPLED if self.sampled else LEARNED_POPULATION)
        for_good = np.flip(np.logical_and.accumulate(np.flip(below, 0)), 0)
        finite = np.isfinite(last) & torch.isfinite(theta).all(dim=1).numpy()
        learned = for_good[looks > looks[-1] - LAST].all(axis=0)
        first = np.where(learned, looks[for_good.argmax(axis=0)], np.nan)
        learned &= finite
        stays = trapped(self.model, self.optimizer, theta).numpy() & finite & ~learned
        label = np.where(learned, Label.GLOBAL_MINIMUM, Label.UNRESOLVED)
        rule = np.where(learned, Rule.LEARNED, Rule.NONE)
        label[stays], rule[stays] = Label.LOCAL_MINIMUM, Rule.TRAPPED_BY_PLANE
        status = np.where(learned | stays, Status.CONVERGED, Status.TIMED_OUT)
        status[~finite] = Status.DIVERGED
        return Trained(
            theta,
            label=torch.from_numpy(label.astype(np.int8)),
            status=torch.from_numpy(status.astype(np.int8)),
            rule=torch.from_numpy(rule.astype(np.int8)),
            loss=torch.from_numpy(last),
            open_share=torch.from_numpy(share[-1].copy()),
            learned_step=torch.from_numpy(first),
        )

    def states(self, theta0: Numbers) -> np.ndarray:
        """Return the starts as rows (n, columns): nudged, one ρ for each of the map's positions."""
        rows = np.array(starts_of(self.model, theta0).detach().cpu().numpy())
        if self.positions > 1 and not self.model.attention:
            rho = np.repeat(rows[:, 1:2], self.positions, axis=1)
            rows = np.concatenate([rows[:, :1], rho, rows[:, 2:]], axis=1)
        return rows * self.optimizer.nudges(len(self.coordinates))

    def losses(self, rows: np.ndarray) -> np.ndarray:
        """Return the exact expected loss of every state in nats, shape (n,)."""
        found, atoms = np.empty(len(rows)), self._exact
        for part in self._row_slices(len(rows), len(atoms.place)):
            loops.losses_of(
                rows[part], self._kinds, atoms.place, atoms.values, *self._buffers(atoms)[:2],
                found[part],
            )  # fmt: skip
        return found

    def _advance(
        self,
        rows: np.ndarray,
        moments: np.ndarray,
        done: int,
        end: int,
        generator: torch.Generator,
        progress: Callable[[int], object] | None = None,
        own_batches: bool = False,
    ) -> None:
        """Take steps ``done`` to ``end`` − 1; rows and moments (2, n, columns) are changed."""
        model, choice = self.model, self.optimizer
        each = choice.batch * model.length if model.attention else 2 * model.length
        sets = len(rows) if own_batches else 1
        by_step, by_row = (sets, int(own_batches)) if self.sampled else (0, 0)
        at_once = max(1, _ATOMS // (each * sets)) if self.sampled else end - done
        while done < end:
            count, atoms = min(at_once, end - done), self._exact
            if self.sampled:
                drawn = choice.batch, model.length, model.attention, generator
                atoms = sampled_atoms(model.chain, count * sets, *drawn)
            rates, room = self._rates(done, count), self._buffers(atoms)
            cost = count * int(np.diff(atoms.bounds).max())
            for part in self._row_slices(len(rows), cost):
                order = np.array([part.start * by_row, by_step, by_row])
                loops.advance(
                    rows[part], *moments[:, part], self._kinds, self._reals, self._scales(), rates,
                    order, *atoms, *room,
                )  # fmt: skip
                if progress is not None:
                    progress(count * (part.stop - part.start))
            done += count

    def _rates(self, first: int, count: int) -> np.ndarray:
        """Return (learning rate, rate/(1 − β₁ᵗ), (1 − β₂ᵗ)^(−1/2)) of ``count`` steps, (count, 3).

        The steps are counted from ``first``, which begins at 0; t is one more.
        """
        choice = self.optimizer
        rows = []
        for step in range(first, first + count):
            rate = choice.rate(step)
            one, two = 1 - choice.beta1 ** (step + 1), 1 - choice.beta2 ** (step + 1)
            rows.append((rate, rate / one, 1 / math.sqrt(two)))
        return np.array(rows)

    def _scales(self) -> np.ndarray:
        """Return κ, κ/M, M and the decay of every column, shape (4, columns).

        A coordinate is κ times an entry of its weight, which has M entries.
        """
        d, decay = float(self.optimizer.d or 8), self.optimizer.weight_decay or 0.0
        shared = self.model.length / self.positions  # positions that one column stands for
        width = WIDTH_RATIO * d * d
        blocks = {"e": (math.sqrt(d), d, 0.0), "w1": (d, width, decay), "w2": (d, width, decay),
                  "o": (d, d * d, decay), "v": (d, d * d, decay), "b": (1.0, 1.0, 0.0),
                  "c": (math.sqrt(d), d, decay)}  # fmt: skip
        rho = (math.sqrt(d), d * shared, 0.0)
        kappa, entries, decays = np.array([blocks.get(name, rho) for name in self.coordinates]).T
        return np.stack([kappa, kappa / entries, entries, decays])

    def _buffers(self, atoms: Atoms) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return empty buffers for means of positions, values of atoms, and a gradient."""
        most = int(np.diff(atoms.bounds).max())
        return np.empty(self.positions), np.empty((4, most)), np.empty(len(self.coordinates))

    def _row_slices(self, rows: int, cost: int) -> list[slice]:
        """Return slices of rows, between which Ctrl-C is heard; no row's numbers depend on them."""
        size = max(1, _WORK // max(1, cost))
        return [slice(low, min(rows, low + size)) for low in range(0, rows, size)]

    def _in_model(self, rows: np.ndarray) -> Tensor:
        """Return states in the model's coordinates: without attention ρ is the positions' mean."""
        count = self.positions
        if self.model.attention or count == 1:
            return torch.from_numpy(rows.copy())
        with np.errstate(over="ignore", invalid="ignore"):  # of rows that have diverged
            rho = rows[:, 1 : 1 + count].mean(axis=1, keepdims=True)
        return torch.from_numpy(np.concatenate([rows[:, :1], rho, rows[:, 1 + count :]], axis=1))

    def _come_back(self, rows: np.ndarray, moments: np.ndarray, found: Trained) -> Tensor:
        """Return a mask (n,) of undecided rows that move and come back within 64 more steps.

        Deterministic descent at a constant rate: back to 1e-9 after having been off by 1e-6,
        relative to the largest coordinate.
        """
        back = np.zeros(len(rows), dtype=bool)
        choice = self.optimizer
        open_rows = np.flatnonzero(found.status.numpy() == Status.TIMED_OUT)
        if self.sampled or choice.schedule != "constant" or not len(open_rows):
            return torch.from_numpy(back)
        start = rows[open_rows]
        state, moved = start.copy(), moments[:, open_rows].copy()
        size = np.maximum(np.abs(start).max(axis=1), 1e-300)
        largest = np.zeros(len(start))
        for step in range(_PERIODS):
            first = choice.steps + step
            self._advance(state, moved, first, first + 1, torch.Generator())
            off = np.abs(state - start).max(axis=1) / size
            largest = np.maximum(largest, off)
            back[open_rows] |= (off <= 1e-9) & (largest >= 1e-6)
        return torch.from_numpy(back)


def _progress(found: Trained) -> Tensor:
    """Return how far every run came: places in ``PROGRESS``, int8 (n,)."""
    status, share = found.status, found.open_share
    progress = torch.full_like(found.label, [*PROGRESS].index("between"))
    for name, runs in (
        ("above", share > 1),
        ("equal", share.isnan()),  # p + q = 1
        ("plateau", (share - 1).abs() <= AT_UNIGRAM),
        ("global_minimum", found.label == Label.GLOBAL_MINIMUM),
        ("local_minimum", found.label == Label.LOCAL_MINIMUM),
        ("periodic", status == Status.PERIODIC),
        ("diverged", status == Status.DIVERGED),
        ("unresolved", status == Status.FAILED),
    ):
        progress[runs] = [*PROGRESS].index(name)
    return progress


def trapped(model: Any, optimizer: OptimizerChoice, theta: Tensor) -> Tensor:
    """Return whether descent goes on from θ (n, k) to the unigram for certain, bool (n,).

    False wherever there is no proof: for other optimizers than plain gradient descent on the
    population loss at a constant rate, with attention, and untied (where all is saddles).
    """
    nowhere = torch.zeros(len(theta), dtype=torch.bool)
    plain = optimizer.name == "gd" and optimizer.loss == "population"
    steady = optimizer.schedule == "constant" and not optimizer.weight_decay
    if not (plain and steady and model.tied and not model.attention):
        return nowhere
    chain, rate = model.chain, optimizer.rate(0)
    pi0, pi1 = chain.stationary
    e, rho, w1, w2, b = theta.unbind(1)
    shut = (w1 == 0) & (w2 == 0)
    s = 1 + WIDTH_RATIO * w1 * w2 * (w1 * rho > 0)
    z = torch.hypot(e, b - math.log(pi1 / pi0))
    flat, up = rho * s, 2 * (chain.switching_factor - 1) * s
    trace, det = pi0 * pi1 * (flat.square() + up + 1), (pi0 * pi1) ** 2 * up
    root = (trace.square() / 4 - det).clamp(min=0).sqrt()
    low, high = det / (trace / 2 + root), trace / 2 + root
    left = torch.minimum(rate * low, 2 - rate * high)  # 1 − r
    slope, weights = s.abs(), w1.abs() + w2.abs()
    reach = 1 + flat.abs() + slope  # bounds the derivatives of the logits in z
    drift = 4 * (slope * reach + weights * (rho.abs() * reach + 1)) * z.square()
    moved = 2 * rate * drift / left
    by_slope = WIDTH_RATIO * (weights + moved) * moved
    change = 2 * reach * (slope * moved + (rho.abs() + moved) * by_slope) + 2 * by_slope
    inside = (z + moved <= rho.abs() / 4) & (shut | (moved <= w1.abs() / 4)) & (z <= 0.5)
    small = (rate * reach**3 * z <= left / 8) & (rate * change <= left / 4)
    pull = 2 * high * z + drift
    unclipped = torch.ones_like(inside) if optimizer.clip is None else pull <= optimizer.clip
    return (low > 0) & (left > 0) & inside & small & unclipped
