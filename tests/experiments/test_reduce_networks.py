"""The script that counts coordinates: its networks, what it says of one, and its figure."""

import json
from importlib import import_module

import pytest


@pytest.fixture
def script(monkeypatch):
    """With three networks, of which one is refused."""
    found = import_module("reduce_networks")
    few = ("two-layer ReLU, opposite units", "linear attention, second axis", "deep linear, random")
    monkeypatch.setattr(found, "NETWORKS", {name: found.NETWORKS[name] for name in few})
    return found


@pytest.mark.slow
def test_it_says_what_is_found_and_what_is_refused(script, tmp_path):
    assert script.main(["--out", str(tmp_path), "--quick"]) == 0
    found = json.loads((tmp_path / "reduce_networks.json").read_text())
    relu, attention, refused = list(found.values())[2:]
    assert (relu["weights"], relu["coordinates"], relu["allowed"]) == (18, 6, 2)
    assert relu["off the span"] < 1e-12
    assert attention["named"] == ["v", "key", "query"]
    assert attention["conserved"] == ["v² − query²", "key² − query²"]
    assert attention["flips"] == [["v", "key"], ["v", "query"]]
    assert refused["refused"].startswith("no small model")
    assert (tmp_path / "reduce_networks.png").stat().st_size < 300_000


def test_every_network_has_a_finite_loss_of_its_start():
    for name, make in import_module("networks").NETWORKS.items():
        losses, start = make()
        assert all(bool(loss(start).isfinite()) for loss in losses), name
