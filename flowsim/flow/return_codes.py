"""Why a solver stopped following a start: values of ``Rule``, then reasons that are no rule."""

from __future__ import annotations

from flowsim.labels import Rule

#: Nothing has decided: the trajectory goes on, or is unresolved.
GOING = int(Rule.NONE)
CRITICAL = int(Rule.CRITICAL_START)
TRAPPED = int(Rule.TRAPPED_BY_PLANE)
MINIMA = int(Rule.REACHED_MINIMA)
REST = int(Rule.CAME_TO_REST)
DRIFTS = int(Rule.DRIFTS)
KINK = int(Rule.KINK)
BELOW_PASS = int(Rule.BELOW_PASS)
OUT_OF_STEPS, NOT_FINITE, DIVERGED, ARRIVED = 100, 101, 102, 103
#: Below the plateau of the induction model, from where each side has one end; and that end.
BELOW_PLATEAU, KNOWN_END = 104, 106
#: Thousands of steps have brought the row no further in time.
STUCK = 105
#: The start is on the global minima already, within an error of the solver.
ON_MINIMA = 107
#: The plane that attracts from one side is one of saddles.
AT_SADDLES = 108
#: To infinity; of a field: back to the same point, along a spiral into a sink, near for all steps.
INFINITY, REPEATS, SPIRALS, STAYS = 109, 110, 111, 112
#: At rest, at what its curvature says; of solvers that look at it themselves.
LOCAL, SADDLE = 113, 114
#: The row needs level L of its model's table: this plus L.
NEEDS_TABLE_LEVEL = 1000

#: Distance at which a trajectory passed a saddle: far; so near that a label which changes with
#: smaller errors is in doubt; so near that its label is in doubt.
FAR, IF_CHANGED, NEAR = 0, 1, 2
#: Answers of displaced starts to a label in doubt: nothing, the same, another end.
NOT_ASKED, AGREE, DIFFER = 0, 1, 2
