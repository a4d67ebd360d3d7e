"""Damaged, changed and foreign records: refused in one sentence, and never opened by HDF5."""

import random

import h5py
import numpy as np
import pytest
import xarray as xr
from command import assert_refused, run
from fuzz.damage import KINDS, damaged
from recorded import RECORDS

import flowsim
from flowsim.records.netcdf import LENGTH, has_checksum, open_record, write_record
from flowsim.scan.starts import Points


@pytest.fixture
def record():
    return RECORDS["grid"]


@pytest.fixture(scope="module")
def contents(tmp_path_factory):
    """The bytes of two records: of a scan and of starts drawn from a Gaussian."""
    paths = [tmp_path_factory.mktemp("whole") / name for name in ("grid", "gaussian")]
    for path in paths:
        write_record(RECORDS[path.name], path)
    return [path.read_bytes() for path in paths]


@pytest.fixture
def path(tmp_path, contents):
    out = tmp_path / "a.nc"
    out.write_bytes(contents[0])
    return out


def refused(path, *kinds):
    """The sentence with which a file is refused, by all readers."""
    said = set()
    for read in (flowsim.read_record, open_record):
        with pytest.raises(flowsim.InputError) as found:
            read(path, *kinds)
        said.add(str(found.value))
    (sentence,) = said
    assert str(path) in sentence
    assert "\n" not in sentence
    assert len(sentence) < 400
    return sentence


def spoil(contents, path, seed, count):
    """Damaged files are refused, whatever the damage; none is read and on none HDF5 hangs."""
    draw, tried = random.Random(seed), 0
    while tried < count:
        one, other = draw.sample(contents, 2)
        kind = draw.choice([*KINDS, "header"])
        if kind == "header":  # that of another record
            size = draw.randrange(1, 5000)
            found = other[:size] + one[size:]
        else:
            found = damaged(one, kind, draw)
        if found in contents:
            continue
        path.write_bytes(found)
        assert "no valid digest" in refused(path), (seed, kind)
        with pytest.raises(flowsim.InputError, match="no valid digest"):
            Points.read(path, ["e", "w"])
        tried += 1


@pytest.mark.timeout(60)
def test_damaged_records(contents, tmp_path):
    spoil(contents, tmp_path / "a.nc", 1, 100)


@pytest.mark.parametrize("words", [
    ["info"], ["portrait", "--from"], ["scan", "--p", "0.5", "--q", "0.8", "--points"],
    ["scan", "--p", "0.5", "--q", "0.8", "--grid", "4x4", "--resume", "--out"],
])  # fmt: skip
def test_commands_refuse_a_damaged_record(path, contents, words):
    path.write_bytes(contents[0][:-1])
    assert_refused(run(*words, "a.nc", cwd=path.parent), "'a.nc' has no valid digest",
                   "xarray.open_dataset")  # fmt: skip
    assert list(path.parent.iterdir()) == [path]


def test_who_trusts_a_changed_record_opens_it_with_xarray(path, record):
    with h5py.File(path, "r+") as file:
        file.attrs["note"] = "seen"
    assert "xarray.open_dataset" in refused(path)
    changed = xr.open_dataset(path).load()
    assert changed.attrs["note"] == "seen"
    xr.testing.assert_equal(changed, record)
    changed.close()
    changed.to_netcdf(path, engine="h5netcdf")
    assert "xarray.open_dataset" in refused(path)
    write_record(changed, path)
    assert flowsim.read_record(path).attrs["note"] == "seen"


def test_other_programs_read_a_sealed_record(path, record):
    assert has_checksum(path)
    assert path.read_bytes()[-LENGTH:].startswith(b"\nflowsim record, sha256 ")
    xr.testing.assert_equal(xr.load_dataset(path, engine="h5netcdf"), record)


@pytest.mark.parametrize("changes", [{"kind": None}, {"schema": 99}])
def test_another_schema_is_refused_though_the_digest_is_right(record, tmp_path, changes):
    other = record.copy()
    other.attrs = {k: v for k, v in {**record.attrs, **changes}.items() if v is not None}
    write_record(other, tmp_path / "a.nc")
    assert has_checksum(tmp_path / "a.nc")
    assert "is not a flowsim record of schema 3" in refused(tmp_path / "a.nc")


def test_a_record_that_lacks_what_is_drawn_is_refused(record, tmp_path):
    write_record(record.drop_vars("label"), tmp_path / "a.nc")
    done = run("portrait", "--from", "a.nc", cwd=tmp_path)
    assert_refused(done, "'a.nc' cannot be drawn")
    assert [path.name for path in tmp_path.iterdir()] == ["a.nc"]


def test_a_record_of_another_kind_names_both(path):
    assert "not a flowsim portrait or training record" in refused(path, "portrait", "training")
    assert "its kind is scan" in refused(path, "portrait")
    with open_record(path, "scan") as lazy:
        assert lazy.attrs["kind"] == "scan"
        assert np.isin(lazy["label"], range(4)).all()
