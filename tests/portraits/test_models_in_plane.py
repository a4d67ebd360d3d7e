"""Portraits of every model in the (w, e) plane, and the numbers that are said of them."""

import json

import numpy as np
import pytest
import torch
from figure_texts import words_of

from flowsim import (
    InputError,
    Label,
    draw,
    find_limits,
    model,
    phase_space,
    portrait,
    read_record,
    summarize,
    write_record,
)
from flowsim.curves import curves_of
from flowsim.flow.orbits import drawn_orbits
from flowsim.interface import theta_at
from flowsim.models import energy, reaches_global_minimum
from flowsim.reference import integrate

WINDOW = {"w_range": (-1.5, 0.5), "e_range": (0.2, 1.8)}


@pytest.fixture(scope="module")
def lifted():
    return portrait(model("rank-one", 0.5, 0.8, length=4), **WINDOW, resolution=6, confirm=2)


def test_lifted_cells_have_the_labels_of_their_lifts(lifted):
    of = model("rank-one", 0.5, 0.8, length=4)
    e, w = np.meshgrid(lifted["e"], lifted["w"], indexing="ij")
    start = of.from_canonical(torch.from_numpy(np.stack([e, w], axis=-1)))
    assert np.array_equal(lifted["label"], find_limits(of, start).label)
    assert {int(Label.GLOBAL_MINIMUM), int(Label.LOCAL_MINIMUM)} <= set(lifted["label"].values.flat)


def test_cells_that_differ_are_those_the_canonical_model_gets_wrong(lifted):
    e, w = np.meshgrid(lifted["e"], lifted["w"], indexing="ij")
    canonical = model("canonical", 0.5, 0.8)
    start = torch.from_numpy(np.stack([e, w], axis=-1))
    reached = reaches_global_minimum(canonical.chain, start).numpy()
    wrong = (lifted["label"].to_numpy() == 1) != reached
    assert np.array_equal(lifted["differs"], wrong)
    assert lifted.attrs["cells_differ"] == int(wrong.sum()) > 0
    assert lifted.attrs["share_differs"] == pytest.approx(float(wrong.mean()))
    said = words_of(draw(lifted))
    assert "ends elsewhere than in the canonical model" in said
    assert "Rank-one model, $N$ = 4" in said


def test_boundary_of_a_portrait_lies_between_labels_by_bisection(lifted):
    of = model("rank-one", 0.5, 0.8, length=4)
    point = np.stack([lifted["boundary_e"], lifted["boundary_w"]], axis=-1)
    assert len(point) > 3
    cell = (1.6 / 6, 2.0 / 6)
    found = []
    for e_step in (-0.02, 0.0, 0.02):  # of a cell
        for w_step in (-0.02, 0.0, 0.02):
            near = point + np.array([e_step * cell[0], w_step * cell[1]])
            found.append(find_limits(of, of.from_canonical(torch.from_numpy(near))).label.numpy())
    inside = np.stack(found) == Label.GLOBAL_MINIMUM
    assert (inside.any(axis=0) & ~inside.all(axis=0)).all()


def test_summary_of_a_lifted_portrait(lifted, tmp_path):
    write_record(lifted, tmp_path / "p.nc")
    summary = summarize(read_record(tmp_path / "p.nc"))
    assert json.loads(json.dumps(summary)) == summary
    assert summary["model"] == "rank-one"
    assert summary["length"] == 4
    assert summary["share_differs"] == lifted.attrs["share_differs"]
    assert summary["oracle_cells"] == 0


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
        kind = of.plane.line(w, {})
        assert torch.equal(kind == 1, rises & ~falls)
        assert torch.equal(kind == 0, rises & falls)
        assert torch.equal(kind == -1, falls & ~rises)


@pytest.mark.parametrize(
    ("name", "options", "fixed"),
    [("untied", {}, {"u": 1.2}), ("uniform", {"length": 4}, {"a": 0.4}),
     *(pytest.param(*case, marks=pytest.mark.slow)
       for case in [("untied", {}, {}), ("linear", {}, {"a": 0.3}),
                    ("canonical", {"bias": "dynamic"}, {})])],
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


def test_tied_starts_of_untied_weights_end_in_saddles():
    record = portrait(model("untied", 0.5, 0.8), (0.2, 1.0), (0.2, 1.0), 3)
    assert (record["label"] == Label.SADDLE).all()
    assert "100 % ends in a saddle" in draw(record).axes[0].get_title()


def test_minima_of_untied_weights_have_the_entropy_rate():
    of = model("untied", 0.5, 0.8)
    record = portrait(of, (-1.5, -0.8), (0.2, 1.0), 3, fixed={"u": 1.2})
    (curve,) = [curve for curve in curves_of(record, "w", "e") if curve.kind == "global minima"]
    e, w = torch.from_numpy(curve.y), torch.from_numpy(curve.x)
    loss = of.loss(torch.stack([e, torch.full_like(e, 1.2), w], dim=-1))
    assert float((loss - of.chain.entropy_rate).abs().max()) < 1e-12


@pytest.mark.parametrize(
    ("name", "options", "fixed", "words"),
    [
        ("canonical", {}, {"a": 0.5}, "takes no fixed a"),
        ("linear", {}, {"u": 0.5}, "only a can be fixed"),
        ("rank-one", {"length": 4}, {"a": 0.5}, "only b can be fixed"),
        ("untied", {}, {"u": float("nan")}, "must be finite"),
    ],
)
def test_a_fixed_value_that_the_model_has_not_is_refused(name, options, fixed, words):
    with pytest.raises(InputError, match=words):
        portrait(model(name, 0.5, 0.8, **options), resolution=2, fixed=fixed)


def test_orbits_conserve_the_energy():
    record = portrait(model("canonical", 0.5, 0.8), resolution=4)
    path = torch.from_numpy(np.stack([record["orbit_e"], record["orbit_w"]], axis=-1))
    assert float((energy(path) - energy(path[0])).abs().max()) < 1e-8


@pytest.mark.parametrize(
    "of",
    [
        pytest.param(model("canonical", 0.5, 0.8), marks=pytest.mark.slow),
        model("canonical", 0.5, 0.8, bias="dynamic"),
    ],
    ids=str,
)
def test_drawn_orbits_are_those_of_torchdiffeq_each_at_times_of_its_own(of):
    starts = theta_at(of.plane, torch.tensor([-0.4, -1.2, 1.0]), torch.tensor([0.3, 1.0, 0.5]), {})
    times, path = drawn_orbits(of, starts, find_limits(of, starts))
    assert len(times[-1].unique()) == 3
    for i, start in enumerate(starts):
        known = integrate(of, start, times[:, i], rtol=1e-10)
        torch.testing.assert_close(path[:, i], known, rtol=0, atol=1e-5)


def test_projected_orbits_end_at_their_limits(lifted):
    of = model("rank-one", 0.5, 0.8, length=4)
    path = np.stack([lifted["orbit_e"], lifted["orbit_w"]], axis=-1)
    done = np.isfinite(path[-1]).all(axis=-1)
    assert done.sum() + lifted.attrs["orbits_unfinished"] == path.shape[1]
    assert done.all()
    start = of.from_canonical(torch.from_numpy(path[0]))
    limit = of.to_canonical(find_limits(of, start).theta).numpy()
    np.testing.assert_allclose(path[-1][done], limit[done], atol=1e-6)


def test_a_view_in_space_keeps_to_its_window():
    record = phase_space(
        model("linear", 0.5, 0.8), w_range=(-1, 1), e_range=(-0.8, 0.8), a_range=(-0.2, 0.6)
    )
    window = {"w": (-1, 1), "e": (-0.8, 0.8), "a": (-0.2, 0.6)}
    ax = draw(record).axes[0]
    assert (ax.get_xlim(), ax.get_zlim(), ax.get_ylim()) == (
        *[window[n] for n in "we"],
        window["a"],
    )
    for name, (low, high) in window.items():
        assert (record[f"orbit_{name}"][0] >= low).all()
        assert (record[f"orbit_{name}"][0] <= high).all()
    for line in ax.lines:
        x, y, z = (np.asarray(v, dtype=float) for v in line.get_data_3d())
        for values, name in ((x, "w"), (y, "a"), (z, "e")):
            inside = values[np.isfinite(values)]
            assert (inside >= window[name][0] - 1e-9).all()
            assert (inside <= window[name][1] + 1e-9).all()
    with pytest.raises(InputError, match="needs uniform, linear or rank-one attention"):
        phase_space(model("canonical", 0.5, 0.8))


def test_a_resolution_may_be_a_number_of_numpy():
    record = portrait(model("canonical", 0.5, 0.8), resolution=np.int64(2), confirm=0)
    assert record.sizes["e"] == 2


def test_an_orbit_that_never_settles_is_drawn_for_twenty_of_its_models_units_of_time():
    of = model("canonical", 0.5, 0.8)
    at_rest = torch.tensor([[0.0, 0.5]], dtype=torch.float64)
    times, path = drawn_orbits(of, at_rest, find_limits(of, at_rest))
    assert float(times[-1, 0]) == pytest.approx(20 / of.end_losses().rate) and len(times) == 159
    assert (path == at_rest).all()
