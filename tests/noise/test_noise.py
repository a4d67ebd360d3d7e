"""Paths under Langevin noise against quadratures of the overdamped double well (x² − 1)²/4."""

import json

import numpy as np
import pytest
import torch
from command import run
from scipy.integrate import dblquad

import flowsim
from flowsim.noise import diffuse, end_probabilities, first_passages


@pytest.fixture(scope="module")
def well():
    return flowsim.from_loss(lambda x: (x**2 - 1) ** 2 / 4, "well")


def seeded(number=0):
    return torch.Generator().manual_seed(number)


@pytest.mark.parametrize(("start", "chance"), [(-0.2, 0.20058821)])
def test_chance_to_meet_one_minimum_before_the_other_is_the_quadrature(well, start, chance):
    sides = [lambda x: x[:, 0] - 1, lambda x: -1 - x[:, 0]]
    starts = torch.full((600, 1), start)
    found = first_passages(well, starts, 0.05, sides, 1e3, seeded())
    share = (found.target == 0).double().mean().item()
    assert (found.target >= 0).all()
    assert share == pytest.approx(chance, abs=4 * (chance * (1 - chance) / 600) ** 0.5)


@pytest.mark.parametrize("temperature", [0.25])
def test_mean_passage_over_the_barrier_is_the_quadrature(well, temperature):
    def integrand(z, y):
        return np.exp(((y**2 - 1) ** 2 - (z**2 - 1) ** 2) / (4 * temperature)) / temperature

    known = dblquad(integrand, -1, 0, -4, lambda y: y, epsabs=1e-6)[0]
    starts, target = torch.full((100, 1), -1.0), [lambda x: x[:, 0]]
    time = first_passages(well, starts, temperature, target, 1e5, seeded()).time
    assert time.isfinite().all()
    assert time.mean().item() == pytest.approx(known, abs=4 * time.std().item() / 10)


def test_noise_spreads_by_the_metric_and_a_path_without_noise_is_the_flow():
    class Heavy(flowsim.Model):
        coordinates = ("x", "y")
        metric = (1.0, 4.0)

        def loss(self, theta):
            return 0 * theta.sum(-1)

    spread = diffuse(Heavy(), torch.zeros(2000, 2), 0.5, 3.0, seeded(), 0.1).var(dim=0)
    assert spread.tolist() == pytest.approx([3.0, 0.75], rel=0.15)
    model = flowsim.model("canonical", 0.5, 0.8)
    start = torch.tensor([[1.0, -1.2]], dtype=torch.float64)
    still = diffuse(model, start, 0.0, 10.0, seeded(), step=0.05)
    flow = flowsim.trajectories(model, start, [0.0, 10.0])[-1]
    assert still == pytest.approx(flow, abs=1e-5)


def test_chances_over_a_plane_are_counted_from_seeds_with_intervals():
    bent = flowsim.from_loss(lambda x, y: (x**2 - 1) ** 2 / 4 + y**2 / 2, "bent")
    starts = {"x": np.array([-0.5, 0.5]), "y": np.array([0.0])}
    record = end_probabilities(bent, starts, [0.0, 0.2], 1.0, seeded(), seeds=30)
    assert record["count"].sum("basin").to_numpy().tolist() == [[[30], [30]]] * 2
    own = record.share.isel(y=0, temperature=0).to_numpy()
    assert np.sort(own, axis=1).tolist() == [[0, 0, 1]] * 2  # no noise: each its own end
    share = record.share.isel(y=0, temperature=1).to_numpy().max(axis=1)
    assert (share > 0.5).all()
    assert (share < 1).all()
    assert (record.share_low <= record.share).all()
    assert (record.share_high >= record.share).all()


def test_command_draws_chances_and_prints_them(tmp_path):
    (tmp_path / "starts.csv").write_text("e,w\n1.0,0.1\n1.0,-1.0\n")
    words = ["--p", 0.5, "--q", 0.8, "--time", 2, "--seeds", 8, "--temperature", "0.01:0.1:2"]
    done = run("noise", *words, "--points", "starts.csv", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["paths"] == 16
    assert sum(row["share"] for row in found["ends"]) == pytest.approx(2)
    again = run("portrait", "--from", "noise_p0.5_q0.8.nc", "--out", "again.png", cwd=tmp_path)
    assert again.returncode == 0, again.stderr


def test_an_array_of_starts_is_answered_in_one_sentence(well):
    with pytest.raises(flowsim.InputError, match=r"not ndarray: Points\(.* takes rows"):
        end_probabilities(well, np.zeros((2, 1)), 0.1, 1.0, seeded())


def test_a_coordinate_called_temperature_is_answered_in_one_sentence():
    warm = flowsim.from_loss(lambda temperature, x: temperature**2 + x**2, "warm")
    starts = {"temperature": np.array([0.5, 1.0]), "x": np.array([0.5])}
    with pytest.raises(flowsim.InputError, match="has a variable 'temperature' already"):
        end_probabilities(warm, starts, 0.1, 1.0, seeded())


def test_missing_temperature_is_answered_in_one_sentence(tmp_path):
    done = run("noise", "--p", 0.5, "--q", 0.8, cwd=tmp_path)
    assert done.returncode == 2
    assert (
        done.stderr
        == "flowsim: --temperature and --time are needed: of the noise, and for how long\n"
    )
