"""AdamW's way out of the unigram: the bound of section 16, and the script at tiny sizes."""

import json
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch
import xarray as xr

from flowsim import BinaryChain, Recipe
from full_model import Architecture, MarkovSource, Trainer, initial_weights, trap_matrix

sys.path.append(str(Path(__file__).parents[2] / "experiments"))
CHAIN = BinaryChain(0.5, 0.8)


def test_the_trap_stays_as_long_as_the_bound_says_and_goes_later():
    arch, rate, rho = Architecture(4, 3, hidden=64, attention="none"), 4e-3, 1.17
    weights = initial_weights(arch, "gaussian", range(4))
    size = max(float(torch.linalg.matrix_norm(weights[k], 2).max()) for k in ("0.up", "0.down"))
    recipe = Recipe("adamw", 350, "population", rate, weight_decay=0.0, schedule="constant")
    trainer = Trainer(arch, weights, MarkovSource.of(CHAIN), recipe)
    safe, crossed = int((1 - size) / (rho * rate * 16)), torch.zeros(4, dtype=torch.bool)
    for step in range(1, 351):
        trainer.advance()
        now = trainer.weights
        norms = [torch.linalg.matrix_norm(now[k], 2).max() for k in ("0.up", "0.down")]
        if step <= safe or step % 25 == 0:
            values = torch.linalg.eigvalsh(trap_matrix(arch, now, CHAIN))
            crossed |= values[:, 0] < 0
        if step <= safe:
            assert max(norms) <= size + rho * rate * step * 16
            assert not crossed.any()
    assert safe > 5 and crossed.all()


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A record of three tiny cells."""
    folder, patch = tmp_path_factory.mktemp("escape"), pytest.MonkeyPatch()
    script, laws = import_module("adamw_escape"), import_module("escape_laws")
    tiny = [laws.Cell("size", 2, 4, 3), laws.Cell("size", 8, 32, 3, rate=1e-2),
            laws.Cell("exact", 4, 16, 3, rate=1e-2, batch=0),
            laws.Cell("momentum", 2, 4, 3, "sgd", momentum=0.9)]  # fmt: skip
    patch.setattr(script, "cells", lambda: tiny)
    assert script.main(["--out", str(folder), "--seeds", "2", "--steps", "200"]) == 0
    patch.undo()
    return folder


@pytest.mark.slow
def test_every_run_is_counted_once(made):
    found = json.loads((made / "adamw_escape.json").read_text())
    for line in found["cells"]:
        assert line["escaped"] + line["trapped"] + line["open"] == line["runs"] == 11
    assert found["cells"][1]["escaped"] > 0 and found["cells"][3]["escaped"] == 0
    assert {name: line["runs"] for name, line in found["score"].items()} == {
        "fit": 12, "new seeds": 6, "new chains": 4,
    }  # fmt: skip
    assert (made / "adamw_escape.png").stat().st_size < 300_000


@pytest.mark.slow
def test_times_are_read_off_the_record(made):
    laws, record = import_module("escape_laws"), xr.load_dataset(made / "adamw_escape.nc")
    step, root = record.step.values, 0.01 * record.step.values
    # a made-up record: √μ = 0.01 t, and the loss falls where μ has been above 1.5
    excess = (record.p + record.q - 1).values[:, None]
    smallest = 2 * excess * (1 - root**2)
    shape = record.smallest.shape
    record["smallest"] = (record.smallest.dims, np.broadcast_to(smallest, shape).copy())
    record["share"] = (record.share.dims, np.broadcast_to(root**2 < 1.5, shape).astype(float))
    found = laws.times(record)
    assert (found["crossing"] == step[step * 0.01 > 1][0]).all()
    assert (found["escape"] == step[root**2 >= 1.5][0]).all()
    foretold = laws.predictions(record)
    assert foretold["early"] == pytest.approx(100)
    assert foretold["kappa"] == pytest.approx(0.01)
    assert foretold["settings"][foretold["law"]] == pytest.approx(100)
    scores = laws.score(record)
    assert all(line["settings"]["right"] == line["runs"] for line in scores.values())
