"""Common parts of the scripts of the papers' figures: options, trained cases, outcomes, files.

A script gives three functions: ``compute(**sizes)`` returns a record, ``numbers(record)`` what is
found in it, ``draw(record)`` or ``draw(record, numbers)`` the figure, or None where a table says
it. Figure and numbers come from the record alone.
"""

import argparse
import inspect
import json
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from scipy.stats import binomtest

from flowsim.chain import BinaryChain
from flowsim.drawing.comparison import mark_level
from flowsim.drawing.style import DPI, save_figure
from flowsim.errors import InputError
from flowsim.records.attributes import provenance
from flowsim.records.netcdf import write_atomically, write_record
from full_model import Architecture, Recipe, RunSettings, Weights, train, wilson

FIGURES = Path(__file__).parents[1] / "figures"
ABOVE, BELOW = BinaryChain(0.5, 0.8), BinaryChain(0.2, 0.3)
#: Okabe and Ito's colours, distinguishable with any kind of colour vision.
BLUE, ORANGE, GREEN, PINK, GREY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#555555"

Sizes = dict[str, Any]
T = TypeVar("T")
#: One figure, or several by the names of their files.
Figures = Figure | dict[str, Figure]


def experiment(
    module: str,
    compute: Callable[..., Any],
    numbers: Callable[[Any], dict[str, Any]],
    draw: Callable[..., Figures] | None,
    record: bool = True,
    papers: Sizes | None = None,
) -> Callable[[list[str] | None], int]:
    """The ``main`` of a script, called at once where the script is the program.

    It parses the options, computes, writes NAME.png, NAME.json and NAME.nc, and returns the exit
    code. Every parameter of ``compute`` is an option with its default.

    Args:
        module: the script's ``__name__``.
        compute, numbers, draw: see above.
        record: ``compute`` returns a record; else there is no NAME.nc, and it may return anything.
        papers: the papers' sizes, which --papers stands for.
    """
    script = sys.modules[module]

    def main(arguments: list[str] | None = None) -> int:
        name = Path(script.__file__ or "").stem
        default = {k: p.default for k, p in inspect.signature(compute).parameters.items()}
        options = _options(script.__doc__ or "", default, record, papers).parse_args(arguments)
        folder, begin = options.out, time.perf_counter()
        files = [folder / f"{name}{suffix}" for suffix in (".json", ".nc")[: 1 + record]]
        try:
            if record and options.redraw:
                told = json.loads((FIGURES / f"{name}.json").read_text())
                with xr.open_dataset(FIGURES / f"{name}.nc", engine="h5netcdf") as stored:
                    found = stored.load()
            else:
                if not options.overwrite and any(file.exists() for file in files):
                    raise InputError(f"{files[0]} exists: pass --overwrite or another --out")
                parts = folder / f"{name}.parts"
                if parts.exists() and not (options.resume or options.overwrite):
                    raise InputError(
                        f"{parts} has cases of a broken run: pass --resume or --overwrite"
                    )
                if parts.exists() and not options.resume:
                    shutil.rmtree(parts)
                folder.mkdir(parents=True, exist_ok=True)
                torch.set_num_threads(1)
                sizes = default | (papers if papers and options.papers else {})
                sizes |= {k: v for k, v in vars(options).items() if k in default and v is not None}
                with parts_in(parts):
                    found = compute(**sizes)
                    told = numbers(found)
                    _write(name, found, told, files, sizes, default)
                print(*files, sep="\n")
            both = draw is not None and "numbers" in inspect.signature(draw).parameters
            figures = draw(found, *[told] * both) if draw else {}
            several = {name: figures} if isinstance(figures, Figure) else figures
            for stem, figure in several.items():
                write = partial(save_figure, figure, dpi=DPI)
                write_atomically(folder / f"{stem}.png", write)
                print(folder / f"{stem}.png")
        except InputError as error:
            print(error, file=sys.stderr)
            return 2
        print(f"{name}: {time.perf_counter() - begin:.0f} s", file=sys.stderr)
        return 0

    if module == "__main__":
        sys.exit(main())
    return main


def _options(
    description: str, default: Sizes, record: bool, papers: Sizes | None
) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    if papers:
        parser.add_argument("--papers", action="store_true", help=f"these sizes: {papers}")
    parser.add_argument("--out", type=Path, default=FIGURES, help="folder (default: figures)")
    parser.add_argument("--overwrite", action="store_true")
    parser.add_argument("--resume", action="store_true", help="go on with a broken run")
    if record:
        texts = "draw figures/NAME.nc again, as NAME.png in --out, and compute nothing"
        parser.add_argument("--redraw", action="store_true", help=texts)
    for option, value in default.items():
        parser.add_argument(f"--{option.replace('_', '-')}", type=type(value))
    return parser


_PARTS: ContextVar[Path | None] = ContextVar("parts", default=None)


def parts_folder() -> Path | None:
    """The folder in which a script that runs keeps finished parts, from which --resume goes on."""
    folder = _PARTS.get()
    if folder:
        folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def parts_in(folder: Path) -> Iterator[None]:
    """Keep what is finished in a folder, which goes when all that needs it is written."""
    token = _PARTS.set(folder)
    try:
        yield
    finally:
        _PARTS.reset(token)
    shutil.rmtree(folder, ignore_errors=True)


def _write(
    study: str, found: Any, numbers: dict[str, Any], files: list[Path], sizes: Sizes, default: Sizes
) -> None:
    """The numbers, and the record if there is a file for it."""
    other = [f"--{k.replace('_', '-')} {v}" for k, v in sizes.items() if v != default[k]]
    about = made(" ".join([f"python experiments/{study}.py --overwrite", *other]))
    write_json(files[0], rounded({"made": about, "sizes": sizes} | numbers))
    if len(files) > 1:
        found.attrs = provenance({"title": study} | found.attrs | {"sizes": json.dumps(sizes)})
        found.attrs["command"] = about["command"]
        write_record(found, files[1])


def write_json(path: Path, tree: Any) -> None:
    """A tree of numbers, a line for each."""
    text = json.dumps(tree, indent=1, ensure_ascii=False) + "\n"
    write_atomically(path, lambda target: target.write_text(text))


def made(command: str) -> dict[str, Any]:
    """Command and commit of a record of numbers."""
    return {"command": command, "commit": provenance({})["commit"]}


def ensemble(
    arch: Architecture, recipe: Recipe, chains: Sequence[BinaryChain], seeds: int, looks: int = 80,
    **more: Any,
) -> RunSettings:  # fmt: skip
    """A run with the same seeds on every chain, so many looks, and AdamW in float32."""
    several = [chain for chain in chains for _ in range(seeds)]
    usual: dict[str, Any] = {
        "p": tuple(chain.p for chain in several),
        "q": tuple(chain.q for chain in several),
        "seeds": tuple(range(seeds)) * len(chains),
        "telemetry_every": max(1, recipe.steps // looks),
        "dtype": "float32" if recipe.trainer == "adamw" else "float64",
    }
    return RunSettings(arch, recipe, **(usual | more))


#: Columns of every model in a record of runs.
_OF_MODEL = ("p", "q", "seed", "escape", "plateau_length", "entropy_rate", "stationary_entropy")


def timed(items: Iterable[T], label: Callable[[T], object] = str) -> Iterator[T]:
    """Every item, and after its turn a line that says how long it took."""
    for item in items:
        begin = time.perf_counter()
        yield item
        print(f"{label(item)}: {time.perf_counter() - begin:.0f} s", file=sys.stderr, flush=True)


def stacked(cases: dict[Any, xr.Dataset], dim: str = "case") -> xr.Dataset:
    """One record over case; what is shorter in one of them ends in NaN."""
    whole = xr.concat(list(cases.values()), dim, join="outer", combine_attrs="drop")
    return whole.assign_coords({dim: list(cases)})


def trained(
    cases: dict[str, RunSettings],
    keep: Iterable[str] = (),
    initial: dict[str, Weights] | None = None,
) -> xr.Dataset:
    """Every case trained, as one small record over case, line (of telemetry) and model.

    Loss, predicted probabilities and what ``keep`` names are kept in single precision, of several
    layers their mean; the step of a line is ``step`` (case, line). A shorter case ends in NaN. A
    case with init "given" has its weights in ``initial``. A script that is broken off leaves the
    checkpoints of its cases in its folder of parts, from which they go on.
    """
    parts, folder = {}, parts_folder()
    for number, name in enumerate(timed(cases)):
        file = folder / f"{number}.safetensors" if folder else None
        resume = file is not None and file.exists()
        start = (initial or {}).get(name)
        record, _ = train(cases[name], checkpoint=file, resume=resume, initial=start)
        lines = record[["loss", "probability", *keep]].astype("float32")
        lines = lines.mean("layer") if "layer" in lines.dims else lines
        lines = lines.merge(record[[*_OF_MODEL]]).rename(step="line")
        lines = lines.assign_coords(line=range(record.sizes["step"]))
        lines["step"] = ("line", record.step.values.astype(float))
        parts[name] = lines
    runs = {name: settings.as_dict() for name, settings in cases.items()}
    return stacked(parts).assign_attrs(settings=json.dumps(runs, sort_keys=True))


def last(values: xr.DataArray) -> np.ndarray:
    """The last line of a case that is there."""
    return values.dropna("line", how="all").isel(line=-1).values


def open_share(case: xr.Dataset) -> np.ndarray:
    """δ = (L − entropy rate)/(h(π₁) − entropy rate) at the end: unigram 1, bigram 0."""
    rate, gap = case.entropy_rate.values, (case.stationary_entropy - case.entropy_rate).values
    share = np.full(len(gap), np.nan)  # at p + q = 1 there is no gap
    return np.divide(last(case.loss) - rate, gap, out=share, where=gap > 1e-12)


def outcome(case: xr.Dataset) -> dict[str, Any]:
    """Ends of the models of one case and one chain, with intervals, and their escapes.

    "bigram" means δ < 0.05 at the end and "unigram" δ > 0.95; the rest is in between. The interval
    is Clopper and Pearson's, 95 %, on the share that ends at the bigram.
    """
    found = ends(open_share(case))
    escape, count = finite(case.escape), case.sizes["model"]
    return {"p": float(case.p[0]), "q": float(case.q[0]), "models": count} | found | {
        "bigram_share_interval": list(binomtest(found["bigram"], count).proportion_ci()),
        "final_loss": spread(last(case.loss)),
        "escape_step": spread(escape) if len(escape) else None,
    }  # fmt: skip


def ends(share: np.ndarray) -> dict[str, int]:
    """Number of runs by their open shares of the gap: at the bigram, at the unigram, between."""
    bigram, unigram = share < 0.05, share > 0.95
    between = (share >= 0.05) & (share <= 0.95)
    return {"bigram": int(bigram.sum()), "unigram": int(unigram.sum()),
            "between": int(between.sum())}  # fmt: skip


def chain_part(case: xr.Dataset, chain: BinaryChain) -> xr.Dataset:
    """The models of a case that were trained on one chain."""
    return case.isel(model=(case.p.values == chain.p) & (case.q.values == chain.q))


def by_chain(
    record: xr.Dataset, chains: Iterable[BinaryChain]
) -> Iterator[tuple[str, BinaryChain, xr.Dataset]]:
    """Every case on every chain, with its name "case; p = …, q = …" and its models."""
    for name in record.case.values:
        for chain in chains:
            part = chain_part(record.sel(case=name), chain)
            yield f"{name}; p = {chain.p}, q = {chain.q}", chain, part


def finite(values: Any) -> np.ndarray:
    """Values that are neither NaN nor infinite."""
    return np.asarray(values)[np.isfinite(values)]


def median(values: Any) -> float | None:
    """Median of the finite values, or None."""
    known = finite(values)
    return float(np.median(known)) if len(known) else None


def read_linearly(
    stream: torch.Tensor, wanted: torch.Tensor, weights: torch.Tensor
) -> tuple[torch.Tensor, float]:
    """Numbers (word, position, k) by weighted linear regression on activations, and R²."""
    root = weights.sqrt().repeat_interleave(stream.shape[1])[:, None]
    inputs = torch.cat([stream.flatten(0, 1), torch.ones(stream[..., 0].numel(), 1).double()], 1)
    target, mean = wanted.flatten(0, 1), (weights[:, None, None] * wanted).sum(0).mean(0)
    fit = torch.linalg.lstsq(root * inputs, root * target, driver="gelsd").solution
    rest = (root * (target - inputs @ fit)).square().sum()
    r2 = 1 - float(rest / (root * (target - mean)).square().sum())
    return (inputs @ fit).reshape(wanted.shape), r2


def right(answers: np.ndarray) -> dict[str, Any]:
    """Number of right answers, and their share with its 95 % interval."""
    count, total = int(answers.sum()), answers.size
    return {"agree": count, "decided": total, "agreement": count / total if total else None,
            "interval": wilson(count, total)}  # fmt: skip


def spread(values: np.ndarray) -> dict[str, float]:
    """Median, least and largest."""
    return {name: float(getattr(np, name)(values)) for name in ("median", "min", "max")}


def rounded(tree: Any, digits: int = 6) -> Any:
    """A tree of numbers with that many significant digits."""
    if isinstance(tree, dict):
        return {key: rounded(value, digits) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [rounded(value, digits) for value in tree]
    return float(f"{tree:.{digits}g}") if isinstance(tree, float) else tree


def caption(chain: BinaryChain) -> str:
    """p, q and the regime, for a title."""
    sign = chain.regime.removeprefix("p + q ")
    regime = f"{chain.p + chain.q:.15g} {'' if sign.startswith('=') else sign}".rstrip()
    return f"$p$ = {chain.p:g}, $q$ = {chain.q:g}:  $p + q$ = {regime}"


def draw_losses(axes: Axes, case: xr.Dataset, label: str, **style: Any) -> None:
    """Every model's loss over the steps, with one entry in the legend."""
    axes.plot(case.step, case.loss, **style)[0].set_label(label)


def draw_levels(axes: Axes, chain: BinaryChain) -> None:
    """The unigram and the bigram loss as dotted lines, and limits around them."""
    bigram, unigram = chain.entropy_rate, chain.stationary_entropy
    mark_level(axes, unigram, f"unigram {unigram:.4f}")
    mark_level(axes, bigram, f"bigram {bigram:.4f}", above=False)
    axes.set_ylim(bigram - 0.22 * (unigram - bigram), unigram + 0.35 * (unigram - bigram))


def legend_below(axes: Axes, ncols: int, **options: Any) -> Legend:
    """A legend below the whole figure, of what these axes show."""
    handles, labels = axes.get_legend_handles_labels()
    return axes.figure.legend(handles=handles, labels=labels, loc="outside lower center",
                              ncols=ncols, frameon=False, **options)  # fmt: skip
