import numpy as np
import pytest
from recorded import RECORDS

from flowsim import BinaryChain, portrait
from flowsim.curves import curves_of
from flowsim.drawing import draw_phase_space, draw_portrait
from flowsim.models import LinearAttentionModel
from flowsim.portraits import phase_space

BELOW = LinearAttentionModel(BinaryChain(0.2, 0.3))


@pytest.fixture(scope="module", params=[True, pytest.param(False, marks=pytest.mark.slow)])
def space(request):
    return RECORDS["phase space"] if request.param else phase_space(BELOW)


def test_orbits_end_where_their_label_says(space):
    labels, ends = space["orbit_label"].to_numpy(), space["orbit_e"].to_numpy()[-1]
    assert space.attrs["orbits_unresolved"] == 0
    assert (ends[labels == 2] == 0).all()
    assert (np.abs(ends[labels == 1]) > 0.05).all()
    assert np.isfinite(space["orbit_a"]).all()


def test_saddle_curve_parts_the_minima_from_the_maxima_of_the_plane(space):
    curves = curves_of(space, "w", "e")
    assert {"local maxima", "local minima", "saddle"} <= {curve.kind for curve in curves}
    levels = [float(curve.x[0]) for curve in curves_of(space, "a", "e")]
    for a in set(levels):
        here = [curve for curve, level in zip(curves, levels, strict=True) if level == a]
        pieces = [curve for curve in here if curve.kind in ("local maxima", "local minima")]
        saddles = [float(curve.x[0]) for curve in here if curve.kind == "saddle"]
        assert len(saddles) == len(pieces) - 1 or not pieces  # at a = -1 the loss is flat
        assert {x for piece in pieces for x in piece.x.tolist()} >= set(saddles)


def test_figure_has_both_panels_and_their_axes(space):
    figure = draw_phase_space(space)
    assert len(figure.axes) == 2
    for axes in figure.axes:
        assert axes.get_xlabel() == "feed-forward weight $w$"
        assert axes.get_ylabel() == "attention $a$"
        assert axes.get_zlabel() == "embedding $e$"
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert "saddle curve" in texts
    assert "orbit from its start (dot) to the global minima" in texts


@pytest.mark.parametrize("of", [LinearAttentionModel(BinaryChain(0.5, 0.8)), BELOW], ids=repr)
def test_slices_of_linear_attention_agree_with_the_closed_form(of):
    record = portrait(of, resolution=30, fixed={"a": 0.5}, confirm=0)
    assert record.attrs["oracle_agree"] == record.attrs["oracle_cells"] > 700
    assert record.attrs["largest_energy_drift"] < 1e-8
    # the drawn separatrix is the boundary of the labels
    known = [curve for curve in curves_of(record, "w", "e") if curve.kind == "separatrix"]
    w, curve = known[0].x, known[0].y
    e = record["e"].to_numpy()
    for j, centre in enumerate(record["w"].to_numpy()):
        boundary = curve[np.abs(w - centre).argmin()]
        trapped = np.abs(e[record["label"].to_numpy()[:, j] == 2])
        if np.isfinite(boundary) and 0.3 < boundary < 2.8 and abs(centre) > 0.1:
            assert abs(trapped.max() - boundary) < 0.4
    assert "at $a$" in draw_portrait(record).axes[0].get_title()
