"""Tables about optimizers and sampled batches: head and rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from results_cases import Rows, cases


def basins(found: dict[str, Any]) -> Rows:
    """The shares of the window that AdamW learns from, over learning rate and d."""
    head = ["AdamW", "learned", "still near the unigram's loss", "in between", "above it",
            "learned by the flow alone"]  # fmt: skip
    names = ("learned", "plateau", "between", "above", "learned_by_the_flow_alone")
    rows = [
        [case, *(f"{line[name]:.1%}" for name in names)] for case, line in found["panels"].items()
    ]
    rows.append(["gradient flow", f"{found['flow_learned']:.1%}", "", "", "", ""])
    return head, rows


def basins_by_kind(found: dict[str, Any]) -> Rows:
    """The same shares on the coarser grid: mean, least and largest over the seeds of batches."""
    lines = found["rate 0.001, over seeds"]
    parts = ("window", "w < -0.45", "w > 0")
    head = ["AdamW, rate 0.001", *(f"of {part}" if part == "window" else part for part in parts)]
    rows = [
        [case, *(f"{x['mean']:.1%} ({x['min']:.1%} to {x['max']:.1%})" for x in
                 (line[part] for part in parts))]
        for case, line in lines.items()
    ]  # fmt: skip
    full = found["full training, d = 4"]
    rows.append(["full training, d = 4, one seed", *(f"{full[part]:.1%}" for part in parts)])
    return head, rows


def gaussian(found: dict[str, Any]) -> Rows:
    """Shares of Gaussian starts at every other scale: the flow's interval, AdamW's range."""
    chosen = range(0, len(found["sigma"]), 3)
    head = ["(p, q)", "trained by", *(f"σ = {found['sigma'][i]:.2g}" for i in chosen)]
    rows = []
    for case, line in found.items():
        if not case.startswith("p ="):
            continue
        shares = [line[name] for name in ("fraction", "fraction_low", "fraction_high")]
        cells = [f"{a[i]:.0%} [{b[i]:.0%}, {c[i]:.0%}]" for a, b, c in [shares] for i in chosen]
        rows.append([case, "gradient flow", *cells])
        for name, seeds in line.items():
            if name.startswith("AdamW"):
                columns = [[seed[i] for seed in seeds] for i in chosen]
                cells = [f"{sum(c) / len(c):.0%} ({min(c):.0%} to {max(c):.0%})" for c in columns]
                rows.append([case, name.removesuffix(", by seed"), *cells])
    return head, rows


def sampled(found: dict[str, Any]) -> Rows:
    """SGD at N = 64 against the rank-one flow: a column for each seed, and what became of both."""
    lines = cases(found)
    seeds = max(line["seeds"] for line in lines.values())
    head = ["SGD", "starts", *(f"rank-one flow right, seed {i + 1}" for i in range(seeds)),
            "wrong at (e, w)", "learned where the flow says global",
            "learned where it says trapped", "starts whose seeds differ"]  # fmt: skip
    rows = []
    for case, line in lines.items():
        shares = [
            f"{x['agree']} of {x['decided']} [{x['interval'][0]:.1%}, {x['interval'][1]:.1%}]"
            for x in line["right"]
        ]
        wrong = ", ".join(
            f"({x['e']:g}, {x['w']:g}) for {x['seeds']} of {seeds}" for x in line["wrong"]
        )
        ends = [f"{x['learned']} of {x['runs']}" for x in
                (line["flow_global"], line["flow_trapped"])]  # fmt: skip
        rows.append([case, line["starts"], *shares, wrong or "nowhere", *ends,
                     line["starts_where_seeds_differ"]])  # fmt: skip
    return head, rows


#: As ``results_laws.TABLES``.
TABLES: dict[str, tuple[str, Callable[[dict[str, Any]], Rows]]] = {
    "optimizers": ("optimizer_basins", basins),
    "optimizers_by_kind": ("optimizer_basins", basins_by_kind),
    "gaussian_adamw": ("gaussian_adamw", gaussian),
    "sampled": ("agreement_sampled", sampled),
}
