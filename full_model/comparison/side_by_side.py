"""Full models moved from saved time to saved time, beside the reduced orbits of their points."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from flowsim.flow.orbits import find_limits, trajectories
from flowsim.labels import Label
from flowsim.markov import SymmetricChain
from full_model.comparison.choices import Comparison, predicting_model
from full_model.comparison.exponential import FIRST_STEP, flow_until
from full_model.comparison.fields import FullField
from full_model.comparison.outcome import EndReason, at_unigram_of_states, classify
from full_model.comparison.steps import chatters, step_until
from full_model.lift.initial import with_noise
from full_model.lift.lifting import lift_held
from full_model.lift.projection import project
from full_model.lift.states import lift_states, project_states
from full_model.model.architecture import Weights

#: Error of a step of the orbits, which are only drawn and need not be exact.
_RTOL = 1e-8
#: Half the width over which ReLU's kink is rounded off for the flow, in a hidden unit's input: an
#: orbit that slides along a kink is in that layer, where the field is steep but smooth.
ROUNDING = 1e-4


def lifted_weights(
    settings: Comparison, points: Tensor, seeds: Sequence[int] | None = None
) -> Weights:
    """Return the full models' first weights (n, *shape): lifts of points with the optimal bias.

    The settings' noise is added, with one seed a point: by default the settings' seed + i.
    """
    arch = settings.architecture
    if settings.states is not None:
        clean = lift_states(points, arch)
    else:
        clean = lift_held(points, arch, settings.binary_chain)
    if not settings.noise:
        return clean
    seeds = range(settings.seed, settings.seed + len(points)) if seeds is None else seeds
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    noisy = with_noise(arch, clean, settings.noise, generators)
    return clean | {name: noisy[name] for name in settings.noisy_weights}


def attention_stays_zero(settings: Comparison, dimensions: int) -> bool:
    """Return whether W_Q, W_K, W_V and W_O are zero at the start, and therefore for good.

    The gradient of W_V has the factor W_O, that of W_O the factor W_V, and those of W_Q and W_K
    have each other: where all four are zero, none of them moves.
    """
    return dimensions == 2 and not (settings.noise and settings.noise_on != "others")


def full_field(
    settings: Comparison, dimensions: int, rounding: float = 0.0, tied: bool = True
) -> FullField:
    """Make the field that moves full models lifted from points of 2 or 3 coordinates.

    Attention that stays zero is left out, with one position for all N where no noise parts them.
    """
    arch = replace(settings.architecture, tied=tied)
    plain = attention_stays_zero(settings, dimensions)
    if plain:
        arch = replace(arch, attention="none")
    shared = plain and settings.noise == 0
    return FullField(arch, settings.chain, shared, settings.device, rounding)


class FullSide:
    """M full models under gradient descent or gradient flow of the exact loss.

    They start at the lifts of ``points`` (M, 2 or 3), or at ``weights``; untied ones are labelled
    if they learn, and nothing is decided of those that stay at the unigram.

    Attributes:
        state, time, steps: weights (M, K) flattened by ``field``, physical times and steps taken.
        outcome: (M,) int8 labels, unresolved while undecided.
        end: (M,) the last time at which a run was measured.
        open_share, curvature, gradient_norm: (M,) as measured then, see ``outcome.Outcome``.
    """

    def __init__(
        self,
        settings: Comparison,
        points: Tensor,
        seeds: Sequence[int] | None = None,
        weights: Weights | None = None,
    ) -> None:
        count, device = len(points), settings.device
        self.settings, self.dimensions = settings, points.shape[1]
        weights = lifted_weights(settings, points, seeds) if weights is None else weights
        tied = "unembedding" not in weights
        self.field = full_field(settings, self.dimensions, tied=tied)
        # moves the runs of the flow; they are measured by ``field``, with ReLU itself
        rounding = ROUNDING if settings.trainer == "flow" else 0.0
        self.rounded = full_field(settings, self.dimensions, rounding, tied)
        self.arch = self.field.arch
        assert settings.steps is not None
        self.most_steps = settings.steps
        self.state = self.field.state({k: w.to(device) for k, w in weights.items()})
        self.width = torch.full((count,), FIRST_STEP, dtype=torch.float64, device=device)
        self.time = torch.zeros(count, dtype=torch.float64, device=device)
        self.steps = torch.zeros(count, dtype=torch.int64, device=device)
        self.outcome = torch.full((count,), Label.UNRESOLVED, dtype=torch.int8)
        nan = torch.full((4, count), torch.nan, dtype=torch.float64)
        self.end, self.open_share, self.curvature, self.gradient_norm = nan

    def undecided(self) -> Tensor:
        """Mask of runs that are to be moved on, (M,) bool."""
        going = (self.steps < self.most_steps) & self.state.isfinite().all(1)
        return (self.outcome == Label.UNRESOLVED) & going.cpu()

    def move(self, until: float, pause: Callable[[], object] | None = None) -> None:
        """Move the undecided runs to that time; ``pause`` as in ``step_until``."""
        active, most = self.undecided().to(self.state.device), self.most_steps
        rows = self.state, self.time, self.steps
        if self.settings.trainer == "flow":
            flow_until(self.rounded, *rows, self.width, until, active, pause, most)
        else:
            step_until(self.field, *rows, until, active, pause=pause, most=most)

    @torch.no_grad()
    def end_reasons(self) -> Tensor:
        """Why each run was moved no further, (M,) int8 values of ``EndReason``."""
        reason = torch.full_like(self.outcome, EndReason.HORIZON_REACHED)
        reason[(self.steps >= self.most_steps).cpu()] = EndReason.STEPS_USED_UP
        reason[~self.state.isfinite().all(1).cpu()] = EndReason.NOT_FINITE
        reason[self.outcome != Label.UNRESOLVED] = EndReason.DECIDED
        rows = (reason == EndReason.STEPS_USED_UP).nonzero()[:, 0]
        if len(rows):
            creeps = chatters(self.field, self.state[rows.to(self.state.device)]).cpu()
            reason[rows[creeps]] = EndReason.CREEPS_ALONG_A_KINK
        return reason

    @torch.no_grad()
    def measure(self, at: float) -> dict[str, Tensor]:
        """Measure the undecided runs at that time, and decide what can be decided.

        Returns "loss" and "drift", the relative distance from the family of lifts, both (M,), and
        "trained", (M, 2 or 3), the projected coordinates; NaN for runs that had ended before.
        """
        count, k = len(self.outcome), self.dimensions
        line = {
            name: torch.full(shape, torch.nan, dtype=torch.float64)
            for name, shape in (("loss", (count,)), ("drift", (count,)), ("trained", (count, k)))
        }
        rows = self.undecided().nonzero()[:, 0]
        if not len(rows):
            return line
        field, state = self.field, self.state[rows.to(self.state.device)]
        loss = field.loss(state)
        line["loss"][rows] = loss.cpu()
        arch, chain, noise = self.arch, self.settings.chain, self.settings.noise
        whole = field.whole(state)
        known = loss, field.weights(state), field.gradient, field.metric_weights()
        if isinstance(chain, SymmetricChain):
            on_plane = project_states(arch, whole)
            turned = project_states(arch, whole, turns=8) if noise else on_plane
            found = classify(chain, *known, partial(at_unigram_of_states, chain, turned))
            trained, drift = on_plane.canonical, turned.relative_distance
        else:
            lifted = project(arch, whole, state.new_full((arch.d,), arch.d**-0.5))
            nearest = project(arch, whole, rounds=8) if noise else lifted
            found = classify(chain, *known)
            trained, drift = lifted.canonical, nearest.relative_distance
        line["trained"][rows] = trained[:, :k].cpu()
        line["drift"][rows] = drift.cpu()
        self.outcome[rows] = found.label.cpu()
        self.open_share[rows] = found.open_share.cpu()
        self.curvature[rows] = found.curvature.cpu()
        self.end[rows] = at
        square = field.slope(state).square() / field.metric
        self.gradient_norm[rows] = square.sum(1).sqrt().cpu()
        return line


#: Between the times at which runs are looked at: the first, and each next one by this factor.
FIRST_TIME, FACTOR = 0.25, 2**0.5
#: Quantities measured at the saved times, and those of each run at the end.
CURVES = ("loss", "drift", "trained", "reduced_loss", "orbit", "distance")
ENDS = ("predicted", "outcome", "end_reason", "steps", "end", "open_share", "curvature",
        "gradient_norm")  # fmt: skip


class SideBySide:
    """Some starts of a comparison under gradient descent or flow, beside the reduced flow.

    Args:
        settings: what to compare.
        points: (n, 2 or 3).
        seeds: see ``lifted_weights``.

    Attributes:
        start: (n, k), the points in the coordinates of the reduced model.
        predicted: (n,) int8 labels of its limits.
    """

    def __init__(
        self, settings: Comparison, points: Tensor, seeds: Sequence[int] | None = None
    ) -> None:
        self.settings = settings
        self.full = FullSide(settings, points, seeds)
        self.model = predicting_model(settings, points.shape[1])
        self.start = self.model.plane.embed(dict(zip("ewa", points.unbind(-1), strict=False)))
        self.predicted = find_limits(self.model, self.start).label
        self.times: list[float] = []
        self.lines: list[dict[str, Tensor]] = []

    def run(self, pause: Callable[[], object] | None = None) -> None:
        """Go on until every run is decided, its steps are used up, or the time is over."""
        horizon = self.settings.last_time
        if not self.times:
            self._measure(0.0)
        while bool(self.full.undecided().any()) and self.times[-1] < horizon:
            until = min(FIRST_TIME * FACTOR ** (len(self.times) - 1), horizon)
            self.full.move(until, pause)
            self._measure(until)
            if pause is not None:
                pause()

    def _measure(self, at: float) -> None:
        """Measure the full models at that time and keep the line."""
        self.times.append(at)
        self.lines.append(self.full.measure(at))

    def found(self) -> dict[str, np.ndarray]:
        """All that was found: "time" (T,), ``CURVES`` (T, n[, 2 or 3]) and ``ENDS`` (n,).

        Curves end (NaN) where the run was decided. "distance" is from the reduced flow's orbit at
        the same time: what finite steps do to descent is part of it.
        """
        full = self.full
        columns = {name: torch.stack([line[name] for line in self.lines]) for name in self.lines[0]}
        model, times = self.model, torch.tensor(self.times, dtype=torch.float64)
        path = self.start.unsqueeze(0)
        if len(times) > 1:
            path = trajectories(model, self.start, times, rtol=_RTOL)
        known, orbit = path.isfinite().all(-1), model.plane.project(path)
        loss = model.loss(torch.where(known.unsqueeze(-1), path, self.start))
        measured = columns["loss"].isfinite()
        columns["orbit"] = torch.where(measured.unsqueeze(-1), orbit, torch.nan)
        columns["reduced_loss"] = torch.where(measured & known, loss, torch.nan)
        columns["distance"] = (columns["trained"] - orbit).norm(dim=-1)
        columns |= {"predicted": self.predicted, "end_reason": full.end_reasons()}
        for name in ("outcome", "steps", "end", "open_share", "curvature", "gradient_norm"):
            columns[name] = getattr(full, name)
        found = {name: columns[name].cpu().numpy() for name in (*CURVES, *ENDS)}
        return found | {"time": times.numpy()}
