"""The script that reads AdamW's growth at different looks."""

from importlib import import_module

import numpy as np
import pytest


def test_a_known_growth_is_read_off_its_crossing():
    """λ = λ₀ − 2(p + q − 1)(κt)²; a run that never crosses has no κ."""
    script = import_module("escape_looks")
    excess = np.array([c.p + c.q - 1 for c in script.FITTED for _ in range(2)])
    kappa = np.tile([1e-3, 1e-6], len(script.FITTED))
    steps = 10.0 * np.arange(151)
    smallest = excess[:, None] * (2 - 2 * np.outer(kappa, steps) ** 2)
    fine = script.growth(smallest, 10, True, 2)
    np.testing.assert_allclose(fine[::2], 1e-3, rtol=1e-4)
    assert np.isnan(fine[1::2]).all()


def test_a_power_is_found_and_runs_without_one_are_left_out():
    script = import_module("escape_looks")
    values = np.array([1.0, 2.0, 4.0])
    constants = np.repeat(np.arange(1.0, 1 + len(script.FITTED)), 3)
    kappa = constants * values[:, None] ** 1.5
    kappa[0, 0] = np.nan
    found = script.exponent(values, kappa)
    np.testing.assert_allclose([found["value"], *found["interval"]], 1.5)


def test_runs_are_looked_at_every_ten_steps():
    script = import_module("escape_looks")
    cell = script.Cell("bias", 4, 16, rate=0.001, unigram_bias=True)
    smallest = script.looked(cell, 1, 20)
    assert smallest.shape == (len(script.FITTED), 3)
    assert smallest[:, 0] == pytest.approx([2 * (c.p + c.q - 1) for c in script.FITTED], rel=0.02)
