"""``flowsim scan --refine K``: the boundary in the record of a scan, and in its figure."""

import tracemalloc
from contextlib import nullcontext

import numpy as np
import pytest
import torch

from flowsim import BinaryChain, Grid, InputError, Label, ModelSpec, read_record, refine_boundary
from flowsim.boundary import add_boundary
from flowsim.boundary.in_record import refine_scan
from flowsim.models import CanonicalModel, reaches_global_minimum
from flowsim.scan import Scan, cell_centres, write_scan

CHAIN = ["--p", "0.5", "--q", "0.8"]
SCAN = ["scan", "--out", "scan.nc"]


def test_a_scan_that_stopped_before_its_boundary_is_completed(flowsim, tmp_path, monkeypatch):
    words = [*SCAN, *CHAIN, "--grid", "6x6", "--refine", "2", "--confirm", "0"]

    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("flowsim.boundary.refine.crossed_cells", stop)
        code, out, err = flowsim(*words)
        assert (code, out) == (130, "")
        assert "the scan is whole in 'scan.nc'" in err and "--resume" in err
        scan = (tmp_path / "scan.nc").read_bytes()
    assert "boundary_e" not in read_record(tmp_path / "scan.nc", "scan")
    with monkeypatch.context() as patch:  # while the longer record is written
        patch.setattr("flowsim.records.netcdf.append_checksum", stop)
        assert flowsim(*words, "--resume")[0] == 130
    assert (tmp_path / "scan.nc").read_bytes() == scan
    assert [path.name for path in tmp_path.iterdir()] == ["scan.nc"]
    assert flowsim(*words, "--resume", "--quiet") == (0, "", "")
    resumed = (tmp_path / "scan.nc").read_bytes()
    assert flowsim(*words, "--overwrite", "--quiet") == (0, "", "")
    assert (tmp_path / "scan.nc").read_bytes() == resumed


def test_the_record_on_disk_gets_what_the_one_in_memory_gets(tmp_path):
    spec = ModelSpec.first("canonical")
    axes = {"e": cell_centres(-2, 2, 12), "w": cell_centres(-2, 2, 13)}
    path = write_scan(Scan(spec, Grid(axes)), tmp_path / "a.nc")
    model, asked, told = spec.build(), [], []

    def progress(more):
        asked.append(more)
        return nullcontext(told.append)

    expected = add_boundary(read_record(path, "scan"), model, 3)
    refine_scan(path, model, 3, None, 1e-12, progress)
    found = read_record(path, "scan")
    assert found.drop_attrs().identical(expected.drop_attrs())
    for name in found.attrs:
        assert np.array_equal(found.attrs[name], expected.attrs[name]), name
    new = found.attrs["refine_evaluated"] - found["label"].size
    assert sum(told) == new + found.attrs["refine_bisected"]
    assert 0.4 * asked[0] < sum(told) < asked[0]
    refine_scan(path, model, 3, None, 1e-12, progress)  # has nothing left to do
    assert len(asked) == 1
    with pytest.raises(InputError, match="refined 3 times"):
        refine_scan(path, model, 2, None, 1e-12, progress)


@pytest.mark.slow
@pytest.mark.turns
def test_memory_is_as_stated():
    """54 bytes for every start of the scan, and some forty mebibytes for its blocks."""
    model, size = CanonicalModel(BinaryChain(0.5, 0.8)), 1500
    axes = {"e": cell_centres(-3, 3, size), "w": cell_centres(-3, 3, size)}
    theta = torch.from_numpy(np.stack(np.meshgrid(*axes.values(), indexing="ij"), axis=-1))
    inside = reaches_global_minimum(model.chain, theta).numpy()
    labels = np.where(inside, Label.GLOBAL_MINIMUM, Label.LOCAL_MINIMUM).astype(np.int8)
    del theta, inside
    tracemalloc.start()
    try:
        refine_boundary(model, axes, levels=1, labels=labels)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 64 * size**2 + 48 * 2**20
