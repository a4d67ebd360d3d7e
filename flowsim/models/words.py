"""Words that several models share: of their data, of their axes, and the record's attribute."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flowsim.chain import BinaryChain
    from flowsim.interface import Model
    from flowsim.markov import SymmetricChain

#: The plane of most models, as their axes are called.
FEED_FORWARD_PLANE = {
    "x": "w",
    "y": "e",
    "name_w": "feed-forward weight $w$",
    "short_w": "feed-forward $w$",
    "name_e": "embedding $e$",
    "name_u": "unembedding $u$",
    "name_a": "attention $a$",
    "name_b": "bias $b$",
    "mirrored": "(only one sign of $e$; the other is its mirror image)",
}
#: What is said of one chain, and not of several.
_OF_DATA = ("data", "text_data", "text_portrait", "text_regime", "minima", "minima_x")


def binary_words(
    chain: BinaryChain, title: str, text: str, dynamic_bias: bool = False
) -> dict[str, str]:
    """What models in (w, e) on a binary chain have in common, and their title and text."""
    p, q, regime = f"{chain.p:g}", f"{chain.q:g}", chain.regime
    total, sign = f"{chain.switching_factor:.15g}", regime.removeprefix("p + q ")
    beyond = "" if sign.startswith("=") else f" {sign}"
    nothing = chain.second_eigenvalue == 0
    return {
        **FEED_FORWARD_PLANE,
        "title": f"{title}, bias as a coordinate" if dynamic_bias else title,
        "data": f"Markov chain $p$ = {p}, $q$ = {q}:  $p + q$ = {total}{beyond}",
        "text": text,
        "text_data": f"p = {p}, q = {q} ({regime})",
        "text_portrait": f"{{text}}: p = {p}, q = {q}, p + q = {total} ({regime})",
        "text_regime": "p + q = 1: nothing to learn" if nothing else (
            f"p + q = {chain.switching_factor:.4g} {sign}"),
        "name_p": "$p$ = P(0→1)",
        "name_q": "$q$ = P(1→0)",
        "family": "rank-one manifold",
        "integral_of": "canonical model",
        **(_minima_at(2) if nothing else {}),
    }  # fmt: skip


def at_zero(chain: BinaryChain) -> dict[str, str]:
    """What tied models say of their bad minima at p + q < 1, on the weights of a transformer.

    There e = τv with v orthogonal to the manifold's α makes the logit b + τ²x, which lowers the
    loss, whatever the other weights (docs/derivations/12.md).
    """
    saddles = {"text_trapped": "local minima at e = 0: saddles of the whole transformer (d ≥ 2)"}
    return saddles if chain.second_eigenvalue > 0 else {}


def symmetric_words(
    chain: SymmetricChain, hidden_per_state: int, title: str, text: str
) -> dict[str, str]:
    """What models of S states in (w, e) have in common, and their title and text."""
    p, states = f"{chain.p:g}", chain.states
    lam = chain.second_eigenvalue
    side = "below" if lam > 0 else "above" if lam < 0 else "at"
    data = f"p = {p}, {states} states ({chain.regime})"
    exact = "a check that theory and code agree{steps}"
    return {
        **FEED_FORWARD_PLANE,
        "title": title,
        "data": f"Markov chain $p$ = {p}:  ${chain.regime}$",
        "text": text,
        "text_data": data,
        "text_portrait": f"{{text}}: {data}",
        "text_regime": f"p is {side} the threshold (S\u00a0−\u00a01)/S\u00a0=\u00a0"
        f"{chain.threshold:.3g}",
        "text_exact": exact if lam <= 0 else "where the plane traps, the full model has a saddle",
        "name_p": "$p$ = P(another state)",
        "short": f"the plane of {states} states, {hidden_per_state} hidden units for each",
        "family": "plane of S states",
        **({} if lam else _minima_at(hidden_per_state)),
    }


def _minima_at(m: int) -> dict[str, str]:
    """Where all points are minima that have no logit gap."""
    return {
        "minima": f"global minima: $e = 0$ or $w = -1/\\sqrt{{{m}}}$",
        "minima_x": repr(-1 / math.sqrt(m)),
    }


def model_captions(
    model: Model, varied: Sequence[str] = (), more: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The attribute ``captions`` of a record of a model.

    With ``varied``, names of what the record's models differ in, its words are of no one chain,
    or of no one N.
    ``more`` is said where the model does not.
    """
    words = {"x": model.plane.x, "y": model.plane.y} if len(model.coordinates) > 1 else {}
    words |= {**(more or {}), **model.captions(), **words}
    if {"p", "q"} & set(varied):
        words = {name: text for name, text in words.items() if name not in _OF_DATA}
    if "length" in varied:
        words = {name: re.sub(r"(\$?N\$?) = \d+", r"several \1", text)
                 for name, text in words.items()}  # fmt: skip
    return {"captions": json.dumps(words, ensure_ascii=False)}
