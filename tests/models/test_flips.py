"""The canonical model of a hidden chain with flips, against sums over hidden and seen symbols."""

import json
from itertools import product

import numpy as np
import pytest
import torch
from command import run

import flowsim
from flowsim import BinaryChain, InputError, model

CHAINS = [(0.5, 0.8, 0.1), (0.2, 0.3, 0.3), (0.9, 0.05, 0.02), (0.5, 0.8, 0.0)]


def pairs(p, q, flip):
    """P(x, x'), (2, 2), of symbols that are seen: the sum over both hidden symbols."""
    start, step = [q / (p + q), p / (p + q)], [[1 - p, p], [q, 1 - q]]
    found = np.zeros((2, 2))
    for z, after, x, seen in product((0, 1), repeat=4):
        flips = (flip if x != z else 1 - flip) * (flip if seen != after else 1 - flip)
        found[x, seen] += start[z] * step[z][after] * flips
    return found


@pytest.mark.parametrize(("p", "q", "flip"), CHAINS)
def test_loss_and_levels_are_those_of_the_seen_symbols(p, q, flip):
    flips, joint = model("flips", p, q, flip=flip), pairs(p, q, flip)
    assert flips.heading == "canonical model of a hidden chain"
    theta = torch.tensor([[1.2, -0.4], [0.3, 0.8], [0.0, 0.5]]).double()
    first = flips.optimal_bias(theta) + flips.offset(theta)
    logits = torch.stack([first, first + flips.logit_gap(theta)], -1)
    log = torch.nn.functional.logsigmoid(torch.stack([-logits, logits], -1))
    expected = -(torch.from_numpy(joint) * log).sum((-2, -1))
    torch.testing.assert_close(flips.loss(theta), expected, rtol=1e-12, atol=0)
    chances = joint / joint.sum(1, keepdims=True)
    best, trap = -(joint * np.log(chances)).sum(), -(joint.sum(0) * np.log(joint.sum(0))).sum()
    np.testing.assert_allclose(
        (flips.end_losses().best, flips.end_losses().trap), (best, trap), rtol=1e-13
    )


@pytest.mark.parametrize(("p", "q", "flip"), CHAINS)
def test_every_start_ends_as_the_closed_form_says(p, q, flip):
    flips, seen = model("flips", p, q, flip=flip), pairs(p, q, flip)
    generator = torch.Generator().manual_seed(1)
    theta = 1.5 * torch.randn(200, 2, dtype=torch.float64, generator=generator)
    found = flowsim.find_limits(flips, theta)
    reached = found.label == flowsim.Label.GLOBAL_MINIMUM
    torch.testing.assert_close(reached, flips.basin(theta))
    gap = np.log(seen[0, 0] * seen[1, 1] / (seen[0, 1] * seen[1, 0]))
    ends = flips.logit_gap(found.theta[reached]).numpy()
    np.testing.assert_allclose(ends, gap, rtol=1e-9)
    same = model("canonical", p, q).basin(theta)  # of the hidden chain itself: the same regime
    torch.testing.assert_close(reached, same)


def test_a_record_gives_the_model_again(tmp_path):
    flips = model("flips", 0.5, 0.8, flip=0.1)
    record = flowsim.scan(flips, {"w": [-1.0, 1.0], "e": [-1.0, 1.0]})
    flowsim.write_record(record, tmp_path / "flips.nc")
    again = flowsim.spec.model_from_attributes(flowsim.read_record(tmp_path / "flips.nc").attrs)
    assert again.chain == flips.chain and again.chain.hidden == BinaryChain(0.5, 0.8)


def test_the_shell_draws_it(tmp_path):
    words = ["--model", "flips", "--p", "0.5", "--q", "0.8", "--set", "flip=0.1"]
    done = run("portrait", *words, "--resolution", "6", "--quiet", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    joint = pairs(0.5, 0.8, 0.1)
    best = -(joint * np.log(joint / joint.sum(1, keepdims=True))).sum()
    assert abs(summary["entropy_rate"] - best) < 1e-12


@pytest.mark.parametrize("flip", [0.5, -0.1, float("nan"), "x", True])
def test_a_chance_that_is_none_is_refused(flip):
    with pytest.raises(InputError, match="flip must be a"):
        model("flips", 0.5, 0.8, flip=flip)
