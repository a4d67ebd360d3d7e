"""What the page computes: labels, orbits, clouds and training, without a browser."""

from dataclasses import replace
from itertools import count, islice

import numpy as np
import pytest
import torch

from flowsim import Label, Model, find_limits, read_record, trajectories
from flowsim.boundary import edge_distance
from flowsim.explorer import training as of_training
from flowsim.explorer.export import saved_file
from flowsim.explorer.layers import (
    UNKNOWN,
    border,
    cells_at_once,
    ends_of,
    first_look,
    followed,
    has_border,
    landscape,
    refined,
)
from flowsim.explorer.page.messages import describe_run, describe_trajectory, why_apart
from flowsim.explorer.starts import CloudShare, cloud_shares, edge_of, follow_start
from flowsim.explorer.training import FullSettings, Run, is_untied, training
from flowsim.explorer.view import GaussianCloud, Start, Stopped, View, Window
from flowsim.interface import theta_at
from flowsim.labels import BASINS
from flowsim.portraits.in_plane import HALVINGS
from flowsim.spec import ModelSpec, model_from_attributes

GOOD, BAD = Start(0.5, -1.2), Start(1.0, 0.5)  # on both sides of the separatrix for p + q > 1


@pytest.mark.parametrize("name", ["canonical", "linear", "states"])
def test_what_is_shown_at_once_is_what_the_flow_says(name):
    view = View().with_model(name).with_arguments(p=0.9)
    first, (last,) = cells_at_once(view), refined(view, lambda: False)
    assert first.decided_by == "closed form" and last.decided_by == "flow" and last.final
    assert set(np.unique(last.label)) == {Label.GLOBAL_MINIMUM, Label.LOCAL_MINIMUM}
    one, other = (cells.shares(BASINS)["local_minimum"] for cells in (first, last))
    assert abs(one - other) < 0.01


def test_slow_models_claim_nothing_before_they_know():
    view = View().with_model("rank-one")
    assert (cells_at_once(view).label == UNKNOWN).all() and cells_at_once(view).shares(BASINS) == {}
    first, _ = first_look(view, lambda: False)
    assert first.label.shape == (6, 6) and not (first.label == UNKNOWN).any()
    with pytest.raises(Stopped):
        next(refined(view, lambda: True))


@pytest.mark.parametrize("name", ["uniform", "untied"])
def test_the_border_lies_between_the_basins_and_gets_finer(name):
    view = View().with_model(name)
    assert has_border(view) and not has_border(View())
    coarse = cells_at_once(view) if name == "untied" else next(refined(view, lambda: False))
    with pytest.raises(Stopped):
        border(view, coarse, lambda: True)
    rough = border(view, coarse, lambda: False)
    fine = border(view, replace(coarse, final=True), lambda: False)
    beyond = Label.SADDLE if name == "untied" else Label.LOCAL_MINIMUM
    first, last = (x.saddles if name == "untied" else x.basins for x in (rough, fine))
    cell, within = 6 / coarse.label.shape[0], 0.5**HALVINGS
    assert np.linalg.norm(first - last, axis=-1).max() < cell
    e, w = last[:, 0].T
    for start_e, start_w in zip(e[::4], w[::4], strict=True):
        near = 2 * cell * within
        around = np.array([[-near, 0], [near, 0], [0, -near], [0, near], [near, near]])
        label = followed(view, start_e + around[:, 0], start_w + around[:, 1], lambda: False)
        assert set(label) == {Label.GLOBAL_MINIMUM, beyond}, (start_e, start_w)


@pytest.mark.parametrize("name, options", [
    ("uniform", {"length": 5}), ("canonical", {"bias": "dynamic"}), ("untied", {}),
])  # fmt: skip
def test_starts_at_minus_e_end_alike(name, options):
    view = View().with_model(name, **options).with_slice(0.3 if name == "uniform" else 0.0)
    e, w = np.random.Generator(np.random.PCG64(2)).uniform(0.1, 2.0, (2, 12))
    w *= np.where(np.arange(12) % 2, 1, -1)
    plane = view.model.plane
    starts = [
        theta_at(plane, *map(torch.from_numpy, (w, sign * e)), view.fixed_values)
        for sign in (1, -1)
    ]
    both = [find_limits(view.model, theta).label for theta in starts]
    assert both[0].tolist() == both[1].tolist()
    held = replace(View().with_model("untied"), fixed=(("u", 0.8),))
    found = followed(held, np.append(e, -e), np.append(w, w), lambda: False)
    across, up = (torch.from_numpy(np.append(*pair)) for pair in ((w, w), (e, -e)))
    theta = theta_at(held.model.plane, across, up, held.fixed_values)
    assert found.tolist() == find_limits(held.model, theta).label.tolist()


def test_the_landscape_leaves_slow_curves_out_until_sliders_rest():
    slow = View().with_model("uniform")
    for view, fine, there in ((View(), False, True), (slow, False, False), (slow, True, True)):
        assert ("saddle" in landscape(view, fine)["curve_kind"]) == there


@pytest.mark.parametrize("name", ["canonical", "uniform"])
@pytest.mark.parametrize("p, q", [(0.5, 0.8), (0.2, 0.3)])
def test_orbits_end_where_their_labels_say(name, p, q):
    view = View().with_model(name).with_arguments(p=p, q=q)
    for start in (GOOD, BAD):
        orbit = follow_start(view, start)
        assert (orbit.forward.y[0], orbit.forward.x[0]) == pytest.approx(start)
        assert (np.diff(orbit.forward.loss) < 1e-12).all()
        assert orbit.forward.loss[-1] == pytest.approx(orbit.end_loss, abs=1e-3)
        learns = orbit.label == Label.GLOBAL_MINIMUM
        chain = view.model.chain
        assert learns == (abs(orbit.end_loss - chain.entropy_rate) < 1e-9)
        if learns:
            assert orbit.forward.gap[-1] == pytest.approx(chain.target_logit_gap, abs=0.05)


def trained(view, start, full, predicted=Label.GLOBAL_MINIMUM, whole=False):
    """A run that came to its end."""
    run = Run(start, full, predicted, whole=whole)
    for _ in training(view, run, lambda: False):
        pass
    return run


def test_a_run_goes_on_to_its_end_and_leaves_the_plane():
    view = View()
    orbit = follow_start(view, GOOD)
    run = trained(view, GOOD, FullSettings(steps=600), orbit.label, whole=True)
    assert run.outcome == Label.GLOBAL_MINIMUM and run.ended == "out of steps"
    assert run.curve[-1].step == 600
    assert run.curve[-1].loss == pytest.approx(view.model.chain.entropy_rate, abs=1e-4)
    assert "positions N times slower" in why_apart(run, orbit)
    exact = View().with_model("rank-one")
    full = FullSettings(steps=600, learning_rate=0.05)
    small = trained(exact, GOOD, full, orbit.label, whole=True)
    assert why_apart(small, follow_start(exact, GOOD)) == ""


def test_the_way_back_leads_to_the_start():
    view = replace(View(), backward=True)
    for start in (GOOD, BAD, Start(0.3, -0.4)):
        path = follow_start(view, start).backward
        assert (path.y[-1], path.x[-1]) == pytest.approx(start) and path.time[-1] == 0
        assert (np.diff(path.time) > 0).all() and (np.diff(path.loss) < 1e-9).all()
        first = torch.tensor([path.y[5], path.x[5]], dtype=torch.float64)
        again = trajectories(view.model, first, [0.0, -float(path.time[5])])[-1]
        assert again.tolist() == pytest.approx(start, abs=0.02)


def test_a_click_says_how_far_the_edge_of_its_basin_is():
    view = View()
    away = edge_of(view, Start(-1.2, 0.5), lambda: False)
    start = torch.tensor([[-1.2, 0.5]]).double()
    assert away == pytest.approx(float(edge_distance(view.model, start).distance), abs=1e-6)
    orbit = follow_start(view, Start(-1.2, 0.5))
    assert "The boundary is 0.5879 away" in describe_trajectory(view, [orbit], 0, 0, away)


def test_a_cloud_is_counted_and_has_its_interval():
    view = replace(View(), cloud=GaussianCloud(0.3, -0.9, 0.3))
    (found,) = cloud_shares(view)
    trapped, low, high = found.share(Label.LOCAL_MINIMUM)
    inside = view.model.basin(torch.from_numpy(np.stack([found.y, found.x], -1)))
    assert trapped == pytest.approx(1 - float(inside.double().mean()))
    assert 0 < low < trapped < high < 1 and len(found.label) == found.wanted == 1000
    assert list(cloud_shares(View())) == []
    all_trapped = CloudShare(found.y[:4], found.x[:4], np.full(4, Label.LOCAL_MINIMUM), 4)
    assert all_trapped.share(Label.LOCAL_MINIMUM) == pytest.approx((1, 0.5101, 1), abs=1e-4)


PAGES = {
    "canonical": View(), "states": View().with_model("states", states=3).with_arguments(p=0.9),
    "untied": replace(View().with_model("untied"), fixed=(("u", 0.9),)).with_arguments(p=0.9),
}  # fmt: skip


@pytest.mark.parametrize(
    "name, trainer",
    [("canonical", "gd"), ("canonical", "flow"), ("states", "gd"), ("untied", "gd")],
)
@pytest.mark.parametrize(
    "start, outcome", [(GOOD, Label.GLOBAL_MINIMUM), (BAD, Label.LOCAL_MINIMUM)]
)
def test_full_training_begins_with_the_orbit_and_goes_where_the_flow_says(
    name, trainer, start, outcome
):
    view = PAGES[name]
    orbit = follow_start(view, start)
    run = trained(view, start, FullSettings(trainer), orbit.label)
    if is_untied(view):  # where e = u = 0 is a saddle
        outcome = Label.GLOBAL_MINIMUM
    assert run.outcome == outcome and run.ended == "decided"
    if not is_untied(view):
        assert run.predicted == outcome and "just as the flow says" in describe_run(view, run)
    first = run.curve[0]
    assert (first.e, first.w) == pytest.approx(start) and first.time == 0
    assert first.loss == pytest.approx(orbit.forward.loss[0])
    assert first.gap == pytest.approx(orbit.forward.gap[0])


def test_sampled_training_streams_and_stops():
    view = View()
    run = Run(GOOD, FullSettings("adamw", d=4, length=4, steps=50), Label.GLOBAL_MINIMUM)
    assert list(training(view, run, lambda: len(run.curve) >= 3))
    assert run.ended == "stopped" and run.outcome == Label.UNRESOLVED
    assert "was stopped" in describe_run(view, run) and 0 < run.curve[-1].step < 50
    run = trained(view, GOOD, FullSettings("sgd", d=4, length=4, steps=6))
    assert run.ended == "out of steps" and run.curve[-1].step == 6
    assert run.curve[-1].time == pytest.approx(0.6)


@pytest.mark.parametrize("trainer", ["gd", "adamw"])
def test_a_run_ends_after_two_minutes(trainer, monkeypatch):
    clock = count(step=10)  # seconds that seem to pass at every look at the clock
    monkeypatch.setattr(of_training, "monotonic", lambda: next(clock))
    view = View()
    run = trained(view, GOOD, FullSettings(trainer, d=4, length=4, steps=50_000))
    assert run.ended == "out of time" and run.outcome == Label.UNRESOLVED
    assert "out of its 120 seconds after" in describe_run(view, run) and 110 <= next(clock) <= 200


@pytest.mark.slow
@pytest.mark.turns
def test_files_hold_what_is_on_the_page(tmp_path):
    view = View().with_start(*GOOD).with_start(*BAD)
    orbits = [follow_start(view, start) for start in view.starts]
    run = trained(view, GOOD, FullSettings())
    name, content = saved_file(view, orbits, [run], "nc")
    assert name == "explored_canonical_p0.5_q0.8.nc"
    (tmp_path / name).write_bytes(content)
    record = read_record(tmp_path / name)
    assert model_from_attributes(record.attrs).chain == view.model.chain
    assert record["orbit_label"].values.tolist() == [o.label for o in orbits]
    assert (record["orbit_e"][0].values, record["orbit_w"][0].values) == (
        pytest.approx([GOOD.y, BAD.y]), pytest.approx([GOOD.x, BAD.x])
    )  # fmt: skip
    assert record["trained_loss"].values[-1] == pytest.approx(run.curve[-1].loss)
    assert record.attrs["oracle_wrong"] == 0
    assert saved_file(view, orbits, [run], "png")[1].startswith(b"\x89PNG")
    assert b"<svg" in saved_file(view, [], [], "svg")[1][:2000]


class Well(Model):
    coordinates = ("x", "y")

    def __init__(self, g=0.2):
        self.g = g

    def loss(self, theta):
        x, y = theta.unbind(-1)
        return (x**2 - 1) ** 2 / 4 + y**2 / 2 + self.g * x


@pytest.mark.slow
@pytest.mark.turns
def test_the_ends_of_a_users_model_have_one_code_on_all_parts_of_a_page(tmp_path):
    view = View(ModelSpec(Well), window=Window(-2, 2, -2, 2), cloud=GaussianCloud(0.0, 0.5, 0.01))
    assert ends_of(view).names == ["unresolved"]  # nobody has waited for them
    first, last = islice(refined(view, lambda: False), 2)
    assert ends_of(view).names == ["unresolved", "minimum_1", "minimum_2"]
    assert first.label[0].tolist() == [1, 1, 1, 2, 2, 2]
    assert last.shares(ends_of(view).names) == {"minimum_1": 9 / 16, "minimum_2": 7 / 16}
    orbit = follow_start(view, Start(1.0, 1.0))
    assert orbit.kind == "minimum_2" and orbit.forward.y[0] == 1.0
    roots = np.roots([1, 0, -1, 0.2])
    assert orbit.end == pytest.approx((0, roots.max()), abs=1e-6)
    found = border(view, last, lambda: False)
    middle = np.sort(roots)[1]
    y, x = found.basins.reshape(-1, 2).T
    assert np.ptp(y) > 3.5 and x == pytest.approx(np.full(len(x), middle), abs=0.02)
    (*_, cloud) = cloud_shares(view)
    assert set(cloud.label) == {2} and len(cloud.label) == cloud.wanted
    name, content = saved_file(view, [orbit], [], "nc")
    (tmp_path / name).write_bytes(content)
    record = read_record(tmp_path / name)
    assert record["orbit_label"].item() == 2 and record["orbit_x"][0, 0] == 1.0
