"""Every kind of record is drawn, as a figure of its own and on given axes."""

import itertools
import json

import numpy as np
import pytest
import xarray as xr
from matplotlib.figure import Figure
from PIL import Image
from recorded import MAKERS as KINDS
from recorded import RECORDS

from flowsim import InputError, draw, model, summarize
from flowsim import portrait as portrait_record
from flowsim.drawing.style import edges, percent, save_figure


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_drawn_on_given_axes(kind):
    record = RECORDS[kind]
    if kind == "slices":
        with pytest.raises(InputError, match="several slices"):
            draw(record, Figure().add_subplot())
        return
    solid = {"projection": "3d"} if kind in ("phase space", "surface") else {}
    figure = Figure()
    ax = figure.add_subplot(1, 2, 1, **solid)
    drawn = draw(record, ax=ax)
    assert all(handle.get_label() for handle in drawn)
    assert len(ax.get_legend().get_texts()) == len(drawn)
    assert ax.get_title() and ax.get_xlabel()
    assert not figure.legends  # a legend of its own would lie over its neighbours


@pytest.mark.parametrize("kind", KINDS)
def test_at_the_width_of_a_column_nothing_overlaps_or_runs_off(kind, tmp_path):
    figure = draw(RECORDS[kind], width=3.3)
    save_figure(figure, tmp_path / "own.png")
    assert figure.dpi >= 150 and (tmp_path / "own.png").stat().st_size < 300_000
    assert np.asarray(Image.open(tmp_path / "own.png").convert("L")).std() > 5
    assert figure.get_figwidth() == 3.3
    page = figure.bbox.padded(2)
    (legend,) = figure.legends
    named = (part for ax in figure.axes for part in (ax.title, ax.xaxis.label, ax.yaxis.label))
    parts = [legend, *(part for part in named if part.get_text())]
    boxes = [part.get_window_extent() for part in parts]
    for box in boxes:
        assert page.x0 <= box.x0 and box.x1 <= page.x1
        assert page.y0 <= box.y0 and box.y1 <= page.y1
    assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))
    bare = draw(RECORDS[kind], width=3.3, title=False, legend=False)
    assert not bare.legends
    assert kind == "slices" or not any(ax.get_title() for ax in bare.axes)
    assert bare.get_figheight() < figure.get_figheight()


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_summarized_for_json(kind):
    summary = summarize(RECORDS[kind])
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary
    assert ("p" in summary) == (kind != "curve")


@pytest.mark.parametrize("kind", ["grid", "slices"])
def test_hitting_times_are_drawn_where_the_record_has_them(kind):
    record = RECORDS[kind]
    figure = draw(record, show="hitting_time")
    bar = [ax for ax in figure.axes if "time" in ax.get_ylabel()]
    assert bar
    times = record["hitting_time"].to_numpy()[record["label"].to_numpy() == 1]
    low, high = bar[0].get_ylim()
    assert low == pytest.approx(np.nanmin(times[times > 0]))
    assert high == pytest.approx(np.nanmax(times))


def test_bad_options_are_refused():
    with pytest.raises(InputError, match="no hitting times"):
        draw(RECORDS["points"], show="hitting_time")
    with pytest.raises(InputError, match="width of a figure"):
        draw(RECORDS["points"], width=0.1)
    with pytest.raises(InputError, match="goes with a scan"):
        draw(RECORDS["portrait"], show="hitting_time")
    with pytest.raises(InputError, match="energy contours"):
        draw(RECORDS["grid"], energy=True)
    with pytest.raises(InputError, match="kind None"):
        draw(xr.Dataset())
    with pytest.raises(InputError, match="kind None"):
        summarize(xr.Dataset())
    with pytest.raises(InputError, match="3d"):
        draw(RECORDS["phase space"], Figure().add_subplot())


def test_shares_never_round_to_all_or_none():
    assert percent(1, 100_000) == "<0.1 %"
    assert percent(99_999, 100_000) == ">99.9 %"
    assert percent(0, 10) == "0 %"
    assert percent(10, 10) == "100 %"
    assert percent(1, 8) == "12.5 %"


def test_edges_lie_midway_and_refuse_uneven_values():
    assert edges(np.array([0.0, 1, 2])).tolist() == [-0.5, 0.5, 1.5, 2.5]
    assert edges(np.array([2, 4, 8])).tolist() == [1, 3, 6, 10]  # several N
    for values in ([1.0], [0.0, 1.0, 3.0]):
        with pytest.raises(InputError, match="evenly spaced values of w"):
            edges(np.array(values), "w")


def test_a_trap_that_lifted_starts_of_the_full_model_do_not_have_is_named():
    below = portrait_record(model("canonical", 0.2, 0.3), resolution=6, confirm=0)
    figure = draw(below)
    assert "minima of this model alone" in figure.legends[0].get_title().get_text()
    assert figure.axes[0].get_title().count("\n") == 1
