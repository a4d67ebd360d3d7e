"""The compiled field, Jacobian, loss and verdict of the induction model, against autograd.

Called from Python they have to be plain Python: see ``test_plain_python``.
"""

import pytest
import torch
from near import near
from one_row import begun

from flowsim.compiled import config
from flowsim.flow.return_codes import BELOW_PLATEAU, GOING
from flowsim.models import InductionModel

pytestmark = pytest.mark.skipif(not config.DISABLE_JIT, reason="needs NUMBA_DISABLE_JIT=1")


def induction_loss(model, theta):
    """The loss over the model's classes, by torch's softmax."""
    counts, weight, chance = (torch.as_tensor(part) for part in model.terms)
    share, beta = theta[0].sigmoid(), theta[1]
    scores = beta * torch.stack([1 + 0 * share, 1 - share, share, 0 * share])[:, None]
    found = torch.where(counts > 0, scores + counts.log(), -torch.inf).softmax(0)[:2].sum(0)
    size = counts.sum(0)
    same, other = ((size * x + 1) / (size + 2) for x in (found, 1 - found))
    return -(weight * (chance * same.log() + (1 - chance) * other.log())).sum()


@pytest.mark.parametrize("theta", [(0.4, 1.7), (-1.2, -0.8), (2.0, -3.0), (0.1, 6.0), (-40.0, 0.5)])
def test_the_field_of_the_induction_head_is_autograds(theta):
    model = InductionModel(5)
    engine, row = begun(model, theta)

    def loss(point):
        return induction_loss(model, point)

    point = torch.tensor(theta, dtype=torch.float64)
    near(row.velocity, -torch.autograd.functional.jacobian(loss, point).numpy(), 1e-12, 1e-2)
    near(row.derivative, -torch.autograd.functional.hessian(loss, point).numpy(), 1e-12, 1e-2)
    found = engine.loss(row.y, row.reals, row.ints, row.memory)
    assert found == pytest.approx(float(loss(point)), rel=1e-14)
    fell = model.plateau - float(loss(point)) > 1e-12
    assert engine.check_termination(row) == (BELOW_PLATEAU if fell else GOING)
