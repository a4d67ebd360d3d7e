"""Tables about plateaus and escapes: head and rows from a study's json."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from escape_cells import NO_EPSILON
from results_cases import Rows, cases


def ladder(found: dict[str, Any]) -> Rows:
    """Orbits and full flows beside the closed forms; distances in percent of the gap."""
    head = ["case", "orbits", "keep their k", "off the plateau", "off the end at 10⁷",
            "full flows that keep k", "full flow off the orbit at t = 100"]  # fmt: skip
    rows = [
        [case, line["orbits"], line["keep_k"], _between(line["plateau_off"]),
         _between(line["end_off"]), line["full_keep_k"], f"{line['full_off']:.2%}"]
        for case, line in found["cases"].items()
    ]  # fmt: skip
    return head, rows


def ladder_freed(found: dict[str, Any]) -> Rows:
    """Does attention free dead positions."""
    rank = found["attention on the manifold"]
    head = ["runs", "followed to t =", "number", "freed", "of them k", "loss above L∞(k)"]
    rows = [["rank-one, small o and v", "10⁷", rank["orbits"], rank["freed"], "",
             _between(rank["end_off"])]]  # fmt: skip
    for case, line in found.items():
        if case.startswith("whole transformer"):
            off = [a - b for own in line["share"] for a, b in zip(own, line["limit"], strict=True)]
            freed = ", ".join(map(str, line["of them k"])) or "none"
            rows.append([case, f"{line['time']:.0f}", line["runs"], line["freed"], freed,
                         _between([min(off), max(off)])])  # fmt: skip
    return head, rows


def rungs(found: dict[str, Any]) -> Rows:
    """How many runs end with k open positions, beside the law."""
    lines = found["rungs"]
    head = ["first bias", "deviation of first weights", "runs",
            *[f"k = {k}" for k in range(len(lines[0]["count"]))]]  # fmt: skip
    rows = []
    for line in lines:
        rows.append([line["bias"], line["spread"], line["runs"], *line["count"]])
        if line["bias"] != "0":
            expected = [f"{line['runs'] * share:.1f}" for share in line["law"]]
            rows.append(["the law for it", line["spread"], "", *expected])
    return head, rows


def balanced(found: dict[str, Any]) -> Rows:
    """Where the runs from four starts end."""
    head = ["trainer", "start", "(p, q)", "runs", "at the bigram", "at the unigram", "between"]
    rows = []
    for case, line in cases(found).items():
        trainer, start, _ = case.split("; ")
        low, high = line["bigram_share_interval"]
        rows.append([trainer, start, f"({line['p']}, {line['q']})", line["models"],
                     f"{line['bigram']} [{low:.0%}, {high:.0%}]", line["unigram"],
                     line["between"]])  # fmt: skip
    return head, rows


def dying(found: dict[str, Any]) -> Rows:
    """Per deviation: runs that lose a position, when, and the bound where there is one."""
    lines = cases(found)
    names = list(dict.fromkeys(case.split("; ")[0] for case in lines))
    head = ["deviation", "runs", *[f"{name}: lose a position, at the steps, dead at the end"
            for name in names], "at the bigram, with attention and without",
            "bound without attention, in steps"]  # fmt: skip
    rows = []
    for std in dict.fromkeys(case.split("; ")[1] for case in lines):
        line = {name: lines[f"{name}; {std}"] for name in names}
        softmax, plain = line[names[0]], line[names[-1]]
        low, _, high = (step / 0.1 for step in plain["bound"])
        deaths = [_deaths(line[name]) for name in names]
        ends = f"{softmax['bigram']}, {plain['bigram']}"
        rows.append([std, plain["runs"], *deaths, ends, f"{low:.2g} to {high:.2g}"])
    return head, rows


def escapes(found: dict[str, Any]) -> Rows:
    """Every setting: how many runs escape, are trapped or open, and when."""
    head = ["trainer", "d", "r", "N", "rate", "ε", "β₂", "batch", "start", "runs", "escape",
            "crossed alone", "trapped", "diverged", "crossing step (median)",
            "escape step (median)", "overlap with the eigenvector"]  # fmt: skip
    rows = []
    for line in found["cells"]:
        low, high = line["interval"]
        adam = line["trainer"] == "adamw"
        trainer = {"adamw": "AdamW", "gd": "gradient descent", "sgd": "SGD, momentum 0.9"}
        overlap, epsilon = line["overlap_median"], line["epsilon"]
        start = f"σ = {line['deviation']:g}" if line["deviation"] != 0.02 else ""
        start += (", " if start else "") + "b known" if line["unigram_bias"] else ""
        rows.append([
            trainer[line["trainer"]], line["d"], line["r"], line["length"], f"{line['rate']:g}",
            f"{0 if epsilon == NO_EPSILON else epsilon:g}" if adam else "",
            line["beta2"] if adam else "", line["batch"] or "exact", start, line["runs"],
            f"{line['escaped']} [{low:.0%}, {high:.0%}]", line["open"], line["trapped"],
            line["diverged"], _step(line["crossing_median"]), _step(line["escape_median"]),
            "" if overlap is None else f"{overlap:.2f}",
        ])  # fmt: skip
    return head, rows


def exact_rates(found: dict[str, Any]) -> Rows:
    """Of AdamW on the exact loss: how many runs escape at every rate, and when."""
    settings = {name: line for name, line in found.items() if name.startswith("(")}
    rates = list(next(iter(settings.values())))
    rows = [
        [name, *[f"{x['escaped']} of {x['runs']}" + (f", step {x['escape_median']:.0f}"
                 if x["escaped"] else "") for x in line.values()]]
        for name, line in settings.items()
    ]  # fmt: skip
    return ["(p, q), d, r", *rates], rows


def exact_rates_foretold(found: dict[str, Any]) -> Rows:
    """The rates foretold, and how many runs escape at and beside them."""
    head = ["(p, q), d, r, ε", "fast route from", "slow route from", "escape at η*/1.4", "at η*",
            "at 1.4 η*", "holds"]  # fmt: skip
    rows = [[name, f"{line['fast']:.2g}", f"{line['slow']:.2g}",
             *[f"{n} of {line['runs']}" + (f", step {at:.0f}" if n else "")
               for n, at in zip(line["escaped"], line["escape_median"], strict=True)],
             "yes" if line["holds"] else "no"]
            for name, line in cases(found).items()]  # fmt: skip
    return head, rows


def escape_law(found: dict[str, Any]) -> Rows:
    """Exponents of κ: derived, and fitted for either start of b."""
    names = {"r": "r", "d": "d", "rate": "η", "batch N": "batch·N",
             "(p + q - 1) sqrt(pi0 pi1)": "(p + q − 1)√(π₀π₁)"}  # fmt: skip
    head = ["κ grows as a power of", *names.values()]
    rows = [["derived, b known", "0.5", "0 to 0.5", "1.5", "0.25", "0.5"]]
    for start, line in found["law"].items():
        if start.startswith("b "):
            word = "fitted, " + start.replace("b at the unigram", "b known, three chains")
            rows.append([word, *[_exponent(line.get(name)) for name in names]])
    return head, rows


def escape_looks(found: dict[str, Any]) -> Rows:
    """Exponents of κ by how often runs are looked at."""
    names = {"rate": "η", "r": "r", "d": "d"}
    rows = [[word, *[_exponent(line[name]) for name in names]]
            for word, line in found["exponents"].items()]  # fmt: skip
    return ["looked at", *names.values()], [["derived", "1.5", "0.5", "0 to 0.5"], *rows]


def escape_widths(found: dict[str, Any]) -> Rows:
    """κ over the derived κ₀ in every setting."""
    head = ["d", "r", "η", "runs", "never cross", "κ/κ₀ (10 and 90 %)"]
    rows = []
    for line in found["cells"]:
        low, middle, high = line["kappa over derived"]
        rows.append([line["d"], line["r"], f"{line['rate']:g}", line["runs"], line["never cross"],
                     f"{middle:.2f} ({low:.2f} to {high:.2f})"])  # fmt: skip
    return head, rows


def _exponent(found: dict[str, Any] | None) -> str:
    if found is None:
        return ""
    low, high = found["interval"]
    return f"{found['value']:.2f} [{low:.2f}, {high:.2f}]"


def escape_scores(found: dict[str, Any]) -> Rows:
    """How often the predictions of "crosses", "escapes within the run" are right, and times."""
    ways = {"settings": "settings, fitted", "derived": "settings, derived",
            "first tenth": "first tenth", "both": "both, fitted"}  # fmt: skip
    head = ["does it …", "runs of", "number", "do", "in the first tenth"]
    for word in ways.values():
        head += [f"{word}: right", "time foretold/found"]
    rows = []
    for event, word in (("crossing", "cross"), ("escape", "escape")):
        for part, line in found["score"][event].items():
            row = [word, part, line["runs"], line["happens"], line["happens_in_first_tenth"]]
            for way in ways:
                row.append(_share(line[way], line["runs"]))
                ratio = line[way]["time_ratio"]
                row.append("" if ratio is None else f"{ratio[1]:.2f} ({ratio[0]:.2f} to "
                           f"{ratio[2]:.2f})")  # fmt: skip
            rows.append([*row, _share(line["majority"], line["runs"])])
    return [*head, "majority: right"], rows


def _share(line: dict[str, Any], runs: int) -> str:
    low, high = line["interval"]
    return f"{line['right'] / runs:.0%} [{low:.0%}, {high:.0%}]"


def escape_chains(found: dict[str, Any]) -> Rows:
    """The runs that the law is for, by chain."""
    head = ["chain", "runs", "cross", "escape", "κ beside the fitted law", "crossing foretold"]
    rows = []
    for chain, line in found["chains"].items():
        low, middle, high = line["growth_against_law"]
        rows.append([chain, line["runs"], line["cross"], line["escaped"],
                     f"{middle:.2f} ({low:.2f} to {high:.2f})",
                     f"{line['crossing_right'] / line['runs']:.0%}"])  # fmt: skip
    return head, rows


def width(found: dict[str, Any]) -> Rows:
    """One change at a time: ends at the bigram and at the unigram."""
    variants = cases(found)
    studies = list(next(iter(variants.values())))
    head = ["model", *[f"{study}: at the bigram, at the unigram, of" for study in studies]]
    rows = [
        [name, *[f"{line[s]['bigram']}, {line[s]['unigram']}, {line[s]['runs']}" for s in studies]]
        for name, line in variants.items()
    ]
    return head, rows


def _deaths(line: dict[str, Any]) -> str:
    if not line["died"]:
        return "0"
    low, _, high = line["died"]
    steps = f"{low:.0f}" if low == high else f"{low:.0f} to {high:.0f}"
    return f"{line['lose a position']}, {steps}, {line['dead at the end']}"


def _step(value: float | None) -> str:
    return "none" if value is None else f"{value:.0f}"


def _between(pair: list[float]) -> str:
    return f"{pair[0]:.2%} to {pair[1]:.2%}"


#: Table, and the study whose json it is made from.
TABLES: dict[str, tuple[str, Callable[[dict[str, Any]], Rows]]] = {
    "ladder": ("ladder", ladder),
    "ladder_freed": ("ladder", ladder_freed),
    "rungs": ("ladder", rungs),
    "balanced": ("balanced_start", balanced),
    "dying": ("dying_positions", dying),
    "escapes": ("adamw_escape", escapes),
    "exact_rates": ("exact_rates", exact_rates),
    "exact_rates_foretold": ("exact_rates_foretold", exact_rates_foretold),
    "escape_looks": ("escape_looks", escape_looks),
    "escape_widths": ("escape_looks", escape_widths),
    "escape_law": ("adamw_escape", escape_law),
    "escape_chains": ("adamw_escape", escape_chains),
    "escape_scores": ("adamw_escape", escape_scores),
    "width": ("width_of_truth", width),
}
