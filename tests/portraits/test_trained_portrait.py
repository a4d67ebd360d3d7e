"""Portraits of an optimizer's basins: the record, its summary and its figure."""

import numpy as np
import pytest
import torch
from figure_texts import words_of

from flowsim import (
    InputError,
    Label,
    OptimizerChoice,
    draw,
    find_limits,
    from_loss,
    model,
    read_record,
    summarize,
    write_record,
)
from flowsim import portrait as portrait_record
from flowsim.drawing.style import label_names
from flowsim.records.attributes import became_of

RANK_ONE = model("rank-one", 0.5, 0.8, length=4)
DESCENT = OptimizerChoice.named("gd", steps=1500, learning_rate=0.1)


@pytest.fixture(scope="module")
def portrait():
    return portrait_record(RANK_ONE, {"w": (-2.0, 2.0), "e": (-1.5, 1.5)}, 12, optimizer=DESCENT)


def test_cells_are_the_starts_and_the_flow_is_that_of_the_model(portrait):
    e, w = np.meshgrid(portrait.e, portrait.w, indexing="ij")
    theta = RANK_ONE.from_canonical(torch.from_numpy(np.stack([e, w], -1)))
    flow = find_limits(RANK_ONE, theta).label.numpy()
    np.testing.assert_array_equal(portrait["flow_label"].values, flow)
    alike = portrait["label"].values == flow
    assert (alike | (portrait["label"].values == Label.UNRESOLVED)).mean() > 0.95
    inside = np.abs(portrait["boundary_w"].values) <= 2
    assert inside.all() and len(inside) > 5


def test_every_cell_is_drawn_as_what_became_of_it(portrait):
    found = label_names(became_of(portrait))
    assert set(found.ravel()) <= {"global_minimum", "local_minimum", "plateau", "between", "above"}
    np.testing.assert_array_equal(
        found == "local_minimum", portrait["label"] == Label.LOCAL_MINIMUM
    )
    figure = draw(portrait)
    title = words_of(figure)
    share = 100 * (found == "global_minimum").mean()
    assert "Gradient descent, learning rate 0.1, 1500 steps" in title
    assert f"{share:.1f} % learns the bigram, by gradient flow" in title
    told = summarize(portrait)["fraction"]
    assert told["local_minimum"] == (found == "local_minimum").mean()
    assert told["flow_global_minimum"] == (portrait["flow_label"] == Label.GLOBAL_MINIMUM).mean()
    old = portrait.drop_vars("progress")  # of version 0.2 records have labels alone
    del old["label"].attrs["ancillary_variables"]
    assert "reaches the global minima" in words_of(draw(old))
    words = [text.get_text() for text in figure.legends[0].get_texts()]
    assert "trapped at the unigram for good" in words
    assert "boundary of the basin of gradient flow" in words


def test_energy_is_refused(portrait):
    with pytest.raises(InputError, match="energy"):
        draw(portrait, energy=True)


def iterated(x, tilt, rate, steps):
    """What x ← x − η(x³ − x + g) does, by numpy alone: the names of a portrait's ends."""
    path = [x]
    for _ in range(steps):
        path.append(np.clip(path[-1] - rate * (path[-1] ** 3 - path[-1] + tilt), -1e6, 1e6))
    roots = np.sort(np.roots([1, 0, -1, tilt]).real)
    names = np.full(x.shape, "periodic", dtype=object)
    names[np.abs(path[-1] - roots[0]) < 1e-6] = "minimum_1"
    names[np.abs(path[-1] - roots[2]) < 1e-6] = "minimum_2"
    names[np.abs(path[-1]) > 1e3] = "diverged"
    again = np.abs(path[-1] - path[-3]) < 1e-9
    assert again[names == "periodic"].all()
    return names


@pytest.mark.slow
@pytest.mark.turns
@pytest.mark.parametrize("rate", [1.05])
def test_descent_of_a_users_loss_is_what_its_steps_do(rate, tmp_path):
    well = from_loss(lambda x, y, g=0.1: (x**2 - 1) ** 2 / 4 + y**2 / 2 + g * x, "well")
    window = {"x": (-2.0, 2.0), "y": (-1.0, 1.0)}
    optimizer = OptimizerChoice.named("gd", learning_rate=rate, steps=500)
    record = portrait_record(well, window=window, resolution=16, optimizer=optimizer)
    x = np.broadcast_to(record.x.values, (16, 16))
    found = label_names(became_of(record))
    np.testing.assert_array_equal(found, iterated(x, 0.1, rate, 500))
    hill = np.sort(np.roots([1, 0, -1, 0.1]).real)[1]
    codes = record["flow_label"].attrs["flag_meanings"].split()
    np.testing.assert_array_equal(record["flow_label"] == codes.index("minimum_1"), x < hill)
    np.testing.assert_allclose(record["boundary_x"], hill, atol=1e-3)
    write_record(record, tmp_path / "a.nc")
    summary = summarize(read_record(tmp_path / "a.nc"))
    assert summary["fraction"]["flow_minimum_1"] == (x < hill).mean()
    assert summary["fraction"].get("periodic", 0) == (found == "periodic").mean()
    assert summary.get("periods", {}) == ({"2": (found == "periodic").sum()} if rate > 1 else {})
    title = words_of(draw(record))
    assert f"Gradient descent, learning rate {rate}, 500 steps" in title
    assert "lifted" not in title and ("periodic" in title) == (rate > 1)
