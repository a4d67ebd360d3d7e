"""Parts of the scripts of the papers' figures; ``test_scripts`` runs them whole."""

import math
from importlib import import_module

import papers
import pytest
import torch
import xarray as xr

from flowsim import BinaryChain
from flowsim.models import LinearAttentionModel
from flowsim.models.rank_one.point import RankOnePoint
from full_model import Architecture, lift_rank_one

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
