"""The reduced maps against the full transformer in training, and what they promise of each row."""

import math

import numpy as np
import pytest
import torch

from flowsim import BinaryChain, InputError, Label, OptimizerChoice, Rule, find_limits, model
from flowsim.cli.groups import OptimizerOptions
from flowsim.models.rank_one.training.reduced import PROGRESS, trapped
from flowsim.training import Recipe, ReducedTraining
from full_model import (
    Architecture,
    MarkovSource,
    RankOnePoint,
    Trainer,
    lift_rank_one,
    papers_recipe,
)

F64 = torch.float64
#: Starts (e, w, a) whose runs do not creep along the unigram, where Adam magnifies rounding.
STARTS = [(-0.7, -1.2, -0.4), (0.9, -0.8, 0.3), (1.5, -0.3, 1.2)]


def lifted(training, columns, arch, alpha):
    """Full weights at states of a reduced map."""
    named = dict(zip(training.coordinates, columns.T, strict=True))
    rho = columns[:, 1 : 1 + training.positions].expand(-1, arch.length)
    zero = torch.zeros_like(named["e"])
    o, v, c = named.get("o", zero), named.get("v", zero), named.get("c", named["e"])
    point = RankOnePoint(named["e"], rho, named["w1"], named["w2"], o, v, named["b"], c)
    return lift_rank_one(point, arch, alpha=alpha)


def largest_difference(length, attention, choice, tied=True, chain=(0.5, 0.8)):
    """Between the weights of reduced and of full training, from every start by itself."""
    reduced = model("rank-one", *chain, length=length, attention=attention, tied=tied)
    theta = reduced.from_canonical(torch.tensor(STARTS, dtype=F64)[:, : 2 + attention])
    training = ReducedTraining(reduced, choice)
    found = training.run(theta)
    kind = "softmax" if attention else "none"
    arch = Architecture(choice.d, length, tied=tied, attention=kind)
    alpha = torch.tensor([(-1.0) ** i for i in range(choice.d)], dtype=F64) / math.sqrt(choice.d)
    worst, source = 0.0, MarkovSource.of(BinaryChain(*chain))
    for start, end in zip(training.states(theta), found.state, strict=True):
        weights = lifted(training, torch.from_numpy(start)[None], arch, alpha)
        generator = torch.Generator().manual_seed(choice.seed)
        trainer = Trainer(arch, weights, source, choice, generator)
        trainer.advance(choice.steps)
        expected = lifted(training, end[None], arch, alpha)
        differences = [float((trainer.weights[k] - w).abs().max()) for k, w in expected.items()]
        moved = max(float((weights[k] - w).abs().max()) for k, w in expected.items())
        assert moved > 1e-3
        worst = max(worst, *differences)
    return worst


def named(name, **numbers):
    plain = {"d": 4, "steps": 80, "nudge": 0.0, "clip": None}
    return OptimizerChoice.named(name, **{**plain, **numbers})


PLAIN = {
    "gd sampled, d = 3": named("gd", loss="sampled", d=3),
    "momentum": named("momentum", learning_rate=0.05, clip=0.05),
    "adam": named("adam", clip=0.05, seed=2),
    "adamw": named("adamw-papers", weight_decay=0.1, schedule="cosine", warmup=0.2, clip=0.05),
}


@pytest.mark.parametrize("choice", PLAIN.values(), ids=PLAIN)
@pytest.mark.parametrize("attention", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_it_is_full_training_from_the_lift(attention, choice):
    length = 8 if choice.loss == "sampled" or not attention else 5
    assert largest_difference(length, attention, choice) < 1e-12


@pytest.mark.parametrize("length", [2, pytest.param(64, marks=pytest.mark.slow)])
def test_it_is_full_training_at_every_length(length):
    for loss in ("sampled", "population"):
        choice = named("adamw-papers", steps=60, clip=0.1, loss=loss)
        assert largest_difference(length, False, choice, chain=(0.2, 0.3)) < 1e-12


def test_it_is_full_training_of_untied_weights():
    choice = named("adamw-papers", steps=40, weight_decay=0.1, clip=0.1)
    assert largest_difference(6, True, choice, tied=False) < 1e-12


@pytest.mark.parametrize("attention", [False, True])
def test_with_own_batches_it_is_an_ensemble_in_training(attention):
    choice = named("adamw-papers", clip=0.1, seed=4)
    reduced = model("rank-one", 0.5, 0.8, length=6, attention=attention)
    theta = reduced.from_canonical(torch.tensor(STARTS, dtype=F64)[:, : 2 + attention])
    training = ReducedTraining(reduced, choice)
    found = training.run(theta, own_batches=True)
    arch = Architecture(4, 6, attention="softmax" if attention else "none")
    alpha = torch.full((4,), 0.5, dtype=F64)
    weights = lifted(training, torch.from_numpy(training.states(theta)), arch, alpha)
    source, generator = MarkovSource.of(BinaryChain(0.5, 0.8)), torch.Generator().manual_seed(4)
    trainer = Trainer(arch, weights, source, choice, generator)
    trainer.advance(choice.steps)
    expected = lifted(training, found.state, arch, alpha)
    assert max(float((trainer.weights[k] - w).abs().max()) for k, w in expected.items()) < 1e-12
    assert (found.state - training.run(theta).state).abs().max() > 1e-4


def starts_of(reduced, count=12, seed=0):
    draw = np.random.default_rng(seed).uniform(-2, 2, (count, 2 + reduced.attention))
    return torch.from_numpy(draw), reduced.from_canonical(torch.from_numpy(draw))


@pytest.mark.parametrize("attention", [False, True])
def test_the_sign_of_e_the_order_and_the_company_change_no_bit(attention):
    reduced = model("rank-one", 0.5, 0.8, length=6, attention=attention)
    canonical, theta = starts_of(reduced)
    training = ReducedTraining(reduced, "adamw-papers", steps=300, d=4, nudge=1e-9)
    found = training.run(theta)
    mirror = reduced.from_canonical(canonical * torch.tensor([-1.0, 1, 1])[: canonical.shape[1]])
    mirrored = training.run(mirror)
    assert torch.equal(mirrored.loss, found.loss)
    at = training.coordinates.index("b")
    assert torch.equal(mirrored.state[:, at], found.state[:, at])
    assert torch.equal(mirrored.state[:, 0], -found.state[:, 0])
    order = torch.randperm(len(theta), generator=torch.Generator().manual_seed(0))
    assert torch.equal(training.run(theta[order]).state, found.state[order])
    alone = torch.cat([training.run(part).state for part in theta.split(5)])
    assert torch.equal(alone, found.state)


def test_equal_factors_stay_equal_until_they_are_nudged():
    """From (1.5, 0.5) Adam stays at the unigram for exact w1 = w2, and learns beside that set."""
    reduced = model("rank-one", 0.5, 0.8, length=16)
    theta = reduced.from_canonical(torch.tensor([[1.5, 0.5]], dtype=F64))
    numbers = {"d": 4, "steps": 1500, "schedule": "constant", "loss": "population"}
    exact = ReducedTraining(reduced, "adamw-papers", nudge=0.0, **numbers).run(theta)
    assert exact.theta[0, 2] == exact.theta[0, 3]
    assert (exact.label[0], exact.progress[0]) == (Label.UNRESOLVED, [*PROGRESS].index("plateau"))
    nudged = ReducedTraining(reduced, "adamw-papers", **numbers).run(theta)
    assert nudged.theta[0, 2] * nudged.theta[0, 3] < -0.25
    assert nudged.label[0] == Label.GLOBAL_MINIMUM


def test_small_steps_end_where_the_flow_does_and_traps_hold():
    reduced = model("rank-one", 0.5, 0.8, length=8)
    _, theta = starts_of(reduced, 60)
    found = ReducedTraining(reduced, "gd", learning_rate=0.1, steps=4000).run(theta)
    decided = found.label != Label.UNRESOLVED
    assert decided.sum() >= 55
    assert torch.equal(found.label[decided], find_limits(reduced, theta[decided]).label)
    kept = found.label == Label.LOCAL_MINIMUM
    assert kept.any() and (found.rule[kept] == Rule.TRAPPED_BY_PLANE).all()
    later = ReducedTraining(reduced, "gd", learning_rate=0.1, steps=20_000).run(found.theta[kept])
    assert (later.label == Label.LOCAL_MINIMUM).all()
    assert (later.theta[:, 0].abs() <= found.theta[kept, 0].abs().clamp(min=1e-12)).all()
    assert (later.theta[:, 1:4] - found.theta[kept, 1:4]).abs().max() < 1e-6


@pytest.mark.parametrize(("rate", "clip", "rho", "w1", "w2", "most"), [
    (0.1, None, 1.0, 0.0, 0.0, 2.8048e-4), (0.1, None, 0.7, 0.3, 0.2, 3.4076e-4),
    (0.5, None, 0.7, 0.3, -0.2, 7.9058e-4), (3.0, None, 0.5, 0.4, 0.1, 6.2704e-4),
    (0.1, 1e-4, 1.0, 0.0, 0.0, 9.0035e-5), (1.0, None, 1.4, 0.3, -0.8, 1.2570e-4),
])  # fmt: skip
def test_a_trap_is_certain_up_to_a_known_e_and_for_plain_descent_alone(
    rate, clip, rho, w1, w2, most
):
    """The largest e at the unigram's bias for which the bounds of derivations/10.md hold."""
    reduced = model("rank-one", 0.5, 0.8, length=4)
    numbers = {"learning_rate": rate, "clip": clip, "schedule": "constant"}
    theta = torch.tensor(
        [[e, rho, w1, w2, math.log(5 / 8)] for e in (0.999 * most, 1.001 * most)], dtype=F64
    )
    for name, loss in (("gd", "population"), ("gd", "sampled"), ("adam", "population")):
        choice = OptimizerChoice.named(name, loss=loss, **numbers)
        certain = trapped(reduced, choice, theta).tolist()
        assert certain == [(name, loss) == ("gd", "population"), False]


@pytest.mark.parametrize(
    ("name", "numbers", "words"),
    [("sgd", {}, "gd, momentum, adam, adamw"), ("gd", {"momentum": 0.5}, "has no momentum"),
     ("adam", {"weight_decay": 0.1}, "has no weight_decay"), ("adamw", {"steps": 0}, "steps"),
     ("adamw", {"learning_rate": -1.0}, "learning_rate"), ("adamw", {"d": 0}, "d must be"),
     ("adamw", {"seed": -1}, "seed"), ("adamw", {"nudge": 1.0}, "nudge"),
     ("adamw", {"batch": 0}, "batch"), ("gd", {"loss": "exact"}, "loss")],
)  # fmt: skip
def test_bad_numbers_are_refused(name, numbers, words):
    with pytest.raises(InputError, match=words):
        ReducedTraining(model("rank-one", 0.5, 0.8), name, **numbers)


def test_what_has_no_reduced_map_is_refused():
    reduced = model("rank-one", 0.5, 0.8)
    with pytest.raises(InputError, match="rank-one model, not in the canonical"):
        ReducedTraining(model("canonical", 0.5, 0.8), "adamw")
    with pytest.raises(InputError, match="no optimizer"):
        ReducedTraining(reduced, Recipe("flow"))
    with pytest.raises(InputError, match="name of an optimizer"):
        ReducedTraining(reduced, Recipe("gd"), steps=5)
    with pytest.raises(InputError, match="shape"):
        ReducedTraining(reduced, "gd", steps=5).run(torch.zeros(2, 3))


def test_one_word_is_one_optimizer_in_python_and_on_the_command_line():
    reduced, canonical = model("rank-one", 0.5, 0.8, length=6), model("canonical", 0.5, 0.8)
    for name, clip, beta2 in (("adamw", None, 0.999), ("adamw-papers", 1.0, 0.95)):
        shell = OptimizerOptions(optimizer=name).choice_of_optimizer("rank-one", 0).on(reduced)
        here = ReducedTraining(reduced, name).optimizer
        assert shell == here == OptimizerChoice.named(name).on(reduced)
        assert (here.clip, here.beta2, here.nudge) == (clip, beta2, 1e-12)
    assert here == papers_recipe().on(reduced)
    assert (here.weight_decay, here.schedule) == (1e-3, "cosine")
    assert (OptimizerChoice.named("gd").on(reduced).d, here.d) == (8, 8)
    other = OptimizerChoice.named("adamw", nudge=0.0, d=3).on(reduced)
    assert (other.clip, other.nudge, other.d) == (None, 0.0, 3)
    plain = OptimizerOptions(optimizer="adam").choice_of_optimizer("canonical", 0).on(canonical)
    assert plain == OptimizerChoice.named("adam", loss="population").on(canonical)
    assert (plain.clip, plain.nudge, plain.d) == (None, 0.0, None)
