"""The script of the induction head's plane, at its shortest length."""

import induction as script
import pytest


@pytest.mark.parametrize("name", script.PRIORS)
def test_the_losses_are_in_order(name):
    line = script.landscape(name, 6)
    assert line["bayes"] < line["learned"] < line["trapped"] < line["plateau"]
    assert line["saddle_share"] < 0.5 and line["fastest_departure"] > 0
