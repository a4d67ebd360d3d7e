"""Figures for a paper: fonts, style sheets, notebooks, and paths laid over a portrait."""

import numpy as np
import pytest
import xarray as xr
from matplotlib import rc_context, style
from matplotlib.colors import to_hex, to_rgb
from recorded import RECORDS

from flowsim import InputError, draw, model
from flowsim import portrait as portrait_record


@pytest.fixture
def record():
    return RECORDS["portrait"]


def entries(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_fonts_are_embedded_and_text_stays_text(record, tmp_path):
    figure = draw(record, width=3.3)
    figure.savefig(tmp_path / "a.pdf")
    pdf = (tmp_path / "a.pdf").read_bytes()
    assert b"/Type3" not in pdf and b"/FontFile2" in pdf
    figure.savefig(tmp_path / "a.svg")
    assert "reaches the global minima</text>" in (tmp_path / "a.svg").read_text()


def test_text_follows_style_sheets(record):
    def sizes(**own):
        with rc_context({key.replace("_", "."): value for key, value in own.items()}):
            figure = draw(record)
        return figure.axes[0].title.get_size(), figure.legends[0].get_texts()[0].get_size()

    assert np.divide(sizes(font_size=20), sizes()) == pytest.approx(2)
    assert sizes(axes_titlesize=7.5, legend_fontsize="x-large") == pytest.approx((7.5, 14.4))


def test_lines_lie_on_light_grounds_in_dark_style_sheets(record):
    with style.context("dark_background"):
        figure = draw(record)
        (legend,) = figure.legends
    assert to_hex(figure.get_facecolor()) == "#000000"
    grounds = [figure.axes[0].patch, legend.get_frame()]
    assert {to_hex(ground.get_facecolor()) for ground in grounds} == {"#ffffff"}
    assert {max(to_rgb(text.get_color())) < 0.2 for text in legend.get_texts()} == {True}


def test_at_most_eight_entries_and_the_message_first(record):
    assert len(entries(draw(record))) <= 8
    assert draw(record).axes[0].get_title().startswith("Of the window 46.9 % reaches")
    lifted = portrait_record(model("rank-one", 0.5, 0.8, length=4), resolution=24, confirm=0)
    texts = entries(draw(lifted, paths={"mine": PATH}))
    assert any("last points (squares), beside this plane" in text for text in texts)
    assert not any("squares" in text for text in entries(draw(record)))
    assert len(texts) == 8 and any(text.endswith("; its separatrix") for text in texts)


def drawn_paths(figure, colour="#7b1161"):
    lines = [line for line in figure.axes[0].lines if line.get_color() == colour]
    return [line.get_xydata() for line in lines if line.get_linestyle() != "None" and
            len(line.get_xydata()) > 1]  # fmt: skip


PATH = np.array([[2.0, 1.0], [1.0, 0.5], [0.5, -1.0]])  # (e, w)


def test_paths_are_laid_over_a_portrait_whatever_holds_them(record, tmp_path):
    rows = "".join(f"0,{w},{e}\n" for e, w in PATH) + "1,-1,-1\n1,-2,-2\n"
    (tmp_path / "runs.csv").write_text("run,w,e\n" + rows)
    columns = {"e": PATH[:, 0], "w": PATH[:, 1]}
    several = np.stack([PATH, -PATH], axis=1)
    for paths in (PATH, several, columns, xr.Dataset({n: ("t", v) for n, v in columns.items()}),
                  tmp_path / "runs.csv"):  # fmt: skip
        first = drawn_paths(draw(record, paths=paths))[0]
        np.testing.assert_array_equal(first[:3], PATH[:, ::-1])
    figure = draw(record, paths={"mine": PATH, "yours": -PATH})
    assert entries(figure)[-2:] == ["mine", "yours"]
    assert "runs" in entries(draw(record, paths=str(tmp_path / "runs.csv")))
    assert len(drawn_paths(draw(record, paths=several))) == 2
    (tmp_path / "more.csv").write_text("w,e\n1,1\n2,2\n")
    files = [tmp_path / "runs.csv", str(tmp_path / "more.csv")]
    assert entries(draw(record, paths=files))[-2:] == ["runs", "more"]


def test_a_figure_takes_no_other_words(record):
    with pytest.raises(InputError, match="takes width, title, legend, and no titel"):
        draw(record, titel=False)


def test_paths_that_fit_no_plane_are_refused(record, tmp_path):
    for paths, why in (
        (tmp_path / "run.txt", "a record .* or a table"),
        (tmp_path / "none.csv", "no table of numbers"),
        (np.zeros((3, 3)), "an array"),
        ({"e": [1.0, 2.0], "w": [1.0]}, "for each axis"),
        (3, "an array"),
    ):
        with pytest.raises(InputError, match=why):
            draw(record, paths=paths)
    with pytest.raises(InputError, match="laid over a portrait"):
        draw(xr.Dataset(attrs={"kind": "gaussian"}), paths=PATH)
    with pytest.raises(InputError, match="goes with a portrait"):
        draw(xr.Dataset(attrs={"kind": "gaussian"}), orbits=False)
