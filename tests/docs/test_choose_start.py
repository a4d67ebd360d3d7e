"""The lines of the page on first weights, against the package's own."""

import re
from pathlib import Path

import torch

import full_model

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "choose_start.md"


def test_the_lines_for_ones_own_model_are_the_balanced_start():
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    space = {}
    exec(code, space)
    arch = full_model.Architecture(d=4, length=6, hidden=16)
    weights = full_model.initial_weights(arch, "balanced", [0])
    torch.testing.assert_close(space["up"].double(), weights["0.up"][0], rtol=1e-6, atol=0)
    torch.testing.assert_close(space["down"].double(), weights["0.down"][0], rtol=1e-6, atol=0)
