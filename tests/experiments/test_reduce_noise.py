"""The script that holds noise × growth against the boundary, with one new network and noise."""

import json
from importlib import import_module

import pytest
import torch

from flowsim import BinaryChain
from flowsim.models.rank_one.model import RankOneModel


def test_growth_is_at_least_that_of_the_embedding_alone():
    script, transverse = import_module("reduce_noise"), import_module("transverse")
    model = RankOneModel(BinaryChain(0.5, 0.8), 8)
    theta = model.from_canonical(torch.tensor([[1.5, 1.5]], dtype=torch.float64))
    embedding = float(transverse.follow(model, theta, 20.0)[0])
    assert 1 < embedding < script.growth(model, theta[0], 400) < 10 * embedding


@pytest.mark.slow
def test_it_says_what_is_foretold_and_what_happens(tmp_path, monkeypatch):
    script = import_module("reduce_noise")
    monkeypatch.setattr(script, "NEW", ("linear attention, first axis",))
    monkeypatch.setattr(script, "NOISES", (0.01,))
    assert script.main(["--out", str(tmp_path), "--quick"]) == 0
    found = json.loads((tmp_path / "reduce_noise.json").read_text())
    assert {line["case"] for line in found["known"]} == {"(1.9, 1.9)", "(1.9, 1.7)", "(1.7, 1.9)"}
    for line in found["known"] + found["new"]:
        assert line["reach"] == pytest.approx(line["noise"] * line["gain"], rel=1e-4)
        far = line["boundary"]
        assert line["foretold"] == (far is not None and line["reach"] >= far)
    assert found["new"][0]["freed"] == 0
    assert (tmp_path / "reduce_noise.png").stat().st_size < 300_000
