"""The uniform-attention model against reference values, enumeration, autograd and itself."""

import itertools
import json
from pathlib import Path

import mpmath
import pytest
import torch
from conftest import BAD_LENGTHS, slopes_of_gradient

from flowsim import BinaryChain
from flowsim.errors import InputError
from flowsim.models.past_law import running_mean_law
from flowsim.models.uniform.model import AttentionModel

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
    model = AttentionModel(BinaryChain(case["p"], case["q"]), case["N"], compress=compress)
    theta = tensor([case["e"], case["w"], case["a"]])
    assert model.loss(theta).item() == pytest.approx(case["loss"], rel=1e-13)
    assert model.optimal_bias(theta).item() == pytest.approx(case["bias"], rel=1e-12)
    gradient = [case["grad_e"], case["grad_w"], case["grad_a"]]
    assert model.gradient(theta).tolist() == pytest.approx(gradient, rel=1e-12, abs=1e-15)


def enumerated(chain, length, e, w, a):
    """Loss and optimal bias from all 2^N sequences, with 30 digits."""
    mp = mpmath.mp.clone()
    mp.dps = 30
    e, w, a, p, q = (mp.mpf(v) for v in (e, w, a, chain.p, chain.q))
    transition = [[1 - p, p], [q, 1 - q]]
    atoms = []
    for symbols in itertools.product((0, 1), repeat=length):
        weight = [q, p][symbols[0]] / (p + q) / length
        for now, after in itertools.pairwise(symbols):
            weight *= transition[now][after]
        for n in range(1, length + 1):
            s = symbols[n - 1] - mp.mpf(1) / 2 + a * (mp.mpf(sum(symbols[:n])) / n - mp.mpf(1) / 2)
            logit = e**2 * (s + 4 * w * abs(w) * max(s, 0))
            atoms.append((weight, logit, [p, 1 - q][symbols[n - 1]]))

    def slope(b):
        return sum(weight * (1 / (1 + mp.exp(-f - b)) - t) for weight, f, t in atoms)

    reach = 5 + max(abs(f) for _, f, _ in atoms)
    b = mp.findroot(slope, (-reach, reach), solver="anderson", tol=1e-24)
    terms = (
        w * (t * mp.log1p(mp.exp(-f - b)) + (1 - t) * mp.log1p(mp.exp(f + b))) for w, f, t in atoms
    )
    return float(sum(terms)), float(b)


@pytest.mark.parametrize(
    ("p", "q", "length", "e", "w", "a"),
    [
        (0.31, 0.52, 1, 1.3, -0.4, 0.7),
        (0.62, 0.71, 3, -0.9, 1.1, -2.6),
        (0.05, 0.11, 4, 1.8, -1.6, 1.4),
        (0.5, 0.5, 5, 2.2, 0.9, -0.8),
        (0.93, 0.88, 6, 1.1, -1.9, 3.0),
        (0.4, 0.6, 4, 1.5, 1.2, 1.0),
    ],
)
def test_enumeration_of_all_sequences(p, q, length, e, w, a):
    chain = BinaryChain(p, q)
    model = AttentionModel(chain, length)
    loss, bias = enumerated(chain, length, e, w, a)
    assert model.loss(tensor([e, w, a])).item() == pytest.approx(loss, rel=1e-13)
    assert model.optimal_bias(tensor([e, w, a])).item() == pytest.approx(bias, rel=1e-12)
    step = 1e-5
    for i, found in enumerate(model.gradient(tensor([e, w, a])).tolist()):
        if abs(a) < 1:  # at a kink, differences of the loss are not its one-sided derivative
            up, down = ([e, w, a] for _ in range(2))
            up[i] += step
            down[i] -= step
            difference = enumerated(chain, length, *up)[0] - enumerated(chain, length, *down)[0]
            assert found == pytest.approx(difference / (2 * step), rel=1e-7, abs=1e-9)


@pytest.mark.slow
def test_compression_is_invisible_at_1024():
    chain, reach = BinaryChain(0.02, 0.05), 3.0
    corners = torch.cartesian_prod(*[tensor([-s, s]) for s in (3, 3, reach)])
    theta = torch.cat([corners, cloud(6, [3, 3, reach]), cloud(6, [2, 2, reach])])
    few, all_atoms = AttentionModel(chain, 1024), AttentionModel(chain, 1024, compress=False)
    exact = all_atoms.loss(theta)
    torch.testing.assert_close(few.loss(theta), exact, rtol=1e-12, atol=0)
    exact = all_atoms.gradient(theta)
    torch.testing.assert_close(few.gradient(theta), exact, rtol=1e-11, atol=1e-12)


@forward_mode
@pytest.mark.parametrize("bias", ["optimal", "dynamic"])
def test_derivatives_through_torch_func(bias):
    model = AttentionModel(CHAIN, 20, bias)
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
def test_plane_covariance_is_the_curvature_across_the_plane(pq):
    chain = BinaryChain(*pq)
    model = AttentionModel(chain, 50)
    w, a = torch.meshgrid(
        tensor([-1.5, -0.6, 0, 0.8]), tensor([-2.5, -1, -0.4, 0, 0.9, 1, 1.7]), indexing="ij"
    )
    covariance = model.plane_covariance(w, a)
    theta = torch.stack([torch.zeros_like(w), w, a], dim=-1)
    hessian = model.hessian(theta)
    expected = torch.zeros_like(hessian)
    expected[..., 0, 0] = -2 * chain.second_eigenvalue * covariance
    torch.testing.assert_close(hessian, expected, rtol=1e-12, atol=1e-14)
    flat = torch.full(w.shape, chain.stationary_entropy, dtype=torch.float64)
    torch.testing.assert_close(model.loss(theta), flat, rtol=1e-14, atol=0)
    assert (model.gradient(theta).abs() < 1e-15).all()


def test_plane_covariance_has_the_closed_form_of_the_law():
    model = AttentionModel(CHAIN, 37)
    w, a = torch.meshgrid(tensor([-1.5, -0.7, 0.8]), tensor([-0.99, -0.4, 0, 0.9]), indexing="ij")
    covariance = 0.0
    pi0, pi1 = CHAIN.stationary
    for x, pi in enumerate((-pi1, pi0)):
        m, weight = (torch.from_numpy(part) for part in running_mean_law(CHAIN, 37)[x])
        s = x - 0.5 + a[..., None] * m
        logit = s + 4 * (w * w.abs())[..., None] * torch.relu(s)
        covariance = covariance + pi * (weight * logit).sum(-1)
    torch.testing.assert_close(model.plane_covariance(w, a), covariance, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("length", [*BAD_LENGTHS, 10**7])
def test_bad_lengths(length):
    with pytest.raises(InputError, match="length N"):
        AttentionModel(CHAIN, length)


def test_bad_bias():
    with pytest.raises(InputError, match="bias must be"):
        AttentionModel(CHAIN, 8, bias="none")
