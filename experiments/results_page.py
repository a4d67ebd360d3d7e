"""Write the tables of docs/results/ from the numbers beside the figures.

    python experiments/results_page.py

Each stands on one page between two comments, <!-- NAME --> and <!-- end of NAME -->, and is made
from figures/*.json. The text around the tables is written by hand and quotes some of the same
numbers: read it again when a table changes.
"""

import ast
import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

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

Line = dict[str, Any]
#: Head and rows.
Rows = tuple[list[str], list[list[Any]]]
#: A table from a study's numbers.
Make = Callable[[Any], Rows]
#: Text of a cell for a line: its entries in a format, or a function of it.
Cell = str | Callable[[Line], Any]


def cases(found: Line) -> list[Line]:
    """The entries of a record of numbers without how it was made, and from what sizes."""
    return named(found, lambda case: case not in ("made", "sizes"))


def named(found: Line, chosen: Callable[[str], bool] = bool) -> list[Line]:
    """Some of the entries, each with its own name as ``case``."""
    return [{"case": case, **line} for case, line in found.items() if chosen(case)]


def table(columns: dict[str, Cell], lines: Callable[[Any], Iterable[Line]] = cases) -> Make:
    """A table with these cells, by the words of its head, and a row for each of the lines.

    Under "…" stand several cells, by the words of theirs.
    """

    def make(found: Any) -> Rows:
        rows = []
        for line in lines(found):
            row: Line = {}
            for word, cell in columns.items():
                own: Any = cell.format(**line) if isinstance(cell, str) else cell(line)
                row |= own if word == "…" else {word: own}
            rows.append(row)
        head = list(dict.fromkeys(word for row in rows for word in row))
        return head, [[row.get(word, "") for word in head] for row in rows]

    return make


TRAINERS = {"gd": "gradient descent", "adamw": "AdamW", "sgd": "SGD, momentum 0.9"}


def summary(found: Line) -> Rows:
    """Right predictions of both models, by noise and by the side of p + q = 1."""
    groups: dict[str, dict[str, list[Line]]] = {}
    for line in found["lines"]:
        p, q, *_ = (float(part.partition("=")[2]) for part in line["case"].split()[:2])
        noise = line["case"].partition(" noise ")[2] or "none"
        groups.setdefault(noise, {}).setdefault("><"[p + q < 1], []).append(line)
    columns = [(model, side) for model in ("rank-one", "canonical") for side in "><"]
    rows = []
    for noise, sides in groups.items():
        sums = [[sum(line[model][k] for line in sides[side]) for k in ("agree", "decided")]
                for model, side in columns]  # fmt: skip
        rows.append([noise, *(f"{right} of {of}" for right, of in sums)])
    return ["noise", *(f"{model} right, p + q {side} 1" for model, side in columns)], rows


#: Order of the first look with λ_min(S) < 0 and the look at which a run has escaped.
SEEN = {"before": "S seen negative at an earlier look", "at": "at the same look",
        "after": "later"}  # fmt: skip


def orders(found: Line) -> Rows:
    """Counts for each trainer's runs: escapes, and their order with the sign of S."""
    rows = []
    for trainer, name in TRAINERS.items():
        own = [cell for cell in found["cells"] if cell["trainer"] == trainer]
        seen = [sum(cell["crossing_seen"][order] for cell in own) for order in SEEN]
        other = [sum(cell[word] for cell in own) for word in ("open", "trapped", "diverged")]
        rows.append([name, sum(cell["runs"] for cell in own),
                     sum(cell["escaped"] for cell in own), *seen, *other])  # fmt: skip
    return ["trainer", "runs", "escape", *SEEN.values(), "S negative, no escape",
            "neither", "diverged"], rows  # fmt: skip


def starts(found: Line) -> Rows:
    """Number of runs from each start at the bigram, by trainer and side of p + q = 1."""
    counts: dict[tuple[str, str], dict[str, list[int]]] = {}
    for line in cases(found):
        trainer, start, _ = line["case"].split("; ")
        word = trainer.removeprefix("population ").partition(", N")[0]
        for side in "><":
            own = counts.setdefault((word, side), {}).setdefault(start, [0, 0])
            if (line["p"] + line["q"] > 1) == (side == ">"):
                own[0] += line["bigram"]
                own[1] += line["models"]
    first, *_ = counts.values()
    return ["start", *(f"{word}, p + q {side} 1" for word, side in counts)], [
        [start, *("{} of {}".format(*own[start]) for own in counts.values())] for start in first
    ]


def threshold(found: Line) -> Rows:
    """Number of runs trapped and learned on either side of p = (S − 1)/S, all S together."""
    groups: dict[tuple[str, str], list[Line]] = {}
    for line in cases(found):
        for own in line["lines"]:
            side = "above" if own["lambda"] < 0 else "below"
            groups.setdefault((line["case"].split(", ", 1)[1], side), []).append(own)
    names = ("runs", "trapped", "learned", "between")
    return ["weights and trainer", "side of the threshold", *names], [
        [*key, *(sum(own[word] for own in lines) for word in names)]
        for key, lines in groups.items()
    ]


def _grown(line: Line) -> str:
    """By how much, and in which weights it lies then; nothing where every displacement decays."""
    if line.get("growth", 1.0) <= 1.0:
        return "none" if "growth" in line else ""
    most = max(line["grown in"], key=line["grown in"].get).split(".")[-1]
    return f"{line['growth']:.2g} at {line['at time']:.3g}, most in {most}"


#: Table, the study whose json it is made from, and how.
TABLES: dict[str, tuple[str, Make]] = {
    "summary": ("agreement", summary),
    "square": ("am_fig4_square", table({
        "case": lambda x: x["name"].replace("GD", "gradient descent"), "side": "{case}",
        "pairs": "{pairs}", "at the bigram": "{bigram}", "at the unigram": "{unigram}",
        "between": "{between}",
    }, lambda found: [{"name": name, **x} for name, sides in found.items()
                      if name not in ("made", "sizes") for x in named(sides) if "bigram" in x])),
    "starts": ("balanced_start", starts),
    "escape_order": ("adamw_escape", orders),
    "width": ("width_of_truth", table({
        "model": "{case}", "…": lambda line: {
            f"{word}: at the bigram, at the unigram": "{bigram}, {unigram}".format(**x)
            for word, x in line.items() if word != "case"},
    })),
    "threshold": ("states_threshold", threshold),
    "reduced": ("reduce_networks", table({
        "network and start": "{case}", "weights": "{weights}",
        "coordinates": lambda x: x.get("coordinates", "refused"),
        "equal steps differ": lambda x: format(x["equal steps differ"], ".0e")
            if "equal steps differ" in x else "",
        "growth off it": _grown,
    })),
}  # fmt: skip


def pages_with_tables(pages: dict[Path, str]) -> dict[Path, str]:
    """All pages with every table made anew.

    Raises:
        ValueError: a table has not one place on the pages.
    """
    found = dict(pages)
    for name in [*TABLES, "figures"]:
        start, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        places = [path for path, page in pages.items() if start in page and end in page]
        if len(places) != 1:
            raise ValueError(f"the pages have {len(places)} places for {name!r}, not 1")
        before, _, rest = found[places[0]].partition(start)
        text = figures() if name == "figures" else on_page(name)
        found[places[0]] = before + start + text + end + rest.partition(end)[2]
    return found


def on_page(table: str) -> str:
    """The table as text, or that its study has not run."""
    study, make = TABLES[table]
    path = FIGURES / f"{study}.json"
    if not path.exists():
        return f"*Not measured yet: `make {study}`, then `make results`.*\n"
    head, rows = make(json.loads(path.read_text()))
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)


def figures() -> str:
    """The papers' figures, each with the first line of its script."""
    parts = []
    for name, title in PAPERS.items():
        script = (ROOT / "experiments" / f"{name}.py").read_text()
        said = (ast.get_docstring(ast.parse(script)) or "").partition("\n")[0]
        said += f" `experiments/{name}.py`"
        parts.append(f"## {title}\n\n![](../../figures/{name}.png)\n\n{said}\n")
    return "\n".join(parts)


def main() -> int:
    pages = {path: path.read_text() for path in sorted(PAGES.glob("*.md"))}
    for path, text in pages_with_tables(pages).items():
        if path.read_text() != text:
            path.write_text(text)
            print(f"{path.relative_to(PAGES)}: written anew")
    return 0


if __name__ == "__main__":
    sys.exit(main())
