"""``flowsim compare``: its starts, what it writes and draws, and what it refuses."""

import json

import numpy as np
import pytest
import torch
import xarray as xr
from command import assert_refused, run

from flowsim import BinaryChain, read_record, write_record
from flowsim.errors import InputError
from flowsim.labels import Label
from flowsim.records.attributes import provenance
from flowsim.records.netcdf import flags
from full_model import cloud_points, grid_points, stored_points

CHAIN = BinaryChain(0.5, 0.8)
SMALL = ["compare", "--p", "0.5", "--q", "0.8", "--grid", "2x3", "--d", "2", "--length", "3"]


def test_starts(tmp_path):
    grid = grid_points(3, 2, {"w": (-3, 3), "e": (0, 2)})
    assert grid.tolist() == [[0.5, -2], [0.5, 0], [0.5, 2], [1.5, -2], [1.5, 0], [1.5, 2]]
    cloud = cloud_points(2000, 0.3, 4)
    assert cloud.std().item() == pytest.approx(0.3, rel=0.05)
    assert torch.equal(cloud, cloud_points(2000, 0.3, 4))
    attrs = provenance({"kind": "scan", "p": 0.5, "q": 0.8})
    found = {"label": ((), 1, flags(Label))}
    axes = {"e": [0.5, 1.5], "w": [-2.0, 0, 2]}
    write_record(xr.Dataset(found, axes, attrs), tmp_path / "g.nc")
    points, chain = stored_points(tmp_path / "g.nc", None, 8, 4)
    assert torch.equal(points, grid) and chain == CHAIN
    rows = found | {name: ("point", grid[:, i].numpy()) for i, name in enumerate("ew")}
    write_record(xr.Dataset(rows, {"a": 0.5}, attrs=attrs | {"length": 8}), tmp_path / "r.nc")
    points, _ = stored_points(tmp_path / "r.nc", CHAIN, 8, 4, 3)
    assert torch.equal(points[:, :2], grid) and (points[:, 2] == 0.5).all()
    for change, arguments in (
        ("not of", (tmp_path / "r.nc", BinaryChain(0.5, 0.7), 8, 4, 3)),
        ("length = 8", (tmp_path / "r.nc", CHAIN, 9, 4, 3)),
        ("attention", (tmp_path / "r.nc", CHAIN, 8, 4)),
        ("no coordinate a", (tmp_path / "g.nc", CHAIN, 8, 4, 3)),
    ):
        with pytest.raises(InputError, match=change):
            stored_points(*arguments)
    untied = {"coordinates": ["e", "u", "w"]}
    write_record(xr.Dataset(rows, {"u": 0.5}, attrs=attrs | untied), tmp_path / "u.nc")
    with pytest.raises(InputError, match="also have the coordinate u"):
        stored_points(tmp_path / "u.nc", CHAIN, 8, 4)
    nothing = xr.Dataset(found, {"e": np.zeros(0), "w": np.zeros(0)}, attrs)
    write_record(nothing, tmp_path / "n.nc")
    with pytest.raises(InputError, match="no point"):
        stored_points(tmp_path / "n.nc", CHAIN, 8, 4)
    write_record(nothing.assign_attrs(schema=99), tmp_path / "o.nc")
    with pytest.raises(InputError, match="of schema 3"):
        stored_points(tmp_path / "o.nc", CHAIN, 8, 4)


@pytest.mark.slow
def test_the_command(tmp_path):
    done = run(*SMALL, "--out", "x.png", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert {"agreement", "different_starts", "confusion", "unresolved_outcomes"} <= set(summary)
    assert "agreement_interval" not in summary and summary["different_starts"] == 3
    assert sum(n for row in summary["confusion"].values() for n in row.values()) == 6
    record = read_record(tmp_path / "x.nc", "comparison")
    assert record.attrs["d"] == 2 and set(record.coords) >= {"e", "w", "time"}
    assert (tmp_path / "x.png").stat().st_size > 3000
    assert_refused(run(*SMALL, "--out", "x.png", cwd=tmp_path), "--overwrite")
    again = run("compare", "--points", "x.nc", "--d", "2", "--length", "3", "--out", "y.svg",
                "--horizon", "0.5", "--require", "0.5", cwd=tmp_path)  # fmt: skip
    assert again.returncode == 4, again.stderr
    assert "<svg" in (tmp_path / "y.svg").read_text()[:2000]
    assert_refused(run("compare", "--points", "x.nc", "--length", "4", cwd=tmp_path), "length = 3")
