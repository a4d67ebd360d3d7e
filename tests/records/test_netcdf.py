import numpy as np
import pytest
import xarray as xr

from flowsim import BinaryChain
from flowsim import portrait as portrait_record
from flowsim.models import CanonicalModel
from flowsim.records.attributes import described
from flowsim.records.netcdf import read_record, write_record


@pytest.fixture(scope="module")
def record():
    return portrait_record(CanonicalModel(BinaryChain(0.5, 0.8)), resolution=8, confirm=4)


def test_round_trip_keeps_everything(record, tmp_path):
    write_record(record, tmp_path / "a.nc")
    back = read_record(tmp_path / "a.nc", "portrait")
    xr.testing.assert_equal(back, record)
    assert list(back.attrs) == [*record.attrs, "Conventions"]
    assert read_record(str(tmp_path / "a.nc"), "portrait").equals(back)
    assert back["label"].attrs["flag_meanings"].startswith("unresolved global_minimum")
    assert "torchdiffeq" in back.attrs["versions"]


def test_what_is_written_is_what_xarray_itself_writes(tmp_path):
    several = xr.Dataset(
        {
            "label": (("e", "w"), np.arange(6, dtype="i1").reshape(2, 3), {"flag_values": [0, 1]}),
            "lines": (("line", "point"), np.array([[1.5, np.nan, 2.0]]), {"words": ["a", "β"]}),
            "none": (("line", "nothing"), np.zeros((1, 0)), {"long_name": "no values"}),
            "known": ("line", np.array([True])),
            "name": ("w", np.array(["a", "bc", "ζ"])),
            "loss": ((), 0.25),
        },
        {"w": [1.0, 2.0, 3.0], "e": [0.5, 1.5], "held": 2.0, "basin": ("line", ["saddle"])},
        {"kind": "portrait", "schema": 3, "text": "p → q", "several": [1, 2], "number": 0.5},
    )
    write_record(several, tmp_path / "ours.nc")
    theirs = described(several).assign_attrs(Conventions="CF-1.11")
    theirs.to_netcdf(tmp_path / "theirs.nc", engine="h5netcdf")
    ours = read_record(tmp_path / "ours.nc")
    for name in ("ours.nc", "theirs.nc"):
        stored = xr.load_dataset(tmp_path / name, engine="h5netcdf")
        xr.testing.assert_identical(stored, ours)
        assert {n: v.dtype for n, v in stored.variables.items()} == {
            n: v.dtype for n, v in ours.variables.items()
        }
    assert ours.sizes == several.sizes and "held" in ours.coords
