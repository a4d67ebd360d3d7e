"""The compiled field, Jacobian, loss and bias of uniform attention against autograd."""

import mpmath
import numpy as np
import pytest
import torch
from law_oracle import best_bias, law_of, uniform_loss
from torch.autograd.functional import hessian, jacobian

from flowsim import BinaryChain
from flowsim.models import UniformAttentionModel
from flowsim.models.uniform import rows as uniform
from flowsim.models.uniform.sums import EACH, SUMS, best_shift, class_sums, newton_shift
from flowsim.models.uniform.table import STEEPEST, UNIGRAM_LOGIT, LawTable, gather


def near(found, expected):
    """Entries agree to 1e-12 of the largest of them."""
    assert np.abs(np.asarray(found) - expected).max() <= 1e-12 * np.abs(expected).max()


def evaluate(table, theta, memory=None):
    """Velocity in θ, its derivative in the row's coordinates, and the loss, at one θ."""
    k = len(theta)
    y = theta.copy()
    y[:2] = np.log(np.abs(y[:2]))
    y[3:] -= table.reals[UNIGRAM_LOGIT]  # from which a bias is counted
    if memory is None:
        memory = np.zeros(uniform.MEMORY)
    memory[uniform.SIGN] = np.sign(theta[1])
    field, jacobian = np.empty(k), np.empty((k, k))
    status = uniform.write_flow(y, table.reals, table.ints, memory, field, jacobian, 1.0)
    assert status == 0
    return field, jacobian, uniform.loss(y, table.reals, table.ints, memory)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(("p", "q"), [(0.5, 0.8), (0.2, 0.3), (0.97, 0.6)])
@pytest.mark.parametrize("length", [1, 4, 64, 300])
def test_one_pass_agrees_with_autograd(p, q, length, dynamic, generator):
    """Both sides of |a| = 1, where the ReLU's kink lies inside the law."""
    chain, k = BinaryChain(p, q), 4 if dynamic else 3
    table, value = LawTable(chain, length, dynamic, True), uniform_loss(chain, length)
    model = UniformAttentionModel(chain, length, "dynamic" if dynamic else "optimal")
    table.add(min(int(table.ints[STEEPEST]), 7))
    box = torch.tensor([2.2, 2.2, 1.6, 1.0][:k]).double()
    for start in box * (
        2 * torch.rand(5 if length < 300 else 2, k, dtype=torch.float64, generator=generator) - 1
    ):
        point = start if dynamic else torch.cat([start, best_bias(value, start)[None]])
        gradient, bend = jacobian(value, point).numpy(), hessian(value, point).numpy()
        if not dynamic:
            gradient, bend = (
                gradient[:3],
                bend[:3, :3] - np.outer(bend[3], bend[3])[:3, :3] / bend[3, 3],
            )
        theta = start.numpy()
        near(model.gradient(start), gradient)
        near(model.hessian(start), bend)
        field, steep, found = evaluate(table, theta)
        scale = np.ones(k)
        scale[:2] = theta[:2]
        expected = -bend * scale / scale[:, None]
        expected[0, 0] += gradient[0] / theta[0]
        expected[1, 1] += gradient[1] / theta[1]
        near(-field * scale, gradient)
        near(steep, expected)
        assert abs(found - float(value(point))) < 1e-13


@pytest.mark.parametrize("scale", [0.5, 2.0, 10.0, 40.0])
def test_the_optimal_bias_is_the_root_in_forty_digits(scale):
    """Of flat, steep, falling and saturated logits; and by Newton's method from guesses."""
    random, mp = np.random.default_rng(int(scale)), mpmath.mp.clone()
    mp.dps = 40
    for p, q in [(0.5, 0.8), (0.2, 0.3), (0.45, 0.5), (0.5, 0.5), (1e-12, 0.7), (1 - 1e-9, 0.3)]:
        for length in (1, 3, 12):
            model = UniformAttentionModel(BinaryChain(p, q), length)
            table = LawTable(model.chain, length, False, True)
            table.add(int(table.ints[STEEPEST]))
            columns = [part.tolist() for part in law_of(model.chain, length)]
            for _ in range(3):
                e, w, a = random.uniform(-1, 1, 3) * (scale, 1.5, 3.0)
                memory, constants = np.zeros(uniform.MEMORY), (table.reals, table.ints)
                point = e * e, 4 * w * abs(w), a
                assert gather(*point, a, *constants, memory) == 0
                shift = best_shift(*point, table.reals, memory)
                bias = float(model.optimal_bias(torch.tensor([e, w, a])))
                unigram = mp.log(mp.mpf(p) / mp.mpf(q))
                assert shift == pytest.approx(
                    bias - e * e / 2 - float(unigram), rel=1e-13, abs=1e-13
                )
                total = size = mp.mpf(0)
                for x, n, ones, weight, _ in zip(*columns, strict=True):
                    s = x - mp.mpf(1) / 2 + mp.mpf(a) * (mp.mpf(ones) / n - mp.mpf(1) / 2)
                    f = point[0] * (s + mp.mpf(1) / 2 + point[1] * max(s, 0)) + shift + unigram
                    chance = 1 / (1 + mp.exp(-f))
                    total += weight * (chance - (1 - mp.mpf(q) if x else mp.mpf(p)))
                    size += weight * chance * (1 - chance)
                assert abs(total) <= 1e-10 * size + 1e-16
                class_sums(*point, shift, table.reals, memory)
                if sum(memory[SUMS + 2 : SUMS + 4 * EACH : EACH]) < 1e-9:
                    continue  # no bias changes the loss
                for off in (0.0, 1e-7, 1e-3, -0.2, 0.35, 5.0, np.nan):
                    found, step = newton_shift(*point, shift + off, table.reals, memory)
                    assert found + step == pytest.approx(shift, rel=1e-9, abs=1e-9)
                    assert abs(step) <= 1e-5
