"""Tables about kernels drawn anew: head and rows from a study's json."""

from __future__ import annotations

from typing import Any

from results_cases import Rows


def induction(found: dict[str, Any]) -> Rows:
    """What rules the plane of the induction head, by prior and length."""
    head = ["kernels", "T", "plateau", "trapped at", "learned at", "Bayes", "saddle, s",
            "−∂L/∂β on the plateau, s = 1"]  # fmt: skip
    rows = [
        [
            line["prior"], line["length"], f"{line['plateau']:.4f}",
            _end(line["trapped"], *line["trapped_at"]), _end(line["learned"], *line["learned_at"]),
            f"{line['bayes']:.4f}", f"{line['saddle_share']:.3f}",
            f"{line['fastest_departure']:.4f}",
        ]
        for line in found["landscapes"]
    ]  # fmt: skip
    return head, rows


def _end(loss: float, share: float, beta: float) -> str:
    return f"{loss:.4f}, s = {share:.4g}, β = {beta:.2f}"


def training(found: dict[str, Any]) -> Rows:
    """What each model ends at, and how long it stays, a number for every seed."""
    head = ["model", "kernels", "uniform", "unigram", "bigram", "Bayes", "loss at the end",
            "steps at the unigram", "half from unigram to Bayes at step",
            "attention to the previous symbol"]  # fmt: skip
    rows = [
        [
            line["model"], line["kernels"],
            *(f"{line['baselines'][name]:.4f}" for name in head[2:6]),
            _each(line["loss"], "{:.4f}"), _each(line["at_unigram"], "{}"),
            _each(line["half"], "{}"), _each(line["previous"], "{:.2f}"),
        ]
        for line in found["cases"]
    ]  # fmt: skip
    return head, rows


def _each(values: list[Any], form: str) -> str:
    return ", ".join("never" if value is None else form.format(value) for value in values)


def path(found: dict[str, Any]) -> Rows:
    """Where each trained transformer begins and ends on the plane."""
    head = ["seed", "first (α, β)", "last (α, β)", "explained by β", "loss"]
    rows = [
        [
            line["seed"], f"({line['first_alpha']:.2f}, {line['first_beta']:.2f})",
            f"({line['alpha']:.2f}, {line['beta']:.2f})", f"{line['explained']:.0%}",
            f"{line['loss']:.4f}",
        ]
        for line in found["ends"]
    ]  # fmt: skip
    return head, rows


def affine(found: dict[str, Any]) -> Rows:
    """What a logit that is affine in a share can reach at best."""
    head = ["T", "unigram", "logit affine in the share", "bigram, add-one counting"]
    names = ("unigram", "affine", "bigram")
    rows = [[line["length"], *(f"{line[name]:.4f}" for name in names)] for line in found["affine"]]
    return head, rows


def heads(found: dict[str, Any]) -> Rows:
    """What the heads of both layers look at, a row for every order and seed."""
    head = ["order", "β", "d", "N", "steps", "seed", "counting, from none to k symbols before",
            "loss",
            "layer 1: attention 0, 1, 2, 3 back, by head",
            "layer 2: attention to what followed the context, by head",
            "share of such places"]  # fmt: skip
    rows = [
        [
            *(line[name] for name in ("order", "beta", "d", "length", "steps")), seed,
            _each(line["counting"], "{:.4f}"),
            f"{line['loss'][i]:.4f}",
            "; ".join(_each(back[:4], "{:.2f}") for back in line["back"][i]),
            _each(line["rings"][i], "{:.2f}"), f"{line['chance']:.2f}",
        ]
        for line in found["cases"]
        for i, seed in enumerate(found["seeds"])
    ]  # fmt: skip
    return head, rows


#: As ``results_laws.TABLES``.
TABLES = {
    "affine": ("induction_path", affine),
    "induction_path": ("induction_path", path),
    "induction": ("induction", induction),
    "in_context": ("in_context", training),
    "in_context_heads": ("in_context_heads", heads),
}
