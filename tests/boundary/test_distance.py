"""Distances to another end against closed forms and published minima's distances."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

import flowsim
from flowsim.boundary import edge_distance, stable_manifolds

HIMMELBLAU = [(3, 2), (3.58442834, -1.84812653), (-3.77931025, -3.28318599),
              (-2.80511809, 3.13131252)]  # fmt: skip
SIDES = {"x": (-5.0, 5.0), "y": (-5.0, 5.0)}


@pytest.fixture(scope="module")
def himmelblau():
    return flowsim.from_loss(lambda x, y: (x**2 + y - 11) ** 2 + (x + y**2 - 7) ** 2, "himmelblau")


def test_stable_manifolds_pass_himmelblaus_minima_at_the_known_distances(himmelblau):
    known = [1.95940726, 1.93179547, 3.25952811, 2.90125823]
    found = stable_manifolds(himmelblau, SIDES)
    points = np.concatenate([manifold.points for manifold in found])
    away = [np.nanmin(np.linalg.norm(points - minimum, axis=1)) for minimum in HIMMELBLAU]
    assert len(found) == 4
    assert away == pytest.approx(known, abs=1e-6)


@pytest.mark.slow
def test_distances_of_himmelblaus_minima_are_known(himmelblau):
    found = edge_distance(himmelblau, HIMMELBLAU, SIDES)
    assert found.distance == pytest.approx(
        [1.95940726, 1.93179547, 3.25952811, 2.90125823], abs=2e-8
    )
    assert not found.is_bound


def nearest(height, start, low, high):
    """Distance from (e, w) to the curve e² = height(w), w from low to high."""
    w = -np.geomspace(-high, -low, 100_001)
    away = np.hypot(np.sqrt(height(w).clip(0)) - abs(start[0]), w - start[1])
    i = away.argmin()
    fit = minimize_scalar(
        lambda x: np.hypot(np.sqrt(max(height(x), 0)) - abs(start[0]), x - start[1]),
        bounds=sorted((w[max(i - 2, 0)], w[min(i + 2, len(w) - 1)])),
        method="bounded", options={"xatol": 1e-12},
    )  # fmt: skip
    return min(fit.fun, away.min())


STARTS = [(0.8, -0.4), (1.0, -1.2), (1.5, 0.5), (-2.0, -0.5)]


@pytest.mark.parametrize("p", [0.5, 0.1])
def test_distances_of_the_canonical_model_are_those_to_its_separatrix(p):
    low, high = (-(0.5**0.5), -1e-6) if p + 0.8 > 1 else (-4.0, -(0.5**0.5))
    model = flowsim.model("canonical", p, 0.8)

    def height(w):
        return -(1 + np.log(2)) / 2 + w**2 - np.log(-w)

    expected = [nearest(height, start, low, high) for start in STARTS]
    assert edge_distance(model, STARTS).distance == pytest.approx(expected, abs=1e-6)


def test_a_plane_without_another_end_has_no_edge():
    model = flowsim.model("canonical", 0.5, 0.8)
    found = edge_distance(model, [[1.0, 1.0]], {"e": (0.5, 1.5), "w": (0.5, 1.5)})
    assert np.isinf(found.distance).all()
    assert np.isnan(found.nearest).all()


@pytest.mark.parametrize(
    ("within", "sentence"),
    [({"x": (0, 1)}, "within takes LOW < HIGH of e, w, not x"),
     ({"e": (1, 0)}, "within takes LOW < HIGH of e, w, not e")],
)  # fmt: skip
def test_wrong_windows_are_answered_in_one_sentence(within, sentence):
    model = flowsim.model("canonical", 0.5, 0.8)
    with pytest.raises(flowsim.InputError, match=sentence):
        edge_distance(model, [[1.0, 1.0]], within)


@pytest.mark.slow
def test_distance_in_a_slice_of_linear_attention_is_that_to_its_second_separatrix():
    model = flowsim.model("linear", 0.5, 0.8)
    found = edge_distance(model, [[1.5, 0.5, 0.3]], {"e": (-3, 3), "w": (-3, 3)})
    assert found.distance == pytest.approx(2**0.5 * 1.3 - 1.5, abs=1e-6)
    assert not found.is_bound


@pytest.mark.slow
def test_distance_in_the_plane_of_states_is_that_to_its_separatrix():
    m = 4

    def height(w):
        return -2 - 2 * np.log(m) + 2 * m * w**2 - 4 * np.log(-w)

    model = flowsim.model("states", states=3, p=0.8, hidden_per_state=m)
    expected = [nearest(height, start, -(m**-0.5), -1e-6) for start in STARTS[:2]]
    assert edge_distance(model, STARTS[:2]).distance == pytest.approx(expected, abs=1e-6)
