"""The squared loss of the script of poles."""

from importlib import import_module

import numpy as np
import pytest
import torch


@pytest.mark.parametrize("decay", ["signed", "positive"])
def test_the_loss_is_the_sum_over_lags(decay):
    script = import_module("poles")
    theta = np.random.default_rng(3).normal(0, 0.5, 12)
    o, v, alpha = theta.reshape(3, 4)
    kappa = np.tanh(alpha) if decay == "signed" else 1 / (1 + np.exp(-alpha))
    lags = np.arange(500)
    weight = ((o * v) * kappa ** lags[:, None]).sum(1)

    def covariance(k):
        signals = script.VARIANCES * script.EIGENVALUES ** np.abs(k)[..., None]
        return signals.sum(-1) + script.NOISE * (k == 0)

    among = covariance(lags[:, None] - lags)
    expected = covariance(np.array(0)) - 2 * weight @ covariance(lags + 1) + weight @ among @ weight
    loss = script.Recurrence(4, decay).loss(torch.from_numpy(theta))
    assert float(loss) == pytest.approx(float(expected), rel=1e-10)
