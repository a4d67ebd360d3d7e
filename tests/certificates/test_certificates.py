"""Interval bounds hold what they bound; proven ends and passes are those that are known."""

import numpy as np
import pytest
import torch

import flowsim
from flowsim.certificates import landscape_in, tubes, wells
from flowsim.certificates.interval import bounds, interval

SIDES = {"x": (-2.0, 2.0), "y": (-2.0, 2.0)}


def double_well(g=0.0):
    return flowsim.from_loss(lambda x, y: (x**2 - 1) ** 2 / 4 + y**2 / 2 + g * x, "well")


def odd(x, y):
    rest = torch.sigmoid(x) + x.cos() - torch.nn.functional.softplus(y) + (1 - x).square().log1p()
    rest = rest + torch.tensor(0.3) * torch.stack([x * y, y]).sum(0) - x.abs().sqrt()
    return torch.exp(-x) * torch.sin(y) / 2 + torch.tanh(x * y) + 3 / (2 + y**2) + rest


@pytest.mark.parametrize("radius", [0.0, 0.2])
def test_bounds_hold_the_loss_and_its_derivatives(radius):
    models = [
        flowsim.from_loss(odd, "odd", metric=(2.0, 1.0)),
        flowsim.model("canonical", 0.5, 0.8, bias="dynamic"),
    ]
    for model in models:
        draws, root = np.random.default_rng(0), np.sqrt(np.array(model.metric))
        middle = draws.uniform(-2, 2, (100, len(root)))
        places = torch.from_numpy(middle + radius * draws.uniform(-1, 1, middle.shape))
        true = (
            model.loss(places).detach().numpy(),
            model.gradient(places).numpy() / root,
            model.hessian(places).detach().numpy() / root[:, None] / root,
        )
        found = bounds(model, middle - radius, middle + radius)
        for held, number in zip(found, true, strict=True):
            off = 1e-13 * (1 + abs(number))  # of the numbers compared with, not of the bounds
            assert ((held.lo - off <= number) & (number <= held.hi + off)).all()


def test_all_critical_points_of_a_tilted_double_well_are_proven_and_its_passes_bounded(monkeypatch):
    monkeypatch.setattr(wells, "SIDE", 96)
    model = double_well(0.1)
    found = landscape_in(model, SIDES)
    assert (found.critical, found.open) == ({"minimum": 2, "saddle": 1, "maximum": 0}, 0)
    x = max(np.roots([1, 0, -1, 0.1]), key=lambda r: -abs(r))  # the saddle is the middle root
    lowest = float(model.loss([x.real, 0.0]))
    for well in found.wells:
        assert lowest - 0.01 < well.level < lowest
    places = interval(np.array([[-1.0, 0.1], [np.nan, 0.0], [np.inf, 0.0]]))
    number = found.well_below(places, np.array([-0.1, -9.0, -9.0])).tolist()
    assert number == [int(found.wells[1].minimum[0] < 0), -1, -1]


@pytest.mark.slow
@pytest.mark.turns
def test_a_portrait_records_which_ends_are_proven(monkeypatch):
    monkeypatch.setattr(wells, "SIDE", 48)
    plain, record = (
        flowsim.portrait(
            double_well(), window=SIDES, resolution=4, confirm=0, boundary=False, certify=certify
        )
        for certify in (False, True)
    )
    assert (record.label == plain.label).all()
    assert abs(record.limit_x - plain.limit_x).max() < 1e-9
    assert (record.evaluations < plain.evaluations / 2).all()  # it stops below the pass
    assert record.certified.to_numpy().all()
    assert (record.rule == flowsim.Rule.BELOW_PASS).all()
    assert flowsim.summarize(record)["proven_saddle"] == 1
    texts = [text.get_text() for text in flowsim.draw(record).legends[0].get_texts()]
    assert "end proven (100 %)" in texts


@pytest.mark.parametrize(("p", "q"), [(0.2, 0.3), (0.5, 0.8)])
def test_what_a_theorem_decides_is_what_the_closed_form_and_the_flow_find(p, q):
    draws = torch.from_numpy(np.random.default_rng(0).normal(0, 2, (1000, 3)))
    best, other = flowsim.Label.GLOBAL_MINIMUM, flowsim.Label.LOCAL_MINIMUM
    model = flowsim.model("canonical", p, q)
    known, reached = model.decided(draws[:, :2]), model.basin(draws[:, :2])
    held = known != flowsim.Label.UNRESOLVED
    assert torch.equal(held, draws[:, 1] >= 0)
    assert torch.equal(known[held], torch.where(reached, best, other)[held].to(torch.int8))
    beside = torch.tensor([[0.0, 0.5], [0.5, 0.0], [1.0, -0.5]], dtype=torch.float64)
    assert (model.decided(beside) == flowsim.Label.UNRESOLVED).tolist() == [True, False, True]
    moving = flowsim.model("canonical", p, q, bias="dynamic")
    few = draws[held][:2]
    assert torch.equal(flowsim.find_limits(moving, few).label, moving.decided(few))


def test_a_tube_holds_the_orbit_that_is_known():
    saddle = flowsim.from_loss(lambda x, y: x**2 - y**2 / 2, "saddle", metric=(2.0, 0.5))
    times = np.linspace(0, 1, 30)[:, None]
    start = torch.tensor([[1.0, 0.2]], dtype=torch.float64)
    tube = tubes.Tube(saddle, times, start, 5.0)
    known = np.stack([np.exp(-times), 0.2 * np.exp(2 * times)], -1)
    away = np.linalg.norm((tube.path - known) * np.sqrt([2.0, 0.5]), axis=-1)
    assert tube.good.all()
    assert (away <= tube.radius).all()
    assert 0 < tube.radius.max() < 0.01
    inside = (tube.box.lo[:, 0] <= known[:-1, 0]) & (known[1:, 0] <= tube.box.hi[:, 0])
    assert inside[:, 1].all()


@pytest.mark.slow
@pytest.mark.turns
def test_ends_of_nine_of_ten_cells_of_the_canonical_model_with_a_dynamic_bias_are_proven():
    model = flowsim.model("canonical", 0.2, 0.3, bias="dynamic")
    record = flowsim.portrait(
        model, window={"w": (-3.0, 3.0), "e": (0.0, 3.0)}, resolution=4, confirm=0,
        boundary=False, certify=True,
    )  # fmt: skip
    assert record.attrs["certified_share"] >= 0.9


@pytest.mark.slow
@pytest.mark.turns
def test_ends_of_nine_of_ten_of_himmelblaus_cells_are_proven():
    model = flowsim.from_loss(lambda x, y: (x**2 + y - 11) ** 2 + (x + y**2 - 7) ** 2, "himmelblau")
    record = flowsim.portrait(
        model, window={"x": (-5.0, 5.0), "y": (-5.0, 5.0)}, resolution=20, confirm=0,
        boundary=False, certify=True,
    )  # fmt: skip
    kinds = [record.attrs[f"proven_{kind}"] for kind in ("minimum", "saddle", "maximum")]
    assert (kinds, record.attrs["unproven_critical"]) == ([4, 4, 1], 0)
    assert record.attrs["certified_share"] >= 0.9
    levels, passes = np.sort(record.well_level), [13.311926, 13.311926, 67.719150, 104.015163]
    assert (levels < passes).all()
    assert levels == pytest.approx(passes, rel=0.05)


@pytest.mark.parametrize(
    ("model", "sentence"),
    [(flowsim.model("canonical", 0.5, 0.8), "no interval bounds of the loss of canonical"),
     (flowsim.from_loss(lambda x, y: torch.relu(x) + y**2, "bent"), "bent: none are known of"),
     (flowsim.from_loss(lambda x, y: torch.erf(x) + y**2, "erf"), "loss of erf: none are known")],
)  # fmt: skip
def test_a_loss_without_bounds_is_answered_in_one_sentence(model, sentence):
    with pytest.raises(flowsim.InputError, match=sentence):
        bounds(model, np.zeros((1, 2)), np.ones((1, 2)))
