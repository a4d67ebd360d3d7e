"""The solver of a model: which one it is, and one that a user brings."""

import re
from pathlib import Path

import numpy as np
import pytest

import flowsim
from flowsim.flow.any_loss import RosenbrockSolver
from flowsim.flow.gap.engine import LogitGapSolver
from flowsim.flow.rows.engine import SwitchingSolver
from flowsim.flow.solver import solver_of

PAGE = Path(__file__).parents[2] / "docs" / "extend.md"


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


def test_the_solver_of_the_page_follows_ends_paths_and_times():
    (code,) = re.findall(r"```python\n(from flowsim\.flow\.any_loss.*?)```", PAGE.read_text(), re.S)
    space = {"flowsim": flowsim}
    exec(compile(code, str(PAGE), "exec"), space)
    model, starts = space["CarefulWell"](), [[0.3, 1.0], [-0.2, 2.0]]
    assert solver_of(model).defaults.rtol == 1e-9
    np.testing.assert_allclose(
        flowsim.find_limits(model, starts).theta, [[1, 0], [-1, 0]], atol=1e-9
    )
    path = flowsim.trajectories(model, [0.3, 1.0], [0.0, 1.0])
    assert path[1, 1] == pytest.approx(np.exp(-1.0), rel=1e-9)
    assert np.isfinite(flowsim.hitting_times(model, starts)).all()
