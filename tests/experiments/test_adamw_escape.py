"""AdamW's way out of the unigram: the bound of section 18, and the script at tiny sizes."""

from importlib import import_module

import numpy as np
import pytest
import torch

from flowsim import BinaryChain
from flowsim.training import Recipe
from full_model import Architecture, MarkovSource, Trainer, initial_weights, trap_matrix

CHAIN = BinaryChain(0.5, 0.8)


def test_the_trap_stays_as_long_as_the_bound_says_and_goes_later():
    arch, rate, rho = Architecture(4, 3, hidden=64, attention="none"), 4e-3, 1.17
    weights = initial_weights(arch, "gaussian", range(4))
    size = max(float(torch.linalg.matrix_norm(weights[k], 2).max()) for k in ("0.up", "0.down"))
    recipe = Recipe("adamw", 350, "population", rate, weight_decay=0.0, schedule="constant")
    trainer = Trainer(arch, weights, MarkovSource.of(CHAIN), recipe)
    safe, crossed = int((1 - size) / (rho * rate * 16)), torch.zeros(4, dtype=torch.bool)
    for step in range(1, 351):
        trainer.advance()
        now = trainer.weights
        norms = [torch.linalg.matrix_norm(now[k], 2).max() for k in ("0.up", "0.down")]
        if step <= safe or step % 25 == 0:
            values = torch.linalg.eigvalsh(trap_matrix(arch, now, CHAIN))
            crossed |= values[:, 0] < 0
        if step <= safe:
            assert max(norms) <= size + rho * rate * step * 16
            assert not crossed.any()
    assert safe > 5 and crossed.all()


@pytest.mark.slow
@pytest.mark.parametrize("p, q, rate", [(0.5, 0.8, 1e-3), (0.9, 0.9, 5e-4)])
def test_the_embedding_swings_and_the_layers_grow_apart_as_derived(p, q, rate):
    # with b at the unigram's: e_i² = η/(2k), k = 2Q/σ, and units grow at about g = η^(3/2)√k/4
    batch, length, models, early, late = 16, 16, 24, 80, 160
    arch = Architecture(4, length, hidden=16)
    weights = initial_weights(arch, "gaussian", range(models))
    weights |= {"embedding": 0 * weights["embedding"]}
    weights["bias"] = weights["bias"] + float(np.log(p / q))
    recipe = Recipe("adamw", late, learning_rate=rate, batch=batch, schedule="constant")
    source, generator = MarkovSource.of(BinaryChain(p, q)), torch.Generator().manual_seed(0)
    trainer = Trainer(arch, weights, source, recipe, generator)
    trainer.advance(early)
    up, down = (trainer.weights[name].clone() for name in ("0.up", "0.down"))
    swings = []
    for _ in range(late - early):
        trainer.advance()
        swings.append(trainer.weights["embedding"].square().mean())
    sigma = float(trainer.weights["positions"].square().mean().sqrt())
    signal = (p + q - 1) * np.sqrt(p * q) / (p + q) * np.sqrt(batch * length)
    spring = 2 * signal / sigma
    assert float(torch.stack(swings).mean()) == pytest.approx(rate / (2 * spring), rel=0.25)
    # W_2's column j along −(row j of W_1)
    moved = ((trainer.weights["0.down"] - down).mT * up).sum(-1) / up.norm(dim=-1)
    speed = -float(moved.mean()) / (late - early)
    assert 0.4 < speed / (rate**1.5 * np.sqrt(spring) / 4) < 1.6


def test_a_crossing_is_interpolated_between_two_looks():
    laws = import_module("adamw_escape")
    # √μ over its value at the crossing: 0, 0.5, 1.5 and 0, 0.5, 0.5
    looks = np.array([[4.0, 3.0, -5.0, 2.0], [4.0, 3.0, 3.0, 1.0], [-1.0, -2.0, 1.0, 1.0]])
    steps = laws.crossed_at(looks, 20)
    assert steps[0] == pytest.approx(30) and np.isnan(steps[1]) and steps[2] == 0
