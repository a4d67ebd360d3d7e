"""Damaged files: refused in one sentence, or their content is what was written."""

import os
import random
import shutil

import numpy as np
import pytest
import torch
from command import assert_refused, run
from fuzz.damage import KINDS, damaged

import flowsim
from flowsim.scan.starts import Points
from full_model.training.checkpoints import load_checkpoint, save_checkpoint


def refusal(read, *words):
    """The sentence with which a file is refused, None if it is read; nothing else may happen."""
    try:
        read(*words)
    except flowsim.InputError as error:
        assert "\n" not in str(error) and len(str(error)) < 700
        return str(error)
    return None


@pytest.mark.parametrize(("seed", "count"), [(3, 60), pytest.param(4, 500, marks=pytest.mark.slow)])
def test_damaged_checkpoints_are_refused_or_read_as_they_were_written(tmp_path, seed, count):
    """What is read of a damaged checkpoint is what was written."""
    draw, path = random.Random(seed), tmp_path / "a.safetensors"
    tensors = {"w": torch.arange(40.0).reshape(5, 8), "b": torch.zeros(3, dtype=torch.float64)}
    state = {"step": 7, "settings": {"trainer": "gd", "steps": 3}}
    save_checkpoint(path, tensors, state)
    content = path.read_bytes()
    for _ in range(count):
        path.write_bytes(damaged(content, draw.choice(KINDS), draw))
        if refusal(load_checkpoint, path) is None:
            found, held = load_checkpoint(path)
            assert all(torch.equal(found[name], tensor) for name, tensor in tensors.items())
            assert held["step"] == 7 and held["settings"] == state["settings"]
            assert found.keys() == tensors.keys()


@pytest.mark.parametrize(("seed", "count"), [(5, 60), pytest.param(7, 500, marks=pytest.mark.slow)])
def test_damaged_points_are_refused_or_finite(tmp_path, seed, count):
    """No digest guards them: they are refused, or finite points with the columns asked for."""
    rows = np.random.default_rng(0).normal(size=(50, 2))
    np.save(tmp_path / "a.npy", rows)
    lines = "\n".join(f"{e},{w}" for e, w in rows.tolist())
    (tmp_path / "a.csv").write_text(f"e,w\n{lines}\n")
    draw = random.Random(seed)
    whole = {ending: (tmp_path / f"a{ending}").read_bytes() for ending in (".npy", ".csv")}
    for _ in range(count):
        ending = draw.choice(sorted(whole))
        path = tmp_path / f"b{ending}"
        path.write_bytes(damaged(whole[ending], draw.choice(KINDS), draw))
        if refusal(Points.read, path, ["e", "w"]) is None:
            points = Points.read(path, ["e", "w"])
            block = points.block(0, points.shape[0])
            assert points.shape[0] <= 200 and np.isfinite(block).all()


SCAN = ["scan", "--p", "0.5", "--q", "0.8", "--grid", "4x4", "--confirm", "0", "--out", "a.nc"]


@pytest.fixture(scope="module")
def unfinished(tmp_path_factory):
    """The folder of a scan that was ended before its record was made, and the record's bytes."""
    folder = tmp_path_factory.mktemp("scan")
    assert run(*SCAN, cwd=folder).returncode == 0
    calm = (folder / "a.nc").read_bytes()
    (folder / "a.nc").unlink()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("flowsim.scan.store.scan_record", _interrupted)
        assert run(*SCAN, cwd=folder).returncode == 130
    assert [path.name for path in folder.iterdir()] == ["a.nc.parts"]
    return folder, calm


def _interrupted(*_, **__):
    raise KeyboardInterrupt


@pytest.mark.parametrize(("seed", "count"), [(9, 5), pytest.param(10, 20, marks=pytest.mark.slow)])
def test_a_damaged_scan_ends_as_a_calm_one_or_is_refused(unfinished, tmp_path, seed, count):
    """A resumed scan ends with the bytes of a calm one, or is refused; --overwrite always helps."""
    folder, calm = unfinished
    draw, place = random.Random(seed), tmp_path / "here"
    for _ in range(count):
        shutil.copytree(folder, place)
        path = place / "a.nc.parts"
        path.write_bytes(damaged(path.read_bytes(), draw.choice(KINDS), draw))
        done = run(*SCAN, "--resume", cwd=place)
        if done.returncode:
            assert_refused(done)
            assert len(done.stderr) < 900
            assert run(*SCAN, "--overwrite", cwd=place).returncode == 0
        assert (place / "a.nc").read_bytes() == calm
        assert os.listdir(place) == ["a.nc"]
        shutil.rmtree(place)
