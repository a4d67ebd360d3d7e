"""The reduced induction head: known numbers, its ends, its portrait."""

import json
import math

import numpy as np
import pytest
import torch

from flowsim import Label, draw, find_limits, read_record, summarize, write_record
from flowsim import portrait as portrait_record
from flowsim.curves import curves_of
from flowsim.models import InductionModel, induction_landscape


def test_known_numbers_at_nine_symbols():
    model = InductionModel(9)
    assert model.plateau == pytest.approx(0.62828, abs=5e-6)
    assert model.bayes == pytest.approx(0.59153, abs=5e-6)
    assert float(model.loss([4.0, 2.0])) == pytest.approx(0.60015, abs=5e-6)
    slopes = model.gradient([[-3.0, 0.0], [0.0, 0.0], [3.0, 0.0]])
    assert slopes == pytest.approx(np.array([[0, 0.024], [0, -0.0033], [0, -0.0305]]), abs=1e-4)
    assert model.loss([[-9.0, 0.0], [9.0, 0.0]]) == pytest.approx([model.plateau] * 2, rel=1e-14)


@pytest.mark.parametrize("length", [4, 9])
def test_the_ends_are_critical_and_on_either_side(length):
    model = InductionModel(length)
    landscape = induction_landscape(model)
    (saddle,) = landscape.saddles
    assert model.gradient([saddle, 0.0]) == pytest.approx([0, 0], abs=1e-13)
    assert landscape.best == 1 and set(landscape.ends) == {-1, 1}
    trapped, learned = landscape.ends[-1], landscape.ends[1]
    assert model.bayes < learned.loss < trapped.loss < landscape.plateau
    assert trapped.share == 0 and trapped.alpha == -math.inf
    assert (learned.share == 1) == (length == 4)
    for end in (trapped, learned):
        share, beta = torch.tensor([end.share, end.beta], dtype=torch.float64)
        _, along_share, along_beta = model.by_share(share, beta)
        assert abs(float(along_beta)) < 1e-10
        inward = {0: 1, 1: -1}.get(end.share)
        assert float(along_share) * inward > 0 if inward else abs(float(along_share)) < 1e-9


def test_its_end_losses_are_those_of_its_landscape_and_a_row_is_settled_close_to_them_only():
    model = InductionModel(9)
    losses, landscape = model.end_losses(), induction_landscape(model)
    learned, trapped = landscape.ends[1], landscape.ends[-1]
    assert (losses.best, losses.trap) == (learned.loss, landscape.plateau)
    assert losses.difference == losses.speed == landscape.plateau - learned.loss
    places = torch.tensor([[learned.alpha, learned.beta], [3.0, 0.5], [-20.0, trapped.beta]])
    labels = losses.label_of_point(places.double())
    assert labels.tolist() == [Label.GLOBAL_MINIMUM, Label.UNRESOLVED, Label.LOCAL_MINIMUM]
    assert landscape.plateau > float(model.loss(places[1].double()))


def test_what_cannot_be_decided_is_unresolved():
    model = InductionModel(9)
    landscape = induction_landscape(model)
    (saddle,) = landscape.saddles
    starts = [[saddle, 0.0], [math.nan, 0.0], [saddle + 0.1, 0.0], [saddle - 0.1, 0.0]]
    labels = find_limits(model, starts).label.tolist()
    assert labels == [Label.UNRESOLVED] * 2 + [Label.GLOBAL_MINIMUM, Label.LOCAL_MINIMUM]


@pytest.fixture(scope="module")
def record():
    return portrait_record(InductionModel(6), resolution=12, confirm=2)


def test_the_portrait_shows_plateau_and_valleys(record, tmp_path):
    a = record.attrs
    assert a["confirm_agree"] == a["confirm_cells"] == 2 and a["cells_unresolved"] == 0
    assert a["cells_global_minimum"] > 50 < a["cells_local_minimum"]
    # cells are on the side of the separatrix that the plateau's slope says, near the plateau
    near = record.sel(beta=0, method="nearest")
    learns = near["label"] == int(Label.GLOBAL_MINIMUM)
    model, curves = InductionModel(6), curves_of(record, "alpha", "beta")
    shares = torch.tensor(record["alpha"].to_numpy()).sigmoid()
    slope = model.by_share(shares, torch.zeros_like(shares))[2].numpy()
    clear = abs(slope) > 0.004
    assert (learns == (slope < 0)).where(clear, True).all()
    below, above = [curve.y for curve in curves if curve.kind == "valley"]
    assert np.nanmax(below) < 0 < np.nanmin(above)
    (saddle,) = [curve.x[0] for curve in curves if curve.kind == "saddle"]
    order = np.argsort(record["boundary_beta"].values)
    alpha, beta = (record[f"boundary_{n}"].values[order] for n in ("alpha", "beta"))
    assert np.interp(0, beta, alpha) == pytest.approx(saddle, abs=0.1)  # cells are 1 wide
    assert (np.diff(alpha) < 0).all()
    write_record(record, tmp_path / "a.nc")
    again = read_record(tmp_path / "a.nc")
    assert json.dumps(summarize(again)) == json.dumps(summarize(record))
    texts = {text.get_text() for text in draw(again).legends[0].get_texts()}
    assert {"saddle", "basin boundary", "learns to look at what followed before"} <= texts
    assert {"plateau", "valley", "level of the loss"} <= texts
    assert "on the plateau, 0.6107 of Bayes" in draw(again).axes[0].get_title()
