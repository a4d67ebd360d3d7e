"""The lines of the page on first weights, against the package's own."""

import json
import re
from pathlib import Path

import torch

import full_model

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "howto" / "choose_start.md"
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
    wide, code = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
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
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")][1:]
    assert len(rows) == len(ROWS)
    for row, (models, trainer, side, take) in zip(rows, ROWS, strict=True):
        *_, by, taken, own, others, _ = (cell.strip() for cell in row.split("|"))
        rest = [start for start in WORDS if start not in take]
        assert (by, taken) == (trainer, " or ".join(WORDS[start] for start in take) or "none")
        assert own == (counted(found, take, models, trainer, side) or "–")
        assert others == counted(found, rest, models, trainer, side)


def test_the_steps_are_those_of_the_record():
    found = json.loads((ROOT / "figures/first_weights.json").read_text())
    said = re.search(r"the median step is (.*?)\.\n", PAGE.read_text())[1]
    known = []
    for trainer in ("descent", "AdamW"):
        for start in (BALANCED, WIDE):
            steps = [found[f"{model}; {trainer}; p + q > 1"][start]["median step"]
                     for model in PLAIN + NORMED]  # fmt: skip
            known += [pick(step for step in steps if step) for pick in (min, max)]
    assert re.findall(r"\d+(?= to)|(?<=to )\d+", said) == [f"{step:.0f}" for step in known]
