"""``flowsim scan``, its boundary by ``--refine``, and the drawing of its records."""

import json
import sys
import tracemalloc
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from command import assert_refused

from flowsim import BinaryChain, Grid, InputError, Label, ModelSpec, read_record, refine_boundary
from flowsim.boundary import add_boundary
from flowsim.boundary.in_record import refine_scan
from flowsim.cli.output import neutral_command
from flowsim.models import CanonicalModel, reaches_global_minimum
from flowsim.scan import Scan, cell_centres, write_scan

CHAIN = ["--p", "0.5", "--q", "0.8"]
SCAN = ["scan", "--out", "scan.nc"]


def test_a_grid_from_the_command_line(flowsim, tmp_path):
    grid = ["--grid", "9x8", "--e-range", "0", "2", "--confirm", "4"]
    code, out, err = flowsim(*SCAN, *CHAIN, *grid, "--json")
    assert (code, err) == (0, "")
    summary = json.loads(out)
    assert summary["points"] == 72
    assert summary["dimensions"] == {"e": 9, "w": 8}
    assert summary["global_minimum"] + summary["local_minimum"] == 72
    assert list(summary["basins"]["global_minimum"]) == ["fraction"]  # a grid is not random
    assert summary["largest_drift_energy"] < 1e-8
    record = read_record(tmp_path / "scan.nc", "scan")
    assert np.allclose(record["e"][[0, -1]], [1 / 9, 2 - 1 / 9])
    assert np.allclose(record["w"][[0, -1]], [-2.625, 2.625])
    command = "flowsim scan --p 0.5 --q 0.8 --grid 9x8 --window=e=0:2 --confirm 4"
    assert record.attrs["command"] == command
    assert [path.name for path in tmp_path.iterdir()] == ["scan.nc"]
    assert_refused(flowsim(*SCAN, *CHAIN, *grid), "scan.nc", "--overwrite")


def test_what_changes_no_result_leaves_no_trace_in_the_record(flowsim, tmp_path):
    grid = [*SCAN, *CHAIN, "--grid", "5x4", "--confirm", "2"]
    assert flowsim(*grid)[0] == 0
    code, out, _ = flowsim(*grid, "--out=b.nc", "--resume", "--jobs", "1", "--quiet")
    assert (code, out) == (0, "")
    assert (tmp_path / "b.nc").read_bytes() == (tmp_path / "scan.nc").read_bytes()
    assert_refused(flowsim(*grid, "--fraction", "0.5", "--resume"), "fraction: none, now 0.5")


def test_bad_minima_that_the_whole_transformer_leaves_are_said_to_be_saddles(flowsim, tmp_path):
    grid, words = ["--grid", "4x4", "--confirm", "0"], "minima of this model alone"
    _, out, _ = flowsim(*SCAN, "--p", "0.2", "--q", "0.3", *grid)
    assert words in out and words in flowsim("info", "scan.nc", "--json")[1]
    assert words not in flowsim("scan", "--out=b.nc", *CHAIN, *grid)[1]


def test_chains_and_spreads(flowsim, tmp_path):
    words = ["--p", "0.2:0.6:3", "--q", "0.3", "--cloud", "5", "--sigma", "0.5:1.5:2"]
    code, out, _ = flowsim(*SCAN, *words, "--model", "linear", "--seed", "4", "--confirm", "2")
    assert code == 0
    assert "q = 0.3" in out
    record = read_record(tmp_path / "scan.nc", "scan")
    assert np.allclose(record["p"], [0.2, 0.4, 0.6])
    assert np.allclose(record["sigma"], [0.5, 1.5])
    assert record["limit_a"].shape == (3, 2, 5)


def test_a_map_over_two_arguments_is_drawn(flowsim, tmp_path):
    words = ["--p", "0.2:0.6:3", "--q", "0.3:0.9:3", "--cloud", "4", "--sigma", "1"]
    assert flowsim(*SCAN, *words, "--confirm", "0", "--quiet") == (0, "", "")
    code, out, err = flowsim("portrait", "--from", "scan.nc", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["figure"] == "scan.png"
    picture = (tmp_path / "scan.png").read_bytes()
    assert picture.startswith(b"\x89PNG") and len(picture) > 3000


def test_the_command_of_a_record(monkeypatch):
    words = ["scan", "--p", "0.5", "--jobs", "2", "--out=x.nc", "--resume", "--w-range", "-1", "1"]
    monkeypatch.setattr(sys, "argv", ["/usr/bin/flowsim", *words])
    assert neutral_command() == "flowsim scan --p 0.5 --window=w=-1:1"


def test_several_lengths_are_drawn_against_n_or_over_p_and_n(flowsim, tmp_path):
    words = ["scan", "--q", "0.8", "--model", "uniform", "--grid", "2x2", "--fix", "a=0.5"]
    code, out, _ = flowsim(*words, "--p", "0.5", "--length", "2:8:3", "--confirm", "0")
    assert code == 0
    assert "bias = optimal, p = 0.5, q = 0.8" in out and "N =" not in out
    name = "scan_uniform_N2to8_a0.5_p0.5_q0.8_grid2x2"
    assert read_record(tmp_path / f"{name}.nc")["length"].to_numpy().tolist() == [2, 5, 8]
    more = ["--p", "0.3:0.6:2", "--length", "2:7:3", "--confirm", "0", "--out", "map.nc"]
    assert flowsim(*words, *more)[0] == 0
    for stem in (name, "map"):
        code, _, err = flowsim("portrait", "--from", f"{stem}.nc", "--out", f"{stem}.svg")
        assert (code, err) == (0, "")
        assert "positions" in (tmp_path / f"{stem}.svg").read_text()


def test_a_scan_that_stopped_before_its_boundary_is_completed(flowsim, tmp_path, monkeypatch):
    words = [*SCAN, *CHAIN, "--grid", "6x6", "--refine", "2", "--confirm", "0"]

    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("flowsim.boundary.refine.crossed_cells", stop)
        code, out, err = flowsim(*words)
        assert (code, out) == (130, "")
        assert "the scan is whole in 'scan.nc'" in err and "--resume" in err
        scan = (tmp_path / "scan.nc").read_bytes()
    assert "boundary_e" not in read_record(tmp_path / "scan.nc", "scan")
    with monkeypatch.context() as patch:  # while the longer record is written
        patch.setattr("flowsim.records.netcdf.append_checksum", stop)
        assert flowsim(*words, "--resume")[0] == 130
    assert (tmp_path / "scan.nc").read_bytes() == scan
    assert [path.name for path in tmp_path.iterdir()] == ["scan.nc"]
    assert flowsim(*words, "--resume", "--quiet") == (0, "", "")
    resumed = (tmp_path / "scan.nc").read_bytes()
    assert flowsim(*words, "--overwrite", "--quiet") == (0, "", "")
    assert (tmp_path / "scan.nc").read_bytes() == resumed


def test_the_record_on_disk_gets_what_the_one_in_memory_gets(tmp_path):
    spec = ModelSpec.first("canonical")
    axes = {"e": cell_centres(-2, 2, 12), "w": cell_centres(-2, 2, 13)}
    path = write_scan(Scan(spec, Grid(axes)), tmp_path / "a.nc")
    model, asked, told = spec.build(), [], []

    def progress(more):
        asked.append(more)
        return nullcontext(told.append)

    expected = add_boundary(read_record(path, "scan"), model, 3)
    refine_scan(path, model, 3, None, 1e-12, progress)
    found = read_record(path, "scan")
    assert found.drop_attrs().identical(expected.drop_attrs())
    for name in found.attrs:
        assert np.array_equal(found.attrs[name], expected.attrs[name]), name
    new = found.attrs["refine_evaluated"] - found["label"].size
    assert sum(told) == new + found.attrs["refine_bisected"]
    assert 0.4 * asked[0] < sum(told) < asked[0]
    refine_scan(path, model, 3, None, 1e-12, progress)  # has nothing left to do
    assert len(asked) == 1
    with pytest.raises(InputError, match="refined 3 times"):
        refine_scan(path, model, 2, None, 1e-12, progress)


@pytest.mark.slow
@pytest.mark.turns
def test_memory_is_as_stated():
    """54 bytes for every start of the scan, and some forty mebibytes for its blocks."""
    model, size = CanonicalModel(BinaryChain(0.5, 0.8)), 1500
    axes = {"e": cell_centres(-3, 3, size), "w": cell_centres(-3, 3, size)}
    theta = torch.from_numpy(np.stack(np.meshgrid(*axes.values(), indexing="ij"), axis=-1))
    inside = reaches_global_minimum(model.chain, theta).numpy()
    labels = np.where(inside, Label.GLOBAL_MINIMUM, Label.LOCAL_MINIMUM).astype(np.int8)
    del theta, inside
    tracemalloc.start()
    try:
        refine_boundary(model, axes, levels=1, labels=labels)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 64 * size**2 + 48 * 2**20
