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
from flowsim.interface import conserved_values
from flowsim.models.canonical.model import CanonicalModel
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


@pytest.mark.parametrize("pq", [(0.5, 0.8), (0.2, 0.3), (0.5, 0.5), (0.3, 0.7), (1e-6, 0.4)])
@pytest.mark.parametrize("length", [1, 2, 8, 200])
def test_without_attention_it_is_the_canonical_model(pq, length):
    chain = BinaryChain(*pq)
    edges = torch.cartesian_prod(
        tensor([-3, -0.3, 0, 0.2, 3]), tensor([-2, -(0.5**0.5), 0, 0.4, 2])
    )
    theta = torch.cat([edges, cloud(200, [3, 2, 0])[:, :2]])
    with_a = torch.cat([theta, torch.zeros(len(theta), 1, dtype=torch.float64)], dim=-1)
    for bias in ("optimal", "dynamic"):
        plain, attentive = CanonicalModel(chain, bias), AttentionModel(chain, length, bias)
        if bias == "dynamic":
            b = torch.linspace(-4, 4, len(theta), dtype=torch.float64)[:, None]
            theta, with_a = torch.cat([theta, b], dim=-1), torch.cat([with_a, b], dim=-1)
        shared = [0, 1] if bias == "optimal" else [0, 1, 3]
        close = {"rtol": 1e-13, "atol": 1e-13}
        torch.testing.assert_close(attentive.loss(with_a), plain.loss(theta), **close)
        torch.testing.assert_close(
            attentive.optimal_bias(with_a), plain.optimal_bias(theta), **close
        )
        torch.testing.assert_close(
            attentive.gradient(with_a)[:, shared], plain.gradient(theta), **close
        )


@pytest.mark.parametrize(
    "pq",
    [(0.5, 0.8), *(pytest.param(pq, marks=pytest.mark.slow) for pq in ((0.2, 0.3), (0.02, 0.05)))],
)
@pytest.mark.parametrize("reach", [1.0, pytest.param(3.0, marks=pytest.mark.slow)])
def test_compression_is_invisible_at_1024(pq, reach):
    chain = BinaryChain(*pq)
    corners = torch.cartesian_prod(*[tensor([-s, s]) for s in (3, 3, reach)])
    theta = torch.cat([corners, cloud(6, [3, 3, reach]), cloud(6, [2, 2, reach])])
    few, all_atoms = AttentionModel(chain, 1024), AttentionModel(chain, 1024, compress=False)
    exact = all_atoms.loss(theta)
    torch.testing.assert_close(few.loss(theta), exact, rtol=1e-12, atol=0)
    exact = all_atoms.gradient(theta)
    torch.testing.assert_close(few.gradient(theta), exact, rtol=1e-11, atol=1e-12)


def test_steep_rows_fall_back_to_the_whole_law():
    theta = tensor([[20, 3, 2], [9, -5, 0.9], [5, 5, -40]])
    few, all_atoms = AttentionModel(CHAIN, 100), AttentionModel(CHAIN, 100, compress=False)
    for quantity in ("loss", "gradient", "optimal_bias"):
        found, exact = getattr(few, quantity)(theta), getattr(all_atoms, quantity)(theta)
        torch.testing.assert_close(found, exact, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("bias", ["optimal", "dynamic"])
def test_gradient_is_that_of_the_loss_of_every_atom(bias):
    """Against autograd through the plain sum over atoms, with the bias held at its optimum."""
    model = AttentionModel(CHAIN, 30, bias)
    laws = running_mean_law(CHAIN, 30)
    theta = cloud(60, [2, 2, 2.5], seed=3)
    b = AttentionModel(CHAIN, 30).optimal_bias(theta) + (0.7 if bias == "dynamic" else 0)
    if bias == "dynamic":
        theta = torch.cat([theta, b[:, None]], dim=-1)
    theta.requires_grad_()
    e, w, a = (c[:, None] for c in theta[:, :3].unbind(-1))
    b = theta[:, 3] if bias == "dynamic" else b
    loss = torch.zeros(len(theta), dtype=torch.float64)
    for x, t in ((0, CHAIN.p), (1, 1 - CHAIN.q)):
        m, weight = (torch.from_numpy(part) for part in laws[x])
        s = x - 0.5 + a * m
        f = e**2 * (s + 4 * w * w.abs() * torch.relu(s)) + b[:, None]
        loss = loss + (weight * (torch.logaddexp(f, torch.zeros_like(f)) - t * f)).sum(-1)
    (expected,) = torch.autograd.grad(loss.sum(), theta)
    torch.testing.assert_close(model.loss(theta.detach()), loss.detach(), rtol=1e-13, atol=0)
    torch.testing.assert_close(model.gradient(theta.detach()), expected, rtol=1e-11, atol=1e-14)


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


def test_rows_do_not_see_their_neighbours_and_any_batch_shape_is_kept():
    model = AttentionModel(CHAIN, 64)
    theta = cloud(300, [2.5, 2.5, 2], seed=5)
    together = model.gradient(theta.reshape(3, 100, 3)).reshape(300, 3)
    alone = torch.stack([model.gradient(row) for row in theta])
    torch.testing.assert_close(together, alone, rtol=1e-12, atol=1e-14)
    assert model.loss(theta[:0]).shape == (0,)
    assert model.loss(theta[0]).shape == ()
    assert conserved_values(model, theta.reshape(3, 100, 3)).shape == (3, 100, 0)


@pytest.mark.parametrize("compress", [True, False])
def test_extreme_arguments_stay_finite(compress):
    sides = [0, 1e-200, 1e-3, 1, 30, 300], [-30, -3, 0, 1e-300, 3], [-1e3, -1, -1e-300, 0, 0.5, 50]
    theta = torch.cartesian_prod(*[tensor(side) for side in sides])
    model = AttentionModel(BinaryChain(0.9, 0.9), 20, compress=compress)
    for value in (model.loss, model.gradient, model.optimal_bias, model.hessian):
        assert value(theta).isfinite().all()
    assert (model.loss(theta) >= model.chain.entropy_rate).all()
    bad = model.loss(tensor([[torch.nan, 1, 1], [1, torch.inf, 1], [1, 1, 1]]))
    assert bad.isfinite().tolist() == [False, False, True]


@pytest.mark.parametrize("length", [*BAD_LENGTHS, 10**7])
def test_bad_lengths(length):
    with pytest.raises(InputError, match="length N"):
        AttentionModel(CHAIN, length)


def test_bad_bias():
    with pytest.raises(InputError, match="bias must be"):
        AttentionModel(CHAIN, 8, bias="none")
