"""The site's tables of published numbers: of models of examples/, and of other programs."""

import csv
from pathlib import Path

import numpy as np
import pytest
from elsewhere import loaded

ROOT = Path(__file__).parents[2]
published = loaded(ROOT / "benchmarks" / "published_models.py")
#: These compute for less than a second; the others take turns.
QUICK = {"two_factor", "label_noise", "ellipse", "word2vec", "product_stability"}
TURNS = [pytest.mark.slow, pytest.mark.turns]


def table():
    with published.TABLE.open(newline="") as file:
        return {row["model"]: row for row in csv.DictReader(file)}


def numbers(text):
    return [float(part) for part in text.split(";")]


def rows():
    for row in published.PUBLISHED:
        name = row.model.partition(":")[0]
        yield pytest.param(row, id=name, marks=[] if name in QUICK else TURNS)


@pytest.mark.parametrize("row", [*rows()])
def test_a_model_reproduces_the_number_of_its_paper(row):
    ours = np.ravel(row.ours())
    np.testing.assert_allclose(ours, row.theirs, rtol=0, atol=row.tolerance)
    shown = table()[row.model.partition(":")[0]]
    np.testing.assert_allclose(numbers(shown["ours"]), ours, rtol=1e-6, atol=row.tolerance)


def test_the_table_holds_every_model_with_its_paper_and_its_number():
    shown, files = table(), {path.stem for path in (ROOT / "examples").glob("*.py")}
    assert set(shown) == files == {row.model.partition(":")[0] for row in published.PUBLISHED}
    for row in published.PUBLISHED:
        line = shown[row.model.partition(":")[0]]
        assert (line["paper"], line["number"]) == (row.paper, row.quantity)
        assert line["loss or field"] == row.formula
        np.testing.assert_allclose(numbers(line["theirs"]), row.theirs, rtol=1e-6)
        source = (ROOT / "examples" / f"{line['model']}.py").read_text()
        assert row.paper in source


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
