"""The script of AdamW's basins, run small."""

import json

import optimizer_basins as script
import pytest


@pytest.mark.slow
def test_files_and_shares(tmp_path):
    words = ["--out", str(tmp_path), "--length", "4", "--resolution", "6", "--steps", "600"]
    words += ["--seeds", "2", "--full-cells", "4"]
    assert script.main(words) == 0
    assert (tmp_path / "optimizer_basins.png").stat().st_size < 300_000
    found = json.loads((tmp_path / "optimizer_basins.json").read_text())
    assert 0 < found["flow_learned"] < 0.5
    assert len(found["panels"]) == 6
    cases = found["rate 0.001, over seeds"]
    assert cases["sampled, d = 4, nudge 0"]["w > 0"]["max"] == 0
    assert found["full training, d = 4"]["w < -0.45"] > 0.5
