"""What a trajectory did, how its integration ended, and what decided: the codes of every record."""

from __future__ import annotations

from enum import IntEnum


class Label(IntEnum):
    """What a trajectory did. A saddle is any critical point from which the loss can descend."""

    UNRESOLVED = 0
    GLOBAL_MINIMUM = 1
    LOCAL_MINIMUM = 2
    SADDLE = 3


class Status(IntEnum):
    """How the integration of a trajectory ended."""

    CONVERGED = 0
    TIMED_OUT = 1
    DIVERGED = 2
    FAILED = 3
    PERIODIC = 4  # of gradient descent: its large steps go round in a circle


class Rule(IntEnum):
    """What decided a label."""

    NONE = 0  # nothing: unresolved
    CRITICAL_START = 1  # loss and curvature of a start that never moves
    TRAPPED_BY_PLANE = 2  # e falls to zero and nothing else moves any more
    REACHED_MINIMA = 3  # the orbit met the set of global minima
    CAME_TO_REST = 4  # loss and curvature where the orbit stopped moving
    SHADOWS = 5  # it passed a saddle or took long, and displaced starts end alike
    SLID = 6  # of records of 0.1.0: along a ReLU's kink to the global minima, by small steps
    DRIFTS = 7  # it creeps to infinity along a valley whose loss stays above the entropy rate
    REFERENCE = 8  # torchdiffeq's odeint alone
    LEARNED = 9  # the loss of training ended near the entropy rate


class CriticalPoint(IntEnum):
    """What a point of the critical line or plane e = 0 is."""

    LOCAL_MAXIMUM = -1
    SADDLE = 0
    LOCAL_MINIMUM = 1
    GLOBAL_MINIMUM = 2
