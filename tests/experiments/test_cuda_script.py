"""The command for a GPU, on the CPU and small, so that it cannot rot."""

import json

import cuda as script
import pytest
import torch


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so(tmp_path, capsys):
    assert script.main(["--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err == (
        "device cuda is asked for, and this machine has no CUDA device\n"
    )
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.turns
def test_every_part_small_on_the_cpu(tmp_path, capsys):
    words = ["--device", "cpu", "--small", "--out", str(tmp_path)]
    assert script.main(words) == 0
    records = {part: json.loads((tmp_path / f"cuda_{part}.json").read_text())
               for part in script.PARTS}  # fmt: skip
    ends = records["adamw"]["found"]["d = 4"]["ends"]
    assert [end["models"] for end in ends.values()] == [2, 2]
    for part in ("basins_above", "basins_below"):
        (line,) = records[part]["found"].values()
        assert line["decided"] == line["starts"] == 4 and [len(row) for row in line["grid"]] == [
            2,
            2,
        ]
    assert (tmp_path / "cuda_basins.png").stat().st_size < 300_000
    shown = (tmp_path / "cuda.md").read_text()
    assert "gpu none, torch" in shown and "at the bigram" in shown
    (tmp_path / "cuda_adamw.json").unlink()
    capsys.readouterr()
    assert script.main(words) == 0
    assert capsys.readouterr().err.startswith("adamw:")  # what was finished stays
