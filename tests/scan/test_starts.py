"""Initializations: grids, lists from files and Gaussian clouds, block by block."""

import math
import random
from fractions import Fraction

import numpy as np
import pytest
import torch
import xarray as xr
from fuzz.damage import KINDS, damaged
from scipy.stats import binomtest, kstest

from flowsim import Cloud, Grid, InputError, ModelSpec, Points, write_record
from flowsim.interface import conserved_names
from flowsim.scan import cell_centres, scan_basins
from flowsim.scan.follow import starting_coordinates, to_model
from flowsim.scan.record import wilson_interval
from flowsim.scan.starts import STREAM
from flowsim.spec import spec_of


def all_of(starts):
    return starts.block(0, math.prod(starts.shape))


def pieces(starts, size):
    n = math.prod(starts.shape)
    return np.concatenate([starts.block(i, min(i + size, n)) for i in range(0, n, size)])


@pytest.mark.parametrize("cells", [1, 11, 512])
def test_cells_are_right_to_the_last_bits_and_zero_is_zero(cells):
    for low, high in ((-3.0, 3.0), (-0.7, 0.7), (-math.pi, math.pi), (-1e-3, 1e-3)):
        centres = cell_centres(low, high, cells)
        assert np.array_equal(centres, -centres[::-1])
        assert (centres == 0).sum() == cells % 2
    for low, high in ((-0.7, 2.3), (0.05, 3.0), (-1000.0, -0.1), (1e-9, 1.0)):
        exact = [
            (Fraction(low) * (2 * (cells - i) - 1) + Fraction(high) * (2 * i + 1)) / (2 * cells)
            for i in range(cells)
        ]
        unit = np.spacing(max(-low, high))
        error = [
            abs(Fraction(x) - y)
            for x, y in zip(cell_centres(low, high, cells).tolist(), exact, strict=True)
        ]
        assert max(error) <= 3 * unit
        assert (np.diff(cell_centres(low, high, cells)) > 0).all()
    assert cell_centres(-0.3, 0.7, 5)[1] == 0
    assert cell_centres(-0.1, 0.2, 3)[0] == pytest.approx(-0.05, rel=1e-14)


def test_grid_is_the_mesh_of_its_axes():
    axes = {"w": np.array([-1.0, 0.5, 2.0]), "e": np.array([0.25, 4.0])}
    grid = Grid(axes, {"a": 0.125})
    assert grid.names == ("w", "e", "a")
    mesh = np.stack(np.meshgrid(*axes.values(), indexing="ij"), axis=-1).reshape(-1, 2)
    assert np.array_equal(all_of(grid), np.column_stack([mesh, np.full(6, 0.125)]))
    assert np.array_equal(pieces(grid, 4), all_of(grid))
    assert Grid({"e": [1.0]}, {"w": 2.0}).block(0, 1).tolist() == [[1, 2]]


@pytest.mark.parametrize(
    ("axes", "fixed", "word"),
    [
        ({}, {"e": 1.0}, "at least one"),
        ({"e": [1.0, math.nan]}, {}, "finite"),
        ({"e": [1.0, 1.0]}, {}, "increase"),
        ({"e": [1.0]}, {"e": 2.0}, "both varied and fixed"),
    ],
)
def test_grids_that_are_none(axes, fixed, word):
    with pytest.raises(InputError, match=word):
        Grid(axes, fixed)


def test_points_of_all_formats_are_the_same(tmp_path):
    rows = np.array([[0.5, -1.25], [1 / 3, 2.0], [-7.0, 1e-9]])
    np.save(tmp_path / "a.npy", rows)
    text = "\ufeffw, e\n" + "\n".join(f"{w!r},{e!r}" for e, w in rows.tolist()) + "\n\n"
    (tmp_path / "a.csv").write_text(text)
    (tmp_path / "b.csv").write_text(text.replace(",", ";").replace(".", ",").replace("\n", ";\r\n"))
    columns = {name: ("anything", rows[:, i]) for i, name in enumerate("ew")}
    write_record(xr.Dataset(columns), tmp_path / "a.nc")
    for name in ("a.npy", "a.csv", "b.csv", "a.nc"):
        points = Points.read(tmp_path / name, ("e", "w"))
        order = [points.names.index(axis) for axis in "ew"]
        assert np.array_equal(all_of(points)[:, order], rows)
        assert points.dims == ("point",)


@pytest.mark.parametrize(
    ("name", "text", "word"),
    [
        ("a.csv", "", "it is empty"),
        ("a.csv", "e,w\n", "no points"),
        ("a.csv", "e,w\n1,nan\n", "point 1 of .*csv. is not finite"),
        ("a.csv", "e,w\n1,two\n", "column w of .*'two'"),
        ("a.csv", "e,w\n1,\u0661\u0662\n", "column w of "),
        ("a.csv", "e,w\n1,2\n3\n", "line 3 of .* has 1 cells, not 2"),
        ("a.csv", "e,e\n1,2\n", "e, e"),
        ("a.nc", "not netcdf", "no valid digest"),
        (None, "", "no such file"),
    ],
)
def test_files_that_hold_no_points(tmp_path, name, text, word):
    if name is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=word):
        Points.read(tmp_path / (name or "missing.csv"), ("e", "w"))


@pytest.mark.parametrize(("seed", "count"), [(5, 60), pytest.param(7, 500, marks=pytest.mark.slow)])
def test_damaged_points_are_refused_or_finite(tmp_path, seed, count):
    """No digest guards them: they are refused, or finite points with the columns asked for."""
    rows, draw = np.random.default_rng(0).normal(size=(50, 2)), random.Random(seed)
    np.save(tmp_path / "a.npy", rows)
    (tmp_path / "a.csv").write_text("e,w\n" + "".join(f"{e},{w}\n" for e, w in rows.tolist()))
    whole = {ending: (tmp_path / f"a{ending}").read_bytes() for ending in (".csv", ".npy")}
    for _ in range(count):
        ending = draw.choice([*whole])
        path = tmp_path / f"b{ending}"
        path.write_bytes(damaged(whole[ending], draw.choice(KINDS), draw))
        try:
            points = Points.read(path, ["e", "w"])
        except InputError as error:
            assert "\n" not in str(error) and len(str(error)) < 700
        else:
            assert points.shape[0] <= 200 and np.isfinite(all_of(points)).all()


def test_cloud_does_not_depend_on_how_it_is_cut():
    cloud = Cloud(("e", "w"), STREAM + 1000, (0.5, 2.0), {"a": 1.0}, seed=3)
    whole = all_of(cloud)
    assert whole.shape == (2 * (STREAM + 1000), 3)
    assert np.array_equal(pieces(cloud, 10_007), whole)
    assert (whole[:, 2] == 1).all()
    draws = whole[:, :2].reshape(2, -1, 2)
    assert np.array_equal(4 * draws[0], draws[1])
    more = Cloud(("e", "w"), STREAM + 2000, (0.1, 0.5), {"a": 1.0}, seed=3)
    assert np.array_equal(more.block(STREAM + 2000, 2 * STREAM + 3000), whole[: STREAM + 1000])


def test_cloud_is_normal_and_its_streams_are_independent():
    cloud = Cloud((), 2 * STREAM, {"w": 2.0, "e": 0.5}, seed=2**40)
    assert cloud.names == ("w", "e")
    z = all_of(cloud) / [2.0, 0.5]
    assert kstest(z.ravel(), "norm").pvalue > 1e-3
    columns = np.column_stack([z[:STREAM], z[STREAM:]])
    assert np.abs(np.corrcoef(columns.T) - np.eye(4)).max() < 5 / STREAM**0.5
    other = Cloud((), 2 * STREAM, {"w": 2.0, "e": 0.5}, seed=0)
    assert not np.intersect1d(all_of(other), all_of(cloud)).size


def test_wilson_interval_is_scipys():
    k, n = np.array([0, 1, 50, 99, 100, 7]), np.array([100, 100, 100, 100, 100, 7])
    low, high = wilson_interval(k, n)
    for i in range(len(k)):
        expected = binomtest(int(k[i]), int(n[i])).proportion_ci(method="wilson")
        assert (low[i], high[i]) == pytest.approx((expected.low, expected.high), abs=1e-14)


EVERY_MODEL = [
    ModelSpec.first("canonical"),
    ModelSpec.first("uniform", length=4),
    ModelSpec.first("untied"),
    ModelSpec.first("rank-one", length=2),
    ModelSpec.first("rank-one", length=2, attention=True, tied=False),
]


@pytest.mark.parametrize("spec", EVERY_MODEL, ids=lambda spec: f"{spec.name} {spec.get('bias')}")
def test_every_model_takes_a_cloud_at_several_sigma(spec):
    model = spec.build()
    names = model.coordinates
    starts = Cloud(names[:2], 1, (0.3, 0.9), dict.fromkeys(names[2:], 0.25), seed=1)
    record = scan_basins(model, starts, rtol=1e-4)
    assert record["label"].dims == ("sigma", "sample")
    assert record["share"].dims == ("sigma", "basin")
    assert record["sigma"].to_numpy().tolist() == [0.3, 0.9]
    assert {f"limit_{name}" for name in names} <= set(record)
    assert {f"drift_{name}" for name in conserved_names(model)} <= set(record)
    assert int(record["count"].sum()) == 2
    rows = np.column_stack([record[f"start_{name}"].to_numpy().ravel() for name in names[:2]])
    assert np.array_equal(rows, all_of(starts)[:, :2])


def test_canonical_starts_are_lifted_to_the_rank_one_model():
    model = ModelSpec.first("rank-one", length=2, attention=True).build()
    rows = torch.tensor([[0.3, -0.7, 0.5]], dtype=torch.float64)
    lifted = to_model(model, ("e", "w", "a"), rows)
    assert lifted.shape == (1, len(model.coordinates))
    assert torch.allclose(model.to_canonical(lifted), rows)
    shuffled = to_model(model, ("a", "b", "w", "e"), torch.tensor([[0.5, 9.0, -0.7, 0.3]]).double())
    assert shuffled[0, model.coordinates.index("b")] == 9
    assert torch.allclose(model.to_canonical(shuffled), rows)
    assert starting_coordinates(model, model.coordinates) == model.coordinates
    with pytest.raises(InputError, match="together be"):
        starting_coordinates(model, ("e", "w"))


@pytest.mark.parametrize("spec", EVERY_MODEL, ids=str)
def test_a_spec_survives_its_settings(spec):
    assert spec_of(spec.settings()) == spec
