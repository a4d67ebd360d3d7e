"""Gaussian initializations: the integral, the scan beside it, and the command."""

import json

import mpmath
import numpy as np
import pytest
from command import assert_refused, run
from conftest import REFERENCE, relative_error
from matplotlib.image import imread
from scipy.stats import chi2

from flowsim import BinaryChain, InputError, find_limits, model, read_record
from flowsim.drawing.curves import draw_gaussian
from flowsim.models import CanonicalModel
from flowsim.models.canonical.gaussian_integral import (
    gaussian_limits,
    gaussian_probability,
    trapped_below,
)
from flowsim.scan.gaussian import gaussian as gaussian_record

ABOVE, BELOW, ONE = BinaryChain(0.5, 0.8), BinaryChain(0.2, 0.3), BinaryChain(0.3, 0.7)


@pytest.mark.parametrize("row", REFERENCE["gaussian_global_probability"], ids=lambda r: r["sigma"])
def test_integral_agrees_with_the_reference_table(row):
    above = gaussian_probability(ABOVE, row["sigma"])
    assert above == pytest.approx(row["switching_above_one"], abs=1e-13)
    below = gaussian_probability(BELOW, row["sigma"])
    assert below == pytest.approx(row["switching_below_one"], abs=1e-13)
    if row["sigma"] >= 0.1:
        assert relative_error(above, row["switching_above_one"]) < 1e-12


def in_many_digits(sigma, above, ratio=1):
    """The integral in w of docs/derivations/03.md, in 20 digits, on pieces of half a σ."""
    with mpmath.workdps(20):
        of_e, root = mpmath.mpf(sigma), mpmath.sqrt(mpmath.mpf(1) / 2)
        s = ratio * of_e
        saddle = -(1 + mpmath.log(2)) / 2

        def integrand(w):
            level = mpmath.sqrt(max(w * w - mpmath.log(-w) + saddle, 0)) / mpmath.sqrt(2) / of_e
            weight = mpmath.erfc(level) if above else mpmath.erf(level)
            return weight * mpmath.exp(-w * w / (2 * s * s)) / s / mpmath.sqrt(2 * mpmath.pi)

        if above:
            ends = {-root, *(-(mpmath.mpf(2) ** -k) for k in range(1, 80, 2)), mpmath.mpf(0)}
            ends |= {w for k in range(-20, 21) if -root < (w := -mpmath.mpf(1) / 2 + k * s / 2) < 0}
            tail = mpmath.erfc(1 / (2 * s)) / 2
        else:
            steps = [s * s * k / 4 for k in range(1, 200) if s * s * k / 4 < s / 2]
            ends = {-root, *(-root - x for x in steps), *(-root - k * s / 2 for k in range(1, 40))}
            tail = mpmath.mpf(0)
        return float(tail + mpmath.quad(integrand, sorted(ends)))


@pytest.mark.parametrize("sigma", [0.02])
def test_small_probabilities_are_right_to_their_own_size(sigma):
    assert relative_error(gaussian_probability(ABOVE, sigma), in_many_digits(sigma, True)) < 1e-11
    assert relative_error(trapped_below(sigma, sigma), in_many_digits(sigma, False)) < 1e-9


@pytest.mark.parametrize("sigma, ratio", [(0.25, 8**0.5), (2.0, 0.5)])
def test_e_and_w_may_have_different_scales(sigma, ratio):
    found = gaussian_probability(ABOVE, sigma, ratio)
    assert relative_error(found, in_many_digits(sigma, True, ratio)) < 1e-10
    found = trapped_below(sigma, ratio * sigma)
    assert relative_error(found, in_many_digits(sigma, False, ratio)) < 1e-9
    small, large = gaussian_limits(BELOW, ratio)
    assert gaussian_probability(BELOW, 1e-3, ratio) == small == 1
    assert gaussian_probability(BELOW, 1e6, ratio) == pytest.approx(large, abs=1e-6)


def test_the_plane_of_five_states_beside_its_integral():
    record = gaussian_record(model("states", 0.7, states=5), np.array([0.1, 0.5, 2.0]), 2000)
    assert record.attrs["wrong"] == record.attrs["unresolved"] == 0
    assert record.attrs["largest_relative_energy_drift"] < 1e-8
    off = np.abs(record["fraction"] - record["integral"])
    deviation = np.sqrt(record["integral"] * (1 - record["integral"]) / 2000)
    assert (off <= 4 * deviation + 1e-12).all()
    assert "$S$ = 5, $m$ = 4" in draw_gaussian(record).axes[0].get_title()


@pytest.fixture(scope="module", params=[ABOVE, BELOW, ONE], ids=lambda chain: chain.regime)
def record(request):
    return gaussian_record(CanonicalModel(request.param), np.geomspace(0.02, 3, 12), 1500, seed=5)


def test_the_flow_agrees_with_the_integral(record):
    assert record.attrs["wrong"] == record.attrs["unresolved"] == 0
    assert record.attrs["largest_relative_energy_drift"] < 1e-8
    expected, n = record["integral"].to_numpy(), record.attrs["samples"]
    reached = record["count_global_minimum"].to_numpy()
    countable = n * np.minimum(expected, 1 - expected) > 8
    e = expected[countable]
    statistic = (((reached[countable] - n * e) ** 2) / (n * e * (1 - e))).sum()
    assert statistic <= chi2.ppf(0.999, max(countable.sum(), 1))
    assert countable.sum() >= (0 if record.attrs["regime"] == "p + q = 1" else 5)
    # a rare outcome is seen at most a few times
    rare = n * np.minimum(expected, 1 - expected)[~countable]
    seen = np.minimum(reached, n - reached)[~countable]
    assert (seen <= rare + 6 * np.sqrt(rare + 0.5)).all()


def test_what_has_no_cloud_of_canonical_starts_is_refused():
    sigmas = np.ones(1)
    for of in (model("untied", 0.5, 0.8), CanonicalModel(ABOVE, bias="dynamic")):
        with pytest.raises(InputError, match="need a tied model, bias optimal"):
            gaussian_record(of, sigmas, 10)
    with pytest.raises(InputError, match="samples"):
        gaussian_record(CanonicalModel(ABOVE), sigmas, 0)


def test_rank_one_starts_are_the_lifts_of_the_canonical_ones():
    """The seed's clouds are the same, and the integral is still the canonical model's."""
    sigmas, samples = np.array([0.3, 1.0, 3.0]), 400
    of, canonical = model("rank-one", 0.5, 0.8, length=8), CanonicalModel(ABOVE)
    found, plain = (gaussian_record(m, sigmas, samples, seed=3) for m in (of, canonical))
    assert found["integral"].equals(plain["integral"])
    assert found.attrs["unresolved"] == 0
    assert "wrong" not in found and "largest_relative_energy_drift" not in found.attrs
    draws = np.random.default_rng(0)  # another source: the shares agree as shares do
    start = np.concatenate([s * draws.standard_normal((samples, 2)) for s in sigmas])
    label = find_limits(of, of.from_canonical(start)).label.reshape(3, samples)
    share = (label == 1).mean(axis=1)
    assert (np.abs(found["fraction"] - share) < 4 * np.sqrt(0.5 / samples)).all()
    assert "canonical model" in draw_gaussian(found).legends[0].get_texts()[0].get_text()


def test_command_writes_figure_and_record_and_overwrites_nothing(tmp_path):
    words = ["gaussian", "--p", "0.5", "--q", "0.8", "--sigma", "0.1:2:5", "--samples", "400"]
    done = run(*words, "--out", "g.png", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["integral"][-1] == pytest.approx(REFERENCE_AT_TWO, abs=1e-12)
    assert (summary["wrong"], summary["unresolved"]) == (0, 0)
    assert imread(tmp_path / "g.png").std() > 0.1
    record = read_record(tmp_path / "g.nc", "gaussian")
    assert record["fraction"].to_numpy().tolist() == summary["fraction"]
    assert_refused(run(*words, "--out", "g.png", cwd=tmp_path), "--overwrite")
    done = run(*words, "--out", "g.png", "--overwrite", "--quiet", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    again = read_record(tmp_path / "g.nc", "gaussian")
    assert again.drop_attrs().identical(record.drop_attrs())


REFERENCE_AT_TWO = next(
    row["switching_above_one"]
    for row in REFERENCE["gaussian_global_probability"]
    if row["sigma"] == 2
)


def test_the_record_says_which_sigma_is_best_and_with_what_chance():
    """The hilltop of ¼(x² − 1)² + 0.3x is at x = 0.34: all of σ = 0.05 falls to the lower left."""
    import flowsim

    well = flowsim.from_loss(lambda x, y: (x**2 - 1) ** 2 / 4 + y**2 / 2 + 0.3 * x, "well")
    record = flowsim.gaussian(well, [0.05, 0.5, 3.0], samples=200)
    best = {name: record.attrs[f"best_{name}"] for name in ("sigma", "chance", "low", "high")}
    assert best["sigma"] == 0.05 and best["chance"] == 1 and best["low"] > 0.97
    assert flowsim.summarize(record)["best_sigma"] == 0.05
    assert "is best" in flowsim.draw(record).axes[0].get_title()
