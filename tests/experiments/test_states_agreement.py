"""The scripts that hold planes and thresholds of S states against training, on small sizes."""

import pytest
import states_agreement as agreement
import states_threshold as threshold

from flowsim import MarkovChain


@pytest.mark.slow
def test_every_start_is_counted_once():
    record = agreement.compute(side=4, steps=400)
    found = agreement.numbers(record)
    assert len(found) == len(agreement.CHAINS) * len(agreement.NOISE)
    for line in found.values():
        table = [n for ends in line["found"].values() for n in ends.values()]
        assert sum(table) == line["starts"] == 8
        assert line["decided"] + sum(line["open"].values()) == 8
        assert ("interval" in line) == (line["noise"] > 0)
        above = line["p"] > (line["states"] - 1) / line["states"]
        if above and not line["noise"]:
            assert line["agree"] == line["decided"] >= 7
    assert agreement.draw(record).axes


def test_descent_is_trapped_above_the_threshold_and_learns_below():
    share = threshold.trained(2, True, "gd", 2, 200, threshold.OFFSETS)
    assert (share[:5] > 0.95).all() and (share[7:] < 0.05).all()
    for x in threshold.OFFSETS:
        chain = MarkovChain.symmetric(3, threshold.chance(3, x))
        assert chain.second_eigenvalue == pytest.approx(x / 2, abs=1e-12)
        assert (chain.unigram == "a saddle") == (x > 0)


@pytest.mark.slow
def test_every_run_of_the_ensembles_is_counted_once():
    record = threshold.compute(largest=3, seeds=2, steps=60)
    found = threshold.numbers(record)
    assert len(found) == 8
    for case in found.values():
        for line in case["lines"]:
            assert line["trapped"] + line["learned"] + line["between"] == line["runs"] == 2
