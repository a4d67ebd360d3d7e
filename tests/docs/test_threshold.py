"""The pages on p + q = 1 and on times have the numbers of their record."""

import json
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOUND = json.loads((ROOT / "figures/threshold.json").read_text())


def test_the_shares_through_the_threshold():
    shares = [round(100 * x, 1) for pair in FOUND["trapped"].values() for x in pair.values()]
    assert shares == [13.1, 0, 0, 0, 55.8, 60.4]
    text = (ROOT / "docs/theory.md").read_text()
    assert all(f"{x} %" in text for x in shares if x)


def test_the_times_to_learn():
    text = (ROOT / "docs/howto/time_to_learn.md").read_text()
    below, above = (list(times.values()) for times in FOUND["time_against_d"].values())
    assert f"{below[0]:g} at d = 2 and {below[-1]:g} at d = 32" in text
    assert f"{min(above):g} to {max(above):g} on (0.5, 0.8)" in text
    assert {n for side in FOUND["seeds_that_learn"].values() for n in side.values()} == {8}
    slopes = FOUND["slope_against_distance"]
    assert abs(slopes["below"] + 1) < 0.05 and -0.9 < slopes["above"] < -0.5
    small = list(FOUND["time_against_sigma"]["p + q < 1"].values())
    steps = [a - b for a, b in pairwise(small)]
    assert all(4 < step < 8 for step in steps)  # a constant for each half of a decade
    assert str(FOUND["time_against_sigma"]["p + q > 1"]["0.1"]) == "nan"
