"""Write the tables of docs/results.md from the numbers beside the figures.

    python experiments/results_page.py

Every table of the page stands between two comments, <!-- NAME --> and <!-- end of NAME -->, and is
made here from figures/*.json. The prose around the tables is written by hand and quotes some of the
same numbers: read it again when a table changes. A study whose json is not there is said to be
missing.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from results_cases import cases
from results_in_context import TABLES as IN_CONTEXT
from results_laws import TABLES as LAWS
from results_optimizers import TABLES as OPTIMIZERS
from results_states import TABLES as STATES

ROOT = Path(__file__).parents[1]
FIGURES, PAGE = ROOT / "figures", ROOT / "docs" / "results.md"
#: Tables made from a study's json by files of their own.
TABLES = {**LAWS, **OPTIMIZERS, **IN_CONTEXT, **STATES}
TRAINERS = {"gd": "gradient descent", "adamw": "AdamW"}


def agreement() -> str:
    """What each model predicts right of full training, case by case."""
    lines = _load("agreement")
    if lines is None:
        return _missing("agreement")
    rows = [
        [
            line["case"], line["points"], line["followed_by_flow"], line["unresolved"],
            _share(line["rank-one"]), _misses(line), _share(line["canonical"]),
            line["canonical_global_found_local"], line["canonical_local_found_global"],
        ]
        for line in lines
    ]  # fmt: skip
    head = ["full models", "starts", "followed by flow", "unresolved", "rank-one model right",
            "wrong at (e, w)", "canonical model right", "canonical: global predicted, local found",
            "local predicted, global found"]  # fmt: skip
    return _table(head, rows) + _images("agreement")


def _misses(line: dict[str, Any]) -> str:
    """Where the rank-one model is wrong."""
    at = [f"({miss['e']:g}, {miss['w']:g})" for miss in line["rank_one_misses"]]
    return ", ".join(at) or "nowhere"


def reasons() -> str:
    """The share of outcomes explained with one difference switched on at a time."""
    lines = [line for line in _load("agreement") or [] if "variants" in line]
    if not lines:
        return _missing("agreement")
    names = list(lines[0]["variants"])
    rows = [[line["case"], *[_percent(line["variants"][n]) for n in names]] for line in lines]
    return _table(["case", *names], rows) + _images("agreement_reasons")


def adamw() -> str:
    """AdamW against its own reduced map, from the same starts on the same batches."""
    found = _load("agreement_adamw")
    if found is None:
        return _missing("agreement_adamw")
    rows = [
        [
            case, line["steps"], line["runs"], line["learned"],
            _share(line["map"] if line["noise"] else _without_interval(line["map"])),
            line["map_learned_found_not"], line["map_not_found_learned"],
            *[f"{part['learned']} of {part['runs']}" for part in
              (line["flow_global"], line["flow_trapped"])],
            _number(line["escape_step_median"]), _number(line["escape_step_max"]),
        ]
        for case, line in cases(found).items()
    ]  # fmt: skip
    head = ["AdamW", "steps", "runs", "learned", "its reduced map right", "map: learned, found not",
            "map: not, found learned", "learned where the flow says global",
            "learned where the flow says trapped", "escape step (median)",
            "(largest)"]  # fmt: skip
    return _table(head, rows) + _images("agreement_adamw")


def gains() -> str:
    """How far small steps off the rank-one manifold grow, at the misses and elsewhere."""
    found = _load("noisy_misses")
    if found is None:
        return _missing("noisy_misses")
    rows = []
    for case, line in found.items():
        if not case.startswith("p="):
            continue
        starts = ", ".join(
            f"(±{e:g}, {w:g})" for e, w in line["starts missed (up to the sign of e)"]
        )
        own = ", ".join(f"{gain:.1f}" for gain in line["their gains"])
        others = f"{line['largest gain of the others']:.1f}"
        freed = line["misses among them"]
        attention = ", ".join(
            f"({x['e']:g}, {x['w']:g}) {x['of attention']:.1f}"
            for x in line["largest gains"] if x["of attention"] is not None
        )  # fmt: skip
        rows.append([case, line["starts called trapped"], "not run" if freed is None else freed,
                     starts or ("" if freed is None else "none"), own, others,
                     attention or "not computed"])  # fmt: skip
    head = ["case", "starts called trapped", "of them freed by noise 0.02", "at (e, w)",
            "gain there", "largest gain elsewhere",
            "gain of W_V and W_O where the other is largest"]  # fmt: skip
    return _table(head, rows) + _images("noisy_misses")


def trials() -> str:
    """Which noise frees runs from the trap, and from where."""
    found = _load("noisy_misses")
    if found is None:
        return _missing("noisy_misses")
    parts = {"all": "all of it", "across": "orthogonal to α", "along": "along α"}
    weights = {"others": "all but attention's", "attention": "attention's"}
    rows = [
        [f"({line['start'][0]:g}, {line['start'][1]:g})", f"{line['noise']:g}",
         weights[line["noise on"]], parts[line["part"]], line["runs"], line["global_minimum"],
         line["local_minimum"], line["unresolved"], f"{line['decided by time']:.0f}"]
        for line in found["trials at p=0.5 q=0.8 N=8"]
    ]  # fmt: skip
    head = ["start (e, w)", "noise", "on weights", "part of the noise", "runs",
            "reach the global minimum", "stay trapped", "left open", "last decided by"]  # fmt: skip
    return _table(head, rows)


def trap_map() -> str:
    """At which random weights S is positive definite, over scale and d."""
    found = _load("trap_map")
    if found is None:
        return _missing("trap_map")
    layouts = {"equal": "equal", "own": "one by one", "attention": "one by one, attention"}
    rows, head = [], []
    for case, lines in found.items():
        chain, _, layout = case.partition("; ")
        if layout not in layouts:
            continue
        pair = "(" + ", ".join(part.split()[-1] for part in chain.split(", ")) + ")"
        for d in ("d = 1", "d = 2", "d = 4", "d = 8"):
            cells = [
                f"{c['share']:.1%} [{c['interval'][0]:.1%}, {c['interval'][1]:.1%}]"
                for c in lines[d]
            ]
            rows.append([pair, layouts[layout], d.removeprefix("d = "), *cells])
            head = [f"trapped at s = {c['scale']:.2g}" for c in lines[d]]
    return _table(["(p, q)", "positions", "d", *head], rows) + _images("trap_map")


def trap_descents() -> str:
    """What descent from a small embedding does, beside the sign of S."""
    found = _load("trap_map")
    if found is None:
        return _missing("trap_map")
    rows = []
    for case, line in found.items():
        chain, _, kind = case.partition("; descent where S says ")
        if kind:
            pair = "(" + ", ".join(part.split()[-1] for part in chain.split(", ")) + ")"
            rows.append([pair, kind, *(line[k] for k in ("runs", "stay", "leave", "open"))])
    return _table(["(p, q)", "S says", "runs", "stay", "leave", "open"], rows)


def headline() -> str:
    """Where the headline's runs end."""
    found = _load("headline")
    if found is None:
        return _missing("headline")
    rows = [
        [
            TRAINERS[line["trainer"]], line["model"], f"({line['p']}, {line['q']})", line["seeds"],
            f"{line['final_loss_median']:.4f}", line["left_the_unigram"],
            _number(line["escape_step_median"]),
        ]
        for line in found["results"]
    ]  # fmt: skip
    head = ["trainer", "weights", "(p, q)", "runs", "median final loss (nats)",
            "left the unigram", "at step (median)"]  # fmt: skip
    return _table(head, rows)


def ends() -> str:
    """Where the runs of the papers' figures end."""
    rows = []
    for name in ("am_fig1_depth", "am_fig3_tying", "lg_rank_one_energy", "lg_initialization"):
        for case, line in cases(_load(name) or {}).items():
            counts = [line["models"], line["bigram"], line["unigram"], line["between"]]
            loss = line["final_loss"]
            losses = f"{loss['min']:.4f} to {loss['max']:.4f}"
            chain = f"({line['p']}, {line['q']})"
            kind = "; ".join(part for part in case.split("; ") if not part.startswith("p ="))
            rows.append([f"`{name}`", kind, chain, *counts, losses])
    head = ["script", "case", "(p, q)", "runs", "at the bigram", "at the unigram", "between",
            "final loss (nats)"]  # fmt: skip
    return _table(head, rows) if rows else _missing("am_fig1_depth")


def square() -> str:
    """The pairs of the (p, q) square, by side of its diagonal."""
    found = _load("am_fig4_square")
    if found is None:
        return _missing("am_fig4_square")
    rows = []
    for case, sides in cases(found).items():
        for side, line in sides.items():
            if "bigram" in line:
                counts = [line[k] for k in ("pairs", "bigram", "unigram", "between")]
                rows.append([case.replace("GD", "gradient descent"), side, *counts])
    head = ["case", "side", "pairs", "at the bigram", "at the unigram", "between"]
    return _table(head, rows)


BLOCKS = {
    "agreement": agreement,
    "reasons": reasons,
    "adamw": adamw,
    "gains": gains,
    "trials": trials,
    "trap_map": trap_map,
    "trap_descents": trap_descents,
    "headline": headline,
    "ends": ends,
    "square": square,
}


def _of_law(name: str) -> str:
    study, make, drawn = TABLES[name]
    found = _load(study)
    if found is None:
        return _missing(study)
    return _table(*make(found)) + (_images(study) if drawn else "")


def filled(page: str) -> str:
    """The page with every table made anew.

    Raises:
        ValueError: a table has no place on the page, or more than one.
    """
    for name in [*BLOCKS, *TABLES]:
        pattern = rf"(<!-- {name} -->\n).*?(<!-- end of {name} -->)"
        text = (BLOCKS[name]() if name in BLOCKS else _of_law(name)).rstrip("\n") + "\n"
        page, count = re.subn(
            pattern, lambda m, text=text: m[1] + text + m[2], page, flags=re.DOTALL
        )
        if count != 1:
            raise ValueError(f"the page has {count} places for the table {name!r}, not 1")
    return page


def _load(name: str) -> Any:
    path = FIGURES / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def _missing(name: str) -> str:
    return f"*Not measured yet: `make {name}` and then `make results` put the table here.*\n"


def _images(name: str) -> str:
    path = FIGURES / f"{name}.png"
    return f"\n![{name}](../figures/{name}.png)\n" if path.exists() else ""


def _share(part: dict[str, Any]) -> str:
    """Counts, share and interval in one cell."""
    if part["agreement"] is None:
        return "none decided"
    counts = f"{part['agree']} of {part['decided']}, {part['agreement']:.1%}"
    if "interval" not in part:  # nothing was drawn at random
        return counts
    low, high = part["interval"]
    return f"{counts} [{low:.1%}, {high:.1%}]"


def _without_interval(part: dict[str, Any]) -> dict[str, Any]:
    """Of runs that theory says are the map: a check, no estimate."""
    return {name: value for name, value in part.items() if name != "interval"}


def _percent(part: dict[str, Any]) -> str:
    return "" if part["agreement"] is None else f"{part['agreement']:.1%}"


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.0f}"


def _table(head: list[str], rows: Iterable[list[Any]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)


def main() -> int:
    page = PAGE.read_text()
    new = filled(page)
    PAGE.write_text(new)
    print(f"{PAGE.name}: {'as it was' if new == page else 'written anew'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
