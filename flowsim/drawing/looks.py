"""The look of every kind of curve and of layer, in figures and in the browser."""

from __future__ import annotations

from typing import Any

import numpy as np

from flowsim.curves import Curve
from flowsim.drawing.style import INK, LINE

_CROSS: dict[str, Any] = {"marker": "X", "markersize": 9, "markerfacecolor": "#ffffff"}
#: A kind of curves has colour, width and dashes; one of points a marker too. Another kind of curve
#: needs one more line here, or looks like the last.
LOOKS: dict[str, dict[str, Any]] = {
    "level of the loss": {"color": "#8a8a8a", "linewidth": 0.5},
    "nullcline, flow vertical": {"color": "#008080", "linewidth": 1.2},
    "nullcline, flow horizontal": {
        "color": "#008080",
        "linewidth": 1.2,
        "linestyle": (0, (5, 1.5, 1, 1.5)),
    },
    "stable manifold": {"color": "#e08bb8", "linewidth": 4.0},
    "separatrix": {"color": LINE, "linewidth": 1.8},
    "plateau": {"color": LINE, "linewidth": 1.1, "linestyle": (0, (3.7, 1.6))},
    "valley": {"color": "#2a7f62", "linewidth": 1.6, "linestyle": (0, (1, 1.65))},
    "global minima": {"color": INK["global_minimum"], "linewidth": 2.6},
    "local minima": {"color": "#a33b00", "linewidth": 3.0},
    "local maxima": {"color": LINE, "linewidth": 1.6, "linestyle": (0, (2, 2))},
    "saddles": {"color": LINE, "linewidth": 1.6, "linestyle": (0, (6, 2, 1, 2))},
    "saddle": {"color": LINE, "linewidth": 1.6, **_CROSS},
    "global minimum": {"color": INK["global_minimum"], "marker": "*", "markersize": 12},
    "local minimum": {"color": INK["local_minimum"], "marker": "*", "markersize": 12},
    "minimum": {"color": LINE, "marker": "o", "markersize": 8},
    "maximum": {"color": LINE, "marker": "^", "markersize": 8, "markerfacecolor": "#ffffff"},
    "centre": {"color": LINE, "marker": "o", "markersize": 8, "markerfacecolor": "#ffffff"},
    "": {"color": "#7a4fa3", "marker": "D", "markersize": 6},
}

#: A layer, a variable over the plane, has a hatch of the cells where it is positive, or contours.
LAYERS: dict[str, dict[str, Any]] = {
    "wrong prediction": {"hatch": "||", "color": "0.45"},
    "slide": {"hatch": "..", "color": "#3f6f86"},
    "proof": {
        "outline": True,
        "levels": [0.5],
        "colors": "#555555",
        "linewidths": 0.8,
        "linestyles": "dotted",
    },
    "distance": {"colors": "#8a3ffc", "linewidths": 0.9},
    "conserved quantity": {
        "infinite_at_0": True,
        "levels": np.arange(-8.0, 9.0, 2.0),
        "colors": "#7a4fa3",
        "linewidths": 0.7,
        "linestyles": "dotted",
    },
}


def look_of(curve: Curve) -> dict[str, Any]:
    """Matplotlib's style arguments of a curve; one of another model is dashed, and on top."""
    look = {"linewidth": 1.6, "marker": "o", "markersize": 8, **LOOKS.get(curve.kind, LOOKS[""])}
    return look | {"linestyle": (0, (4, 3)), "zorder": 5} if curve.of else look


def name_of_curve(curve: Curve) -> str:
    """The name of a curve in a legend: its kind, and the model that has it if that is another."""
    return f"{curve.kind} of the {curve.of}" if curve.of else curve.kind
