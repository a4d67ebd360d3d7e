"""S of the set e = 0 against automatic differentiation, by hand, and against training."""

import math

import numpy as np
import pytest
import torch
from weights import normal_weights

from flowsim.chain import BinaryChain
from flowsim.chains.hidden import SeenChain, process
from flowsim.flow.orbits import find_limits
from flowsim.labels import Label
from flowsim.models.rank_one.model import RankOneModel
from full_model import (
    Architecture,
    MarkovSource,
    PopulationLoss,
    RankOnePoint,
    forward,
    lift_rank_one,
    trap_matrix,
    unigram_trap,
    with_noise,
)
from full_model.model.sources import HiddenSource

CHAINS = [BinaryChain(0.5, 0.8), BinaryChain(0.2, 0.3), BinaryChain(0.95, 0.9)]
KINDS = [
    {},
    {"attention": "uniform"},
    {"tied": False, "attention": "none"},
    {"heads": 2},
    {"window": 2},
    {"activation": "gelu"},
    {"hidden": 0},
    {"positions": "relative-values", "heads": 2},
    {"positions": "none"},
    {"attention": "ssm", "convolution": 2, "channels": 3},
]


def at_unigram(weights, chain, embedding=None):
    zero = {k: 0 * weights[k] for k in ("embedding", "unembedding") if k in weights}
    bias = torch.full_like(weights["bias"], math.log(chain.p / chain.q))
    point = {**weights, **zero, "bias": bias}
    return point if embedding is None else {**point, "embedding": embedding}


def by_autograd(arch, weights, chain):
    """The enumerated loss's Hessian over (b, e) or (b, u, e), b eliminated, over π₀π₁."""
    hidden = isinstance(chain, SeenChain)
    source = HiddenSource(chain.process) if hidden else MarkovSource.of(chain)
    loss = PopulationLoss(arch, source)
    names = ["embedding"] if arch.tied else ["unembedding", "embedding"]
    point = at_unigram(weights, chain)

    def value(v):
        parts = dict(zip(names, v[1:].split(arch.d), strict=True))
        return loss({**point, "bias": v[0], **parts})

    start = torch.cat([point["bias"].reshape(1), *(point[name] for name in names)])
    hessian = torch.autograd.functional.hessian(value, start)
    pi0, pi1 = chain.stationary
    schur = hessian[1:, 1:] - torch.outer(hessian[1:, 0], hessian[0, 1:]) / hessian[0, 0]
    return schur / (pi0 * pi1)


def descend(arch, weights, chain, steps, rate=0.2):
    """Gradient descent on the exact loss: its weights and loss at the end."""
    loss = PopulationLoss(arch, MarkovSource.of(chain))
    for _ in range(steps):
        _, slope = loss.value_and_gradient(weights)
        weights = {name: w - rate * slope[name] for name, w in weights.items()}
    return weights, loss(weights)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: " ".join(map(str, kind.values())) or "-")
@pytest.mark.parametrize("chain", CHAINS, ids=lambda chain: f"{chain.p} {chain.q}")
def test_it_is_the_hessian(kind, chain):
    sizes = [(1, 1), (2, 6)]
    for seed, (d, length) in enumerate(sizes):
        if d % kind.get("heads", 1):
            continue
        arch = Architecture(d, length, **kind)
        for scale in (0.02, 3.0):
            weights = normal_weights(arch, seed, scale)
            found = trap_matrix(arch, weights, chain)
            error = (found - by_autograd(arch, weights, chain)).abs().max()
            assert error < 1e-10 * max(1.0, float(found.abs().max())), (d, length, scale)


@pytest.mark.parametrize("kind", [KINDS[0], KINDS[-1]], ids=str)
@pytest.mark.parametrize("name", ["flips", "even"])
def test_of_a_hidden_process_it_is_the_hessian(kind, name):
    """Of flips the lags fall by λ; of the even process they do not fall by one ratio."""
    chain, arch = SeenChain.of(process(name)), Architecture(2, 5, **kind)
    weights = normal_weights(arch, 4, 1.0)
    found = trap_matrix(arch, weights, chain)
    expected = by_autograd(arch, weights, chain)
    assert (found - expected).abs().max() < 1e-10 * max(1.0, float(found.abs().max()))


def test_lags_of_flips_fall_by_the_hidden_eigenvalue():
    seen = SeenChain.of(process("flips", p=0.9, q=0.7, epsilon=0.2))
    assert np.abs(seen.lag_ratios(6) - (-0.6) ** np.arange(6)).max() < 1e-14


def test_long_contexts_need_no_sequences():
    """At N = 40 against the derivatives of z_n in every embedded symbol, lag by lag."""
    chain, d, n = CHAINS[1], 2, 40
    arch = Architecture(d, n, tied=False)
    weights = normal_weights(arch, 3, 0.7)

    def vectors(symbols):  # z_n, read with the d unit vectors in place of the unembedding
        moved = {**weights, "embedding": torch.zeros(d, dtype=torch.float64), "bias": zero[0, 0]}
        moved["positions"] = weights["positions"] + symbols
        tokens = torch.zeros(1, n, dtype=torch.uint8)
        rows = [
            forward(arch, {**moved, "unembedding": u}, tokens)[0] for u in torch.eye(d).double()
        ]
        return torch.stack(rows, dim=-1)

    zero = torch.zeros(n, d, dtype=torch.float64)
    rows = torch.autograd.functional.jacobian(vectors, zero)  # (n, d, i, d)
    lam = chain.second_eigenvalue
    lagged = sum(lam ** (m + 1 - i) * rows[m, :, i] for m in range(n) for i in range(m + 1))
    z = vectors(zero)
    expected = torch.cov(z.mT, correction=0) - (lagged + lagged.mT) / n
    tied = {name: w for name, w in weights.items() if name != "unembedding"}
    found = trap_matrix(Architecture(d, n), tied, chain)
    assert (found - expected).abs().max() < 1e-10


def test_units_on_their_kink_are_named():
    arch = Architecture(3, 4, attention="none")
    weights = at_unigram(normal_weights(arch, 7, 0.1), CHAINS[0])
    assert unigram_trap(arch, weights, CHAINS[0]).is_trap
    weights["positions"][2] = 0
    trap = unigram_trap(arch, weights, CHAINS[0])
    assert trap.smallest > 0 and not trap.smooth and not trap.is_trap
    soft = Architecture(3, 4, attention="none", activation="gelu")
    assert unigram_trap(soft, weights, CHAINS[0]).is_trap


@pytest.mark.parametrize("chain", CHAINS, ids=lambda chain: f"{chain.p} {chain.q}")
def test_across_the_rank_one_manifold(chain):
    """S is 2(p + q − 1) in every direction but α's, with attention too: no trap for p + q < 1."""
    arch, g = Architecture(4, 5), torch.Generator().manual_seed(19)
    parts = torch.randn(6, 20, generator=g, dtype=torch.float64)
    rho = torch.randn(20, 5, generator=g, dtype=torch.float64)
    point = RankOnePoint(parts[0], rho, *parts[1:], parts[0])
    values = torch.linalg.eigvalsh(trap_matrix(arch, lift_rank_one(point, arch), chain))
    across = 2 * (chain.switching_factor - 1)
    assert ((values - across).abs() < 1e-12).sum(-1).min() >= 3


def test_a_trap_below_one_from_minus_two():
    """W_1 = I, W_2 = −2I, equal positions: 8 of 8 runs with noise 0.02 end at the unigram."""
    chain, arch = CHAINS[1], Architecture(4, 4, hidden=4)
    weights = at_unigram(normal_weights(arch, 10, 0.0, (8,)), chain)
    weights["positions"] += 0.5
    weights["0.up"] += torch.eye(4).double()
    weights["0.down"] -= 2 * torch.eye(4).double()
    expected = 2 * chain.second_eigenvalue * torch.eye(4).double()
    assert (trap_matrix(arch, weights, chain) - expected).abs().max() < 1e-12
    noise = normal_weights(arch, 11, 0.02, (8,))
    weights, loss = descend(arch, {k: w + noise[k] for k, w in weights.items()}, chain, 240, 0.5)
    assert (loss - chain.stationary_entropy).abs().max() < 1e-9
    assert weights["embedding"].norm(dim=-1).max() < 1e-6
    assert unigram_trap(arch, weights, chain).is_trap.all()


@pytest.mark.slow
@pytest.mark.turns
def test_what_the_rest_moves_while_the_embedding_dies():
    """Descent from a small embedding leaves the other weights where the second order says."""
    chain = CHAINS[0]
    arch = Architecture(2, 3, activation="gelu")
    weights = at_unigram(normal_weights(arch, 15, 0.5), chain, torch.tensor([0.01, -0.02]).double())
    weights["bias"] += 0.01
    near = unigram_trap(arch, weights, chain)
    assert near.at_rest and near.is_trap
    from full_model.theorems.unigram_trap import off_the_set, where_it_ends

    later = where_it_ends(arch, weights, chain, off_the_set(arch, weights, chain))
    end, _ = descend(arch, weights, chain, 1500, 0.05)
    rest = [name for name in weights if name not in ("embedding", "bias")]
    moved = math.sqrt(sum(float((end[k] - weights[k]).square().sum()) for k in rest))
    error = math.sqrt(sum(float((end[k] - later[k]).square().sum()) for k in rest))
    assert error < 0.05 * moved
    for factor in (50, 100, 400):
        far = weights | {"embedding": factor * weights["embedding"]}
        assert not unigram_trap(arch, far, chain).at_rest


@pytest.mark.slow
@pytest.mark.turns
@pytest.mark.parametrize("chain", CHAINS[:2], ids=lambda chain: f"{chain.p} {chain.q}")
def test_descent_obeys_its_sign(chain):
    """From e of 1e-4 runs stay where S > 0; elsewhere the loss falls, e growing."""
    arch = Architecture(2, 4)
    weights = at_unigram(normal_weights(arch, 17, 0.8, (64,)), chain)
    weights["positions"][32:] *= 2
    trap = unigram_trap(arch, weights, chain)
    clear = trap.smallest.abs() > 0.2
    clear &= trap.eigenvalues.abs().amax(-1) < 10  # else steps are too large
    weights = {k: w[clear] for k, w in weights.items()}
    trapped, lowest = trap.is_trap[clear], trap.eigenvectors[clear][..., 0]
    assert trapped.sum() >= 3 and (~trapped).sum() >= 3
    start = normal_weights(arch, 18, 1e-4, (64,))["embedding"][clear]
    start = start + 1e-4 * lowest * (start * lowest).sum(-1, keepdim=True).sign()
    now, cosine = weights | {"embedding": start}, torch.full(trapped.shape, torch.nan).double()
    for _ in range(150):
        now, loss = descend(arch, now, chain, 20, 0.1)
        size = now["embedding"].norm(dim=-1)
        new = (size > 20 * start.norm(dim=-1)) & cosine.isnan()
        cosine = torch.where(new, (now["embedding"] * lowest).sum(-1).abs() / size, cosine)
    assert (loss[trapped] - chain.stationary_entropy).abs().max() < 1e-9
    assert size[trapped].max() < 1e-5 and cosine[trapped].isnan().all()
    assert (loss[~trapped] < chain.stationary_entropy - 1e-10).all()
    grown = ~cosine.isnan()  # where the bias is slow to follow, not along the eigenvector
    assert grown.sum() >= 3 and cosine[grown].median() > 0.95


@pytest.mark.parametrize("attention", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_minima_of_the_manifold_below_one_are_saddles_across_it(attention):
    """S of the lifted ends has the eigenvalue 2(p + q − 1) or less, and noise leads out of them."""
    chain, length = BinaryChain(0.15, 0.55), 3
    model = RankOneModel(chain, length, attention)
    start = np.random.default_rng(2).uniform(-1.5, 1.5, (40, len(model.coordinates)))
    found = find_limits(model, torch.tensor(start))
    trapped = found.label == Label.LOCAL_MINIMUM
    trapped &= (found.theta[:, 0].abs() < 1e-6) & (found.theta.abs() < 3).all(1)
    ends = found.theta[trapped][:3]
    assert len(ends) == 3
    assert "(minima of this model alone" in model.title
    arch = Architecture(2, length, attention="softmax" if attention else "none")
    weights = lift_rank_one(model.point(ends), arch)
    across = torch.linalg.eigvalsh(trap_matrix(arch, weights, chain))[:, 0]
    assert (across < 2 * (chain.p + chain.q - 1) + 1e-6).all()
    noise = [torch.Generator().manual_seed(seed) for seed in range(3)]
    noisy = with_noise(arch, weights, 1e-3, noise)
    _, loss = descend(arch, noisy, chain, 480, 0.5)
    assert (loss < chain.stationary_entropy - 0.5 * chain.mutual_information).all()
