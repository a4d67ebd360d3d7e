"""The map of traps: what theory says of its corners, and the files that the script leaves."""

import json
from importlib import import_module

import pytest
import torch
import xarray as xr

from full_model import Architecture


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The folder of a small map."""
    folder = tmp_path_factory.mktemp("map")
    arguments = ["--draws", "20", "--widest", "3", "--runs", "3", "--steps", "200"]
    arguments += ["--out", str(folder)]
    script = import_module("trap_map")
    assert script.main(arguments) == 0
    assert script.main(arguments) == 2  # nothing is overwritten
    return folder


@pytest.mark.slow
def test_small_weights_trap_above_one_and_nowhere_below(made):
    record = xr.load_dataset(made / "trap_map.nc")
    share = record.trapped / 20
    small = share.isel(scale=slice(0, 6))  # s of at most 0.1
    assert (small.isel(chain=0).fillna(1) == 1).all()
    assert (small.isel(chain=1).fillna(0) == 0).all()
    wide = share.sel(layout="own").isel(scale=-1, d=2, rank=2)
    assert (wide > 0.8).all()  # positions far apart trap on both sides


def test_low_rank_never_traps_below_one_with_equal_positions(made):
    found = json.loads((made / "trap_map.json").read_text())
    line = found["p + q < 1, equal positions, rank < d"]
    assert line == {"draws": 3 * 21 * 20, "trapped": 0}
    assert found["p = 0.5, q = 0.8; equal"]["d = 3"][0]["share"] == 1


def test_no_descent_contradicts_the_sign(made):
    found = json.loads((made / "trap_map.json").read_text())
    lines = {k: v for k, v in found.items() if "descent" in k}
    assert sum(line["runs"] for line in lines.values()) == 2 * 4 * 3
    for case, line in lines.items():
        assert line["leave" if case.endswith("trap") else "stay"] == 0, case
    assert sum(line["leave"] + line["stay"] for line in lines.values()) > 3


def test_the_figure(made):
    image = (made / "trap_map.png").read_bytes()
    assert image.startswith(b"\x89PNG") and len(image) < 300_000


@pytest.mark.parametrize("rank", [1, 2, 4])
def test_draws_have_their_rank_and_scale(rank):
    script, generator = import_module("trap_map"), torch.Generator().manual_seed(0)
    weights = script.random_weights(Architecture(4, 16), "equal", 0.3, rank, 500, generator)
    for name in ("0.up", "0.down"):
        assert (torch.linalg.matrix_rank(weights[name]) == rank).all()
        assert float(weights[name].square().mean().sqrt()) == pytest.approx(0.3, rel=0.02)
    assert (weights["positions"].std(-2) < 1e-12).all()
