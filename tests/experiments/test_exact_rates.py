"""The script of AdamW's rates on the exact loss, at a tiny size."""

import json
from importlib import import_module

import pytest


@pytest.mark.slow
def test_large_steps_leave_the_unigram_and_small_ones_do_not(tmp_path):
    script = import_module("exact_rates")
    assert script.main(["--out", str(tmp_path), "--seeds", "2", "--steps", "100"]) == 0
    found = json.loads((tmp_path / "exact_rates.json").read_text())
    assert set(found) == {"made", "sizes", *map(script.named, script.SETTINGS)}
    line = found["(0.7, 0.7), d = 8, r = 32"]
    assert line["0.01"]["escaped"] == line["0.01"]["crossed_first"] == 2
    assert line["0.0005"]["escaped"] == line["0.0005"]["crossed"] == 0
    assert (tmp_path / "exact_rates.png").stat().st_size < 300_000
