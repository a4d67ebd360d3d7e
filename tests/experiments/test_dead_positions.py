"""The ladder of dead positions: its closed forms against loss, orbits and full training."""

import math

import numpy as np
import pytest
import torch
from dead_positions import ladder_losses, rung_probabilities

from flowsim import BinaryChain, trajectories
from flowsim.models import RankOneModel

ABOVE = [BinaryChain(0.5, 0.8), BinaryChain(0.9, 0.9), BinaryChain(0.3, 0.85)]
D = 8
#: How many positions are open, of N: all at N = 16, some at others.
EACH = {8: [1, 4, 7], 16: [*range(1, 16)]}


def share(chain, loss):
    return (loss - chain.entropy_rate) / chain.mutual_information


def start(chain, length, k):
    """LG's recommended start on the other side of W_1, k positions open."""
    rho = torch.full((length,), -0.02).double()
    rho[:k] = 0.02
    tail = torch.tensor([D, -D, 0, 0, math.log(chain.p / chain.q)], dtype=torch.float64)
    return torch.cat([rho.new_tensor([-0.02]), rho, tail])


@pytest.mark.parametrize("chain", ABOVE, ids=lambda chain: f"{chain.p} {chain.q}")
def test_it_leads_from_the_unigram_to_the_bigram(chain):
    found = ladder_losses(chain, 9)
    for losses in (found.plateaus, found.ends):
        assert losses[0] == pytest.approx(chain.stationary_entropy, abs=1e-14)
        assert losses[-1] == pytest.approx(chain.entropy_rate, abs=1e-14)
        assert (np.diff(losses) < 0).all()
    assert (found.plateaus[1:-1] > found.ends[1:-1]).all()


@pytest.mark.parametrize("chain", ABOVE, ids=lambda chain: f"{chain.p} {chain.q}")
def test_no_weights_with_dead_positions_are_better_than_the_end(chain, generator):
    """Random points with k open positions, and points close to the infimum."""
    length, k = 5, 3
    model = RankOneModel(chain, length, attention=True)
    end = ladder_losses(chain, length).ends[k]
    size = 10 ** torch.empty(4000, 1).uniform_(-2, 1, generator=generator).double()
    theta = size * torch.randn(4000, length + 6, generator=generator, dtype=torch.float64)
    theta[:, 0] = -theta[:, 0].abs()
    theta[:, 1 : k + 1] = theta[:, 1 : k + 1].abs()
    theta[:, k + 1 : length + 1] = -theta[:, k + 1 : length + 1].abs()
    theta[:, -5] = theta[:, -5].abs()
    theta[:, -3:-1] = 0
    theta[:, -1] = model.optimal_bias(theta)
    assert model.loss(theta).min() > end
    eps, gain = -1e-4, -chain.target_logit_gap / 1e-8
    bias = math.log((1 - chain.q) / chain.q)
    near = torch.zeros(length + 6, dtype=torch.float64)
    near[0], near[1 : k + 1] = eps, -eps
    near[k + 1 : length + 1] = (math.log(chain.p / chain.q) - bias) / eps
    near[-5], near[-4], near[-1] = math.sqrt(gain / 4), -math.sqrt(gain / 4), bias
    assert model.loss(near) - end == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("length", [8, pytest.param(16, marks=pytest.mark.slow)])
def test_orbits_linger_on_the_plateaus_and_tend_to_the_ends(length):
    chain, model = ABOVE[0], RankOneModel(ABOVE[0], length, attention=True)
    ks = EACH[length]
    starts = torch.stack([start(chain, length, k) for k in ks])
    times = torch.tensor([0.0, 40.0, 1e5, 1e7]).double()
    path = trajectories(model, starts, times, rtol=1e-6)
    loss, found = model.loss(path).numpy(), ladder_losses(chain, length)
    assert share(chain, loss[1]) == pytest.approx(share(chain, found.plateaus[ks]), abs=6e-3)
    assert share(chain, loss[3]) == pytest.approx(share(chain, found.ends[ks]), abs=1e-2)
    assert (loss[2] > loss[3]).all() and (loss[3] > found.ends[ks]).all()
    assert ((path[-1, :, 1 : length + 1] > 0).sum(-1).numpy() == ks).all()


def test_the_law_of_the_rungs_is_that_of_scaled_descent():
    """Descent of ε and ρ alone, on their own fast scale, opens as many positions as it says."""
    chain, length, d, runs, spread = ABOVE[0], 6, 16, 4000, 1e-3
    law = rung_probabilities(chain, length, spread, 4.0 * d * d)
    assert law.sum() == pytest.approx(1) and law[-1] == pytest.approx((1 + 2**-6) / 2)
    rng = np.random.default_rng(5)
    eps, rho = spread * rng.normal(size=runs), spread * rng.normal(size=(runs, length))
    (pi0, pi1), targets, gain = chain.stationary, (chain.p, 1 - chain.q), 4 * d * d
    bias = math.log(pi1 / pi0)
    for _ in range(400):
        slope_e, slope_rho = 0.0, 0.0
        for x, law_x, target in ((0, pi0, targets[0]), (1, pi1, targets[1])):
            y = rho + x * eps[:, None]
            s = 1 - gain * (y > 0)
            omega = law_x / length * (1 / (1 + np.exp(-(eps[:, None] * y * s + bias))) - target)
            slope_e = slope_e + (omega * s * (y + x * eps[:, None])).sum(1)
            slope_rho = slope_rho + eps[:, None] * omega * s
        eps, rho = eps - 1e-3 * slope_e, rho - 1e-3 * slope_rho
    opened = ((rho > 0) | (rho + eps[:, None] > 0)).sum(1)
    count = np.bincount(opened, minlength=length + 1)
    error = np.sqrt(law * (1 - law) / runs)
    assert (np.abs(count / runs - law) < 4 * error + 1e-3).all()


@pytest.mark.parametrize("chain", ABOVE, ids=lambda chain: f"{chain.p} {chain.q}")
@pytest.mark.parametrize("gain", [3.0, 257.0])
def test_the_rungs_follow_the_embedding_that_is_learned(chain, gain):
    """ε²(1 − gain) = Δ*; the mean of the law gives the chance that a position stays open."""
    law = rung_probabilities(chain, 6, 1.0, gain)
    assert law.sum() == pytest.approx(1, abs=1e-14)
    stays = 2 * float(law @ np.arange(7)) / 6 - 0.5
    learned = math.sqrt(2) * float(torch.erfinv(torch.tensor(2 * stays - 1).double()))
    assert learned**2 * (1 - gain) == pytest.approx(chain.target_logit_gap, rel=1e-6)
