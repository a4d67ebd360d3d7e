"""Parts of the scripts, one by one; ``test_scripts`` runs them whole."""

import math
from importlib import import_module

import numpy as np
import papers
import pytest
import states_ends as ends
import torch
import xarray as xr

from flowsim import BinaryChain, MarkovChain
from flowsim.models import LinearAttentionModel
from flowsim.models.rank_one.point import RankOnePoint
from flowsim.training import Recipe
from full_model import (
    Architecture,
    MarkovSource,
    PopulationLoss,
    Trainer,
    initial_weights,
    lift_rank_one,
    trap_matrix,
)

ABOVE_ONE, BELOW_ONE = BinaryChain(0.5, 0.8), BinaryChain(0.2, 0.3)


@pytest.mark.slow
def test_a_broken_script_goes_on_where_it_was(tmp_path, monkeypatch, capsys):
    script = import_module("am_fig1_depth")
    words = ["--doublings", "0", "--seeds", "1", "--length", "4", "--steps", "2",
             "--descent-steps", "2", "--out"]  # fmt: skip
    assert script.main([*words, str(tmp_path / "whole")]) == 0
    trained, train = [], papers.train

    def breaks(settings, **rest):
        if not rest["resume"]:
            if len(trained) == 2:
                raise KeyboardInterrupt
            trained.append(settings)
        return train(settings, **rest)

    broken = [*words, str(tmp_path / "broken")]
    monkeypatch.setattr(papers, "train", breaks)
    with pytest.raises(KeyboardInterrupt):
        script.main(broken)
    assert script.main(broken) == 2
    assert "am_fig1_depth.parts has cases of a broken run" in capsys.readouterr().err
    trained.clear()
    assert script.main([*broken, "--resume"]) == 0  # two of four cases were there
    assert len(trained) == 2
    with (
        xr.open_dataset(tmp_path / "whole/am_fig1_depth.nc") as whole,
        xr.open_dataset(tmp_path / "broken/am_fig1_depth.nc") as found,
    ):
        xr.testing.assert_equal(found, whole)
    assert not (tmp_path / "broken/am_fig1_depth.parts").exists()


def test_appendix_d_formula():
    """The fit returns AM's own numbers from their weights, and formula (26) AM's own logits."""
    script = import_module("am_appendix_d")
    e, p, w1, b, d, r, opening = 0.3618, -0.1539, 0.3264, -0.1229, 4, 16, 5
    root, number = math.sqrt(d), lambda x: torch.tensor([x], dtype=torch.float64)
    arch = Architecture(d, 3, hidden=r)
    point = RankOnePoint(
        number(e * root),
        torch.full((1, 3), p * root, dtype=torch.float64),
        *(number(w1 * d),) * 2,
        *(number(0.0),) * 2,
        number(b),
        number(e * root),
    )
    alpha = torch.tensor([1.0, -1.0, -1.0, 1.0], dtype=torch.float64) / root
    signs = torch.where(torch.arange(r) < opening, 1.0, -1.0).double()
    weights = lift_rank_one(point, arch, alpha, signs)
    found, fit = script.fit_formula(arch, weights)
    assert int((found > 0).sum()) == opening
    assert float(fit.relative_distance) < 1e-12
    logits = script.formula_26(arch, fit, found)[0].tolist()
    assert logits == pytest.approx([-1.389671, 0.819055], abs=1e-6)


def test_attention_around_the_origin():
    """Small starts are all trapped for p + q > 1 and none for p + q < 1."""
    script = import_module("lg_fig2_attention")
    for chain, word in ((ABOVE_ONE, "local_minimum"), (BELOW_ONE, "global_minimum")):
        found = script.fate(LinearAttentionModel(chain), 0.02 * script.standard_normal(4))
        assert found[word] == 4


@pytest.mark.parametrize("decay", ["signed", "positive"])
def test_the_loss_is_the_sum_over_lags(decay):
    script = import_module("poles")
    theta = np.random.default_rng(3).normal(0, 0.5, 12)
    o, v, alpha = theta.reshape(3, 4)
    kappa = np.tanh(alpha) if decay == "signed" else 1 / (1 + np.exp(-alpha))
    lags = np.arange(500)
    weight = ((o * v) * kappa ** lags[:, None]).sum(1)

    def covariance(k):
        signals = script.VARIANCES * script.EIGENVALUES ** np.abs(k)[..., None]
        return signals.sum(-1) + script.NOISE * (k == 0)

    among = covariance(lags[:, None] - lags)
    expected = covariance(np.array(0)) - 2 * weight @ covariance(lags + 1) + weight @ among @ weight
    loss = script.Recurrence(4, decay).loss(torch.from_numpy(theta))
    assert float(loss) == pytest.approx(float(expected), rel=1e-10)


@pytest.mark.parametrize(
    "descend",
    [pytest.param(ends.descend.py_func, id="plain"),
     pytest.param(ends.descend, id="compiled", marks=pytest.mark.slow)],
)  # fmt: skip
def test_descent_is_that_of_the_population_loss(descend):
    arch = Architecture(5, 1, hidden=8, states=4, output="states", attention="none")
    weights = initial_weights(arch, "gaussian", [3], std=0.7)
    loss = PopulationLoss(arch, MarkovSource.of(MarkovChain.symmetric(4, 0.6)))
    own = [
        weights[n][0].numpy().copy() for n in ("embedding", "positions", "0.up", "0.down", "bias")
    ]
    own[1], own[3] = own[1][0], np.ascontiguousarray(own[3].T)
    found, size = descend(*own, MarkovChain.symmetric(4, 0.6).kernel, 0.1, 50)
    for _ in range(50):
        gradient = loss.value_and_gradient(weights)[1]
        weights = {name: w - 0.1 * gradient[name] for name, w in weights.items()}
    value, gradient = loss.value_and_gradient(weights)
    assert found == pytest.approx(float(value), rel=1e-12)
    assert size == pytest.approx(sum(float(g.square().sum()) for g in gradient.values()) ** 0.5)
    np.testing.assert_allclose(own[3].T, weights["0.down"][0].numpy(), rtol=1e-12)


def test_losses_of_splits():
    """One simplex is the bigram, lone states the unigram; the best of every rank is a split."""
    chain = MarkovChain.symmetric(6, 0.7)
    assert ends.split_loss(((6, 5),), 0.7) == pytest.approx(chain.entropy_rate)
    assert ends.split_loss(((1, 0),) * 6, 0.7) == pytest.approx(np.log(6))
    for blocks in (((2, 1),) * 3, ((3, 2), (3, 2)), ((5, 2), (1, 0))):
        best = ends.rank_losses(6, 0.7, sum(rank for _, rank in blocks), tries=6)[0]
        assert best == pytest.approx(ends.split_loss(blocks, 0.7), abs=2e-6)


def test_cosines_tell_a_ring_from_pairs():
    """At five states both have rank 2, and their losses differ by 0.03 % of the gap."""
    ring, pairs = ((5, 2),), ((2, 1), (2, 1), (1, 0))
    share = ends.partition_losses(5)[ring]
    assert {ring, pairs} == set(ends.splits_near(5, 2, share))
    order = [3, 0, 4, 2, 1]
    mixed = ends.cosines_of(ring)[np.ix_(order, order)]
    assert ends.distance_from_split(mixed, ring) < 1e-12
    assert ends.distance_from_split(mixed, pairs) > 0.5


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


def test_a_cell_is_trained_once(tmp_path, monkeypatch):
    script, papers = import_module("first_weights"), import_module("papers")
    with papers.parts_in(tmp_path / "parts"):
        found = script.train_cell("d = 4", "descent", "p + q > 1", 2, 250)
        monkeypatch.setattr(script, "followed", None)
        again = script.train_cell("d = 4", "descent", "p + q > 1", 2, 250)
    np.testing.assert_array_equal(again, found)
    balanced, gaussian = map(script.STARTS.index, ("balanced", "Gaussian 0.02"))
    assert (found[0, balanced] < 0.05).all() and (found[1, balanced] <= 250).all()
    assert (found[0, gaussian] > 0.95).all() and np.isnan(found[1, gaussian]).all()


def test_arrival_is_where_a_run_stays():
    lines = np.array([[0.9, 0.01, 0.9], [0.01, 0.01, 0.01], [0.01, 0.01, 0.9]])
    found = import_module("first_weights").arrival_steps(lines, np.array([0, 10, 20]))
    np.testing.assert_array_equal(found, [10, 0, np.nan])
