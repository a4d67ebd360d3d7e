"""The rows engine's copy for a model, and one row of it, at its start."""

import torch

from flowsim.flow.rows.engine import engine_of, initial_rows
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
    start = torch.tensor([theta], dtype=torch.float64)
    chart, y, at_zero = initial_rows(model, compiled, start)
    engine, status = engine_of(compiled), 1
    while status > 0:
        row = workspace(model)
        row.y[:] = y[0]
        signs = chart.signs[0].numpy()
        status = engine.begin(row, float(at_zero[0]), signs) or engine.linearise(row)
        if status > 0:
            compiled.extend(status - 1)
    return engine, row
