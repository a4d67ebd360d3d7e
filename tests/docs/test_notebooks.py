"""The notebooks: each runs top to bottom, agrees with its .py file, and asserts what it says."""

import ast
import re
import sys
from itertools import pairwise
from pathlib import Path

import jupytext
import matplotlib.pyplot as plt
import nbformat
import pytest
import torch
from elsewhere import loaded
from jupytext.compare import compare_notebooks

FOLDER = Path(__file__).parents[2] / "docs" / "learn"
sys.path.append(str(FOLDER))
import execute  # noqa: E402


def pair(name):
    """The notebook of the .py file, and the one with outputs beside it."""
    path = FOLDER / f"{name}.ipynb"
    assert path.stat().st_size < 300_000
    return jupytext.read(FOLDER / f"{name}.py"), nbformat.read(path, as_version=4)


def test_every_notebook_is_listed():
    assert {path.stem for path in FOLDER.glob("*.ipynb")} == set(execute.NAMES)


@pytest.mark.parametrize("name", execute.NAMES)
def test_notebook_is_that_of_its_file_and_has_run(name):
    written, stored = pair(name)
    nbformat.validate(stored)
    compare_notebooks(stored, written, fmt="py:percent")
    assert stored.metadata["jupytext"]["formats"] == "ipynb,py:percent"
    code = [cell for cell in stored.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell.outputs]
    assert {output.output_type for output in outputs} <= {"stream", "display_data"}
    assert all(output.get("name") != "stderr" for output in outputs)
    assert any("image/png" in output.get("data", {}) for output in outputs)


@pytest.mark.parametrize("name", execute.NAMES)
def test_every_section_asserts_what_it_says(name):
    """Below every piece of text but the first there is code, and it asserts."""
    cells = pair(name)[0].cells
    assert cells[0].cell_type == "markdown" and "flowsim-lab" in cells[1].source
    texts = [i for i, cell in enumerate(cells) if cell.cell_type == "markdown"]
    for first, end in pairwise([*texts[1:], len(cells)]):
        code = "\n".join(cell.source for cell in cells[first + 1 : end])
        found = [node for node in ast.walk(ast.parse(code)) if type(node) is ast.Assert]
        assert len(found) >= 2, cells[first].source


@pytest.mark.slow
@pytest.mark.turns
@pytest.mark.parametrize("name", execute.NAMES)
def test_notebook_runs_top_to_bottom(name, monkeypatch, capsys):
    """Its assertions hold, and what it prints is what the stored one printed, but for rounding."""
    shown, space = [], {"__name__": name}
    monkeypatch.setattr("matplotlib.pyplot.show", lambda: shown.append(plt.close("all")))
    monkeypatch.setattr("IPython.display.display", shown.append)
    usual = torch.get_default_dtype()
    try:
        for cell in pair(name)[1].cells:
            if cell.cell_type == "code":
                exec(compile(cell.source, name, "exec"), space)
                printed = [o.text for o in cell.outputs if o.output_type == "stream"]
                assert words(capsys.readouterr().out) == words("".join(printed))
                assert len(shown) == sum(o.output_type == "display_data" for o in cell.outputs)
                shown.clear()
    finally:
        torch.set_default_dtype(usual)


def test_pages_link_to_colab_once_there_is_a_repository():
    conf = loaded(FOLDER.parent / "conf.py")
    pages = {name: {"body": name} for name in ("learn/edges", "learn/index", "theory")}
    for repository, linked in (("", []), ("https://github.com/who/what", ["learn/edges"])):
        conf.REPOSITORY = repository
        for name, context in pages.items():
            conf.open_in_colab(None, name, "page.html", context, None)
        assert [name for name, context in pages.items() if context["body"] != name] == linked
    assert "/github/who/what/blob/main/docs/learn/edges.ipynb" in pages["learn/edges"]["body"]


def words(printed):
    """What was printed, without its numbers."""
    return re.sub(r"[-+.\d]+(e[-+]?\d+)?|\s+", " ", printed).split()


def test_a_false_claim_stops_a_notebook(tmp_path):
    """The first failed assertion ends the run; nothing is swallowed."""
    from nbclient.exceptions import CellExecutionError

    header = (FOLDER / "reduced_flow.py").read_text().split("# %%")[0]
    (tmp_path / "wrong.py").write_text(f"{header}# %%\nprint('on')\nassert 1 + 1 == 3\n")
    with pytest.raises(CellExecutionError, match="AssertionError"):
        execute.executed(tmp_path / "wrong.py")


def test_an_unknown_notebook_is_refused(capsys):
    assert execute.main(["nonsense"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
