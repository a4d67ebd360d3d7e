"""Tables of docs/results.md about more than two states: head and rows from a study's json."""

from __future__ import annotations

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
    offsets = [x["lambda"] * (line["states"] - 1)
               for line in list(lines.values())[:1] for x in line["lines"]]  # fmt: skip
    head = ["trapped of all; in between", *(f"λ(S − 1) = {x:+.1f}" for x in offsets)]
    rows = [[case, *(_trapped(x) for x in line["lines"])] for case, line in lines.items()]
    return head, rows


def _trapped(line: dict[str, Any]) -> str:
    text = f"{line['trapped']} of {line['runs']}"
    return f"{text}; {line['between']}" if line["between"] else text


def depth(found: dict[str, Any]) -> Rows:
    """The curvature at the unigram beside the steps at which runs leave it."""
    head = ["case", "runs", "smallest eigenvalue at the start", "at the end", "turns negative in",
            "at step", "leave the unigram", "at step", "overlap", "final loss (nats)"]  # fmt: skip
    rows = [
        [case, line["runs"], _span(line["smallest_at_start"]), _span(line["smallest_at_end"]),
         line["opened"], _span(line["opened_step"]), line["left"], _span(line["left_step"]),
         _span(line["overlap"]), _span(line["final_loss"])]
        for case, line in cases(found).items()
    ]  # fmt: skip
    return head, rows


def _span(values: list[float] | None) -> str:
    """Median, and from least to largest."""
    return "never" if values is None else "{:.4g} ({:.4g} to {:.4g})".format(*values)


#: As ``results_laws.TABLES``.
TABLES = {
    "states_agreement": ("states_agreement", agreement, True),
    "states_threshold": ("states_threshold", threshold, True),
    "depth": ("depth", depth, True),
}
