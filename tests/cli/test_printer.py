"""Summaries as aligned lines."""

from flowsim.cli.printer import as_text


def test_mathematics_is_printed_without_dollar_signs_and_files_with_theirs():
    text = as_text({"subtitle": "chain $p$ = 0.5: $p + q$ = 1.3 > 1", "record": "cost$.nc"})
    assert text.splitlines() == ["subtitle  chain p = 0.5: p + q = 1.3 > 1", "record    cost$.nc"]


def test_an_optimizers_shares_stand_beside_those_of_the_flow_and_add_up():
    shares = {"minimum_1": 0.25, "diverged": 0.75, "flow_minimum_1": 1.0, "flow_diverged": 0.0}
    assert as_text({"fraction": shares}).splitlines() == [
        "fraction",
        "  minimum_1  25.00%, by gradient flow 100.00%",
        "  diverged   75.00%, by gradient flow 0.00%",
    ]
