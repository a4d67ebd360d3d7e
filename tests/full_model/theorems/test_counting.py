"""Transformers built to count do count, and each departure from the printed equations is needed."""

import itertools

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
@pytest.mark.parametrize(("order", "states", "length"), [(1, 4, 30), (3, 2, 60)])
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


def changed(order, change):
    """The error of the three layers after a change of their weights."""
    arch, weights = constant_depth(order, 2, 400)
    change(weights)
    return off(arch, weights, order, 6)


def test_without_the_flag_contexts_before_the_sequence_count():
    assert changed(2, lambda weights: weights["2.key"][0, 0].zero_()) > 0.6


def test_nearest_contexts_by_all_pairs():
    words = torch.tensor(list(itertools.product(range(3), repeat=3)))
    u = (torch.eye(3)[words].double() * 3.0 ** torch.arange(3)[:, None]).sum(1)
    u = u / u.norm(dim=1, keepdim=True)
    apart = (u[:, None] - u).norm(dim=-1) + 9 * torch.eye(27)
    assert nearest_contexts(3, 3) == pytest.approx(float(apart.min()), rel=1e-12)
