"""Labels by torchdiffeq alone, and the sample of a portrait's labels that it decides again."""

import math

import numpy as np
import pytest
import torch
from conftest import uniform_starts

from flowsim import (
    BinaryChain,
    InputError,
    Label,
    MarkovChain,
    Rule,
    Status,
    find_limits,
)
from flowsim.flow.reference import default_rtol, sample_size
from flowsim.models import (
    CanonicalModel,
    InductionModel,
    LinearAttentionModel,
    RankOneModel,
    StatesAttentionModel,
    UniformAttentionModel,
    UntiedModel,
    energy,
    induction_landscape,
    reaches_global_minimum,
)
from flowsim.reference import confirm, reference_labels, reference_limits

CHAINS = [(0.5, 0.8), (0.2, 0.3)]
BOTH = pytest.mark.parametrize(("p", "q"), CHAINS)


@pytest.mark.parametrize(("p", "q"), [(0.5, 0.8), (0.2, 0.3), (0.97, 0.35), (0.45, 0.56)])
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


@BOTH
def test_the_basins_with_linear_attention(p, q, generator):
    model = LinearAttentionModel(BinaryChain(p, q))
    start = 4 * torch.rand(50, 3, dtype=torch.float64, generator=generator) - 2
    inside = model.basin(start)
    assert torch.equal(reference_labels(model, start) == Label.GLOBAL_MINIMUM, inside)


def test_untied_starts_of_the_sheet_that_ends_in_the_saddle(generator):
    model = UntiedModel(BinaryChain(0.5, 0.8))
    e, w = torch.rand(2, 20, dtype=torch.float64, generator=generator) + 0.1
    tied = torch.stack([e, e, w], dim=1)
    assert (reference_labels(model, tied) == Label.SADDLE).all()
    tied[:, 1] *= 1 + 1e-6
    assert (reference_labels(model, tied) == Label.GLOBAL_MINIMUM).all()


def test_starts_a_hair_beside_a_saddle_leave_it():
    e = torch.tensor([10.0**-k for k in range(8, 20)], dtype=torch.float64)
    start = torch.stack([e, torch.full_like(e, -0.9)], dim=1)
    labels = reference_labels(CanonicalModel(BinaryChain(0.5, 0.8)), start)
    assert (labels == Label.GLOBAL_MINIMUM).all()


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


def test_everything_is_a_global_minimum_when_p_plus_q_is_one(generator):
    model = CanonicalModel(BinaryChain(0.3, 0.7))
    labels = reference_labels(model, uniform_starts(50, generator))
    assert (labels == Label.GLOBAL_MINIMUM).all()


@pytest.mark.parametrize(
    ("p", "q", "number"),
    [(0.5, 0.8, 2), pytest.param(0.2, 0.3, 4, marks=pytest.mark.slow)],
)
def test_models_in_physical_time_are_never_wrong_and_mostly_decided(p, q, number, generator):
    chain, start = BinaryChain(p, q), uniform_starts(number, generator, half_width=2.0)
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
    model, start = CanonicalModel(BinaryChain(0.5, 0.8)), uniform_starts(60, generator)
    labels = find_limits(model, start).label
    good = {"confirm_agree": 40, "confirm_disagree": 0, "confirm_undecided": 0}
    assert confirm(model, start, labels, 40) == {"confirm_cells": 40, **good}
    labels[:7] = 3 - labels[:7]  # minima for the trapped, and the other way round
    labels[7:10] = Label.UNRESOLVED
    start[10] = math.nan  # whatever its label, torchdiffeq finds none
    wanted = {"confirm_agree": 49, "confirm_disagree": 7, "confirm_undecided": 1}
    found = confirm(model, start.reshape(6, 10, 2), labels.reshape(6, 10).numpy(), 1000)
    assert found == {"confirm_cells": 57, **wanted}
    some = [confirm(model, start, labels, 20, seed)["confirm_disagree"] for seed in range(5)]
    assert some == [confirm(model, start, labels, 20, s)["confirm_disagree"] for s in range(5)]
    assert len(set(some)) > 1


def test_beside_the_separatrix_the_tolerance_is_tightened(monkeypatch):
    """Starts 3e-9 beside it, some of which a coarse tolerance takes to its other side."""
    model = CanonicalModel(BinaryChain(0.5, 0.8))
    w = torch.linspace(-0.6, -0.05, 8, dtype=torch.float64)
    e = (w.square() - w.abs().log() - (1 + math.log(2)) / 2).sqrt()
    start = torch.stack([e * (1 + 3e-9), w], dim=1)
    labels = torch.full((8,), Label.GLOBAL_MINIMUM)
    usual = reference_labels(model, start, rtol=1e-5)
    assert (usual == Label.LOCAL_MINIMUM).any()
    monkeypatch.setattr("flowsim.flow.reference.default_rtol", lambda _: 1e-5)
    monkeypatch.setattr("flowsim.flow.reference.default_rtol", lambda _: 1e-5)
    assert confirm(model, start, labels, 8)["confirm_disagree"] == 0


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


def test_fewer_labels_are_confirmed_where_a_row_takes_long():
    chain = BinaryChain(0.5, 0.8)
    assert sample_size(CanonicalModel(chain)) == 256
    assert sample_size(CanonicalModel(chain, bias="dynamic")) == 16


def test_every_evaluation_of_the_field_is_counted(monkeypatch):
    model, asked = CanonicalModel(BinaryChain(0.5, 0.8), "dynamic"), []
    field = model.field
    monkeypatch.setattr(model, "field", lambda theta: asked.append(1) or field(theta))
    found = reference_limits(model, torch.tensor([[1.0, 0.5, 0.3]]).double())
    assert found.evaluations.tolist() == [1 + len(asked)] and len(asked) > 10


def test_a_row_of_the_induction_model_is_settled_within_a_hundredth_of_the_drop():
    model = InductionModel(5)
    landscape = induction_landscape(model)
    betas, seen = torch.linspace(-30, 30, 601, dtype=torch.float64), set()
    for theta in torch.stack([6 * betas.sign(), betas], dim=-1)[:, None]:
        end = landscape.ends.get(int(theta[0, 1].sign()))
        (label,) = model.label_of_point(theta)
        if end is None:
            assert label == Label.UNRESOLVED
            continue
        left = float(model.loss(theta)) - end.loss
        close = left <= 0.01 * (landscape.plateau - end.loss)
        best = int(theta[0, 1].sign()) == landscape.best
        named = Label.GLOBAL_MINIMUM if best else Label.LOCAL_MINIMUM
        assert label == (named if close else Label.UNRESOLVED)
        seen.add((close, best))
    assert len(seen) >= 3


def test_models_in_time_end_where_the_engine_says(generator):
    model = CanonicalModel(BinaryChain(0.5, 0.8), "dynamic")
    start = torch.cat([uniform_starts(4, generator, 1.0), torch.zeros(4, 1).double()], dim=1)
    found, expected = reference_limits(model, start), find_limits(model, start)
    both = (found.label == Label.GLOBAL_MINIMUM) & (expected.label == Label.GLOBAL_MINIMUM)
    assert both.any()
    assert (found.theta - expected.theta)[both].abs().max() < 3e-3
    assert default_rtol(model) == 1e-6 and default_rtol(CanonicalModel(model.chain)) == 1e-8
