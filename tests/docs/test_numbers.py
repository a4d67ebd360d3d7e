"""Numbers of pages are those of the records, entries on citing those of CITATION.cff."""

import json
import re
from itertools import pairwise
from pathlib import Path

import torch

import full_model

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "results" / "index.md"
HEAD = "induction head, learned positions"


def record(name):
    return json.loads((ROOT / "figures" / f"{name}.json").read_text())


def first():
    lines = [line for line in record("agreement")["lines"] if line["noise_on"] == "all"]
    above = {line["case"]: sum(map(float, re.findall(r"[pq]=([\d.]+)", line["case"]))) > 1
             for line in lines}  # fmt: skip
    own = {noise: [line for line in lines if above[line["case"]] and line["noise"] == noise]
           for noise in (0.02, 0.1)}  # fmt: skip
    agree = {
        noise: sum(line["rank-one"]["agree"] for line in found) for noise, found in own.items()
    }
    runs = sum(line["rank-one"]["decided"] for line in own[0.02])
    below = [line for line in lines if not above[line["case"]]]
    assert not any(line["outcomes"].get("local") for line in below)
    return [0.02, agree[0.02], runs, 0.1, agree[0.1], sum(line["points"] for line in below)]


def second():
    descents = {}
    for case, line in record("trap_map").items():
        if "S says" in case:
            own = descents.setdefault(case.split()[-1], {"runs": 0, "stay": 0, "leave": 0})
            for word in own:
                own[word] += line[word]
    assert descents["trap"]["leave"] == descents["saddle"]["stay"] == 0
    cells = [cell for cell in record("adamw_escape")["cells"] if cell["trainer"] == "adamw"]
    seen = [
        sum(cell["crossing_seen"][word] for cell in cells) for word in ("before", "at", "after")
    ]
    escaped, alone = (sum(cell[word] for cell in cells) for word in ("escaped", "open"))
    steps = record("adamw_escape")["sizes"]["steps"]
    return [descents["trap"]["runs"], descents["saddle"]["runs"],
            seen[0], escaped, *seen[1:], alone, steps]  # fmt: skip


def third():
    found = record("balanced_start")
    said = []
    for start in ("recommended", "balanced"):
        own = [line for case, line in found.items()
               if case.startswith("population") and f"; {start}; " in case
               and line["p"] + line["q"] > 1]  # fmt: skip
        said += [sum(line[word] for line in own) for word in ("bigram", "models")]
    norm = record("width_of_truth")["layer norm"]
    for start in ("recommended", "balanced"):
        said += [norm[f"descent, {start}"][word] for word in ("bigram", "runs")]
    wide = record("first_weights")["layer norm; descent; p + q > 1"]["Gaussian 1/√d"]
    return [*said, wide["bigram"], wide["runs"]]


def fourth():
    lines = [own for case, line in record("states_threshold").items()
             if case.endswith(" tied, gradient descent")
             for own in line["lines"]]  # fmt: skip
    sides = [
        [own for own in lines if own["lambda"] < 0],
        [own for own in lines if own["lambda"] > 0],
    ]
    return [sum(own[word] for own in side) for side in sides for word in ("trapped", "runs")]


def fifth():
    found = record("reduce_networks")
    cases = "layer, canonical", "layer, rank one", HEAD, "pairs in context"
    return [found[cases[0]]["weights"], *(found[case]["coordinates"] for case in cases)]


def test_the_first_page_has_the_numbers_of_the_records():
    page = (
        PAGE.read_text().partition("<!-- findings -->")[2].partition("<!-- end of findings -->")[0]
    )
    parts = re.split(r"^## .*$", page, flags=re.M)[1:]
    for part, known in zip(parts, (first, second, third, fourth, fifth), strict=True):
        text = re.sub(r"\]\(.*?\)|p \+ q [<>] 1|d = 8, N = 4", "", part)
        said = [float(x.replace(" ", "")) for x in re.findall(r"\d+(?: \d{3})*(?:\.\d+)?", text)]
        assert said == [float(x) for x in known()], part


FOUND = json.loads((ROOT / "figures/threshold.json").read_text())


def test_the_shares_through_the_threshold():
    shares = [round(100 * x, 1) for pair in FOUND["trapped"].values() for x in pair.values()]
    assert shares == [13.1, 0, 0, 0, 55.8, 60.4]
    text = (ROOT / "docs/theory.md").read_text()
    assert all(f"{x} %" in text for x in shares if x)


def test_the_times_to_learn():
    text = (ROOT / "docs/howto/time_to_learn.md").read_text()
    below, above = (list(times.values()) for times in FOUND["time_against_d"].values())
    assert f"{below[0]:g} at d = 2 and {below[-1]:g} at d = 32" in text
    assert f"{min(above):g} to {max(above):g} on (0.5, 0.8)" in text
    assert {n for side in FOUND["seeds_that_learn"].values() for n in side.values()} == {8}
    slopes = FOUND["slope_against_distance"]
    assert abs(slopes["below"] + 1) < 0.05 and -0.9 < slopes["above"] < -0.5
    small = list(FOUND["time_against_sigma"]["p + q < 1"].values())
    steps = [a - b for a, b in pairwise(small)]
    assert all(4 < step < 8 for step in steps)  # a constant for each half of a decade
    assert str(FOUND["time_against_sigma"]["p + q > 1"]["0.1"]) == "nan"


START_PAGE = ROOT / "docs" / "howto" / "choose_start.md"
WORDS = {"Gaussian 0.02": "N(0, 0.02²)", "Gaussian 1/√d": "N(0, 1/d)", "orthogonal": "orthogonal",
         "LG": "LG's", "balanced": "balanced"}  # fmt: skip
PLAIN = ("base", "GELU", "two logits", "d = 4", "d = 16", "d = 64", "N = 64", "N = 256")
NORMED = ("layer norm", "GPT-2's", "layer norm, d = 4", "layer norm, d = 16")
WIDE_NORMED, UNTIED = ("layer norm, d = 64",), ("untied", "GPT-2's, untied")
SMALL, WIDE, BALANCED = "Gaussian 0.02", "Gaussian 1/√d", "balanced"
#: The rows of the page: models, trainer, side of p + q = 1, and the starts to take.
ROWS = (
    (PLAIN, "descent", ">", [BALANCED]),
    (PLAIN, "AdamW", ">", [WIDE, BALANCED]),
    (NORMED, "descent", ">", [WIDE]),
    (NORMED, "AdamW", ">", [SMALL, BALANCED]),
    (WIDE_NORMED, "descent", ">", []),
    (WIDE_NORMED, "AdamW", ">", []),
    (UNTIED, "descent", ">", [WIDE, BALANCED]),
    (UNTIED, "AdamW", ">", [WIDE, BALANCED]),
    (PLAIN + NORMED + UNTIED, "descent", "<", [SMALL, BALANCED]),
    (PLAIN + NORMED + UNTIED, "AdamW", "<", [SMALL, WIDE, BALANCED]),
)


def test_the_lines_for_ones_own_model_are_the_starts():
    wide, code = re.findall(r"```python\n(.*?)```", START_PAGE.read_text(), re.DOTALL)
    space = {}
    exec(wide, space)
    down = space["model"].linear2.weight
    assert abs(down.std() * 32**0.5 - 1) < 0.1
    exec(code, space)
    arch = full_model.Architecture(d=4, length=6, hidden=16)
    weights = full_model.initial_weights(arch, "balanced", [0])
    torch.testing.assert_close(space["up"].double(), weights["0.up"][0], rtol=1e-6, atol=0)
    torch.testing.assert_close(space["down"].double(), weights["0.down"][0], rtol=1e-6, atol=0)


def counted(found, starts, models, trainer, side):
    """The runs at the bigram of every start, least to most over the models."""
    said = []
    for start in starts:
        lines = [found[f"{model}; {trainer}; p + q {side} 1"][start] for model in models]
        assert {line["runs"] for line in lines} == {16}
        least, most = (pick(line["bigram"] for line in lines) for pick in (min, max))
        said.append(f"{WORDS[start]} {least}" + f" to {most}" * (most > least))
    return "; ".join(said)


def test_the_advice_is_that_of_the_record():
    found = json.loads((ROOT / "figures/first_weights.json").read_text())
    rows = [line for line in START_PAGE.read_text().splitlines() if line.startswith("| ")][1:]
    assert len(rows) == len(ROWS)
    for row, (models, trainer, side, take) in zip(rows, ROWS, strict=True):
        *_, by, taken, own, others, _ = (cell.strip() for cell in row.split("|"))
        rest = [start for start in WORDS if start not in take]
        assert (by, taken) == (trainer, " or ".join(WORDS[start] for start in take) or "none")
        assert own == (counted(found, take, models, trainer, side) or "–")
        assert others == counted(found, rest, models, trainer, side)


def test_the_steps_are_those_of_the_record():
    found = json.loads((ROOT / "figures/first_weights.json").read_text())
    said = re.search(r"the median step is (.*?)\.\n", START_PAGE.read_text())[1]
    known = []
    for trainer in ("descent", "AdamW"):
        for start in (BALANCED, WIDE):
            steps = [found[f"{model}; {trainer}; p + q > 1"][start]["median step"]
                     for model in PLAIN + NORMED]  # fmt: skip
            known += [pick(step for step in steps if step) for pick in (min, max)]
    assert re.findall(r"\d+(?= to)|(?<=to )\d+", said) == [f"{step:.0f}" for step in known]


def test_the_entries_are_those_of_the_file():
    cff = (ROOT / "CITATION.cff").read_text()
    page = " ".join((ROOT / "docs" / "cite.md").read_text().split())
    software, *papers = re.split(r"^  - type: article$", cff, flags=re.M)
    (title,) = re.findall(r'^title: "(.*)"', software, flags=re.M)
    (version,) = re.findall(r"^version: (.*)$", software, flags=re.M)
    assert f"title = {{{title}}}" in page and f"version = {{{version}}}" in page
    for paper in papers:
        url = re.search(r'url: "(.*)"', paper)[1]
        (entry,) = [entry for entry in page.split("@article") if f"{{{url}}}" in entry]
        for pattern in (r'title: "(.*)"', r"year: (\d+)"):
            assert f"{{{re.search(pattern, paper)[1]}}}" in entry
        names = re.findall(r"family-names: ([^,]+), given-names: ([^}]+)}", paper)
        assert " and ".join(f"{family}, {given}" for family, given in names) in entry
