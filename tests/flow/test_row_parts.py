"""The parts of the engine for smooth fields, one by one, against autograd, numpy and formulas.

Called from Python they have to be plain Python: see ``test_plain_python``.
"""

import math

import numpy as np
import pytest
import torch
from mpmath import exp, log, mpf

from flowsim import (
    BinaryChain,
    CanonicalModel,
    InductionModel,
    LinearAttentionModel,
    MarkovChain,
    RankOneModel,
    StatesAttentionModel,
    UntiedModel,
)
from flowsim.compiled import config
from flowsim.flow.gap import decide, field
from flowsim.flow.rows import induction_rows, landing, tableau
from flowsim.flow.rows.codes import (
    ARRIVED,
    CRITICAL,
    DRIFTS,
    DYNAMIC_BIAS,
    FELL,
    GOING,
    MINIMA,
    REST,
    TRAPPED,
)
from flowsim.flow.rows.smooth import (
    attention,
    attention_verdict,
    dynamic_bias,
    smooth_orbit,
    smooth_step,
    states_rows,
    uniform_rows,
    uniform_verdict,
)
from flowsim.models.uniform.ranges import gather
from flowsim.models.uniform.sums import EACH, SUMS, class_sums
from flowsim.models.uniform.table import STEEPEST, LawTable

pytestmark = pytest.mark.skipif(not config.DISABLE_JIT, reason="needs NUMBA_DISABLE_JIT=1")
STATES = [((3, 0.8), 4, 4), ((5, 0.3), 3, 1), ((2, 0.7), 5, 2)]
KINDS = {"canonical": (CanonicalModel, dynamic_bias.CANONICAL),
         "linear": (LinearAttentionModel, dynamic_bias.LINEAR),
         "untied": (UntiedModel, dynamic_bias.UNTIED)}  # fmt: skip


def law_table(chain, length):
    """The law's table with all levels that so few positions have."""
    table = LawTable(chain, length, False, True)
    table.add(int(table.ints[STEEPEST]))
    return table


def near(found, expected, rel=1e-11, size=0.0):
    """Entries agree to a part of the largest of them, or of ``size``."""
    scale = max(np.abs(expected).max(), size)
    assert np.abs(np.asarray(found) - expected).max() <= rel * scale


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


@pytest.mark.parametrize("size", [1, 2, 5])
def test_linear_equations_are_solved(size):
    random = np.random.default_rng(1)
    one = np.eye(size)
    for matrix in [*random.normal(size=(6, size, size)), one[::-1] + 0.0, one + 1]:
        vector, pivots, factors = random.normal(size=size), np.zeros(size, int), matrix.copy()
        assert smooth_step.factorise(factors, pivots)
        found = vector.copy()
        smooth_step.solve(factors, pivots, found)
        near(found, np.linalg.solve(matrix, vector), 1e-10)
    assert not smooth_step.factorise(np.zeros((size, size)), np.zeros(size, int))


def test_pivots_are_the_largest_of_their_column():
    matrix, pivots = (
        np.array([[1e-20, 1.0, 0.0], [-3.0, 1.0, 0.0], [2.0, 5.0, 1e-9]]),
        np.zeros(3, int),
    )
    assert smooth_step.factorise(matrix, pivots) and pivots.tolist() == [1, 2, 2]


def prepared(name="linear", theta=(0.7, -0.6, -0.4, 0.3), chain=(0.5, 0.8)):
    """What the loop hands to a step of a gap model with a bias: y, field, Jacobian and tools."""
    model = KINDS[name][0](BinaryChain(*chain), bias="dynamic")
    reals, ints, size = dynamic_bias.constants(model.chain, KINDS[name][1])
    theta, k = np.array(theta), len(theta)
    y = np.where(model.keeps_sign, np.log(np.abs(theta)), theta)
    memory, field, jacobian = np.zeros(size), np.empty(k), np.empty((k, k))
    memory[dynamic_bias.SIGN] = np.sign(theta[model.coordinates.index("w")])
    assert dynamic_bias.expand(y, reals, ints, memory, field, jacobian, 1.0) == 0
    tools = (reals, ints, memory, np.empty(k), np.empty((tableau.STAGES, k)),
             np.empty((2, k, k)), np.empty(k), np.empty(k, dtype=np.int64))  # fmt: skip
    return y, field, jacobian, tools


def test_a_step_solves_its_eight_linear_equations():
    y, field, jacobian, tools = prepared()
    reals, ints, memory, new, stages = tools[:5]
    for h in (0.01, 0.3, 5.0):
        before = y.copy(), field.copy(), jacobian.copy()
        assert smooth_step.step(DYNAMIC_BIAS, y, field, jacobian, h, *tools) == 0
        assert all((a == b).all() for a, b in zip(before, (y, field, jacobian), strict=True))
        matrix, rate = np.eye(len(y)) / (tableau.GAMMA * h) - jacobian, np.empty(len(y))
        expected = np.zeros_like(stages)
        for s in range(tableau.STAGES):
            point = y + tableau.A[s] @ expected
            dynamic_bias.expand(point, reals, ints, memory, rate, None, False)
            expected[s] = np.linalg.solve(matrix, rate + tableau.C[s] @ expected / h)
        near(stages, expected, 1e-11)
        near(new, y + tableau.A[-1] @ expected + expected[-1], 1e-12)
    singular = np.eye(len(y)) / tableau.GAMMA
    assert smooth_step.step(DYNAMIC_BIAS, y, field, singular, 1.0, *tools) == -1
    assert smooth_step.step(DYNAMIC_BIAS, y, np.nan * field, jacobian, 0.1, *tools) == -1


def test_sizes_and_errors_are_the_largest_and_see_what_is_no_number():
    assert smooth_orbit._size(np.array([0.5, -3.0, 2.0])) == 3.0
    assert smooth_orbit._size(np.array([np.inf, 1.0])) == np.inf
    assert math.isnan(smooth_orbit._size(np.array([1.0, np.nan, 5.0])))
    y, new = np.array([1.0, -4.0]), np.array([-3.0, 2.0])
    absolute, relative = np.array([0.1, 0.0]), np.array([0.01, 0.5])
    found = smooth_orbit._error(y, new, np.array([-0.26, 1.0]), absolute, relative)
    assert found == pytest.approx(2.0)
    assert smooth_orbit._error(y, new, np.array([0.0, 1.0]), absolute, relative) == 0.5
    assert not smooth_orbit._error(y, new, np.array([np.nan, 1.0]), absolute, relative) <= 1.0
    assert smooth_orbit._shortened(2.0, np.inf) == 0.2
    assert smooth_orbit._shortened(2.0, 32.0) == pytest.approx(0.9)
    assert smooth_orbit._shortened(2.0, 1e9) == 0.2


def test_the_slowest_passage_is_recorded():
    record = np.array([0.0, 0.0, 1.0, np.inf, 0.0])
    seen = []
    for speed in (0.5, 0.2, 0.6, 0.7, 0.1, 0.29, 0.3000001, 5.0, 0.01):
        smooth_orbit._record_speed(record, speed)
        seen.append(record[2:4].tolist())
    assert seen == [[0.5, np.inf], [0.2, np.inf], [0.2, np.inf], [0.2, 0.2], [0.1, 0.2],
                    [0.1, 0.2], [0.1, 0.1], [0.1, 0.1], [0.01, 0.1]]  # fmt: skip


def test_a_step_lands_on_the_wanted_loss():
    y, field, jacobian, tools = prepared()
    reals, ints, memory, new = tools[:4]
    begin = dynamic_bias.loss(y, reals, ints, memory)
    smooth_step.step(DYNAMIC_BIAS, y, field, jacobian, 0.8, *tools)
    least = dynamic_bias.loss(new, reals, ints, memory)
    for part in (1e-6, 0.3, 0.7, 1 - 1e-6):
        smooth_step.step(DYNAMIC_BIAS, y, field, jacobian, 0.8, *tools)
        wanted = begin + part * (least - begin)
        h = landing.land(DYNAMIC_BIAS, y, field, jacobian, 0.8, landing.LOSS, wanted, tools)
        assert 0 < h < 0.8
        found = new.copy()
        assert dynamic_bias.loss(found, reals, ints, memory) == pytest.approx(wanted, abs=1e-14)
        smooth_step.step(DYNAMIC_BIAS, y, field, jacobian, h, *tools)
        assert (new == found).all()


def test_points_of_a_step_are_ends_of_shorter_ones():
    y, field, jacobian, tools = prepared()
    times, path = np.array([1.0, 1.1, 1.3, 1.5, 1.6]), np.zeros((5, 4))
    smooth_step.step(DYNAMIC_BIAS, y, field, jacobian, 0.5, *tools)
    whole = tools[3].copy()
    arguments = DYNAMIC_BIAS, y, field, jacobian, 0.5, 1.0, times, 1, path, tools
    assert smooth_orbit._write_path(*arguments) == 4
    assert (tools[3] == whole).all() and (path[[0, 4]] == 0).all()
    for i in (1, 2, 3):
        smooth_step.step(DYNAMIC_BIAS, y, field, jacobian, times[i] - 1.0, *tools)
        assert (path[i] == tools[3]).all()


def follow(theta, chain=(0.5, 0.8), times=(), wanted=-np.inf, most=500, rtol=1e-8):
    """(why, y, path, record) of one linear row with a bias."""
    y, _, _, tools = prepared(theta=theta, chain=chain)
    reals, ints, memory = tools[:3]
    path, record = np.full((len(times), 4), np.nan), np.zeros(5)
    why = smooth_orbit.follow(
        DYNAMIC_BIAS, y, reals, ints, memory, np.full(4, rtol), np.full(4, 1e-15),
        np.array(times), path, wanted, most, record,
    )  # fmt: skip
    return why, y, path, record


def test_a_row_stops_at_the_first_of_its_ends():
    theta = (0.7, -0.6, -0.4, 0.3)
    why, _, path, record = follow(theta, times=(0.0, 0.2, 5.0))
    assert why == ARRIVED and np.isfinite(path).all() and record[1] >= 5.0
    assert path[0] == pytest.approx([math.log(0.7), math.log(0.6), -0.4, 0.3])
    model = LinearAttentionModel(BinaryChain(0.5, 0.8), bias="dynamic")
    wanted = float(model.loss(torch.tensor(theta).double())) - 1e-4
    why, y, _, record = follow(theta, wanted=wanted)
    _, again, _, _ = follow(theta, times=(float(record[1]),))
    assert why == ARRIVED and y == pytest.approx(again, abs=1e-7)
    assert follow(theta, most=3)[0] == smooth_orbit.OUT_OF_STEPS
    assert follow(theta, most=3)[3][0] == 3
    log_odds = [math.log(0.5 / 0.5), math.log(0.2 / 0.8)]
    rest = (1.0, 1e-200, log_odds[1] - log_odds[0] - 1, (log_odds[0] + log_odds[1]) / 2)
    assert follow(rest)[0] in (CRITICAL, MINIMA)
    for y0 in (np.nan, np.inf):
        broken = prepared()[0]
        broken[3] = y0
        _, _, _, tools = prepared()
        found = smooth_orbit.follow(
            DYNAMIC_BIAS, broken, *tools[:3], np.ones(4), np.ones(4), np.array([]),
            np.empty((0, 4)), -np.inf, 5, np.zeros(5),
        )  # fmt: skip
        assert found == smooth_orbit.NOT_FINITE


def test_curvatures_count_along_the_surface_of_what_is_conserved():
    """Against numpy's eigenvalues of the Hessian in the metric with the normals lifted."""
    random, length = np.random.default_rng(2), 3
    for untied in (0, 1):
        k, first = length + 6 + untied, length + 1
        metric, ints = np.ones(k), np.array([length, untied])
        metric[first : first + 2] = 4.0
        for trial in range(12):
            y = random.normal(size=k)
            hessian = random.normal(size=(k, k))
            hessian = hessian @ hessian.T / 3 + (trial % 3) * 0.3 * np.eye(k) - 0.4 * np.eye(k)
            symmetric = hessian / np.sqrt(metric) / np.sqrt(metric)[:, None]
            lifted = symmetric.copy()
            for i in (first, first + 2):
                normal = np.zeros(k)
                normal[i : i + 2] = y[i], -y[i + 1]
                normal /= np.linalg.norm(normal)
                lifted += np.abs(np.diag(symmetric)).max() * np.outer(normal, normal)
            least = np.linalg.eigvalsh(lifted)[0]
            for off in (-1e-6, 1e-6):
                found = attention_verdict._attracts(
                    y, -hessian / metric[:, None], -least + off, ints, np.empty((k, k))
                )
                assert found == (off > 0)


def attention_row(length=2, theta=None, chain=(0.5, 0.8)):
    reals, ints, size = attention.constants(BinaryChain(*chain), length, True)
    y = np.array([0.5, 0.2, -0.6, -0.7, 0.6, -0.5, 0.3, 0.2] if theta is None else theta)
    memory = np.zeros(size)
    attention_verdict.begin(y, ints, memory)
    return y, reals, ints, memory


def test_a_row_with_attention_keeps_what_it_conserves():
    y, _, ints, memory = attention_row()
    assert memory[attention_verdict.BALANCE] == pytest.approx(0.49 - 0.36)
    assert memory[attention_verdict.BALANCE + 1] == pytest.approx(0.25 - 0.09)
    assert memory[attention_verdict.MARK] == -1 and memory[attention_verdict.LIMIT] == np.inf
    off = y + 1e-6 * np.arange(8)
    attention_verdict.conserve(off, ints, memory)
    assert (off[[0, 1, 2, 7]] == (y + 1e-6 * np.arange(8))[[0, 1, 2, 7]]).all()
    assert off[3] ** 2 - off[4] ** 2 == pytest.approx(0.49 - 0.36, abs=1e-10)
    assert off[5] ** 2 - off[6] ** 2 == pytest.approx(0.25 - 0.09, abs=1e-10)
    flat = off.copy()
    flat[3:7] = 0.0
    attention_verdict.conserve(flat, ints, memory)
    assert (flat[3:7] == 0).all()


#: Of a row that creeps: what its loss fell by in the decade before the last, in this one, what
#: the last extrapolation is off by, the sign of the curvature; and whether it is decided.
CREEPS = [
    (1e-3, 3e-4, 0.0, 1, True), (1e-3, 3e-4, 0.0, -1, False), (-1e-3, 3e-4, 0.0, 1, False),
    (1e-6, 0.81e-6, 0.0, 1, False), (1e-6, 0.79e-6, 0.0, 1, True), (1e-3, 0.9e-6, 0.0, 1, False),
    (1e-3, 1.1e-6, 0.0, 1, True), (1e-3, 3e-4, 0.0049, 1, True), (1e-3, 3e-4, 0.0051, 1, False),
    (1e-3, 3e-4, -0.0051, 1, False), (6e-3, 3e-3, 0.0, 1, False), (1e-3, -3e-4, 0.0, 1, False),
]  # fmt: skip


def creeping(before, fall, off, sign=1, time=1.01e4, mark=7, theta=None, chain=(0.5, 0.8)):
    y, reals, ints, memory = attention_row(theta=theta, chain=chain)
    value, rate = attention.loss(y, reals, ints, memory), reals[attention.ENTROPY_RATE]
    limit = value - fall * fall / (before - fall)
    memory[attention_verdict.TIME], memory[attention_verdict.MARK] = time, mark
    memory[attention_verdict.LIMIT] = limit + off * (limit - rate)
    memory[attention_verdict.LOSSES + 6] = value + fall
    memory[attention_verdict.LOSSES + 4] = value + fall + before
    velocity, jacobian = np.full(len(y), 1e-3), -sign * np.eye(len(y))
    work = np.empty((2, len(y), len(y)))
    rule = attention_verdict.verdict(y, velocity, jacobian, reals, ints, memory, work)
    return rule, limit, memory


@pytest.mark.parametrize("case", CREEPS, ids=str)
def test_a_row_that_creeps_is_decided_by_its_falls(case):
    *falls, decided = case
    theta = [0.3, 0.2, -0.1, -0.7, 0.6, -0.5, 0.3, 0.2]
    y, reals, ints, memory = attention_row(theta=theta)
    excess = attention.loss(y, reals, ints, memory) - reals[attention.ENTROPY_RATE]
    assert 0.02 < excess < 0.8 * (reals[attention.UNIGRAM] - reals[attention.ENTROPY_RATE]) + 0.2
    rule, limit, memory = creeping(*falls, theta=theta)
    high = limit - reals[attention.ENTROPY_RATE] > 0.9 * (
        reals[attention.UNIGRAM] - reals[attention.ENTROPY_RATE]
    )
    if not high or not decided:
        assert rule == (DRIFTS if decided else GOING)
    assert memory[attention_verdict.MARK] == 8


def test_a_mark_is_passed_once_and_not_too_early():
    assert creeping(1e-3, 3e-4, 0.0, mark=8)[2][attention_verdict.LIMIT] == pytest.approx(
        creeping(1e-3, 3e-4, 0.0, mark=8)[1]
    )
    _, _, memory = creeping(1e-3, 3e-4, 0.0, time=0.99, mark=-1)
    assert memory[attention_verdict.MARK] == -1
    _, _, memory = creeping(1e-3, 3e-4, 0.0, time=1.0, mark=-1)
    assert memory[attention_verdict.MARK] == 0
    _, _, memory = creeping(1e-3, 3e-4, 0.0, time=500.0, mark=2)
    assert memory[attention_verdict.MARK] == 5
    assert (memory[attention_verdict.LOSSES + 3 : attention_verdict.LOSSES + 6] > 0).all()
    rule, _, memory = creeping(1e-3, 3e-4, 0.0, time=1e24, mark=7)
    assert rule == GOING and memory[attention_verdict.MARK] == 7


def plane_rows():
    """Of each model with a plane e = 0: what its verdict needs, at a trap and not at one."""
    chain, k = BinaryChain(0.5, 0.8), 3
    reals, ints, size = dynamic_bias.constants(chain, dynamic_bias.CANONICAL)
    bias = math.log(0.5 / 0.8)
    for sign, trap in ((1.0, True), (-1.0, False)):  # γ = ±4·1.5²: λ(1 + γ/2) < 0 or > 0
        memory = np.zeros(size)
        memory[dynamic_bias.SIGN] = sign
        y = np.array([-9.0, math.log(1.5), bias])
        yield "dynamic", dynamic_bias.verdict, y, (reals, ints), memory, trap, k
        table = law_table(chain, 3)
        memory = np.zeros(uniform_rows.MEMORY)
        memory[uniform_rows.SIGN] = sign
        y = np.array([-9.0, math.log(1.5), 0.2])
        yield "uniform", uniform_verdict.verdict, y, (table.reals, table.ints), memory, trap, k
        model = StatesAttentionModel(MarkovChain.symmetric(3, 0.8), 3, 4)
        numbers = states_rows.constants(model)
        memory = np.zeros(numbers[2])
        memory[[states_rows.SIGN_W, states_rows.SIGN_V]] = sign, 1.0
        y = np.array([-9.0, math.log(1.5), -3.0])
        yield "states", states_rows.verdict, y, numbers[:2], memory, trap, k


@pytest.mark.parametrize("number", range(6))
def test_a_row_is_trapped_by_a_plane_that_attracts(number):
    _, verdict, y, constants, memory, trap, k = list(plane_rows())[number]

    def decide(*velocity, at=y):
        work = np.empty((2, k, k))
        return verdict(at, np.array(velocity), np.eye(k), *constants, memory, work)

    assert decide(-1e-3, 0.9e-19, -0.9e-19) == (TRAPPED if trap else GOING)
    assert decide(-1e-3, 0.9e-19, -1.1e-15) == GOING
    if number == 0:  # a bias, whose velocity is a rounded difference
        assert decide(-1e-3, 0.9e-19, -0.9e-15) == (TRAPPED if trap else GOING)
    assert decide(-1e-3, 1.1e-19, 0.0) == GOING
    assert decide(1e-3, 0.0, 0.0) == GOING
    high = y.copy()
    high[0] = 0.3  # the plane below counts, not the row
    assert decide(-1e-3, 0.0, 0.0, at=high) == (TRAPPED if trap else GOING)
    assert decide(0.9e-12, 0.9e-12, 0.9e-12) == REST
    assert decide(1.1e-12, 0.0, 0.0) == GOING
    assert decide(0.0, -1.1e-12, 0.0) == GOING
    small = y.copy()
    small[1] = math.log(1e-4)
    assert decide(0.0, 1e-9, 0.0, at=small) == REST
    assert decide(0.0, 1e-7, 0.0, at=small) == GOING


def minimum_rows(off):
    """Of two models: the verdict at a minimum, or ``off`` it."""
    chain = BinaryChain(0.5, 0.8)
    target = math.log(0.2 / 0.8)
    reals, ints, size = dynamic_bias.constants(chain, dynamic_bias.LINEAR)
    memory = np.zeros(size)
    yield (
        dynamic_bias.verdict,
        np.array([0.0, 0.0, target - 1, target / 2 + off]),
        (reals, ints),
        memory,
    )
    table = law_table(chain, 1)
    memory = np.zeros(uniform_rows.MEMORY)
    yield (
        uniform_verdict.verdict,
        np.array([off, 0.0, target - 1]),
        (table.reals, table.ints),
        memory,
    )


@pytest.mark.parametrize("off, rule", [(0.0, MINIMA), (3e-6, MINIMA), (1e-3, REST)])
def test_a_row_that_stands_still_is_at_a_minimum_or_rests(off, rule):
    for verdict, y, constants, memory in minimum_rows(off):
        work, k = np.empty((2, len(y), len(y))), len(y)
        assert verdict(y, np.zeros(k), np.eye(k), *constants, memory, work) == rule
        assert verdict(y, np.full(k, 1.1e-12), np.eye(k), *constants, memory, work) == GOING


def test_next_to_p_and_q_of_sum_one_rounding_does_not_hide_a_minimum():
    """The information is 1e-12, a billionth of it far below the loss's rounding."""
    chain, k = BinaryChain(0.3, 0.7 + 1e-6), 4
    odds = math.log(0.3 / 0.7), math.log((0.3 - 1e-6) / (0.7 + 1e-6))
    gap = odds[1] - odds[0]
    reals, ints, size = dynamic_bias.constants(chain, dynamic_bias.LINEAR)
    y, work = np.array([0.0, 0.0, gap - 1, sum(odds) / 2]), np.empty((2, k, k))
    still = np.zeros(k), np.eye(k)
    assert dynamic_bias.verdict(y, *still, reals, ints, np.zeros(size), work) == MINIMA
    table, k = law_table(chain, 1), 3
    y, work, still = y[:3], np.empty((2, k, k)), (np.zeros(k), np.eye(k))
    memory = np.zeros(uniform_rows.MEMORY)
    assert uniform_verdict.verdict(y, *still, table.reals, table.ints, memory, work) == MINIMA
    states = StatesAttentionModel(MarkovChain.symmetric(2, 0.5 + 1e-6), 1, 1)
    reals, ints, size = states_rows.constants(states)
    y, work = np.array([-5.0, -50.0, -50.0]), np.empty((2, k, k))
    found = states_rows.verdict(y, *still, reals, ints, np.zeros(size), work)
    assert found in (MINIMA, REST)
    # closed for zeros and open for ones, of slope s: f₁ − f₀ = ½s + ½
    theta = [1.0, -0.5, 1.0, (2 * gap - 2) / 4, 0.0, 0.0, odds[0] + 0.5]
    y, reals, ints, memory = attention_row(1, theta, (0.3, 0.7 + 1e-6))
    k = len(y)
    found = attention_verdict.verdict(
        y, np.zeros(k), -np.eye(k), reals, ints, memory, np.empty((2, k, k))
    )
    assert found == MINIMA


@pytest.mark.parametrize("q", [1 - 1e-12, 1e-12])
def test_residuals_of_rare_symbols_keep_their_digits(q):
    """Σω of ones at N = 1, where the next symbol is nearly certain."""
    table, memory = law_table(BinaryChain(0.5, q), 1), np.zeros(uniform_rows.MEMORY)
    assert gather(1.0, 0.0, 0.0, 0.0, table.reals, table.ints, memory) == 0
    target = mpf(1) - mpf(q)
    shift = float(log(target / (1 - target))) - 1.0 + 1e-3
    class_sums(1.0, 0.0, 0.0, shift, table.reals, memory)
    pi1 = mpf(0.5) / (mpf(0.5) + mpf(q))
    exact = pi1 * (1 / (1 + exp(-(mpf(shift) + 1))) - target)
    found = memory[SUMS + 2 * EACH] + memory[SUMS + 3 * EACH]
    assert found == pytest.approx(float(exact), rel=1e-9, abs=0)


def test_where_p_and_q_sum_to_one_the_loss_alone_decides():
    chain, k = BinaryChain(0.3, 0.7), 3
    reals, ints, size = dynamic_bias.constants(chain, dynamic_bias.CANONICAL)
    table = law_table(chain, 2)
    assert reals[dynamic_bias.LAMBDA] == 0
    for e, rule in ((-12.0, MINIMA), (0.0, GOING)):
        bias = math.log(0.3 / 0.7)
        velocity, work = np.array([-1.0, 1.0, 1.0]), np.empty((2, k, k))
        y = np.array([e, 0.0, bias])
        memory = np.zeros(size)
        memory[dynamic_bias.SIGN] = 1.0
        found = dynamic_bias.verdict(y, velocity, np.eye(k), reals, ints, memory, work)
        assert found == rule
        y, memory = np.array([e, 0.0, 0.3]), np.zeros(uniform_rows.MEMORY)
        memory[uniform_rows.SIGN] = 1.0
        found = uniform_verdict.verdict(
            y, velocity, np.eye(k), table.reals, table.ints, memory, work
        )
        assert found == rule
        states = StatesAttentionModel(MarkovChain.symmetric(4, 0.75), 2, 1)
        reals_of, ints_of, size_of = states_rows.constants(states)
        assert reals_of[states_rows.LAMBDA] == 0
        memory = np.zeros(size_of)
        memory[[states_rows.SIGN_W, states_rows.SIGN_V]] = 1.0
        y = np.array([e, 0.0, 0.0])
        found = states_rows.verdict(y, velocity, np.eye(k), reals_of, ints_of, memory, work)
        assert found == rule


class Orbits:
    """Answers in the place of the gap engine's ``follow``: how orbits end, and their margins."""

    def __init__(self, *answers):
        self.answers, self.asked = list(answers), []

    def __call__(self, *given):
        self.asked.append(given)
        end, margin = self.answers.pop(0) if self.answers else self.last
        self.last = end, margin
        return end, 1.0, 2.0, 3.0, margin, 10


def end_of(monkeypatch, kind, theta, *answers, target=-1.4, rtol=1e-8, atol=1e-10):
    orbits = Orbits(*answers)
    monkeypatch.setattr(decide, "follow", orbits)
    found = decide.end_of(kind, target, *theta, rtol, atol, 99)
    return found, orbits.asked


@pytest.mark.parametrize("far", [0, field.FAR])
@pytest.mark.parametrize(
    "name, theta",
    [
        ("canonical", (0.3, -0.5, 0.0)),
        ("linear", (0.02, -3.0, -0.4)),
        ("linear", (2.0, 0.3, 4.0)),
        ("untied", (0.3, -5.0, -0.5)),
    ],
)
def test_a_row_that_passes_a_saddle_closely_is_followed_from_all_sides(
    monkeypatch, name, theta, far
):
    kind, minima, plane = field.KINDS[name] + far, decide.AT_MINIMA, decide.AT_PLANE
    model, (sign, x, y, z) = field.KINDS[name], field.point_of(kind, *theta)
    scale = 1 + x + theta[2 if name == "untied" else 1] ** 2 + z * z
    rules = {
        minima: decide._REACHED,
        plane: decide._RESTED if name == "untied" else decide._TRAPPED,
    }
    clear, doubt = 1.01e-4 * scale, 0.99e-4 * scale  # 10⁴ tolerances
    for end in (minima, plane):
        found, asked = end_of(monkeypatch, kind, theta, (end, clear))
        assert found == (end, 1.0, 2.0, 3.0, rules[end], 10)
        assert asked == [(kind, sign, x, y, z, -1.4, 1e-8, 1e-10, 99)]
        found, asked = end_of(monkeypatch, kind, theta, (end, doubt), (end, 1.01e-9 * scale))
        assert found[0] == end and found[4:] == (rules[end], 20) and len(asked) == 2
        assert asked[1] == (kind, sign, x, y, z, -1.4, 1e-13, 1e-14, 99)
        count = 2 if name == "canonical" else 3
        found, asked = end_of(monkeypatch, kind, theta, (end, doubt), (end, 0.99e-9 * scale))
        assert found[0] == end and found[4:] == (decide._BESIDE, 20 + 20 * count)
        signed = {"canonical": (), "linear": (2,), "untied": (0, 1)}[name]
        moves = [1e-11 * (max(abs(v), 1.0) if i in signed else abs(v)) for i, v in enumerate(theta)]
        wanted = []
        for i in range(count):
            for side in (-1, 1):
                moved = [v + side * moves[j] * (i == j) for j, v in enumerate(theta)]
                wanted.append(field.point_of(kind, *moved))
        for given, point in zip(asked[2:], wanted, strict=True):
            assert given[1:5] == pytest.approx(point, rel=1e-14, abs=0)
            assert given[5:] == (-1.4, 1e-13, 1e-14, 99)
        for place in range(2 * count):
            answers = [(end, 0.0)] * (2 + place) + [(1 - end, 0.0)]
            found, _ = end_of(monkeypatch, kind, theta, *answers)
            assert (found[0], *found[4:]) == (decide._DIVIDED, decide._NONE, 30 + 10 * place)
    assert len(end_of(monkeypatch, kind, theta, (minima, 0.0), target=0.0)[1]) == 1
    assert len(end_of(monkeypatch, kind, theta, (decide.OUT_OF_STEPS, 0.0))[1]) == 1
    assert end_of(monkeypatch, kind, theta, (decide.LOST, 0.0))[0][4] == decide._NONE
    found, asked = end_of(monkeypatch, kind, theta, (minima, 0.0), rtol=1e-14, atol=1e-15)
    assert {given[6:8] for given in asked} == {(1e-14, 1e-15)} and len(asked) > 2
    broken = (math.nan, *theta[1:])
    assert end_of(monkeypatch, kind, broken)[0][-1] == 0
    assert end_of(monkeypatch, kind, broken)[0][0] == decide._NOT_FINITE
    assert model == kind % field.FAR
    assert (model == field.UNTIED) == (
        end_of(monkeypatch, kind, (0.0, *theta[1:]), (minima, clear))[1] != []
    )


def test_a_row_with_attention_at_rest_is_a_minimum_a_trap_or_a_rest():
    model = RankOneModel(BinaryChain(0.5, 0.8), 2, attention=True)
    log_odds = [math.log(1.0), math.log(0.2 / 0.8)]
    gap = log_odds[1] - log_odds[0]
    # Y = ∓½, closed for zeros and open for ones with slope s: f₁ − f₀ = ½s + ½
    minimum = [1.0, -0.5, -0.5, 1.0, (2 * gap - 2) / 4, 0.0, 0.0, log_odds[0] + 0.5]
    assert float(model.loss(torch.tensor(minimum).double())) == pytest.approx(
        model.chain.entropy_rate, abs=1e-12
    )
    bias = math.log(0.5 / 0.8)
    plane = [0.0, 0.5, 0.5, 1.0, 1.0, 0.3, 0.2, bias]
    for theta, curvature, rule in (
        (minimum, 1.0, MINIMA), (plane, 1.0, TRAPPED), (plane, -1.0, REST),
        ([*plane[:-1], bias + 0.1], 1.0, REST),
    ):  # fmt: skip
        y, reals, ints, memory = attention_row(theta=theta)
        k = len(y)
        found = attention_verdict.verdict(
            y, np.full(k, 0.9e-12), -curvature * np.eye(k), reals, ints, memory, np.empty((2, k, k))
        )
        assert found == rule
