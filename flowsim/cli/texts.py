"""Summaries in words, one function for every kind of record."""

from __future__ import annotations

from typing import Any

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
    words = [f"{s['optimizer']}, learning rate {s['learning_rate']:g}, {s['steps']} steps"]
    words += ["cosine schedule"] * (s["schedule"] == "cosine")
    if "d" in s:  # of a transformer
        words += [f"batches of {s['batch']}" if s["loss"] == "sampled" else "population loss"]
        words += [f"d = {s['d']}"]
    return ", ".join(words)


def _trained_portrait(s: Summary) -> list[str]:
    fraction, name = s["fraction"], s["optimizer"]
    lost = [f"{word} {s[word]}" for word in ("periodic", "diverged") if s[word]]
    unresolved = f"unresolved {s['unresolved']}"
    unresolved += f" and {s['flow_unresolved']} by the flow" if s["flow_unresolved"] else ""
    about = [": ".join(part for part in (_model(s), _data(s)) if part), _optimizer(s)]
    if "learned" not in fraction:
        both = {
            end: (share, fraction[f"flow_{end}"])
            for end, share in fraction.items()
            if f"flow_{end}" in fraction
        }
        shares = {
            end: f"{one:.2%}, by gradient flow {other:.2%}"
            for end, (one, other) in both.items()
            if one or other
        }
        cells = f"cells: {unresolved}, total {s['cells']}"
        return [*about, *_shares(s, shares, "window "), *_periods(s), cells]
    return [
        *about,
        f"{name} learns from {fraction['learned']:.2%} of the window, gradient flow from "
        f"{fraction['flow_learned']:.2%}",
        f"trapped at the unigram for good      {fraction['trapped']:.2%}",
        f"at the unigram after {s['steps']} steps".ljust(37)
        + f"{fraction['on_plateau_at_end']:.2%}",
        f"cells: {', '.join([unresolved, *lost])}, total {s['cells']}",
    ]


def _periods(s: Summary) -> list[str]:
    """After how many steps periodic runs come back."""
    each = [f"{steps} steps: {runs}" for steps, runs in s.get("periods", {}).items()]
    return [f"periods                                {', '.join(each)}"] if each else []


def _portrait(s: Summary) -> list[str]:
    if "optimizer" in s:
        return _trained_portrait(s)
    fraction, drift = s["fraction"], s["largest_energy_drift"]
    oracle = (
        f"{s['oracle_agree']} of {s['oracle_cells']} cells "
        f"({s['oracle_cut']} more are cut by a boundary)"
    )
    title = s["captions"].get("text_portrait", ": ".join(filter(None, ["{text}", _data(s)])))
    losses = s["captions"].get("text_losses", "").splitlines()
    if "entropy_rate" in s:
        losses.append(f"entropy rate (global minimum)        {s['entropy_rate']:.6f} nats")
        losses.append(f"stationary entropy (bad minimum)     {s['stationary_entropy']:.6f} nats")
    return [
        title.replace("{text}", _model(s)),
        *losses,
        *_shares(s, {n: f"{share:.2%}" for n, share in fraction.items()}, "window ", 36),
        *_trapped(s, fraction.get("local_minimum", 0)),
        f"cells: saddle {s['saddle']}, unresolved {s['unresolved']}, total {s['cells']}",
        f"agreeing with the analytic basins    {oracle if s['oracle_cells'] else 'no closed form'}",
        *_differing(s),
        *_confirmed(s),
        f"largest drift of a conserved energy  {'none known' if drift is None else f'{drift:.1e}'}",
    ]


def _shares(s: Summary, shares: dict[str, str], of: str = "", width: int = 38) -> list[str]:
    """A line for every end: what share of the starts, or of the window, goes there."""
    words = {
        name: s["captions"].get(f"end_{name}", name.replace("_", " ")).ljust(width)
        for name in shares
    }
    if "global_minimum" in shares:
        words["global_minimum"] = f"{of}reaching the global minima".ljust(width)
        words["local_minimum"] = f"{of}trapped in local minima".ljust(width)
    return [f"{words[name]} {text}" for name, text in shares.items()]


def _trapped(s: Summary, share: float) -> list[str]:
    """What the model's local minima are to the whole transformer, where any start ends there."""
    words = s["captions"].get("text_trapped")
    return [words] if words and share else []


def _differing(s: Summary) -> list[str]:
    """Where a simpler model is wrong or orbits slide along a kink, and critical points."""
    lines = []
    if "share_differs" in s:
        words = f"{s['captions'].get('simpler', 'simpler model')} ends elsewhere"
        lines.append(f"{words:<36} {s['share_differs']:.2%} of the window")
    if s.get("cells_sliding"):
        lines.append(f"sliding along a kink of the ReLU     {s['cells_sliding']} cells")
    if "critical_points" in s:
        kinds = [point["kind"] for point in s["critical_points"]]
        names = {"minimum": "minima", "saddle": "saddles", "maximum": "maxima"}
        counts = [f"{name} {kinds.count(kind)}" for kind, name in names.items()]
        lines.append(f"isolated critical points found       {', '.join(counts)}")
    if s.get("orbits_unfinished"):
        lines.append(f"orbits not followed to their ends    {s['orbits_unfinished']}")
    return lines


def _phase_space(s: Summary) -> list[str]:
    words = {name: s["captions"].get(f"end_{name}", name) for name in s["orbits"]}
    words |= {"global_minimum": "to the global minima", "local_minimum": "trapped"}
    orbits = [f"{words[name]} {count}" for name, count in s["orbits"].items()]
    return [_about(s), f"orbits {', '.join(orbits)}, unresolved {s['unresolved']}"]


def _scan(s: Summary) -> list[str]:
    sizes = " x ".join(f"{n} {name}" for name, n in s["dimensions"].items())
    drifts = [v for name, v in s.items() if name.startswith("largest_drift_")]
    if "on_plateau_at_end" in s:
        return [
            f"{_about(s, model_first=True)}: {sizes}",
            _optimizer(s),
            f"learning the bigram                    {_share(s['basins']['global_minimum'])}",
            f"trapped at the unigram for good        {_share(s['basins']['local_minimum'])}",
            f"points: at the unigram at the end {s['on_plateau_at_end']}, unresolved "
            f"{s['unresolved']}, total {s['points']}",
        ]
    drift = f"{max(drifts):.1e}" if drifts else "none known"
    return [
        f"{_about(s, model_first=True)}: {sizes}",
        *([_optimizer(s)] if "optimizer" in s else []),
        *_shares(s, {name: _share(basin) for name, basin in s["basins"].items()}),
        *_trapped(s, max(s["basins"].get("local_minimum", {"fraction": [0]})["fraction"])),
        *_periods(s),
        f"points: saddle {s['saddle']}, unresolved {s['unresolved']}, total {s['points']}",
        *_confirmed(s),
        *([] if "optimizer" in s else [f"largest drift of a conserved quantity  {drift}"]),
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
    of = f" of the {other}" if other else ""
    wrong = [f"wrong {s['wrong']}"] if "wrong" in s else []
    labels = [*wrong, f"unresolved {s['unresolved']}", f"total {s['samples'] * len(s['sigma'])}"]
    flow = ("fraction", "fraction_low", "fraction_high")
    if "integral" in s:
        lines = [
            _about(s),
            "   sigma  integral   flow      95 % interval",
            *_by_sigma(s, "integral", *flow),
            f"limits of the integral{of}: {s['limit_small_sigma']:g} as sigma goes to 0, "
            f"{s['limit_large_sigma']:g} as sigma grows",
            f"intervals that miss the integral     {s['intervals_missed']} of {len(s['sigma'])}",
        ]
    else:
        lines = [_about(s), "   sigma      flow      95 % interval"]
        lines += _by_sigma(s, *flow)
    lines.append(f"labels: {', '.join(labels)}")
    if "largest_relative_energy_drift" in s:
        drift = s["largest_relative_energy_drift"]
        lines.append(f"largest relative drift of the energy {drift:.1e}")
    if "learned" in s:
        lines.append(f"   sigma  {s['optimizer']}, learned in {s['steps']} steps, 95 % interval")
        lines += _by_sigma(s, "learned", "learned_low", "learned_high")
    return lines


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
    return [
        f"{s['model']} model against {s['trainer']} of {_transformer(s)}, {_data(s)}, "
        f"d = {s['d']}, N = {s['length']}, "
        f"{s['points']} starts{mirrored}",
        f"agreement                {share} ({s['agreeing']} of {s['decided']}{drawn})",
        *_what_it_is(s),
        *_learned(s),
        f"{'not finite' if 'predicted_by' in s else 'unresolved':<24} "
        f"{s['unresolved_outcomes']} runs{f' ({opened})' if opened else ''}, "
        f"{s['unresolved_predictions']} predictions",
        *(
            f"predicted {_named(row, s):<14} found "
            f"{', '.join(f'{_named(n, s)} {c}' for n, c in columns.items() if c)}"
            for row, columns in s["confusion"].items()
            if any(columns.values())
        ),
    ]


def _named(label: str, s: Summary) -> str:
    """A label; of SGD and AdamW unresolved means not learned within the steps."""
    names = {"global_minimum": "learned", "unresolved": "not learned"}
    return names.get(label, label) if "predicted_by" in s else label


def _learned(s: Summary) -> list[str]:
    """Of SGD and AdamW: what agreement counts, and what gradient flow would have predicted."""
    if "predicted_by" not in s:
        return []
    flow = ", ".join(
        f"{name} {part['runs']} ({part['learned']} learned)" for name, part in s["by_flow"].items()
    )
    lines = [
        f"predicted by             {s['trainer']}'s reduced map, on the same batches",
        f"learned within {s['steps']:<9} {s['learned']} runs, {s['learned_predictions']} predicted",
        f"gradient flow says       {flow}",
    ]
    if not s["noise"]:
        but = ", until AdamW magnifies rounding" if s["trainer"] == "adamw" else ""
        lines.insert(0, f"                         a check that map and training agree{but}")
    return lines


def _transformer(s: Summary) -> str:
    """What was trained, and which of its weights had noise."""
    if not s["noise"]:
        return "the transformer without noise"
    where = {"all": "every weight", "attention": "attention's weights",
             "others": "every weight but attention's"}[s["noise_on"]]  # fmt: skip
    return f"the transformer with noise {s['noise']:g} on {where}"


def _what_it_is(s: Summary) -> list[str]:
    """A line on what agreement means where nothing was drawn at random."""
    words, exact = s["captions"].get("text_exact"), s["trainer"] in ("flow", "gd")
    if "agreement_interval" in s or not (words and exact):
        return []
    steps = ", up to the steps of descent" if s["trainer"] == "gd" else ""
    return [" " * 25 + words.replace("{steps}", steps)]


def _confirmed(s: Summary) -> list[str]:
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
    "kernel": "oracle that knows the kernel",
}


def _training(s: Summary) -> list[str]:
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
