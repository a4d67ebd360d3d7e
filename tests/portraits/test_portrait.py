import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from flowsim import BinaryChain, InputError, Label, portrait
from flowsim.drawing import draw_portrait
from flowsim.drawing.plane import draw_basins
from flowsim.models import CanonicalModel
from flowsim.portraits import portrait_summary
from flowsim.scan import scan_basins

CHAINS = [(0.5, 0.8), (0.2, 0.3), (0.3, 0.7)]
SIDE = 40


@pytest.fixture(scope="module", params=CHAINS, ids=str)
def record(request):
    return portrait(CanonicalModel(BinaryChain(*request.param)), resolution=SIDE, confirm=4)


def test_every_cell_off_the_boundary_agrees_with_the_analytic_basin(record):
    a = record.attrs
    assert a["oracle_agree"] == a["oracle_cells"]
    assert a["oracle_cells"] + a["oracle_cut"] == SIDE**2
    assert a["oracle_cut"] < 3.6 * SIDE
    assert a["cells_unresolved"] == 0


def test_summary_counts_what_the_record_holds(record):
    summary = portrait_summary(record)
    labels = record["label"].to_numpy()
    assert summary["fraction"]["global_minimum"] == (labels == Label.GLOBAL_MINIMUM).mean()
    assert summary["fraction"]["local_minimum"] == (labels == Label.LOCAL_MINIMUM).mean()
    assert summary["cells"] == labels.size
    chain = BinaryChain(summary["p"], summary["q"])
    assert summary["entropy_rate"] == chain.entropy_rate


def test_arrows_point_downhill(record):
    model = CanonicalModel(BinaryChain(record.attrs["p"], record.attrs["q"]))
    e, w = np.meshgrid(record["arrow_e"], record["arrow_w"], indexing="ij")
    theta = torch.from_numpy(np.stack([e, w], axis=-1))
    arrows = torch.from_numpy(np.stack([record["direction_e"], record["direction_w"]], axis=-1))
    slope = (model.gradient(theta) * arrows).sum(dim=-1)
    assert (slope <= 0).all()


def test_figure_says_what_it_shows(record):
    figure = draw_portrait(record, energy=True)
    axes = figure.axes[0]
    assert axes.get_xlabel().startswith("feed-forward weight")
    assert axes.get_ylabel().startswith("embedding")
    a = record.attrs
    title = axes.get_title()
    assert f"= {a['p']:g}" in title
    assert f"= {a['q']:g}" in title
    sign = {"p + q > 1": "> 1", "p + q < 1": "< 1", "p + q = 1": "= 1"}[a["regime"]]
    assert sign in title
    entries = [text.get_text() for text in figure.legends[0].get_texts()]
    assert "reaches the global minima" in entries
    words = "; ".join(entries)
    assert len(entries) <= 8 and "global minima" in words.replace("the global minima", "")
    for kind in ("separatrix", "saddle"):
        assert (kind in words) == (a["regime"] != "p + q = 1")


def test_drawn_cells_are_the_labels_with_w_to_the_right_and_e_upwards():
    record = portrait(
        CanonicalModel(BinaryChain(0.5, 0.8)), {"w": (-3, 1), "e": (0.5, 2)}, 12, confirm=0
    )
    axes = Figure().add_subplot()
    draw_basins(record, axes)
    (image,) = axes.images
    assert image.get_extent() == pytest.approx([-3, 1, 0.5, 2])
    assert np.array_equal(image.get_array(), record["label"])
    assert image.origin == "lower"


def test_scan_checks_its_coordinates():
    model = CanonicalModel(BinaryChain(0.5, 0.8))
    line = scan_basins(model, {"w": np.array([-1.0, 1.0])}, {"e": 0.5})
    assert line["label"].to_numpy().tolist() == [Label.GLOBAL_MINIMUM, Label.LOCAL_MINIMUM]
    assert float(line["e"]) == 0.5
    two = np.arange(2.0)
    for axes in ({"w": two}, {"w": two, "e": two, "a": two}):
        with pytest.raises(InputError, match="must together be e, w"):
            scan_basins(model, axes)
