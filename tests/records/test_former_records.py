"""Records of flowsim 0.1.0 open as records of the present schema."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

import flowsim
from flowsim.models.catalogue import model_of
from flowsim.records.netcdf import open_record

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


@pytest.fixture(params=KINDS)
def stored(request, tmp_path):
    path = tmp_path / f"{request.param}.nc"
    path.write_bytes(gzip.decompress((FORMER / f"{request.param}.nc.gz").read_bytes()))
    return path


def test_every_former_record_opens_and_says_its_model(stored):
    kind, model = KINDS[stored.stem]
    record = flowsim.read_record(stored)
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


def test_a_former_record_written_again_is_a_present_one(stored):
    record = flowsim.read_record(stored)
    flowsim.write_record(record, stored)
    again = flowsim.read_record(stored)
    assert set(again.variables) == set(record.variables)
    for name in record.variables:
        assert np.array_equal(again[name], record[name], equal_nan=again[name].dtype.kind == "f")
    assert {**record.attrs}.keys() <= again.attrs.keys()


def test_every_former_record_is_drawn_and_summarized(stored):
    record = flowsim.read_record(stored)
    figure = flowsim.draw(record)
    figure.savefig(stored.with_suffix(".png"))
    assert stored.with_suffix(".png").stat().st_size > 1000
    json.dumps(flowsim.summarize(record))
