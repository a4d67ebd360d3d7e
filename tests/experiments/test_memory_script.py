"""The script of memory of one sign, at a tiny size."""

import json
from importlib import import_module

import pytest
import xarray as xr


@pytest.mark.slow
def test_every_source_and_mixer_is_trained_and_counted(tmp_path):
    script = import_module("memory")
    options = ["--seeds", "2", "--steps", "3", "--cells", "2", "--descent", "200"]
    assert script.main(["--out", str(tmp_path), *options]) == 0
    found = json.loads((tmp_path / "memory.json").read_text())
    assert len(found["training"]) == 3 * (2 * len(script.MIXERS) - 1)
    assert all(sum(list(line.values())[:4]) == 4 for line in found["lifted"].values())
    record = xr.load_dataset(tmp_path / "memory.nc")
    assert float(record.lifted_loss.min()) > 0.6
    assert (tmp_path / "memory.png").stat().st_size < 300_000
