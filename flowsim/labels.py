"""What a trajectory did, how its integration ended, and what decided: the codes of every record."""

from __future__ import annotations

from enum import EnumMeta, IntEnum
from typing import Any


class _Words(EnumMeta):
    """Codes that name what there is when another is asked for."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        there = ", ".join(cls.__members__)
        raise AttributeError(f"{cls.__name__} has no {name}; there are {there}")


class Label(IntEnum, metaclass=_Words):
    """What a trajectory did. A saddle is any critical point from which the loss can descend.

    A trapped start is a LOCAL_MINIMUM, one that has learned a GLOBAL_MINIMUM.
    """

    def __str__(self) -> str:
        return self.name.lower()

    UNRESOLVED = 0
    GLOBAL_MINIMUM = 1
    LOCAL_MINIMUM = 2
    SADDLE = 3
    PERIODIC = 4  # of an optimizer: its steps come back to where they were, again and again
    BOUNDED = 5  # of an optimizer: its steps neither rest nor repeat themselves, and stay near
    DIVERGED = 6  # of an optimizer: its steps lead further and further away
    INFINITY = 7  # of the flow: it grows without bound; of models without known levels


#: The labels of models whose levels are known, by their codes; other models' ends are found.
BASINS = tuple(label.name.lower() for label in tuple(Label)[:4])


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
    DRIFTS = 7  # it goes to infinity; of models of a chain along a valley above the entropy rate
    REFERENCE = 8  # torchdiffeq's odeint alone
    LEARNED = 9  # the loss of training ended near the entropy rate
    STEPS = 10  # an optimizer's steps came back, stayed near, or led away


class CriticalPoint(IntEnum):
    """What a point of the critical line or plane e = 0 is."""

    LOCAL_MAXIMUM = -1
    SADDLE = 0
    LOCAL_MINIMUM = 1
    GLOBAL_MINIMUM = 2
