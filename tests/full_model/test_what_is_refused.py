"""Calls of ``full_model`` that are refused, and words of the sentence: one table."""

import math
from dataclasses import replace
from functools import partial

import pytest
import torch
from weights import RUN, normal_weights

from flowsim import BinaryChain, InputError, MarkovChain
from flowsim.chains import DirichletPrior, DoublyStochasticPrior, OrderChain, SymmetricChain
from flowsim.chains.hidden import SeenChain, process
from full_model import (
    Architecture,
    Comparison,
    MarkovSource,
    PopulationLoss,
    PrefixTreeLoss,
    PriorSource,
    RankOnePoint,
    Recipe,
    RunSettings,
    Trainer,
    all_sequences,
    compare,
    fit_induction,
    forward,
    initial_weights,
    lift_canonical,
    lift_rank_one,
    lift_states,
    papers_recipe,
    train,
    trap_matrix,
    unigram_trap,
    verify,
)
from full_model.comparison.fields import FullField
from full_model.model.architecture import check_weights
from full_model.training.settings import source_of

F64 = torch.float64
CHAIN, ROWS = BinaryChain(0.5, 0.8), [[0.1, 0.9], [0.3, 0.7], [1.0, 0.0], [0.6, 0.4]]
SOURCE = MarkovSource.of(CHAIN)
THREE_SOURCES = MarkovSource.of([CHAIN] * 3)
ARCH, THREE = Architecture(4, 5), Architecture(4, 6, states=3, output="states", tied=False)
THETA, POINTS = torch.tensor([1.0, 0.5, 0.5], dtype=F64), torch.tensor([[1.0, -1.0]], dtype=F64)
GOOD = normal_weights(ARCH, ensemble=(2,))
GD, ANY = Recipe("gd", steps=1), torch.Generator()


def without(name):
    return {key: w for key, w in GOOD.items() if key != name}


def kind(d=4, length=8, **options):
    return Architecture(d, length, **options)


def of_states(d=4, length=2, hidden=6, states=3, output="states", **options):
    return Architecture(d, length, hidden=hidden, states=states, output=output, **options)


def point(length, tied):
    one = torch.tensor(0.5, dtype=F64)
    return RankOnePoint(one, one.expand(length), *5 * [one], one if tied else 2 * one)


settings = partial(replace, RUN)
on_data = partial(replace, RunSettings(Architecture(4, 6, states=3, output="states"),
                                       Recipe(steps=1), data=DirichletPrior(3, 2)))  # fmt: skip


def comparison(points=POINTS, **changes):
    return compare(Comparison(**{"p": 0.5, "q": 0.8} | changes), points)


def tree(source, members, change=lambda w: w):
    weights = normal_weights(Architecture(2, 3), ensemble=(members,))
    return PrefixTreeLoss(Architecture(2, 3), source)({k: change(w) for k, w in weights.items()})


REFUSED = [
    # architectures and their weights
    (partial(kind, 0), "d must be an integer"),
    (partial(kind, heads=3), "multiple of heads"),
    (partial(kind, hidden=0, attention="none"), "needs hidden units"),
    (partial(kind, states=3), "a binary logit needs"),
    (partial(kind, output="both"), "output must be one"),
    (partial(kind, positions="rotary"), "positions must be one"),
    (partial(kind, positions="relative", attention="uniform"), "need softmax attention"),
    (partial(kind, positions="relative-values", attention="none"), "need softmax attention"),
    (partial(kind, attention="ssm", heads=2), "neither heads"),
    (partial(kind, attention="ssm", decay="odd"), "signed, positive, not 'odd'"),
    (partial(kind, gated=True), "a gate of channels are of a state-space layer"),
    (partial(kind, attention="none", convolution=2), "and is none"),
    (partial(kind, attention="ssm", channels=0), "channels must be"),
    (partial(check_weights, ARCH, GOOD | {"extra": GOOD["bias"]}), "this architecture: extra"),
    (partial(check_weights, ARCH, without("0.up")), "this architecture: 0.up"),
    (partial(check_weights, ARCH, GOOD | {"0.up": GOOD["0.up"][:1]}), "must have shape"),
    (partial(check_weights, ARCH, GOOD | {"0.up": GOOD["0.up"].float()}), "in number type"),
    (partial(forward, ARCH, GOOD, torch.zeros(1, 6)), "do not fit"),
    # sources
    (lambda: source_of(MarkovChain([[1.0, 0.0], [0.0, 1.0]])), "reducible"),
    (lambda: source_of(SymmetricChain(300, 0.5)), "at most 256 states"),
    (lambda: source_of(OrderChain(ROWS)).repeat(2).repeat(3), "2 sources cannot serve 3"),
    (lambda: MarkovSource.of([]), "at least one chain"),
    (lambda: MarkovSource.of(MarkovChain([[1.0, 0.0], [0.5, 0.5]])), "must be positive"),
    (lambda: MarkovSource.of(MarkovChain.symmetric(1, 0.5)), "states must be"),
    (lambda: MarkovSource.of([MarkovChain.symmetric(2, 0.5)] * 2).repeat(3), "cannot serve 3"),
    (lambda: source_of(SymmetricChain(3, 0.5)).sample(0, 5, ANY), "batch ≥ 1"),
    (lambda: source_of(DirichletPrior(2)).sample(0, 5, ANY), "batch ≥ 1"),
    (lambda: PriorSource(DirichletPrior(2), 0), "at least one member"),
    (lambda: PriorSource(DirichletPrior(300)).sample(1, 2, ANY), "at most 256 states"),
    # losses
    *((partial(PopulationLoss, Architecture(4, n), SOURCE), r"2\^\d+ sequences.*GiB")
      for n in (17, 64, 10**6)),
    (partial(PopulationLoss, THREE, SOURCE), "states"),
    (lambda: PopulationLoss(ARCH, SOURCE)(normal_weights(ARCH, ensemble=(2, 2))), "axis"),
    (lambda: PopulationLoss(ARCH, THREE_SOURCES)(GOOD), "cannot serve"),
    *((partial(PrefixTreeLoss, kind(**other), SOURCE), "one layer") for other in (
        {"heads": 2}, {"layers": 2}, {"window": 2}, {"attention": "none"}, {"positions": "none"},
        {"activation": "gelu"}, {"layer_norm": True})),
    *((partial(FullField, kind(**other), CHAIN), "a field needs") for other in (
        {"heads": 2}, {"attention": "uniform"}, {"attention": "none", "layers": 2})),
    (partial(PrefixTreeLoss, of_states(hidden=None), SOURCE),
     "a source on 2 states cannot feed a model on 3"),
    (partial(PrefixTreeLoss, kind(length=40), SOURCE), r"2\^40 sequences.*GiB"),
    (partial(tree, THREE_SOURCES, 2), "3 chains cannot serve 2 models"),
    (partial(tree, SOURCE, 2, torch.Tensor.float), "float64"),
    (partial(tree, SOURCE, 2, lambda w: w.unsqueeze(0)), "axis"),
    # lifts and starts
    (partial(lift_canonical, THETA[:1], ARCH), "not 1 numbers"),
    (partial(lift_canonical, THETA * math.nan, ARCH), "eps to be lifted is not finite"),
    (partial(lift_canonical, THETA, kind(layers=2)), "layers = 1, not 2"),
    (partial(lift_canonical, THETA, kind(attention="none")), "cannot carry a point"),
    (partial(lift_canonical, THETA, ARCH, alpha=torch.ones(4)), "unit vector of 4"),
    (partial(lift_rank_one, point(5, True), ARCH, hidden_signs=torch.zeros(16)), "entries of ±1"),
    (partial(lift_rank_one, point(4, True), ARCH), "needs 5 positions"),
    (partial(lift_rank_one, point(5, False), ARCH), "tied weights have c = ε"),
    *((partial(lift_states, THETA[:2], of_states(**other)), words) for other, words in (
        ({"tied": False}, "tied = True"), ({"hidden": 7}, "multiple of the 3 states"),
        ({"d": 1}, "need d of at least 2"), ({"layer_norm": True}, "layer_norm = False"),
        ({"positions": "relative"}, "no relative positions"),
        ({"output": "binary", "states": 2}, "output = states"))),
    *((partial(lift_states, bad, of_states()), "all finite")
      for bad in (THETA[:1], torch.tensor([0.5, math.inf]))),
    (partial(fit_induction, of_states(), {}, all_sequences(2)), "two layers of one softmax head"),
    (partial(fit_induction, Architecture(6, 7, 2, hidden=0, states=2, output="states", tied=False,
                                         positions="relative"), GOOD, all_sequences(2)),
     "3 symbols or more"),
    (partial(initial_weights, kind(hidden=5), "balanced", [0]), "even"),
    (partial(initial_weights, ARCH, "uniform", [0]), "init must be one of"),
    (partial(initial_weights, ARCH, "gaussian", []), "at least one seed"),
    (partial(initial_weights, ARCH, "gaussian", [0], std=0.0), "std must be"),
    (partial(initial_weights, ARCH, "gaussian", [0], noise=-1.0), "noise must be"),
    *((partial(initial_weights, ARCH, "lifted", [0, 1], theta=theta),
       "needs one point for each of 2 models")
      for theta in (None, torch.zeros(3, 2), torch.zeros(1, 2, 2), torch.tensor(1.0))),
    # recipes, trainers and runs
    (partial(Recipe, "adam"), "trainer must be"),
    (partial(Recipe, steps=0), "steps must be"),
    (partial(Recipe, learning_rate=math.inf), "learning_rate must be"),
    (partial(Recipe, momentum=1.0), "momentum must be"),
    (partial(Recipe, weight_decay=-1.0), "weight_decay must be"),
    (partial(Recipe, warmup=1.0), "warmup must be"),
    (partial(Recipe, loss="test"), "loss must be one"),
    (partial(Recipe, schedule="linear"), "schedule one of"),
    (partial(Recipe, "flow", horizon=-1.0), "horizon must be"),
    (partial(Recipe, "flow", method="euler"), "method must be"),
    (partial(Recipe, "gd", weight_decay=0.1), "gd has no weight decay"),
    (partial(Trainer, ARCH, {k: w[0] for k, w in GOOD.items()}, SOURCE, GD), "one ensemble axis"),
    (partial(Trainer, ARCH, {k: w.half() for k, w in GOOD.items()}, SOURCE, GD), "be float32 or"),
    (partial(Trainer, ARCH, GOOD, THREE_SOURCES, GD), "3 chains cannot serve"),
    (partial(Trainer, ARCH, GOOD, SOURCE, papers_recipe()), "need a generator"),
    (partial(Trainer, Architecture(2, 40), normal_weights(Architecture(2, 40), ensemble=(1,)),
             SOURCE, GD), "length of 16 or less"),
    (partial(Trainer, THREE, initial_weights(THREE, "gaussian", [0]),
             PriorSource(DoublyStochasticPrior(3)), GD), "two states only"),
    (partial(settings, p=(1.5,)), "p must be"),
    (partial(settings, p=(0.5, 0.6), q=(0.8, 0.7, 0.6)), "must count one or 3 each"),
    (partial(settings, p=None), "the one or the other"),
    (partial(settings, seeds=(-1,)), "seed must be"),
    (partial(settings, init="lifted"), "theta goes with"),
    (partial(settings, theta=((1.0, 0.5),)), "theta goes with"),
    (partial(settings, init="lifted", theta=((1.0, 0.5), (1.0, 0.5, 0.1))), "theta must hold"),
    (partial(settings, telemetry_every=0), "telemetry_every must"),
    (partial(settings, device="tpu"), "device must be"),
    (partial(settings, arch=THREE), "cannot train on 2"),
    *((lambda wrong=wrong: train(settings(**wrong)), words) for wrong, words in (
        ({"init": "uniform"}, "init must be one of"), ({"noise": -0.1}, "noise must be"),
        ({"init": "lifted", "theta": ((1.0, math.nan),)}, "w1 to be lifted is not finite"),
        ({"arch": kind(layers=2), "init": "lifted", "theta": ((1.0, 1.0),)}, "layers = 1, not 2"))),
    (partial(on_data, p=(0.5,), q=(0.8,)), "the one or the other"),
    (partial(on_data, arch=Architecture(4, 6)), "cannot train on 3"),
    (partial(on_data, arch=Architecture(1, 6, states=3, output="states")), "d of at least 2"),
    (partial(on_data, arch=of_states()), "above the order 2"),
    (partial(on_data, init="rank-one"), "binary chains"),
    (partial(on_data, recipe=GD, data=DoublyStochasticPrior(3)), "is not known"),
    (partial(on_data, recipe=GD, arch=of_states(length=20)), r"3\^20 sequences"),
    # comparisons and claims
    *((partial(comparison, **wrong), words) for wrong, words in (
        ({"p": 1.5}, "p must be"), ({"model": "linear"}, "model must be one"),
        ({"trainer": "adam"}, "what adam does"), ({"noise": -1.0}, "noise must be"),
        ({"horizon": 0.0}, "horizon must be"), ({"dtype": "float32"}, "dtype must be"),
        ({"steps": 0}, "steps must be"), ({"noise_on": "w"}, "noise_on must be"),
        ({"noise": 0.1, "length": 20}, "length of 16 or less"))),
    (partial(comparison, POINTS[:0]), "no point to compare"),
    (partial(comparison, POINTS * math.nan), "point to compare at is not finite"),
    (partial(comparison, POINTS[0]), "points must have shape"),
    (partial(comparison, torch.zeros(2, 4)), "points must have shape"),
    (partial(comparison, torch.zeros(1, 3, dtype=F64)), "takes points"),
    (partial(comparison, model="uniform"), "takes points"),
    (partial(verify, CHAIN, seeds=[]), "seed"),
    (partial(verify, CHAIN, length=40), "GiB"),
    (partial(verify, CHAIN, d=0), "d must"),
    *((partial(trap_matrix, kind(**other), {}, CHAIN), "one layer without layer norm")
      for other in ({"layers": 2}, {"layer_norm": True}, {"output": "states"})),
    (partial(unigram_trap, ARCH, GOOD | {"0.up": GOOD["0.up"][:1]}, CHAIN), "shape"),
    (lambda: SeenChain.of(process("rrxor")).lag_ratios(3), "not correlated"),
    (lambda: SeenChain.of(process("mess3")), "sees two symbols"),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_the_call_is_refused_in_one_sentence(number):
    call, said = REFUSED[number]
    with pytest.raises(InputError, match=said) as refused:
        call()
    assert "\n" not in str(refused.value)


def test_long_sequences_without_attention_and_settings_as_they_are_are_not_refused():
    PopulationLoss(Architecture(4, 10**6, attention="none"), SOURCE)
    assert check_weights(ARCH, GOOD) == (2,) and settings() and on_data()
