"""The portrait of the S-state plane: its closed forms, its figure and its commands."""

import numpy as np
import pytest
from figure_texts import words_of
from matplotlib.figure import Figure

from flowsim import Label, draw, model, read_record, summarize, write_record
from flowsim import portrait as portrait_record
from flowsim.curves import curves_of
from flowsim.drawing.plane import draw_layers


@pytest.fixture(scope="module", params=[(5, 0.9, 4), (5, 0.7, 1)], ids=str)
def record(request):
    s, p, m = request.param
    of = model("states", states=s, p=p, hidden_per_state=m)
    return portrait_record(
        of, window={"w": (-1.5, 1.5), "e": (-2.0, 2.0)}, resolution=24, confirm=64
    )


def test_every_cell_is_in_its_basin_and_confirmed(record):
    a = record.attrs
    assert a["oracle_agree"] == a["oracle_cells"] > 400
    assert a["confirm_agree"] == a["confirm_cells"] == 64
    assert a["cells_unresolved"] == a["cells_saddle"] == a["orbits_unfinished"] == 0
    assert {int(Label.GLOBAL_MINIMUM), int(Label.LOCAL_MINIMUM)} == set(record["label"].values.flat)
    assert 0 < a["largest_energy_drift"] < 1e-8


def test_the_curves_are_those_of_the_plane(record):
    m, curves = record.attrs["hidden_per_state"], {}
    for curve in curves_of(record, "w", "e"):
        curves.setdefault(curve.kind, curve)
    of = model("states", p=record.attrs["p"], states=5, hidden_per_state=m)
    assert curves["saddle"].x == pytest.approx([-(m**-0.5)], abs=1e-9)
    w, border = curves["separatrix"].x, curves["separatrix"].y
    drawn = np.isfinite(border) & (border > 0)
    assert drawn.sum() > 100
    assert np.abs(of.conserved(np.stack([border, w], -1)[drawn])["energy"] + 2).max() < 1e-12
    w, minima = curves["global minima"].x, curves["global minima"].y
    known = minima < 500  # a pole at the saddle: the gap is e² times what rounding of w changes
    gap = of.logit_gap(np.stack([minima, w], -1)[known])
    assert known.sum() > 100
    assert gap == pytest.approx(np.full(known.sum(), of.chain.target_logit_gap), rel=1e-10)


def test_it_is_written_read_and_drawn(record, tmp_path):
    write_record(record, tmp_path / "portrait.nc")
    again = read_record(tmp_path / "portrait.nc")
    title = words_of(draw(again))
    assert "$S$ = 5" in title and "4/5" in title and "never" in title
    summary = summarize(again)
    assert (summary["states"], summary["model"]) == (5, "states")
    assert "q" not in summary and summary["entropy_rate"] > 1
    legend = [text.get_text() for text in draw(again).legends[0].get_texts()]
    assert "saddle" in legend
    drawn = draw_layers(again, Figure().add_subplot())
    (entry,) = [handle for handle in drawn if handle.get_label() == "saddle"]
    assert entry.get_marker() == "X" and entry.get_linestyle() == "None"  # no line of them
