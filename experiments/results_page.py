"""Write the tables of docs/results/ from the numbers beside the figures.

    python experiments/results_page.py

Every table stands between two comments, <!-- NAME --> and <!-- end of NAME -->, on one of the
pages, and is made here from figures/*.json. A table of more than twelve rows becomes a CSV file in
docs/results/tables/, and the page links to it. The text around the tables is written by hand and
quotes some of the same numbers: read it again when a table changes.
"""

import ast
import csv
import io
import json
import re
import sys
from functools import partial
from pathlib import Path

from results_tables import TABLES

ROOT = Path(__file__).parents[1]
FIGURES, PAGES = ROOT / "figures", ROOT / "docs" / "results"
#: A longer table is a file of its own.
LONGEST = 12
#: The papers' figures, whose scripts say in their first lines what they show and find.
PAPERS = {
    "am_fig1_depth": "AM Fig. 1, depth",
    "am_fig3_tying": "AM Fig. 3, tying",
    "am_fig4_square": "AM Fig. 4, all p and q",
    "am_appendix_d": "AM App. D, the formula",
    "lg_fig1_basins": "LG Fig. 1, basins",
    "lg_fig2_attention": "LG Fig. 2, attention",
    "lg_losses": "LG, loss of both models",
    "lg_rank_one_energy": "LG, rank-one energy",
    "lg_initialization": "LG, initialization",
}


def filled(pages: dict[Path, str]) -> dict[Path, str]:
    """All pages with every table made anew, and the files of the long tables.

    Raises:
        ValueError: a table has no place on the pages, or more than one.
    """
    found = dict(pages)
    for name in [*TABLES, "figures"]:
        text, long = (figures(), "") if name == "figures" else table(name)
        if long:
            found[PAGES / "tables" / f"{name}.csv"] = long
        pattern = rf"(<!-- {name} -->\n).*?(<!-- end of {name} -->)"
        places = 0
        for path in pages:
            found[path], count = re.subn(
                pattern, partial(_between, text), found[path], flags=re.DOTALL
            )
            places += count
        if places != 1:
            raise ValueError(f"the pages have {places} places for the table {name!r}, not 1")
    return found


def _between(text: str, marks: re.Match[str]) -> str:
    return marks[1] + text + marks[2]


def table(name: str) -> tuple[str, str]:
    """What stands on the page, and the CSV file of a table that is long."""
    studies, make = TABLES[name]
    numbers = {}
    for study in studies.split():
        path = FIGURES / f"{study}.json"
        if not path.exists():
            return f"*Not measured yet: `make {study}` and then `make results` put it here.*\n", ""
        numbers[study] = json.loads(path.read_text())
    head, rows = make(numbers if len(numbers) > 1 else numbers[studies])
    if len(rows) <= LONGEST:
        lines = [head, ["---"] * len(head), *rows]
        return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines), ""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([head, *rows])
    link = f"[{name}](tables.md#{name.replace('_', '-')})"
    said = f"All {len(rows)} lines: {link}, as a file [here](tables/{name}.csv).\n"
    return said, text.getvalue()


def figures() -> str:
    """The papers' figures, each with the first lines of its script."""
    parts = []
    for name, title in PAPERS.items():
        script = (ROOT / "experiments" / f"{name}.py").read_text()
        said = ast.get_docstring(ast.parse(script)) or ""
        parts.append(f"## {title}\n\n![{title}](../../figures/{name}.png)\n\n{said}\n")
    return "\n".join(parts)


def main() -> int:
    pages = {path: path.read_text() for path in sorted(PAGES.glob("*.md"))}
    (PAGES / "tables").mkdir(exist_ok=True)
    for path, text in filled(pages).items():
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            print(f"{path.relative_to(PAGES)}: written anew")
    return 0


if __name__ == "__main__":
    sys.exit(main())
