"""Portraits of an optimizer's basins: the record, its summary and its figure."""

import numpy as np
import pytest
import torch

from flowsim import (
    InputError,
    Label,
    OptimizerChoice,
    draw,
    find_limits,
    model,
    read_record,
    scan_basins,
    summarize,
    trained_portrait,
    write_record,
)
from flowsim.drawing.trained_basins import outcomes

RANK_ONE = model("rank-one", 0.5, 0.8, length=4)
DESCENT = OptimizerChoice.named("gd", steps=1500, learning_rate=0.1)


@pytest.fixture(scope="module")
def portrait():
    return trained_portrait(RANK_ONE, DESCENT, (-2.0, 2.0), (-1.5, 1.5), 12)


def test_cells_are_the_starts_and_the_flow_is_that_of_the_model(portrait):
    e, w = np.meshgrid(portrait.e, portrait.w, indexing="ij")
    theta = RANK_ONE.from_canonical(torch.from_numpy(np.stack([e, w], -1)))
    flow = find_limits(RANK_ONE, theta).label.numpy()
    np.testing.assert_array_equal(portrait["flow_label"].values, flow)
    alike = portrait["label"].values == flow
    assert (alike | (portrait["label"].values == Label.UNRESOLVED)).mean() > 0.95
    inside = np.abs(portrait["boundary_w"].values) <= 2
    assert inside.all() and len(inside) > 5


def test_the_summary_counts_the_cells(portrait, tmp_path):
    write_record(portrait, tmp_path / "record.nc")
    read = read_record(tmp_path / "record.nc")
    summary = summarize(read)
    label = portrait["label"].values
    assert summary["fraction"]["learned"] == (label == Label.GLOBAL_MINIMUM).mean()
    assert summary["fraction"]["trapped"] == (label == Label.LOCAL_MINIMUM).mean()
    assert summary["optimizer"] == "gd" and summary["learning_rate"] == 0.1
    assert summary["unresolved"] == (label == Label.UNRESOLVED).sum()


def test_every_cell_is_drawn_as_what_became_of_it(portrait):
    found = outcomes(portrait)
    assert set(found.ravel()) <= {"learned", "trapped", "plateau", "between", "above"}
    np.testing.assert_array_equal(found == "trapped", portrait["label"] == Label.LOCAL_MINIMUM)
    figure = draw(portrait)
    title = figure.axes[0].get_title()
    share = 100 * (found == "learned").mean()
    assert "Gradient descent, learning rate 0.1, 1500 steps" in title
    assert f"learns from {share:.1f} % of the window, gradient flow from" in title
    words = [text.get_text() for text in figure.legends[0].get_texts()]
    assert "trapped at the unigram for good" in words
    assert "boundary of the basin of gradient flow" in words


def test_a_scan_of_the_plane_is_drawn_alike():
    optimizer = OptimizerChoice.named("adamw", steps=20, d=4)
    axes = {"e": np.linspace(-2, 2, 6), "w": np.linspace(-2, 2, 5)}
    figure = draw(scan_basins(RANK_ONE, axes, optimizer=optimizer))
    assert "AdamW, learning rate 0.001, cosine schedule, 20 steps" in figure.axes[0].get_title()


def test_where_there_is_no_gap_nothing_is_said_to_be_learned():
    found = trained_portrait(model("rank-one", 0.3, 0.7, length=4), DESCENT, resolution=4)
    assert set(outcomes(found).ravel()) <= {"equal", "diverged", "periodic"}
    assert "learns from 0 % of the window" in draw(found).axes[0].get_title()


def test_energy_and_other_models_are_refused(portrait):
    with pytest.raises(InputError, match="energy"):
        draw(portrait, energy=True)
    with pytest.raises(InputError, match="rank-one"):
        trained_portrait(model("canonical", 0.5, 0.8), DESCENT)
