"""Portraits of one's own losses and fields: one end, cycles, optimizers, nullclines."""

import numpy as np
import pytest
import torch

import flowsim
from flowsim.curves import curves_of
from flowsim.portraits.optimizers import compare_optimizers
from flowsim.portraits.phase_curves import nullclines

BOWL = flowsim.from_loss(lambda x, y: x**2 + y**2, "bowl")
WELL = flowsim.from_loss(lambda x, y: (x**2 - 1) ** 2 / 4 + y**2 / 2 + 0.2 * x, "well")


@pytest.mark.parametrize("name", ["gd", "adamw"])
def test_an_optimizer_of_a_loss_with_one_end_has_a_figure(name):
    window = {"x": (-1, 1), "y": (-1, 1)}
    steps = flowsim.OptimizerChoice.named(name, steps=50, loss="population")
    record = flowsim.portrait(BOWL, window=window, resolution=4, optimizer=steps)
    assert "boundary_x" not in record
    assert flowsim.draw(record).axes[0].get_xlabel() == "$x$"


@pytest.mark.slow
def test_a_boundary_is_left_out_or_announced():
    without = flowsim.portrait(WELL, resolution=6, confirm=0, boundary=False)
    assert "boundary_x" not in without
    stages = {}

    def stage(what, count):
        stages[what] = [count, 0]

        def advance(more):
            stages[what][1] += more

        return advance

    record = flowsim.portrait(WELL, resolution=6, confirm=0, next_stage=stage)
    assert without.label.equals(record.label)
    count, done = stages["halvings to place the boundary"]
    assert count == done > 0
    top = float(np.roots([1, 0, -1, 0.2])[2])  # the saddle's x: the boundary is the line above it
    np.testing.assert_allclose(record.boundary_x, top, atol=0.01)


@pytest.mark.parametrize("centre, width", [(-3e6, 2.0), (0.0, 1e-6)])
def test_orbits_start_inside_the_window(centre, width):
    model = flowsim.from_loss(
        lambda x, y: ((x - centre) / width) ** 2 + ((y - centre) / width) ** 2, "bowl"
    )
    sides = dict.fromkeys("xy", (centre - width, centre + width))
    record = flowsim.portrait(model, window=sides, resolution=3, confirm=0)
    starts = np.stack([record.orbit_x[0], record.orbit_y[0]], axis=-1)
    assert len(np.unique(starts, axis=0)) == 20
    assert (np.abs(starts - centre) < width).all()


class Hopf(flowsim.Model):
    """r' = r (1 − r²), φ' = 1."""

    coordinates = ("x", "y")

    def loss(self, theta):
        return (theta**2).sum(-1)

    def field(self, theta):
        x, y = theta.unbind(-1)
        left = 1 - x**2 - y**2
        return torch.stack([x * left - y, y * left + x], -1)


@pytest.mark.slow
@pytest.mark.turns
def test_a_limit_cycle_is_drawn_and_its_period_is_in_record_and_figure():
    window = {"x": (-1.5, 1.6), "y": (-1.4, 1.5)}
    record = flowsim.portrait(Hopf(), window=window, resolution=3, confirm=0, boundary=False)
    assert record.period.values == pytest.approx(2 * np.pi, rel=1e-5)
    late = slice(len(record.time) // 2, None)  # the second turn
    radius = np.hypot(record.orbit_x, record.orbit_y)[late]
    assert np.abs(radius - 1).max() < 0.02
    ax = flowsim.draw(record).axes[0]
    assert "periodic, period 6.283" in ax.get_title()


@pytest.mark.slow
def test_large_steps_leave_a_narrow_well_that_the_flow_stays_in():
    """Curvatures are 2 on the left and 60 on the right: steps above 2/60 cannot rest there."""
    wells = flowsim.from_loss(
        lambda x, y: -((-((x + 1) ** 2)).exp()) - 0.5 * (-60 * (x - 1) ** 2).exp() + y**2 / 2,
        "two widths",
    )
    window = {"x": (-1.5, 1.1), "y": (-0.5, 0.5)}
    record = compare_optimizers(wells, window, resolution=6, steps=800)
    share = record["share_elsewhere"]
    assert share.sel(follower="flow") == 0 and share.sel(follower="gd") > 0
    names = record["label"].attrs["flag_meanings"].split()
    at = record["label"].sel(y=record.y[2])
    left = {who: names[at.sel(follower=who)[0].item()] for who in ("flow", "gd", "adam", "sign")}
    assert len(set(left.values())) == 1
    summary = flowsim.summarize(record)
    assert summary["cells"] == 36 and 0 < summary["cells_all_agree"] < 36
    assert np.isclose(summary["elsewhere_than_flow"]["gd"], float(share.sel(follower="gd")))
    assert len(flowsim.draw(record).axes) >= 8


def test_starts_still_on_their_way_do_not_end_alike():
    record = compare_optimizers(BOWL, {"x": (-1, 1), "y": (-1, 1)}, resolution=2, steps=3)
    assert (record["label"].sel(follower="adam") == 0).all()
    assert flowsim.summarize(record)["cells_all_agree"] == 0
    titles = [panel.get_title() for panel in flowsim.draw(record).axes]
    assert any("Adam" in title and "100 % undecided" in title for title in titles)


def test_a_field_along_which_the_loss_rises_is_refused():
    class Turning(flowsim.Model):
        coordinates = ("x", "y")

        def loss(self, theta):
            return theta[..., 0] + 0 * theta[..., 1]

        def field(self, theta):
            return theta.flip(-1) * theta.new_tensor([1.0, -1.0])

    with pytest.raises(flowsim.InputError, match="rises along its field, in 2 of 4 cells"):
        compare_optimizers(Turning(), {"x": (-1, 1), "y": (-1, 1)}, resolution=2)


SIDES = {"x": (-2.0, 2.0), "y": (-2.0, 2.0)}


class Nagumo(flowsim.Model):
    """FitzHugh and Nagumo's field: x′ = x − x³/3 − y + s, y′ = (x − y)/3."""

    coordinates = ("x", "y")

    def __init__(self, s: float = 0.0):
        self.s = s

    def field(self, theta):
        x, y = theta.unbind(-1)
        return torch.stack([x - x**3 / 3 - y + self.s, (x - y) / 3], -1)

    def loss(self, theta):
        return 0 * theta[..., 0]


def test_nullclines_are_the_zeros_of_either_component():
    found = nullclines(Nagumo().plane, SIDES, {})
    by_kind = {"nullcline, flow vertical": [], "nullcline, flow horizontal": []}
    for curve in found:
        by_kind[curve.kind].append(np.stack([curve.x, curve.y], 1))
    x, y = np.concatenate(by_kind["nullcline, flow vertical"]).T
    assert y == pytest.approx(x - x**3 / 3, abs=1e-4)
    assert np.ptp(x) == pytest.approx(4, abs=0.1)
    x, y = np.concatenate(by_kind["nullcline, flow horizontal"]).T
    assert y == pytest.approx(x, abs=1e-9)


def test_manifolds_and_nullclines_are_curves_of_a_portrait():
    well = flowsim.from_loss(lambda x, y: (x**2 - 1) ** 2 / 4 + (y - x) ** 2 / 2, "well")
    record = flowsim.portrait(
        well, window=SIDES, resolution=6, confirm=0, boundary=False,
        starts=flowsim.Points(["x", "y"], [[1.0, 0.0]]), curves=["nullclines", "manifolds"],
    )  # fmt: skip
    kinds = [curve.kind for curve in curves_of(record, "x", "y")]
    assert {"nullcline, flow vertical", "nullcline, flow horizontal", "stable manifold"} < {*kinds}
    assert {"minimum", "saddle"} < {*kinds}
    texts = [text.get_text() for text in flowsim.draw(record).legends[0].get_texts()]
    assert "stable manifold" in texts


@pytest.mark.parametrize(
    ("model", "curves", "sentence"),
    [("linear", ["manifolds"], "stable manifolds are curves only in a model of two coordinates"),
     ("canonical", ["isoclines"], "further curves are nullclines and manifolds, not isoclines")],
)  # fmt: skip
def test_other_curves_are_answered_in_one_sentence(model, curves, sentence):
    with pytest.raises(flowsim.InputError, match=sentence):
        flowsim.portrait(flowsim.model(model, 0.5, 0.8), resolution=4, curves=curves)
