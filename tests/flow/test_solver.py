"""The solver of a model: which one it is, and one that a user brings."""

import pytest

import flowsim
from flowsim.flow.any_loss import RosenbrockSolver
from flowsim.flow.gap.engine import LogitGapSolver
from flowsim.flow.rows.engine import SwitchingSolver
from flowsim.flow.solver import solver_of


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        (("canonical", 0.5, 0.8), LogitGapSolver),
        (("rank-one", 0.5, 0.8), SwitchingSolver),
        (("linear", 0.5, 0.8, "dynamic"), RosenbrockSolver),
    ],
)
def test_every_model_has_one_solver(model, kind):
    name, p, q, *bias = model
    built = flowsim.model(name, p, q, **({"bias": bias[0]} if bias else {}))
    assert type(solver_of(built)) is kind
    assert solver_of(built).batched == (kind is RosenbrockSolver)
