import pytest
import torch
from conftest import CHAINS, rows

from flowsim import BinaryChain, Label, find_limits
from flowsim.interface import conserved_values
from flowsim.landscape import curvatures
from flowsim.models import CanonicalModel, UntiedModel


@pytest.mark.parametrize("bias", ["optimal", "dynamic"])
def test_gradient_is_autograds(bias, generator):
    model = UntiedModel(BinaryChain(0.3, 0.85), bias=bias)
    k = len(model.coordinates)
    theta = 4 * torch.rand(300, k, dtype=torch.float64, generator=generator) - 2
    theta.requires_grad_()
    (expected,) = torch.autograd.grad(model.loss(theta).sum(), theta)
    torch.testing.assert_close(model.gradient(theta.detach()), expected, rtol=1e-9, atol=1e-12)


def test_tied_weights_are_the_diagonal():
    chain = BinaryChain(0.3, 0.85)
    theta = rows((1.2, -0.7), (0.4, 1.5))
    doubled = theta[:, [0, 0, 1]]
    tied, untied = CanonicalModel(chain), UntiedModel(chain)
    assert torch.equal(untied.loss(doubled), tied.loss(theta))
    gradient = untied.gradient(doubled)
    torch.testing.assert_close(gradient[:, 0] + gradient[:, 1], tied.gradient(theta)[:, 0])


@pytest.mark.parametrize(("p", "q"), CHAINS)
def test_bad_minima_of_the_tied_model_become_saddles(p, q, generator):
    """AM Thm. 3, by curvature and by flow."""
    chain = BinaryChain(p, q)
    tied, untied = CanonicalModel(chain), UntiedModel(chain)
    w = 1.0 if p + q > 1 else -1.5
    bad = rows((0.0, w))
    assert find_limits(tied, bad).label == Label.LOCAL_MINIMUM
    assert curvatures(tied, bad).min() > -1e-12
    saddle = rows((0.0, 0.0, w))
    assert find_limits(untied, saddle).label == Label.SADDLE
    assert curvatures(untied, saddle)[0, 0] < -1e-4
    assert curvatures(untied, saddle)[0, -1] > 1e-4
    noise = 1e-3 * torch.randn(50, 3, dtype=torch.float64, generator=generator)
    limit = find_limits(untied, saddle + noise)
    assert (limit.label == Label.GLOBAL_MINIMUM).all()
    assert (limit.loss - chain.entropy_rate).abs().max() < 1e-13
    assert (find_limits(tied, bad + noise[:, [0, 2]]).label == Label.LOCAL_MINIMUM).all()


def test_the_diagonal_itself_falls_into_the_saddle():
    untied = UntiedModel(BinaryChain(0.5, 0.8))
    limit = find_limits(untied, rows((0.9, 0.9, 0.5), (0.7, -0.7, -1.6)))
    assert limit.label[0] == Label.SADDLE
    assert limit.theta[0, :2].abs().max() < 1e-6
    assert limit.label[1] in (Label.SADDLE, Label.UNRESOLVED)


@pytest.mark.parametrize(("p", "q"), CHAINS)
def test_every_generic_start_reaches_the_global_minima(p, q, generator):
    model = UntiedModel(BinaryChain(p, q))
    start = 6 * torch.rand(1000, 3, dtype=torch.float64, generator=generator) - 3
    limit = find_limits(model, start)
    assert (limit.label == Label.GLOBAL_MINIMUM).all()
    assert (
        conserved_values(model, limit.theta) - conserved_values(model, start)
    ).abs().max() <= 1e-8
