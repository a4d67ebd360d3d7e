"""The surface that is drawn of a boundary in space."""

import numpy as np

from flowsim.drawing.boundary_lines import shades, smoothed


def sheet(side=12):
    """A flat square, its points over a grid, as triangles."""
    x, y = np.meshgrid(np.arange(side), np.arange(side), indexing="ij")
    points = np.stack([x.ravel(), y.ravel(), np.zeros(side * side)], axis=1).astype(float)
    corner = (side * np.arange(side - 1)[:, None] + np.arange(side - 1)).ravel()
    lower = np.stack([corner, corner + side, corner + side + 1], axis=1)
    upper = np.stack([corner, corner + side + 1, corner + 1], axis=1)
    return points, np.concatenate([lower, upper])


def test_stairs_are_smoothed_by_less_than_half_a_cell():
    points, faces = sheet()
    cell = np.array([1.0, 1.0, 0.5])
    assert np.abs(smoothed(points, faces, cell)[:, 2]).max() == 0
    noise = np.random.Generator(np.random.PCG64(0)).uniform(-0.2, 0.2, len(points))
    rough = points + np.stack([0 * noise, 0 * noise, noise], axis=1)
    found = smoothed(rough, faces, cell)
    assert (np.abs(found - rough) <= 0.5 * cell + 1e-12).all()
    assert found[:, 2].std() < 0.5 * rough[:, 2].std()


def test_the_rim_keeps_to_itself():
    points, faces = sheet()
    rim = (points[:, :2] % 11 == 0).any(axis=1)
    bent = points.copy()
    bent[~rim, 2] = 0.4
    found = smoothed(bent, faces, np.ones(3))
    assert np.abs(found[rim, 2]).max() == 0 and found[~rim, 2].max() > 0.35


def test_both_sides_are_shaded_alike():
    points, faces = sheet(4)
    assert np.allclose(shades(points, faces), shades(points, faces[:, ::-1]))
