"""Checkpoints survive what happens to files, and refuse what was done to them."""

import json
import os
import pickle
import random
from dataclasses import replace
from functools import partial

import pytest
import torch
from fuzz.damage import KINDS, damaged
from safetensors.torch import save
from weights import RUN

from flowsim.chains import DirichletPrior
from flowsim.errors import InputError
from full_model import Architecture, Recipe, train
from full_model.training.checkpoints import load_checkpoint, save_checkpoint


def write(path):
    tensors = {
        "b": torch.arange(6.0).reshape(2, 3),
        "a": torch.tensor(1.5, dtype=torch.float64),
        "c": torch.arange(3, dtype=torch.uint8),
        "empty": torch.zeros(0, 2),
    }
    save_checkpoint(path, tensors, {"step": 7, "settings": {"x": [1, None]}})
    return tensors


def test_round_trip_and_same_bytes(tmp_path):
    tensors = write(tmp_path / "one")
    found, state = load_checkpoint(tmp_path / "one")
    assert state["step"] == 7 and state["settings"] == {"x": [1, None]}
    assert found.keys() == tensors.keys()
    assert all(torch.equal(found[k], t) and found[k].dtype == t.dtype for k, t in tensors.items())
    write(tmp_path / "two")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["one", "two"]


def refused(path):
    with pytest.raises(InputError) as caught:
        load_checkpoint(path)
    message = str(caught.value)
    assert "\n" not in message and len(message) < 500
    return message


@pytest.mark.parametrize(
    ("seed", "count"), [(3, 100), pytest.param(4, 500, marks=pytest.mark.slow)]
)
def test_every_damage_is_noticed(tmp_path, seed, count):
    path, draw = tmp_path / "state", random.Random(seed)
    write(path)
    whole = path.read_bytes()
    for _ in range(count):
        path.write_bytes(damaged(whole, draw.choice(KINDS), draw))
        if path.read_bytes() != whole:
            refused(path)


def test_foreign_and_hostile_files(tmp_path):
    path = tmp_path / "state"
    refused(path)
    refused(tmp_path)

    class Boom:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "boom"),))

    torch.save({"weights": Boom()}, path)
    refused(path)
    path.write_bytes(pickle.dumps(Boom()))
    refused(path)
    assert not (tmp_path / "boom").exists()
    path.write_bytes((2**62).to_bytes(8, "little") + b"{}")
    refused(path)
    path.write_bytes((10).to_bytes(8, "little") + b"{" * 10)
    refused(path)
    path.write_bytes(save({"w": torch.zeros(2)}))
    refused(path)
    deep = "[" * 100_000
    for entry in (
        "{}",
        "[]",
        "7",
        deep,
        json.dumps({"state": 5, "checksum": "x"}),
        json.dumps({"state": "{}", "checksum": "x"}),
    ):
        path.write_bytes(save({"w": torch.zeros(2)}, metadata={"full_model": entry}))
        refused(path)
    save_checkpoint(path, {}, {"version": 2})
    assert "version" in refused(path)
    save_checkpoint(path, {}, {"format": "other"})
    assert "format" in refused(path)


BOTH = {"p": (0.5, 0.2), "q": (0.8, 0.3), "seeds": (1, 2), "dtype": "float32"}
DATA = {"data": DirichletPrior(2), "arch": Architecture(4, 5, 2, states=2, output="states"),
        "p": None, "q": None}  # fmt: skip
RUNS = {
    "adamw": (Recipe("adamw", steps=12, batch=4, clip=1.0), BOTH),
    "flow": (Recipe("flow", steps=12, horizon=6.0), BOTH),
    "data": (Recipe("adamw", steps=12, batch=4), DATA),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_run_that_was_ended_is_resumed_to_the_same_bytes(tmp_path, name):
    recipe, more = RUNS[name]
    run = replace(RUN, recipe=recipe, init_std=0.3, telemetry_every=5, checkpoint_every=3,
                  test_batch=4, **more)  # fmt: skip
    whole, ended = tmp_path / "whole", tmp_path / "ended"
    expected, _ = train(run, whole)

    def end(step, loss):
        if step >= 7:
            raise ArithmeticError

    with pytest.raises(ArithmeticError):
        train(run, ended, progress=end)
    assert 0 < load_checkpoint(ended)[1]["step"] < 12
    found, _ = train(run, ended, resume=True)
    assert found.equals(expected) and ended.read_bytes() == whole.read_bytes()


ADAMW = Recipe("adamw", steps=20, batch=4)
settings = partial(replace, RUN, recipe=ADAMW, checkpoint_every=10, test_batch=4)


def test_resume_with_other_settings_shows_the_difference(tmp_path):
    path = tmp_path / "state"
    train(settings(), path)
    before = path.read_bytes()
    with pytest.raises(InputError, match=r"p is \[0\.5\] there and \[0\.6\] here"):
        train(settings(p=(0.6,)), path, resume=True)
    with pytest.raises(InputError, match=r"recipe\.learning_rate is 0\.001 there and 0\.01 here"):
        train(settings(recipe=replace(ADAMW, learning_rate=0.01)), path, resume=True)
    with pytest.raises(InputError, match="seeds"):
        train(settings(seeds=(3,)), path, resume=True)
    with pytest.raises(InputError, match="exists"):
        train(settings(), path)
    with pytest.raises(InputError, match="no checkpoint"):
        train(settings(), tmp_path / "missing", resume=True)
    assert path.read_bytes() == before
    train(settings(), path, resume=True)  # a finished run resumed is the finished run
    train(settings(p=(0.6,)), path, overwrite=True)
    assert path.read_bytes() != before


def test_a_checkpoint_without_a_part_of_the_run_is_refused(tmp_path):
    path = tmp_path / "state"
    train(settings(), path)
    tensors, state = load_checkpoint(path)
    keep = {k: v for k, v in state.items() if k not in ("sha256", "format", "version")}
    for bad_tensors, bad_state in (
        ({k: v for k, v in tensors.items() if k != "first/bias"}, keep),
        ({k: v for k, v in tensors.items() if k != "generator"}, keep),
        (tensors, {k: v for k, v in keep.items() if k != "step"}),
        (tensors, {**keep, "settings": None}),
    ):
        save_checkpoint(path, bad_tensors, bad_state)
        with pytest.raises(InputError, match="not a usable checkpoint"):
            train(settings(), path, resume=True)
    save_checkpoint(path, tensors, keep)
    train(settings(), path, resume=True)
