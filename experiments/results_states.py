"""Tables about more than two states: head and rows from a study's json."""

from __future__ import annotations

from collections import Counter
from typing import Any

from results_cases import Rows, cases

#: How tables call a label that was found.
FOUND = {
    "global_minimum": "learned",
    "local_minimum": "trapped",
    "saddle": "at the saddle",
    "unresolved": "open",
}


def agreement(found: dict[str, Any]) -> Rows:
    """Where transformers with S logits end, beside what the plane predicts."""
    head = ["S", "p", "noise", "N", "starts", "decided", "as predicted", "predicted to learn",
            "predicted to be trapped", "left open"]  # fmt: skip
    rows = []
    for line in cases(found).values():
        right = f"{line['agree']} of {line['decided']}"
        if "interval" in line:
            low, high = line["interval"]
            right += f" [{low:.1%}, {high:.1%}]"
        ends = [_ends(line["found"].get(name, {})) for name in ("global_minimum", "local_minimum")]
        sign = ">" if line["p"] > (line["states"] - 1) / line["states"] else "<"
        side = f"{line['p']:g} {sign} {line['states'] - 1}/{line['states']}"
        rows.append([line["states"], side, f"{line['noise']:g}", line["length"], line["starts"],
                     line["decided"], right, *ends, _open(line)])  # fmt: skip
    return head, rows


def _ends(ends: dict[str, int]) -> str:
    return ", ".join(f"{count} {FOUND[name]}" for name, count in ends.items()) or "none"


def _open(line: dict[str, Any]) -> str:
    reasons = ", ".join(f"{n} {name.replace('_', ' ')}" for name, n in line["open"].items())
    if not reasons:
        return "none"
    between = line["open_between"]
    return f"{reasons}; {between} between the two losses" if between else reasons


def threshold(found: dict[str, Any]) -> Rows:
    """The share of runs at the unigram against λ(S − 1)."""
    lines = cases(found)
    by_offset = {case: {round(x["lambda"] * (line["states"] - 1), 6): x for x in line["lines"]}
                 for case, line in lines.items()}  # fmt: skip
    offsets = sorted({offset for known in by_offset.values() for offset in known})
    head = ["trapped of all; in between", *(f"λ(S − 1) = {x:+.1f}" for x in offsets)]
    rows = [[case, *(_trapped(known.get(x)) for x in offsets)]
            for case, known in by_offset.items()]  # fmt: skip
    return head, rows


def _trapped(line: dict[str, Any] | None) -> str:
    if line is None:
        return "not trained"
    text = f"{line['trapped']} of {line['runs']}"
    return f"{text}; {line['between']}" if line["between"] else text


def bad_ends(found: dict[str, Any]) -> Rows:
    """Of every start, S, m and d: how many do not learn, at a partition or open."""
    lines = [line for line in cases(found).values() if "at partitions" in line]
    excess = sorted({line["d"] - line["states"] for line in lines})
    names = ["d = S" + (f" {'-' if x < 0 else '+'} {abs(x)}" if x else "") for x in excess]
    rows: dict[tuple[Any, ...], list[str]] = {}
    for line in lines:
        row = rows.setdefault((line["start"], line["states"], line["m"]), [""] * len(excess))
        at, rest = sum(line["at partitions"].values()), line["open"]
        text = f"{at}" + (f" + {rest}" if rest else "") + f" of {line['runs']}"
        row[excess.index(line["d"] - line["states"])] = text
    head = [
        "start",
        "S",
        "m",
        *(f"{name}: at a partition + open" for name in names[:1]),
        *names[1:],
    ]
    return head, [[*key, *row] for key, row in rows.items()]


def bad_levels(found: dict[str, Any]) -> Rows:
    """Open shares of the partitions of six states beside the rank of their embeddings."""
    levels = found["levels"]["S = 6"]
    at = sum((Counter(line["at partitions"]) for line in found.values()
              if isinstance(line, dict) and line.get("states") == 6), Counter())  # fmt: skip
    ranks = {word: 6 - len(word.split(" + ")) for word in levels}
    return (["partition", "rank of the embeddings", "open share", "runs found there"],
            [[word, ranks[word], f"{levels[word]:.4f}", at[word]]
             for word in sorted(levels, key=lambda word: levels[word])])  # fmt: skip


#: Columns of the table of depth; one that a study lacks is left out.
_OF_DEPTH = {
    "runs": "runs",
    "smallest_at_start": "smallest eigenvalue at the start",
    "smallest_at_end": "at the end",
    "opened": "turns negative in",
    "opened_step": "at step",
    "left": "leave the unigram",
    "left_step": "at step",
    "plateau_steps": "steps at the unigram",
    "overlap": "overlap",
    "final_loss": "final loss (nats)",
}


def depth(found: dict[str, Any]) -> Rows:
    """The curvature at the unigram beside the steps at which runs leave it."""
    lines = cases(found)
    names = [name for name in _OF_DEPTH if all(name in line for line in lines.values())]
    head = ["case", *(_OF_DEPTH[name] for name in names)]
    counts = ("runs", "opened", "left")
    rows = [
        [case, *(line[name] if name in counts else _span(line[name]) for name in names)]
        for case, line in lines.items()
    ]
    return head, rows


def _span(values: list[float] | None) -> str:
    """Median, and from least to largest."""
    return "never" if values is None else "{:.4g} ({:.4g} to {:.4g})".format(*values)


def attention(found: dict[str, Any]) -> Rows:
    """Where the whole transformer ends, started with attention, beside what the flow says."""
    head = ["p", "v", "noise", "runs", "predicted to learn", "of these learned",
            "predicted to be trapped", "of these at that loss", "learned", "between",
            "no prediction"]  # fmt: skip
    names = ("p", "v", "noise", "runs", "predicted to learn", "learned as predicted",
             "predicted to be trapped", "trapped as predicted", "learned against prediction",
             "between", "no prediction")  # fmt: skip
    return head, [[f"{run[name]:g}" for name in names] for run in found["runs"]]


def slices(found: dict[str, Any]) -> Rows:
    """The cells of the slices of (e, w, v) by their ends."""
    head = ["p", "v", "cells that learn", "trapped", "unresolved",
            "of 16 torchdiffeq labels alike, otherwise, not at all"]  # fmt: skip
    rows = []
    for line in found["slices"]:
        sample = [str(line[f"confirm_{name}"]) for name in ("agree", "disagree", "undecided")]
        counts = [line[name] for name in ("global_minimum", "local_minimum", "unresolved")]
        rows.append([f"{line['p']:g}", f"{line['v']:g}", *counts, ", ".join(sample)])
    return head, rows


#: As ``results_laws.TABLES``.
TABLES = {
    "states_slices": ("states_attention", slices),
    "states_attention": ("states_attention", attention),
    "states_agreement": ("states_agreement", agreement),
    "states_threshold": ("states_threshold", threshold),
    "states_ends": ("states_ends", bad_ends),
    "states_levels": ("states_ends", bad_levels),
    "depth": ("depth", depth),
}
