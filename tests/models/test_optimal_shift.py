"""The optimal bias by itself: the root in forty digits."""

import mpmath
import numpy as np
import pytest
from mpmath import mpf

from flowsim.models.bias import best_shifts

#: Targets t(0) = p and t(1) = 1 − q next to 0, next to 1 and between.
CHAINS = [(0.2, 0.3), (1 - 1e-12, 0.3), (1e-12, 0.7), (0.4, 1 - 1e-12), (0.5, 1e-12)]


def sigmoid(x):
    return 1 / (1 + mpmath.exp(-x))


def target(pair, x):
    return mpf(pair[0]) if x == 0 else 1 - mpf(pair[1])


def nodes(pair, rows, scale, seed, falls=False):
    """Logits up to the shift at three nodes given each symbol, (rows, 2, 3), and weights (2, 3)."""
    draw, pi1 = np.random.default_rng(seed), pair[0] / (pair[0] + pair[1])
    h = scale * draw.normal(size=(rows, 2, 3))
    h[:, 0 if falls else 1] += 4 * scale
    weight = draw.uniform(size=(2, 3))
    return h, weight * ([[1 - pi1], [pi1]] / weight.sum(axis=1, keepdims=True))


def shifts(pair, h, weights):
    found = np.empty(len(h))
    best_shifts(h, weights, *pair, found)
    return found


@pytest.mark.parametrize("pair", CHAINS)
@pytest.mark.parametrize("scale", [0.0, 0.3, 5.0, 60.0])
@pytest.mark.parametrize("falls", [False, True])
def test_the_shift_is_the_root_in_forty_digits(pair, scale, falls):
    h, weights = nodes(pair, 4, scale, 3, falls)
    found = shifts(pair, h, weights)
    for row in range(4):
        total, size = mpf(0), mpf(0)
        for x in (0, 1):
            t = target(pair, x)
            for weight, f in zip(weights[x], h[row, x], strict=True):
                s = sigmoid(mpf(float(f)) + mpf(float(found[row])))
                total += mpf(float(weight)) * (s - t)
                size += mpf(float(weight)) * s * (1 - s)
        assert abs(total) <= 1e-10 * size + 1e-16, (row, total, size)
