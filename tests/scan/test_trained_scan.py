"""Scans by an optimizer: the same bytes whoever computes them, and shares that were measured."""

import numpy as np
import pytest
import torch
from elsewhere import pickled

from flowsim import (
    Grid,
    InputError,
    Label,
    ModelSpec,
    OptimizerChoice,
    find_limits,
    model,
    read_record,
)
from flowsim.scan import Scan, cell_centres, scan_basins, write_scan
from flowsim.training import ReducedTraining

RANK_ONE = ModelSpec.first("rank-one", length=6)
QUICK = OptimizerChoice.named("adamw-papers", steps=60, d=4, nudge=1e-12)
AXES = {"e": cell_centres(-2, 2, 6), "w": cell_centres(-2, 2, 5)}


def test_any_division_of_the_work_gives_the_same_bytes(tmp_path, monkeypatch):
    paths = [tmp_path / name for name in ("one.nc", "two.nc")]
    scan = Scan(RANK_ONE, Grid(AXES), {"q": (0.3, 0.8)}, chunk=7, optimizer=QUICK)
    pickled(monkeypatch)
    for path, jobs in zip(paths, (1, 2), strict=True):
        write_scan(scan, path, jobs=jobs)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    stored = read_record(paths[0])
    for q in (0.3, 0.8):
        reduced = model("rank-one", 0.5, q, length=6)
        whole = scan_basins(reduced, AXES, optimizer=QUICK)
        for name in ("label", "status", "loss", "open_share", "progress", "end_w1"):
            np.testing.assert_array_equal(stored[name].sel(q=q).values, whole[name].values)
    assert stored.attrs["optimizer"] == "adamw" and stored.attrs["steps"] == 60
    assert stored.attrs["nudge"] == 1e-12 and "rtol" not in stored.attrs


def test_what_belongs_to_the_flow_is_refused():
    for options in ({"rtol": 1e-8}, {"fraction": 0.1}, {"integrator": "torchdiffeq"}):
        with pytest.raises(InputError, match="are of the flow"):
            Scan(RANK_ONE, Grid(AXES), optimizer=QUICK, **options)
    with pytest.raises(InputError, match="the canonical model has no batches"):
        scan_basins(model("canonical", 0.5, 0.8), AXES, optimizer=QUICK)


def test_adamw_learns_from_more_starts_than_the_flow():
    """At (0.5, 0.8), N = 16, 4 000 steps: all with w < -0.45 and a fifth of those with w > 0."""
    reduced = model("rank-one", 0.5, 0.8, length=16)
    centres = cell_centres(-2, 2, 10)
    e, w = (torch.from_numpy(v.ravel()) for v in np.meshgrid(centres, centres, indexing="ij"))
    theta = reduced.from_canonical(torch.stack([e, w], -1))
    numbers = {"d": 4, "steps": 4000, "schedule": "constant", "loss": "population"}
    learned = {
        nudge: ReducedTraining(reduced, "adamw-papers", nudge=nudge, **numbers).run(theta).label
        == Label.GLOBAL_MINIMUM
        for nudge in (0.0, 1e-12)
    }
    flow = find_limits(reduced, theta).label == Label.GLOBAL_MINIMUM
    assert not (flow & ~learned[1e-12]).any()
    assert learned[1e-12][w < -0.45].all() and learned[0.0][w < -0.45].all()
    assert not learned[0.0][w > 0].any()
    assert 0.1 < learned[1e-12][w > 0].double().mean() < 0.35
