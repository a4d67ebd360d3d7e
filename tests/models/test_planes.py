"""Planes of built-in models: windows, starts of orbits, points they stand for; titles."""

import pytest
import torch

import flowsim
from flowsim.labels import CriticalPoint
from flowsim.models.on_chain import sample_graph
from flowsim.records.model_attributes import model_attributes
from flowsim.spec import BUILT_IN, ModelSpec

#: Of all planes that do not have the usual window.
WINDOWS = {
    "induction": {"alpha": (-6.0, 6.0), "beta": (-4.0, 6.0)},
    "memory": {"alpha": (-2.0, 2.0), "v": (-1.5, 1.5)},
}


@pytest.mark.parametrize("name", BUILT_IN)
def test_orbits_start_inside_a_known_window_no_two_at_one_place(name):
    plane = ModelSpec.first(name).build().plane
    usual = {plane.x: (-3.0, 3.0), plane.y: (-3.0, 3.0)}
    assert plane.window == WINDOWS.get(name, usual)
    starts = plane.defaults.orbits
    assert len(set(starts)) == len(starts) > 8
    assert all(0 < place < 1 for start in starts for place in start)


@pytest.mark.parametrize(
    "name, options",
    [(name, {}) for name in BUILT_IN if name != "rank-one"]  # there the loss has kinks
    + [("states", {"attention": True}), ("canonical", {"bias": "dynamic"})],
    ids=str,
)
def test_signs_are_kept_where_the_field_cannot_leave_zero(name, options):
    model = ModelSpec.first(name, **options).build()
    size = len(model.coordinates)
    theta = torch.linspace(0.4, 0.9, size, dtype=torch.float64).repeat(size, 1)
    still = model.field(theta.fill_diagonal_(0.0)).diagonal() == 0
    assert still.tolist() == list(model.keeps_sign)


def test_what_is_not_held_is_the_best_bias_and_an_unembedding_that_is_the_embedding():
    e, w = torch.tensor([[0.7, -1.2], [0.5, -0.3]], dtype=torch.float64)
    here = {"e": e, "w": w}
    model = flowsim.model("untied", 0.5, 0.8, bias="dynamic")
    theta, held = model.plane.embed(here), {"u": 0.25, "b": 0.1}
    assert torch.equal(theta[:, 1], e) and torch.equal(theta[:, 3], model.optimal_bias(theta))
    given = model.plane.embed({**here, **{name: torch.full_like(e, held[name]) for name in held}})
    assert given[:, [1, 3]].tolist() == [[0.25, 0.1]] * 2
    assert model.plane.mirrored({}) and not model.plane.mirrored(held)
    for fixed in ({"u": 0.25}, {}):
        y = model.plane.minima(w - 2, fixed)
        there = torch.stack([y, torch.full_like(y, fixed["u"]) if fixed else y, w - 2], 1)
        gap = flowsim.model("untied", 0.5, 0.8).logit_gap(there)
        assert gap.tolist() == pytest.approx([model.chain.target_logit_gap] * 2)
    lifted = flowsim.model("rank-one", 0.5, 0.8, length=4)
    with_b = lifted.plane.embed({**here, "b": torch.full_like(e, 0.1)})
    assert with_b[:, -1].tolist() == [0.1] * 2
    assert torch.equal(lifted.plane.embed(here), lifted.from_canonical(torch.stack([e, w], 1)))


@pytest.mark.parametrize("p, q, kinds", [
    (0.5, 0.8, [CriticalPoint.SADDLE, CriticalPoint.LOCAL_MINIMUM]),
    (0.5, 0.5, [CriticalPoint.GLOBAL_MINIMUM] * 2),
    (0.2, 0.3, [CriticalPoint.SADDLE, CriticalPoint.LOCAL_MAXIMUM]),
])  # fmt: skip
def test_the_lifted_line_changes_its_kind_at_one_place_unless_symbols_are_independent(p, q, kinds):
    plane = flowsim.model("rank-one", p, q, length=4).plane
    w = torch.tensor([-0.6, -0.4], dtype=torch.float64)
    assert plane.axis_kinds(w, {}).tolist() == kinds and plane.axis_kinds(w, {"b": 0.0}) is None
    assert plane.saddles(w, {}).tolist() == ([] if p + q == 1 else [-0.5])
    assert not len(plane.saddles(w - 1, {}))


def test_a_line_that_ends_is_followed_to_its_end():
    x, y = sample_graph(lambda x: (x - 0.3).sqrt(), (0.0, 1.0), (-1.0, 1.0), 21)
    assert 0 < x[y.isfinite()].min() - 0.3 < 1e-7 and not y.diff().nan_to_num().abs().gt(0.01).any()


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
