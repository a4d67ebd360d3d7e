"""Whether figures can be read without red or green cones."""

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from colours import distances, seen
from matplotlib.colors import to_hex, to_rgb
from PIL import Image

from flowsim.drawing.style import AGREE, DIFFER, FILL, INK, MARKER, TRAINED

KINDS = ("deuteranopia", "protanopia")
#: Distances in L*a*b*: at 10 two colours side by side are clearly two, at 25 they are far apart.
APART, FAR = 10.0, 25.0
#: The least part of a figure that a colour fills to be one of its areas.
AREA = 0.005
FIGURES = sorted((Path(__file__).parents[2] / "figures").glob("*.png"))


def confused(colours):
    """Pairs that are far apart for all cones and not apart for two kinds of them."""
    usual = distances(seen(colours))
    return [
        (kind, to_hex(colours[i]), to_hex(colours[j]))
        for kind in KINDS
        for i, j in combinations(range(len(colours)), 2)
        if usual[i, j] > FAR and distances(seen(colours[[i, j]], kind))[0, 1] < APART
    ]


def areas(path):
    """The colours (n, 3) that fill much of a picture, to an eighth of each channel's 256.

    Pixels count whose four neighbours are as they are: letters, axes and hatches are no areas.
    """
    pixels = np.asarray(Image.open(path).convert("RGB")).astype(int) // 8 @ [1024, 32, 1]
    inner, plain = pixels[1:-1, 1:-1], True
    for rows, columns in ((0, 1), (2, 1), (1, 0), (1, 2)):
        shifted = pixels[rows : rows + inner.shape[0], columns : columns + inner.shape[1]]
        plain = plain & (shifted == inner)
    code, count = np.unique(inner[plain], return_counts=True)
    code = code[count > AREA * pixels.size]
    return (np.stack([code // 1024, code // 32 % 32, code % 32], axis=-1) * 8 + 4) / 255


def test_red_and_green_of_one_grey_are_found():
    assert confused(np.array([[0.75, 0.35, 0.2], [0.5, 0.5, 0.2], [0.0, 0.3, 0.5]]))
    assert not confused(np.array([[0.0, 0.3, 0.5], [0.76, 0.34, 0.0]]))
    assert seen([[1.0, 1.0, 1.0]])[0] == pytest.approx([100, 0, 0], abs=0.02)
    red = seen([[1.0, 0.0, 0.0]])[0]  # as CIE has it
    assert red == pytest.approx([53.24, 80.09, 67.20], abs=0.05)


@pytest.mark.parametrize("kind", [None, *KINDS])
def test_colours_of_one_role_are_apart(kind):
    roles = {
        "areas": list(FILL.values()), "lines": [*INK.values(), TRAINED], "runs": [AGREE, DIFFER],
    }  # fmt: skip
    for role, names in roles.items():
        between = distances(seen([to_rgb(name) for name in names], kind))
        least = between[np.triu_indices(len(names), 1)].min()
        assert least > APART, (role, least)
    assert len(set(MARKER.values())) == len(MARKER)  # and labels have their markers beside


@pytest.mark.slow
@pytest.mark.turns
@pytest.mark.parametrize("path", FIGURES, ids=lambda path: path.stem)
def test_no_areas_of_a_figure_merge(path):
    colours = areas(path)
    assert len(colours) >= 1
    assert not confused(colours)
