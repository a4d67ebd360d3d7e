"""The reduced model of a network and a start: what is found, how exactly, and what is refused."""

import math
import pickle

import cloudpickle
import numpy as np
import pytest
import torch
from networks import NETWORKS, deep, induction_head, normal, number, population, two_layers
from torch import nn

import flowsim
from flowsim import BinaryChain, InputError, MarkovChain
from flowsim.chains import DirichletPrior
from flowsim.models.rank_one.model import RankOneModel
from flowsim.reduction.structure import symmetries
from full_model import (
    Architecture,
    MarkovSource,
    PriorSource,
    RankOnePoint,
    lift_rank_one,
    lift_states,
)

CHAIN = BinaryChain(0.5, 0.8)


def lifted(arch, alpha, **other):
    point = {"eps": 0.7, "w1": 0.6, "w2": -0.5, "o": 0.0, "v": 0.0, "b": 0.1, "c": 0.7}
    if arch.attention != "none":
        point |= {"o": 0.3, "v": 0.2}
    point |= other
    rho = point.pop("rho", [-0.35, -0.3, -0.2, -0.4][: arch.length])
    point = RankOnePoint(rho=number(rho), **{n: number(x) for n, x in point.items()})
    return lift_rank_one(point, arch, alpha=alpha)


ALPHA = number([0.5, -0.5, 0.5, 0.5])


@pytest.mark.parametrize(
    ("tied", "attention"),
    [(False, "none"), pytest.param(True, "softmax", marks=pytest.mark.slow)],
)
def test_the_rank_one_manifold_is_found(tied, attention):
    arch = Architecture(d=4, length=4, tied=tied, attention=attention)
    c = {} if tied else {"c": 0.4}
    model = flowsim.reduce(population(arch, MarkovSource.of(CHAIN)), lifted(arch, ALPHA, **c))
    known = ["embedding", *(f"positions_{n}" for n in range(1, 5))]
    known += ["value", "out"] if attention == "softmax" else []
    known += ["up", "down"] + ([] if tied else ["unembedding"]) + ["bias"]
    assert list(model.coordinates) == known
    assert model.exactness.off_span < 1e-10 and model.exactness.differ < 1e-11
    point = {"embedding": 0.7, "value": 0.2, "out": 0.3, "up": 1.2, "down": -1.0, "bias": 0.1}
    point |= {"unembedding": 0.4}
    point |= {f"positions_{n}": x for n, x in enumerate([-0.35, -0.3, -0.2, -0.4], 1)}
    np.testing.assert_allclose(model.start, [point[name] for name in known], atol=1e-12)
    theirs = RankOneModel(CHAIN, 4, attention=attention == "softmax", tied=tied)
    if attention == "softmax":  # the same function of the known coordinates, up to scale
        ours = {"e": "embedding", "w1": "up", "w2": "down", "o": "out", "v": "value", "b": "bias"}
        ours |= {"c": "unembedding"} | {f"rho{n}": f"positions_{n}" for n in range(1, 5)}
        column = [known.index(ours[name]) for name in theirs.coordinates]
        theta, moved = normal(5, len(known)), torch.empty(5, len(known), dtype=torch.float64)
        moved[:, column] = theta * number([2.0 if name in ("w1", "w2") else 1.0
                                           for name in theirs.coordinates])  # fmt: skip
        np.testing.assert_allclose(model.loss(moved), theirs.loss(theta), rtol=1e-12)


def test_states():
    states = 3
    arch = Architecture(
        d=4, length=3, hidden=2 * states, states=states, output="states", attention="none"
    )
    chain = MarkovChain.symmetric(states, 0.7)
    model = flowsim.reduce(
        population(arch, MarkovSource.of(chain)), lift_states(number([0.8, -0.5]), arch)
    )
    assert model.coordinates == ("embedding", "up_minus_down")
    known, (e, w) = flowsim.model("states", 0.7, states=states, hidden_per_state=2), (0.6, -0.4)
    theirs = known.loss(number([e, w]))
    ours = model.loss(number([e * math.sqrt(states), -w * math.sqrt(4 * states)]))
    np.testing.assert_allclose(ours, theirs, rtol=1e-10)


@pytest.mark.slow
def test_rounding_adds_no_coordinates_to_an_induction_head():
    arch = Architecture(4, 5, 2, hidden=0, states=2, output="states", tied=False,
                        positions="relative")  # fmt: skip
    loss = population(arch, PriorSource(DirichletPrior(2)))
    model = flowsim.reduce(loss, induction_head(arch))
    # three a matrix, all of rank one; what is added to scores but for a constant, in each layer
    assert len(model.coordinates) == 24 + (4 + 4)
    assert model.exactness.off_span < 1e-11 and model.exactness.differ < 1e-11
    ratios = [ratio for *_, ratio in model.exactness.sizes]
    assert all(ratio > 1e9 or ratio < 30 for ratio in ratios) and ratios[-1] < 30


def test_equal_units_are_one():
    x, y = normal(20, 2), normal(20, seed=1)
    row = number([0.5, -0.3])
    start = {"first": row.repeat(6, 1), "second": torch.full((6,), 0.4, dtype=torch.float64)}
    model = flowsim.reduce(two_layers(x, y), start)
    assert model.coordinates == ("first_1", "first_2", "second")


def test_a_deep_linear_network_that_is_aligned_has_one_coordinate():
    target = normal(5, 5, seed=5)
    u, _, v = torch.linalg.svd(target)
    inner = torch.outer(v[0], v[0])
    start = {"a": 0.2 * inner, "b": 0.2 * inner, "c": 0.2 * torch.outer(u[:, 0], v[0])}
    model = flowsim.reduce(deep(target), start)
    assert len(model.coordinates) == 1 and model.exactness.off_span < 1e-12
    kept = symmetries(model)
    assert (kept.flips, kept.swaps) == ((), ())


def test_a_random_start_says_why_not():
    target = normal(5, 5, seed=5)
    start = {name: 0.2 * normal(5, 5, seed=i) for i, name in enumerate("abc")}
    with pytest.raises(InputError, match=r"more than 20 of 75 dimensions; .* at 1, .* at \d+"):
        flowsim.reduce(deep(target), start, most=20)


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(2, 6, bias=False), nn.Linear(6, 1, bias=False)
        with torch.no_grad():
            self.first.weight.copy_(number([0.5, -0.3]).repeat(6, 1))
            self.second.weight.fill_(0.4)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))[..., 0]


def test_a_module_and_its_closure():
    x, y, net = normal(20, 2), normal(20, seed=1), Small()

    def loss():
        return ((net(x) - y) ** 2).mean()

    model = flowsim.reduce(loss, net, name="small")
    of_module = flowsim.reduce(lambda m: ((m(x) - y) ** 2).mean(), net, steps=1)
    assert of_module.coordinates == model.coordinates
    assert model.coordinates == ("first_weight_1", "first_weight_2", "second_weight")
    assert net.first.weight.dtype == torch.float32
    again = pickle.loads(cloudpickle.dumps(model))
    theta = normal(3, 3)
    assert torch.equal(again.loss(theta), model.loss(theta))
    net.first.weight.requires_grad_(False)
    assert flowsim.reduce(loss, net).coordinates == ("second_weight",)


def refused():
    x, y = normal(20, 2), normal(20, seed=1)
    generator = torch.Generator().manual_seed(0)
    ones = torch.ones(4, dtype=torch.float64)
    zero = {"first": torch.zeros(6, 2), "second": torch.ones(6)}
    at_zero = {"first": number([[1.0, 0.0]]), "second": number([1.0])}
    yield "kinks of the loss.* in second|kinks of the loss.* in first", two_layers(x, y), zero
    yield "start lies on kinks.* first", two_layers(number([[0.0, 1.0], [1.0, 0]]), 1.0), at_zero
    yield (
        "the loss is random",
        lambda w: (w * torch.rand(4, generator=generator)).sum() ** 2,
        ones,
    )
    yield "gradient of a is not finite", lambda w: (w["a"] - 1).sqrt().sum(), {"a": ones}
    yield "loss is not finite", lambda w: (w - 2).log().sum(), ones
    yield r"one number .* \(4,\)", lambda w: w, ones
    yield "written in torch", lambda w: torch.tensor(float(w.detach().sum())), ones
    yield "weights must be a tensor", lambda w: w, [1.0]
    yield "no weights", lambda w: w, {}
    yield "not all finite", lambda w: w.sum(), ones / 0
    yield "not finite at", lambda w: (w @ w - 2).sqrt() - w[0], ones


def inner(weights):
    return (weights["a"] @ weights["b"] - 1) ** 2


def three(weights):
    return ((weights["c"] @ weights["b"] @ weights["a"] - torch.eye(3)) ** 2).sum()


def bowl_beside(weights):
    """The start is the bottom of x, and nothing else moves."""
    return (weights["x"] - 2) ** 2 + (weights["y"] ** 2).sum() * weights["x"]


@pytest.mark.parametrize("loss, start", [
    (inner, {"a": torch.zeros(4), "b": torch.zeros(4)}),
    (three, {name: torch.zeros(3, 3) for name in "abc"}),
    (bowl_beside, {"x": number(2.0), "y": torch.zeros(3)}),
    (lambda w: (w.detach() ** 2).sum() + 0 * w.sum(), torch.ones(3)),
])  # fmt: skip
def test_a_critical_start_has_no_coordinates(loss, start):
    with pytest.raises(InputError, match="start is a critical point of the loss"):
        flowsim.reduce(loss, start)


def test_what_switches_on_far_along_the_flow_is_found():
    def loss(w):
        late = torch.relu(w["a"] - 19.5) ** 3 * (w["c"] - 1) ** 2
        return (w["a"] * w["b"] - 400) ** 2 / 2000 + late

    model = flowsim.reduce(loss, {"a": number(0.05), "b": number(0.5), "c": number(0.0)})
    assert model.coordinates == ("a", "b", "c") and model.exactness.differ < 1e-9


@pytest.mark.parametrize("broken", [1e-9, 1e-12, 1e-15])
def test_a_symmetry_broken_near_rounding_is_seen_or_refused(broken):
    """Equal units have three coordinates, two kinds of units six; mixtures have none."""
    x, y = normal(20, 2), normal(20, seed=1)
    start = {"first": number([0.5, -0.3]).repeat(6, 1), "second": torch.full((6,), 0.4).double()}
    start["first"] += broken * normal(6, 2) * (torch.arange(6) == 0)[:, None]

    def loss(w):
        return ((torch.tanh(x @ w["first"].T) @ w["second"] - y) ** 2).mean()

    try:
        model = flowsim.reduce(loss, start)
    except InputError as error:
        assert "rounding" in str(error) or "no exact model" in str(error)
        assert 1e-14 < broken < 1e-10
    else:
        assert len(model.coordinates) == (6 if broken > 1e-13 else 3)
        assert model.exactness.differ < 1e-9 and model.exactness.off_span < 1e-9


@pytest.mark.parametrize("loss, start, names", [
    (inner, {"a": torch.full((3,), 0.3), "b": torch.full((3,), 0.1), "unused": torch.ones(4)},
     ("a", "b")),
    (lambda w: (w["a"] @ w["b"] - w["c"].detach().sum()) ** 2,
     {"a": torch.full((3,), 0.3), "b": torch.full((3,), 0.1), "c": torch.ones(2)}, ("a", "b")),
    (lambda w: (w[:2].sum() - 1) ** 2, number([0.1, 0.2, 5.0, -7.0]), ("weights",)),
])  # fmt: skip
def test_weights_that_never_move_are_no_coordinates(loss, start, names):
    model = flowsim.reduce(loss, start)
    assert model.coordinates == names
    there, theta = model.weights(model.start), model.start + 0.3
    given = start if isinstance(start, dict) else {"weights": start}
    for name, weights in given.items():
        np.testing.assert_allclose(there[name], weights.double(), atol=1e-14)
    moved = model.weights(theta)
    own = moved if isinstance(start, dict) else moved["weights"]
    assert float(model.loss(theta)) == pytest.approx(float(loss(own)), rel=1e-12)
    back, off = model.project(moved)
    assert torch.allclose(back, theta, atol=1e-12) and off < 1e-12
    np.testing.assert_allclose(  # what is conserved is looked for among what moves
        model.gradient(theta), model.network.gradients(model.embed(theta)[None])[0] @ model.basis
    )


@pytest.mark.parametrize("why, loss, start", list(refused()))
def test_it_says_why_not(why, loss, start):
    with pytest.raises(InputError, match=why) as error:
        flowsim.reduce(loss, start)
    assert "\n" not in str(error.value)


def found():
    """(ab)² wells with two weights each: a model of a plane with two minima."""

    def wells(weights):
        a, b = weights["a"].sum(), weights["b"].square().sum()
        return (a**2 - 1) ** 2 / 4 + b / 2 + 0.1 * a

    start = {"a": torch.full((3,), 0.2), "b": torch.full((2,), 0.4)}
    return flowsim.reduce(wells, start)


@pytest.mark.slow
@pytest.mark.turns
def test_it_goes_wherever_a_model_of_a_user_goes(tmp_path):
    model = pickle.loads(cloudpickle.dumps(found()))
    assert model.coordinates == ("a", "b")
    starts = flowsim.Grid({"a": np.linspace(-1, 1, 4), "b": np.linspace(0.5, 1, 2)})
    scan = flowsim.scan.Scan(model, starts, chunk=4, confirm=0)
    flowsim.scan.write_scan(scan, tmp_path / "found.nc")
    record = flowsim.read_record(tmp_path / "found.nc")
    assert len(np.unique(record.label)) == 2
    assert record.attrs["reduced_weights"] == 5 and record.attrs["reduced_off_span"] < 1e-12
    weights = model.weights(model.start)
    assert torch.allclose(weights["a"], torch.full((3,), 0.2).double())
    theta, off = model.project(weights)
    assert torch.allclose(theta, model.start) and off < 1e-12


def test_all_columns_of_the_curvature_come_from_one_gradient():
    losses, start = NETWORKS["linear attention, first axis"]()
    model = flowsim.reduce(losses[0], start, steps=1)
    theta = normal(5, len(model.coordinates), seed=3)
    one_by_one = flowsim.Model.hessian(model, theta)
    np.testing.assert_allclose(model.hessian(theta), one_by_one, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(model.hessian(theta[0]), one_by_one[0], rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(model.jacobian(theta), -one_by_one, rtol=1e-12, atol=1e-13)
    line = flowsim.reduce(lambda w: w["a"].sum(), {"a": torch.ones(3)}, steps=1)
    assert not line.hessian(theta[:, :1]).any()
