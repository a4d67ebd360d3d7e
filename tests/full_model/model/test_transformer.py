"""The forward pass against the equations of AM App. A written out with loops."""

import math

import numpy as np
import pytest
import torch
from loops import by_loops, drawn

from full_model import Architecture, cross_entropy, forward

CASES = [
    Architecture(8, 5, tied=False),
    Architecture(4, 6, hidden=3, states=2, output="states"),
    Architecture(6, 6, heads=3, layers=2, states=5, output="states", tied=False),
    Architecture(4, 8, layers=3, layer_norm=True, activation="gelu", window=3),
    Architecture(4, 8, heads=2, positions="relative", window=5, tied=False),
    Architecture(6, 7, heads=2, positions="relative-values", states=3, output="states"),
    Architecture(4, 6, layers=2, layer_norm=True, norm_at="hidden"),
    Architecture(5, 6, attention="uniform", positions="none"),
    Architecture(3, 6, attention="none", activation="gelu"),
    Architecture(4, 7, attention="ssm", decay="positive", channels=7, tied=False),
    Architecture(3, 6, attention="ssm", convolution=3, states=3, output="states", channels=2),
    Architecture(4, 6, 2, attention="ssm", convolution=2, channel_activation="relu",
                 layer_norm=True, hidden=0),
    Architecture(3, 5, 2, attention="selective", states=3, output="states", layer_norm=True),
    Architecture(4, 6, convolution=3, attention="uniform"),
    Architecture(4, 6, attention="selective", convolution=2, gated=True),
]  # fmt: skip


@pytest.mark.parametrize("arch", CASES, ids=str)
def test_forward_is_the_papers_equations(arch):
    tokens = torch.from_numpy(np.random.default_rng(1).integers(0, arch.states, (5, arch.length)))
    weights = drawn(arch)
    expected = by_loops(arch, weights, tokens)
    assert np.abs(forward(arch, weights, tokens).numpy() - expected).max() < 1e-12
    short = forward(arch, weights, tokens[:, :4]).numpy()
    assert np.abs(short - expected[:, :4]).max() < 1e-12


@pytest.mark.parametrize("arch", CASES, ids=str)
def test_an_ensemble_is_its_members(arch):
    weights = drawn(arch, ensemble=(3,))
    rng = np.random.default_rng(2)
    tokens = torch.from_numpy(rng.integers(0, arch.states, (3, 4, arch.length)))
    together, shared = forward(arch, weights, tokens), forward(arch, weights, tokens[0])
    mapped = torch.func.vmap(lambda w, x: forward(arch, w, x))(weights, tokens)
    for i in range(3):
        alone = {name: w[i] for name, w in weights.items()}
        assert (together[i] - forward(arch, alone, tokens[i])).abs().max() < 1e-12
        assert (shared[i] - forward(arch, alone, tokens[0])).abs().max() < 1e-12
        assert (mapped[i] - together[i]).abs().max() < 1e-12


def test_two_state_logits_are_the_binary_model():
    """k = 2 logits with e_0 = 0, b_0 = 0 and the reader's row 0 zero are the binary logit."""
    binary = Architecture(4, 5, tied=False)
    states = Architecture(4, 5, tied=False, output="states")
    w = drawn(binary)
    v = dict(w)
    for name in ("embedding", "unembedding", "bias"):
        v[name] = torch.stack([torch.zeros_like(w[name]), w[name]])
    tokens = torch.randint(0, 2, (6, 5), generator=torch.Generator().manual_seed(0))
    one, two = forward(binary, w, tokens), forward(states, v, tokens)
    assert (two[..., 1] - two[..., 0] - one).abs().max() < 1e-12
    bits = torch.randint(0, 2, (6, 5), generator=torch.Generator().manual_seed(1))
    loss = cross_entropy(binary, one, bits)
    assert (loss - cross_entropy(states, two, bits)).abs().max() < 1e-12
    soft = torch.stack([1 - 0.3 * bits, 0.3 * bits], dim=-1).double()
    soft_loss = cross_entropy(states, two, soft)
    assert (soft_loss - cross_entropy(binary, one, 0.3 * bits)).abs().max() < 1e-12


def test_cross_entropy_keeps_its_digits_at_large_logits():
    arch = Architecture(1, 1)
    logits = torch.tensor([[800.0, 30.0, -30.0, -800.0]], dtype=torch.float64)
    found = cross_entropy(arch, logits, torch.tensor([1.0, 1.0, 0.0, 1.0]))
    small = math.log1p(math.exp(-30))
    assert found[0].tolist() == pytest.approx([0.0, small, small, 800.0], rel=1e-13)
