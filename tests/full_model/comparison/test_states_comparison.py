"""Comparisons with the plane of S states: exact fields, exact agreement, honest outcomes."""

import numpy as np
import pytest
import torch
from scipy.linalg import helmert
from weights import normal_weights

from flowsim import MarkovChain
from flowsim.labels import Label
from full_model import Architecture, Comparison, MarkovSource, PopulationLoss, compare, grid_points
from full_model.comparison.fields import FullField
from full_model.comparison.outcome import hessian_block

F64 = torch.float64


def test_the_block_at_the_unigram_is_the_hessian():
    arch = Architecture(3, 2, hidden=6, states=3, output="states")
    chain, weights = MarkovChain.symmetric(3, 0.8), normal_weights(arch, 0, 0.8, (2,))
    field = FullField(arch, chain)
    basis = torch.from_numpy(helmert(3))
    block, smooth = hessian_block(basis, weights, field.gradient)
    assert smooth.all() and (block[:, :2, :2] - torch.eye(2) / 3).abs().max() < 1e-6
    mean = weights["embedding"][0].mean(0)
    loss = PopulationLoss(arch, MarkovSource.of(chain))

    def value(entries):
        moved = {name: part[0] for name, part in weights.items()}
        moved["bias"] = entries[:2] @ basis
        moved["embedding"] = mean + (entries[2:].reshape(2, 3).T @ basis).T
        return loss(moved)

    exact = torch.autograd.functional.hessian(value, torch.zeros(8, dtype=F64))
    torch.testing.assert_close(block[0], exact, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("trainer", ["gd", "flow"])
def test_above_the_threshold_every_run_ends_as_predicted(trainer):
    points = grid_points(3, 4, {"w": (-1.0, 0.6), "e": (-1.2, 1.2)})
    record = compare(Comparison(0.8, None, "states", trainer, d=4, states=3), points)
    assert record.attrs["agreement"] == 1 and record.attrs["decided"] == 12
    assert record.attrs["different_starts"] == 6 and "agreement_low" not in record.attrs
    assert {1, 2} == set(record.predicted.values.tolist())
    assert np.nanmax(record.drift) < 1e-7
    if trainer == "flow":
        assert np.nanmax(record.distance) < 1e-3
    assert record.attrs["hidden_per_state"] == 4 and record.attrs["noisy_weights"] == ["none"]


def test_below_the_threshold_the_trap_is_a_saddle():
    """Or rounding frees the run; it is called a local minimum in no case."""
    record = compare(
        Comparison(0.5, None, "states", d=4, states=3, steps=3000),
        torch.tensor([[0.9, 0.3], [0.3, -1.1], [0.5, -0.8]], dtype=F64),
    )
    assert record.predicted.values.tolist() == [1, 2, 2]
    found = record.outcome.values.tolist()
    assert found[0] == Label.GLOBAL_MINIMUM and Label.LOCAL_MINIMUM not in found
    assert Label.SADDLE in found
