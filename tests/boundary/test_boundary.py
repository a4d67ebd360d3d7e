"""The refined boundary against full grids, closed forms and sets whose shape is known."""

import itertools

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from flowsim import (
    BinaryChain,
    InputError,
    Label,
    find_limits,
    read_record,
    refine_boundary,
    write_record,
)
from flowsim.boundary import add_boundary, refined_labels
from flowsim.boundary.geometry import Lattice, find_crossings, march
from flowsim.boundary.refine import KnownLabels, crossed_cells
from flowsim.drawing import draw_boundary
from flowsim.interface import closed_basin
from flowsim.models import CanonicalModel, LinearAttentionModel, UntiedModel
from flowsim.scan import scan_basins


def full_labels(model, record):
    """The labels of every node of the finest grid, each followed on its own account."""
    fine = {c: record[f"fine_{c}"].to_numpy() for c in model.coordinates if f"fine_{c}" in record}
    names = [str(n).removeprefix("fine_") for n in record.variables if str(n).startswith("fine_")]
    grids = dict(zip(names, np.meshgrid(*(fine[n] for n in names), indexing="ij"), strict=True))
    some = grids[names[0]]
    columns = [
        grids.get(c, np.full(some.shape, float(record.get(c, 0)))) for c in model.coordinates
    ]
    return find_limits(model, torch.from_numpy(np.stack(columns, axis=-1))).label.numpy()


def assert_boundary_separates(record, labels):
    """Every point lies in a crossed finest cell, between two of its corners that differ."""
    names = [str(n).removeprefix("fine_") for n in record.variables if str(n).startswith("fine_")]
    fine = [record[f"fine_{n}"].to_numpy() for n in names]
    columns = [
        np.interp(record[f"boundary_{name}"], values, np.arange(len(values)))
        for name, values in zip(names, fine, strict=True)
    ]
    places = np.stack(columns, axis=1)
    low, high = np.floor(places + 1e-9).astype(int), np.ceil(places - 1e-9).astype(int)
    ends = labels[tuple(low.T)], labels[tuple(high.T)]
    inside = (ends[0] == Label.GLOBAL_MINIMUM), (ends[1] == Label.GLOBAL_MINIMUM)
    # on a diagonal of a cell the two nodes are opposite corners, as everywhere else
    assert (inside[0] != inside[1]).all()
    side = np.where(inside[0], ends[1], ends[0])
    assert np.array_equal(record["boundary_side"], side)


def assert_on_analytic_boundary(model, record):
    """The closed form changes within 1e-3 of a finest cell beside every point, or on e = 0."""
    points = np.stack([record[f"boundary_{c}"] for c in model.coordinates], axis=1)
    cell = [float(np.diff(record[f"fine_{c}"]).max()) for c in model.coordinates]
    around = np.array([*itertools.product((-1, 0, 1), repeat=len(cell))]) * cell
    places = points[:, None] + 1e-3 * around
    places = np.concatenate([places, np.where(abs(places) < 2e-3 * max(cell), 0, places)], axis=1)
    places = torch.from_numpy(places)
    inside = closed_basin(model, places.reshape(-1, len(cell))).reshape(len(points), -1)
    assert (inside.any(1) & ~inside.all(1)).all()


def test_every_level_has_the_labels_of_the_full_grid():
    """On grids that meet the invariant line e = 0 at the first level and w = 0 at the second."""
    model, finest = CanonicalModel(BinaryChain(0.5, 0.8)), 5
    axes = {"e": np.linspace(-2.5, 2.5, 6), "w": np.linspace(-3.25, 1.75, 6)}
    records = [refine_boundary(model, axes, levels=k) for k in range(finest + 1)]
    full = full_labels(model, records[-1])
    for k, record in enumerate(records):
        step = 2 ** (finest - k)
        labels = refined_labels(record).to_numpy()
        assert np.array_equal(labels, full[::step, ::step])
        assert_boundary_separates(record, labels)
        a = record.attrs
        assert a["refine_levels"] == k
        assert a["refine_full"] == labels.size
        assert a["refine_evaluated"] == record.sizes["node"] <= a["refine_full"]
        assert a["refine_disagree"] == a["refine_unresolved"] == 0
        assert_on_analytic_boundary(model, record)
        assert a["refine_unplaced"] == 0
        assert record["boundary_width"].max() == 2**-9
        corners = np.lib.stride_tricks.sliding_window_view(labels, (2, 2)).reshape(-1, 4)
        assert a["refine_cells"] == (np.ptp(corners, axis=1) > 0).sum()
    shares = [record.attrs["refine_fraction"] for record in records]
    assert shares[0] == 1
    assert all(later < before for before, later in itertools.pairwise(shares))
    assert shares[-1] < 0.2


def test_surface_of_linear_attention():
    model = LinearAttentionModel(BinaryChain(0.5, 0.8))
    axes = {"e": np.linspace(-2, 2, 6), "w": np.linspace(-2, 2, 6), "a": np.linspace(-3, 2, 6)}
    record = refine_boundary(model, axes, levels=2)
    assert np.array_equal(refined_labels(record), full_labels(model, record))
    a = record.attrs
    assert a["refine_disagree"] == a["refine_unresolved"] == 0
    assert_on_analytic_boundary(model, record)
    # the surface has edges only in the faces of the window
    faces = record["boundary_face"].to_numpy()
    edges = np.concatenate([faces[:, [i, j]] for i, j in ((0, 1), (1, 2), (2, 0))])
    edges, times = np.unique(np.sort(edges, axis=1), axis=0, return_counts=True)
    assert set(times) == {1, 2}
    points = np.stack([record[f"boundary_{c}"] for c in "ewa"], axis=1)
    box = np.array([axes[c][[0, -1]] for c in "ewa"])
    outermost = np.isclose(points[:, :, None], box).any(axis=2)
    assert (outermost[edges[times == 1, 0]] & outermost[edges[times == 1, 1]]).any(axis=1).all()


def test_untied_starts_that_end_in_the_saddle_are_the_boundary():
    """With p + q > 1 the sheet e = u flows into the saddle where 1 + 2w|w| > 0."""
    model = UntiedModel(BinaryChain(0.5, 0.8))
    same = np.linspace(-1.5, 1.5, 4)
    record = refine_boundary(model, {"e": same, "u": same, "w": np.array([0.2, 0.6])}, levels=2)
    labels = refined_labels(record)
    assert np.array_equal(labels, full_labels(model, record))
    e, u = np.meshgrid(record["fine_e"], record["fine_u"], indexing="ij")
    assert ((labels == Label.SADDLE).all(dim="fine_w") == (e == u)).all()
    assert ((labels == Label.GLOBAL_MINIMUM).all(dim="fine_w") == (e != u)).all()
    assert set(record["boundary_side"].to_numpy()) == {Label.SADDLE}


def test_the_record_of_a_scan_takes_the_boundary(tmp_path):
    model, fixed = LinearAttentionModel(BinaryChain(0.5, 0.8)), {"a": 0.3}
    axes = {"e": np.linspace(-2, 2, 10), "w": np.linspace(-2, 1, 9)}
    scan = scan_basins(model, axes, fixed)
    record = add_boundary(scan, model, levels=2)
    alone = refine_boundary(model, axes, fixed, levels=2)
    assert refined_labels(record).identical(refined_labels(alone))
    for name in alone.variables:
        assert record[name].equals(alone[name])
    assert record[list(scan.data_vars)].drop_attrs().equals(scan.drop_attrs())
    assert record.attrs["p"] == 0.5
    assert record.attrs["refine_evaluated"] == alone.attrs["refine_evaluated"]
    write_record(record, tmp_path / "scan.nc")
    again = read_record(tmp_path / "scan.nc", "scan")
    assert len(draw_boundary(again, Figure().add_subplot())) == 2
    line = scan_basins(model, {"w": axes["w"]}, {"e": 0.5, **fixed})
    with pytest.raises(InputError, match="two or three axes"):
        add_boundary(line, model, levels=2)
    with pytest.raises(InputError, match="over a grid, not over point"):
        add_boundary(line.rename(w="point"), model, levels=2)


def test_given_nodes_beside_an_invariant_line_stay_where_they_are():
    """A start at e = 1e-17 leaves the line e = 0: its label must not be taken for the line's."""
    model = CanonicalModel(BinaryChain(0.5, 0.8))
    axes = {"e": np.array([-1.0, 1e-17, 1.0]), "w": np.array([-2.0, -1.5, -1.0])}
    record = refine_boundary(model, axes, levels=2)
    assert np.array_equal(record["fine_e"][::4], axes["e"])
    labels = np.full((3, 3), Label.GLOBAL_MINIMUM)
    again = refine_boundary(model, axes, levels=2, labels=labels)
    assert np.array_equal(refined_labels(again), full_labels(model, again))
    middle = refine_boundary(model, axes | {"e": np.array([-1.1, 1.1])}, levels=3)
    assert middle["fine_e"][4] == 0
    assert (refined_labels(middle)[4] == Label.SADDLE).all()


def refined_like(inside, levels, coarse=9):
    """Crossed cells, and whether they are those of the full grid, for a set of the unit square."""
    lattice = Lattice((coarse, coarse), levels)
    size = lattice.shape[0]

    def label(nodes):
        x, y = lattice.places(nodes).T / (size - 1)
        return inside(x, y).astype(np.int8)

    known = KnownLabels(label)
    cells = crossed_cells(lattice, known, {})
    every = lattice.cells(levels)
    corners = label(lattice.corners(every, levels).ravel()).reshape(-1, 4)
    expected = every[(corners != corners[:, :1]).any(axis=1)]
    return cells, np.sort(expected), len(known.nodes) / size**2


def test_a_thin_tongue_is_followed_to_its_end():
    """A wave three finest cells wide, far thinner than a coarse cell, that grows out of a side."""

    def tongue(x, y):
        return (y < 0.1) | ((abs(x - 0.52 - 0.2 * np.sin(9 * y)) < 0.006) & (y < 0.9))

    cells, expected, share = refined_like(tongue, levels=5)
    assert np.array_equal(cells, expected)
    assert share < 0.4


def test_what_touches_nothing_that_coarse_cells_see_is_not_promised():
    def island(x, y):
        return (y < 0.1) | ((x - 0.56) ** 2 + (y - 0.56) ** 2 < 0.03**2)

    cells, expected, _ = refined_like(island, levels=4)
    assert set(cells) < set(expected)
    cells, expected, _ = refined_like(island, levels=4, coarse=33)
    assert np.array_equal(cells, expected)


def test_surface_of_a_ball_is_closed_and_points_outwards():
    lattice = Lattice((3, 3, 3), 4)

    def inside(nodes):
        return ((lattice.places(nodes) / 32 - 0.5) ** 2).sum(axis=-1) < 0.16

    cells = lattice.cells(4)
    corners = inside(lattice.corners(cells, 4))
    crossed = corners.any(axis=1) & ~corners.all(axis=1)
    found = march(lattice, cells[crossed], corners[crossed])
    vertex = (lattice.places(found.inner) + lattice.places(found.outer)) / 64 - 0.5
    a, b, c = (vertex[found.pieces[:, i]] for i in range(3))
    volume = (a * np.cross(b, c)).sum() / 6
    assert volume == pytest.approx(4 / 3 * np.pi * 0.4**3, rel=0.04)
    edges = np.concatenate(
        [found.pieces[:, [0, 1]], found.pieces[:, [1, 2]], found.pieces[:, [2, 0]]]
    )
    _, times = np.unique(np.sort(edges, axis=1), axis=0, return_counts=True)
    assert (times == 2).all()
    assert len(vertex) - len(times) + len(found.pieces) == 2  # Euler's formula


def test_edges_are_bisected_as_far_as_their_starts_have_labels():
    """A circle of radius 1; nothing beside the right half of the axis of x has a label."""

    def label(points):
        inside = (points**2).sum(axis=1) < 1
        labels = np.where(inside, Label.GLOBAL_MINIMUM, Label.LOCAL_MINIMUM)
        return np.where((points[:, 0] > 0.9) & (points[:, 1] == 0), Label.UNRESOLVED, labels)

    inner = np.array([[0.0, 0.0], [0.0, 0.0], [0.2, 0.2], [0.0, 0.0]])
    outer = np.array([[0.0, 3.0], [-4.0, 0.0], [1.2, 1.2], [1.5, 0.0]])
    found = find_crossings(label, inner, outer)
    points = found.along(inner, outer)
    length = np.linalg.norm(outer - inner, axis=1)
    off = np.abs(np.linalg.norm(points, axis=1) - 1)
    assert (off[:3] <= 2**-10 * length[:3]).all()
    assert found.width.tolist() == [2**-9] * 3 + [0.5]  # half of the last, then 1.125 has no label
    assert found.followed == 3 * 9 + 2
    assert points[3].tolist() == [1.125, 0.0]
    for ahead in (2, 3, 4, 9):  # whichever halvings are looked up together
        same = find_crossings(label, inner, outer, ahead=ahead)
        assert np.array_equal(same.at, found.at) and np.array_equal(same.width, found.width)


GRID = {"e": np.linspace(0.1, 1, 3), "w": np.linspace(-1, 1, 3)}


@pytest.mark.parametrize(
    ("axes", "options", "words"),
    [
        ({"e": GRID["e"]}, {}, "must together be e, w"),
        ({"e": GRID["e"]}, {"fixed": {"w": 1.0}}, "two or three axes, not 1"),
        (GRID | {"e": np.ones(1)}, {}, "the axis e needs"),
        (GRID | {"e": np.array([2.0, 1.0])}, {}, "the axis e needs"),
        (GRID | {"w": np.array([0.0, np.nan])}, {}, "the axis w needs"),
        (GRID | {"w": np.array([0.0, np.inf])}, {}, "the axis w needs"),
        (GRID, {"levels": -1}, "levels must be"),
        (GRID, {"levels": 21}, "levels must be"),
        (GRID, {"labels": np.ones((2, 3))}, "do not fit"),
    ],
)
def test_bad_input_is_refused(axes, options, words):
    with pytest.raises(InputError, match=words):
        refine_boundary(CanonicalModel(BinaryChain(0.5, 0.8)), axes, **options)
