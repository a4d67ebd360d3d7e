"""Transformers built to count do count, and each departure from the printed equations is needed."""

import itertools
import json
import math

import pytest
import torch
from command import assert_refused, run

from flowsim import InputError
from flowsim.chains import DirichletPrior, in_context, sample_kernels
from full_model import constant_depth, forward, log_depth, verify_counting
from full_model.theorems.counting import nearest_contexts

BUILDERS = {"constant-depth": constant_depth, "log-depth": log_depth}


@pytest.mark.parametrize("construction", BUILDERS)
@pytest.mark.parametrize(
    ("order", "states", "length"), [(1, 2, 30), (1, 4, 30), (2, 3, 60), (3, 2, 60), (5, 2, 80)]
)
def test_built_transformers_count(construction, order, states, length):
    claims = verify_counting(construction, order, states, length, range(2))
    assert len(claims) == 2 and all(claim.passed for claim in claims), claims
    assert max(claim.error for claim in claims) < 1e-9


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
    claims = verify_counting(construction, order, states, 400, range(4))
    bound = 1e-9 if order <= 3 or construction == "log-depth" else 1e-5
    assert max(claim.error for claim in claims) <= bound


@pytest.mark.parametrize("order", [1, 2, 3, 4, 5, 7, 8])
def test_layers_of_attention_alone(order):
    layers = log_depth(order, 2, order + 1)[0].layers
    assert 2 ** (layers - 1) >= order + 1 > 2 ** (layers - 2)
    arch, weights = log_depth(order, 2, order + 1)
    assert not any(weights[f"{i}.down"].any() for i in range(arch.layers))
    assert constant_depth(order, 2, order + 1)[0].layers == 3


def off(order, change, length=400):
    """The error of the three layers after a change of their weights."""
    arch, weights = constant_depth(order, 2, length)
    change(weights)
    g = torch.Generator().manual_seed(0)
    kernels = torch.cat([DirichletPrior(2, order, beta).draw(6, g) for beta in (0.05, 1.0)])
    tokens = sample_kernels(kernels, None, length, g)[0]
    edge = torch.cat([torch.zeros(1, length), torch.eye(order + 2, length)]).long()
    tokens = torch.cat([tokens, edge])
    counted = in_context(tokens, order, 2)
    seen = ~counted.isnan().any(-1)
    return float((forward(arch, weights, tokens) - counted)[seen].abs().max())


@pytest.mark.slow
def test_scores_scaled_by_kappa_keep_the_farthest_symbol_alone():
    sharpness = 36 / nearest_contexts(2, 2) ** 2

    def scale(weights):
        for layer in range(2):
            relative = weights[f"{layer}.relative"]
            relative[relative > -59] *= sharpness

    assert off(2, lambda weights: None) < 1e-12
    assert off(2, scale) > 0.7


@pytest.mark.slow
def test_a_flag_that_grows_with_kappa_would_drown_the_match():
    sharpness = 36 / nearest_contexts(8, 2) ** 2
    flag = float(constant_depth(8, 2, 400)[1]["2.key"][0, 0])
    assert flag < 54.01 and off(8, lambda weights: None) < 1e-6
    # whether predictions are off depends on how a processor rounds; how far they can be does not
    assert math.ulp(2 * sharpness + flag) < 1e-6 and math.ulp(3**8 * sharpness) > 1e-4


def test_without_the_flag_contexts_before_the_sequence_count():
    assert off(2, lambda weights: weights["2.key"][0, 0].zero_()) > 0.6


def test_nearest_contexts_by_all_pairs():
    words = torch.tensor(list(itertools.product(range(3), repeat=3)))
    u = (torch.eye(3)[words].double() * 3.0 ** torch.arange(3)[:, None]).sum(1)
    u = u / u.norm(dim=1, keepdim=True)
    apart = (u[:, None] - u).norm(dim=-1) + 9 * torch.eye(27)
    assert nearest_contexts(3, 3) == pytest.approx(float(apart.min()), rel=1e-12)


@pytest.mark.parametrize(
    ("what", "words"),
    [
        (lambda: verify_counting("induction", 1, 2, 9), "construction must be one of"),
        (lambda: verify_counting("log-depth", 1, 2, 9, []), "at least one seed"),
        (lambda: constant_depth(2, 2, 2), "above the order 2, not 2"),
        (lambda: log_depth(0, 2, 5), "order must be"),
        (lambda: constant_depth(1, 1, 5), "states must be"),
        (lambda: constant_depth(10, 3, 50), "all pairs of at most 20000"),
    ],
)
def test_bad_input_is_one_sentence(what, words):
    with pytest.raises(InputError, match=words):
        what()


def test_too_many_contexts_are_refused_before_weights_are_made(monkeypatch):
    monkeypatch.setattr("full_model.theorems.counting.zero_weights", None)
    with pytest.raises(InputError, match="all pairs of at most 20000"):
        constant_depth(3, 1000, 9)


def test_verify_compares_a_construction_with_counting(tmp_path):
    words = ["verify", "--construction", "constant-depth", "--order", "3", "--states", "2",
             "--length", "50", "--seeds", "2"]  # fmt: skip
    done = run(*words, cwd=tmp_path)
    assert done.returncode == 0 and "k = 3, S = 2, N = 50, 3 layers" in done.stdout
    found = json.loads(run(*words, "--json", cwd=tmp_path).stdout)
    assert [claim["passed"] for claim in found] == [True, True]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--order", "2"], "go with --construction"),
        (["--construction", "log-depth"], "needs --order and --states"),
        (["--construction", "log-depth", "--order", "9", "--states", "2"], "above --order 9"),
        (["--construction", "log-depth", "--p", "0.5"], "omit --p"),
        (["--construction", "wide"], "'constant-depth', 'log-depth'"),
        (["--construction", "log-depth", "--order", "2", "--states", "2", "--length", "999999999"],
         "GiB of memory"),
    ],
)  # fmt: skip
def test_options_that_do_not_fit(tmp_path, words, said):
    assert_refused(run("verify", *words, cwd=tmp_path), said)
