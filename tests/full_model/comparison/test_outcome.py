"""Labels of runs, on a loss whose gradient, curvature and bowl are known in closed form.

L = ½ c (b − b₀)² + (b − b₀) s·e + ½ eᵀVe + r·w with b₀ = log(π₁/π₀): the block at e = 0 is
[[c, sᵀ], [s, V]], and with the bias at its optimum L rises like ½ eᵀSe, S = V − s sᵀ/c.
"""

import math

import pytest
import torch

from flowsim import BinaryChain, Label
from full_model import classify
from full_model.comparison.outcome import EndReason, open_gap, unigram_block

CHAIN = BinaryChain(0.5, 0.8)
C = 0.5 * 0.8 / 1.3**2
CENTRE = math.log(0.5 / 0.8)
S = torch.tensor([0.2, -0.15], dtype=torch.float64)
V = torch.tensor([[0.6, 0.1], [0.1, 0.5]], dtype=torch.float64)
#: Its Schur complement, and the smallest eigenvalue of the block.
SCHUR = V - torch.outer(S, S) / C
BLOCK = torch.cat([torch.tensor([[C, *S.tolist()]], dtype=torch.float64),
                   torch.cat([S[:, None], V], dim=1)])  # fmt: skip
LOWEST = float(torch.linalg.eigvalsh(BLOCK)[0])
E = torch.tensor([0.3, 0.2], dtype=torch.float64)
PULL = float(E @ SCHUR @ E)


def gradient_of(rest=0.0, v=V, factor=lambda length: 1.0):
    """The gradient; that of e is times ``factor`` of its length in units of ``E``."""

    def gradient(weights):
        e, b = weights["embedding"], weights["bias"] - CENTRE
        length = e.norm(dim=-1, keepdim=True) / E.norm()
        times = torch.tensor([[factor(float(x))] for x in length], dtype=torch.float64)
        return {
            "embedding": (e @ v + b.unsqueeze(-1) * S) * times,
            "bias": C * b + e @ S,
            "0.up": torch.full_like(weights["0.up"], rest),
        }

    return gradient


def label(open_share=1.0, e=E, bias=CENTRE, metric=1.0, **shape):
    """The label and the curvature of one run."""
    loss = CHAIN.entropy_rate + open_share * CHAIN.mutual_information
    weights = {"embedding": e[None], "bias": torch.tensor([bias], dtype=torch.float64),
               "0.up": torch.zeros(1, 1, dtype=torch.float64)}  # fmt: skip
    by = {name: torch.full((1,), metric, dtype=torch.float64) for name in weights}
    by["embedding"] = by["embedding"].unsqueeze(-1)
    found = classify(
        CHAIN, torch.tensor([loss], dtype=torch.float64), weights, gradient_of(**shape), by
    )
    assert float(found.open_share) == pytest.approx(open_share, abs=1e-12)
    return Label(int(found.label)), float(found.curvature)


def test_the_block_is_the_hessian():
    weights = {"embedding": E[None], "bias": torch.tensor([0.7], dtype=torch.float64),
               "0.up": torch.zeros(1, 1, dtype=torch.float64)}  # fmt: skip
    found = unigram_block(CHAIN, weights, gradient_of(rest=3.0))
    assert found.shape == (1, 3, 3)
    assert (found[0] - BLOCK).abs().max() < 1e-9
    several = {name: torch.cat([w, 2 * w, w - 1]) for name, w in weights.items()}
    torch.testing.assert_close(
        unigram_block(CHAIN, several, gradient_of(rest=3.0)), found.expand(3, 3, 3)
    )
    lopsided = gradient_of()

    def skew(at):
        return {**lopsided(at), "bias": lopsided(at)["bias"] + 0.1 * at["embedding"][:, 0]}

    (found,) = unigram_block(CHAIN, weights, skew)
    assert torch.equal(found, found.T)
    assert float(found[0, 1]) == pytest.approx(float(S[0]) + 0.05, abs=1e-9)


@pytest.mark.parametrize("share, expected", [
    (-0.1, Label.GLOBAL_MINIMUM), (0.0, Label.GLOBAL_MINIMUM), (0.0099, Label.GLOBAL_MINIMUM),
    (0.0101, Label.UNRESOLVED), (0.49, Label.UNRESOLVED), (0.51, Label.LOCAL_MINIMUM),
    (1.0, Label.LOCAL_MINIMUM), (1.99, Label.LOCAL_MINIMUM), (2.01, Label.UNRESOLVED),
])  # fmt: skip
def test_open_shares_at_which_a_run_has_learned_or_is_looked_at(share, expected):
    found, curvature = label(share)
    assert found == expected
    near = 0.5 < share < 2.0
    assert (curvature == pytest.approx(LOWEST, abs=1e-8)) if near else math.isnan(curvature)


@pytest.mark.parametrize("share, expected", [
    (0.99, Label.LOCAL_MINIMUM), (1.01, Label.UNRESOLVED),
])  # fmt: skip
@pytest.mark.parametrize("metric", [1.0, 4.0])
def test_what_the_other_weights_may_pull(share, expected, metric):
    """At most a quarter of μ eᵀSe, of the squared gradient divided by the metric."""
    rest = share * 0.5 * math.sqrt(LOWEST * PULL * metric)
    assert label(rest=rest, metric=metric)[0] == expected
    assert label(rest=rest, metric=metric, bias=CENTRE + 0.5)[0] == expected


@pytest.mark.parametrize("place", [1 / 3, 2 / 3, 1.0])
@pytest.mark.parametrize("times, expected", [
    (1.49, Label.LOCAL_MINIMUM), (1.51, Label.UNRESOLVED), (0.51, Label.LOCAL_MINIMUM),
    (0.49, Label.UNRESOLVED), (-1.0, Label.UNRESOLVED),
])  # fmt: skip
def test_how_far_from_a_parabola_the_way_may_be(place, times, expected):
    """At a third, at two thirds and at the end, each on its own; between them nobody looks."""
    found, _ = label(factor=lambda length: times if abs(length - place) < 0.01 else 1.0)
    assert found == expected
    assert label(factor=lambda length: 9.0 if abs(length - 0.5) < 0.1 else 1.0)[0] == (
        Label.LOCAL_MINIMUM
    )


@pytest.mark.parametrize("v", [
    torch.diag(torch.tensor([0.4, -0.1], dtype=torch.float64)),
    torch.diag(torch.tensor([0.4, float(S[1] ** 2) / C * 0.9], dtype=torch.float64)),
])  # fmt: skip
def test_no_bowl_is_no_trap(v):
    """A direction that curves downward, by itself or once the bias follows."""
    found, curvature = label(v=v)
    assert found == Label.UNRESOLVED and curvature < 0


def test_at_rest_for_good_is_a_saddle_only_without_a_bowl():
    """The gradient is zero: every weight of a run that is at e = 0."""
    down = torch.diag(torch.tensor([0.4, -0.1], dtype=torch.float64))
    zero = torch.zeros(2, dtype=torch.float64)
    assert label(e=zero, v=down)[0] == Label.SADDLE
    assert label(e=zero, v=V)[0] == Label.LOCAL_MINIMUM
    for rest in (0.9e-14, 1.1e-14):
        assert label(e=zero, v=down, rest=rest)[0] == (
            Label.SADDLE if rest < 1e-14 else Label.UNRESOLVED
        )
    assert label(e=zero, v=down, bias=CENTRE + 1e-3)[0] == Label.UNRESOLVED
    assert label(e=zero, v=V, rest=1e-3)[0] == Label.UNRESOLVED


def test_codes_of_records_never_change():
    assert [reason.name for reason in sorted(EndReason)] == [
        "DECIDED", "CREEPS_ALONG_A_KINK", "STEPS_USED_UP", "HORIZON_REACHED", "NOT_FINITE",
    ]  # fmt: skip
    assert sorted(map(int, EndReason)) == list(range(5))


def test_without_information_nothing_is_left_open():
    chain = BinaryChain(0.3, 0.7)
    assert float(open_gap(chain, chain.entropy_rate + 1e-6)) == pytest.approx(1.0)
    weights = {"embedding": E[None], "bias": torch.zeros(1), "0.up": torch.zeros(1, 1)}
    loss = torch.tensor([chain.entropy_rate + 1e-6], dtype=torch.float64)
    found = classify(chain, loss, weights, lambda _: pytest.fail("looked at"), {})
    assert int(found.label) == Label.UNRESOLVED
