"""Steps off the rank-one manifold: their second derivatives, and their growth in training."""

import noisy_misses as script
import pytest
import torch
from transverse import attention_coupling, attention_gain, follow, transverse_hessian

from flowsim.chain import BinaryChain
from flowsim.models.rank_one.model import RankOneModel
from full_model import Architecture, Comparison, MarkovSource, PopulationLoss, lift_rank_one
from full_model.comparison.side_by_side import FullSide

F64 = torch.float64
CHAIN = BinaryChain(0.5, 0.8)


def test_transverse_hessian_is_that_of_the_full_loss():
    """Against automatic differentiation, with ReLUs open and closed and e of both signs."""
    model, arch = RankOneModel(CHAIN, 3), Architecture(4, 3, attention="none")
    loss = PopulationLoss(arch, MarkovSource.of(CHAIN))
    theta = torch.tensor(
        [[1.2, -0.5, 1.1, 1.3, -2.0], [0.3, 0.6, -0.9, 0.7, 0.4], [-0.8, 0.3, -1.2, -1.2, 0.1],
         [0.7, -0.9, 1.0, 1.0, 0.3]], dtype=F64)  # fmt: skip
    found = transverse_hessian(model, theta)
    beta = torch.tensor([1.0, -1, 0, 0], dtype=F64) / 2**0.5  # orthogonal to α
    for row, expected in zip(theta, found, strict=True):
        weights = lift_rank_one(model.point(row), arch)

        def moved(z, weights=weights):
            parts = [beta, beta / 3**0.5, beta / 16**0.5, beta[:, None] / 16**0.5]
            names = ["embedding", "positions", "0.up", "0.down"]
            off = {n: weights[n] + c * part for n, c, part in zip(names, z, parts, strict=True)}
            return loss({**weights, **off})

        hessian = torch.autograd.functional.hessian(moved, torch.zeros(4, dtype=F64))
        assert torch.allclose(hessian, expected, rtol=0, atol=1e-14)


def begin(noise, part):
    """A full model near the lift of (1.2, 0.9)."""
    return script.start(CHAIN, (1.2, 0.9), noise, part, "others", range(3, 4), "gd").full


def test_linear_growth_is_that_of_small_noise():
    """What training makes of noise of 1e-6, in all four amplitudes; and parts of noise add up."""
    models = begin(1e-6, "all")
    weights = models.field.weights(models.state)
    first = script.amplitudes(weights, 8)
    model, times = RankOneModel(CHAIN, 8), torch.tensor([0.5, 2.0])
    theta = model.from_canonical(torch.tensor([[1.2, 0.9]], dtype=F64))
    gain, when, propagators = follow(model, theta, 2.0, times)
    for state, propagator in zip(script.trained(models, times), propagators, strict=True):
        found = script.amplitudes(models.field.weights(state), 8)
        assert torch.allclose(found, propagator @ first, rtol=0, atol=1e-4 * float(first.norm()))
    assert float(gain) >= float(propagators[:, 0].norm(dim=-1).max()) and 0 <= float(when) <= 2
    parts = [models.field.weights(begin(0.02, part).state) for part in ("all", "across", "along")]
    without = begin(0.0, "all")  # one position for all, since no noise parts them
    still = without.field.weights(without.state)
    for name, whole in parts[0].items():
        clean = parts[1][name] + parts[2][name] - whole  # along + across − both
        assert clean.flatten()[0] == pytest.approx(still[name].flatten()[0])
    assert float(script.amplitudes(parts[2], 8).abs().max()) < 1e-15


def test_small_attention_weights_grow_as_the_coupling_says():
    """Full training of noise 1e-6 on attention alone, against the factors of W_Oᵀα ± W_V α."""
    at, until = torch.tensor([[1.6, 1.5]], dtype=F64), 6.0
    settings = Comparison(CHAIN.p, CHAIN.q, "rank-one", d=3, length=3, noise=1e-6,
                          noise_on="attention")  # fmt: skip
    full, model = FullSide(settings, at), RankOneModel(CHAIN, 3)

    def modes():
        weights = full.field.weights(full.state)
        out = weights["0.out"][0].sum(0) / 3**0.5
        value = weights["0.value"][0].sum(1) / 3**0.5
        return torch.stack([out + value, out - value])

    first = modes()
    full.move(until)
    gain, when, factors = attention_gain(model, model.from_canonical(at), until)
    assert float(gain) >= float(factors.max()) > 1.5 and 0 < float(when) <= until
    assert torch.allclose(modes(), first * factors.T, rtol=1e-5, atol=0)
    still = torch.tensor([[0.0, 0.3, 1.0, 1.0, 0.0]], dtype=F64)
    assert attention_coupling(model, still) == 0  # at e = 0 nothing reaches the logits
