"""Write the tables of docs/results/ from the numbers beside the figures.

    python experiments/results_page.py

A table that has a place on one of the pages, two comments <!-- NAME --> and <!-- end of NAME -->,
stands there; every other one is a CSV file in docs/results/tables/. All are made here from
figures/*.json. The text around the tables is written by hand and quotes some of the same numbers:
read it again when a table changes.
"""

import ast
import csv
import io
import json
import re
import sys
from functools import partial
from pathlib import Path

from results_tables import TABLES, Rows

ROOT = Path(__file__).parents[1]
FIGURES, PAGES = ROOT / "figures", ROOT / "docs" / "results"
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


def pages_with_tables(pages: dict[Path, str]) -> dict[Path, str]:
    """All pages with every table made anew, and the files of the tables that are on none.

    Raises:
        ValueError: a table has more than one place on the pages, or the figures have none.
    """
    found = dict(pages)
    for name in [*TABLES, "figures"]:
        pattern = rf"(<!-- {name} -->\n).*?(<!-- end of {name} -->)"
        places = [path for path in pages if re.search(pattern, pages[path], re.DOTALL)]
        if len(places) > 1 or (name == "figures" and not places):
            raise ValueError(f"the pages have {len(places)} places for {name!r}, not 1")
        if not places:
            found[PAGES / "tables" / f"{name}.csv"] = as_csv(name)
            continue
        text = figures() if name == "figures" else on_page(name)
        found[places[0]] = re.sub(
            pattern, partial(_between, text), found[places[0]], flags=re.DOTALL
        )
    return found


def _between(text: str, marks: re.Match[str]) -> str:
    return marks[1] + text + marks[2]


def table(name: str) -> Rows | None:
    """Head and rows; None where the study has not run."""
    studies, make = TABLES[name]
    paths = {study: FIGURES / f"{study}.json" for study in studies.split()}
    if not all(path.exists() for path in paths.values()):
        return None
    numbers = {study: json.loads(path.read_text()) for study, path in paths.items()}
    return make(numbers if len(numbers) > 1 else numbers[studies])


def on_page(name: str) -> str:
    made = table(name)
    if made is None:
        return f"*Not measured yet: `make {TABLES[name][0]}`, then `make results`.*\n"
    head, rows = made
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)


def as_csv(name: str) -> str:
    made = table(name)
    if made is None:
        return "not measured yet\n"
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([made[0], *made[1]])
    return text.getvalue()


def figures() -> str:
    """The papers' figures, each with the first line of its script."""
    parts = []
    for name, title in PAPERS.items():
        script = (ROOT / "experiments" / f"{name}.py").read_text()
        said = (ast.get_docstring(ast.parse(script)) or "").partition("\n")[0]
        said += f" `experiments/{name}.py`"
        parts.append(f"## {title}\n\n![{title}](../../figures/{name}.png)\n\n{said}\n")
    return "\n".join(parts)


def main() -> int:
    pages = {path: path.read_text() for path in sorted(PAGES.glob("*.md"))}
    (PAGES / "tables").mkdir(exist_ok=True)
    for path, text in pages_with_tables(pages).items():
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            print(f"{path.relative_to(PAGES)}: written anew")
    return 0


if __name__ == "__main__":
    sys.exit(main())
