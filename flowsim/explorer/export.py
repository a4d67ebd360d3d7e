"""Exports of a page: its record and figure, and the lines that make it again."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import xarray as xr

from flowsim.drawing.any_record import draw
from flowsim.drawing.overlay import side_by_side, with_paths
from flowsim.drawing.style import save_figure
from flowsim.explorer import training
from flowsim.explorer.layers import ends_of, resolutions
from flowsim.explorer.link import to_query
from flowsim.explorer.starts import Orbit, cloud_shares
from flowsim.explorer.training import FullSettings, Run
from flowsim.explorer.view import DRAWS, FEWER_DRAWS, Start, Stop, Stopped, View, full_length
from flowsim.labels import Label
from flowsim.portraits.in_plane import portrait
from flowsim.records.netcdf import flags, store_record

#: Arguments of built-in models that are options of the command line; others go by --set.
_OPTIONS = {"--p", "--q", "--length", "--states", "--hidden-per-state", "--attention", "--untied",
            "--bias"}  # fmt: skip


def command_lines(view: View, full: FullSettings, trained: Sequence[Start]) -> str:
    """Return shell lines that draw the plane, follow the starts, and train from ``trained``."""
    model = _chain_options(view)
    model += [] if view.spec.name == View().spec.name else ["--model", view.spec.name]
    for name, value in view.written.items():
        option = "--" + ("untied" if name == "tied" else name.replace("_", "-"))
        if view.spec.is_own or option not in _OPTIONS:
            model += ["--set", f"{name}={value}"]
        elif name not in ("p", "q"):  # which come first
            model += [option] if isinstance(value, bool) else [option, str(value)]
    model += [word for name, value in view.fixed for word in ("--fix", f"{name}={value!r}")]
    portrait, lines = ["flowsim", "portrait", *model], []
    if view.axes or view.window != view.usual_window:
        x_low, x_high, y_low, y_high = view.window
        portrait += [f"--window={view.x}={x_low!r}:{x_high!r},{view.y}={y_low!r}:{y_high!r}"]
    portrait += ["--resolution", str(resolutions(view)[-1])]
    if view.starts:
        rows = "\\n".join([f"{view.y},{view.x}", *(f"{y!r},{x!r}" for y, x in view.starts)])
        lines.append(f"printf '{rows}\\n' > starts.csv")
        portrait += ["--points", "starts.csv"]
    lines.append(shlex.join(portrait))
    if view.starts:
        scan = ["flowsim", "scan", *model, "--points", "starts.csv", "--out", "orbits.nc"]
        lines.append(shlex.join(scan))
    if view.cloud is not None:
        lines.append("# a cloud around a point is drawn in Python only, see below")
    # where ``flowsim train --init lifted`` begins elsewhere than the explorer
    if trained and (view.spec.get("states") is not None or {"u", "b"} & view.fixed_values.keys()):
        lines.append("# training from this lift is begun in Python only, see below")
        trained = ()
    for start in dict.fromkeys(trained):
        point = ",".join(map(repr, training.canonical_point(view, start)[0].tolist()))
        train = ["flowsim", "train", *_chain_options(view), "--trainer", full.trainer]
        train += ["--untied"] * training.is_untied(view)
        train += ["--d", str(full.d), "--length", str(full_length(view, full.length))]
        train += ["--init", "lifted", f"--theta={point}", "--steps", str(full.steps)]
        train += ["--noise", f"{full.noise!r}"] if full.noise else []
        train += ["--learning-rate", f"{full.rate!r}"] if full.rate is not None else []
        lines.append(shlex.join([*train, "--seed", str(full.seed)] if full.seed else train))
    return "\n".join(lines)


def _chain_options(view: View) -> list[str]:
    """Return the words --p and --q with their values, as far as the model's chain has them."""
    chances = [name for name in ("p", "q") if view.trainable and name in view.spec.options]
    return [word for n in chances for word in (f"--{n}", f"{view.spec.get(n)!r}")]


def python_lines(view: View, full: FullSettings, trained: Sequence[Start]) -> str:
    """Return Python that computes and draws what the page shows, and trains from ``trained``."""
    x_low, x_high, y_low, y_high = view.window
    words = [repr(view.spec.name), *(f"{n}={value!r}" for n, value in view.written.items())]
    used = ["theta_at"] * bool(view.starts or view.cloud) + ["with_axes"] * bool(view.axes)
    lines = [
        "import flowsim",
        *([f"from flowsim.interface import {', '.join(used)}"] if used else ()),
        "",
        f"model = flowsim.model({', '.join(words)})",
        *([f"model = with_axes(model, *{view.axes!r})"] if view.axes else ()),
        f'window = {{"{view.x}": ({x_low!r}, {x_high!r}), "{view.y}": ({y_low!r}, {y_high!r})}}',
    ]
    more = f", fixed={view.fixed_values!r}" if view.fixed_values else ""
    if view.starts:
        rows = [[*start] for start in view.starts]
        lines.append(f"starts = flowsim.Points({[view.y, view.x]!r}, {rows!r})")
        more += ", starts=starts"
    size = f"resolution={resolutions(view)[-1]}"
    lines.append(f"record = flowsim.portrait(model, {size}, window=window{more})")
    lines.append("figure = flowsim.draw(record)")
    if view.starts or view.cloud is not None:
        lines += ["", "import torch"]
    if view.starts:
        lines += [
            f"y, x = torch.from_numpy(starts.block(0, {len(view.starts)})).T",
            f"theta = theta_at(model.plane, x, y, {view.fixed_values!r})",
            "limits = flowsim.find_limits(model, theta)",
            "print([flowsim.Label(int(code)).name for code in limits.label])",
        ]
    if (cloud := view.cloud) is not None:
        count = DRAWS if view.at_once else FEWER_DRAWS
        lines += [
            "import numpy as np",
            f"unit = np.random.Generator(np.random.PCG64(0)).standard_normal(({count}, 2))",
            f"y, x = torch.from_numpy({cloud.sigma!r} * unit.T + [[{cloud.y!r}], [{cloud.x!r}]])",
            f"theta = theta_at(model.plane, x, y, {view.fixed_values!r})",
            "cloud = flowsim.find_limits(model, theta)",
            "print((cloud.label == flowsim.Label.LOCAL_MINIMUM).double().mean())"
            if ends_of(view).named
            else "print(cloud.theta.unique(dim=0).shape, cloud.loss.unique())",
        ]
    lines += ['figure.savefig("explored.png")', 'print(record["label"])']
    for start in dict.fromkeys(trained):
        lines += ["", *_training_lines(view, full, start)]
    return "\n".join(lines)


def _training_lines(view: View, full: FullSettings, start: Start) -> list[str]:
    """Return lines of Python that train the full transformer from one start."""
    arch, held = training.full_architecture(view, full), view.fixed_values
    theta = training.canonical_point(view, start).tolist()
    recipe = [f'"{full.trainer}"', f"steps={full.steps}"]
    recipe += [] if full.rate is None else [f"learning_rate={full.rate!r}"]
    sizes, lift = [f"d={arch.d}", f"length={arch.length}"], "full_model.lift_states(theta, arch)"
    data = "data=model.chain"
    if arch.output == "states":
        sizes += [f"hidden={arch.hidden}", f"states={arch.states}", 'output="states"']
        plain = not full.noise and full.trainer in ("gd", "flow")
        sizes += ['attention="none"'] if plain else []
    else:
        sizes += [] if arch.tied else ["tied=False"]
        to = {"unembedding": held.get("u"), "bias": held.get("b")}
        values = [f", {name}={value!r}" for name, value in to.items() if value is not None]
        lift = f"full_model.lift_held(theta, arch, model.chain{''.join(values)})"
        data = f"p=({view.spec.get('p')!r},), q=({view.spec.get('q')!r},)"
    noise = [
        f"generators = [torch.Generator().manual_seed({full.seed})]",
        f"weights = full_model.with_noise(arch, weights, {full.noise!r}, generators)",
    ]
    return [
        "import full_model",
        "",
        f"recipe = full_model.Recipe.named({', '.join(recipe)})",
        f"arch = full_model.Architecture({', '.join(sizes)})",
        f"theta = torch.tensor({theta!r}, dtype=torch.float64)",
        f"weights = {lift}",
        *(noise if full.noise else []),
        f'settings = full_model.RunSettings(arch, recipe, seeds=({full.seed},), init="given",',
        f"                                  {data}, data_seed={full.seed})",
        "record, weights = full_model.train(settings, initial=weights)",
        'print(record["loss"])',
    ]


def explored_record(
    view: View, orbits: Sequence[Orbit], runs: Sequence[Run], stop: Stop = lambda: False
) -> xr.Dataset:
    """Return the portrait of the window, with the page's orbits, cloud and runs of training."""

    def look(_: int) -> None:
        """Raise ``Stopped`` if nobody waits for the record any more."""
        if stop():
            raise Stopped

    record = portrait(
        view.model, resolution=resolutions(view)[-1], fixed=view.fixed_values, progress=look,
        confirm=None if view.at_once else 0,
        window={view.x: view.window[:2], view.y: view.window[2:]},
    )  # fmt: skip
    names = f"orbit_{view.y}", f"orbit_{view.x}"
    record = record.drop_vars(names)
    full = runs[-1].settings if runs else FullSettings()
    drawn = 2 if view.starts else 1
    record.attrs["command"] = " && ".join(command_lines(view, full, ()).splitlines()[:drawn])
    record.attrs["link"] = f"flowsim explore, ?{to_query(view, full)}"
    record.attrs["orbits_unfinished"] = sum(o.label == Label.UNRESOLVED for o in orbits)
    if orbits:
        paths = [(np.append(o.forward.y, o.end[0]), np.append(o.forward.x, o.end[1]))
                 for o in orbits]  # fmt: skip
        for name, columns in zip(names, zip(*paths, strict=True), strict=True):
            record[name] = (("time", "orbit"), side_by_side(columns))
        ends = ends_of(view).names
        labels = np.array([ends.index(o.kind) for o in orbits], np.int32)
        record["orbit_label"] = ("orbit", labels, flags(ends, np.int32))
    curves = [list(run.curve) for run in runs if run.curve]
    for name in ("e", "w", "loss", "time") if curves else ():
        values = [np.array([getattr(point, name) for point in curve]) for curve in curves]
        record[f"trained_{name}"] = (("look", "run"), side_by_side(values))
    if curves:
        trained = []
        for run in (run for run in runs if run.curve):
            s, done = run.settings, f"{run.curve[-1].step} steps, {run.outcome.name.lower()}"
            rate = "" if s.rate is None else f", learning rate {s.rate:g}"
            sizes = f"d={s.d} N={s.length or 'as the model'} noise={s.noise:g}"
            trained.append(f"{s.trainer} {sizes}{rate}, {done}")
        record.attrs["trained"] = "; ".join(trained)
    if view.cloud is not None:
        *_, found = cloud_shares(view, stop)
        for name, places in ((view.y, found.y), (view.x, found.x)):
            record[f"cloud_{name}"] = ("draw", places)
        record["cloud_label"] = ("draw", found.label, flags(ends_of(view).names, found.label.dtype))
    return record


def saved_file(
    view: View,
    orbits: Sequence[Orbit],
    runs: Sequence[Run],
    suffix: str,
    stop: Stop = lambda: False,
    laid: Mapping[str, np.ndarray] | None = None,
) -> tuple[str, bytes]:
    """Return name and bytes of a page's figure (png, svg) or record (nc), with paths over it."""
    record = explored_record(view, orbits, runs, stop)
    record = with_paths(record, laid) if laid else record
    own = {} if view.spec.is_own else view.spec.options
    chances = [f"{name}{own[name]:g}" for name in ("p", "q") if name in own]
    words = [view.spec.name.rpartition(":")[2], *chances]
    name = f"explored_{'_'.join(words)}.{suffix}"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        if suffix == "nc":
            store_record(record, path)
        else:
            save_figure(draw(record), path)
        return name, path.read_bytes()
