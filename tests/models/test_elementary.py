"""The compiled exponential and what clips its argument, against forty digits."""

import mpmath
import numpy as np
import pytest
from mpmath import mpf

from flowsim.elementary import LARGEST, clipped, exponential


@pytest.mark.parametrize("scale", [1e-9, 0.5, 20.0, 700.0])
def test_the_exponential_is_right_to_two_units_in_the_last_place(scale):
    for x in scale * np.concatenate([np.linspace(-1, 1, 41), np.cos(np.arange(20.0))]):
        exact = mpmath.exp(mpf(float(x)))
        assert abs(mpf(float(exponential(x))) - exact) <= 4.5e-16 * exact, x


def test_arguments_beyond_the_largest_are_clipped():
    assert LARGEST == 700.0
    for x, expected in ((701.0, 700.0), (-1e9, -700.0), (699.5, 699.5), (-3.0, -3.0)):
        assert clipped(x) == expected
