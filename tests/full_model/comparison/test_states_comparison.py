"""Comparisons with the plane of S states: exact fields, exact agreement, honest outcomes."""

import numpy as np
import pytest
import torch
from command import assert_refused, run

from flowsim import InputError, MarkovChain, model, read_record
from flowsim.labels import Label
from full_model import (
    Architecture,
    Comparison,
    MarkovSource,
    PopulationLoss,
    compare,
    grid_points,
    initial_weights,
    lift_states,
)
from full_model.comparison.choices import predicting_model
from full_model.comparison.fields import AttentionFreeField, EnumeratedField
from full_model.comparison.outcome import EndReason, hessian_block, mean_free_basis
from full_model.comparison.side_by_side import SideBySide, full_field, lifted_weights
from full_model.comparison.steps import step_until
from full_model.lift.states import project_states
from full_model.model.transformer import forward

F64 = torch.float64
#: S, p, N, d, attention.
CASES = [(2, 0.7, 3, 3, "softmax"), (3, 0.6, 2, 4, "softmax"), (5, 0.9, 1, 5, "softmax"),
         (3, 0.8, 3, 4, "none")]  # fmt: skip
SMALL = ["compare", "--model", "states", "--states", "3", "--p", "0.8", "--d", "3", "--grid", "2x3"]


def arch_of(states, length, d, attention, m=2):
    return Architecture(
        d, length, hidden=m * states, states=states, output="states", attention=attention
    )


def field_of(arch, chain):
    field = AttentionFreeField if arch.attention == "none" else EnumeratedField
    return field(arch, chain)


def random_weights(arch, members=3):
    weights = initial_weights(arch, "gaussian", range(members), std=0.8)
    weights["bias"] = torch.linspace(-1, 1, members * arch.states, dtype=F64).reshape(members, -1)
    return weights


@pytest.mark.parametrize("case", CASES, ids=str)
def test_loss_and_gradient_are_those_of_enumeration(case):
    states, p, length, d, attention = case
    arch = arch_of(states, length, d, attention)
    source = MarkovSource.of(MarkovChain.symmetric(states, p))
    weights = random_weights(arch)
    field = field_of(arch, MarkovChain.symmetric(states, p))
    loss, gradient = field.loss(field.state(weights)), field.gradient(weights)
    expected, by_name = PopulationLoss(arch, source).value_and_gradient(weights)
    torch.testing.assert_close(loss, expected, rtol=1e-13, atol=0)
    for name, value in by_name.items():
        torch.testing.assert_close(gradient[name], value, rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize("case", [CASES[1], CASES[3]], ids=str)
def test_the_stiffness_bounds_gauss_newton(case):
    """No less than half the largest curvature of Σ law J ᵀ(diag t − ttᵀ) J, t model or target."""
    states, p, length, d, attention = case
    arch = arch_of(states, length, d, attention)
    field = field_of(arch, MarkovChain.symmetric(states, p))
    weights = random_weights(arch, 1)
    flat = field.state(weights)
    loss = PopulationLoss(arch, MarkovSource.of(MarkovChain.symmetric(states, p)))

    def logits(state):
        parts = field.weights(state.unsqueeze(0))
        return forward(arch, {name: part[0] for name, part in parts.items()}, loss.tokens)

    slopes = torch.autograd.functional.jacobian(logits, flat[0])  # (sequences, N, S, K)
    for chance in (logits(flat[0]).softmax(-1), loss.targets[0]):
        about = torch.diag_embed(chance) - chance.unsqueeze(-1) * chance.unsqueeze(-2)
        law = loss.probability[0] / length
        matrix = torch.einsum("b,bnac,bnak,bncl->kl", law, about, slopes, slopes)
        assert torch.linalg.eigvalsh(matrix)[-1] < float(field(flat)[1][0])


def test_a_shared_position_moves_as_all_of_them():
    arch, chain = arch_of(3, 4, 4, "none"), MarkovChain.symmetric(3, 0.7)
    weights = random_weights(arch)
    weights["positions"] = weights["positions"][:, :1].expand(-1, 4, -1)
    one, every = (AttentionFreeField(arch, chain, shared) for shared in (True, False))
    found = one.whole(one(one.state(weights))[0] / one.metric)
    for name, value in every.gradient(weights).items():
        torch.testing.assert_close(found[name], value, rtol=1e-12, atol=1e-15)
    stiff = [field(field.state(weights))[1] for field in (one, every)]
    torch.testing.assert_close(*stiff, rtol=1e-12, atol=0)


def test_the_projection_gives_back_what_was_lifted():
    theta = torch.tensor([[0.9, 0.3], [-0.7, -0.6]], dtype=F64)
    arch = arch_of(3, 2, 5, "softmax")
    weights = lift_states(theta, arch)
    turn = torch.linalg.qr(torch.randn(5, 5, dtype=F64, generator=torch.Generator().manual_seed(1)))
    turned = {
        "embedding": weights["embedding"] @ turn[0],
        "0.up": weights["0.up"] @ turn[0],
        "0.down": turn[0].T @ weights["0.down"],
    }
    for given, turns in ((weights, 0), (weights, 3), (weights | turned, 8)):
        found = project_states(arch, given, turns)
        assert found.relative_distance.max() < 1e-7
        assert (found.canonical.abs() - theta.abs()).abs().max() < 1e-6
    assert project_states(arch, weights | turned).relative_distance.min() > 0.1


def test_the_block_at_the_unigram_is_the_hessian():
    arch, chain = arch_of(3, 2, 3, "softmax"), MarkovChain.symmetric(3, 0.8)
    field, weights = EnumeratedField(arch, chain), random_weights(arch, 2)
    basis = mean_free_basis(3)
    assert (basis @ basis.T - torch.eye(2)).abs().max() < 1e-15 and basis.sum(1).abs().max() < 1e-15
    block, smooth = hessian_block(basis, weights, field.gradient)
    assert smooth.all() and (block[:, :2, :2] - torch.eye(2) / 3).abs().max() < 1e-6
    mean = weights["embedding"][0].mean(0)
    loss = PopulationLoss(arch, MarkovSource.of(chain))

    def value(entries):
        moved = {name: part[0] for name, part in weights.items()}
        moved["bias"] = entries[:2] @ basis
        moved["embedding"] = mean + (entries[2:].reshape(2, 3).T @ basis).T
        return loss(moved)

    exact = torch.autograd.functional.hessian(value, torch.zeros(8, dtype=F64))
    torch.testing.assert_close(block[0], exact, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("trainer", ["gd", "flow"])
def test_above_the_threshold_every_run_ends_as_predicted(trainer):
    points = grid_points(3, 4, (-1.0, 0.6), (-1.2, 1.2))
    record = compare(Comparison(0.8, None, "states", trainer, d=4, states=3), points)
    assert record.attrs["agreement"] == 1 and record.attrs["decided"] == 12
    assert record.attrs["different_starts"] == 6 and "agreement_low" not in record.attrs
    assert {1, 2} == set(record.predicted.values.tolist())
    assert np.nanmax(record.drift) < 1e-7
    if trainer == "flow":
        assert np.nanmax(record.distance) < 1e-3
    assert record.attrs["hidden_per_state"] == 4 and record.attrs["noisy_weights"] == ["none"]


def test_below_the_threshold_the_trap_is_a_saddle():
    """Or rounding frees the run; it is called a local minimum in no case."""
    record = compare(
        Comparison(0.5, None, "states", d=4, states=3, steps=3000),
        torch.tensor([[0.9, 0.3], [0.3, -1.1], [0.5, -0.8]], dtype=F64),
    )
    assert record.predicted.values.tolist() == [1, 2, 2]
    found = record.outcome.values.tolist()
    assert found[0] == Label.GLOBAL_MINIMUM and Label.LOCAL_MINIMUM not in found
    assert Label.SADDLE in found


@pytest.mark.slow
@pytest.mark.parametrize("case", [(2, 0.7, 3, 0.02), (3, 0.8, 2, 0.1), (5, 0.9, 2, 0.02)], ids=str)
def test_decided_outcomes_stand_when_the_run_goes_on(case):
    states, p, length, noise = case
    settings = Comparison(p, None, "states", d=states + 1, length=length, noise=noise,
                          states=states)  # fmt: skip
    points = grid_points(4, 2, (-1.4, 0.6), (0.2, 1.6))
    work = SideBySide(settings, points, predicting_model(settings, 2))
    work.run()
    full, chain = work.full, settings.chain
    decided = full.end_reasons() == EndReason.DECIDED
    assert int(decided.sum()) >= 7 and full.steps[decided].max() < 5000
    until = float(full.time[decided].max()) + 60.0
    step_until(full.field, full.state, full.time, full.steps, until, decided)
    loss = full.field.loss(full.state)
    learned = full.outcome == Label.GLOBAL_MINIMUM
    expected = torch.where(learned, chain.entropy_rate, chain.stationary_entropy)
    off = (loss - expected).abs()[decided]
    assert off.max() < 1e-2 * chain.mutual_information
    assert {1, 2} <= set(full.outcome.tolist())


@pytest.mark.slow
@pytest.mark.parametrize("states, p, trainer", [(5, 0.9, "flow"), (10, 0.95, "gd")])
def test_larger_planes_agree_exactly(states, p, trainer):
    settings = Comparison(p, None, "states", trainer, d=states + 1, states=states)
    record = compare(settings, grid_points(6, 6, (-1.5, 1.0), (-1.5, 1.5)))
    assert record.attrs["agreement"] == 1 and record.attrs["decided"] == 36


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "start", "seed", "share", "rank"),
    [((3, 0.8, 3), (1.5, -0.1), 149, 0.518, 1), ((5, 0.95, 2), (0.9, -0.3), 88, 0.526, 2)],
)
def test_some_noisy_runs_learn_some_of_the_directions(case, start, seed, share, rank):
    """Runs of experiments/states_agreement.py that end between unigram and bigram: Ẽ has rank k."""
    states, p, length = case
    settings = Comparison(p, None, "states", length=length, noise=0.1, steps=2000, states=states)
    points = torch.tensor([start], dtype=F64)
    work = SideBySide(settings, points, predicting_model(settings, 2), [seed])
    work.run()
    assert work.full.outcome.tolist() == [Label.UNRESOLVED]
    assert float(work.full.open_share[0]) == pytest.approx(share, abs=2e-3)
    embedding = work.full.field.weights(work.full.state)["embedding"][0]
    values = torch.linalg.svdvals(embedding - embedding.mean(0))
    assert values[rank - 1] > 0.5 and (values[rank:] < 1e-3).all()


def test_noise_reaches_the_weights_that_are_named():
    points = torch.tensor([[0.9, 0.3], [0.4, -0.6]], dtype=F64)
    options = {"d": 3, "length": 2, "states": 3, "hidden_per_state": 2}
    clean = lifted_weights(Comparison(0.8, None, "states", **options), points)
    noisy = {on: lifted_weights(Comparison(0.8, None, "states", noise=0.02, noise_on=on, **options),
                                points) for on in ("all", "attention", "others")}  # fmt: skip
    inside = {"0.query", "0.key", "0.value", "0.out"}
    for name, weight in clean.items():
        assert not torch.equal(noisy["all"][name], weight)
        assert torch.equal(noisy["attention"][name], weight) == (name not in inside)
        assert torch.equal(noisy["others"][name], weight) == (name in inside)
    settings = Comparison(0.8, None, "states", noise=0.02, noise_on="others", **options)
    assert full_field(settings, 2).arch.attention == "none"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"states": None}, "needs states"),
        ({"q": 0.5}, "takes no q"),
        ({"trainer": "adamw"}, "choose flow or gd"),
        ({"d": 1}, "3 states need d of at least 2"),
        ({"model": "rank-one", "q": 0.5}, "has no states; omit it"),
        ({"hidden_per_state": 0}, "hidden"),
    ],
)
def test_settings_that_make_no_sense(options, words):
    given = {"p": 0.8, "model": "states", "states": 3} | options
    with pytest.raises(InputError, match=words):
        predicting_model(Comparison(**given), 2)


def test_the_command_line(tmp_path):
    done = run(*SMALL, "--hidden-per-state", "2", "--steps", "300", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "plane of S states" in done.stdout
    record = read_record(tmp_path / "compare_states_gd_S3_m2_p0.8.nc", "comparison")
    assert record.attrs["states"] == 3 and "q" not in record.attrs
    again = model("states", states=3, p=0.8, hidden_per_state=2)
    assert set(record.predicted.values) <= {1, 2} and again.hidden_per_state == 2


def test_the_command_line_refuses(tmp_path):
    for more, words in (
        (["--q", "0.5"], "takes no q"),
        (["--trainer", "sgd"], "--trainer gd or flow"),
        (["--noise", "0.1", "--length", "20"], "choose at most 10"),
        (["--d", "1"], "3 states need d of at least 2"),
        (["--fix", "a=0.5"], "--model uniform or rank-one"),
    ):
        assert_refused(run(*SMALL, *more, cwd=tmp_path), words)
    assert_refused(run("compare", "--model", "states", "--p", "0.5", cwd=tmp_path), "--states")
