"""The script of depth: the block at the unigram is the whole Hessian's, and opens under AdamW."""

import depth as script
import numpy as np
import pytest
from results_tables import TABLES


@pytest.mark.slow
@pytest.mark.parametrize("layers", [1, 3])
def test_the_block_opens_under_adamw_and_stays_under_descent(layers):
    steps = range(0, 161, script.EVERY)
    runs = {name: script.followed(layers, name, 2, 160).assign_coords(step=steps)
            for name in ("gd", "adamw")}  # fmt: skip
    for record in runs.values():
        assert script.counted(record)["whole_hessian_off"] < 1e-7
        assert np.allclose(record.smallest[0], runs["gd"].smallest[0])
    chain = script.CHAIN
    pi0, pi1 = chain.stationary
    # AM Thm. 2 at small weights: 2 π₀π₁ (p + q − 1)
    assert runs["gd"].smallest.values == pytest.approx(
        2 * pi0 * pi1 * (chain.p + chain.q - 1), rel=0.02
    )
    assert (runs["adamw"].smallest[-1] < 0.8 * runs["gd"].smallest[-1]).all()
    found = {f"L = {layers}": script.counted(record) for record in runs.values()}
    head, rows = TABLES["depth"][1]({"made": {}, "sizes": {}} | found)
    assert {len(row) for row in rows} == {len(head)}


@pytest.mark.slow
def test_untied_the_unigram_is_no_trap():
    record = script.followed(2, "gd", 2, 300, tied=False)
    record = record.assign_coords(step=range(0, 301, script.EVERY))
    found = script.counted(record)
    assert found["whole_hessian_off"] < 1e-7
    # at small weights the block is −π₀π₁λ times [0 1; 1 0] in (e, u), for every direction of e
    pi0, pi1 = script.CHAIN.stationary
    wanted = -pi0 * pi1 * abs(script.CHAIN.second_eigenvalue)
    assert record.smallest[0].values == pytest.approx(wanted, rel=0.02)
    assert found["left"] == found["opened"] == 2
    assert found["overlap"][1] > 0.9 and found["plateau_steps"][0] < found["left_step"][0]
