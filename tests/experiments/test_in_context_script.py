"""The script of training in context, at its smallest."""

import json

import in_context as script
import pytest
from results_tables import TABLES


@pytest.mark.slow
def test_every_case_is_drawn_and_tabulated(tmp_path):
    sizes = {"d": 4, "length": 8, "batch": 2, "steps": 6, "forward-steps": 6, "look": 2}
    options = [str(x) for name, size in sizes.items() for x in (f"--{name}", size)]
    assert script.main(["--out", str(tmp_path), *options]) == 0
    found = json.loads((tmp_path / "in_context.json").read_text())
    head, rows = TABLES["in_context"][1](found)
    assert len(rows) == 6 and all(len(row) == len(head) for row in rows)
    for line in found["cases"]:
        known = line["baselines"]
        assert known["kernel"] < known["Bayes"] <= known["bigram"] < known["unigram"]
        assert len(line["loss"]) == len(script.SEEDS) and line["half"] == [None] * 3
    assert (tmp_path / "in_context.png").stat().st_size > 20_000


def test_the_published_sizes_make_settings():
    runs = script.cases(**script.FULL)
    assert {run.arch.length for run in runs.values()} == {256}
    assert runs["two layers", "doubly stochastic"].arch.width == 0
