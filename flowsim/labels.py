"""Codes of every record: fate of a trajectory, status of its integration, and the deciding rule."""

from __future__ import annotations

from enum import IntEnum


class Label(IntEnum):
    """Fate of a trajectory.

    UNRESOLVED: not known. GLOBAL_MINIMUM: it has learned. LOCAL_MINIMUM: it is trapped. SADDLE: it
    ends at a critical point from which the loss can descend. INFINITY: the flow grows without
    bound, in models without end losses. PERIODIC: an optimizer's steps come back to where they
    were, again and again, or the orbit of a field that is no gradient flow is closed, or approaches
    a closed one. BOUNDED: they neither rest nor repeat themselves, and stay near, for as far as
    they were followed. DIVERGED, of an optimizer's steps alone: they lead further and further away.

    >>> import flowsim
    >>> model = flowsim.model("canonical", p=0.5, q=0.8)
    >>> flowsim.Label(int(flowsim.find_limits(model, [0.5, 0.5]).label))
    <Label.LOCAL_MINIMUM: 2>
    """

    def __str__(self) -> str:
        return self.name.lower()

    UNRESOLVED = 0
    GLOBAL_MINIMUM = 1
    LOCAL_MINIMUM = 2
    SADDLE = 3
    PERIODIC = 4
    BOUNDED = 5
    DIVERGED = 6
    INFINITY = 7


#: The labels of models whose end losses are known, by their codes; other models' ends are found.
BASINS = tuple(label.name.lower() for label in tuple(Label)[:4])


class Status(IntEnum):
    """Status of the integration of a trajectory.

    CONVERGED: at an end. TIMED_OUT: its steps or its time were used up. DIVERGED: it left all
    bounds. FAILED: no step was small enough, the flow is not unique from where it stopped, or the
    start is outside the domain of the loss.
    PERIODIC: large steps of gradient descent go round in a circle, or the orbit of a field does.

    >>> import flowsim
    >>> flowsim.Status.TIMED_OUT.name
    'TIMED_OUT'
    """

    CONVERGED = 0
    TIMED_OUT = 1
    DIVERGED = 2
    FAILED = 3
    PERIODIC = 4


class Rule(IntEnum):
    """Rule that decided a label.

    NONE: nothing, it is unresolved. CRITICAL_START: loss and curvature of a start that never moves.
    TRAPPED_BY_PLANE: e went to 0, and e = 0 is stable there. REACHED_MINIMA: the orbit met the set
    of global minima. CAME_TO_REST: loss and curvature where the orbit stopped. SHADOWS: it passed a
    saddle or took long, and starts displaced a little end alike. DRIFTS: it goes to infinity, in
    models of a chain along a valley above the entropy rate. REFERENCE: torchdiffeq's odeint
    alone. RETURNS: returns of the orbit of a field to a surface across it, to the same point,
    nearer and nearer to a sink, or near for all its steps.
    BELOW_PASS: it fell below the lowest pass of its well, which the model knows or, in portraits
    that are certified, interval bounds prove; there it was followed no further.
    KINK: gradients to both sides of a kink of the loss, between which it is least.
    LEARNED: the loss of training ended near the entropy rate. STEPS: an optimizer's steps came
    back, stayed near, or led away.

    >>> import flowsim
    >>> model = flowsim.model("canonical", p=0.5, q=0.8)
    >>> flowsim.Rule(int(flowsim.find_limits(model, [0.5, -1.2]).rule))
    <Rule.REACHED_MINIMA: 3>
    """

    NONE = 0
    CRITICAL_START = 1
    TRAPPED_BY_PLANE = 2
    REACHED_MINIMA = 3
    CAME_TO_REST = 4
    SHADOWS = 5
    DRIFTS = 7
    REFERENCE = 8
    LEARNED = 9
    STEPS = 10
    RETURNS = 11
    KINK = 12
    BELOW_PASS = 13


class CriticalPoint(IntEnum):
    """Type of a point of the critical line or plane e = 0."""

    LOCAL_MAXIMUM = -1
    SADDLE = 0
    LOCAL_MINIMUM = 1
    GLOBAL_MINIMUM = 2
