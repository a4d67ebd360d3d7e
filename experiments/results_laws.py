"""Tables of docs/results.md about plateaus and escapes: head and rows from a study's json."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from results_cases import Rows, cases


def ladder(found: dict[str, Any]) -> Rows:
    """Orbits and full flows beside the closed forms; distances in percent of the gap."""
    head = ["case", "orbits", "keep their k", "off the plateau", "off the end at 10⁷",
            "full flows that keep k", "full flow off the orbit at t = 100"]  # fmt: skip
    rows = [
        [case, line["orbits"], line["keep_k"], _between(line["plateau_off"]),
         _between(line["end_off"]), line["full_keep_k"], f"{line['full_off']:.2%}"]
        for case, line in found["cases"].items()
    ]  # fmt: skip
    return head, rows


def ladder_freed(found: dict[str, Any]) -> Rows:
    """Does attention free dead positions."""
    rank = found["attention on the manifold"]
    head = ["runs with attention", "followed to t =", "runs", "freed", "loss above L∞(k)"]
    rows = [["rank-one, small o and v", "10⁷", rank["orbits"], rank["freed"],
             _between(rank["end_off"])]]  # fmt: skip
    for case, line in found.items():
        if case.startswith("whole transformer"):
            off = [a - b for a, b in zip(line["share"], line["limit"], strict=True)]
            rows.append([case, f"{line['time']:.0f}", line["runs"], line["freed"],
                         _between([min(off), max(off)])])  # fmt: skip
    return head, rows


def rungs(found: dict[str, Any]) -> Rows:
    """How many runs end with k open positions, beside the law."""
    lines = found["rungs"]
    head = ["first bias", "deviation of first weights", "runs",
            *[f"k = {k}" for k in range(len(lines[0]["count"]))]]  # fmt: skip
    rows = []
    for line in lines:
        rows.append([line["bias"], line["spread"], line["runs"], *line["count"]])
        if line["bias"] != "0":
            expected = [f"{line['runs'] * share:.1f}" for share in line["law"]]
            rows.append(["the law for it", line["spread"], "", *expected])
    return head, rows


def balanced(found: dict[str, Any]) -> Rows:
    """Where the runs from four starts end."""
    head = ["trainer", "start", "(p, q)", "runs", "at the bigram", "at the unigram", "between"]
    rows = []
    for case, line in cases(found).items():
        trainer, start, _ = case.split("; ")
        low, high = line["bigram_share_interval"]
        rows.append([trainer, start, f"({line['p']}, {line['q']})", line["models"],
                     f"{line['bigram']} [{low:.0%}, {high:.0%}]", line["unigram"],
                     line["between"]])  # fmt: skip
    return head, rows


def escapes(found: dict[str, Any]) -> Rows:
    """Every setting: how many runs escape, are trapped or open, and when."""
    head = ["trainer", "d", "r", "N", "rate", "ε", "β₂", "batch", "runs", "escape", "trapped",
            "crossed alone", "crossing step (median)", "escape step (median)",
            "overlap with the eigenvector"]  # fmt: skip
    rows = []
    for line in found["cells"]:
        low, high = line["interval"]
        adam = line["trainer"] == "adamw"
        trainer = {"adamw": "AdamW", "gd": "gradient descent", "sgd": "SGD, momentum 0.9"}
        overlap = line["overlap_median"]
        rows.append([
            trainer[line["trainer"]], line["d"], line["r"], line["length"], f"{line['rate']:g}",
            f"{line['epsilon']:g}" if adam else "", line["beta2"] if adam else "",
            line["batch"] or "exact", line["runs"],
            f"{line['escaped']} [{low:.0%}, {high:.0%}]", line["trapped"], line["open"],
            _step(line["crossing_median"]), _step(line["escape_median"]),
            "" if overlap is None else f"{overlap:.2f}",
        ])  # fmt: skip
    return head, rows


def escape_law(found: dict[str, Any]) -> Rows:
    """The fitted exponents of the growth rate κ."""
    names = {"r d": "r d", "rate": "η", "batch N": "batch·N", "1/(1 - beta2)": "1/(1 − β₂)"}
    head = ["κ grows as a power of", *names.values()]
    return head, [["exponent", *[f"{found['exponents'][name]:.2f}" for name in names]]]


def escape_scores(found: dict[str, Any]) -> Rows:
    """How often the predictions of "crosses within the run" are right, and their times."""
    head = ["runs of", "number", "cross", "from the settings", "time foretold/found",
            "from the first tenth", "time foretold/found", "majority"]  # fmt: skip
    rows = []
    for part, line in found["score"].items():
        row = [part, line["runs"], line["cross"]]
        for name in ("settings", "first tenth", "majority"):
            low, high = line[name]["interval"]
            row.append(f"{line[name]['right'] / line['runs']:.0%} [{low:.0%}, {high:.0%}]")
            if name != "majority":
                ratio = line[name]["time_ratio"]
                row.append("" if ratio is None else f"{ratio[1]:.2f} ({ratio[0]:.2f} to "
                           f"{ratio[2]:.2f})")  # fmt: skip
        rows.append(row)
    return head, rows


def escape_chains(found: dict[str, Any]) -> Rows:
    """The same runs by chain."""
    head = ["chain", "runs", "cross", "escape", "κ beside the law"]
    rows = []
    for chain, line in found["chains"].items():
        low, middle, high = line["growth_against_law"]
        rows.append([chain, line["runs"], line["cross"], line["escaped"],
                     f"{middle:.2f} ({low:.2f} to {high:.2f})"])  # fmt: skip
    return head, rows


def width(found: dict[str, Any]) -> Rows:
    """One change at a time: ends at the bigram and at the unigram."""
    variants = cases(found)
    studies = list(next(iter(variants.values())))
    head = ["model", *[f"{study}: at the bigram, at the unigram, of" for study in studies]]
    rows = [
        [name, *[f"{line[s]['bigram']}, {line[s]['unigram']}, {line[s]['runs']}" for s in studies]]
        for name, line in variants.items()
    ]
    return head, rows


def _step(value: float | None) -> str:
    return "none" if value is None else f"{value:.0f}"


def _between(pair: list[float]) -> str:
    return f"{pair[0]:.2%} to {pair[1]:.2%}"


#: Table, the study whose json it is made from, and whether the study's figure stands below it.
TABLES: dict[str, tuple[str, Callable[[dict[str, Any]], Rows], bool]] = {
    "ladder": ("ladder", ladder, True),
    "ladder_freed": ("ladder", ladder_freed, False),
    "rungs": ("ladder", rungs, False),
    "balanced": ("balanced_start", balanced, True),
    "escapes": ("adamw_escape", escapes, True),
    "escape_law": ("adamw_escape", escape_law, False),
    "escape_chains": ("adamw_escape", escape_chains, False),
    "escape_scores": ("adamw_escape", escape_scores, False),
    "width": ("width_of_truth", width, True),
}
