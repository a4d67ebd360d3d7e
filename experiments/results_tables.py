"""The tables of docs/results: what each column says of a line of a study's numbers."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from escape_cells import NO_EPSILON

Line = dict[str, Any]
#: Head and rows.
Rows = tuple[list[str], list[list[Any]]]
#: A table from a study's numbers.
Make = Callable[[Any], Rows]
#: Text of a cell for a line: its entries in a format, or a function of it.
Cell = str | Callable[[Line], Any]


def cases(found: Line) -> list[Line]:
    """The entries of a record of numbers without how it was made, and from what sizes."""
    return named(found, lambda case: case not in ("made", "sizes"))


def named(found: Line, chosen: Callable[[str], bool] = bool) -> list[Line]:
    """Some of the entries, each with its own name as ``case``."""
    return [{"case": case, **line} for case, line in found.items() if chosen(case)]


def table(columns: dict[str, Cell], lines: Callable[[Any], Iterable[Line]] = cases,
          missing: str = "") -> Make:  # fmt: skip
    """A table with these cells, by the words of its head, and a row for each of the lines.

    Under "…" stand several cells, by the words of theirs.
    """

    def make(found: Any) -> Rows:
        rows = []
        for line in lines(found):
            row: Line = {}
            for word, cell in columns.items():
                own = said(cell, line)
                row |= own if word == "…" else {word: own}
            rows.append(row)
        head = list(dict.fromkeys(word for row in rows for word in row))
        return head, [[row.get(word, missing) for word in head] for row in rows]

    return make


def said(cell: Cell, line: Line) -> Any:
    """Text of a cell for a line."""
    return cell.format(**line) if isinstance(cell, str) else cell(line)


def step(name: str) -> Cell:
    """A number of steps, or none."""
    return lambda x: "none" if x[name] is None else f"{x[name]:.0f}"


def between(name: str) -> Cell:
    """Two shares."""
    return f"{{{name}[0]:.2%}} to {{{name}[1]:.2%}}"


def each(values: list[Any], form: str) -> str:
    """All values."""
    return ", ".join("never" if value is None else form.format(value) for value in values)


def share(part: Line) -> str:
    """Counts, share and, where something was drawn at random, the interval."""
    if part["agreement"] is None:
        return "none decided"
    return "{agree} of {decided}, {agreement:.1%}".format(**part) + interval(part)


def interval(part: Line) -> str:
    """The 95 % interval of a share, where something was drawn at random."""
    return " [{:.1%}, {:.1%}]".format(*part["interval"]) if "interval" in part else ""


# Reduced models beside full training.

TRAINERS = {"gd": "gradient descent", "adamw": "AdamW", "sgd": "SGD, momentum 0.9"}


def summary(found: Line) -> Rows:
    """Right predictions of both models, by noise and by the side of p + q = 1."""
    groups: dict[str, dict[str, list[Line]]] = {}
    for line in found["lines"]:
        p, q, *_ = (float(part.partition("=")[2]) for part in line["case"].split()[:2])
        noise = line["case"].partition(" noise ")[2] or "none"
        groups.setdefault(noise, {}).setdefault("><"[p + q < 1], []).append(line)
    columns = [(model, side) for model in ("rank-one", "canonical") for side in "><"]
    rows = []
    for noise, sides in groups.items():
        sums = [[sum(line[model][k] for line in sides[side]) for k in ("agree", "decided")]
                for model, side in columns]  # fmt: skip
        rows.append([noise, *(f"{right} of {of}" for right, of in sums)])
    return ["noise", *(f"{model} right, p + q {side} 1" for model, side in columns)], rows


def _pair(line: Line) -> str:
    """The chain of a case "p = …, q = …; …"."""
    return "(" + ", ".join(x.split()[-1] for x in line["case"].split("; ")[0].split(", ")) + ")"


_LAYOUTS = {"equal": "equal", "own": "one by one", "attention": "one by one, attention"}
_SAYS = "; descent where S says "
TRAINING = {
    "summary": ("agreement", summary),
    "agreement": ("agreement", table({
        "full models": "{case}", "starts": "{points}", "followed by flow": "{followed_by_flow}",
        "unresolved": "{unresolved}", "rank-one model right": lambda x: share(x["rank-one"]),
        "wrong at (e, w)": lambda x: ", ".join(
            "({e:g}, {w:g})".format(**miss) for miss in x["rank_one_misses"]) or "nowhere",
        "canonical model right": lambda x: share(x["canonical"]),
        "canonical: global predicted, local found": "{canonical_global_found_local}",
        "local predicted, global found": "{canonical_local_found_global}",
    }, lambda found: found["lines"])),
    "reasons": ("agreement", table({
        "case": "{case}", "…": lambda x: {
            name: _percent("agreement")(own) for name, own in x["variants"].items()},
    }, lambda found: [line for line in found["lines"] if "variants" in line])),
    "trap_map": ("trap_map", table({
        "(p, q)": _pair, "positions": lambda x: _LAYOUTS[x["case"].partition("; ")[2]], "d": "{d}",
        "…": lambda x: {f"trapped at s = {own['scale']:.2g}": f"{own['share']:.1%}{interval(own)}"
                        for own in x[f"d = {x['d']}"]},
    }, lambda found: [{**line, "d": d} for line in named(
        found, lambda case: case.partition("; ")[2] in _LAYOUTS) for d in (1, 2, 4, 8)])),
    "trap_descents": ("trap_map", table({
        "(p, q)": _pair, "S says": lambda x: x["case"].partition(_SAYS)[2], "runs": "{runs}",
        "stay": "{stay}", "leave": "{leave}", "open": "{open}",
    }, lambda found: named(found, lambda case: _SAYS in case))),
    "ends": ("am_fig1_depth am_fig3_tying lg_rank_one_energy lg_initialization", table({
        "script": "`{script}`",
        "case": lambda x: "; ".join(s for s in x["case"].split("; ") if not s.startswith("p =")),
        "(p, q)": "({p}, {q})", "runs": "{models}", "at the bigram": "{bigram}",
        "at the unigram": "{unigram}", "between": "{between}",
        "final loss (nats)": "{final_loss[min]:.4f} to {final_loss[max]:.4f}",
    }, lambda found: [{"script": name, **x} for name in found for x in cases(found[name])])),
    "square": ("am_fig4_square", table({
        "case": lambda x: x["name"].replace("GD", "gradient descent"), "side": "{case}",
        "pairs": "{pairs}", "at the bigram": "{bigram}", "at the unigram": "{unigram}",
        "between": "{between}",
    }, lambda found: [{"name": name, **x} for name, sides in found.items()
                      if name not in ("made", "sizes") for x in named(sides) if "bigram" in x])),
}  # fmt: skip


# Plateaus and escapes.


def freed(found: Line) -> Rows:
    """Does attention free dead positions."""
    rank = found["attention on the manifold"]
    head = ["runs", "followed to t =", "number", "freed", "of them k", "loss above L∞(k)"]
    rows = [["rank-one, small o and v", "10⁷", rank["orbits"], rank["freed"], "",
             said(between("end_off"), rank)]]  # fmt: skip
    for line in named(found, lambda case: case.startswith("whole transformer")):
        off = [a - b for own in line["share"] for a, b in zip(own, line["limit"], strict=True)]
        rows.append([line["case"], f"{line['time']:.0f}", line["runs"], line["freed"],
                     each(line["of them k"], "{}") or "none",
                     said(between("off"), {"off": [min(off), max(off)]})])  # fmt: skip
    return head, rows


def rung_table(found: Line) -> Rows:
    """Number of runs that end with k open positions, beside the law."""
    lines, rows = found["rungs"], []
    for line in lines:
        rows.append([line["bias"], line["spread"], line["runs"], *line["count"]])
        if line["bias"] != "0":
            expected = [f"{line['runs'] * share:.1f}" for share in line["law"]]
            rows.append(["the law for it", line["spread"], "", *expected])
    places = [f"k = {k}" for k in range(len(lines[0]["count"]))]
    return ["first bias", "deviation of first weights", "runs", *places], rows


def _escapes(escaped: int, runs: int, step: float | None) -> str:
    """Number of runs that escape, and their median step."""
    return f"{escaped} of {runs}" + (f", step {step:.0f}" if escaped else "")


#: Order of the first look with λ_min(S) < 0 and the look at which a run has escaped.
SEEN = {"before": "S seen negative at an earlier look", "at": "at the same look",
        "after": "later"}  # fmt: skip


def orders(found: Line) -> Rows:
    """Counts for each trainer's runs: escapes, and their order with the sign of S."""
    rows = []
    for trainer, name in TRAINERS.items():
        own = [cell for cell in found["cells"] if cell["trainer"] == trainer]
        seen = [sum(cell["crossing_seen"][order] for cell in own) for order in SEEN]
        other = [sum(cell[word] for cell in own) for word in ("open", "trapped", "diverged")]
        rows.append([name, sum(cell["runs"] for cell in own),
                     sum(cell["escaped"] for cell in own), *seen, *other])  # fmt: skip
    return ["trainer", "runs", "escape", *SEEN.values(), "S negative, no escape",
            "neither", "diverged"], rows  # fmt: skip


def starts(found: Line) -> Rows:
    """Number of runs from each start at the bigram, by trainer and side of p + q = 1."""
    counts: dict[tuple[str, str], dict[str, list[int]]] = {}
    for line in cases(found):
        trainer, start, _ = line["case"].split("; ")
        word = trainer.removeprefix("population ").partition(", N")[0]
        for side in "><":
            own = counts.setdefault((word, side), {}).setdefault(start, [0, 0])
            if (line["p"] + line["q"] > 1) == (side == ">"):
                own[0] += line["bigram"]
                own[1] += line["models"]
    first, *_ = counts.values()
    return ["start", *(f"{word}, p + q {side} 1" for word, side in counts)], [
        [start, *("{} of {}".format(*own[start]) for own in counts.values())] for start in first
    ]


LAWS = {
    "ladder": ("ladder", table({
        "case": "{case}", "orbits": "{orbits}", "keep their k": "{keep_k}",
        "off the plateau": between("plateau_off"), "off the end at 10⁷": between("end_off"),
        "full flows that keep k": "{full_keep_k}",
        "full flow off the orbit at t = 100": "{full_off:.2%}",
    }, lambda found: named(found["cases"]))),
    "ladder_freed": ("ladder", freed),
    "rungs": ("ladder", rung_table),
    "balanced": ("balanced_start", table({
        "trainer": lambda x: x["case"].split("; ")[0], "start": lambda x: x["case"].split("; ")[1],
        "(p, q)": "({p}, {q})", "runs": "{models}",
        "at the bigram":
            "{bigram} [{bigram_share_interval[0]:.0%}, {bigram_share_interval[1]:.0%}]",
        "at the unigram": "{unigram}", "between": "{between}",
    })),
    "starts": ("balanced_start", starts),
    "escape_order": ("adamw_escape", orders),
    "escapes": ("adamw_escape", table({
        "trainer": lambda x: TRAINERS[x["trainer"]], "d": "{d}", "r": "{r}", "N": "{length}",
        "rate": "{rate:g}",
        "ε": lambda x: "" if x["trainer"] != "adamw" else
            f"{0 if x['epsilon'] == NO_EPSILON else x['epsilon']:g}",
        "β₂": lambda x: x["beta2"] if x["trainer"] == "adamw" else "",
        "batch": lambda x: x["batch"] or "exact",
        "start": lambda x: ", ".join([f"σ = {x['deviation']:g}"] * (x["deviation"] != 0.02)
                                     + ["b known"] * x["unigram_bias"]),
        "runs": "{runs}", "escape": "{escaped} [{interval[0]:.0%}, {interval[1]:.0%}]",
        "crossed alone": "{open}", "trapped": "{trapped}", "diverged": "{diverged}",
        "crossing step (median)": step("crossing_median"),
        "escape step (median)": step("escape_median"),
        "overlap with the eigenvector": lambda x:
            "" if x["overlap_median"] is None else f"{x['overlap_median']:.2f}",
    }, lambda found: found["cells"])),
    "exact_rates": ("exact_rates", table({
        "(p, q), d, r": "{case}", "…": lambda x: {
            rate: _escapes(own["escaped"], own["runs"], own["escape_median"])
            for rate, own in x.items() if rate != "case"},
    })),
    "first_weights": ("first_weights", table({
        "model; trainer; side": "{case}", "…": lambda line: {
            start: "{bigram} of {runs}".format(**x) + interval(x)
            + ("" if x["median step"] is None else ", step {:.0f}".format(x["median step"]))
            for start, x in line.items() if start != "case"},
    })),
    "width": ("width_of_truth", table({
        "model": "{case}", "…": lambda line: {
            f"{word}: at the bigram, at the unigram": "{bigram}, {unigram}".format(**x)
            for word, x in line.items() if word != "case"},
    })),
}  # fmt: skip


# Optimizers and sampled batches.


def _percent(name: str) -> Callable[[Line], str]:
    """A share, or the mean and range of several; empty for none."""

    def cell(line: Line) -> str:
        found = line.get(name)
        if isinstance(found, dict):
            return "{mean:.1%} ({min:.1%} to {max:.1%})".format(**found)
        return "" if found is None else f"{found:.1%}"

    return cell


OPTIMIZERS = {
    "sampled": ("agreement_sampled", table({
        "SGD": "{case}", "starts": "{starts}", "…": lambda x: {
            f"rank-one flow right, seed {i}": "{agree} of {decided}".format(**own) + interval(own)
            for i, own in enumerate(x["right"], 1)},
        "wrong at (e, w)": lambda x: ", ".join(
            f"({one['e']:g}, {one['w']:g}) for {one['seeds']} of {x['seeds']}"
            for one in x["wrong"]) or "nowhere",
        "learned where the flow says global": "{flow_global[learned]} of {flow_global[runs]}",
        "learned where it says trapped": "{flow_trapped[learned]} of {flow_trapped[runs]}",
        "starts whose seeds differ": "{starts_where_seeds_differ}",
    })),
}  # fmt: skip


# More than two states.

#: Names of labels in tables.
FOUND = {"global_minimum": "learned", "local_minimum": "trapped", "saddle": "at the saddle",
         "unresolved": "open"}  # fmt: skip


def _ends(name: str) -> Cell:
    """Outcomes of the starts of one prediction."""
    return lambda x: (
        ", ".join(f"{count} {FOUND[label]}" for label, count in x["found"].get(name, {}).items())
        or "none"
    )


def _open(line: Line) -> str:
    reasons = ", ".join(f"{n} {name.replace('_', ' ')}" for name, n in line["open"].items())
    if not reasons:
        return "none"
    count = line["open_between"]
    return f"{reasons}; {count} between the two losses" if count else reasons


def bad_ends(found: Line) -> Rows:
    """Counts for every start, S, m and d: runs that do not learn, at a split or open."""
    rows: dict[Any, Line] = {}
    for line in cases(found):
        if "at splits" in line:
            row = rows.setdefault((line["start"], line["states"], line["m"]), {})
            more, at = line["d"] - line["states"], sum(line["at splits"].values())
            word = f"d = S {more:+d}".replace("+", "+ ").replace("-", "- ").removesuffix(" + 0")
            row[word] = f"{at}" + f" + {line['open']}" * bool(line["open"]) + f" of {line['runs']}"
    first, *names = dict.fromkeys(word for row in rows.values() for word in row)
    return ["start", "S", "m", f"{first}: at a split + open", *names], [
        [*key, *(row.get(word, "") for word in (first, *names))] for key, row in rows.items()
    ]


def bad_levels(found: Line) -> list[Line]:
    """Open shares of the splits of six states beside the rank of their embeddings."""
    levels = found["levels"]["S = 6"]
    at: Counter[str] = sum((Counter(line["at splits"]) for line in found.values()
              if isinstance(line, dict) and line.get("states") == 6), Counter())  # fmt: skip
    ranks = {word: sum(2 if "ring" in block else int(block) - 1 for block in word.split(" + "))
             for word in levels}  # fmt: skip
    return [{"word": word, "rank": ranks[word], "level": level, "at": at[word]}
            for word, level in sorted(levels.items(), key=lambda pair: pair[1])]  # fmt: skip


def threshold(found: Line) -> Rows:
    """Number of runs trapped and learned on either side of p = (S − 1)/S, all S together."""
    groups: dict[tuple[str, str], list[Line]] = {}
    for line in cases(found):
        for own in line["lines"]:
            side = "above" if own["lambda"] < 0 else "below"
            groups.setdefault((line["case"].split(", ", 1)[1], side), []).append(own)
    names = ("runs", "trapped", "learned", "between")
    return ["weights and trainer", "side of the threshold", *names], [
        [*key, *(sum(own[word] for own in lines) for word in names)]
        for key, lines in groups.items()
    ]


STATES = {
    "states_agreement": ("states_agreement", table({
        "S": "{states}",
        "p": lambda x: "{:g} {} {}/{}".format(
            x["p"], ">" if x["p"] > (x["states"] - 1) / x["states"] else "<", x["states"] - 1,
            x["states"]),
        "noise": "{noise:g}", "N": "{length}", "starts": "{starts}", "decided": "{decided}",
        "as predicted": lambda x: "{agree} of {decided}".format(**x) + interval(x),
        "predicted to learn": _ends("global_minimum"),
        "predicted to be trapped": _ends("local_minimum"), "left open": _open,
    })),
    "threshold": ("states_threshold", threshold),
    "states_threshold": ("states_threshold", table({
        "trapped of all; in between": "{case}", "…": lambda x: {
            f"λ(S − 1) = {own['lambda'] * (x['states'] - 1):+.1f}":
            "{trapped} of {runs}".format(**own) + f"; {own['between']}" * bool(own["between"])
            for own in x["lines"]},
    }, missing="not trained")),
    "states_ends": ("states_ends", bad_ends),
    "states_levels": ("states_ends", table({
        "blocks": "{word}", "rank of the embeddings": "{rank}", "open share": "{level:.4f}",
        "runs found there": "{at}",
    }, bad_levels)),
}  # fmt: skip

# Networks reduced by machine.


def _reduced(part: str) -> Make:
    """Results for transformers of the papers' kind, for pairs in context, or for others."""
    parts = {"layer": "layers", "untied": "layers", "pairs": "pairs"}

    def chosen(found: Line) -> list[Line]:
        return [x for x in cases(found)
                if parts.get(x["case"].split()[0].strip(","), "others") == part]  # fmt: skip

    return table({
        "network and start": "{case}", "weights": "{weights}",
        "coordinates": lambda x: x.get("coordinates", "refused"),
        "off the span": _size("off the span"), "equal steps differ": _size("equal steps differ"),
        "names": lambda x: _some(x.get("named", []), 10),
        "conserved": lambda x: _some(x.get("conserved", []), 2),
        "at most conserved": lambda x: x["allowed"] if x.get("losses", 1) > 1 else "",
        "growth off it": _grown,
    }, chosen)  # fmt: skip


def _grown(line: Line) -> str:
    """By how much, and in which weights it lies then; nothing where every displacement decays."""
    if line.get("growth", 1.0) <= 1.0:
        return "none" if "growth" in line else ""
    most = max(line["grown in"], key=line["grown in"].get).split(".")[-1]
    return f"{line['growth']:.2g} at {line['at time']:.3g}, most in {most}"


def _size(name: str) -> Cell:
    return lambda x: format(x[name], ".0e") if name in x else ""


def _some(names: list[str], most: int) -> str:
    """All of a few words, or how many there are."""
    return ", ".join(names) if len(names) <= most else f"{len(names)} of them"


REDUCED = {
    "reduced": ("reduce_networks", table({
        "network and start": "{case}", "weights": "{weights}",
        "coordinates": lambda x: x.get("coordinates", "refused"),
        "equal steps differ": _size("equal steps differ"), "growth off it": _grown,
    })),
    "reduced_layers": ("reduce_networks", _reduced("layers")),
    "reduced_others": ("reduce_networks", _reduced("others")),
    "reduced_pairs": ("reduce_networks", _reduced("pairs")),
}  # fmt: skip

#: Table, and the study (or studies) whose json it is made from.
TABLES: dict[str, tuple[str, Make]] = {
    **TRAINING, **LAWS, **OPTIMIZERS, **STATES, **REDUCED,
}  # fmt: skip
