"""Paths and labels by torchdiffeq alone, and the sample of labels that it decides again."""

import math

import numpy as np
import pytest
import torch
from conftest import uniform_starts

from flowsim import BinaryChain, InputError, Label, MarkovChain, Rule, Status, find_limits
from flowsim.models import (
    CanonicalModel,
    RankOneModel,
    StatesAttentionModel,
    UniformAttentionModel,
    energy,
    reaches_global_minimum,
)
from flowsim.reference import confirm, integrate, reference_labels, reference_limits

CHAINS = [(0.5, 0.8), (0.2, 0.3)]


def test_paths_that_are_not_finite_cost_only_themselves_and_progress_is_the_share_of_times():
    model, times = CanonicalModel(BinaryChain(0.5, 0.8)), torch.tensor([0.0, 5.0, 10.0]).double()
    start = torch.tensor([[1.0, -1.0], [math.nan, 0.5]], dtype=torch.float64)
    seen = []
    path = integrate(model, start, times, 1e-9, 1e-10, progress=seen.append)
    assert torch.equal(path[:, 0], integrate(model, start[:1], times, 1e-9, 1e-10)[:, 0])
    assert path[1:, 1].isnan().all() and path[0, 1, 1] == 0.5
    assert seen[0] == 1 / 3 and seen[-1] == 2 / 3 and sorted(seen) == seen
    assert integrate(model, start[1:], times[:2])[1].isnan().all()


@pytest.mark.parametrize(("p", "q"), CHAINS)
def test_the_canonical_basins_and_limits(p, q, generator):
    model, start = CanonicalModel(BinaryChain(p, q)), uniform_starts(24, generator)
    found = reference_limits(model, start)
    inside = reaches_global_minimum(model.chain, start)
    expected = torch.where(inside, Label.GLOBAL_MINIMUM, Label.LOCAL_MINIMUM).to(torch.int8)
    assert torch.equal(found.label, expected)
    assert torch.equal(reference_labels(model, start), found.label)
    assert (found.rule == Rule.REFERENCE).all()
    assert (found.status == Status.CONVERGED).all()
    assert (found.loss[inside] - model.chain.entropy_rate).max() < 1e-9
    assert (energy(found.theta) - energy(start))[inside].abs().max() < 1e-4
    assert found.theta[~inside, 0].abs().max() < 1e-5
    assert (found.evaluations > 100).all()


def test_starts_whose_gradient_squares_to_zero_are_not_at_rest():
    of_states = StatesAttentionModel(MarkovChain.symmetric(3, 0.6), 4)
    tiny = [[1e-300, 1e-300, 0.5], [-1e-300, 0, 0.5], [0, 1e-300, 0.5]]
    labels = reference_labels(of_states, tiny)
    assert labels.tolist() == [Label.GLOBAL_MINIMUM, Label.GLOBAL_MINIMUM, Label.SADDLE]


def test_starts_on_invariant_lines_and_bad_starts_cost_only_themselves(generator):
    model = CanonicalModel(BinaryChain(0.5, 0.8))
    odd = torch.tensor(
        [[0, 1], [0, -1], [2, 0], [math.nan, 1], [math.inf, 1], [1e200, 1], [1e-9, -0.9]]
    ).double()
    good = uniform_starts(9, generator)
    found = reference_limits(model, torch.cat([good, odd]))
    assert torch.equal(found.label[:9], reference_labels(model, good))
    local, glob, none = Label.LOCAL_MINIMUM, Label.GLOBAL_MINIMUM, Label.UNRESOLVED
    assert found.label[9:].tolist() == [local, Label.SADDLE, local, none, none, none, glob]
    assert found.status[12:15].tolist() == [Status.FAILED] * 3
    assert found.rule[12:15].tolist() == [Rule.NONE] * 3


@pytest.mark.slow
@pytest.mark.turns
def test_models_in_physical_time_are_never_wrong_and_mostly_decided(generator):
    number = 4
    chain, start = BinaryChain(0.2, 0.3), uniform_starts(number, generator, half_width=2.0)
    extra = 2 * torch.rand(number, 1, dtype=torch.float64, generator=generator) - 1
    spatial = torch.cat([start, extra], dim=1)
    rank_one = RankOneModel(chain, 8)
    cases = [
        (UniformAttentionModel(chain, 8), spatial, number),
        (CanonicalModel(chain, "dynamic"), spatial, number),
        (rank_one, rank_one.from_canonical(start), number // 2),  # others slide along a kink
    ]
    for model, rows, at_least in cases:
        found, expected = reference_limits(model, rows), find_limits(model, rows).label
        decided = (found.label != Label.UNRESOLVED) & (expected != Label.UNRESOLVED)
        assert torch.equal(found.label[decided], expected[decided])
        assert int((found.label != Label.UNRESOLVED).sum()) >= at_least
        lost = found.label == Label.UNRESOLVED
        assert (found.rule == Rule.NONE).tolist() == lost.tolist()


def test_a_row_that_needs_too_many_evaluations_is_unresolved(monkeypatch):
    model = CanonicalModel(BinaryChain(0.5, 0.8), "dynamic")
    monkeypatch.setattr("flowsim.flow.reference.EVALUATIONS", 20)
    monkeypatch.setattr("flowsim.flow.reference.PER_COORDINATE", 1)
    done = []
    start = torch.tensor([[1.0, -0.5, 0.3], [0.0, -0.5, math.log(5 / 8)]], dtype=torch.float64)
    found = reference_limits(model, start, progress=done.append)
    assert found.status[0] == Status.TIMED_OUT
    assert found.label[0] == Label.UNRESOLVED
    assert sum(done) == 2


def test_a_sample_of_labels_is_confirmed_and_a_wrong_one_is_found(generator):
    model, start = CanonicalModel(BinaryChain(0.5, 0.8)), uniform_starts(24, generator)
    labels = find_limits(model, start).label
    good = {"confirm_agree": 12, "confirm_disagree": 0, "confirm_undecided": 0}
    assert confirm(model, start, labels, 12) == {"confirm_cells": 12, **good}
    labels[:7] = 3 - labels[:7]  # minima for the trapped, and the other way round
    labels[7:10] = Label.UNRESOLVED
    start[10] = math.nan  # whatever its label, torchdiffeq finds none
    wanted = {"confirm_agree": 13, "confirm_disagree": 7, "confirm_undecided": 1}
    found = confirm(model, start.reshape(4, 6, 2), labels.reshape(4, 6).numpy(), 1000)
    assert found == {"confirm_cells": 21, **wanted}
    some = [confirm(model, start, labels, 5, seed)["confirm_disagree"] for seed in (0, 1, 2, 3, 0)]
    assert some[0] == some[4] and len(set(some)) > 1


@pytest.mark.slow
@pytest.mark.turns
def test_beside_the_separatrix_the_tolerance_is_tightened(monkeypatch):
    """Starts 3e-9 beside it, some of which a coarse tolerance takes to its other side."""
    model = CanonicalModel(BinaryChain(0.5, 0.8))
    w = torch.linspace(-0.6, -0.05, 4, dtype=torch.float64)
    e = (w.square() - w.abs().log() - (1 + math.log(2)) / 2).sqrt()
    start = torch.stack([e * (1 + 3e-9), w], dim=1)
    labels = torch.full((4,), Label.GLOBAL_MINIMUM)
    usual = reference_labels(model, start, rtol=1e-5)
    assert (usual == Label.LOCAL_MINIMUM).any()
    monkeypatch.setattr("flowsim.flow.reference.default_rtol", lambda _: 1e-5)
    assert confirm(model, start, labels, 4)["confirm_disagree"] == 0


def test_bad_input_is_refused():
    model, start = CanonicalModel(BinaryChain(0.5, 0.8)), torch.ones(3, 2).double()
    for bad in ({"count": -1}, {"count": 2, "seed": -1}):
        with pytest.raises(InputError, match="must not be negative"):
            confirm(model, start, np.ones(3, np.int8), **bad)
    with pytest.raises(InputError, match="do not fit"):
        confirm(model, start, np.ones(2, np.int8), 2)
    assert confirm(model, start, np.zeros(3, np.int8), 2)["confirm_cells"] == 0
    assert confirm(model, start, np.ones(3, np.int8), 0)["confirm_cells"] == 0
    with pytest.raises(InputError, match="starts need shape"):
        reference_labels(model, torch.ones(3))
