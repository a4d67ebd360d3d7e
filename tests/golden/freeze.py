"""Write the goldens anew, with the flowsim that is imported: python tests/golden/freeze.py [CASE …]

They were written by commit 25dbe68, but rules of induction, which stops below its pass.
To write them with another tree: PYTHONPATH=THAT_TREE.
"""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import torch
from golden.cases import CASES, Case, agreement, measure

import flowsim


def shortened(values: np.ndarray, bits: int) -> np.ndarray:
    """float32 with so many bits after the first, rounded."""
    drop = 23 - bits
    whole = np.ascontiguousarray(values, dtype=np.float32)
    if drop == 0:
        return whole
    raw = whole.view(np.uint32)
    kept = (raw + np.uint32(1 << (drop - 1))) & np.uint32(0xFFFFFFFF << drop & 0xFFFFFFFF)
    return np.where(np.isfinite(whole), kept.view(np.float32), whole)


def stored(found: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The same in few bytes: losses to 1e-9, times to 1e-5 of themselves, the rest to 1e-7."""
    short = {
        "loss": np.round(found["loss"], 9),
        "time": shortened(found["time"], 16),
        "ends": found["ends"].astype(np.float32),
        "paths": found["paths"].astype(np.float32),
    }
    codes = {name: found[name].astype(np.int8) for name in ("label", "rule", "status")}
    return {**found, **short, **codes}


def firm(case: Case, chain: int, found: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Which labels, other numbers and paths stay, to half of what is allowed, as tolerances change.

    What moves with a tolerance was decided by the engine's error, and no later engine need find it
    again; nor what rounding decided.
    """
    others = [agreement(case, measure(case, chain, finer=x), found, 0.5) for x in (0.1, 3.0)]
    same = {name: others[0][name] & others[1][name] for name in others[0]}
    model = case.on(chain)
    if case.mirror:
        one, two = (model.coordinates.index(name) for name in case.mirror)
        starts, ends = case.starts(chain, model), found["ends"]
        equal = starts[:, one] == starts[:, two]
        left = np.abs(np.abs(ends[:, one]) - np.abs(ends[:, two])) > case.ends
        left |= ends[:, one] * ends[:, two] < 0
        rounded = equal & left
        same["label"] &= ~rounded
    else:
        rounded = np.zeros(len(found["label"]), dtype=bool)
    numbers = same["label"] & same["loss"] & same["ends"] & same["time"]
    paths = same["paths"] & ~rounded[: len(same["paths"])]
    return {"firm_label": same["label"], "firm": numbers, "firm_paths": paths}


def main(names: list[str]) -> None:
    """Freeze the named cases, or all."""
    torch.set_num_threads(1)
    print(f"with {flowsim.__file__}")
    for case in CASES:
        if names and case.name not in names:
            continue
        began = time.perf_counter()
        parts = []
        for chain in range(len(case.chains)):
            found = measure(case, chain)
            parts.append({**stored(found), **firm(case, chain, found)})
        np.savez_compressed(case.path, **{k: np.stack([p[k] for p in parts]) for k in parts[0]})
        counts = [np.bincount(part["label"], minlength=4).tolist() for part in parts]
        took, size = time.perf_counter() - began, case.path.stat().st_size
        print(f"{case.name}: labels {counts}, {took:.1f} s, {size / 1e3:.0f} kB")
        loose = [
            [int((~part[x]).sum()) for x in ("firm_label", "firm", "firm_paths")] for part in parts
        ]
        print(f"    not firm (labels, numbers, paths): {loose}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
