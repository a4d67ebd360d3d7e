"""The script of first weights: one cell at a tiny size, kept and taken up again."""

from importlib import import_module

import numpy as np
import torch


def test_a_cell_is_trained_once(tmp_path, monkeypatch):
    script = import_module("first_weights")
    monkeypatch.setattr(script, "FIGURES", tmp_path)
    found = script.cell("d = 4", "descent", "p + q > 1", 2, 250)
    balanced, gaussian = map(script.STARTS.index, ("balanced", "Gaussian 0.02"))
    assert (found[0, balanced] < 0.05).all() and (found[1, balanced] <= 250).all()
    assert (found[0, gaussian] > 0.95).all() and np.isnan(found[1, gaussian]).all()
    monkeypatch.setattr(script, "followed", None)
    np.testing.assert_array_equal(script.cell("d = 4", "descent", "p + q > 1", 2, 250), found)


def test_arrival_is_where_a_run_stays():
    lines = np.array([[0.9, 0.01, 0.9], [0.01, 0.01, 0.01], [0.01, 0.01, 0.9]])
    found = import_module("first_weights").arrived(lines, np.array([0, 10, 20]))
    np.testing.assert_array_equal(found, [10, 0, np.nan])


def test_orthogonal_matrices():
    script = import_module("first_weights")
    for shape in ((3, 16, 4), (3, 4, 16)):
        part = script.orthogonal(torch.randn(shape, dtype=torch.float64))
        gram = part.mT @ part if shape[1] > shape[2] else part @ part.mT
        torch.testing.assert_close(gram, torch.eye(4, dtype=torch.float64).expand(3, 4, 4))
