"""The script of trained transformers on the plane of the induction head, at its smallest."""

import json

import induction_path as script
import numpy as np
import pytest


@pytest.mark.slow
def test_ways_are_drawn_and_descend(tmp_path):
    sizes = ["--steps", "60", "--resolution", "6", "--confirm", "1"]
    assert script.main(["--out", str(tmp_path), *sizes]) == 0
    found = json.loads((tmp_path / "induction_path.json").read_text())
    for end in found["ends"]:
        assert found["baselines"]["Bayes"] < end["loss"] < end["first_loss"]
    assert (tmp_path / "induction_path.png").stat().st_size > 20_000


def test_an_affine_logit_lies_between_unigram_and_bigram():
    found = script.affine_readout(8)
    assert found["bigram"] < found["affine"] < found["unigram"] and found["a"] > 0


def test_a_way_has_a_point_for_every_look():
    way = script.trained(40)
    assert way["step"].tolist() == [0, 20, 40]
    assert all(way[name].shape == (3, 3) for name in ("loss", "alpha", "beta", "explained"))
    assert (np.diff(way["loss"], axis=0) < 0).all()
