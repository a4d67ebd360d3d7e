"""Why a row stopped: the values of ``Rule``, then reasons that are no rule."""

from __future__ import annotations

from flowsim.labels import Rule

GOING = int(Rule.NONE)
CRITICAL = int(Rule.CRITICAL_START)
TRAPPED = int(Rule.TRAPPED_BY_PLANE)
MINIMA = int(Rule.REACHED_MINIMA)
REST = int(Rule.CAME_TO_REST)
DRIFTS = int(Rule.DRIFTS)
OUT_OF_STEPS, NOT_FINITE, DIVERGED, ARRIVED = 100, 101, 102, 103
#: Thousands of steps have brought the row no further in time.
STUCK = 105
#: Induction model: below the plateau, from which each side has one end.
BELOW_PLATEAU = 104
#: The row needs level L of its model's table: this plus L.
NEEDS_TABLE_LEVEL = 1000
