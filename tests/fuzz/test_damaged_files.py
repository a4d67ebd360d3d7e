"""Damaged and forged files: refused in one sentence, or their content is what was written."""

import gzip
import os
import random
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
import xarray as xr
from command import run
from fuzz import forgery
from fuzz.damage import KINDS, damaged

import flowsim
from flowsim.scan.points import Points
from full_model.training.checkpoints import load_checkpoint, save_checkpoint

FORMER = Path(__file__).parents[1] / "data" / "0.1.0"
#: Seconds after which a small file counts as one on which a command has no end.
BOUND = 60


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    """A record of every kind, in the present schema and sealed: its file and its content."""
    folder, found = tmp_path_factory.mktemp("records"), {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("flowsim.records.trial.try_to_read", lambda *_: None)  # these bytes are good
        for packed in sorted(FORMER.glob("*.gz")):
            path = folder / packed.stem
            path.write_bytes(gzip.decompress(packed.read_bytes()))
            flowsim.write_record(flowsim.read_record(path), path)
            found[path] = flowsim.read_record(path)
    return found


def bounded(*words, cwd):
    """A command in this process: its end, which comes in time and without a traceback."""

    def no_end(*_):
        raise TimeoutError(f"no end of {words}")

    before = signal.signal(signal.SIGALRM, no_end)
    signal.alarm(BOUND)
    try:
        done = run(*words, cwd=cwd)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    assert done.returncode in (0, 2, 3, 4), done
    if done.returncode == 2:
        assert done.stderr.startswith("flowsim: ") and done.stderr.count("\n") == 1, done.stderr
        assert len(done.stderr) < 900 and done.stdout == ""
    return done


def refusal(read, *words):
    """The sentence with which a file is refused, None if it is read; nothing else may happen."""
    try:
        read(*words)
    except flowsim.InputError as error:
        assert "\n" not in str(error) and len(str(error)) < 700
        return str(error)
    return None


def spoil_records(records, tmp_path, seed, count):
    """Every sealed record with damaged bytes is refused."""
    draw, path = random.Random(seed), tmp_path / "a.nc"
    for _ in range(count):
        content = draw.choice(sorted(records)).read_bytes()
        kinds = ("bit", "bytes", "zeros", "more", "swap")
        if draw.random() < 0.05:  # of the seal nothing is left: a process for each
            kinds = ("cut", "nothing left")
        kind = draw.choice(kinds)
        other = damaged(content, kind, draw)
        path.write_bytes(other)
        assert (refusal(flowsim.read_record, path) is None) == (other == content), (seed, kind)


def test_damaged_records(records, tmp_path):
    spoil_records(records, tmp_path, 1, 40)


@pytest.mark.slow
def test_more_damaged_records(records, tmp_path):
    spoil_records(records, tmp_path, 2, 2000)


def spoil_checkpoints(tmp_path, seed, count):
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


def test_damaged_checkpoints(tmp_path):
    spoil_checkpoints(tmp_path, 3, 60)


@pytest.mark.slow
def test_more_damaged_checkpoints(tmp_path):
    spoil_checkpoints(tmp_path, 4, 2000)


def spoil_points(tmp_path, seed, count, endings=(".npy", ".csv")):
    """No digest guards them: they are refused, or finite points with the columns asked for."""
    rows = np.random.default_rng(0).normal(size=(50, 2))
    np.save(tmp_path / "a.npy", rows)
    lines = "\n".join(f"{e},{w}" for e, w in rows.tolist())
    (tmp_path / "a.csv").write_text(f"e,w\n{lines}\n")
    xr.Dataset({"e": ("point", rows[:, 0]), "w": ("point", rows[:, 1])}).to_netcdf(
        tmp_path / "a.nc", engine="h5netcdf"
    )
    draw = random.Random(seed)
    whole = {ending: (tmp_path / f"a{ending}").read_bytes() for ending in endings}
    for _ in range(count):
        ending = draw.choice(endings)
        path = tmp_path / f"b{ending}"
        path.write_bytes(damaged(whole[ending], draw.choice(KINDS), draw))
        if refusal(Points.read, path, ["e", "w"]) is None:
            points = Points.read(path, ["e", "w"])
            block = points.block(0, points.shape[0])
            assert points.shape[0] <= 200 and np.isfinite(block).all()


def test_damaged_points(tmp_path):
    spoil_points(tmp_path, 5, 60)
    spoil_points(tmp_path, 6, 3, (".nc",))


@pytest.mark.slow
def test_more_damaged_points(tmp_path):
    spoil_points(tmp_path, 7, 2000)
    spoil_points(tmp_path, 8, 60, (".nc",))


SCAN = ["scan", "--p", "0.5", "--q", "0.8", "--grid", "4x4", "--confirm", "0", "--out", "a.nc"]


@pytest.fixture(scope="module")
def unfinished(tmp_path_factory):
    """The folder of a scan that was ended before its record was made, and the record's bytes."""
    folder = tmp_path_factory.mktemp("scan")
    assert run(*SCAN, cwd=folder).returncode == 0
    calm = (folder / "a.nc").read_bytes()
    (folder / "a.nc").unlink()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("flowsim.scan.store.write_scan_record", _interrupted)
        assert run(*SCAN, cwd=folder).returncode == 130
    assert len(list((folder / "a.nc.parts").iterdir())) >= 2
    return folder, calm


def _interrupted(*_, **__):
    raise KeyboardInterrupt


def spoil_scans(unfinished, tmp_path, seed, count):
    """A resumed scan ends with the bytes of a calm one, or is refused; --overwrite always helps."""
    folder, calm = unfinished
    draw, place = random.Random(seed), tmp_path / "here"
    for _ in range(count):
        shutil.copytree(folder, place)
        names = sorted(path for path in (place / "a.nc.parts").iterdir() if path.name != "lock")
        path = draw.choice(names)
        path.write_bytes(damaged(path.read_bytes(), draw.choice(KINDS), draw))
        done = bounded(*SCAN, "--resume", cwd=place)
        if done.returncode == 2:
            done = bounded(*SCAN, "--overwrite", cwd=place)
        assert (place / "a.nc").read_bytes() == calm
        assert os.listdir(place) == ["a.nc"]
        shutil.rmtree(place)


def test_damaged_scans(unfinished, tmp_path):
    spoil_scans(unfinished, tmp_path, 9, 10)


@pytest.mark.slow
def test_more_damaged_scans(unfinished, tmp_path):
    spoil_scans(unfinished, tmp_path, 10, 300)


def forge_records(records, tmp_path, seed, count, drawn):
    """Forged and well sealed: refused, or summarized and drawn without a traceback."""
    draw, path, refused = random.Random(seed), tmp_path / "a.nc", 0
    for _ in range(count):
        record, done = forgery.forge(records[draw.choice(sorted(records))], draw)
        if not done or not forgery.write(record, path):
            continue
        found = [bounded("info", "a.nc", "--json", cwd=tmp_path)]
        if drawn:
            found.append(bounded("portrait", "--from", "a.nc", "--out", "a.svg", "--overwrite",
                                 cwd=tmp_path))  # fmt: skip
            assert (tmp_path / "a.svg").exists() == (found[-1].returncode != 2), done
            (tmp_path / "a.svg").unlink(missing_ok=True)
        else:
            refusal(flowsim.read_record, path)
        refused += any(end.returncode == 2 for end in found)
    return refused


@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::UserWarning")
def test_forged_records(records, tmp_path):
    assert forge_records(records, tmp_path, 11, 20, drawn=False) > 2
    forge_records(records, tmp_path, 12, 3, drawn=True)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::UserWarning")
def test_more_forged_records(records, tmp_path):
    assert forge_records(records, tmp_path, 13, 200, drawn=False) > 15
    assert forge_records(records, tmp_path, 14, 25, drawn=True) > 2
