"""The labels of trajectories: the one place that writes a Label and a Rule of the flow."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from flowsim.flow.options import Columns, Limits
from flowsim.flow.return_codes import (
    AGREE,
    AT_SADDLES,
    BELOW_PASS,
    BELOW_PLATEAU,
    CRITICAL,
    DIFFER,
    DIVERGED,
    DRIFTS,
    INFINITY,
    KINK,
    KNOWN_END,
    LOCAL,
    MINIMA,
    NOT_FINITE,
    ON_MINIMA,
    OUT_OF_STEPS,
    REPEATS,
    REST,
    SADDLE,
    SPIRALS,
    STAYS,
    STUCK,
    TRAPPED,
)
from flowsim.interface import Model
from flowsim.labels import Label, Rule, Status
from flowsim.landscape.critical import classify_critical

#: The label and the rule of each reason, as far as it alone decides.
_DECIDED = {
    MINIMA: (Label.GLOBAL_MINIMUM, Rule.REACHED_MINIMA),
    ON_MINIMA: (Label.GLOBAL_MINIMUM, Rule.CRITICAL_START),
    TRAPPED: (Label.LOCAL_MINIMUM, Rule.TRAPPED_BY_PLANE),
    AT_SADDLES: (Label.SADDLE, Rule.CAME_TO_REST),
    DRIFTS: (Label.LOCAL_MINIMUM, Rule.DRIFTS),
    KNOWN_END: (Label.LOCAL_MINIMUM, Rule.BELOW_PASS),
    KINK: (Label.LOCAL_MINIMUM, Rule.KINK),
    BELOW_PASS: (Label.LOCAL_MINIMUM, Rule.BELOW_PASS),
    INFINITY: (Label.INFINITY, Rule.DRIFTS),
    REPEATS: (Label.PERIODIC, Rule.RETURNS),
    SPIRALS: (Label.LOCAL_MINIMUM, Rule.RETURNS),
    STAYS: (Label.BOUNDED, Rule.RETURNS),
    LOCAL: (Label.LOCAL_MINIMUM, Rule.CAME_TO_REST),
    SADDLE: (Label.SADDLE, Rule.CAME_TO_REST),
}
#: The status of each reason; of all others ``CONVERGED``.
_STATUS = {
    OUT_OF_STEPS: Status.TIMED_OUT,
    STUCK: Status.TIMED_OUT,
    BELOW_PLATEAU: Status.TIMED_OUT,
    STAYS: Status.TIMED_OUT,
    NOT_FINITE: Status.FAILED,
    DIVERGED: Status.DIVERGED,
    INFINITY: Status.DIVERGED,
    REPEATS: Status.PERIODIC,
}


@dataclass
class EndStates(Columns):
    """Final states of a solver and the reasons to stop, one entry per start, (n,) or (n, k).

    Attributes:
        theta: where, (n, k); at infinity ±∞ in coordinates that grow.
        why: a value of ``flow.return_codes``, int64.
        status, loss, gradient_norm, evaluations, sliding_time, period: as of ``Limits``.
        crossings: ``kinks`` of ``Limits``.
        near: how near a saddle it passed: FAR, IF_CHANGED or NEAR of ``flow.return_codes``.
        neighbours: what starts displaced a little said: NOT_ASKED, AGREE or DIFFER.
        radius: how far it came, in units of which curvatures are looked at; 0 where no model asks.
    """

    theta: Tensor
    why: Tensor
    status: Tensor
    loss: Tensor
    gradient_norm: Tensor
    evaluations: Tensor
    near: Tensor
    neighbours: Tensor
    radius: Tensor
    crossings: Tensor
    sliding_time: Tensor
    period: Tensor

    @classmethod
    def of(
        cls,
        theta: Tensor,
        why: Tensor,
        loss: Tensor,
        gradient_norm: Tensor,
        evaluations: Tensor,
        near: Tensor | None = None,
    ) -> EndStates:
        """Make end states of trajectories that met no kink, asked no neighbours and have no period.

        The status is that of the reason.
        """
        status = torch.full_like(why, Status.CONVERGED, dtype=torch.int8)
        for reason, value in _STATUS.items():
            status[why == reason] = value
        none = torch.zeros_like(status)
        zero = torch.zeros_like(loss)
        return cls(
            theta, why.long(), status, loss, gradient_norm, evaluations,
            none if near is None else near.to(torch.int8), none.clone(), zero,
            torch.zeros_like(none, dtype=torch.int32), zero.clone(),
            torch.full_like(loss, torch.nan),
        )  # fmt: skip


def label_ends(model: Model, ends: EndStates, by: Rule | None = None) -> Limits:
    """Label trajectories that stopped in these states; return their limits, and what decided each.

    A critical start and a point of rest are named by loss and curvature. A plane on which
    trajectories end holds global minima where every end has the least loss, and so does a known end
    of the least loss. No label stands that displaced starts contradict.

    Args:
        model: the model.
        ends: of its trajectories, (n,).
        by: the rule of every label, where it is not the reason for which they stopped.

    >>> import flowsim, torch
    >>> from flowsim.flow.options import Steps
    >>> from flowsim.flow.solver import solver_of
    >>> model = flowsim.model("canonical", 0.5, 0.8)
    >>> start = torch.tensor([[0.5, -1.0], [0.5, 1.0]], dtype=torch.float64)
    >>> (ends,) = solver_of(model).ends(start, Steps(1e-10, 1e-12, 10_000))
    >>> flowsim.flow.label_ends(model, ends).label.tolist()
    [1, 2]
    """
    end_losses, why = model.end_losses(), ends.why
    label = torch.full_like(ends.status, Label.UNRESOLVED)
    rule = torch.full_like(label, Rule.NONE)
    for reason in why.unique().tolist():
        here = why == reason
        if reason in _DECIDED:
            label[here], rule[here] = _DECIDED[reason]
        elif reason in (CRITICAL, REST):
            theta, rests = ends.theta[here], reason == REST
            label[here] = classify_critical(
                model, theta, rests, ends.radius[here] if rests else None
            )
            rule[here] = Rule.CAME_TO_REST if rests else Rule.CRITICAL_START
    if end_losses is not None:
        if end_losses.degenerate:  # what attracts, or repels, is itself a set of global minima
            label[(why == TRAPPED) | (why == AT_SADDLES)] = Label.GLOBAL_MINIMUM
        known = why == KNOWN_END
        label[known & (ends.loss <= end_losses.best)] = Label.GLOBAL_MINIMUM
        rule[known & ends.theta.isinf().any(1)] = Rule.DRIFTS
        rule[(why == REST) & (label == Label.GLOBAL_MINIMUM)] = Rule.REACHED_MINIMA
    label[ends.neighbours == DIFFER] = Label.UNRESOLVED
    rule[ends.neighbours == AGREE] = Rule.SHADOWS
    if by is not None:
        rule[:] = by
    rule[label == Label.UNRESOLVED] = Rule.NONE
    return Limits(
        ends.theta, label, ends.status, rule, ends.loss, ends.gradient_norm, ends.evaluations,
        ends.crossings, ends.sliding_time, ends.period,
    )  # fmt: skip
