"""The uniform-attention model against reference values, enumeration, autograd and itself."""

import json
from pathlib import Path

import pytest
import torch
from conftest import slopes_of_gradient

from flowsim import BinaryChain
from flowsim.models.uniform.model import UniformAttentionModel

REFERENCE = json.loads((Path(__file__).parents[1] / "reference_attention.json").read_text())
CHAIN = BinaryChain(0.5, 0.8)
#: torch's forward mode compiles its own scripts on first use, which current versions deplore
forward_mode = pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")


def tensor(values):
    return torch.tensor(values, dtype=torch.float64)


def cloud(count, scale, seed=0):
    """Points spread evenly over [-scale, scale]."""
    generator = torch.Generator().manual_seed(seed)
    unit = 2 * torch.rand(count, 3, dtype=torch.float64, generator=generator) - 1
    return unit * tensor(scale)


@pytest.mark.parametrize("compress", [True, False])
@pytest.mark.parametrize("case", REFERENCE, ids=lambda case: f"N={case['N']},a={case['a']}")
def test_reference_values(case, compress):
    model = UniformAttentionModel(BinaryChain(case["p"], case["q"]), case["N"], compress=compress)
    theta = tensor([case["e"], case["w"], case["a"]])
    assert model.loss(theta).item() == pytest.approx(case["loss"], rel=1e-13)
    assert model.optimal_bias(theta).item() == pytest.approx(case["bias"], rel=1e-12)
    gradient = [case["grad_e"], case["grad_w"], case["grad_a"]]
    assert model.gradient(theta).tolist() == pytest.approx(gradient, rel=1e-12, abs=1e-15)


@pytest.mark.slow
def test_compression_is_invisible_at_1024():
    chain, reach = BinaryChain(0.02, 0.05), 3.0
    corners = torch.cartesian_prod(*[tensor([-s, s]) for s in (3, 3, reach)])
    theta = torch.cat([corners, cloud(6, [3, 3, reach]), cloud(6, [2, 2, reach])])
    few, all_atoms = (
        UniformAttentionModel(chain, 1024),
        UniformAttentionModel(chain, 1024, compress=False),
    )
    exact = all_atoms.loss(theta)
    torch.testing.assert_close(few.loss(theta), exact, rtol=1e-12, atol=0)
    exact = all_atoms.gradient(theta)
    torch.testing.assert_close(few.gradient(theta), exact, rtol=1e-11, atol=1e-12)


@forward_mode
@pytest.mark.parametrize("bias", ["optimal", "dynamic"])
def test_derivatives_through_torch_func(bias):
    model = UniformAttentionModel(CHAIN, 20, bias)
    theta = cloud(8, [1.5, 1.5, 0.9], seed=1)
    if bias == "dynamic":
        theta = torch.cat([theta, cloud(8, [1, 1, 1])[:, :1]], dim=-1)
    hessian = model.hessian(theta)
    torch.testing.assert_close(hessian, slopes_of_gradient(model, theta), rtol=1e-6, atol=1e-8)
    same = {"rtol": 1e-13, "atol": 1e-14}
    vmap, func = torch.func.vmap, torch.func
    torch.testing.assert_close(vmap(func.grad(model.loss))(theta), model.gradient(theta), **same)
    torch.testing.assert_close(vmap(func.hessian(model.loss))(theta), hessian, **same)
    torch.testing.assert_close(vmap(func.jacrev(model.gradient))(theta), hessian, **same)
    torch.testing.assert_close(func.jacfwd(model.gradient)(theta[0]), hessian[0], **same)
    along = torch.cos(torch.arange(theta.numel(), dtype=theta.dtype)).reshape(theta.shape)
    _, slope = func.jvp(model.loss, (theta,), (along,))
    torch.testing.assert_close(slope, (model.gradient(theta) * along).sum(-1), **same)
    theta.requires_grad_()
    assert torch.autograd.gradcheck(model.loss, (theta,))
    assert torch.autograd.gradgradcheck(model.loss, (theta,), atol=1e-4)


@pytest.mark.parametrize("pq", [(0.5, 0.8), (0.2, 0.3), (0.3, 0.7)])
def test_the_logit_gap_says_the_curvature_across_the_plane(pq):
    chain = BinaryChain(*pq)
    model = UniformAttentionModel(chain, 50)
    w, a = torch.meshgrid(
        tensor([-1.5, -0.6, 0, 0.8]), tensor([-2.5, -1, -0.4, 0, 0.9, 1, 1.7]), indexing="ij"
    )
    pi0, pi1 = chain.stationary
    covariance = pi0 * pi1 * model.logit_gap(torch.stack([torch.ones_like(w), w, a], dim=-1))
    theta = torch.stack([torch.zeros_like(w), w, a], dim=-1)
    hessian = model.hessian(theta)
    expected = torch.zeros_like(hessian)
    expected[..., 0, 0] = -2 * chain.second_eigenvalue * covariance
    torch.testing.assert_close(hessian, expected, rtol=1e-12, atol=1e-14)
    flat = torch.full(w.shape, chain.stationary_entropy, dtype=torch.float64)
    torch.testing.assert_close(model.loss(theta), flat, rtol=1e-14, atol=0)
    assert (model.gradient(theta).abs() < 1e-15).all()
