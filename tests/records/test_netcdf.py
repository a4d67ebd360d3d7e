"""Records on disk: what is written is what xarray writes, whole and together, or not at all."""

import numpy as np
import pytest
import xarray as xr
from recorded import RECORDS

from flowsim import InputError
from flowsim.records.attributes import described
from flowsim.records.netcdf import (
    check_output,
    read_record,
    write_atomically,
    write_record,
    write_together,
)


def test_round_trip_keeps_everything(tmp_path):
    record = RECORDS["portrait"]
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


def writer(text):
    return lambda path: path.write_text(text)


def test_files_appear_together(tmp_path):
    a, b = tmp_path / "a.txt", tmp_path / "b.txt"
    write_together([(a, writer("one")), (b, writer("two"))])
    assert (a.read_text(), b.read_text()) == ("one", "two")
    assert sorted(tmp_path.iterdir()) == [a, b]


@pytest.mark.parametrize("bad", ["a.txt", "b.txt"])
@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_a_failure_leaves_neither_and_what_was_there_as_it_was(tmp_path, bad, there, error):
    def failing(path):
        path.write_text("half")
        raise error

    paths = [tmp_path / name for name in ("a.txt", "b.txt")]
    if there:
        for path in paths:
            path.write_text(f"old {path.name}")
    before = {path.name: path.read_text() for path in tmp_path.iterdir()}
    said = f"cannot write .*{bad}.*No space left" if isinstance(error, OSError) else None
    with pytest.raises((KeyboardInterrupt, InputError), match=said):
        write_together([(path, failing if path.name == bad else writer("new")) for path in paths])
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == before


def test_long_names(tmp_path):
    path = tmp_path / ("n" * 251 + ".txt")
    check_output(path, "--out", (".txt",), False)
    write_atomically(path, writer("text"))
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(InputError, match=r"--out: .*too long"):
        check_output(tmp_path / ("n" * 252 + ".txt"), "--out", (".txt",), False)
