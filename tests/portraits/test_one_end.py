"""Portraits of models of one's own that have no boundary, or lie anywhere."""

import numpy as np
import pytest

import flowsim

BOWL = flowsim.from_loss(lambda x, y: x**2 + y**2, "bowl")
WELL = flowsim.from_loss(lambda x, y: (x**2 - 1) ** 2 / 4 + y**2 / 2 + 0.2 * x, "well")


@pytest.mark.parametrize("name", ["gd", "adamw"])
def test_an_optimizer_of_a_loss_with_one_end_has_a_figure(name):
    window = {"x": (-1, 1), "y": (-1, 1)}
    steps = flowsim.OptimizerChoice.named(name, steps=50, loss="population")
    record = flowsim.portrait(BOWL, window=window, resolution=4, optimizer=steps)
    assert "boundary_x" not in record
    assert flowsim.draw(record).axes[0].get_xlabel() == "$x$"


@pytest.mark.slow
def test_a_boundary_is_left_out_or_announced():
    without = flowsim.portrait(WELL, resolution=6, confirm=0, boundary=False)
    assert "boundary_x" not in without
    stages = {}

    def stage(what, count):
        stages[what] = [count, 0]

        def advance(more):
            stages[what][1] += more

        return advance

    record = flowsim.portrait(WELL, resolution=6, confirm=0, next_stage=stage)
    assert without.label.equals(record.label)
    count, done = stages["halvings to place the boundary"]
    assert count == done > 0
    top = float(np.roots([1, 0, -1, 0.2])[2])  # the saddle's x: the boundary is the line above it
    np.testing.assert_allclose(record.boundary_x, top, atol=0.01)


@pytest.mark.parametrize("centre, width", [(-3e6, 2.0), (0.0, 1e-6)])
def test_orbits_start_inside_the_window(centre, width):
    model = flowsim.from_loss(
        lambda x, y: ((x - centre) / width) ** 2 + ((y - centre) / width) ** 2, "bowl"
    )
    sides = dict.fromkeys("xy", (centre - width, centre + width))
    record = flowsim.portrait(model, window=sides, resolution=3, confirm=0)
    starts = np.stack([record.orbit_x[0], record.orbit_y[0]], axis=-1)
    assert len(np.unique(starts, axis=0)) == 20
    assert (np.abs(starts - centre) < width).all()
