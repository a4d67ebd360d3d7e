"""The script of the square of chains, run small."""

import json

import chain_square as script
import xarray as xr


def test_shares_over_the_square(tmp_path):
    assert script.main(["--out", str(tmp_path), "--chains", "3", "--starts", "16"]) == 0
    assert (tmp_path / "chain_square.png").stat().st_size < 300_000
    found = json.loads((tmp_path / "chain_square.json").read_text())
    assert found["starts"] == 16
    for case in found["cases"].values():
        assert case["unresolved"] == 0
        assert case["p + q < 1"]["max"] < case["p + q > 1"]["min"]
    assert found["cases"]["rank-one, N = 8"]["p + q < 1"]["max"] == 0
    exact = found["canonical, by the integral"]
    record = xr.load_dataset(tmp_path / "chain_square.nc")
    assert record.attrs["command"].endswith("chain_square.py --overwrite --chains 3 --starts 16")
    assert record.attrs["commit"]
    assert 0 < exact["p + q < 1"] < 0.2 and 0.6 < exact["p + q > 1"] < 0.7
