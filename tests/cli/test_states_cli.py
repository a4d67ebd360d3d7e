"""S states with uniform attention on the command line."""

import json

import numpy as np
import pytest
from command import run

from flowsim import read_record
from flowsim.models import StatesAttentionModel
from flowsim.spec import model_from_attributes

STATES = ["--model", "states", "--states", "3", "--p", "0.8", "--attention", "--length", "3"]


@pytest.mark.slow
@pytest.mark.turns
def test_a_slice_is_drawn_and_drawn_again(tmp_path):
    small = ["--resolution", "4", "--confirm", "1", "--json"]
    done = run("portrait", *STATES, "--fix", "v=0.6", *small, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["v"], summary["states"], summary["length"]) == (0.6, 3, 3)
    assert summary["confirm_disagree"] == 0 and summary["unresolved"] == 0
    stored = tmp_path / "portrait_states_S3_N3_attention_v0.6_p0.8.nc"
    record = read_record(stored)
    again = model_from_attributes(record.attrs)
    assert isinstance(again, StatesAttentionModel)
    assert (again.length, again.hidden_per_state, again.chain.p) == (3, 4, 0.8)
    assert run("portrait", "--from", stored, "--out", "x.png", cwd=tmp_path).returncode == 0


@pytest.mark.slow
@pytest.mark.turns
@pytest.mark.parametrize(("words", "code", "confirmed"), [
    (["--fix", "v=1e300", "--resolution", "4"], 3, 0),
    (["--fix", "v=0.5", "--w-range=-1e-300:1e-300", "--e-range=-1e-300:1e-300",
      "--resolution", "3", "--confirm", "9"], 0, 9),
], ids=["without-curvature", "tiny-window"])  # fmt: skip
def test_sizes_whose_squares_float64_does_not_hold(tmp_path, words, code, confirmed):
    done = run("portrait", *STATES, *words, "--json", "--out", "a.png", cwd=tmp_path)
    assert done.returncode == code
    assert (
        done.stderr.startswith("flowsim: some starts are unresolved") if code else not done.stderr
    )
    summary = json.loads(done.stdout)
    assert summary["confirm_agree"] == summary["confirm_cells"] == confirmed
    record = read_record(tmp_path / "a.nc")
    size = np.hypot(record["direction_e"], record["direction_w"]).to_numpy()
    assert ((size == 0) | (abs(size - 1) < 1e-12)).all()
    assert code == 3 or (size[record["arrow_e"].to_numpy() != 0] > 0).all()
