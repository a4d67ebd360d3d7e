"""What models say of their data, on both sides of the threshold and at it."""

import json

import pytest

import flowsim
from flowsim.models.words import model_captions

#: p, q and what is said of them.
BINARY = [(0.5, 0.8, "p + q = 1.3 > 1"), (0.5, 0.5, "p + q = 1: nothing to learn"),
          (0.2, 0.3, "p + q = 0.5 < 1")]  # fmt: skip


@pytest.mark.parametrize(("p", "q", "regime"), BINARY)
def test_a_binary_chain_is_described(p, q, regime):
    words = flowsim.CanonicalModel(flowsim.BinaryChain(p, q)).captions()
    assert words["text_regime"] == regime
    assert f"$p$ = {p:g}, $q$ = {q:g}" in words["data"] and f"q = {q:g}" in words["text_data"]
    assert ("minima" in words) == (p + q == 1)
    assert ("text_trapped" in words) == (p + q < 1)
    if p + q == 1:
        assert float(words["minima_x"]) == pytest.approx(-(2**-0.5))


@pytest.mark.parametrize(("p", "side"), [(0.8, "above"), (2 / 3, "at"), (0.4, "below")])
def test_a_symmetric_chain_is_described(p, side):
    words = flowsim.model("states", p, states=3, hidden_per_state=4).captions()
    assert words["text_regime"].startswith(f"p is {side} the threshold")
    assert ("check" in words["text_exact"]) == (side != "below")
    assert ("minima" in words) == (side == "at")
    if side == "at":
        assert float(words["minima_x"]) == -0.5


def test_of_several_chains_or_lengths_nothing_is_said_of_one():
    model = flowsim.AttentionModel(flowsim.BinaryChain(0.5, 0.8), 8)

    def said(*varied):
        return json.loads(model_captions(model, varied, {"title": "no", "own": "more"})["captions"])

    assert said()["data"] == model.captions()["data"] and said()["own"] == "more"
    assert said()["title"] == model.captions()["title"]
    assert "data" not in said("q") and "title" in said("q")
    assert not any("= 8" in text for text in said("length").values())
    assert any("several" in text for text in said("length").values())
