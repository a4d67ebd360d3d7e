"""The headline: who leaves the unigram, from Gaussian weights of deviation 0.02."""

import json
from importlib import import_module

import numpy as np
import pytest

from full_model import Architecture, Recipe, RunSettings, train


@pytest.mark.parametrize("tied, expected", [(True, (0.6663, 0.5446)), (False, (0.6190, 0.5446))])
def test_population_descent(tied, expected):
    """Eight seeds at (0.5, 0.8) and (0.2, 0.3): tied weights stay where p + q > 1."""
    run = RunSettings(
        Architecture(8, 4, tied=tied),
        Recipe("gd", steps=400, learning_rate=0.5),
        p=(0.5,) * 8 + (0.2,) * 8,
        q=(0.8,) * 8 + (0.3,) * 8,
        seeds=tuple(range(8)) * 2,
        telemetry_every=400,
    )
    record, _ = train(run)
    final = record.loss.values[-1].reshape(2, 8)
    assert np.abs(final - np.array(expected)[:, None]).max() < 1e-4


@pytest.mark.slow
def test_script_and_adamw(tmp_path, monkeypatch):
    """With AdamW as in AM Table 2 the tied single layer leaves the unigram too, later."""
    headline, papers = import_module("headline"), import_module("papers")
    arguments = ["--out", str(tmp_path), "--seeds", "2", "--steps", "4000"]
    arguments += ["--descent-steps", "400", "--descent-length", "4", "--length", "32"]
    assert headline.main(arguments) == 0
    results = json.loads((tmp_path / "headline.json").read_text())["results"]
    assert len(results) == 12
    for line in results:
        left = line["left_the_unigram"] == line["seeds"]
        trapped = line["trainer"] == "gd" and line["p"] == 0.5 and line["model"] != "untied"
        assert left != trapped
    drawn = (tmp_path / "headline.png").read_bytes()
    assert len(drawn) < 300_000
    (tmp_path / "headline.png").unlink()
    monkeypatch.setattr(papers, "FIGURES", tmp_path)
    assert headline.main(["--out", str(tmp_path), "--redraw"]) == 0
    assert (tmp_path / "headline.png").read_bytes() == drawn
    assert headline.main(arguments) == 2  # nothing is overwritten
