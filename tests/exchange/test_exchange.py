"""The page on objects of other tools: its blocks run, and what comes out is right."""

import json
import re
from pathlib import Path

import numpy as np
import pandas
import pytest
import torch
import xarray as xr
from safetensors.torch import save_file

import flowsim
from flowsim.drawing.overlay import path_columns
from flowsim.exchange.checkpoints import read_checkpoints
from flowsim.exchange.tables import write_table

PAGE = (Path(__file__).parents[2] / "docs" / "exchange.md").read_text()
SECTIONS = dict(re.findall(r"^## (.+?)\n.*?```python\n(.*?)```", PAGE, flags=re.M | re.S))
NEEDS = {"A HookedTransformer": "transformer_lens", "A loss in JAX": "jax"}


def well(x, y, g=0.2):
    return (x**2 - 1) ** 2 / 4 + y**2 / 2 + g * x


def quick_record():
    side = flowsim.scan.cell_centres(-1.5, 1.5, 4)
    return flowsim.scan(flowsim.from_loss(well), {"x": side, "y": side})


@pytest.mark.parametrize("section", [
    pytest.param(section, marks=[pytest.mark.slow, pytest.mark.turns])
    for section in sorted(SECTIONS)
])  # fmt: skip
@pytest.mark.filterwarnings("ignore")
def test_a_block_of_the_page_runs(section, tmp_path, monkeypatch, capsys):
    if section in NEEDS:
        pytest.importorskip(NEEDS[section])
    code = SECTIONS[section]
    assert sum(bool(line.strip()) for line in code.splitlines()) <= 14
    monkeypatch.chdir(tmp_path)
    exec(code.replace("resolution=8", "resolution=4"), {"__name__": "pasted"})
    assert "False" not in capsys.readouterr().out


def test_a_loss_in_jax_has_its_gradient_hessian_and_ends():
    pytest.importorskip("jax")
    from flowsim.exchange.jax_loss import from_jax

    ours, same = from_jax(well), flowsim.from_loss(well)
    theta = np.random.default_rng(0).normal(size=(7, 2))
    for name in ("loss", "gradient", "hessian"):
        found, known = getattr(ours, name)(theta), getattr(same, name)(theta)
        np.testing.assert_allclose(found, known, rtol=0, atol=1e-13)
    found, known = (flowsim.find_limits(model, theta) for model in (ours, same))
    assert (found.label == known.label).all()
    np.testing.assert_allclose(found.theta, known.theta, rtol=0, atol=1e-9)


def test_a_table_has_a_row_for_every_start_with_labels_by_name(tmp_path):
    record = quick_record()
    write_table(record, tmp_path / "scan.csv")
    table = pandas.read_csv(tmp_path / "scan.csv")
    assert len(table) == record["label"].size and {"x", "y", "label", "limit_x"} <= {*table}
    names = record["label"].attrs["flag_meanings"].split()
    first = record["label"].transpose("x", "y")[0, 0].item()
    row = table[(table.x == record.x[0].item()) & (table.y == record.y[0].item())]
    assert row["label"].item() == names[first]


def test_a_table_has_the_chances_of_every_end_with_their_bounds(tmp_path):
    starts, generator = {"x": np.array([-0.1, 0.1]), "y": np.zeros(1)}, torch.Generator()
    model = flowsim.from_loss(well)
    record = flowsim.noise.end_probabilities(model, starts, [0.05, 0.1], 0.02, generator, seeds=3)
    write_table(record, tmp_path / "noise.csv")
    table = pandas.read_csv(tmp_path / "noise.csv")
    assert "label" in table
    for name in ("share", "share_low", "share_high"):
        np.testing.assert_allclose(table[name], record[name].to_numpy().ravel(), rtol=1e-12)


def test_a_table_of_a_record_without_starts_has_rows_of_every_kind(tmp_path):
    record = xr.Dataset({
        "branch_x": ("branch_point", np.arange(5.0)),
        "event_kind": ("event", [0, 1], {"flag_meanings": "fold pitchfork"}),
        "share": (("g", "basin"), np.full((3, 2), 0.5)),
        "samples": ("g", [8, 8, 8]),
    })  # fmt: skip
    write_table(record, tmp_path / "branches.csv")
    table = pandas.read_csv(tmp_path / "branches.csv")
    assert table.notna().sum()[["branch_x", "share", "samples"]].tolist() == [5, 6, 6]
    assert table["event_kind"].dropna().tolist() == ["fold", "pitchfork"]


def test_json_has_every_number_of_a_record_and_no_nan(tmp_path):
    record = quick_record()
    record["limit_x"][0, 0] = np.nan
    write_table(record, tmp_path / "scan.json")
    found = json.loads((tmp_path / "scan.json").read_text())
    assert set(found["variables"]) == set(map(str, record.variables))
    assert found["variables"]["limit_x"]["values"][0][0] is None
    assert found["attributes"]["kind"] == "scan"


def test_parquet_is_the_same_table(tmp_path):
    pytest.importorskip("pyarrow")
    record = quick_record()
    for suffix in ("csv", "parquet"):
        write_table(record, tmp_path / f"scan.{suffix}")
    table = pandas.read_parquet(tmp_path / "scan.parquet")
    assert (table["label"] == pandas.read_csv(tmp_path / "scan.csv")["label"]).all()
    table[["x", "y"]].to_parquet(tmp_path / "history.parquet")
    x, y = path_columns(tmp_path / "history.parquet", "x", "y")
    assert x.shape == y.shape == (16, 1)


def test_checkpoints_are_in_the_order_of_their_steps_and_faults_one_sentence(tmp_path):
    with pytest.raises(flowsim.InputError, match="no folder with"):
        read_checkpoints(tmp_path)
    for step in (100, 20, 3):
        save_file({"w": torch.full((2,), float(step))}, tmp_path / f"step_{step}.safetensors")
    assert [one.step for one in read_checkpoints(tmp_path)] == [3, 20, 100]
    (tmp_path / "step_7.safetensors").write_text("nothing")
    with pytest.raises(flowsim.InputError, match="is no safetensors file"):
        read_checkpoints(tmp_path)
    with pytest.raises(flowsim.InputError, match="a table ends in"):
        write_table(quick_record(), tmp_path / "scan.xls")


def test_a_folder_of_checkpoints_may_have_a_folder_a_step_with_weights_in_several_files(tmp_path):
    for step in (1000, 200):
        inner = tmp_path / f"checkpoint-{step}"
        inner.mkdir()
        for part, name in enumerate("ab", 1):
            weights = {name: torch.full((2,), float(step))}
            save_file(weights, inner / f"model-0000{part}-of-00002.safetensors")
    found = read_checkpoints(tmp_path)
    assert [(one.step, sorted(one.weights)) for one in found] == [
        (200, ["a", "b"]), (1000, ["a", "b"]),
    ]  # fmt: skip
    save_file({"a": torch.zeros(2)}, tmp_path / "checkpoint-200" / "optimizer.safetensors")
    with pytest.raises(flowsim.InputError, match="two files of step 200 have the weights 'a'"):
        read_checkpoints(tmp_path)
