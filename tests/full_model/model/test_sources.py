"""Laws of sequences: they sum to one, samples follow them, and zeros are allowed."""

import pytest
import torch

from flowsim import BinaryChain, InputError, MarkovChain
from flowsim.chains import DirichletPrior, DoublyStochasticPrior, OrderChain, SymmetricChain
from flowsim.chains.hidden import process
from full_model import MarkovSource, PriorSource, all_sequences
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
    source, n = data if isinstance(data, MarkovSource) else source_of(data).repeat(2), 4
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
