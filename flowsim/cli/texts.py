"""Summaries in words, one function for every kind of record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flowsim.records.attributes import adam_words, most_frequent

#: A summary, ready for JSON; its keys depend on the kind of record.
Summary = dict[str, Any]


def text_of(kind: str, s: Summary) -> str:
    """What a command prints of a record."""
    lines = {
        "portrait": _portrait,
        "phase space": _phase_space,
        "scan": _scan,
        "gaussian": _gaussian,
        "boundary": _refined,
        "comparison": _comparison,
        "training": _training,
    }[kind](s)
    files = ", ".join(f"{n} {s[n]}" for n in ("figure", "record", "checkpoint") if n in s)
    return "\n".join([*lines, f"{files}, {s['seconds']:.1f} s"])


def _data(s: Summary) -> str:
    """What the model is trained on; of several chains what they have in common."""
    if "text_data" in s["captions"]:
        return str(s["captions"]["text_data"])
    named = [n for n in "pq" if n in s or n in s.get("dimensions", {})]
    return ", ".join(f"{n} = {s[n]:g}" if n in s else f"{n} varies" for n in named)


def _many(name: str, count: int) -> str:
    """What so many entries along a dimension are called: 3 points, 1 point, 40 w."""
    return f"{name}s" if name in ("point", "sample") and count != 1 else name


def _model(s: Summary) -> str:
    """The model's name with what was chosen of it, and the values that are held."""
    name = s["captions"].get("text", s["model"])
    return ", ".join([name, *(f"{n} = {v:g}" for n, v in s.get("fixed", {}).items())])


def _about(s: Summary, model_first: bool = False) -> str:
    """The model and its data in a line."""
    parts = [part for part in (_data(s), _model(s)) if part]
    return ", ".join(reversed(parts) if model_first else parts)


def _optimizer(s: Summary) -> str:
    """The optimizer with its numbers."""
    words = [s["optimizer"], *adam_words(s)]
    words += [f"learning rate {s['learning_rate']:g}, {s['steps']} steps"]
    words += ["cosine schedule"] * (s["schedule"] == "cosine" and "beta2" not in s)
    if "d" in s:  # of a transformer
        words += [f"batches of {s['batch']}" if s["loss"] == "sampled" else "population loss"]
        words += [f"d = {s['d']}"]
    return ", ".join(words)


def row(label: str, text: object, width: int = 37) -> str:
    """What is counted, and what it is, in a column of its own."""
    return f"{label:<{width - 1}} {text}"


def nats(label: str, loss: float, width: int = 37) -> str:
    """A loss or an entropy, in a column of its own."""
    return row(label, f"{loss:.6f} nats", width)


def _trained_portrait(s: Summary) -> list[str]:
    fraction, about = s["fraction"], ": ".join(part for part in (_model(s), _data(s)) if part)
    unresolved = f"cells: unresolved {s['unresolved']}"
    unresolved += f" and {s['flow_unresolved']} by the flow" if s["flow_unresolved"] else ""
    if "learned" not in fraction:
        shares = {
            end: (share, fraction[f"flow_{end}"])
            for end, share in fraction.items()
            if f"flow_{end}" in fraction and (share or fraction[f"flow_{end}"])
        }
        lines = [*_shares(s, shares, "window ", say=_beside_the_flow), *_periods(s)]
        return [about, _optimizer(s), *lines, f"{unresolved}, total {s['cells']}"]
    lost = "".join(f", {word} {s[word]}" for word in ("periodic", "diverged") if s[word])
    return [
        about,
        _optimizer(s),
        f"{s['optimizer']} learns from {fraction['learned']:.2%} of the window, gradient flow from "
        f"{fraction['flow_learned']:.2%}",
        row("trapped at the unigram for good", f"{fraction['trapped']:.2%}"),
        row(f"at the unigram after {s['steps']} steps", f"{fraction['on_plateau_at_end']:.2%}"),
        f"{unresolved}{lost}, total {s['cells']}",
    ]


def _beside_the_flow(shares: tuple[float, ...], _: str) -> str:
    """The share that an optimizer brings to an end, and that of the flow."""
    return f"{shares[0]:.2%}, by gradient flow {shares[1]:.2%}"


def _periods(s: Summary) -> list[str]:
    """After how many steps periodic runs come back."""
    each = [f"{steps} steps: {runs}" for steps, runs in s.get("periods", {}).items()]
    return [row("periods", ", ".join(each), 39)] if each else []


def _portrait(s: Summary) -> list[str]:
    if "optimizer" in s:
        return _trained_portrait(s)
    fraction, drift, oracle = s["fraction"], s["largest_energy_drift"], "no closed form"
    if s["oracle_cells"]:
        oracle = f"{s['oracle_agree']} of {s['oracle_cells']} cells "
        oracle += f"({s['oracle_cut']} more are cut by a boundary)"
    title = s["captions"].get("text_portrait", ": ".join(filter(None, ["{text}", _data(s)])))
    losses = s["captions"].get("text_losses", "").splitlines()
    if "entropy_rate" in s:
        losses += [
            nats("entropy rate (global minimum)", s["entropy_rate"]),
            nats("stationary entropy (bad minimum)", s["stationary_entropy"]),
        ]
    return [
        title.replace("{text}", _model(s)),
        *losses,
        *_shares(s, {n: (share,) for n, share in fraction.items()}, "window ", 37),
        *_trapped(s, fraction.get("local_minimum", 0)),
        f"cells: saddle {s['saddle']}, unresolved {s['unresolved']}, total {s['cells']}",
        row("agreeing with the analytic basins", oracle),
        *_differing(s),
        *_confirmed(s),
        row(
            "largest drift of a conserved energy", "none known" if drift is None else f"{drift:.1e}"
        ),
    ]


def _shares(
    s: Summary, shares: dict[str, Any], of: str = "", width: int = 39,
    say: Callable[[tuple[float, ...], str], str] = lambda shares, _: f"{shares[0]:.2%}",
) -> list[str]:  # fmt: skip
    """A line for every end that has a name: what shares of the starts, or of the window, go there.

    Ends beyond the most frequent are counted in one line, with the sums of their shares. ``say``
    has the words for the shares of an end, given its name.
    """
    words = {name: s["captions"].get(f"end_{name}", name.replace("_", " ")) for name in shares}
    words["saddle"] = f"{of}ending in saddles"
    words["global_minimum"] = f"{of}reaching the global minima"
    words["local_minimum"] = f"{of}trapped in local minima"
    always = {
        n: 1.0 if n in ("global_minimum", "local_minimum") else max(shares[n]) for n in shares
    }
    named, others = most_frequent(always)
    lines = [row(words[name], say(shares[name], name), width) for name in named]
    if others:
        sums = tuple(map(sum, zip(*(shares[name] for name in others), strict=True)))
        lines.append(row(f"{len(others)} more ends", say(sums, ""), width))
    return lines


def _trapped(s: Summary, share: float) -> list[str]:
    """What the model's local minima are to the whole transformer, where any start ends there."""
    words = s["captions"].get("text_trapped")
    return [words] if words and share else []


def _differing(s: Summary) -> list[str]:
    """Where a simpler model is wrong or orbits slide along a kink, and critical points."""
    lines = []
    if "share_differs" in s:
        simpler = s["captions"].get("simpler", "simpler model")
        lines.append(row(f"{simpler} ends elsewhere", f"{s['share_differs']:.2%} of the window"))
    if s.get("cells_sliding"):
        lines.append(row("sliding along a kink of the ReLU", f"{s['cells_sliding']} cells"))
    if "critical_points" in s:
        kinds = [point["kind"] for point in s["critical_points"]]
        names = {"minimum": "minima", "saddle": "saddles", "maximum": "maxima"}
        counts = [f"{name} {kinds.count(kind)}" for kind, name in names.items()]
        lines.append(row("isolated critical points found", ", ".join(counts)))
    if s.get("orbits_unfinished"):
        lines.append(row("orbits not followed to their ends", s["orbits_unfinished"]))
    return lines


def _phase_space(s: Summary) -> list[str]:
    words = {name: s["captions"].get(f"end_{name}", name) for name in s["orbits"]}
    words |= {"global_minimum": "to the global minima", "local_minimum": "trapped"}
    orbits = [f"{words[name]} {count}" for name, count in s["orbits"].items()]
    return [_about(s), f"orbits {', '.join(orbits)}, unresolved {s['unresolved']}"]


def _scan(s: Summary) -> list[str]:
    sizes = " x ".join(f"{n} {_many(name, n)}" for name, n in s["dimensions"].items())
    shares = {name: (basin["fraction"][1],) for name, basin in s["basins"].items()}
    texts = {name: _share(basin) for name, basin in s["basins"].items()}
    about = [
        f"{_about(s, model_first=True)}: {sizes}",
        *([_optimizer(s)] if "optimizer" in s else []),
    ]
    rest = f"unresolved {s['unresolved']}, total {s['points']}"
    if "on_plateau_at_end" in s:
        return [
            *about,
            row("learning the bigram", texts["global_minimum"], 39),
            row("trapped at the unigram for good", texts["local_minimum"], 39),
            f"points: at the unigram at the end {s['on_plateau_at_end']}, {rest}",
        ]
    drifts = [v for name, v in s.items() if name.startswith("largest_drift_")]
    drift = f"{max(drifts):.1e}" if drifts else "none known"
    return [
        *about,
        *_shares(s, shares, say=lambda _, n: texts.get(n, f"at most {_[0]:.2%} together")),
        *_trapped(s, max(s["basins"].get("local_minimum", {"fraction": [0]})["fraction"])),
        *_periods(s),
        f"points: saddle {s['saddle']}, {rest}",
        *_confirmed(s),
        *([] if "optimizer" in s else [row("largest drift of a conserved quantity", drift, 39)]),
        *([_boundary(s)] if "refine_levels" in s else []),
    ]


def _boundary(s: Summary) -> str:
    words = (
        f"boundary: {s['refine_evaluated']} starts of {s['refine_full']} in the full grid "
        f"({s['refine_fraction']:.2%})"
    )
    if "refine_bisected" in s:
        words += f" and {s['refine_bisected']} to place its points"
    if s["refine_distance"] is None:
        return words
    return f"{words}, {s['refine_distance']:.1g} finest cells from the analytic one"


def _refined(s: Summary) -> list[str]:
    return [_about(s), _boundary(s)]


def _share(basin: Summary) -> str:
    """A share, or its range over families; with its interval where starts are random."""
    low, high = basin["fraction"]
    share = f"{low:.2%}" if low == high else f"{low:.2%} to {high:.2%}"
    if "wilson" not in basin:
        return share
    return f"{share} (95 % interval {basin['wilson'][0]:.2%} to {basin['wilson'][1]:.2%})"


def _gaussian(s: Summary) -> list[str]:
    other = s["captions"].get("integral_of", "").replace("$", "")
    wrong = f"wrong {s['wrong']}, " if "wrong" in s else ""
    flow = ("fraction", "fraction_low", "fraction_high")
    lines = [_about(s)]
    if "integral" in s:
        lines += [
            "   sigma  integral   flow      95 % interval",
            *_by_sigma(s, "integral", *flow),
            f"limits of the integral{f' of the {other}' if other else ''}: "
            f"{s['limit_small_sigma']:g} as sigma goes to 0, {s['limit_large_sigma']:g} as sigma "
            "grows",
            row("intervals that miss the integral",
                 f"{s['intervals_missed']} of {len(s['sigma'])}"),
        ]  # fmt: skip
    elif "shares" in s:
        lines += _ends_by_sigma(s, s["shares"])
    else:
        lines += ["   sigma      flow      95 % interval", *_by_sigma(s, *flow)]
    total = s["samples"] * len(s["sigma"])
    lines.append(f"labels: {wrong}unresolved {s['unresolved']}, total {total}")
    if "largest_relative_energy_drift" in s:
        drift = s["largest_relative_energy_drift"]
        lines.append(row("largest relative drift of the energy", f"{drift:.1e}"))
    if "trained_shares" in s:
        lines += [f"the same starts, {_optimizer(s)}", *_ends_by_sigma(s, s["trained_shares"])]
    if "learned" in s:
        lines.append(f"   sigma  {s['optimizer']}, learned in {s['steps']} steps, 95 % interval")
        lines += _by_sigma(s, "learned", "learned_low", "learned_high")
    return lines


def _ends_by_sigma(s: Summary, shares: dict[str, Any]) -> list[str]:
    """The shares of all ends, a column for each that has a name; what the columns are."""
    first, *rest = shares
    shares = {name: shares[name] for name in (*rest, first)}
    named, others = most_frequent({name: sum(column) for name, column in shares.items()})
    words = {name: s["captions"].get(f"end_{name}", name) for name in named}
    columns = {name: shares[name] for name in named}
    if others:
        more = f"{len(others)} more"
        columns[more] = [sum(row) for row in zip(*(shares[n] for n in others), strict=True)]
    wide = {name: max(8, len(name)) for name in columns}
    return [
        *(row(name, text, 13) for name, text in words.items() if name != text),
        "   sigma  " + "  ".join(f"{name:>{wide[name]}}" for name in columns),
        *(f"{sigma:8.4g}  " + "  ".join(f"{columns[n][i]:{wide[n]}.6f}" for n in columns)
          for i, sigma in enumerate(s["sigma"])),
    ]  # fmt: skip


def _by_sigma(s: Summary, *names: str) -> list[str]:
    """Shares in columns, the last two an interval."""
    rows = zip(s["sigma"], *(s[name] for name in names), strict=True)
    return [
        f"{sigma:8.4g}  {'  '.join(f'{share:.6f}' for share in shares)} to {high:.6f}"
        for sigma, *shares, high in rows
    ]


def _comparison(s: Summary) -> list[str]:
    share = "none decided" if s["agreement"] is None else f"{s['agreement']:.2%}"
    drawn = ""
    if "agreement_interval" in s:
        low, high = s["agreement_interval"]
        drawn = f"; 95 % interval {low:.2%} to {high:.2%}"
    opened = ", ".join(
        f"{name.replace('_', ' ')} {count}" for name, count in s.get("left_open", {}).items()
    )
    different = s.get("different_starts", s["points"])
    mirrored = f", {different} of them different" if different != s["points"] else ""
    trained = "the transformer without noise"
    if s["noise"]:
        where = {"all": "every weight", "attention": "attention's weights",
                 "others": "every weight but attention's"}[s["noise_on"]]  # fmt: skip
        trained = f"the transformer with noise {s['noise']:g} on {where}"
    return [
        f"{s['model']} model against {s['trainer']} of {trained}, {_data(s)}, "
        f"d = {s['d']}, N = {s['length']}, "
        f"{s['points']} starts{mirrored}",
        row("agreement", f"{share} ({s['agreeing']} of {s['decided']}{drawn})", 25),
        *_what_it_is(s),
        *_learned(s),
        row("not finite" if "predicted_by" in s else "unresolved",
             f"{s['unresolved_outcomes']} runs{f' ({opened})' if opened else ''}, "
             f"{s['unresolved_predictions']} predictions", 25),
        *(
            f"predicted {_named(row, s):<14} found "
            f"{', '.join(f'{_named(n, s)} {c}' for n, c in columns.items() if c)}"
            for row, columns in s["confusion"].items()
            if any(columns.values())
        ),
    ]  # fmt: skip


def _named(label: str, s: Summary) -> str:
    """A label; of SGD and AdamW unresolved means not learned within the steps."""
    names = {"global_minimum": "learned", "unresolved": "not learned"}
    return names.get(label, label) if "predicted_by" in s else label


def _learned(s: Summary) -> list[str]:
    """Of SGD and AdamW: what agreement counts, and what gradient flow would have predicted."""
    if "predicted_by" not in s:
        return []
    flow = [
        f"{name} {part['runs']} ({part['learned']} learned)" for name, part in s["by_flow"].items()
    ]
    but = ", until AdamW magnifies rounding" if s["trainer"].startswith("adamw") else ""
    check = row("", f"a check that map and training agree{but}", 25)
    runs = f"{s['learned']} runs, {s['learned_predictions']} predicted"
    return [
        *([] if s["noise"] else [check]),
        row("predicted by", f"{s['trainer']}'s reduced map, on the same batches", 25),
        row(f"learned within {s['steps']}", runs, 25),
        row("gradient flow says", ", ".join(flow), 25),
    ]


def _what_it_is(s: Summary) -> list[str]:
    """A line on what agreement means where nothing was drawn at random."""
    words, exact = s["captions"].get("text_exact"), s["trainer"] in ("flow", "gd")
    if "agreement_interval" in s or not (words and exact):
        return []
    steps = ", up to the steps of descent" if s["trainer"] == "gd" else ""
    return [row("", words.replace("{steps}", steps), 25)]


def _confirmed(s: Summary) -> list[str]:
    """How many of the sampled cells torchdiffeq decides the same way."""
    if not s.get("confirm_cells"):
        return []
    undecided, wrong = s.get("confirm_undecided", 0), s.get("confirm_disagree", 0)
    more = f" ({undecided} it could not decide)" if undecided else ""
    agree = f"{s['confirm_agree']} of {s['confirm_cells']}{more}"
    contradicted = [row("contradicted by torchdiffeq", wrong)] if wrong else []
    return [row("confirmed by torchdiffeq", agree), *contradicted]


#: What the losses that a training run is compared with are called, where that is not their name.
_BASELINES = {"Bayes": "Bayes, who knows the prior", "kernel": "oracle that knows the kernel"}


def _reached(s: Summary) -> list[str]:
    """How many models have learned the bigram, and how many are at the unigram."""
    from flowsim.training.trained import AT_UNIGRAM, LEARNED_SAMPLED

    gap = s["stationary_entropy"] - s["entropy_rate"]
    if gap <= 0 or s["models"] != len(s["loss"]):
        return []
    shares = [(loss - s["entropy_rate"]) / gap for loss in s["loss"] if loss is not None]
    learned = sum(share <= LEARNED_SAMPLED for share in shares)
    unigram = sum(abs(share - 1) <= AT_UNIGRAM for share in shares)
    within = f"within {AT_UNIGRAM:.0%} of the gap between them"
    return [row("at the bigram, at the unigram",
                f"{learned} and {unigram} of {s['models']}, {within}", 32)]  # fmt: skip


def _training(s: Summary) -> list[str]:
    """Final losses, and those that they are compared with."""
    losses = ", ".join("diverged" if loss is None else f"{loss:.6f}" for loss in s["loss"][:8])
    found = f"loss {losses}{' ...' if s['models'] > 8 else ''} nats"
    lines = [row("models that diverged", s["not_finite"], 32)] if s["not_finite"] else []
    if "p" in s:
        return [
            *lines,
            f"{s['trainer']} at p = {s['p']:g}, q = {s['q']:g}: {found}",
            nats("entropy rate (bigram)", s["entropy_rate"], 32),
            nats("stationary entropy (unigram)", s["stationary_entropy"], 32),
            *_reached(s),
        ]
    kernels = "one kernel" if s["prior"] == "fixed" else f"kernels from {s['prior']}"
    return [
        *lines,
        f"{s['trainer']} on {s['states']} states, order {s['order']}, {kernels}: {found}",
        *(nats(_BASELINES.get(name, name), loss, 32) for name, loss in s["baselines"].items()),
        *([f"others: {s['baselines_missing']}"] if "baselines_missing" in s else []),
    ]
