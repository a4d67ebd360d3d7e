"""Models with hundreds of ends: codes, records, figures and summaries."""

import math
import re

import numpy as np
import pytest
import torch

import flowsim
from flowsim.cli.printer import as_text
from flowsim.drawing.style import cell_styles
from flowsim.records.attributes import most_frequent


class Wells(flowsim.Model):
    """A well at every pair of whole numbers, on a faint bowl; every boundary is at a half."""

    coordinates = ("x", "y")

    def loss(self, theta):
        return (theta**2 / 200 - torch.cos(2 * math.pi * theta)).sum(-1)


@pytest.fixture(scope="module")
def record():
    wide = {"x": (-6.5, 6.6), "y": (-6.6, 6.5)}
    return flowsim.portrait(Wells(), window=wide, resolution=13, confirm=0, boundary=False)


def named_well(record):
    """How far the label of every cell is from that of the well in which the cell is."""
    there = np.stack([record.limit_x, record.limit_y], axis=-1).reshape(-1, 2).round()
    codes = record.label.to_numpy().ravel()
    return {code: np.unique(there[codes == code], axis=0) for code in np.unique(codes)}


@pytest.mark.slow
def test_every_code_names_one_well_and_survives_the_file(record, tmp_path):
    wells = named_well(record)
    assert len(wells) == 169
    assert all(len(places) == 1 for places in wells.values())
    assert record.label.dtype == np.int32 and record.label.max() == len(wells)
    flowsim.write_record(record, tmp_path / "wells.nc")
    again = flowsim.read_record(tmp_path / "wells.nc")
    assert again.label.equals(record.label)
    assert again.label.attrs["flag_values"].dtype == again.label.dtype
    assert len(again.label.attrs["flag_meanings"].split()) == len(wells) + 1


def test_figures_and_summaries_name_eight_ends_and_count_the_rest(record):
    figure = flowsim.draw(record)
    title = figure.axes[0].get_title()
    shares = [float(share) for share in re.findall(r"([0-9.]+) %", title)]
    assert sum(shares) == pytest.approx(100, abs=0.3)
    assert title.count("minimum") == len(shares) - 1 and f"{170 - len(shares)} more ends" in title
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert sum("(loss" in text for text in texts) == 8 and "161 more ends" in texts
    summary = flowsim.summarize(record)
    shares = as_text({"fraction": summary["fraction"]}).splitlines()[1:]
    assert len(shares) == 9 and "161 more" in shares[-1]
    assert sum(float(line.split()[-1]) for line in shares) == pytest.approx(1)
    assert sum(summary["fraction"].values()) == pytest.approx(1)


def test_neighbours_look_different():
    label = np.arange(1, 1001).reshape(25, 40)
    names = ["unresolved", *(f"minimum_{i}" for i in range(1, 1001))]
    looks = cell_styles(label, names)
    look = np.array([" ".join(looks[names[code]][:2]) for code in label.ravel()]).reshape(25, 40)
    assert (look[1:] != look[:-1]).all() and (look[:, 1:] != look[:, :-1]).all()
    assert (look[1:, 1:] != look[:-1, :-1]).all()
    few = np.array([[1, 2], [3, 4]])
    assert [cell_styles(few, names)[n] for n in names[1:5]] == [
        cell_styles(label * 0 + 1, names)[n] for n in names[1:5]
    ]


def test_the_most_frequent_are_named_in_their_order():
    counts = {f"minimum_{i}": i for i in range(12)}
    named, others = most_frequent(counts)
    assert named == [f"minimum_{i}" for i in range(4, 12)]
    assert others == [f"minimum_{i}" for i in range(1, 4)]
    assert most_frequent(dict.fromkeys("abcdefghi", 1)) == (list("abcdefghi"), [])


def test_gaussian_starts_have_the_shares_of_their_wells():
    """A well's share at σ = 1 is erf(1/√8)² in closed form, but for the faint bowl."""
    record = flowsim.gaussian(Wells(), [1.0, 5.0], samples=150)
    own = math.erf(0.5 / math.sqrt(2)) ** 2
    assert abs(float(record.fraction[0]) - own) < 0.1
    np.testing.assert_allclose(record.share.sum("basin"), 1)
    assert float(record.share.sel(basin="minimum_1")[0]) == float(record.fraction[0])
    ax = flowsim.draw(record).axes[0]
    assert "global minima" not in ax.get_ylabel()
    assert len(ax.get_legend_handles_labels()[1]) == 9
