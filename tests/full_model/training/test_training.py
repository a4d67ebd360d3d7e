"""Trainers against closed forms, against torch's own optimizers, and against each other."""

import math

import pytest
import torch
from weights import normal_weights

from flowsim.chain import BinaryChain
from full_model import (
    Architecture,
    MarkovSource,
    PopulationLoss,
    Recipe,
    Trainer,
    cross_entropy,
    forward,
    initial_weights,
    project,
)
from full_model.model.batches import batch_gradient

CHAIN = BinaryChain(0.5, 0.8)


@pytest.mark.parametrize("momentum, clip", [(0.0, None), (0.9, 0.05)])
def test_gradient_descent_is_torchs_sgd(momentum, clip):
    arch = Architecture(4, 4)
    weights = normal_weights(arch, scale=0.3, ensemble=(1,))
    name = "sgd" if momentum else "gd"
    recipe = Recipe(
        name, steps=20, loss="population", learning_rate=0.2, momentum=momentum, clip=clip
    )
    trainer = Trainer(arch, weights, MarkovSource.of(CHAIN), recipe)
    trainer.advance(20)
    loss = PopulationLoss(arch, MarkovSource.of(CHAIN))
    peer = {k: w[0].clone().requires_grad_() for k, w in weights.items()}
    optimizer = torch.optim.SGD(peer.values(), lr=0.2, momentum=momentum)
    for _ in range(20):
        optimizer.zero_grad()
        loss(peer).backward()
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(peer.values(), clip)
        optimizer.step()
    for k, w in peer.items():
        assert (trainer.weights[k][0] - w).abs().max() < 1e-12


def test_adamw_is_torchs_with_the_one_cycle_schedule():
    """The schedule is the one-cycle cosine with div_factor 100 and final_div_factor 1/20."""
    arch, steps = Architecture(4, 4, tied=False), 60
    weights = normal_weights(arch, scale=0.3, ensemble=(1,))
    recipe = Recipe.named("adamw-papers", steps=steps, loss="population", warmup=0.2, clip=0.05)
    trainer = Trainer(arch, weights, MarkovSource.of(CHAIN), recipe)
    trainer.advance(steps)
    loss = PopulationLoss(arch, MarkovSource.of(CHAIN))
    peer = {k: w[0].clone().requires_grad_() for k, w in weights.items()}
    kept = ("embedding", "positions", "bias")
    groups = [
        {"params": [w for k, w in peer.items() if k in kept], "weight_decay": 0.0},
        {"params": [w for k, w in peer.items() if k not in kept], "weight_decay": 1e-3},
    ]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95))
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, 1e-3, steps, pct_start=0.2, cycle_momentum=False, div_factor=100,
        final_div_factor=0.05,
    )  # fmt: skip
    for step in range(steps):
        optimizer.zero_grad()
        loss(peer).backward()
        torch.nn.utils.clip_grad_norm_(peer.values(), 0.05)
        assert recipe.rate(step) == pytest.approx(schedule.get_last_lr()[0], rel=1e-12)
        optimizer.step()
        if step < steps - 1:
            schedule.step()
    for k, w in peer.items():
        assert (trainer.weights[k][0] - w).abs().max() < 1e-12


def test_flow_descends_the_loss_at_the_rate_of_the_gradient():
    """dL/dt = −‖∇L‖², and small steps of gradient descent follow the flow."""
    arch, source = Architecture(4, 4, attention="none"), MarkovSource.of(CHAIN)
    weights = normal_weights(arch, scale=0.3, ensemble=(3,))
    flow = Trainer(arch, weights, source, Recipe("flow", steps=10, horizon=0.05))
    descent = Trainer(arch, weights, source, Recipe("gd", steps=200, learning_rate=2.5e-4))
    flow.advance(10)
    descent.advance(200)
    for k, w in flow.weights.items():
        assert (w - descent.weights[k]).abs().max() < 5e-5
    loss = PopulationLoss(arch, source)
    value, gradient = loss.value_and_gradient(weights)
    speed = sum(g.reshape(3, -1).square().sum(1) for g in gradient.values())
    short = Trainer(arch, weights, source, Recipe("flow", steps=1, horizon=1e-4))
    after = short.advance(1)
    assert torch.allclose((value - after) / 1e-4, speed, rtol=1e-3)
    assert flow.evaluations > 0 and flow.alive.all()


def test_a_model_that_cannot_go_on_does_not_stop_the_others():
    arch, source = Architecture(2, 3), MarkovSource.of(CHAIN)
    weights = normal_weights(arch, scale=0.3, ensemble=(3,))
    good, broken = (
        Trainer(arch, weights, source, Recipe("flow", steps=2, horizon=0.2)) for _ in range(2)
    )
    broken.weights["bias"][1] = math.nan
    for run in (good, broken):
        run.advance(1)
        run.advance(1)
    assert broken.alive.tolist() == [True, False, True]
    for k, w in broken.weights.items():
        assert w[1].isnan().all()
        assert (w[[0, 2]] - good.weights[k][[0, 2]]).abs().max() == 0


def test_ensembles_are_their_members_under_deterministic_trainers():
    chains = [CHAIN, BinaryChain(0.2, 0.3), BinaryChain(0.9, 0.9)]
    arch = Architecture(4, 5)
    weights = normal_weights(arch, scale=0.3, ensemble=(3,))
    recipes = [
        Recipe("gd", steps=6, learning_rate=0.3),
        Recipe("adamw", steps=6, loss="population", learning_rate=1e-2),
        Recipe("flow", steps=2, horizon=0.4, method="rk4", step_size=0.1),
        Recipe("flow", steps=2, horizon=0.4),
    ]
    for recipe in recipes:
        together = Trainer(arch, weights, MarkovSource.of(chains), recipe)
        together.advance(recipe.steps)
        for i, chain in enumerate(chains):
            own = {k: w[i : i + 1] for k, w in weights.items()}
            alone = Trainer(arch, own, MarkovSource.of(chain), recipe)
            alone.advance(recipe.steps)
            for k, w in alone.weights.items():
                assert (together.weights[k][i] - w[0]).abs().max() < 1e-10


@pytest.mark.parametrize(
    "arch",
    [
        Architecture(8, 12, tied=False, heads=2),
        Architecture(4, 9, layers=2, layer_norm=True, activation="gelu", window=4),
        Architecture(4, 9, output="states", positions="relative"),
        Architecture(4, 9, hidden=0, layer_norm=True),
    ],
    ids=str,
)
def test_batch_gradient_is_autograds(arch, monkeypatch):
    chains = [CHAIN, BinaryChain(0.2, 0.3)]
    source = MarkovSource([chains[i] for i in (0, 1, 0, 1, 1)])
    inputs, targets = source.sample(6, arch.length, torch.Generator().manual_seed(1))
    weights = normal_weights(arch, scale=0.6, ensemble=(5,))
    free = {k: w.clone().requires_grad_() for k, w in weights.items()}
    value = cross_entropy(arch, forward(arch, free, inputs), targets).mean((-2, -1))
    expected = torch.autograd.grad(value.sum(), list(free.values()))
    for piece in (2**20, 6 * 12 * 64, 1):
        monkeypatch.setattr("full_model.model.batches.PIECE", piece)
        loss, gradient = batch_gradient(arch, weights, inputs, targets)
        assert (loss - value.detach()).abs().max() < 1e-13
        for k, g in zip(free, expected, strict=True):
            assert (gradient[k] - g).abs().max() < 1e-13


def test_initial_weights():
    arch = Architecture(8, 64, layers=2, layer_norm=True)
    weights = initial_weights(arch, "gaussian", range(20))
    assert float(weights["positions"].std()) == pytest.approx(0.02, rel=0.05)
    assert float(weights["0.down"].std()) == pytest.approx(0.01, rel=0.05)
    assert (weights["bias"] == 0).all() and (weights["norm"] == 1).all()
    alone = initial_weights(arch, "gaussian", [7])
    assert all((weights[k][7] == w[0]).all() for k, w in alone.items())
    one = Architecture(4, 6)
    found = project(one, initial_weights(one, "rank-one", range(5), std=0.5))
    assert found.relative_distance.max() < 1e-10
    recommended = initial_weights(one, "recommended", [0, 1], excess=torch.tensor([0.3, -0.5]))
    assert (recommended["0.up"] == 1).all()
    assert (recommended["0.down"][0] == -1).all() and (recommended["0.down"][1] == 1).all()
    canonical = project(one, recommended, alpha=torch.full((4,), 0.5)).canonical
    assert canonical[:, 1].tolist() == pytest.approx([-4.0, 4.0])  # |w| = c d
    noisy = initial_weights(one, "lifted", [3, 4], theta=torch.tensor([1.0, 0.5]), noise=0.01)
    distance = project(one, noisy).distance
    count = sum(math.prod(shape) for shape in one.shapes.values())
    assert torch.allclose(distance, torch.tensor(0.01 * math.sqrt(count)).double(), rtol=0.2)
