"""The site is read in an afternoon: its pages beside the reference are short enough."""

import re
from pathlib import Path

import nbformat

DOCS = Path(__file__).parents[2] / "docs"
MOST = 30_000


def words(text):
    """Words and numbers, those of tables and formulas too; not the code."""
    text = re.sub(r"```(?!math).*?```", "", text, flags=re.DOTALL)
    return sum(bool(re.search(r"\w", word)) for word in text.split())


def prose(notebook):
    """What is written between the code of a notebook."""
    cells = nbformat.read(notebook, as_version=4).cells
    return "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")


def test_pages_and_notebooks_have_few_words():
    pages = [page for page in DOCS.rglob("*.md") if not {"_build", "reference"} & {*page.parts}]
    texts = [*(page.read_text() for page in pages), *map(prose, DOCS.glob("learn/*.ipynb"))]
    assert sum(map(words, texts)) <= MOST


def test_a_word_counts_and_code_and_strokes_do_not():
    assert words("| one | 2 |\n|---|---|\n```python\nimport x\n```\n```math\na = b\n```\n") == 5
