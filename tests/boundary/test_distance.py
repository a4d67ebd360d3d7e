"""Distances to another end against closed forms and published minima's distances."""

from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.optimize import brentq, minimize_scalar

import flowsim
from flowsim.boundary import add_edge_distance, edge_distance, stable_manifolds
from flowsim.boundary.distance import Search
from flowsim.boundary.edges import bisected_edges, nearest_on
from flowsim.boundary.geometry import find_crossings
from flowsim.boundary.shooting import Shooting
from flowsim.labels import Label
from flowsim.landscape.ends import Ends

ROOT = Path(__file__).parents[2]
HIMMELBLAU = [(3, 2), (3.58442834, -1.84812653), (-3.77931025, -3.28318599),
              (-2.80511809, 3.13131252)]  # fmt: skip
SIDES = {"x": (-5.0, 5.0), "y": (-5.0, 5.0)}


@pytest.fixture(scope="module")
def himmelblau():
    return flowsim.from_loss(lambda x, y: (x**2 + y - 11) ** 2 + (x + y**2 - 7) ** 2, "himmelblau")


def test_stable_manifolds_pass_himmelblaus_minima_at_the_known_distances(himmelblau):
    known = [1.95940726, 1.93179547, 3.25952811, 2.90125823]
    found = stable_manifolds(himmelblau, SIDES)
    points = np.concatenate([manifold.points for manifold in found])
    away = [np.nanmin(np.linalg.norm(points - minimum, axis=1)) for minimum in HIMMELBLAU]
    assert len(found) == 4
    assert away == pytest.approx(known, abs=1e-6)


def nearest(height, start, low, high):
    """Distance from (e, w) to the curve e² = height(w), w from low to high."""
    w = -np.geomspace(-high, -low, 100_001)
    away = np.hypot(np.sqrt(height(w).clip(0)) - abs(start[0]), w - start[1])
    i = away.argmin()
    fit = minimize_scalar(
        lambda x: np.hypot(np.sqrt(max(height(x), 0)) - abs(start[0]), x - start[1]),
        bounds=sorted((w[max(i - 2, 0)], w[min(i + 2, len(w) - 1)])),
        method="bounded", options={"xatol": 1e-12},
    )  # fmt: skip
    return min(fit.fun, away.min())


STARTS = [(0.8, -0.4), (1.0, -1.2), (1.5, 0.5), (-2.0, -0.5), (0.05, -0.9)]


@pytest.mark.parametrize("p", [0.5, 0.1])
def test_distances_of_the_canonical_model_are_those_to_its_separatrix(p):
    low, high = (-(0.5**0.5), -1e-6) if p + 0.8 > 1 else (-4.0, -(0.5**0.5))
    model = flowsim.model("canonical", p, 0.8)

    def height(w):
        return -(1 + np.log(2)) / 2 + w**2 - np.log(-w)

    expected = [nearest(height, start, low, high) for start in STARTS]
    assert edge_distance(model, STARTS).distance == pytest.approx(expected, abs=1e-6)


def test_a_boundary_ends_on_the_rim_of_the_window():
    def height(w):
        return -(1 + np.log(2)) / 2 + w**2 - np.log(-w)

    rim = brentq(lambda w: height(w) - 1, -0.7, -1e-3)
    starts = [(0.9, rim + 0.1), (0.99, rim + 0.03), (-0.9, rim + 0.2)]
    expected = [nearest(height, start, -(0.5**0.5), rim) for start in starts]
    found = edge_distance(
        flowsim.model("canonical", 0.5, 0.8), starts, {"e": (-1, 1), "w": (-2, 0.5)}
    )
    assert found.distance == pytest.approx(expected, abs=1e-6)
    assert abs(found.nearest[:, 0]).max() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize(
    ("within", "sentence"),
    [({"x": (0, 1)}, "within takes LOW < HIGH of e, w, not x"),
     ({"e": (1, 0)}, "within takes LOW < HIGH of e, w, not e"),
     (None, "outside the usual window, e = -3 to 3, w = -3 to 3: say within which")],
)  # fmt: skip
def test_wrong_windows_are_answered_in_one_sentence(within, sentence):
    model = flowsim.model("canonical", 0.5, 0.8)
    with pytest.raises(flowsim.InputError, match=sentence):
        edge_distance(model, [[1.0, 1.0], [1.0, 4.0]], within)


@pytest.mark.parametrize(("bent", "off"), [(0.0, 2e-7), (0.7, 2e-6)])
def test_bisected_curves_are_exact_where_smooth_and_near_a_corner(bent, off):
    def label(points):  # a parabola, and a parabola with a corner at its top
        x, y = points.T
        return np.where(y > x**2 / 2 + bent * np.abs(x - 0.13), 1, 2)

    axes = [np.linspace(-2, 2, 64)] * 2
    mesh = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
    codes = label(mesh.reshape(-1, 2)).reshape(64, 64)
    edges = bisected_edges(label, axes, codes, 1e-7)
    starts = mesh[6:-6:9, 6:-6:9].reshape(-1, 2)
    x = np.linspace(-2, 2, 40_001)
    curve = np.stack([x, x**2 / 2 + bent * np.abs(x - 0.13)], axis=1)
    curve = curve[curve[:, 1] <= 2]
    expected = [np.linalg.norm(curve - start, axis=1).min() for start in starts]
    found = np.linalg.norm(nearest_on(edges, starts, label(starts)) - starts, axis=1)
    assert found == pytest.approx(expected, abs=off)


def test_on_a_line_a_basin_thinner_than_a_cell_is_seen_from_a_start_in_it(monkeypatch):
    def ends(self, points, exact=True):
        return np.where(np.abs(points[:, 0] - 0.3) < 1e-3, 1, 2)

    monkeypatch.setattr(Search, "label", ends)
    model = flowsim.from_loss(lambda x: x**2, "bowl")
    found = edge_distance(model, [[0.3002], [0.1]], {"x": (-2, 2)}).distance
    assert found == pytest.approx([0.0008, 0.199], abs=1e-7)


def test_bound_in_three_coordinates_is_never_below_the_distance(monkeypatch):
    inside = lambda points: np.where(np.linalg.norm(points, axis=1) < 1.2, 1, 2)  # noqa: E731
    monkeypatch.setattr(Search, "label", lambda self, points, exact=True: inside(points))
    model = flowsim.model("linear", 0.5, 0.8)
    starts = np.random.default_rng(0).uniform(-2, 2, (40, 3))
    found = edge_distance(model, starts, dict.fromkeys(model.coordinates, (-2, 2)))
    true = np.abs(np.linalg.norm(starts, axis=1) - 1.2)
    assert found.is_bound
    assert (found.distance >= true - 1e-12).all()
    assert (found.distance <= true + 1e-3).all()


def test_a_portrait_records_distances_of_its_cells_and_numbers_of_its_ends():
    model = flowsim.model("canonical", 0.5, 0.8)
    record = flowsim.portrait(model, resolution=8, edge=True, confirm=0)
    starts = np.stack(np.meshgrid(record.e, record.w, indexing="ij"), -1)
    expected = edge_distance(model, starts, model.plane.window).distance
    assert record.edge_distance.to_numpy() == pytest.approx(expected, abs=1e-9)
    assert record.edge_distance.attrs["all_coordinates"] == 1
    trapped = flowsim.summarize(record)["ends"]["local_minimum"]
    here = record.edge_distance.to_numpy()[record.label.to_numpy() == 2]
    assert trapped["median_distance"] == np.median(here)
    assert record.smallest_distance.sel(basin="local_minimum") == here.min()
    texts = flowsim.draw(record).legends[0].get_texts()
    assert "distance to another end" in [text.get_text() for text in texts]


def test_a_scan_of_a_slice_says_that_it_is_one():
    model, axis = flowsim.model("linear", 0.5, 0.8), flowsim.scan.cell_centres(-3, 3, 8)
    record = flowsim.scan(model, {"e": axis, "w": axis}, fixed={"a": 0.3})
    record = add_edge_distance(record, model)
    assert "in the slice (e, w)" in record.edge_distance.attrs["long_name"]
    start = [[record.e[5], record.w[4], 0.3]]
    found = edge_distance(model, start, {"e": (-3, 3), "w": (-3, 3)}).distance
    assert record.edge_distance[5, 4] == pytest.approx(found[0], abs=1e-6)


#: Models with a saddle in their plane whose stable manifold is a boundary.
PLANES = ["canonical", "induction", f"{ROOT}/examples/lora.py:LoRA",
          f"{ROOT}/examples/two_factor.py:TwoFactor",
          f"{ROOT}/examples/linear_network.py:LinearNetwork",
          f"{ROOT}/examples/product_stability.py:ProductStability"]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", ["himmelblau", *PLANES])
def test_ends_change_within_1e_6_across_grown_manifolds(name, himmelblau):
    model = himmelblau if name == "himmelblau" else flowsim.model(
        name, **({"p": 0.5, "q": 0.8} if name == "canonical" else {})
    )  # fmt: skip
    window = SIDES if name == "himmelblau" else dict(model.plane.window)
    window = {name: window[name] for name in model.coordinates}
    size = np.linalg.norm([high - low for low, high in window.values()])
    beside = []
    for manifold in stable_manifolds(model, window):
        whole = np.isfinite(manifold.points).all(1)
        places = np.flatnonzero(whole[1:-1] & whole[2:] & whole[:-2]) + 1
        places = places[(np.array([0.15, 0.4, 0.8]) * len(places)).astype(int)]
        along = manifold.points[places + 1] - manifold.points[places - 1]
        normal = np.stack([-along[:, 1], along[:, 0]], 1) / np.linalg.norm(along, axis=1)[:, None]
        beside.append([manifold.points[places] + sign * off * normal
                       for off in (1e-3 * size, 1e-6) for sign in (1, -1)])  # fmt: skip
    starts = np.concatenate(beside, axis=1)
    limits = flowsim.find_limits(model, torch.from_numpy(starts.reshape(-1, 2)), rtol=1e-9)
    codes = Ends(model).identify(limits).reshape(2, 2, -1).numpy()
    decided = ~np.isin(limits.label.reshape(2, 2, -1), (Label.UNRESOLVED, Label.SADDLE))
    parts = (codes[0, 0] != codes[0, 1]) & decided[0].all(0)
    near = parts & decided[1].all(0)
    assert near.sum() >= max(0.5 * parts.sum(), 1)
    assert (codes[1, 0] != codes[1, 1])[near].all()


def test_crossings_are_shot_at_the_stable_manifold_of_a_saddle_in_a_slice():
    # of x = u − v²/10 − 3z/10, x′ = x − x³: the stable manifold of the saddle is x = 0
    class Bent(flowsim.Model):
        coordinates = ("u", "v", "z")

        def field(self, theta):
            u, v, z = theta.unbind(-1)
            x = u - 0.1 * v**2 - 0.3 * z
            rest = torch.stack([-v, -2 * z], -1)
            along = x - x**3 + 0.2 * v * rest[..., 0] + 0.3 * rest[..., 1]
            return torch.cat([along[..., None], rest], -1)

        def loss(self, theta):
            return 0 * theta[..., 0]

    def place(points):
        return torch.nn.functional.pad(points, (0, 1), value=0.5)

    def codes(theta):
        u, v, z = theta.unbind(-1)
        return torch.where(u > 0.1 * v**2 + 0.3 * z, 1, 2).numpy()

    v = np.linspace(-1, 1, 9)
    middle, half = np.stack([0.2 + 0.1 * v, v], 1), np.tile([0.6, 0.0], (9, 1))
    shooting = Shooting(Bent(), place, codes, 1.0)
    found = shooting.crossings(middle, half, np.tile([2, 1], (9, 1)), 1e-8)
    assert found[:, 0] == pytest.approx(0.1 * v**2 + 0.15, abs=1e-7)
    assert len(shooting.saddles) == 1
    missed = shooting.crossings(middle, half, np.tile([1, 2], (9, 1)), 1e-8)
    assert np.isnan(missed).all()


def test_ends_change_beside_a_place_whose_rows_are_followed_once():
    model, fixed = flowsim.model("uniform", 0.5, 0.8, length=4), {"a": 0.3}
    search = Search(model, {"e": (-3.0, 3.0), "w": (-3.0, 3.0)}, fixed,
                    lambda x: torch.nn.functional.pad(x, (0, 1), value=0.3))  # fmt: skip
    trapped, learned = np.array([[0.5, 0.7], [0.3, 1.2]]), np.array([[0.5, -0.9], [0.3, -1.4]])
    places = find_crossings(search.label, trapped, learned, 24, end=Label.LOCAL_MINIMUM)
    on_edge = np.pad(places.along(trapped, learned), ((0, 0), (0, 1)), constant_values=0.3)
    above = flowsim.find_limits(model, on_edge + np.array([0, 1.5e-7, 0]), rtol=1e-11)
    below = flowsim.find_limits(model, on_edge - np.array([0, 1.5e-7, 0]), rtol=1e-11)
    assert (above.label == Label.LOCAL_MINIMUM).all()
    assert (below.label == Label.GLOBAL_MINIMUM).all()


def test_a_row_beside_a_saddle_keeps_its_side_without_being_followed_again():
    model = flowsim.from_loss(lambda x, y: (x**2 - 1) ** 2 / 4 + y**2 / 2, "double well")
    starts = [[1e-7, 1.0], [-1e-7, 1.0], [1.5, 1.0]]
    once, again = (flowsim.find_limits(model, starts, once=x) for x in (True, False))
    assert np.sign(once.theta[:, 0]).tolist() == [1, -1, 1] == np.sign(again.theta[:, 0]).tolist()
    assert (2 * once.evaluations[:2] < again.evaluations[:2]).all()
    assert once.evaluations[2] == again.evaluations[2]


def test_distances_on_a_line_of_which_a_part_has_no_loss():
    model = flowsim.from_loss(lambda x: (x**2 - 1) ** 2 / 4 + 0 * (1.3 - x).sqrt(), "half well")
    found = edge_distance(model, [[0.5], [-1.0], [3.0]], {"x": (-2.0, 8.0)})
    assert found.distance == pytest.approx([0.5, 1.0, np.nan], abs=1e-12, nan_ok=True)
