"""Public functions take one thread of torch for small tensors, and show a bar if asked."""

import numpy as np
import pytest
import torch

import flowsim
from flowsim.running import threads

AXIS = np.array([-1.0, 0.5])


class Well(flowsim.Model):
    coordinates = ("x", "y")

    def __init__(self):
        self.seen = set()

    def loss(self, theta):
        self.seen.add(torch.get_num_threads())
        x, y = theta.unbind(-1)
        return (x**2 - 1) ** 2 / 4 + y**2 / 2 + 0.2 * x


CALLS = {
    "find_limits": lambda m, **k: flowsim.find_limits(m, [[1.0, 0.5]], **k),
    "trajectories": lambda m: flowsim.trajectories(m, [[1.0, 0.5]], [0.0, 1.0]),
    "hitting_times": lambda m: flowsim.hitting_times(m, [[1.0, 0.5]]),
    "scan_basins": lambda m, **k: flowsim.scan(m, {"x": AXIS, "y": AXIS}, **k),
    "descend": lambda m, **k: flowsim.descend(m, [[1.0, 0.5]], steps=5, **k),
    "critical_points_in": lambda m: flowsim.landscape.critical_points_in(m, [-2, -2], [2, 2], 3),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_a_second_thread_is_not_used_and_given_back(name):
    model = Well()
    with threads(2):
        CALLS[name](model)
        assert torch.get_num_threads() == 2
    assert model.seen == {1}


def test_reduce_takes_one_thread_and_what_it_finds_too():
    seen = set()

    def loss(weights):
        seen.add(torch.get_num_threads())
        return (weights["a"] @ weights["b"] - 1) ** 2

    with threads(2):
        start = {"a": torch.full((3,), 0.3), "b": torch.full((3,), 0.1)}
        model = flowsim.reduce(loss, start)
        flowsim.reduction.agreement(model, [[0.5, 0.2]], until=1.0)
        with pytest.raises(flowsim.InputError):
            flowsim.reduce(lambda w: loss(w).sqrt() * float("nan"), start)
        assert torch.get_num_threads() == 2
    assert seen == {1}


@pytest.mark.parametrize("name", ["find_limits", "scan_basins", "descend"])
def test_a_bar_is_shown_on_stderr(name, capsys, monkeypatch):
    monkeypatch.setattr("tqdm.std.tqdm.monitor_interval", 0)
    monkeypatch.setattr("flowsim.running.DELAY", 0.0)
    found = CALLS[name](Well(), progress=True)
    out, err = capsys.readouterr()
    assert name in err and out == ""
    if name == "scan_basins":
        assert "4/4" in err and found.identical(CALLS[name](Well()).assign_attrs(found.attrs))
