"""Tables about reduced models beside full training: head and rows from a study's json."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from results_cases import Rows, cases

TRAINERS = {"gd": "gradient descent", "adamw": "AdamW"}


def summary(found: Any) -> Rows:
    """What both models predict right, by noise and by the side of p + q = 1."""
    groups: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for line in found:
        p, q, *_ = (float(part.partition("=")[2]) for part in line["case"].split()[:2])
        noise = line["case"].partition(" noise ")[2] or "none"
        side = "p + q > 1" if p + q > 1 else "p + q < 1"
        groups.setdefault(noise, {}).setdefault(side, []).append(line)
    sides = ("p + q > 1", "p + q < 1")
    models = ("rank-one", "canonical")
    head = ["noise", *[f"{model} right, {side}" for model in models for side in sides]]
    rows = []
    for noise, by_side in groups.items():
        cells = []
        for model in models:
            for side in sides:
                parts = [line[model] for line in by_side[side]]
                right, of = (sum(part[k] for part in parts) for k in ("agree", "decided"))
                cells.append(f"{right} of {of}")
        rows.append([noise, *cells])
    return head, rows


def agreement(found: Any) -> Rows:
    """What each model predicts right of full training, case by case."""
    rows = [
        [
            line["case"], line["points"], line["followed_by_flow"], line["unresolved"],
            _share(line["rank-one"]), _misses(line), _share(line["canonical"]),
            line["canonical_global_found_local"], line["canonical_local_found_global"],
        ]
        for line in found
    ]  # fmt: skip
    head = ["full models", "starts", "followed by flow", "unresolved", "rank-one model right",
            "wrong at (e, w)", "canonical model right", "canonical: global predicted, local found",
            "local predicted, global found"]  # fmt: skip
    return head, rows


def _misses(line: dict[str, Any]) -> str:
    """Where the rank-one model is wrong."""
    at = [f"({miss['e']:g}, {miss['w']:g})" for miss in line["rank_one_misses"]]
    return ", ".join(at) or "nowhere"


def reasons(found: Any) -> Rows:
    """The share of outcomes explained with one difference switched on at a time."""
    lines = [line for line in found if "variants" in line]
    names = list(lines[0]["variants"])
    rows = [[line["case"], *[_percent(line["variants"][n]) for n in names]] for line in lines]
    return ["case", *names], rows


def adamw(found: Any) -> Rows:
    """AdamW against its own reduced map, from the same starts on the same batches."""
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
    return head, rows


def gains(found: Any) -> Rows:
    """How far small steps off the rank-one manifold grow, at the misses and elsewhere."""
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
    return head, rows


def trials(found: Any) -> Rows:
    """Which noise frees runs from the trap, and from where."""
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
    return head, rows


def trap_map(found: Any) -> Rows:
    """At which random weights S is positive definite, over scale and d."""
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
    return ["(p, q)", "positions", "d", *head], rows


def trap_descents(found: Any) -> Rows:
    """What descent from a small embedding does, beside the sign of S."""
    rows = []
    for case, line in found.items():
        chain, _, kind = case.partition("; descent where S says ")
        if kind:
            pair = "(" + ", ".join(part.split()[-1] for part in chain.split(", ")) + ")"
            rows.append([pair, kind, *(line[k] for k in ("runs", "stay", "leave", "open"))])
    return ["(p, q)", "S says", "runs", "stay", "leave", "open"], rows


def headline(found: Any) -> Rows:
    """Where the headline's runs end."""
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
    return head, rows


def ends(found: Any) -> Rows:
    """Where the runs of the papers' figures end."""
    rows = []
    for name, study in found.items():
        for case, line in cases(study).items():
            counts = [line["models"], line["bigram"], line["unigram"], line["between"]]
            loss = line["final_loss"]
            losses = f"{loss['min']:.4f} to {loss['max']:.4f}"
            chain = f"({line['p']}, {line['q']})"
            kind = "; ".join(part for part in case.split("; ") if not part.startswith("p ="))
            rows.append([f"`{name}`", kind, chain, *counts, losses])
    head = ["script", "case", "(p, q)", "runs", "at the bigram", "at the unigram", "between",
            "final loss (nats)"]  # fmt: skip
    return head, rows


def square(found: Any) -> Rows:
    """The pairs of the (p, q) square, by side of its diagonal."""
    rows = []
    for case, sides in cases(found).items():
        for side, line in sides.items():
            if "bigram" in line:
                counts = [line[k] for k in ("pairs", "bigram", "unigram", "between")]
                rows.append([case.replace("GD", "gradient descent"), side, *counts])
    head = ["case", "side", "pairs", "at the bigram", "at the unigram", "between"]
    return head, rows


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


#: Table, and the study (or studies) whose json it is made from.
TABLES: dict[str, tuple[str, Callable[[Any], Rows]]] = {
    "summary": ("agreement", summary),
    "agreement": ("agreement", agreement),
    "reasons": ("agreement", reasons),
    "adamw": ("agreement_adamw", adamw),
    "gains": ("noisy_misses", gains),
    "trials": ("noisy_misses", trials),
    "trap_map": ("trap_map", trap_map),
    "trap_descents": ("trap_map", trap_descents),
    "headline": ("headline", headline),
    "ends": ("am_fig1_depth am_fig3_tying lg_rank_one_energy lg_initialization", ends),
    "square": ("am_fig4_square", square),
}
