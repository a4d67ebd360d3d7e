"""The papers' theorems hold on the full weights, and the check can fail."""

import json

import pytest
import torch

from flowsim.chain import BinaryChain
from full_model import Claim, format_claims, verify
from full_model.theorems import verify as checked

EXTREME = (1e-12, 1e-6, 0.01, 0.7, 1 - 1e-6)


@pytest.mark.parametrize(("p", "q", "d", "length"), [
    (0.5, 0.8, 8, 4), (0.2, 0.3, 8, 4), (0.3, 0.7, 8, 4), (0.5, 0.8, 1, 1), (0.5, 0.8, 2, 9),
    (0.21, 0.34, 8, 4), (0.98, 0.0305, 12, 3),
])  # fmt: skip
def test_every_claim_holds(p, q, d, length):
    """Also where predictions round to 1 (Lemma 1) and an eigenvalue is 3e-4 (Thm. 2)."""
    claims = verify(BinaryChain(p, q), d, length, seeds=range(4))
    assert [c.claim for c in claims if not c.passed] == []
    assert json.loads(json.dumps([c.as_dict() for c in claims]))[0].keys() == {
        "claim", "expected", "found", "error", "passed",
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("p", EXTREME)
def test_chains_near_0_and_1(p):
    """π₀π₁ as small as 1e-12 turns rounding into large numbers, but no claim into a false one."""
    at = EXTREME.index(p)
    for q in (p, EXTREME[at - 2]):
        claims = verify(BinaryChain(p, q), 3, 3, [0, 1])
        assert [claim.claim for claim in claims if not claim.passed] == [], q


def test_definiteness_follows_the_regime():
    def words(p, q):
        return " ".join(str(c.found) for c in verify(BinaryChain(p, q), seeds=[0]))

    assert "positive definite" in words(0.5, 0.8) and "indefinite" in words(0.5, 0.8)
    assert "positive definite" not in words(0.2, 0.3) and "indefinite" in words(0.2, 0.3)


def test_a_wrong_formula_fails(monkeypatch):
    right = checked.expected_block

    def wrong(positions, excess, tied):
        return right(positions, excess, tied) + 1e-6 * torch.eye(1)

    monkeypatch.setattr(checked, "expected_block", wrong)
    claims = verify(BinaryChain(0.5, 0.8), seeds=[0])
    assert sum(not c.passed for c in claims) >= 2


def test_table():
    table = format_claims(
        [Claim("loss", 0.5, 0.25, 0.25, False), Claim("sign", "definite", "definite", 0.0, True)]
    )
    assert table.splitlines() == [
        "claim  expected  found     error",
        "loss   0.5       0.25      2.5e-01  FAILED",
        "sign   definite  definite  0.0e+00  ok",
    ]
