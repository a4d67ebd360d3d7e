"""Models that read one symbol, on hidden processes: losses of whole layers, and where they trap."""

import numpy as np
import pytest
import torch

import flowsim
from flowsim import InputError
from flowsim.chains.hidden import HiddenMarkovProcess, SeenChain, process
from flowsim.models import CanonicalModel, RankOneModel, UniformAttentionModel, UntiedModel
from full_model import Architecture, PopulationLoss, lift_canonical, lift_held, unigram_trap
from full_model.model.sources import HiddenSource

#: Three states that emit two symbols, not by one ratio.
ODD = HiddenMarkovProcess.from_emission(
    [[0.1, 0.6, 0.3], [0.5, 0.2, 0.3], [0.2, 0.7, 0.1]], [[0.9, 0.1], [0.3, 0.7], [0.4, 0.6]]
)
SOURCES = [process("flips", p=0.9, q=0.6, epsilon=0.2), process("even"), ODD]


@pytest.mark.parametrize("source", SOURCES, ids=repr)
def test_the_loss_is_that_of_whole_layers_on_all_words(source):
    """Of canonical and rank-one weights, tied and untied, without attention."""
    seen, theta = SeenChain.of(source), torch.tensor([[0.9, -0.7], [0.6, 0.8]]).double()
    arch = Architecture(4, 4, attention="none")
    exact = PopulationLoss(arch, HiddenSource(source))
    weights = lift_canonical(theta, arch)
    weights["bias"] = exact.optimal_bias(weights)
    wanted = CanonicalModel(seen).loss(theta)
    assert (exact(weights) - wanted).abs().max() < 1e-13
    model = RankOneModel(seen, 4)
    lifted = model.from_canonical(theta)
    lifted[:, 1] += 0.2  # positions
    whole = PopulationLoss(Architecture(4, 4), HiddenSource(source))
    held = lift_held(theta, Architecture(4, 4), seen)
    assert (whole(held) - model.loss(model.from_canonical(theta))).abs().max() < 1e-11
    assert model.loss(lifted).isfinite().all()
    best = float(CanonicalModel(seen).end_losses().best)
    assert best == pytest.approx(source.ngram_loss(2), abs=1e-13)


def test_models_say_that_neighbours_are_seen_and_attention_is_refused():
    seen = SeenChain.of(SOURCES[0])
    said = "first-order projection of flips:p=0.9,q=0.6,epsilon=0.2\n"
    assert said in CanonicalModel(seen).title and said in UntiedModel(seen).title
    assert "of a hidden process" in CanonicalModel(SeenChain.of(ODD)).title
    for make in (
        lambda: UniformAttentionModel(seen, 4),
        lambda: RankOneModel(seen, 4, attention=True),
    ):
        with pytest.raises(InputError, match="the past of a hidden process counts"):
            make()


@pytest.mark.parametrize("p, q", [(0.7, 0.35), (0.2, 0.3)])
@pytest.mark.parametrize("epsilon", [0.1, 0.45])
def test_the_trap_is_where_it_was_whatever_the_flips(p, q, epsilon):
    """The regime, every basin, and the sign of S of whole layers, with attention and memory."""
    seen = SeenChain.of(process("flips", p=p, q=q, epsilon=epsilon))
    assert seen.regime == flowsim.BinaryChain(p, q).regime
    draws = np.random.default_rng(0).normal(size=(200, 2))
    theta = torch.from_numpy(draws)
    plain = CanonicalModel(flowsim.BinaryChain(p, q))
    assert bool((CanonicalModel(seen).basin(theta) == plain.basin(theta)).all())
    for kind in ({}, {"attention": "none"}, {"attention": "ssm"}):
        arch = Architecture(2, 5, **kind)
        g = torch.Generator().manual_seed(1)
        weights = {n: 0.02 * torch.randn(s, dtype=torch.float64, generator=g)
                   for n, s in arch.shapes.items()}  # fmt: skip
        values = unigram_trap(arch, weights, seen).eigenvalues
        assert bool((values > 0).all()) == (p + q > 1)
