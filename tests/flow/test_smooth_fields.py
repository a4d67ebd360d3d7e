"""Fields of smooth rows, their Jacobians and losses, against autograd and the models.

Called from Python they have to be plain Python: see ``test_plain_python``.
"""

import numpy as np
import pytest
import torch
from near import near

from flowsim import (
    InductionModel,
    MarkovChain,
    StatesAttentionModel,
)
from flowsim.compiled import config
from flowsim.flow.rows import induction_rows
from flowsim.flow.rows.codes import (
    FELL,
    GOING,
)
from flowsim.flow.rows.smooth import (
    states_rows,
)

pytestmark = pytest.mark.skipif(not config.DISABLE_JIT, reason="needs NUMBA_DISABLE_JIT=1")
STATES = [((3, 0.8), 4, 4), ((5, 0.3), 3, 1), ((2, 0.7), 5, 2)]


@pytest.mark.parametrize("case", STATES, ids=str)
def test_the_field_of_states_is_the_model_s(case):
    """In logarithms, with the Jacobian by torch's derivative of the gradient."""
    chain, length, units = case
    model = StatesAttentionModel(MarkovChain.symmetric(*chain), length, units)
    reals, ints, size = states_rows.constants(model)
    random, metric = np.random.default_rng(0), np.array(model.metric)
    for _ in range(6):
        theta = random.uniform(0.2, 1.4, 3) * random.choice([-1, 1], 3)
        memory, field, jacobian = np.zeros(size), np.empty(3), np.empty((3, 3))
        memory[[states_rows.SIGN_W, states_rows.SIGN_V]] = np.sign(theta[1:])
        y = np.log(np.abs(theta))
        assert states_rows.expand(y, reals, ints, memory, field, jacobian, 1.0) == 0
        point = torch.tensor(theta)
        gradient = model.gradient(point).numpy()
        slopes = torch.autograd.functional.jacobian(model.gradient, point).numpy()
        near(field, -gradient / metric / theta)
        expected = -slopes * theta / (metric * theta)[:, None] + np.diag(gradient / metric / theta)
        near(jacobian, expected)
        assert states_rows.loss(y, reals, ints, memory) == pytest.approx(
            float(model.loss(point)), rel=1e-13
        )
        memory[states_rows.HELD] = 1.0
        assert states_rows.expand(y, reals, ints, memory, field, jacobian, 1.0) == 0
        assert (field[:2] == 0).all() and (jacobian[:2] == 0).all()
        plane = torch.tensor([0.0, *theta[1:]])
        assert states_rows.loss(y, reals, ints, memory) == pytest.approx(float(model.loss(plane)))
    memory[:] = 0.0
    memory[[states_rows.SIGN_W, states_rows.SIGN_V]] = 1.0, -1.0
    for theta in ((25.0, 0.6, -1.3), (25.0, 1.2, -0.4)):  # no exponential overflows
        point = torch.tensor(theta, dtype=torch.float64)
        y = np.log(np.abs(theta))
        found = states_rows.loss(y, reals, ints, memory)
        assert found == pytest.approx(float(model.loss(point)), rel=1e-12)
        states_rows.expand(y, reals, ints, memory, field, jacobian, False)
        near(field, -model.gradient(point).numpy() / metric / theta, 1e-9)
    far = np.array([200.0, 0.0, 0.0])
    memory[states_rows.HELD] = 0.0
    assert states_rows.expand(far, reals, ints, memory, field, jacobian, False) == -1
    assert states_rows.expand(far[::-1].copy(), reals, ints, memory, field, jacobian, False) == -1


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
    reals, ints, size = induction_rows.constants(model)
    y, memory = np.array(theta), np.zeros(size)
    field, jacobian = np.empty(2), np.empty((2, 2))
    assert induction_rows.expand(y, reals, ints, memory, field, jacobian, 1.0) == 0

    def loss(point):
        return induction_loss(model, point)

    point = torch.tensor(theta, dtype=torch.float64)
    near(field, -torch.autograd.functional.jacobian(loss, point).numpy(), 1e-12, 1e-2)
    near(jacobian, -torch.autograd.functional.hessian(loss, point).numpy(), 1e-12, 1e-2)
    assert induction_rows.loss(y, reals, ints, memory) == pytest.approx(
        float(loss(point)), rel=1e-14
    )
    fell = model.plateau - float(loss(point)) > 1e-12
    assert induction_rows.verdict(y, reals, ints, memory) == (FELL if fell else GOING)


def test_an_induction_row_has_fallen_below_the_plateau_and_inside_the_strip():
    reals, ints, size = induction_rows.constants(InductionModel(5))
    verdicts = [induction_rows.verdict(np.array(y), reals, ints, np.zeros(size))
                for y in ((3.0, 2.0), (3.0, 8.0), (3.0, 8.1), (3.0, -0.5), (3.0, 0.0))]  # fmt: skip
    assert verdicts == [FELL, FELL, GOING, GOING, GOING]
    out = np.empty(2)
    for alpha in (-710.0, -690.0, 710.0):  # nothing overflows
        y = np.array([alpha, 1.0])
        assert induction_rows.expand(y, reals, ints, np.zeros(1), out, None, False) == 0
        assert abs(out[0]) < 1e-290
    assert induction_rows.expand(np.array([0.0, np.nan]), reals, ints, None, out, None, False) == -1
