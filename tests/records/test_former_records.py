"""Records of flowsim 0.1.0 open as records of the present schema."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from command import run

import flowsim
from flowsim.models.catalogue import model_of
from flowsim.records import trial
from flowsim.records.netcdf import open_record
from flowsim.scan.points import Points

FORMER = Path(__file__).parents[1] / "data" / "0.1.0"
#: What is stored, with its kind and the model that it is of.
KINDS = {
    "portrait": ("portrait", "CanonicalModel(p=0.5, q=0.8)"),
    "phase_space": ("phase space", "AttentionModel(p=0.2, q=0.3, length=4)"),
    "scan_grid": ("scan", "CanonicalModel(p=0.5, q=0.8)"),
    "scan_refined": ("scan", "CanonicalModel(p=0.5, q=0.8)"),
    "scan_cloud": ("scan", "RankOneModel(p=0.2, q=0.5, length=3)"),
    "gaussian": ("gaussian", "CanonicalModel(p=0.5, q=0.8)"),
    "comparison": ("comparison", "CanonicalModel(p=0.5, q=0.8)"),
    "training": ("training", None),
}


@pytest.fixture(scope="module", params=KINDS)
def stored(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("former") / f"{request.param}.nc"
    path.write_bytes(gzip.decompress((FORMER / f"{request.param}.nc.gz").read_bytes()))
    return path


@pytest.fixture(scope="module")
def record(stored):
    """Read once: a file without a seal is first read by a process of its own."""
    return flowsim.read_record(stored)


def test_every_former_record_opens_and_says_its_model(stored, record):
    kind, model = KINDS[stored.stem]
    assert (record.attrs["kind"], record.attrs["schema"]) == (kind, 2)
    if model is not None:
        p = None if "p" in record.attrs else 0.2
        assert repr(model_of(record.attrs, p=p)) == model
    if kind == "scan":
        names = ["unresolved", "global_minimum", "local_minimum", "saddle"]
        assert record["basin"].to_numpy().tolist() == names
        reached = int(record["count"].sel(basin="global_minimum").sum())
        assert reached == record.attrs["points_global_minimum"] > 0
        with open_record(stored, "scan") as lazy:
            assert lazy["basin"].to_numpy().tolist() == names


def test_the_command_line_says_that_changes_cannot_be_told(stored, record, tmp_path):
    code, stdout, stderr = run("info", stored.name, cwd=stored.parent)
    assert code == 0 and stdout
    assert stderr == (
        f"flowsim: '{stored.name}' is a record of flowsim 0.1.0, without a digest: whether it was "
        "changed since then cannot be told\n"
    )
    flowsim.write_record(record, tmp_path / stored.name)
    assert run("info", stored.name, cwd=tmp_path).stderr == ""


def test_a_former_record_written_again_is_a_present_one(record, tmp_path):
    flowsim.write_record(record, tmp_path / "a.nc")
    again = flowsim.read_record(tmp_path / "a.nc")
    assert set(again.variables) == set(record.variables)
    for name in record.variables:
        assert np.array_equal(again[name], record[name], equal_nan=again[name].dtype.kind == "f")
    assert {**record.attrs}.keys() <= again.attrs.keys()


def test_every_former_record_is_drawn_and_summarized(record, tmp_path):
    figure = flowsim.draw(record)
    figure.savefig(tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 1000
    json.dumps(flowsim.summarize(record))


def test_a_file_on_which_its_reader_hangs_is_refused(tmp_path, monkeypatch):
    """HDF5 never ends on these zeros among the names; no seal says that they are damage."""
    content = bytearray(gzip.decompress((FORMER / "scan_grid.nc.gz").read_bytes()))
    content[2823:3335] = bytes(512)
    path = tmp_path / "a.nc"
    path.write_bytes(content)
    monkeypatch.setattr(trial, "SECONDS", 2.0)
    with pytest.raises(flowsim.InputError, match="did not end within 2 s") as found:
        flowsim.read_record(path)
    assert str(path) in str(found.value)
    with pytest.raises(flowsim.InputError, match=r"cannot be read as points.* did not end"):
        Points.read(path, ["e", "w"])
