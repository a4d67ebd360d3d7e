"""``flowsim scan --refine K``: the boundary in the record of a scan, and in its figure."""

import json

import numpy as np
import pytest
from matplotlib.image import imread

from flowsim import (
    BinaryChain,
    CanonicalModel,
    read_record,
    refine_boundary,
    refined_labels,
)

CHAIN = ["--p", "0.5", "--q", "0.8"]


def test_the_record_of_a_scan_holds_the_refined_boundary(flowsim, tmp_path):
    words = ["scan", *CHAIN, "--grid", "11x12", "--refine", "3"]
    code, out, err = flowsim(*words, "--json")
    assert (code, err) == (0, "")
    summary = json.loads(out)
    assert summary["points"] == 132
    assert summary["refine_full"] == 81 * 89
    assert summary["refine_evaluated"] < 0.25 * summary["refine_full"]
    assert summary["refine_distance"] <= 0.5 + 1e-6
    assert summary["refine_missed"] <= 1
    assert summary["refine_disagree"] == 0
    record = read_record(tmp_path / "scan.nc", "scan")
    axes = {name: record[name].to_numpy() for name in "ew"}
    alone = refine_boundary(CanonicalModel(BinaryChain(0.5, 0.8)), axes, levels=3)
    assert np.array_equal(refined_labels(record), refined_labels(alone))
    assert record["boundary_e"].equals(alone["boundary_e"])

    before = (tmp_path / "scan.nc").read_bytes()
    assert flowsim(*words, "--resume", "--quiet") == (0, "", "")
    assert (tmp_path / "scan.nc").read_bytes() == before
    assert flowsim(*words, "--overwrite", "--quiet") == (0, "", "")
    assert (tmp_path / "scan.nc").read_bytes() == before
    code, _, err = flowsim("scan", *CHAIN, "--grid", "11x12", "--refine", "2", "--resume")
    assert code == 2
    assert "other settings" in err

    code, out, err = flowsim("portrait", "--from", "scan.nc", "--out", "scan.png")
    assert (code, err) == (0, "")
    assert "boundary: " in out
    picture = imread(tmp_path / "scan.png")[..., :3]
    yellow = np.array([1.0, 0xD4 / 255, 0.0])
    assert (np.abs(picture - yellow).max(axis=-1) < 0.02).sum() > 200


def test_a_scan_that_stopped_before_its_boundary_is_completed(flowsim, tmp_path, monkeypatch):
    words = ["scan", *CHAIN, "--grid", "6x6", "--refine", "2"]

    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("flowsim.boundary.crossed_cells", stop)
        assert flowsim(*words)[0] == 130
    assert "boundary_e" not in read_record(tmp_path / "scan.nc", "scan")
    assert flowsim(*words, "--resume", "--quiet") == (0, "", "")
    interrupted = (tmp_path / "scan.nc").read_bytes()
    assert flowsim(*words, "--overwrite", "--quiet") == (0, "", "")
    assert (tmp_path / "scan.nc").read_bytes() == interrupted


def test_a_surface_is_recorded_and_drawn(flowsim, tmp_path):
    words = ["scan", *CHAIN, "--model", "linear", "--grid", "5x6x6", "--refine", "1"]
    assert flowsim(*words, "--quiet") == (0, "", "")
    assert read_record(tmp_path / "scan.nc", "scan")["boundary_face"].shape[1] == 3
    code, _, err = flowsim("portrait", "--from", "scan.nc")
    assert (code, err) == (0, "")
    assert imread(tmp_path / "scan.png").std() > 0.05


@pytest.mark.parametrize(
    "words",
    [
        ["--grid", "6x6", "--refine", "0"],
        ["--grid", "6x6", "--refine", "many"],
        ["--grid", "6x6", "--refine", "21"],
        ["--grid", "6", "--fix", "e=1", "--refine", "2"],
        ["--grid", "6x1", "--refine", "2"],
        ["--cloud", "9", "--sigma", "1", "--refine", "2"],
        ["--model", "rank-one", "--length", "2", "--grid", "4x4", "--refine", "1"],
    ],
)
def test_what_cannot_be_refined_is_refused_before_anything_is_computed(flowsim, tmp_path, words):
    code, out, err = flowsim("scan", *CHAIN, *words)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert "--refine" in err
    assert list(tmp_path.iterdir()) == []
    code, _, err = flowsim(
        "scan", "--p", "0.4:0.6:3", "--q", "0.8", "--grid", "6x6", "--refine", "2"
    )
    assert code == 2
    assert "at one p and q" in err
