"""Hidden Markov processes beside sums over all hidden paths, and beside known numbers."""

import itertools
import math

import numpy as np
import pytest
import torch

from flowsim import InputError
from flowsim.chains.hidden import PROCESSES, HiddenMarkovProcess, process

#: H₂, H₃, H₄ and H₈ in nats, from an independent enumeration.
LOSSES = [
    ("flips", {"p": 0.5, "q": 0.8, "epsilon": 0.2},
     (0.6780703052, 0.6778323580, 0.6778207752, 0.6778201947)),
    ("flips", {"p": 0.9, "q": 0.9, "epsilon": 0.1},
     (0.5556469516, 0.5369756545, 0.5323207595, 0.5313654416)),
    ("mess3", {}, (0.8577189840, 0.8133556845, 0.7981176133, 0.7934796736)),
    ("golden-mean", {}, (0.4620981204,) * 4),
    ("even", {}, (0.6059391566, 0.5493061443, 0.5340186385, 0.4800782499)),
    # two of three bits are random, and places are told apart by the past alone
    ("z1r", {}, (0.6365141683, 0.4620981204, math.log(2) / 3, math.log(2) / 3)),
]  # fmt: skip


def random_process(symbols, states, seed):
    draws = np.random.default_rng(seed)
    return HiddenMarkovProcess(
        draws.dirichlet(np.ones(symbols * states), states)
        .reshape(states, symbols, states).transpose(1, 0, 2)
    )  # fmt: skip


def word_law(found, length):
    """P(word) by a sum over all hidden paths, an array of shape (V,) * length."""
    T, pi = found.transitions, found.hidden.stationary
    law = np.zeros((found.symbols,) * length)
    for word in itertools.product(range(found.symbols), repeat=length):
        for path in itertools.product(range(found.states), repeat=length + 1):
            moves = zip(word, path, path[1:], strict=False)
            law[word] += pi[path[0]] * math.prod(T[x, i, j] for x, i, j in moves)
    return law


@pytest.mark.parametrize("name, numbers, known", LOSSES)
def test_losses_are_the_known_ones(name, numbers, known):
    found = process(name, **numbers).ngram_losses(8)
    assert [found[n - 1] for n in (2, 3, 4, 8)] == pytest.approx(known, abs=1e-9)


def test_bounds_of_the_entropy_rate_are_the_known_ones():
    low, high = process("flips").entropy_bounds(16)
    assert (low, high) == pytest.approx((0.6306466485, 0.6306466987), abs=1e-10)
    low, high = process("mess3").entropy_bounds(11)
    assert (low, high) == pytest.approx((0.7934574127, 0.7934579337), abs=1e-10)
    assert process("even").entropy_bounds(16)[0] == pytest.approx(2 / 3 * math.log(2), abs=1e-12)


@pytest.mark.parametrize("symbols, states", [(2, 2), (3, 2), (2, 3)])
def test_losses_filter_and_neighbours_are_those_of_a_sum_over_paths(symbols, states):
    found = random_process(symbols, states, 7 * symbols + states)
    laws = [word_law(found, n) for n in range(1, 5)]
    entropies = [-(law * np.log(law)).sum() for law in laws]
    losses = found.ngram_losses(4)
    assert losses == pytest.approx(np.diff([0, *entropies]), abs=1e-12)
    assert found.stationary == pytest.approx(laws[0])
    chance = laws[1] / laws[0][:, None]
    assert found.neighbours.kernel == pytest.approx(chance)
    words = np.array(list(itertools.product(range(symbols), repeat=3)))
    predicted = found.next_laws(words)
    for word, law in zip(words, predicted, strict=True):
        for n in (1, 2, 3):
            seen = laws[n][tuple(word[:n])]
            assert law[n - 1] == pytest.approx(seen / seen.sum())


@pytest.mark.parametrize("name", PROCESSES)
def test_samples_have_the_law(name):
    found = process(name)
    drawn = found.sample(4000, 3, torch.Generator().manual_seed(3))
    words = torch.cat([drawn.symbols, drawn.targets[:, -1:]], 1).numpy()
    law, counts = word_law(found, 4), np.zeros((found.symbols,) * 4)
    np.add.at(counts, tuple(words.T), 1)
    assert (counts[law == 0] == 0).all()
    spread = np.sqrt(law * (1 - law) / 4000)
    assert (np.abs(counts / 4000 - law) <= 5 * spread).all()
    assert drawn.next_law.numpy() == pytest.approx(found.next_laws(drawn.symbols.numpy()))
    own = found.transitions.sum(2)[words[:, 0], drawn.hidden[:, 0].numpy()]
    assert (own > 0).all()  # a state emits what was seen


@pytest.mark.parametrize("make, words", [
    (lambda: HiddenMarkovProcess([[0.5, 0.5], [0.5, 0.5]]), "shape"),
    (lambda: HiddenMarkovProcess([[[0.5, 0.1], [0, 1]], [[0, 0.1], [0, 0]]]), "row 0 sums"),
    (lambda: HiddenMarkovProcess([[[1.5, 0], [0, 1]], [[-0.5, 0], [0, 0]]]), "negative"),
    (lambda: HiddenMarkovProcess.from_emission(np.eye(2), [[1, 0]]), "row for each of the 2"),
    (lambda: HiddenMarkovProcess.from_emission(np.full((2, 2), 0.5), [[1, 1], [0, 1]]), "sum to"),
    (lambda: process("mess4"), "no process 'mess4'"),
    (lambda: process("mess3", y=1), "no 'y'; it has x, a"),
    (lambda: process("flips", epsilon=0.5), "from 0 up to, but not, 0.5"),
    (lambda: process("mess3").ngram_losses(13), "smaller n"),
    (lambda: process("golden-mean").beliefs([0, 0]), "cannot emit"),
    (lambda: process("golden-mean").beliefs([0, 2]), "from 0 to 1"),
    (lambda: process("mess3").linear_filter, "two hidden states"),
])  # fmt: skip
def test_what_is_no_process_is_refused(make, words):
    with pytest.raises(InputError, match=words):
        make()
