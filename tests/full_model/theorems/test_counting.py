"""Transformers built to count do count, and each departure from the printed equations is needed."""

import itertools
import math

import pytest
import torch
from counting_transformers import constant_depth, log_depth, nearest_contexts

from flowsim.chains import DirichletPrior, in_context, sample_kernels
from full_model import forward

BUILDERS = {"constant-depth": constant_depth, "log-depth": log_depth}


def off(arch, weights, order, seeds):
    """The largest error, at all positions whose context has been seen.

    Sequences are those of kernels with nearly certain rows, whose contexts return often, and of
    Dirichlet(1) rows; and those of a single symbol with at most one other among the first k + 2,
    which tell apart contexts that lie before the sequence.
    """
    g = torch.Generator().manual_seed(0)
    priors = [DirichletPrior(arch.states, order, beta) for beta in (0.05, 1.0)]
    kernels = torch.cat([prior.draw(seeds, g) for prior in priors])
    drawn = sample_kernels(kernels, None, arch.length, g)[0]
    edge = torch.cat([torch.zeros(1, arch.length), torch.eye(order + 2, arch.length)]).long()
    error = 0.0
    for tokens in torch.cat([drawn, edge]).split(1):
        counted = in_context(tokens, order, arch.states)
        seen = ~counted.isnan().any(-1)
        error = max(error, float((forward(arch, weights, tokens) - counted)[seen].abs().max()))
    return error


@pytest.mark.parametrize("construction", BUILDERS)
@pytest.mark.parametrize(
    ("order", "states", "length"), [(1, 2, 30), (1, 4, 30), (2, 3, 60), (3, 2, 60), (5, 2, 80)]
)
def test_built_transformers_count(construction, order, states, length):
    assert off(*BUILDERS[construction](order, states, length), order, 2) < 1e-9


@pytest.mark.parametrize("construction", BUILDERS)
def test_every_short_sequence(construction):
    order, length = 2, 9
    arch, weights = BUILDERS[construction](order, 2, length)
    tokens = torch.tensor(list(itertools.product((0, 1), repeat=length)))
    counted = in_context(tokens, order, 2)
    seen = ~counted.isnan().any(-1)
    assert ((forward(arch, weights, tokens) - counted)[seen]).abs().max() < 1e-12
    assert seen[:, -1].sum() > 400


@pytest.mark.slow
@pytest.mark.parametrize("construction", BUILDERS)
@pytest.mark.parametrize(
    ("order", "states"), [(1, 3), (2, 2), (3, 3), (4, 2), (5, 3), (7, 2), (8, 3)]
)
def test_four_hundred_symbols(construction, states, order):
    bound = 1e-9 if order <= 3 or construction == "log-depth" else 1e-5
    assert off(*BUILDERS[construction](order, states, 400), order, 4) <= bound


@pytest.mark.parametrize("order", [1, 2, 3, 4, 5, 7, 8])
def test_layers_of_attention_alone(order):
    layers = log_depth(order, 2, order + 1)[0].layers
    assert 2 ** (layers - 1) >= order + 1 > 2 ** (layers - 2)
    arch, weights = log_depth(order, 2, order + 1)
    assert not any(weights[f"{i}.down"].any() for i in range(arch.layers))
    assert constant_depth(order, 2, order + 1)[0].layers == 3


def changed(order, change):
    """The error of the three layers after a change of their weights."""
    arch, weights = constant_depth(order, 2, 400)
    change(weights)
    return off(arch, weights, order, 6)


@pytest.mark.slow
def test_scores_scaled_by_kappa_keep_the_farthest_symbol_alone():
    sharpness = 36 / nearest_contexts(2, 2) ** 2

    def scale(weights):
        for layer in range(2):
            relative = weights[f"{layer}.relative"]
            relative[relative > -59] *= sharpness

    assert changed(2, lambda weights: None) < 1e-12
    assert changed(2, scale) > 0.7


@pytest.mark.slow
def test_a_flag_that_grows_with_kappa_would_drown_the_match():
    sharpness = 36 / nearest_contexts(8, 2) ** 2
    flag = float(constant_depth(8, 2, 400)[1]["2.key"][0, 0])
    assert flag < 54.01 and changed(8, lambda weights: None) < 1e-6
    # whether predictions are off depends on how a processor rounds; how far they can be does not
    assert math.ulp(2 * sharpness + flag) < 1e-6 and math.ulp(3**8 * sharpness) > 1e-4


def test_without_the_flag_contexts_before_the_sequence_count():
    assert changed(2, lambda weights: weights["2.key"][0, 0].zero_()) > 0.6


def test_nearest_contexts_by_all_pairs():
    words = torch.tensor(list(itertools.product(range(3), repeat=3)))
    u = (torch.eye(3)[words].double() * 3.0 ** torch.arange(3)[:, None]).sum(1)
    u = u / u.norm(dim=1, keepdim=True)
    apart = (u[:, None] - u).norm(dim=-1) + 9 * torch.eye(27)
    assert nearest_contexts(3, 3) == pytest.approx(float(apart.min()), rel=1e-12)
