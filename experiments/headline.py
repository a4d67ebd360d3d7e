"""Does the transformer leave the unigram? Gradient descent and AdamW, tied and untied, two depths.

What AM and LG report: a single-layer transformer with tied weights stays at the unigram loss where
p + q > 1 and reaches the bigram loss where p + q < 1; untied, or with two layers, it reaches the
bigram loss in both (AM Figs. 1 and 3).

What this script does: eight seeds of each case from Gaussian weights of deviation 0.02, d = 8,
r = 32, trained twice over: by gradient descent on the exact population loss (N = 8, all 256
sequences), and by AdamW with the numbers of AM Table 2 on fresh batches of 16 sequences.

What differs from the papers: sequences of N = 64 instead of 1 024 for AdamW (--length 1024 is the
papers' size) and of N = 8 for gradient descent, which the papers do not use; no layer norm, ReLU
and float64, as in the papers' theory, where their code has layer norm, GELU and half precision; a
correct stationary start and correct last targets (their code draws P(x₁ = 1) = q/(p + q) and ends
every sequence with the target 0); the loss shown is the entropy rate plus the divergence from the
chain on 64 held-out sequences per model (exact for gradient descent), not the training batch's.

What we find is written into the figure's caption file (headline.json) with every number, and the
page of results quotes it. For gradient descent the unigram is a trap at (0.5, 0.8), as the papers
say of one tied layer, and it traps two tied layers too. For AdamW it is a plateau: all 8 tied
single layers leave it, after about 1 400 of the papers' 8 000 iterations, and two layers after
about 700. (At d = 4 it lasts longer: am_appendix_d.py, 2 of 8 runs in 8 000 steps.)

    python experiments/headline.py [--out figures/headline] [--seeds 8] [--length 64]
                                   [--steps 8000] [--descent-steps 1600] [--overwrite]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt
import numpy as np
import torch
import xarray as xr
from papers import caption, draw_levels, made, write_png

from flowsim.chain import BinaryChain
from flowsim.errors import InputError
from flowsim.records.attributes import provenance
from flowsim.records.netcdf import write_record
from full_model import Architecture, Recipe, RunSettings, papers_recipe, train

CHAINS = ((0.5, 0.8), (0.2, 0.3))
COLOURS = {"tied": "#0072B2", "untied": "#D55E00", "two layers, tied": "#000000"}


@dataclass(frozen=True)
class Case:
    """One architecture under one trainer on both chains."""

    name: str
    trainer: str
    layers: int
    tied: bool


CASES = [
    Case(name, trainer, layers, tied)
    for trainer in ("gd", "adamw")
    for name, layers, tied in (
        ("tied", 1, True),
        ("untied", 1, False),
        ("two layers, tied", 2, True),
    )
]


def settings(case: Case, options: argparse.Namespace) -> RunSettings:
    """The run of a case: seeds × chains, as one ensemble."""
    if case.trainer == "gd":
        recipe = Recipe("gd", steps=options.descent_steps, learning_rate=0.5)
        length = options.descent_length
    else:
        recipe = papers_recipe(steps=options.steps)
        length = options.length
    arch = Architecture(8, length, layers=case.layers, tied=case.tied)
    seeds = range(options.seeds)
    return RunSettings(
        arch,
        recipe,
        p=tuple(p for p, _ in CHAINS for _ in seeds),
        q=tuple(q for _, q in CHAINS for _ in seeds),
        seeds=tuple(s for _ in CHAINS for s in seeds),
        telemetry_every=max(1, recipe.steps // 80),
        checkpoint_every=max(1, recipe.steps // 8),
        test_batch=64,
    )


def summary(case: Case, record: xr.Dataset) -> list[dict[str, object]]:
    """Per chain: final losses, and plateau and escape in steps (times the rate for descent)."""
    lines = []
    for p, q in CHAINS:
        part = record.isel(model=(record.p.values == p) & (record.q.values == q))
        final = part.loss.values[-1]
        escape = part.escape.values
        left = escape[np.isfinite(escape)]
        stay = part.plateau_length.values[np.isfinite(escape)]
        lines.append(
            {
                "trainer": case.trainer,
                "model": case.name,
                "p": p,
                "q": q,
                "seeds": len(final),
                "unigram": float(part.stationary_entropy[0]),
                "bigram": float(part.entropy_rate[0]),
                "final_loss_median": float(np.median(final)),
                "final_loss_min": float(final.min()),
                "final_loss_max": float(final.max()),
                "left_the_unigram": len(left),
                "escape_step_min": float(left.min()) if len(left) else None,
                "escape_step_median": float(np.median(left)) if len(left) else None,
                "escape_step_max": float(left.max()) if len(left) else None,
                "plateau_steps_median": float(np.median(stay)) if len(stay) else None,
                "attention_share_median": float(np.median(part.attention_share.values[-1])),
            }
        )
    return lines


def joined(records: dict[Case, xr.Dataset]) -> xr.Dataset:
    """All cases in one small record over case, line (of telemetry) and model."""
    parts = []
    for record in records.values():
        kept = record[["loss", "train_loss", "canonical", "relative_distance", "probability"]]
        kept = kept.astype("float32").merge(record[["p", "q", "seed", "escape", "plateau_length"]])
        share = record.attention_share.mean("layer").astype("float32")
        lines = kept.assign(attention_share=share).rename(step="line")
        parts.append(lines.assign_coords(line=range(record.sizes["step"])))
        parts[-1]["step"] = ("line", record.step.values)
    whole = xr.concat(parts, dim="case", join="outer", combine_attrs="drop")
    whole = whole.assign_coords(case=[f"{case.trainer}, {case.name}" for case in records])
    whole.attrs = {"title": "headline experiment", "torch": str(torch.__version__)}
    return whole


def draw(whole: xr.Dataset, path: Path) -> None:
    """Loss curves of the joined record: a row per trainer, a column per chain."""
    figure, axes = plt.subplots(
        2, 2, figsize=(10, 6.6), sharex="row", layout="constrained", width_ratios=(1.5, 1)
    )
    runs = json.loads(whole.attrs["settings"])
    titles = {"gd": "population gradient descent", "adamw": "AdamW, batches of 16"}
    styles = {"tied": ("-", 5.0, 0.09), "untied": ("--", 1.0, 0.9),
              "two layers, tied": ("-.", 1.2, 0.9)}  # fmt: skip
    for row, trainer in enumerate(titles):
        for column, (p, q) in enumerate(CHAINS):
            ax, chain = axes[row, column], BinaryChain(p, q)
            for name, (dash, width, alpha) in styles.items():
                part = whole.sel(case=f"{trainer}, {name}")
                part = part.isel(model=(part.p.values == p) & (part.q.values == q))
                # one layer as a pale band under two: both are seen where they coincide
                curves = ax.plot(
                    part.step, part.loss, dash, color=COLOURS[name], lw=width, alpha=alpha
                )
                curves[0].set_label(name)
            draw_levels(ax, chain)
            arch = runs[f"{trainer}, tied"]["arch"]
            sizes = f"$d$ = {arch['d']}, $N$ = {arch['length']}, {part.sizes['model']} seeds"
            ax.set_title(f"{titles[trainer]}: {sizes}\n{caption(chain)}", fontsize=9)
            ax.set(xlabel="step", ylabel="next-symbol loss (nats)")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    legend = figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    for handle in legend.legend_handles:
        handle.set_alpha(0.8)
    write_png(figure, path)
    plt.close(figure)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("figures/headline"))
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--steps", type=int, default=8000)
    parser.add_argument("--descent-length", type=int, default=8)
    parser.add_argument("--descent-steps", type=int, default=1600)
    parser.add_argument("--overwrite", action="store_true")
    parser.add_argument("--redraw", action="store_true", help="draw OUT.nc again, compute nothing")
    options = parser.parse_args(arguments)
    out: Path = options.out
    if options.redraw:
        with xr.open_dataset(out.with_suffix(".nc"), engine="h5netcdf") as record:
            draw(record.load(), out.with_suffix(".png"))
        return 0
    files = [out.with_suffix(suffix) for suffix in (".png", ".nc", ".json")]
    try:
        if not options.overwrite and any(file.exists() for file in files):
            raise InputError(f"{out} exists: pass --overwrite or another --out")
        out.parent.mkdir(parents=True, exist_ok=True)
        runs = {case: settings(case, options) for case in CASES}
        records, lines = {}, []
        for case, run in runs.items():
            begin = time.perf_counter()
            records[case], _ = train(run)
            lines += summary(case, records[case])
            print(
                f"{case.trainer} {case.name}: {time.perf_counter() - begin:.0f} s", file=sys.stderr
            )
        whole = joined(records)
        whole.attrs["settings"] = json.dumps(
            {f"{case.trainer}, {case.name}": run.as_dict() for case, run in runs.items()}
        )
        command = " ".join(
            ["python experiments/headline.py --overwrite", *_changed(parser, options)]
        )
        whole.attrs |= provenance({"title": "headline"}) | {"command": command}
        write_record(whole, files[1])
        caption = {
            "made": made(command),
            "differs_from_the_papers": _differences(options),
            "results": lines,
        }
        files[2].write_text(json.dumps(caption, indent=1, ensure_ascii=False) + "\n")
        draw(whole, files[0])
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    for line in lines:
        print(json.dumps(line))
    return 0


def _changed(parser: argparse.ArgumentParser, options: argparse.Namespace) -> list[str]:
    """The sizes that are not the default ones, as options."""
    names = ("seeds", "length", "steps", "descent_length", "descent_steps")
    given = {name: getattr(options, name) for name in names}
    return [
        f"--{name.replace('_', '-')} {value}"
        for name, value in given.items()
        if value != parser.get_default(name)
    ]


def _differences(options: argparse.Namespace) -> str:
    return (
        f"AdamW sees sequences of N = {options.length} (papers: 1024), gradient descent (not used "
        f"in the papers) the exact loss at N = {options.descent_length}; no layer norm, ReLU, "
        "float64 (papers' code: layer norm, GELU, half precision); stationary starts and true last "
        "targets; the loss is the entropy rate plus the divergence on held-out sequences, exact "
        "for gradient descent; times are read off every 100th step of AdamW and 20th of descent."
    )


if __name__ == "__main__":
    sys.exit(main())
