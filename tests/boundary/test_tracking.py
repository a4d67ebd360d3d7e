"""Edge states against saddles that are known."""

import pytest
from scipy.optimize import brentq

import flowsim
from flowsim.boundary import edge_state


def test_the_edge_of_linear_attention_leads_to_its_line_of_saddles():
    found = edge_state(flowsim.model("linear", 0.5, 0.8), [1.5, 0.5, 0.3], [1.5, -1.5, 0.3])
    assert found.theta[:2] == pytest.approx([0, -(0.5**0.5)], abs=1e-7)
    assert found.unstable == 1


@pytest.mark.slow
def test_edge_states_of_induction_and_of_three_coupled_coordinates_are_the_saddles():
    model = flowsim.model("induction", length=6)
    (saddle,) = [c for c in model.plane.curves(model.plane.window, {}) if c.kind == "saddle"]
    found = edge_state(model, [1.0, 1.0], [-2.0, 0.5])
    assert found.theta == pytest.approx([float(saddle.x[0]), 0], abs=1e-7)
    wells = flowsim.from_loss(
        lambda x, y, z: (x**2 - 1) ** 2 / 4 + (y - x) ** 2 / 2 + (z - y * x) ** 2 / 2 + x / 10, "w"
    )
    found = edge_state(wells, [0.9, 1.0, 0.0], [-1.2, 0.5, 0.3])
    x = brentq(lambda x: x**3 - x + 0.1, -0.3, 0.5)
    assert found.theta == pytest.approx([x, x, x * x], abs=1e-9)
    assert found.unstable == 1


def test_starts_with_one_end_have_no_edge_between_them():
    model = flowsim.model("linear", 0.5, 0.8)
    with pytest.raises(flowsim.InputError, match="two starts with different ends"):
        edge_state(model, [1.5, 0.5, 0.3], [1.5, 0.6, 0.3])
