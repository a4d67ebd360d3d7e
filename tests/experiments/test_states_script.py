"""The script of the plane of five states, run for a few steps."""

import states as script

from flowsim import MarkovChain
from flowsim.models import StatesModel


def test_every_run_is_counted_once():
    plane = StatesModel(MarkovChain.symmetric(5, 0.9), script.HIDDEN)
    found = script.trained(plane, 0.0, 60)
    counts = ("learned as predicted", "at the unigram as predicted", "learned against prediction",
              "at the unigram against prediction", "between")  # fmt: skip
    assert found["runs"] == sum(found[name] for name in counts) == 400
    assert found["learned as predicted"] > 50 and found["learned against prediction"] == 0
