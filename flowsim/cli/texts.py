"""Summaries in words, one function for every kind of record."""

from __future__ import annotations

from typing import Any

from flowsim.cli.other_texts import confirmed_lines, induction_lines, training_lines

#: A summary, ready for JSON; its keys depend on the kind of record.
Summary = dict[str, Any]


def text_of(kind: str, s: Summary) -> str:
    """What a command prints of a record."""
    lines = {
        "portrait": _portrait,
        "phase space": _phase_space,
        "induction": induction_lines,
        "scan": _scan,
        "gaussian": _gaussian,
        "boundary": _refined,
        "comparison": _comparison,
        "training": training_lines,
    }[kind](s)
    files = ", ".join(f"{n} {s[n]}" for n in ("figure", "record", "checkpoint") if n in s)
    return "\n".join([*lines, f"{files}, {s['seconds']:.1f} s"])


def _chain(s: Summary) -> str:
    """The chain and its regime, or the law of kernels."""
    if s["model"] == "induction":
        return f"kernels from {s['prior']}"
    other = f"q = {s['q']:g}" if "q" in s else f"{s['states']} states"
    return f"p = {s['p']:g}, {other} ({s['regime']})"


def _model(s: Summary) -> str:
    """The model's name with what was chosen of it."""
    words = [str(s["model"])]
    words += [f"N = {s['length']}"] if s.get("length") is not None else []
    words += [f"m = {s['hidden_per_state']}"] if "hidden_per_state" in s else []
    chosen = s["model"] in ("rank-one", "states")
    words += ["with attention"] * bool(s.get("attention")) * chosen
    words += ["untied"] * (s.get("tied") == 0)
    words += [f"{n} = {v:g}" for n, v in s.get("fixed", {}).items()]
    words += [f"{name} = {s[name]:g}" for name in "av" if name in s]
    return ", ".join(words)


def _optimizer(s: Summary) -> str:
    """The optimizer with its numbers."""
    words = [f"{s['optimizer']}, learning rate {s['learning_rate']:g}, {s['steps']} steps"]
    words += ["cosine schedule"] * (s["schedule"] == "cosine")
    words += [f"batches of {s['batch']}" if s["loss"] == "sampled" else "population loss"]
    words += [f"d = {s['d']}"]
    return ", ".join(words)


def _trained_portrait(s: Summary) -> list[str]:
    fraction, name = s["fraction"], s["optimizer"]
    lost = [f"{word} {s[word]}" for word in ("periodic", "diverged") if s[word]]
    unresolved = f"unresolved {s['unresolved']}"
    unresolved += f" and {s['flow_unresolved']} by the flow" if s["flow_unresolved"] else ""
    return [
        f"{_model(s)}: {_chain(s)}",
        _optimizer(s),
        f"{name} learns from {fraction['learned']:.2%} of the window, gradient flow from "
        f"{fraction['flow_learned']:.2%}",
        f"trapped at the unigram for good      {fraction['trapped']:.2%}",
        f"at the unigram after {s['steps']} steps".ljust(37)
        + f"{fraction['on_plateau_at_end']:.2%}",
        f"cells: {', '.join([unresolved, *lost])}, total {s['cells']}",
    ]


def _portrait(s: Summary) -> list[str]:
    if "optimizer" in s:
        return _trained_portrait(s)
    fraction, drift = s["fraction"], s["largest_energy_drift"]
    oracle = (
        f"{s['oracle_agree']} of {s['oracle_cells']} cells "
        f"({s['oracle_cut']} more are cut by a boundary)"
    )
    chain = _chain(s)
    if "switching_factor" in s:
        factor = f"p + q = {s['switching_factor']:.15g}"
        chain = f"p = {s['p']:g}, q = {s['q']:g}, {factor} ({s['regime']})"
    return [
        chain if s["model"] == "canonical" else f"{_model(s)}: {chain}",
        f"entropy rate (global minimum)        {s['entropy_rate']:.6f} nats",
        f"stationary entropy (bad minimum)     {s['stationary_entropy']:.6f} nats",
        f"window reaching the global minima    {fraction['global_minimum']:.2%}",
        f"window trapped in local minima       {fraction['local_minimum']:.2%}",
        f"cells: saddle {s['saddle']}, unresolved {s['unresolved']}, total {s['cells']}",
        f"agreeing with the analytic basins    {oracle if s['oracle_cells'] else 'no closed form'}",
        *_differing(s),
        *confirmed_lines(s),
        f"largest drift of a conserved energy  {'none known' if drift is None else f'{drift:.1e}'}",
    ]


def _differing(s: Summary) -> list[str]:
    """Where the canonical model is wrong, and where orbits slide along a kink."""
    lines = []
    if "share_differs" in s:
        lines.append(f"canonical model ends elsewhere       {s['share_differs']:.2%} of the window")
    if s.get("cells_sliding"):
        lines.append(f"sliding along a kink of the ReLU     {s['cells_sliding']} cells")
    if s.get("orbits_unfinished"):
        lines.append(f"orbits that torchdiffeq left open    {s['orbits_unfinished']}")
    return lines


def _phase_space(s: Summary) -> list[str]:
    orbits = s["orbits"]
    return [
        f"{_chain(s)}, {_model(s)}",
        f"orbits to the global minima {orbits['global_minimum']}, "
        f"trapped {orbits['local_minimum']}, saddle {orbits['saddle']}, "
        f"unresolved {s['unresolved']}",
    ]


def _scan(s: Summary) -> list[str]:
    names = {"states": "p", "induction": ""}.get(s["model"], "pq")
    if all(name in s for name in names):
        chain = _chain(s)
    else:
        chain = ", ".join(f"{n} = {s[n]:g}" if n in s else f"{n} varies" for n in names)
    sizes = " x ".join(f"{n} {name}" for name, n in s["dimensions"].items())
    drifts = [v for name, v in s.items() if name.startswith("largest_drift_")]
    if "optimizer" in s:
        return [
            f"{_model(s)}, {chain}: {sizes}",
            _optimizer(s),
            f"learning the bigram                    {_share(s['basins']['global_minimum'])}",
            f"trapped at the unigram for good        {_share(s['basins']['local_minimum'])}",
            f"points: at the unigram at the end {s['on_plateau_at_end']}, unresolved "
            f"{s['unresolved']}, total {s['points']}",
        ]
    return [
        f"{_model(s)}, {chain}: {sizes}",
        f"reaching the global minima             {_share(s['basins']['global_minimum'])}",
        f"trapped in local minima                {_share(s['basins']['local_minimum'])}",
        f"points: saddle {s['saddle']}, unresolved {s['unresolved']}, total {s['points']}",
        *confirmed_lines(s),
        "largest drift of a conserved quantity  "
        + (f"{max(drifts):.1e}" if drifts else "none known"),
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
    return [f"{_chain(s)}, {_model(s)}", _boundary(s)]


def _share(basin: Summary) -> str:
    """A share, or its range over families; with its interval where starts are random."""
    low, high = basin["fraction"]
    share = f"{low:.2%}" if low == high else f"{low:.2%} to {high:.2%}"
    if "wilson" not in basin:
        return share
    return f"{share} (95 % interval {basin['wilson'][0]:.2%} to {basin['wilson'][1]:.2%})"


def _gaussian(s: Summary) -> list[str]:
    of = "" if s["model"] in ("canonical", "states") else " of the canonical model"
    of = " of the plane v = 0" if s["model"] == "states" and s.get("attention") else of
    wrong = [f"wrong {s['wrong']}"] if "wrong" in s else []
    labels = [*wrong, f"unresolved {s['unresolved']}", f"total {s['samples'] * len(s['sigma'])}"]
    flow = ("fraction", "fraction_low", "fraction_high")
    if "integral" in s:
        lines = [
            f"{_chain(s)}, {_model(s)}",
            "   sigma  integral   flow      95 % interval",
            *_by_sigma(s, "integral", *flow),
            f"limits of the integral{of}: {s['limit_small_sigma']:g} as sigma goes to 0, "
            f"{s['limit_large_sigma']:g} as sigma grows",
            f"intervals that miss the integral     {s['intervals_missed']} of {len(s['sigma'])}",
        ]
    else:
        lines = [f"{_chain(s)}, {_model(s)}", "   sigma      flow      95 % interval"]
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
        f"{s['model']} model against {s['trainer']} of {_transformer(s)}, {_chain(s)}, "
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
    if "architecture" not in s:  # a record of 0.1.0
        return "the transformer" if s.get("attention") else "the transformer without attention"
    if not s["noise"]:
        return "the transformer without noise"
    where = {"all": "every weight", "attention": "attention's weights",
             "others": "every weight but attention's"}[s["noise_on"]]  # fmt: skip
    return f"the transformer with noise {s['noise']:g} on {where}"


def _what_it_is(s: Summary) -> list[str]:
    """A line on what agreement means where nothing was drawn at random."""
    exact = s["model"] in ("rank-one", "states") and s["trainer"] in ("flow", "gd")
    if "agreement_interval" in s or not exact or "architecture" not in s:
        return []
    if "<" in s["regime"] and s["model"] == "states":
        return ["                         where the plane traps, the full model has a saddle"]
    steps = ", up to the steps of descent" if s["trainer"] == "gd" else ""
    return [f"                         a check that theory and code agree{steps}"]
