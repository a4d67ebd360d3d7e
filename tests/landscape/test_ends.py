"""Ends that are found: grouped by place and connection, as far as a set extends."""

from functools import cache

import numpy as np
import pytest
import torch

from flowsim import Label, find_limits, from_loss
from flowsim.landscape import End, Ends

MODELS = {
    "six wells": (
        lambda x, y: (4 - 2.1 * x**2 + x**4 / 3) * x**2 + x * y + (-4 + 4 * y**2) * y**2,
        ["minimum"] * 6, [0] * 6,
    ),
    "two curves": (lambda a, b: (a * b - 1) ** 2 / 2, ["minimum"] * 2, [1, 1]),
    "a circle": (lambda x, y: (x**2 + y**2 - 1) ** 2 + 1, ["minimum"], [1]),
    "four surfaces": (lambda a, b, c: (a * b * c - 1) ** 2 / 2, ["minimum"] * 4, [2] * 4),
    "a saddle": (lambda x, y: y**2 - x**2, ["infinity"] * 2, [0, 0]),
}  # fmt: skip


@cache
def limits_of(name, shift):
    """The model, and the limits of 32 starts drawn from [−2, 2]ᵏ."""
    model = from_loss(MODELS[name][0], "model")
    source = torch.Generator().manual_seed(3 + shift)
    starts = 4 * torch.rand(32, len(model.coordinates), generator=source).double() - 2
    return model, find_limits(model, starts)


def ends_of(name, shift=0):
    """The ends of a model, the codes of its starts, and their limits."""
    model, limits = limits_of(name, shift)
    ends = Ends(model)
    return ends, ends.identify(limits), limits


@pytest.mark.parametrize(
    "name",
    [pytest.param(x, marks=[pytest.mark.slow] * (x == "four surfaces")) for x in MODELS],
)
def test_every_start_is_decided_and_ends_are_told_apart(name):
    ends, codes, _ = ends_of(name)
    _, kinds, flat = MODELS[name]
    assert [end.kind for end in ends.found] == kinds
    assert [end.dimension for end in ends.found] == flat
    assert (codes > 0).all() and set(codes.tolist()) == set(range(1, len(kinds) + 1))
    losses = [end.loss for end in ends.found]
    np.testing.assert_allclose(losses, sorted(losses), atol=1e-9)
    numbers = [f"{kind}_{kinds[: i + 1].count(kind)}" for i, kind in enumerate(kinds)]
    assert ends.names == ["unresolved", *numbers]


def test_the_wells_are_those_of_the_six_hump_camel():
    """Dixon & Szegő: the lowest two at ±(0.0898, −0.7126), loss −1.0316."""
    ends, _, _ = ends_of("six wells")
    for end in ends.found[:2]:
        assert abs(end.loss + 1.0316284535) < 1e-9
        np.testing.assert_allclose(end.theta.abs(), [0.08984201, 0.7126564], atol=1e-7)


@pytest.mark.parametrize("off", [1e-8, -1e-8])
def test_what_is_not_known_of_minima_at_a_kink_does_not_number_them(off):
    model = from_loss(lambda x, y: (x - 0.3).abs() + (y**2 - 1) ** 2, "kink")
    theta = torch.tensor([[0.3 + off, 1.0], [0.3 - off, -1.0]]).double()
    label = torch.full((2,), Label.LOCAL_MINIMUM)
    assert Ends(model).codes(label, theta, model.loss(theta)).tolist() == [2, 1]


def test_later_starts_get_the_codes_of_the_ends_that_are_known():
    ends, _, _ = ends_of("six wells")
    names, (_, codes, limits) = ends.names, ends_of("six wells", shift=1)
    again = ends.identify(limits)
    assert ends.names == names
    torch.testing.assert_close(again, codes)


def powell(a, b, c, d):
    return (a + 10 * b) ** 2 + 5 * (c - d) ** 2 + (b - 2 * c) ** 4 + 10 * (a - d) ** 4


#: Losses with one minimum at the place that follows, where a curvature vanishes or is tiny.
POINTS = {
    "2, 4": (lambda x, y: x**2 + y**4, [0, 0]),
    "2, 6": (lambda x, y: x**2 / 2 + y**6 / 6, [0, 0]),
    "4, 4": (lambda x, y: x**4 + y**4, [0, 0]),
    "2, 2, 4": (lambda x, y, z: x**2 + y**2 + z**4, [0, 0, 0]),
    "2, 4 far from 0": (lambda x, y: (x - 3) ** 2 + (y - 7) ** 4, [3, 7]),
    "turned": (lambda x, y: (x - y) ** 4 + (x + y) ** 2, [0, 0]),
    "turned, far from 0": (lambda x, y: (x - y + 1) ** 4 + (x + y - 3) ** 2, [1, 2]),
    "1e9": (lambda x, y: 1e9 * x**2 + y**2, [0, 0]),
    "1e12": (lambda x, y: 1e12 * x**2 + y**2, [0, 0]),
    "1e14": (lambda x, y: x**2 / 2 + 1e-14 * y**2 / 2, [0, 0]),
    "Powell": (powell, [0, 0, 0, 0]),
    "Rosenbrock": (lambda x, y: (1 - x) ** 2 + 100 * (y - x**2) ** 2, [1, 1]),
}


def found_from(f, places):
    """The ends of a loss, of limits with the label of a minimum at these places."""
    model, theta = from_loss(f, "model"), torch.as_tensor(places, dtype=torch.float64)
    ends = Ends(model)
    label = torch.full((len(theta),), int(Label.LOCAL_MINIMUM), dtype=torch.int8)
    codes = ends.codes(label, theta, model.loss(theta))
    return ends.found, codes


@pytest.mark.parametrize("name", POINTS)
def test_a_single_minimum_is_a_point_however_flat(name):
    f, place = POINTS[name]
    near = np.random.default_rng(0).normal(size=(30, len(place)))
    found, codes = found_from(f, place + 1e-3 * near)
    assert [end.dimension for end in found] == [0] and (codes == 1).all()
    np.testing.assert_allclose(found[0].theta, place, atol=2e-3)


@pytest.mark.parametrize("shift", [0.0, 5.0])
@pytest.mark.parametrize("size", [1e-4, 1.0, 1e5])
def test_circles_are_curves_and_spheres_surfaces_of_any_size(size, shift):
    turn = torch.linspace(0.1, 6.3, 40, dtype=torch.float64)
    circle = size * torch.stack([turn.cos(), turn.sin()], dim=1) + shift * size

    def off(*x):
        return (sum((c - shift * size) ** 2 for c in x) / size**2 - 1) ** 2

    found, codes = found_from(lambda x, y: off(x, y), circle)
    assert [end.dimension for end in found] == [1] and (codes == 1).all()
    places = torch.randn(60, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    sphere = size * places / places.norm(dim=1, keepdim=True) + shift * size
    found, codes = found_from(lambda x, y, z: off(x, y, z), sphere)
    assert [end.dimension for end in found] == [2] and (codes == 1).all()


@pytest.mark.parametrize("apart", [1.0, 1e-2, 1e-6])
@pytest.mark.parametrize("power", [2, 4])
def test_two_minima_of_equal_loss_are_two(power, apart):
    """Beside one another as near as 1e-6 at x = 300, on a direction whose curvature may vanish."""
    ends = torch.tensor([[300 - apart, 0.0], [300 + apart, 0.0]], dtype=torch.float64)

    def f(x, y):
        return (((x - 300) / apart) ** 2 - 1) ** power + y**2

    noise = torch.randn(40, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    starts = ends.repeat(20, 1) + 1e-2 * apart * noise
    found, codes = found_from(f, starts)
    assert [end.dimension for end in found] == [0, 0]
    assert (codes.reshape(20, 2) == torch.tensor([1, 2])).all()


def test_rounding_of_the_loss_divides_no_set():
    """Where Πa = 1 to the last bit the loss is 0 or 2⁻¹⁰⁵, which is all that it rises between."""
    draws = torch.randn(20, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    near = 1 + 1e-7 * draws
    found, codes = found_from(lambda a, b, c, d, e: (1 - a * b * c * d * e) ** 2 / 2, near)
    assert [end.dimension for end in found] == [4] and (codes == 1).all()


def rings(x, y):
    return ((x**2 + y**2 - 1) * (x**2 + y**2 - 4)) ** 2


def beside(x, y):
    return (((x - 2) ** 2 + y**2 - 1) * ((x + 2) ** 2 + y**2 - 1)) ** 2


def arcs(x, y):
    return (x**2 + y**2 - 1) ** 2 + (0.5 - x.abs()).relu() ** 2


#: Losses whose minima are curves, places on these by radius, angle and centre, and their numbers.
CURVES = {
    "outer ring": (rings, [(2, 0.1, 0), (2, 2.3, 0), (2, 4.0, 0)], [1, 1, 1]),
    "rings": (rings, [(2, 0.1, 0), (1, 0.1, 0), (2, 3.3, 0), (1, 3.1, 0)], [2, 1, 2, 1]),
    "beside": (beside, [(1, 3.1, 2), (1, 0.1, -2), (1, 0.2, 2), (1, 3, -2)], [2, 1, 2, 1]),
    "arcs": (arcs, [(1, 0.9, 0), (1, 2.2, 0), (1, -0.9, 0), (1, 4.0, 0)], [2, 1, 2, 1]),
    "cross": (lambda x, y: (x * y) ** 2, [(1, 0, 0), (1.5, np.pi / 2, 0), (2, np.pi, 0)], [1] * 3),
}


@pytest.mark.parametrize("name", CURVES)
def test_curves_are_followed_past_others_beside_them(name):
    f, places, numbers = CURVES[name]
    places = [[r * np.cos(turn) + x, r * np.sin(turn)] for r, turn, x in places]
    found, codes = found_from(f, places)
    assert [end.dimension for end in found] == [1] * len(set(numbers))
    pairs = set(zip(codes.tolist(), numbers, strict=True))
    assert len(pairs) == len(set(numbers))


@pytest.mark.slow
def test_an_ellipse_a_thousand_times_as_long_as_wide_is_one_curve():
    turn = torch.from_numpy(np.random.default_rng(1).uniform(0, 2 * np.pi, 12))
    places = torch.stack([1000 * turn.cos(), turn.sin()], dim=1)
    found, codes = found_from(lambda x, y: ((x / 1000) ** 2 + y**2 - 1) ** 2, places)
    assert [end.dimension for end in found] == [1] and (codes == 1).all()


def test_places_about_a_corner_of_the_loss_are_one_minimum():
    """Next to one another, with places between from which another coordinate leads down."""
    places = [[1 + 3e-10, -1 - 1.2e-9], [1 - 3.6e-9, -1 + 5.1e-9], [1 + 2e-9, -1 + 3e-8]]
    found, codes = found_from(lambda x, y: torch.maximum((x - 1).abs(), (y + 1).abs()), places)
    assert [end.dimension for end in found] == [0] and (codes == 1).all()


@pytest.mark.parametrize(
    ("f", "places", "dimensions", "numbers"),
    [
        (lambda x, y: (x * y - 1).abs(),
         [[1.0, 1.0], [-2.0, -0.5], [1.5 + 1e-8, 1 / 1.5], [3.0, 1 / 3], [-0.7, -1 / 0.7]],
         [1, 1], [1, 2, 1, 1, 2]),
        (lambda x, y, z: ((x**2 + y**2 + z**2).sqrt() - 1).abs(),
         [[1.0, 0.0, 0.0], [0.0, -1.0, 0.0], [0.6, 0.0, 0.8], [-0.6, 0.8, 0.0]], [2], [1] * 4),
        (lambda x, y: (x.abs() - 1).abs() + (y.abs() - 1).abs(),
         [[1.0, 1.0], [-1.0, 1.0], [1.0, -1.0], [1 + 1e-8, 1.0]], [0, 0, 0], [1, 2, 3, 1]),
    ],
    ids=["hyperbola", "sphere", "four corners"],
)  # fmt: skip
def test_minima_at_a_kink_that_a_kink_without_a_rise_joins_are_one_set(
    f, places, dimensions, numbers
):
    found, codes = found_from(f, places)
    assert [end.dimension for end in found] == dimensions
    pairs = set(zip(codes.tolist(), numbers, strict=True))
    assert len(pairs) == len(set(numbers)) == len(set(codes.tolist()))


@pytest.mark.parametrize(
    "tilt, count", [(0.02, 2), pytest.param(0.2, 1, marks=[pytest.mark.slow, pytest.mark.turns])]
)
def test_a_minimum_that_is_flat_along_a_curved_valley_is_one(tilt, count):
    """Along ab = 1 the loss grows as the fourth power, and points rest 1e-7 apart."""

    def loss(a, b):
        return (a * b - 1) ** 2 / 2 + tilt * (a + b + 2) ** 2

    starts = torch.from_numpy(np.random.default_rng(0).normal(0, 0.5, (24, 2)))
    ends = Ends(from_loss(loss, "model"))
    codes = ends.identify(find_limits(ends.model, starts))
    assert [end.dimension for end in ends.found] == [0] * count
    assert sorted({*codes.tolist()}) == [*range(1, count + 1)]


@pytest.mark.parametrize(
    ("dimension", "said"), [(1, "a curve"), (2, "a surface"), (3, "a set of dimension 3")]
)
def test_a_set_of_ends_is_called_by_its_dimension(dimension, said):
    end = End("minimum", 0.5, torch.zeros(4), dimension, "minimum_2")
    assert end.caption("wxyz") == f"minima 2, {said} (loss 0.5)"
