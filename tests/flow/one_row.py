"""The rows engine's copy for a model, and one row of it, at its start."""

import numpy as np

from flowsim.flow.rows.engine import RowChart, engine_of
from flowsim.flow.rows.workspace import allocate_workspace
from flowsim.flow.tableau import STAGES


def workspace(model):
    compiled = model.flow().compiled
    return allocate_workspace(
        *compiled.constants(), len(model.coordinates), STAGES, compiled.own_steps
    )


def begun(model, theta):
    """(engine, row) with the row at θ, its field there known."""
    compiled = model.flow().compiled
    chart = RowChart(np.array([theta], dtype=float), model, compiled.origin)
    engine, status = engine_of(compiled), 1
    while status > 0:
        row = workspace(model)
        row.y[:] = chart.y[0]
        status = engine.begin(row, float(chart.at_zero[0]), chart.signs[0]) or engine.linearise(row)
        if status > 0:
            compiled.extend(status - 1)
    return engine, row
