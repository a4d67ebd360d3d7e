"""The lines of the page on first weights, against the package's own."""

import json
import re
from pathlib import Path

import torch

import full_model

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "howto" / "choose_start.md"
TRAINERS = "population gradient descent, d = 8", "AdamW, d = 4", "AdamW, d = 8"


def test_the_lines_for_ones_own_model_are_the_balanced_start():
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    space = {}
    exec(code, space)
    arch = full_model.Architecture(d=4, length=6, hidden=16)
    weights = full_model.initial_weights(arch, "balanced", [0])
    torch.testing.assert_close(space["up"].double(), weights["0.up"][0], rtol=1e-6, atol=0)
    torch.testing.assert_close(space["down"].double(), weights["0.down"][0], rtol=1e-6, atol=0)


def of_chains(trainer, start, above=True):
    """How many of a start's runs are at the bigram, on one side of p + q = 1."""
    found = json.loads((ROOT / "figures/balanced_start.json").read_text())
    return sum(line["bigram"] for case, line in found.items()
               if case.startswith(trainer) and f"; {start}; " in case
               and (line["p"] + line["q"] > 1) == above)  # fmt: skip


def changed(model):
    """At the bigram: Gaussian by descent and AdamW, LG's and balanced by descent."""
    found = json.loads((ROOT / "figures/width_of_truth.json").read_text())[model]
    runs = "descent, Gaussian", "AdamW, Gaussian", "descent, recommended", "descent, balanced"
    assert all(found[run]["runs"] == 16 for run in runs)
    return [found[run]["bigram"] for run in runs]


def test_the_advice_is_that_of_the_records():
    descent, *adamw = (
        [of_chains(trainer, start) for start in ("balanced", "gaussian", "recommended")]
        for trainer in TRAINERS
    )
    balanced, gaussian, recommended = zip(*adamw, strict=True)
    for start in ("gaussian", "balanced"):
        assert [of_chains(trainer, start, above=False) for trainer in TRAINERS] == [16] * 3
    (below,) = {of_chains(trainer, "recommended", above=False) for trainer in TRAINERS[1:]}
    norm, gelu, two, untied, three = map(
        changed, ("layer norm", "GELU", "two layers", "untied", "three states")
    )
    assert three == [0] * 4 and gelu[2] == gelu[3]
    said = [
        "{} of 48 | Gaussian {} of 48, LG's {} of 48".format(*descent),
        "{} and {} of 48 | Gaussian {} and {} of 48, LG's {} and {} of 48".format(
            *balanced, *gaussian, *recommended
        ),
        f"16 of 16 each time | LG's under AdamW, {below} of 16",
        f"Gaussian {norm[0]} of 16 | balanced {norm[3]} of 16, LG's {norm[2]} of 16",
        f"AdamW | Gaussian | {norm[1]} of 16",
        f"{gelu[3]} of 16 each | Gaussian {gelu[0]} of 16",
        f"not known | | Gaussian {gelu[1]} of 16",
        f"{two[3]} of 16 | Gaussian {two[0]} of 16, LG's {two[2]} of 16",
        f"{untied[3]} of 16 | LG's {untied[2]} of 16; Gaussian on the way, {untied[0]} of 16",
        f"AdamW | Gaussian | {untied[1]} of 16",
        "all three, 0 of 16 each",
        f"not known | | Gaussian {three[1]} of 16",
    ]
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")][1:]
    for row, words in zip(rows, said, strict=True):
        assert words in row
