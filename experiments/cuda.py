"""Ensembles of whole transformers on a GPU. One command, part by part.

1. basins_above and basins_below: 1 024 whole transformers each at p + q above 1 and below, d = 8,
   N = 64, softmax attention, lifted from a grid over |e|, |w| ≤ 2 with noise 0.02 on every weight
   and trained by SGD, beside the rank-one flow: the figure cuda_basins.png.
2. adamw: seeds of AdamW at the papers' sizes and with their schedule (AM Table 2: warm-up and
   cosine), N = 1 024 and 8 000 steps, d = 4, 8 and 16, at p + q above and below 1.

LG's figure of initializations and AM Fig. 1 at the papers' sizes are lg_initialization.py and
am_fig1_depth.py with --papers --device cuda.

Each part has a record of its own, cuda_PART.json, which stays when a later one fails; the command
begins again with the first that is not there. In the end the table cuda.md is made of all records
in the folder, and the figure of those of the basins. Each part takes about three minutes on an H100
with 16 cores; one of the basins takes 25 minutes on one core.

    python experiments/cuda.py [--device cpu --small] [--out figures] [--overwrite]
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import papers
import torch
from matplotlib.figure import Figure
from papers import ABOVE, BELOW, BLUE, FIGURES

import flowsim
from flowsim import BinaryChain
from flowsim.arrays import resolve_device
from flowsim.drawing.style import DPI, save_figure
from flowsim.errors import InputError
from flowsim.labels import Label
from flowsim.models.rank_one.model import RankOneModel
from flowsim.records.netcdf import write_atomically
from full_model import Architecture, Comparison, grid_points, papers_recipe, train, wilson
from full_model.comparison.outcome import LEARNED_SAMPLED, open_gap
from full_model.comparison.sampled import run_settings
from full_model.comparison.side_by_side import lifted_weights

NAME = "cuda"
#: Sizes of the parts, and those of --small.
LARGE = {"seeds": 4, "training": (1024, 8000), "widths": (4, 8, 16), "basins": (32, 5000)}
SMALL = {"seeds": 2, "training": (16, 10), "widths": (4,), "basins": (2, 20)}

Found = dict[str, Any]
#: SGD of part 1, as in agreement_sampled.py.
SGD: Found = {"d": 8, "length": 64, "batch": 32, "learning_rate": 0.2}


def adamw(device: str, sizes: Found) -> Found:
    """Ends of sampled AdamW from seeds of every width, and their median losses."""
    (length, steps), found = sizes["training"], {}
    cases = {
        f"d = {d}": papers.ensemble(
            Architecture(d, length), papers_recipe(steps), (ABOVE, BELOW), sizes["seeds"],
            test_batch=16, device=device,
        )
        for d in sizes["widths"]
    }  # fmt: skip
    for name, settings in cases.items():
        began = time.perf_counter()
        record, _ = train(settings)
        lines = record.rename(step="line").assign_coords(line=range(record.sizes["step"]))
        pairs = dict.fromkeys(zip(record.p.values.tolist(), record.q.values.tolist(), strict=True))
        parts = {f"p = {p:g}, q = {q:g}": papers.chain_part(lines, BinaryChain(p, q))
                 for p, q in pairs}  # fmt: skip
        found[name] = {
            "length": settings.arch.length, "steps": settings.recipe.steps,
            "seconds": time.perf_counter() - began, "step": record.step.values.tolist(),
            "ends": {chain: papers.outcome(part) for chain, part in parts.items()},
            "median loss": {chain: part.loss.median("model").values.tolist()
                            for chain, part in parts.items()},
        }  # fmt: skip
    return found


#: The parts of the figure and their chains.
BASINS = {"basins_above": ABOVE, "basins_below": BELOW}


def basins(chain: BinaryChain, device: str, sizes: Found) -> Found:
    """Ends of whole transformers that start on a grid of the plane, beside the rank-one flow."""
    cells, steps = sizes["basins"]
    points = grid_points(cells, cells)
    settings = Comparison(
        chain.p, chain.q, "rank-one", "sgd", noise=0.02, steps=steps, device=device,
        dtype="float32", **SGD,
    )  # fmt: skip
    run = replace(run_settings(settings, len(points)), telemetry_every=steps // 20)
    began = time.perf_counter()
    record, _ = train(run, initial=lifted_weights(settings, points))
    seconds = time.perf_counter() - began
    share = open_gap(chain, record.loss.values[-1])
    learned = np.isfinite(record.escape.values) & (share <= LEARNED_SAMPLED)
    model = RankOneModel(chain, settings.length)
    flow = flowsim.find_limits(model, model.from_canonical(points)).label.numpy()
    lost = record.finite.values == 0
    predicted, decided = flow == Label.GLOBAL_MINIMUM, ~lost & (flow != Label.UNRESOLVED)
    agree = (learned == predicted)[decided]
    low, high = wilson(int(agree.sum()), len(agree))
    return {f"p = {chain.p:g}, q = {chain.q:g}": {
        "starts": len(points), "d": settings.d, "length": settings.length, "noise": 0.02,
        "batch": settings.batch, "learning rate": settings.learning_rate, "steps": steps,
        "seconds": seconds, "decided": len(agree), "agree": int(agree.sum()),
        "agreement": float(agree.mean()), "low": low, "high": high,
        "learned": int(learned.sum()), "flow learns": int(predicted.sum()),
        "open share at the end": [*map(float, np.quantile(share[~learned], [0, 0.5, 1]))]
        if (~learned & ~lost).any() else [],
        "grid": _strings(np.where(lost, "x", np.where(learned, "1", "0")), cells),
        "flow": _strings(flow.astype(str), cells),
    }}  # fmt: skip


def _strings(labels: np.ndarray, columns: int) -> list[str]:
    """A grid's codes, a string for each row of points."""
    return ["".join(row) for row in labels.reshape(-1, columns)]


#: First words of the entries of a portrait's legend that the figure keeps.
SHOWN = ("reaches", "trapped", "the", "basin", "separatrix", "critical")


def draw_basins(records: dict[str, Found]) -> Figure:
    """A panel for each record: the flow's basins, and on them where every transformer ended."""
    figure = Figure(figsize=(6.4 * len(records), 7.4), layout="constrained")
    panels = figure.subplots(1, len(records), squeeze=False)[0]
    kept: dict[str, Any] = {}
    for axes, (part, record) in zip(panels, records.items(), strict=True):
        chain = BASINS[part]
        case = record["found"][f"p = {chain.p:g}, q = {chain.q:g}"]
        model = flowsim.model("rank-one", chain.p, chain.q, length=case["length"])
        window = {"w": (-2.0, 2.0), "e": (-2.0, 2.0)}
        drawn = flowsim.portrait(model, window=window, resolution=8 if record["small"] else 128)
        drawn = drawn.drop_vars("sliding_time")  # its dots would look like the transformers'
        for one in flowsim.draw(drawn, ax=axes, legend=False, title=False, orbits=False):
            words = str(one.get_label()).split(" (")[0]  # its share is one panel's
            if words.split()[0] in SHOWN:
                kept.setdefault(words.split(":")[0], one).set_label(words)
        grid = np.array([list(row) for row in case["grid"]]).ravel()
        points = grid_points(len(case["grid"][0]), len(case["grid"])).numpy()
        learns = str(int(Label.GLOBAL_MINIMUM))
        flow = np.array([list(row) for row in case["flow"]]).ravel() == learns
        for code, words, style in (
            ("1", "transformer learned the bigram",
             {"marker": "o", "color": BLUE, "edgecolors": "white", "linewidths": 0.3}),
            ("0", f"not learned in {case['steps']} steps",
             {"marker": "x", "color": "black", "linewidths": 0.8}),
        ):  # fmt: skip
            on = grid == code
            axes.scatter(points[on, 1], points[on, 0], s=11, label=words, **style)
        off = (grid != "x") & ((grid == "1") != flow)
        axes.scatter(points[off, 1], points[off, 0], s=50, facecolors="none", edgecolors="#CC79A7",
                     linewidths=1.6, label="otherwise than the flow")  # fmt: skip
        axes.set_title(
            f"{papers.caption(chain)}: {case['agree']} of {case['decided']} as the flow says\n"
            f"trained on {'the CPU' if (card := record['machine']['gpu']) == 'none' else card}",
            fontsize=10,
        )  # fmt: skip
    marks, _ = figure.axes[0].get_legend_handles_labels()
    figure.legend(
        handles=[*marks[-3:], *kept.values()], loc="outside lower center", ncols=2, fontsize=9,
        frameon=False,
    )  # fmt: skip
    figure.suptitle(
        "Where whole transformers end, and the basins of the rank-one flow", fontsize=11
    )
    return figure


PARTS: dict[str, Callable[[str, Found], Found]] = {
    **{part: partial(basins, chain) for part, chain in BASINS.items()}, "adamw": adamw,
}  # fmt: skip


def machine(device: str) -> dict[str, str]:
    """Card, driver and versions of the machine."""
    found = {"torch": str(torch.__version__), "python": platform.python_version(),
             "flowsim": flowsim.__version__, "cpu cores": str(os.cpu_count())}  # fmt: skip
    if device == "cpu":
        return {"gpu": "none", **found}
    ask = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        said = subprocess.run(ask, capture_output=True, text=True, check=False).stdout.split()
    except OSError:  # the program is not there
        said = []
    return {"gpu": torch.cuda.get_device_name(), "driver": (said or ["unknown"])[0],
            "cuda": str(torch.version.cuda), **found}  # fmt: skip


def record_of(part: str, device: str, small: bool) -> Found:
    """Run one part: what it found, and how long it took."""
    began = time.perf_counter()
    found = PARTS[part](device, SMALL if small else LARGE)
    seconds = time.perf_counter() - began
    words = f"python experiments/{NAME}.py --device {device}" + " --small" * small
    print(f"{part}: {seconds:.0f} s", file=sys.stderr)
    return {"made": papers.made(words), "machine": machine(device), "small": small,
            "seconds": seconds, "found": found}  # fmt: skip


def table(records: dict[str, Found]) -> str:
    """One line for each number of the records, in Markdown."""
    lines = ["| part | what | value |", "|---|---|---|"]
    for part, record in records.items():
        on = ", ".join(f"{name} {value}" for name, value in record["machine"].items())
        lines += [f"| {part} | machine | {on} |", f"| {part} | took | {record['seconds']:.0f} s |"]
        for name, value in record["found"].items():
            rows = value if isinstance(value, dict) else {"": value}
            shown = {k: v for k, v in rows.items() if not isinstance(v, dict | list)}
            for chain, end in rows.get("ends", {}).items():
                shown[f"{chain}: at the bigram"] = f"{end['bigram']} of {end['models']}"
            for key, v in shown.items():
                number = f"{v:.4g}" if isinstance(v, float) else str(v)
                lines.append(f"| {part} | {': '.join(x for x in (name, key) if x)} | {number} |")
    return "\n".join(lines) + "\n"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda", help="cuda (default), or cpu with --small")
    parser.add_argument("--small", action="store_true", help="sizes that take seconds")
    parser.add_argument("--out", type=Path, default=FIGURES, help="folder (default: figures)")
    parser.add_argument("--overwrite", action="store_true", help="begin again with the first part")
    options = parser.parse_args(arguments)
    try:
        device = resolve_device(options.device)
        options.out.mkdir(parents=True, exist_ok=True)
        torch.set_num_threads(1)
        for part in PARTS:
            path = options.out / f"{NAME}_{part}.json"
            if options.overwrite or not path.exists():
                papers.write_json(path, papers.rounded(record_of(part, device, options.small)))
            print(path)
        records: dict[str, Found] = {
            path.stem.removeprefix(f"{NAME}_"): json.loads(path.read_text())
            for path in sorted(options.out.glob(f"{NAME}_*.json"))
        }
        write_atomically(options.out / f"{NAME}.md", lambda to: to.write_text(table(records)))
        figure = draw_basins({part: records[part] for part in BASINS})
        save = partial(save_figure, figure, dpi=DPI)
        write_atomically(options.out / f"{NAME}_basins.png", save)
        print(options.out / f"{NAME}_basins.png")
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    print(options.out / f"{NAME}.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
