"""The pages of results: their tables are those of the numbers beside the figures."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import results_page
import torch

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "results"


def pages():
    return {path: path.read_text() for path in sorted(FOLDER.glob("*.md"))}


def test_the_tables_are_those_of_the_numbers():
    for path, text in results_page.pages_with_tables(pages()).items():
        assert path.read_text() == text, path.name


def test_a_changed_number_changes_its_page(tmp_path, monkeypatch):
    shutil.copytree(ROOT / "figures", tmp_path / "figures")
    monkeypatch.setattr(results_page, "FIGURES", tmp_path / "figures")
    path = tmp_path / "figures" / "reduce_networks.json"
    path.write_text(path.read_text().replace('"coordinates": 32', '"coordinates": 1'))
    before, page = pages(), FOLDER / "reduced.md"
    after = results_page.pages_with_tables(before)
    assert {path for path in after if path.read_text() != after[path]} == {page}
    changed = set(after[page].splitlines()) - set(before[page].splitlines())
    assert [line.split("|")[3].strip() for line in changed] == ["1"]
    path.unlink()
    after = results_page.pages_with_tables(before)
    assert "Not measured yet: `make reduce_networks`" in after[page]


def test_every_picture_is_shown_on_a_page():
    texts = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), ROOT / "docs/gallery.py"]
    shown = "".join(path.read_text() for path in texts)
    pictures = [path.name for path in (ROOT / "figures").glob("*.png")]
    assert pictures and [name for name in pictures if f"figures/{name})" not in shown] == []


def test_every_table_has_one_place():
    without = {path: text.replace("<!-- starts -->", "") for path, text in pages().items()}
    with pytest.raises(ValueError, match="0 places for 'starts'"):
        results_page.pages_with_tables(without)
    twice = {path: text * 2 for path, text in pages().items()}
    twice[FOLDER / "index.md"] += "<!-- square -->\n<!-- end of square -->"
    with pytest.raises(ValueError, match="2 places for 'square'"):
        results_page.pages_with_tables(twice)


@pytest.mark.slow
def test_what_descent_leaves_open_is_followed_by_flow(tmp_path, monkeypatch):
    """A steep valley, in which descent does not arrive within its steps."""
    agreement = __import__("agreement")
    points = torch.tensor([[1.75, 1.75], [0.5, -1.4]], dtype=torch.float64)
    monkeypatch.setattr(agreement, "DESCENT", 1000)
    monkeypatch.setattr(agreement, "grid_points", lambda *_, **__: points)
    case = agreement.Case(0.5, 0.8, 2, 3, 0.0, "all", 2)
    record = agreement.run(case, tmp_path)
    line = agreement.summarize_case(case, record)
    assert record["by_flow"].values.tolist() == [1, 0] and line["unresolved"] == 0
    assert record["outcome"].values.tolist() == record["predicted"].values.tolist() == [2, 1]


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_make_reproduce_runs_every_script():
    done = subprocess.run(
        ["make", "-n", "reproduce", "PYTHON=py"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    named = re.findall(r"py (?:experiments|docs/learn)/(\w+)\.py", done.stdout)
    files = (ROOT / "experiments").glob("*.py")
    marks = '\nif __name__ == "__main__":', "\nmain = experiment("
    scripts = {path.stem for path in files if any(mark in path.read_text() for mark in marks)}
    scripts.remove("cuda")  # needs a GPU: `make cuda` runs it
    assert sorted(named) == sorted(scripts | {"execute"})
    assert named[-2:] == ["execute", "results_page"]


@pytest.mark.slow
def test_the_whole_agreement_is_joined_counted_and_drawn_with_intervals_of_what_was_drawn(
    tmp_path, monkeypatch
):
    agreement, papers = __import__("agreement"), __import__("papers")
    chain = agreement.CHAINS[0]
    few = [agreement.Case(*chain, 8, 8, 0.0, "all", 4),
           agreement.Case(*chain, 2, 3, 0.02, "attention", 2)]  # fmt: skip
    monkeypatch.setattr(agreement, "all_cases", lambda grid: few)
    assert agreement.main(["--out", str(tmp_path), "--grid", "3"]) == 2
    assert agreement.main(["--out", str(tmp_path), "--grid", "2", "--jobs", "1"]) == 0
    exact, drawn = json.loads((tmp_path / "agreement.json").read_text())["lines"]
    assert exact["case"] == "p=0.5 q=0.8 d=8 N=8" and exact["points"] == 8
    assert exact["unresolved"] == 0 and not exact["rank_one_misses"]
    assert exact["rank-one"] | {"agree": 8, "decided": 8} == exact["rank-one"]
    assert "interval" not in exact["rank-one"]
    assert [*exact["variants"]] == [*agreement.VARIANTS]
    assert drawn["rank-one"]["agree"] == 2 and "interval" in drawn["rank-one"]
    monkeypatch.setattr(papers, "FIGURES", tmp_path)
    figure = (tmp_path / "agreement_reasons.png").read_bytes()
    assert agreement.main(["--out", str(tmp_path), "--redraw"]) == 0
    assert (tmp_path / "agreement_reasons.png").read_bytes() == figure
