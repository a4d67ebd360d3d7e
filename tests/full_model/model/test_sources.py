"""Laws of sequences: they sum to one, samples follow them, and zeros are allowed."""

import pytest
import torch

from flowsim import BinaryChain, InputError, MarkovChain
from flowsim.chains import DirichletPrior, DoublyStochasticPrior, OrderChain, SymmetricChain
from flowsim.chains.hidden import process
from flowsim.training import Recipe
from full_model import (
    Architecture,
    MarkovSource,
    PriorSource,
    Trainer,
    all_sequences,
    initial_weights,
)
from full_model.model.sources import sequence_law
from full_model.training.settings import source_of

ROWS = [[0.1, 0.9], [0.3, 0.7], [1.0, 0.0], [0.6, 0.4]]
CYCLE = [[0.0, 1.0, 0.0], [0.5, 0.0, 0.5], [1.0, 0.0, 0.0]]
DATA = [
    SymmetricChain(3, 0.9),
    MarkovSource.of([BinaryChain(0.1, 0.4), BinaryChain(0.8, 0.7)]),
    MarkovChain(CYCLE),
    OrderChain(ROWS),
    DirichletPrior(2, 2),
    DirichletPrior(3),
    DoublyStochasticPrior(2),
    process("flips"),
    process("mess3"),
]


@pytest.mark.parametrize("data", DATA, ids=[type(data).__name__ for data in DATA])
def test_samples_follow_the_law_of_sequences(data):
    source, n = data if isinstance(data, MarkovSource) else source_of(data, 2), 4
    tokens = all_sequences(n, source.states)
    laws = source.next_laws(tokens)
    law = sequence_law(source, tokens, laws)
    assert laws.sum(-1) == pytest.approx(1) and law.sum(-1) == pytest.approx(1)
    inputs, targets = source.sample(40_000, n, torch.Generator().manual_seed(1))
    assert inputs.dtype == torch.uint8 and torch.equal(inputs[..., 1:], targets[..., :-1])
    again = [source.sample(9, n, torch.Generator().manual_seed(2))[1] for _ in range(2)]
    assert torch.equal(*again)  # the same seed gives the same sample
    place = (inputs.long() * source.states ** torch.arange(n - 1, -1, -1)).sum(-1)
    assert not torch.equal(inputs[0], inputs[1])
    for member in (0, 1):
        drawn = torch.bincount(place[member], minlength=len(tokens)) / 40_000
        deviation = (law[member] / 40_000).sqrt()
        assert ((drawn - law[member]).abs() <= 5 * deviation + 1e-12).all()
    # the last symbol is drawn like every other
    last = laws[0, place[0], -1].gather(-1, targets[0, :, -1:].long()).double()
    expected = (law[0] * laws[0, :, -1].square().sum(-1)).sum()
    assert float(last.mean()) == pytest.approx(float(expected), abs=0.01)


def test_kernels_without_bayes_are_scored_by_their_own():
    source = PriorSource(DoublyStochasticPrior(3), 2)
    assert not source.exact
    tokens, laws = source.held_out(4, 30, torch.Generator().manual_seed(0))
    assert laws.shape == (2, 4, 30, 3) and laws.sum(-1).flatten().tolist() == pytest.approx(
        [1] * 240
    )
    for s in range(3):  # one row for each symbol of a sequence
        rows = laws[0, 0][tokens[0, 0] == s]
        assert (rows == rows[0]).all()
    with pytest.raises(InputError, match="two states only"):
        source.next_laws(tokens)


def test_a_hidden_source_has_the_laws_of_its_process():
    hidden = process("flips")
    tokens = all_sequences(4)
    found = source_of(hidden).next_laws(tokens)[0]
    assert found.numpy() == pytest.approx(hidden.next_laws(tokens.numpy()))


THREE = Architecture(4, 6, states=3, output="states", tied=False)
ANY = torch.Generator()
REFUSED = [
    (lambda: source_of(MarkovChain([[1.0, 0.0], [0.0, 1.0]])), "reducible"),
    (lambda: source_of(SymmetricChain(300, 0.5)), "at most 256 states"),
    (lambda: source_of(OrderChain(ROWS), 2).repeat(3), "2 sources cannot serve 3"),
    (lambda: MarkovSource.of([]), "at least one chain"),
    (lambda: MarkovSource(torch.ones(1, 2, 2)), "must sum to one"),
    (lambda: MarkovSource(torch.tensor([[[1.0, 0.0], [0.5, 0.5]]])), "must be positive"),
    (lambda: MarkovSource.of(MarkovChain.symmetric(1, 0.5)), "states must be"),
    (lambda: MarkovSource.of([MarkovChain.symmetric(2, 0.5)] * 2).repeat(3), "cannot serve 3"),
    (lambda: source_of(SymmetricChain(3, 0.5)).sample(0, 5, ANY), "batch ≥ 1"),
    (lambda: source_of(DirichletPrior(2)).sample(0, 5, ANY), "batch ≥ 1"),
    (lambda: PriorSource(DirichletPrior(2), 0), "at least one member"),
    (lambda: PriorSource(DirichletPrior(300)).sample(1, 2, ANY), "at most 256 states"),
    (lambda: Trainer(THREE, initial_weights(THREE, "gaussian", [0]),
                     PriorSource(DoublyStochasticPrior(3)), Recipe("gd", steps=1)),
     "two states only"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "said"), REFUSED, ids=lambda value: str(value)[:20])
def test_what_does_not_fit_is_one_sentence(make, said):
    with pytest.raises(InputError, match=said):
        make()
