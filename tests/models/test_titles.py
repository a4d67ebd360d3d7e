"""What models say of their data, on both sides of the threshold and at it."""

import pytest

import flowsim
from flowsim.records.model_attributes import model_attributes

#: p, q and what is said of them.
BINARY = [(0.5, 0.8, "$p + q$ = 1.3 > 1"), (0.5, 0.5, "$p + q$ = 1"),
          (0.2, 0.3, "$p + q$ = 0.5 < 1")]  # fmt: skip


@pytest.mark.parametrize(("p", "q", "regime"), BINARY)
def test_a_binary_chain_is_described(p, q, regime):
    model = flowsim.models.CanonicalModel(flowsim.BinaryChain(p, q))
    _, first, *remarks = model.title.split("\n")
    assert first == f"Markov chain $p$ = {p:g}, $q$ = {q:g}: {regime}"
    assert bool(remarks) == (p + q < 1)
    lines = [curve for curve in model.plane.curves({"w": (-3, 3), "e": (-3, 3)}, {}, 11)
             if curve.kind == "global minima" and len(set(curve.x.tolist())) == 1]  # fmt: skip
    assert bool(lines) == (p + q == 1)
    assert not lines or float(lines[0].x[0]) == pytest.approx(-(2**-0.5))


@pytest.mark.parametrize(("p", "side"), [(0.8, ">"), (2 / 3, "="), (0.4, "<")])
def test_a_symmetric_chain_is_described(p, side):
    model = flowsim.model("states", p, states=3, hidden_per_state=4)
    assert f"p {side} 2/3" in model.title
    assert ("frees the trapped" in model.title) == (side == "<")
    curves = model.plane.curves({"w": (-3, 3), "e": (-3, 3)}, {}, 11)
    there = [c.kind for c in curves if len(c.x) < 3 and abs(float(c.x[0]) + 0.5) < 1e-9]
    assert ("saddle" in there) == (side != "=") and ("global minima" in there) == (side == "=")


def test_of_several_chains_or_lengths_nothing_is_said_of_one():
    model = flowsim.models.UniformAttentionModel(flowsim.BinaryChain(0.5, 0.8), 8)

    def said(*varied):
        return model_attributes(model, varied)["subtitle"]

    assert "\n".join([model_attributes(model)["title"], said()]) == model.title
    assert "q" not in said("q") and "length = 8" in said("q")
    assert said("length") == "bias = optimal, p = 0.5, q = 0.8"
