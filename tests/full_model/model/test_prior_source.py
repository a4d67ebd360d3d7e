"""Sequences with kernels of their own, and training on them."""

import pytest
import torch

from flowsim import InputError
from flowsim.chains import DirichletPrior, DoublyStochasticPrior
from flowsim.training import Recipe
from full_model import Architecture, PriorSource, Trainer, initial_weights


def test_members_and_sequences_are_independent():
    source = PriorSource(DirichletPrior(3, 2)).repeat(4)
    inputs, targets = source.sample(5, 7, torch.Generator().manual_seed(0))
    assert inputs.shape == targets.shape == (4, 5, 7) and inputs.dtype == torch.uint8
    assert torch.equal(inputs[..., 1:], targets[..., :-1]) and source.states == 3
    assert len({tuple(x) for x in inputs.flatten(0, 1).tolist()}) == 20
    again, _ = source.sample(5, 7, torch.Generator().manual_seed(0))
    assert torch.equal(inputs, again)


def test_what_does_not_fit_is_one_sentence():
    source = PriorSource(DirichletPrior(2))
    three = Architecture(4, 6, states=3, output="states", tied=False)
    unknown = PriorSource(DoublyStochasticPrior(3))
    with pytest.raises(InputError, match="two states only"):
        Trainer(three, initial_weights(three, "gaussian", [0]), unknown, Recipe("gd", steps=1))
    with pytest.raises(InputError, match="at least one member"):
        PriorSource(DirichletPrior(2), 0)
    with pytest.raises(InputError, match="2 sources cannot serve 3"):
        source.repeat(2).repeat(3)
    with pytest.raises(InputError, match="batch ≥ 1"):
        source.sample(0, 5, torch.Generator())
    with pytest.raises(InputError, match="at most 256 states"):
        PriorSource(DirichletPrior(300)).sample(1, 2, torch.Generator())
