"""The script of first weights: one cell at a tiny size, kept and taken up again."""

from importlib import import_module

import numpy as np
import pytest
import xarray as xr

from flowsim.errors import InputError


def test_a_cell_is_trained_once(tmp_path, monkeypatch):
    script, papers = import_module("first_weights"), import_module("papers")
    with papers.parts_in(tmp_path / "parts"):
        found = script.cell("d = 4", "descent", "p + q > 1", 2, 250)
        monkeypatch.setattr(script, "followed", None)
        again = script.cell("d = 4", "descent", "p + q > 1", 2, 250)
    np.testing.assert_array_equal(again, found)
    balanced, gaussian = map(script.STARTS.index, ("balanced", "Gaussian 0.02"))
    assert (found[0, balanced] < 0.05).all() and (found[1, balanced] <= 250).all()
    assert (found[0, gaussian] > 0.95).all() and np.isnan(found[1, gaussian]).all()


def test_arrival_is_where_a_run_stays():
    lines = np.array([[0.9, 0.01, 0.9], [0.01, 0.01, 0.01], [0.01, 0.01, 0.9]])
    found = import_module("first_weights").arrived(lines, np.array([0, 10, 20]))
    np.testing.assert_array_equal(found, [10, 0, np.nan])


def test_kept_variations_are_not_trained_again(tmp_path, monkeypatch):
    script = import_module("first_weights")
    trained = []

    def cell(variation, trainer, chain, seeds, steps):
        trained.append(variation)
        return np.full((2, len(script.STARTS), seeds), len(trained))

    monkeypatch.setattr(script, "cell", cell)
    monkeypatch.setattr(script, "VARIATIONS", {"base": {}, "wide": {}})
    path = tmp_path / "kept.nc"
    before = script.compute(2, 10).assign_attrs(sizes='{"seeds": 2, "steps": 10}')
    before.commit.values[:] = "the first"
    before.to_netcdf(path, engine="h5netcdf")
    monkeypatch.setattr(script, "VARIATIONS", {"base": {}, "much deeper": {}, "wide": {}})
    trained.clear()
    found = script.compute(2, 10, str(path))
    assert trained == ["much deeper"] * 4
    found.to_netcdf(tmp_path / "all.nc", engine="h5netcdf")
    with xr.open_dataset(tmp_path / "all.nc", engine="h5netcdf") as found:
        found = found.load()
    assert [*found.variation.values] == ["base", "much deeper", "wide"]
    assert [commit == "the first" for commit in found.commit.values] == [True, False, True]
    np.testing.assert_array_equal(found.open_share[[0, 2]], before.open_share)
    with pytest.raises(InputError, match="other sizes"):
        script.compute(3, 10, str(path))
