"""The sum over all prefixes against all sequences by automatic differentiation."""

import pytest
import torch

from flowsim import BinaryChain, MarkovChain
from full_model import Architecture, MarkovSource, PopulationLoss, PrefixTreeLoss, initial_weights

F64 = torch.float64
CHAIN = BinaryChain(0.5, 0.8)
CHAINS = [CHAIN, BinaryChain(0.2, 0.3), BinaryChain(0.95, 0.1)]


def gaussian(arch, std, members=3):
    return initial_weights(arch, "gaussian", range(members), std=std, noise=std)


def assert_same(arch, source, weights, tolerance=1e-12):
    loss, gradient = PopulationLoss(arch, source).value_and_gradient(weights)
    tree = PrefixTreeLoss(arch, source)
    found, by_name = tree.value_and_gradient(weights)
    assert found.isfinite().all() and found.shape == loss.shape
    torch.testing.assert_close(found, loss, rtol=tolerance, atol=1e-14)
    torch.testing.assert_close(tree(weights), loss, rtol=tolerance, atol=1e-14)
    largest = max(float(g.abs().max()) for g in gradient.values())
    assert list(by_name) == list(arch.shapes)
    for name, g in gradient.items():
        assert by_name[name].shape == g.shape
        assert (by_name[name] - g).abs().max() <= tolerance * max(largest, 1e-3), name


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize(
    ("states", "length", "d", "hidden", "std"),
    [(0, 1, 2, None, 1.0), (0, 5, 5, 3, 0.7), (0, 6, 2, None, 3.0), (2, 6, 3, 5, 0.8),
     (3, 4, 6, None, 0.6)],
)  # fmt: skip
def test_value_and_gradient_are_those_of_all_sequences(states, length, d, hidden, std, tied):
    """Of binary chains, or of chains on some states without symmetry; one for each model."""
    chains, output = CHAINS, {"states": states, "output": "states"} if states else {}
    if states:
        generator = torch.Generator().manual_seed(states)
        kernels = torch.rand(3, states, states, dtype=F64, generator=generator) + 0.05
        chains = [MarkovChain(k / k.sum(-1, keepdims=True)) for k in kernels.numpy()]
    arch = Architecture(d, length, hidden=hidden, tied=tied, **output)
    assert_same(arch, MarkovSource.of(chains), gaussian(arch, std))


@pytest.mark.parametrize("options", [{}, {"states": 3, "output": "states"}], ids=["two", "three"])
@pytest.mark.parametrize("sharpness", [10.0, 1e4])
def test_scores_beyond_the_range_of_exponentials(sharpness, options):
    """Differences of scores up to 1e7: what attends to what is decided, and nothing overflows."""
    arch = Architecture(3, 6, **options)
    weights = gaussian(arch, 0.7)
    weights["0.query"] = weights["0.query"] * sharpness
    weights["0.key"] = weights["0.key"] * sharpness
    x = weights["positions"][0] + weights["embedding"][0].reshape(-1, 3)[-1]
    scores = (x @ weights["0.query"][0].mT) @ (x @ weights["0.key"][0].mT).mT
    assert float(scores.max() - scores.min()) > sharpness
    # the scores themselves are known to 1e-16 of their size only
    chain = MarkovChain.symmetric(3, 0.8) if options else CHAIN
    assert_same(arch, MarkovSource.of(chain), weights, tolerance=1e-13 * (10 + sharpness**2 / 10))


@pytest.mark.parametrize("bias", [-40.0, 2000.0])
def test_saturated_logits(bias):
    for arch in (Architecture(2, 4), Architecture(2, 4, output="states")):
        weights = gaussian(arch, 0.5)
        weights["bias"].reshape(3, -1)[:, -1] += bias
        assert_same(arch, MarkovSource.of(CHAIN), weights)


def test_a_model_does_not_depend_on_its_neighbours():
    arch = Architecture(4, 5)
    weights = gaussian(arch, 0.8, members=7)
    tree = PrefixTreeLoss(arch, MarkovSource.of(CHAINS[:1] * 5 + CHAINS[1:]))
    loss, gradient = tree.value_and_gradient(weights)
    for rows in ([3], [6, 0], [5, 2, 1]):
        part = {name: w[rows] for name, w in weights.items()}
        found, by_name = tree.select(torch.tensor(rows)).value_and_gradient(part)
        assert torch.equal(found, loss[rows])
        assert all(torch.equal(by_name[name], g[rows]) for name, g in gradient.items())
    weights["0.up"][2] = torch.nan
    spoilt, _ = tree.value_and_gradient(weights)
    assert spoilt[2].isnan() and torch.equal(spoilt[[0, 1, 3]], loss[[0, 1, 3]])
