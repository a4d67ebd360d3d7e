"""The agreement at N = 64 on sampled batches, at sizes that take seconds."""

import json

import agreement_sampled
import pytest


@pytest.mark.slow
def test_every_run_is_counted(tmp_path):
    words = ["--out", str(tmp_path), "--cells", "2", "--seeds", "2", "--steps", "10"]
    assert agreement_sampled.main(words) == 0
    found = json.loads((tmp_path / "agreement_sampled.json").read_text())
    lines = {case: found[case] for case in agreement_sampled.CASES}
    assert len(lines) == 8 and {line["d"] for line in lines.values()} == {4, 8}
    for line in lines.values():
        assert [x["decided"] for x in line["right"]] == [line["starts"]] * 2 == [2, 2]
        runs = line["flow_global"]["runs"] + line["flow_trapped"]["runs"]
        right = line["flow_global"]["learned"] + (
            line["flow_trapped"]["runs"] - line["flow_trapped"]["learned"]
        )
        assert sum(x["seeds"] for x in line["wrong"]) == 4 - right
        assert runs == 4 and right == sum(x["agree"] for x in line["right"])
    assert lines["p=0.2 q=0.3 d=4"]["flow_trapped"]["runs"] == 0
