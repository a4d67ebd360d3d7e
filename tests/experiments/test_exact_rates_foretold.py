"""The script that foretells AdamW's least rate, at a tiny size."""

import json
import math
from importlib import import_module

import pytest


@pytest.mark.slow
def test_the_rates_are_those_of_both_routes_and_every_setting_runs(tmp_path):
    script = import_module("exact_rates_foretold")
    assert script.main(["--out", str(tmp_path), "--seeds", "2", "--steps", "100"]) == 0
    found = json.loads((tmp_path / "exact_rates_foretold.json").read_text())
    assert set(found) == {"made", "sizes"} | {script.words(*s) for s in script.SETTINGS}
    for setting, epsilon in script.SETTINGS:
        line, (p, q, d, r) = found[script.words(setting, epsilon)], setting
        assert line["fast"] == pytest.approx(0.045 / (r * d) ** 0.5, rel=1e-5)
        growth = (p + q - 1) * p * q / (p + q) ** 2 * line["slow"] ** 3 / epsilon
        steps = 1400.0
        if (setting, epsilon) in script.DERIVED:
            steps = 2 * 38**2 * math.log(0.045 / (line["slow"] * r**0.5)) / d**0.5
        assert growth * 100 == pytest.approx(steps, rel=1e-4)
        assert line["foretold"] == min(line["fast"], line["slow"])
        assert line["runs"] == 2 and len(line["escaped"]) == 4
    assert (tmp_path / "exact_rates_foretold.png").stat().st_size < 300_000
