"""The script that changes one thing at a time, at a tiny size."""

import json
from importlib import import_module

import pytest


@pytest.mark.slow
def test_every_variant_is_trained(tmp_path):
    script = import_module("width_of_truth")
    assert script.main(["--out", str(tmp_path), "--seeds", "2", "--steps", "200"]) == 0
    found = json.loads((tmp_path / "width_of_truth.json").read_text())
    assert set(found) == {"made", "sizes", *script.VARIANTS}
    assert found["as stated"]["descent, Gaussian"]["unigram"] == 2
    assert found["as stated"]["descent, balanced"]["bigram"] == 2
    assert found["untied"]["descent, Gaussian"]["unigram"] == 0
    assert (tmp_path / "width_of_truth.png").stat().st_size < 300_000
