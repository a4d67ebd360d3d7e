"""Portraits of every model in the (w, e) plane, and the numbers that are said of them."""

import json

import numpy as np
import pytest
import torch

from flowsim import (
    InputError,
    Label,
    draw,
    find_limits,
    model,
    portrait,
    read_record,
    summarize,
    write_record,
)
from flowsim.flow.orbits import drawn_orbits
from flowsim.interface import theta_at
from flowsim.reference import integrate

WINDOW = {"window": {"w": (-1.5, 0.5), "e": (0.2, 1.8)}}


@pytest.fixture(scope="module")
def lifted():
    return portrait(model("rank-one", 0.5, 0.8, length=4), **WINDOW, resolution=6, confirm=2)


def test_lifted_cells_have_the_labels_of_their_lifts(lifted):
    of = model("rank-one", 0.5, 0.8, length=4)
    e, w = np.meshgrid(lifted["e"], lifted["w"], indexing="ij")
    start = of.from_canonical(torch.from_numpy(np.stack([e, w], axis=-1)))
    assert np.array_equal(lifted["label"], find_limits(of, start).label)
    assert {int(Label.GLOBAL_MINIMUM), int(Label.LOCAL_MINIMUM)} <= set(lifted["label"].values.flat)


def test_summary_of_a_lifted_portrait(lifted, tmp_path):
    write_record(lifted, tmp_path / "p.nc")
    summary = summarize(read_record(tmp_path / "p.nc"))
    assert json.loads(json.dumps(summary)) == summary
    assert summary["model"] == "rank-one"
    assert summary["length"] == 4
    assert summary["share_differs"] == lifted.attrs["share_differs"]
    assert summary["oracle_cells"] == 0


def test_a_record_without_kinds_of_its_layers_is_told_them(lifted, tmp_path):
    former = lifted.copy(deep=True)
    former["differs"].attrs = {"of": "canonical model"}
    del former["sliding_time"].attrs["drawn_as"]
    write_record(former, tmp_path / "p.nc")
    record = read_record(tmp_path / "p.nc")
    words = {name: record["differs"].attrs[name] for name in ("drawn_as", "legend", "remark")}
    assert words == lifted["differs"].attrs
    assert record["sliding_time"].attrs["drawn_as"] == lifted["sliding_time"].attrs["drawn_as"]


def test_kinds_of_the_lifted_line_show_in_nearby_losses():
    generator = torch.Generator().manual_seed(1)
    for p, q in ((0.5, 0.8), (0.2, 0.3)):
        of = model("rank-one", p, q, length=4)
        w = torch.tensor([-1.2, -0.6, -0.4, 0.7], dtype=torch.float64)
        line = of.from_canonical(torch.stack([torch.zeros_like(w), w], dim=-1))
        step = 1e-3 * torch.randn(4000, 2, generator=generator, dtype=torch.float64)
        near = line.unsqueeze(1).repeat(1, 4000, 1)
        near[..., :2] += step  # e and the positions
        bias = of.optimal_bias(near)
        near[..., of.coordinates.index("b")] = bias
        change = of.loss(near) - of.loss(line).unsqueeze(1)
        falls, rises = (change < -1e-12).any(dim=1), (change > 1e-12).any(dim=1)
        kind = of.plane.axis_kinds(w, {})
        assert torch.equal(kind == 1, rises & ~falls)
        assert torch.equal(kind == 0, rises & falls)
        assert torch.equal(kind == -1, falls & ~rises)


@pytest.mark.parametrize(
    ("name", "options", "fixed"),
    [("untied", {}, {"u": 1.2}), ("uniform", {"length": 4}, {"a": 0.4})],
)  # fmt: skip
def test_every_model_has_a_portrait(name, options, fixed):
    of = model(name, 0.5, 0.8, **options)
    record = portrait(of, **WINDOW, resolution=4, fixed=fixed, confirm=2)
    assert record.attrs["confirm_agree"] == 2
    assert record.attrs["cells_unresolved"] == 0
    assert record["orbit_w"].dims == ("time", "orbit")
    assert np.isfinite(record["orbit_e"].to_numpy()[-1]).all()
    summary = summarize(record)
    assert summary["model"] == name
    assert {**summary["fixed"], **({"a": summary["a"]} if "a" in summary else {})} == fixed
    figure = draw(record)
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    crosses = [line for line in figure.axes[0].lines if line.get_marker() == "X"]
    assert bool(crosses) == ("saddle" in texts) and (name != "untied" or not crosses)
    assert ("separatrix" in texts) == (name == "linear")


@pytest.mark.parametrize(
    ("name", "options", "fixed", "words"),
    [
        ("canonical", {}, {"a": 0.5}, "takes no fixed a"),
        ("rank-one", {"length": 4}, {"a": 0.5}, "only b can be fixed"),
        ("untied", {}, {"u": float("nan")}, "must be finite"),
    ],
)
def test_a_fixed_value_that_the_model_has_not_is_refused(name, options, fixed, words):
    with pytest.raises(InputError, match=words):
        portrait(model(name, 0.5, 0.8, **options), resolution=2, fixed=fixed)


@pytest.mark.slow
def test_drawn_orbits_are_those_of_torchdiffeq_each_at_times_of_its_own():
    of = model("canonical", 0.5, 0.8, bias="dynamic")
    starts = theta_at(of.plane, torch.tensor([-0.4, -1.2, 1.0]), torch.tensor([0.3, 1.0, 0.5]), {})
    times, path = drawn_orbits(of, starts, find_limits(of, starts))
    assert len(times[-1].unique()) == 3
    for i, start in enumerate(starts):
        known = integrate(of, start, times[:, i], rtol=1e-10)
        torch.testing.assert_close(path[:, i], known, rtol=0, atol=1e-5)


def test_an_orbit_that_never_settles_is_drawn_for_twenty_of_its_models_units_of_time():
    of = model("canonical", 0.5, 0.8)
    at_rest = torch.tensor([[0.0, 0.5]], dtype=torch.float64)
    times, path = drawn_orbits(of, at_rest, find_limits(of, at_rest))
    assert float(times[-1, 0]) == pytest.approx(20 / of.end_losses().rate) and len(times) == 159
    assert (path == at_rest).all()
