"""Every kind of record is drawn, as a figure of its own and on given axes."""

import itertools
import json

import numpy as np
import pytest
import xarray as xr
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image

from flowsim import (
    BinaryChain,
    Cloud,
    Grid,
    InputError,
    ModelSpec,
    Points,
    draw,
    model,
    phase_space,
    read_record,
    refine_boundary,
    summarize,
)
from flowsim import (
    gaussian as gaussian_record,
)
from flowsim import (
    portrait as portrait_record,
)
from flowsim.chains import DirichletPrior
from flowsim.drawing import draw_models_side_by_side
from flowsim.drawing.style import FILL, INK, MARKER, edges, percent, save_figure
from flowsim.scan import Scan, cell_centres, write_scan
from full_model import (
    Architecture,
    Comparison,
    Recipe,
    RunSettings,
    compare,
    grid_points,
    train,
)

CANONICAL = ModelSpec.first("canonical")
AXES = {"e": cell_centres(-2, 2, 6), "w": cell_centres(-2, 2, 8)}
SPACE = {"e": cell_centres(0, 2, 3), "w": cell_centres(-2, 2, 4), "a": cell_centres(-1, 1, 3)}


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    folder = tmp_path_factory.mktemp("drawn")

    def scanned(name, spec, starts, **options):
        write_scan(Scan(spec, starts, **options), folder / f"{name}.nc")
        return read_record(folder / f"{name}.nc")

    of = model("canonical", 0.5, 0.8)
    return {
        "portrait": portrait_record(of, resolution=8),
        "phase space": phase_space(model("linear", 0.5, 0.8)),
        "grid": scanned("grid", CANONICAL, Grid(AXES), fraction=0.01),
        "slices": scanned("slices", ModelSpec.first("linear"), Grid(SPACE), fraction=0.01),
        "cloud": scanned("cloud", CANONICAL, Cloud(("e", "w"), 40, 1.0), fraction=0.01),
        "points": scanned("points", CANONICAL, Points(("e", "w"), np.array([[1.0, -1], [1, 1]]))),
        "curve": scanned(
            "curve", CANONICAL, Cloud(("e", "w"), 40, 1.0), over={"p": (0.1, 0.5, 0.9)}
        ),
        "boundary": refine_boundary(of, AXES, levels=1),
        "surface": refine_boundary(model("linear", 0.5, 0.8), SPACE, levels=0),
        "gaussian": gaussian_record(of, np.array([0.5, 1.0]), 60),
        "comparison": compared(),
        "training": trained(),
    }


def compared():
    points = grid_points(2, 2)
    return compare(Comparison(0.5, 0.8, "rank-one", d=2, length=3, horizon=0.5), points)


def trained():
    settings = RunSettings(Architecture(2, 3), Recipe("gd", steps=3), (0.5,), (0.8,), seeds=(0, 1))
    record, _ = train(settings)
    return record.assign_attrs(kind="training")


KINDS = [
    *("portrait", "phase space", "grid", "slices", "cloud", "points", "curve", "boundary"),
    *("surface", "gaussian", "comparison", "training"),
]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_drawn_as_a_figure_and_on_given_axes(records, kind, tmp_path):
    record = records[kind]
    own = draw(record)
    assert own.dpi >= 150
    save_figure(own, tmp_path / "own.png")
    assert (tmp_path / "own.png").stat().st_size < 300_000
    assert np.asarray(Image.open(tmp_path / "own.png").convert("L")).std() > 5
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
    assert ax.get_title()
    assert ax.get_xlabel()
    assert not figure.legends  # a legend of its own would lie over its neighbours


@pytest.mark.parametrize("kind", KINDS)
def test_at_the_width_of_a_column_nothing_overlaps_or_runs_off(records, kind):
    figure = draw(records[kind], width=3.3)
    figure.draw_without_rendering()
    assert figure.get_figwidth() == 3.3
    page = figure.bbox.padded(2)
    (legend,) = figure.legends
    parts = [legend, *(t for ax in figure.axes for t in (ax.title, ax.xaxis.label, ax.yaxis.label))]
    boxes = [part.get_window_extent() for part in parts if not (hasattr(part, "get_text") and
             not part.get_text())]  # fmt: skip
    for box in boxes:
        assert page.x0 <= box.x0 and box.x1 <= page.x1
        assert page.y0 <= box.y0 and box.y1 <= page.y1
    assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))
    bare = draw(records[kind], width=3.3, title=False, legend=False)
    assert not bare.legends
    assert kind == "slices" or not any(ax.get_title() for ax in bare.axes)
    assert bare.get_figheight() < figure.get_figheight()
    with pytest.raises(InputError, match="width of a figure"):
        draw(records[kind], width=0.1)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_summarized_for_json(records, kind):
    summary = summarize(records[kind])
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary
    assert ("p" in summary) == (kind != "curve")


@pytest.mark.parametrize("kind", ["grid", "slices", "cloud"])
def test_hitting_times_are_drawn_where_the_record_has_them(records, kind):
    record = records[kind]
    figure = draw(record, show="hitting_time")
    bar = [ax for ax in figure.axes if "time" in ax.get_ylabel()]
    assert bar
    times = record["hitting_time"].to_numpy()[record["label"].to_numpy() == 1]
    low, high = bar[0].get_ylim()
    assert low == pytest.approx(np.nanmin(times[times > 0]))
    assert high == pytest.approx(np.nanmax(times))


def test_bad_options_are_refused(records):
    with pytest.raises(InputError, match="no hitting times"):
        draw(records["points"], show="hitting_time")
    with pytest.raises(InputError, match="goes with a scan"):
        draw(records["portrait"], show="hitting_time")
    with pytest.raises(InputError, match="energy contours"):
        draw(records["grid"], energy=True)
    with pytest.raises(InputError, match="kind None"):
        draw(xr.Dataset())
    with pytest.raises(InputError, match="kind None"):
        summarize(xr.Dataset())
    with pytest.raises(InputError, match="3d"):
        draw(records["phase space"], Figure().add_subplot())


def test_a_scan_of_the_plane_is_drawn_like_a_portrait(records):
    scan = draw(records["grid"])
    texts = {text.get_text() for text in scan.legends[0].get_texts()}
    assert {"separatrix", "global minima", "saddle"} <= texts


def test_an_untied_scan_draws_no_saddle_of_another_model(tmp_path):
    write_scan(Scan(ModelSpec.first("untied"), Grid(AXES, {"u": 1.0})), tmp_path / "u.nc")
    figure = draw(read_record(tmp_path / "u.nc"))
    texts = {text.get_text() for text in figure.legends[0].get_texts()}
    assert "separatrix" not in texts
    assert "X" not in [line.get_marker() for line in figure.axes[0].lines]  # the saddle's
    assert "$u$ = 1" in figure.axes[0].get_title()


def test_models_side_by_side_share_axes_and_one_legend(records):
    other = portrait_record(model("linear", 0.5, 0.8), resolution=8)
    figure = draw_models_side_by_side([records["portrait"], other])
    left, right = figure.axes
    assert left.get_xlim() == right.get_xlim()
    assert left.get_ylim() == right.get_ylim()
    assert "Canonical model" in left.get_title()
    assert "Linear attention" in right.get_title()
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert len(texts) == len(set(texts))


def test_remarks_below_two_models_say_which_they_are_about():
    pair = [
        portrait_record(model(name, 0.2, 0.3), resolution=8) for name in ("canonical", "linear")
    ]
    told = draw_models_side_by_side(pair).legends[0].get_title().get_text().splitlines()
    assert told and all(line.startswith(("left: ", "right: ")) for line in told)
    assert not any("(" in line[:9] for line in told)


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


def test_colours_of_labels_differ_in_grey_and_every_label_has_a_marker():
    def grey(colour):
        return sum(w * int(colour[i : i + 2], 16) for w, i in ((0.21, 1), (0.72, 3), (0.07, 5)))

    assert set(FILL) == set(INK) == set(MARKER)
    assert len(set(MARKER.values())) == len(MARKER)
    values = sorted(grey(colour) for colour in FILL.values())
    assert min(np.diff(values)) > 15
    assert abs(grey(INK["global_minimum"]) - grey(INK["local_minimum"])) > 20


def test_a_chain_without_bad_minima_says_so():
    record = portrait_record(model("canonical", 0.3, 0.7), resolution=6)
    title = draw(record).axes[0].get_title()
    assert "100 % reaches the global minima" in title
    assert "trapped" not in title
    assert BinaryChain(0.3, 0.7).second_eigenvalue == 0


def test_a_trap_that_lifted_starts_of_the_full_model_do_not_have_is_named():
    below = portrait_record(model("canonical", 0.2, 0.3), resolution=6)
    figure = draw(below)
    assert "minima of this model alone" in figure.legends[0].get_title().get_text()
    assert figure.axes[0].get_title().count("\n") == 1


def test_baselines_are_all_named_and_apart():
    arch = Architecture(4, 8, output="states", states=2)
    run = RunSettings(arch, Recipe(steps=2, batch=2), data=DirichletPrior(2, 3))
    figure = draw(train(run)[0].assign_attrs(kind="training"))
    figure.canvas.draw()
    (ax,) = figure.axes
    texts = [text for text in ax.texts if text.get_text()]
    words = " ".join(text.get_text() for text in texts)
    assert words.count("=") == 1 and "order 3 = Bayes" in words
    for name in ("uniform", "unigram", "bigram", "order 2", "kernel known"):
        assert name in words
    boxes = sorted((t.get_window_extent().y0, t.get_window_extent().y1) for t in texts)
    assert all(top <= bottom for (_, top), (bottom, _) in itertools.pairwise(boxes))


def test_a_chain_with_unresolved_starts_is_drawn_as_unknown():
    p, axis = (0.2, 0.5, 0.8), [-1.0, 0.5]
    values = np.zeros((3, 3, 4))
    values[..., 1] = 1.0
    values[1, 1] = 1.0, 0.0, 0.0, 0.0
    names = ["unresolved", "global_minimum", "local_minimum", "saddle"]
    label = np.ones((3, 3, 2, 2), dtype=np.int8)
    record = xr.Dataset(
        {"share": (("p", "q", "basin"), values), "label": (("p", "q", "e", "w"), label)},
        {"p": list(p), "q": list(p), "basin": names, "e": axis, "w": axis},
        {"kind": "scan", "model": "canonical", **{f"points_{name}": 1 for name in names}},
    )
    figure = draw(record)
    drawn = figure.axes[0].collections[0].get_array()
    assert drawn.mask.reshape(3, 3)[1, 1]
    assert drawn.mask.sum() == 1
    assert any("unknown" in text.get_text() for text in figure.findobj(Text))
