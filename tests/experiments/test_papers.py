"""The scripts of the papers' figures, run small: files, and the claims that hold at that size."""

import json
import math
from importlib import import_module
from pathlib import Path

import papers
import pytest
import torch
import xarray as xr

from flowsim import BinaryChain
from flowsim.models import LinearAttentionModel, UniformAttentionModel
from flowsim.models.rank_one.point import RankOnePoint
from full_model import Architecture, lift_rank_one

GD = "population gradient descent, d = 8"
ABOVE, BELOW = "p = 0.5, q = 0.8", "p = 0.2, q = 0.3"
ABOVE_ONE, BELOW_ONE = BinaryChain(0.5, 0.8), BinaryChain(0.2, 0.3)
EXPERIMENTS = Path(__file__).parents[2] / "experiments"
#: Scripts with a stored record.
STORED = sorted(
    {path.stem for path in EXPERIMENTS.parent.glob("figures/*.nc")}
    & {path.stem for path in EXPERIMENTS.glob("*.py")}
)
#: Those that draw nothing: a table says it.
TABLES = ("agreement_sampled", "states_threshold")
QUICK = ("am_appendix_d", "lg_losses", "lg_rank_one_energy")


def run(name: str, folder: Path, **sizes: object) -> dict:
    """The script's numbers at these sizes, after a look at the files it leaves."""
    arguments = ["--out", str(folder)]
    for option, value in sizes.items():
        arguments += [f"--{option.replace('_', '-')}", str(value)]
    script = import_module(name)
    assert script.main(arguments) == 0
    image = (folder / f"{name}.png").read_bytes()
    assert image.startswith(b"\x89PNG") and len(image) < 300_000
    assert script.main(arguments) == 2  # nothing is overwritten
    return json.loads((folder / f"{name}.json").read_text())


def ends(line: dict) -> str:
    """Where all models of one line end, "mixed" if not all at the same place."""
    words = [word for word in ("bigram", "unigram", "between") if line[word] == line["models"]]
    return words[0] if words else "mixed"


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in STORED],
)
def test_a_stored_record_is_drawn_again(tmp_path, name):
    """Nothing is computed, and the record stays as it is."""
    assert import_module(name).main(["--redraw", "--out", str(tmp_path)]) == 0
    images = [path.read_bytes() for path in tmp_path.iterdir()]
    assert bool(images) != (name in TABLES)
    assert all(image.startswith(b"\x89PNG") for image in images)


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


@pytest.mark.slow
def test_depth(tmp_path):
    """Under gradient descent two tied layers are as trapped as one."""
    sizes = {"doublings": 1, "seeds": 1, "length": 8, "steps": 4, "descent_steps": 40}
    found = run("am_fig1_depth", tmp_path, **sizes)
    assert ends(found[f"{GD}; 1"]) == ends(found[f"{GD}; 2"]) == "unigram"


@pytest.mark.slow
def test_tying(tmp_path):
    """Under gradient descent only tied weights at p + q > 1 predict the unigram's probability."""
    found = run("am_fig3_tying", tmp_path, seeds=1, length=8, steps=4, descent_steps=200)
    for kind in ("tied", "untied"):
        for chain in (ABOVE, BELOW):
            line = found[f"{GD}; {kind}; {chain}"]
            trapped = kind == "tied" and chain == ABOVE
            assert ends(line) == ("unigram" if trapped else "bigram")
            expected = (
                [line["unigram_probability"]] * 2 if trapped else line["bigram_probabilities"]
            )
            after = [line[f"predicted_after_{x}"]["median"] for x in (0, 1)]
            assert after == pytest.approx(expected, abs=2e-3)


@pytest.mark.slow
def test_square(tmp_path):
    """Under gradient descent the trapped pairs are those with p + q > 1, and tied."""
    found = run("am_fig4_square", tmp_path, cells=3, length=8, steps=4, descent_steps=300)
    for kind in ("tied", "untied"):
        lines = found[f"GD; {kind}"]
        assert [lines[regime]["pairs"] for regime in lines] == [3, 3, 3]
        assert lines["p + q < 1"]["bigram"] == 3
        assert lines["p + q > 1"]["unigram" if kind == "tied" else "bigram"] == 3
        assert lines["p + q = 1"]["largest_error"] < 1e-2


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


@pytest.mark.slow
def test_appendix_d(tmp_path):
    """A few hundred steps of AdamW at (0.2, 0.3): the bigram, by the formula."""
    found = run("am_appendix_d", tmp_path, seeds=2, length=16, steps=600)[BELOW]
    assert found["reached_the_bigram"] == 2
    assert found["per_unit_minus_model"]["max"] < 0.1
    assert found["fitted"]["alpha_flatness"]["min"] > 0.99


def test_basins(tmp_path):
    """Every cell's integrated limit is the one that its energy says, in both regimes."""
    found = run("lg_fig1_basins", tmp_path, resolution=6)
    for chain in (ABOVE, BELOW):
        assert found[chain]["oracle_agree"] >= 20 and found[chain]["oracle_wrong"] == 0
        assert found[chain]["unresolved"] == 0


@pytest.mark.parametrize("length", [None, pytest.param(8, marks=pytest.mark.slow)])
def test_attention_around_the_origin(length):
    """Small starts are all trapped for p + q > 1 and none for p + q < 1; a is lost only there."""
    script = import_module("lg_fig2_attention")
    for chain, word in ((ABOVE_ONE, "local_minimum"), (BELOW_ONE, "global_minimum")):
        model = UniformAttentionModel(chain, length) if length else LinearAttentionModel(chain)
        found = script.fate(model, 0.02 * script.standard_normal(4))
        assert found[word] == 4
        if length and chain == BELOW_ONE:
            assert found["largest_attention_at_global_minima"] < 1e-8


@pytest.mark.slow
def test_attention(tmp_path):
    """The whole script; around the origin as above."""
    found = run("lg_fig2_attention", tmp_path, length=8, cloud=2, cells=8)
    for chain, word in ((ABOVE, "local_minimum"), (BELOW, "global_minimum")):
        clouds = {k: v for k, v in found[chain]["clouds"].items() if "σ = 0.02" in k}
        assert len(clouds) == 2 and all(cloud[word] == 2 for cloud in clouds.values())
    key = "a = 0, near the origin"
    assert found[ABOVE]["learns"][key] < 0.1 and found[BELOW]["learns"][key] == 1


@pytest.mark.slow
def test_losses(tmp_path):
    """From (1.5, −0.2) the canonical flow reaches the bigram and full gradient flow does not."""
    found = run("lg_losses", tmp_path, horizon=20, step=0.2, long=16)
    agreed = found[f"{ABOVE}; e = 0.5, w = -1.2"]["final_loss"]
    assert all(loss == pytest.approx(0.61901, abs=1e-4) for loss in agreed.values())
    line = found[f"{ABOVE}; e = 1.5, w = -0.2"]
    assert line["canonical_limit"] == "global_minimum"
    assert line["final_loss"]["canonical"] == pytest.approx(0.61901, abs=1e-4)
    assert line["final_loss"]["full, N = 8"] > 0.66


@pytest.mark.slow
def test_rank_one_energy(tmp_path):
    """A rank-one start stays rank one under gradient descent, in every matrix that moves."""
    found = run("lg_rank_one_energy", tmp_path, seeds=1, length=8, steps=4, descent_steps=100)
    line = found[f"GD; rank-one; {BELOW}"]
    assert ends(line) == "bigram"
    for matrix in ("positions", "0.value", "0.out", "0.up", "0.down"):
        assert line["energy"][matrix]["end_min"] == pytest.approx(1, abs=1e-6)
    assert line["energy"]["0.query"]["end_median"] is None  # zero for good
    assert line["relative_distance_median"] < 1e-6
    assert found[f"GD; gaussian; {BELOW}"]["energy"]["0.up"]["start_median"] < 0.5


@pytest.mark.slow
def test_initialization(tmp_path):
    """Under gradient descent the standard start is trapped; with e on W_1's side none is."""
    sizes = {"seeds": 3, "length": 8, "steps": 4, "descent_steps": 200}
    found = run("lg_initialization", tmp_path, **sizes)
    assert ends(found[f"{GD}; gaussian"]) == "unigram"
    assert found[f"{GD}; recommended"]["bigram"] >= 1
    assert ends(found[f"{GD}; matched"]) == "bigram"
    assert found[f"{GD}; recommended"]["ε > 0 at the start"] == {"models": 1, "bigram": 1}
    low, high = found[f"{GD}; gaussian"]["bigram_share_interval"]
    assert (low, high) == pytest.approx((0.0, 1 - 0.025 ** (1 / 3)), abs=1e-5)
