"""Summaries of training runs and of the induction head's plane in words."""

from __future__ import annotations

from typing import Any


def induction_lines(s: dict[str, Any]) -> list[str]:
    """The losses that rule the plane, and the shares of its window."""
    fraction, ends = s["fraction"], s["ends"]
    lines = [
        f"induction head on sequences of {s['length']} symbols, kernels from {s['prior']}",
        f"plateau (in-context unigram)         {s['plateau_loss']:.6f} nats",
        f"Bayes                                {s['bayes_loss']:.6f} nats",
    ]
    names = {"global_minimum": "learned", "local_minimum": "trapped"}
    for name, end in ends.items():
        where = f"s = {end['share']:.4g}, beta = {end['beta']:.4g}"
        lines.append(f"{names[name]} at {where:<26} {end['loss']:.6f} nats")
    return [
        *lines,
        f"window that learns                   {fraction['global_minimum']:.2%}",
        f"window that is trapped               {fraction['local_minimum']:.2%}",
        f"cells: unresolved {s['unresolved']}, total {s['cells']}",
        *confirmed_lines(s),
    ]


def confirmed_lines(s: dict[str, Any]) -> list[str]:
    """How many of the sampled cells torchdiffeq decides the same way."""
    if not s.get("confirm_cells"):
        return []
    undecided = s.get("confirm_undecided", 0)
    more = f" ({undecided} it could not decide)" if undecided else ""
    line = (
        f"confirmed by torchdiffeq             {s['confirm_agree']} of {s['confirm_cells']}{more}"
    )
    wrong = s.get("confirm_disagree", 0)
    return [line, *([f"contradicted by torchdiffeq          {wrong}"] if wrong else [])]


#: What the losses that a training run is compared with are called.
_BASELINES = {
    "uniform": "uniform",
    "unigram": "unigram",
    "bigram": "bigram",
    "Bayes": "Bayes, who knows the prior",
    "kernel": "who knows the kernel",
}


def training_lines(s: dict[str, Any]) -> list[str]:
    """Final losses, and those that they are compared with."""
    losses = ", ".join("diverged" if loss is None else f"{loss:.6f}" for loss in s["loss"][:8])
    more = " ..." if s["models"] > 8 else ""
    diverged = [f"models that diverged            {s['not_finite']}"] * bool(s["not_finite"])
    if "p" in s:
        return [
            *diverged,
            f"{s['trainer']} at p = {s['p']:g}, q = {s['q']:g}: loss {losses}{more} nats",
            f"entropy rate (bigram)           {s['entropy_rate']:.6f} nats",
            f"stationary entropy (unigram)    {s['stationary_entropy']:.6f} nats",
        ]
    kernels = "one kernel" if s["prior"] == "fixed" else f"kernels from {s['prior']}"
    return [
        *diverged,
        f"{s['trainer']} on {s['states']} states, order {s['order']}, {kernels}: "
        f"loss {losses}{more} nats",
        *(
            f"{_BASELINES.get(name, name):<31} {loss:.6f} nats"
            for name, loss in s["baselines"].items()
        ),
        *([f"others: {s['baselines_missing']}"] if "baselines_missing" in s else []),
    ]
