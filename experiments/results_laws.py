"""Tables of docs/results.md about plateaus and escapes: head and rows from a study's json."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Rows = tuple[list[str], list[list[Any]]]


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
    for case, line in found.items():
        if case != "sizes":
            trainer, start, _ = case.split("; ")
            low, high = line["bigram_share_interval"]
            rows.append([trainer, start, f"({line['p']}, {line['q']})", line["models"],
                         f"{line['bigram']} [{low:.0%}, {high:.0%}]", line["unigram"],
                         line["between"]])  # fmt: skip
    return head, rows


def _between(pair: list[float]) -> str:
    return f"{pair[0]:.2%} to {pair[1]:.2%}"


#: Table, the study whose json it is made from, and whether the study's figure stands below it.
TABLES: dict[str, tuple[str, Callable[[dict[str, Any]], Rows], bool]] = {
    "ladder": ("ladder", ladder, True),
    "ladder_freed": ("ladder", ladder_freed, False),
    "rungs": ("ladder", rungs, False),
    "balanced": ("balanced_start", balanced, True),
}
