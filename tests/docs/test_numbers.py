"""The numbers of the first page of results are those of the records; no other stands there."""

import json
import re
from pathlib import Path

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
