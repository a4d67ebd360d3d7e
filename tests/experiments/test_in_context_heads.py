"""The script of attention patterns: what counts as a match, and that every head is drawn."""

import json

import in_context_heads as script
import pytest
import torch
from results_tables import TABLES


@pytest.mark.parametrize("order", [1, 2, 3])
def test_a_place_matches_if_it_follows_the_same_context(order):
    tokens = torch.randint(2, (4, 9), generator=torch.Generator().manual_seed(0))
    found = script.follows(tokens, order)
    for b, word in enumerate(tokens.tolist()):
        for n in range(9):
            for i in range(9):
                same = order <= i <= n and word[i - order : i] == word[n - order + 1 : n + 1]
                assert bool(found[b, n, i]) == same, (word, n, i)


@pytest.mark.slow
def test_every_head_is_drawn_and_tabulated(tmp_path, monkeypatch):
    tiny = tuple(script.Sizes(order, 4, 18, 3, batch=2, test=8) for order in (1, 2))
    monkeypatch.setitem(script.KINDS, "usual", tiny)
    assert script.main(["--out", str(tmp_path)]) == 0
    found = json.loads((tmp_path / "in_context_heads.json").read_text())
    head, rows = TABLES["in_context_heads"][1](found)
    assert len(rows) == 4 and {len(row) for row in rows} == {len(head)}
    for line in found["cases"]:
        assert 0 < line["chance"] < 1 and len(line["counting"]) == line["order"] + 1
        back = torch.tensor(line["back"])
        assert back.shape == (2, 2, script.BACK) and bool((back.sum(-1) <= 1 + 1e-6).all())
    assert (tmp_path / "in_context_heads.png").stat().st_size > 20_000
