"""The scripts of the ladder and of the four starts, at tiny sizes."""

import json
from importlib import import_module

import numpy as np
import pytest
import xarray as xr


@pytest.mark.slow
def test_the_ladder_is_followed_trained_and_counted(tmp_path, monkeypatch):
    script = import_module("ladder")
    monkeypatch.setattr(script, "CASES", ((0.5, 0.8, 4), (0.9, 0.9, 3)))
    for name, value in (("WHOLE_D", 4), ("WHOLE_LENGTH", 3), ("RUNG_LENGTH", 3)):
        monkeypatch.setattr(script, name, value)
    options = ["--out", str(tmp_path), "--seeds", "16", "--horizon", "10"]
    assert script.main(options) == 0
    assert script.main(options) == 2
    found = json.loads((tmp_path / "ladder.json").read_text())
    for line, count in zip(found["cases"].values(), (3, 2), strict=True):
        assert line["keep_k"] == line["full_keep_k"] == line["orbits"] == count
        assert 0 < line["end_off"][0] < line["end_off"][1] < 0.01
        assert np.abs(line["plateau_off"]).max() < 0.03
    assert found["attention on the manifold"]["orbits"] == 12
    assert all(sum(line["count"]) == 16 for line in found["rungs"])
    record = xr.load_dataset(tmp_path / "ladder.nc")
    assert record.attrs["command"].endswith("--seeds 16 --horizon 10.0")
    assert (tmp_path / "ladder.png").stat().st_size < 300_000


@pytest.mark.slow
def test_four_starts_are_compared(tmp_path):
    script = import_module("balanced_start")
    sizes = ["--seeds", "2", "--steps", "20", "--descent-steps", "300"]
    assert script.main(["--out", str(tmp_path), *sizes]) == 0
    found = json.loads((tmp_path / "balanced_start.json").read_text())
    gradient_descent = "population gradient descent, d = 8, N = 6"
    assert found[f"{gradient_descent}; balanced; p = 0.5, q = 0.8"]["bigram"] == 2
    assert found[f"{gradient_descent}; gaussian; p = 0.5, q = 0.8"]["unigram"] == 2
    assert len(found) == 2 + 3 * 4 * 4
    assert (tmp_path / "balanced_start.png").stat().st_size < 300_000
