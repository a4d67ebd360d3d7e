"""The script that looks when positions die, at a tiny size."""

import json
from importlib import import_module

import torch


def test_no_position_dies_before_the_weights_moved_far_enough(tmp_path):
    script = import_module("dying_positions")
    assert script.main(["--out", str(tmp_path), "--seeds", "2", "--steps", "30"]) == 0
    found = json.loads((tmp_path / "dying_positions.json").read_text())
    assert set(found) == {"made", "sizes"} | {
        f"{case}; {std}" for case in script.CASES for std in script.DEVIATIONS
    }
    assert all(found[f"{case}; 0.02"]["lose a position"] == 0 for case in script.CASES)
    assert found["no attention; 0.3"]["needed"][0] > 0
    assert (tmp_path / "dying_positions.png").stat().st_size < 300_000


def test_moves_shorter_than_the_distance_kill_nothing_and_some_longer_ones_do():
    script = import_module("dying_positions")
    arch = script.Architecture(4, 5, hidden=16, attention="none")
    start = script.initial_weights(arch, "balanced", [0], std=0.3)
    needed, tokens = float(script._needed(start)[0]), script.all_sequences(5)
    way = {name: -w for name, w in start.items()}  # the positions' own way to zero, and beyond
    way |= {name: torch.zeros_like(w) for name, w in way.items() if name.startswith("0.")}
    length = script.flatten(arch.shapes, way).norm()
    for share, dies in ((0.99 * needed / length, False), (1.0, True)):
        moved = {name: w + share * way[name] for name, w in start.items()}
        assert script._dead(arch, moved, tokens).any() == dies
