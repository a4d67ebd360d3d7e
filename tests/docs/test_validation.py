"""The table of other programs' numbers beside ours."""

import csv
from pathlib import Path

import pytest
from elsewhere import loaded

ROOT = Path(__file__).parents[2]
validation = loaded(ROOT / "benchmarks/validation.py")
TABLE = (ROOT / "docs/validation.csv").read_text(encoding="utf-8").splitlines()
ROWS = dict(zip(validation.CASES, csv.DictReader(TABLE), strict=True))


@pytest.mark.parametrize("name", validation.CASES)
def test_every_case_has_its_row_and_fails_where_it_is_not_computed(name):
    case, row = validation.CASES[name], ROWS[name]
    assert (row["program"], row["case"]) == (case.program, case.case)
    if isinstance(case.ours, str):
        assert (row["ours"], row["agrees"]) == (case.ours, "no")


@pytest.mark.slow
@pytest.mark.turns
@pytest.mark.parametrize("name", [n for n, c in validation.CASES.items() if callable(c.ours)])
def test_our_numbers_are_those_of_the_table(name):
    found = validation.row(validation.CASES[name])
    kept = tuple(ROWS[name].values())
    assert found[:4] == kept[:4]
    assert found[5] == kept[5]
    ours, before = ([float(x) for x in values[4].split()] for values in (found, kept))
    assert ours == pytest.approx(before, abs=1e-7)
