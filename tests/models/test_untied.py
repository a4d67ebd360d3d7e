import pytest
import torch
from conftest import CHAINS, rows

from flowsim import BinaryChain, Label, find_limits
from flowsim.landscape import curvatures
from flowsim.models import CanonicalModel, UntiedModel


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
