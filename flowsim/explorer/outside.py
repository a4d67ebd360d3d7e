"""What is on the page, outside of it: its record and figure, and the lines that make it again."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from flowsim.drawing.front import draw
from flowsim.drawing.overlay import with_paths
from flowsim.drawing.style import save_figure
from flowsim.explorer.layers import ends_of, levels
from flowsim.explorer.link import to_query
from flowsim.explorer.starts import Orbit, cloud_shares
from flowsim.explorer.training import FullSettings, Run, first_weights, is_untied
from flowsim.explorer.view import DRAWS, FEWER_DRAWS, Start, View, full_length
from flowsim.labels import Label
from flowsim.models.catalogue import ModelChoice
from flowsim.models.own import is_own
from flowsim.portraits.in_plane import portrait_record
from flowsim.records.netcdf import flags, store_record


def command_lines(view: View, full: FullSettings, trained: Sequence[Start]) -> str:
    """Shell lines: the page again, its figure, its orbits' ends, its cloud, its training."""
    model = [*_chain_options(view), *_model_options(view)]
    x_low, x_high, y_low, y_high = view.window
    window = [f"--window={view.x}={x_low!r}:{x_high!r},{view.y}={y_low!r}:{y_high!r}"]
    window = window if view.axes or view.window != view.usual_window else []
    size, lines = ["--resolution", str(levels(view)[-1])], []
    if view.starts:
        rows = "\\n".join([f"{view.y},{view.x}", *(f"{y!r},{x!r}" for y, x in view.starts)])
        lines.append(f"printf '{rows}\\n' > starts.csv")
        size += ["--points", "starts.csv"]
    lines.append(shlex.join(["flowsim", "portrait", *model, *window, *size]))
    if view.starts:
        lines.append(
            shlex.join(["flowsim", "scan", *model, "--points", "starts.csv", "--out", "orbits.nc"])
        )
    if view.puff is not None:
        lines.append("# a cloud around a point is drawn in Python only, see below")
    if trained and not _lifted_by_command(view):
        lines.append("# training from this lift is begun in Python only, see below")
        trained = ()
    for start in dict.fromkeys(trained):
        lines.append(shlex.join(_train_words(view, full, start)))
    return "\n".join(lines)


def python_lines(view: View, full: FullSettings, trained: Sequence[Start]) -> str:
    """Python that computes and draws what the page shows."""
    x_low, x_high, y_low, y_high = view.window
    lines = ["import flowsim", ""]
    shown = f".showing{view.axes!r}" if view.axes else ""
    lines.append(f"model = flowsim.model({', '.join(_model_words(view))}){shown}")
    held = f", fixed={view.held!r}" if view.held else ""
    lines.append(
        f'window = {{"{view.x}": ({x_low!r}, {x_high!r}), "{view.y}": ({y_low!r}, {y_high!r})}}'
    )
    size = levels(view)[-1]
    if view.starts:
        rows = [[*start] for start in view.starts]
        lines.append(f"starts = flowsim.Points({[view.y, view.x]!r}, {rows!r})")
        held += ", starts=starts"
    lines.append(f"record = flowsim.portrait_record(model, resolution={size}, window=window{held})")
    lines.append("figure = flowsim.draw(record)")
    if view.starts or view.puff is not None:
        lines += ["", "import torch"]
    if view.starts:
        lines += [
            f"y, x = torch.from_numpy(starts.block(0, {len(view.starts)})).T",
            f"limits = flowsim.find_limits(model, model.plane.at(x, y, {view.held!r}))",
            "print([flowsim.Label(int(code)).name for code in limits.label])",
        ]
    if view.puff is not None:
        lines += _cloud_lines(view)
    lines += ['figure.savefig("explored.png")', 'print(record["label"])']
    for start in dict.fromkeys(trained):
        lines += ["", *_training_lines(view, full, start)]
    return "\n".join(lines)


def _cloud_lines(view: View) -> list[str]:
    puff = view.puff
    assert puff is not None
    count = DRAWS if view.model.fast else FEWER_DRAWS
    return [
        "import numpy as np",
        f"unit = np.random.Generator(np.random.PCG64(0)).standard_normal(({count}, 2))",
        f"y, x = torch.from_numpy({puff.sigma!r} * unit.T + [[{puff.y!r}], [{puff.x!r}]])",
        f"cloud = flowsim.find_limits(model, model.plane.at(x, y, {view.held!r}))",
        "print((cloud.label == flowsim.Label.LOCAL_MINIMUM).double().mean())"
        if ends_of(view).named
        else "print(cloud.theta.unique(dim=0).shape, cloud.loss.unique())",
    ]


def _training_lines(view: View, full: FullSettings, start: Start) -> list[str]:
    """Training in Python, from the lift that the page trains from."""
    options = [f'"{full.trainer}"', f"steps={full.steps}"]
    options += [] if full.rate is None else [f"learning_rate={full.rate!r}"]
    options += ["clip=1.0"] if full.trainer == "adamw" else []
    recipe = f"recipe = full_model.Recipe({', '.join(options)})"
    how = _lines_of_states if view.choice.states is not None else _lines_of_two_states
    return ["import full_model", recipe, *how(view, full, start), 'print(record["loss"])']


def _lines_of_two_states(view: View, full: FullSettings, start: Start) -> list[str]:
    theta = (start.y, start.x, *([view.held.get("a", 0.0)] if view.has_slice else []))
    untied = ", tied=False" * is_untied(view)
    length = full_length(view, full.length)
    lines = [
        f"arch = full_model.Architecture(d={full.d}, length={length}{untied})",
        "settings = full_model.RunSettings(",
        f'    arch, recipe, ({view.p!r},), ({view.q!r},), ({full.seed},), "lifted",',
        f"    theta=({theta!r},), noise={full.noise!r}, data_seed={full.seed},",
        ")",
    ]
    if _lifted_by_command(view):
        return [*lines, "record, weights = full_model.train(settings)"]
    clean, other = replace(full, noise=0.0), replace(view, fixed=())
    here, usual = (first_weights(v, clean, start) for v in (view, other))
    moved = {n: float((here[n] - usual[n]).flatten()[0]) for n in ("unembedding", "bias")
             if n in here}  # fmt: skip
    return [
        *lines,
        "from dataclasses import replace",
        "weights = full_model.starting_weights(settings)",
        *(f'weights["{n}"] += {x!r}  # to the value that is held, and its best bias'
          for n, x in moved.items()),
        'given = replace(settings, init="given", theta=None, noise=0.0)',
        "record, weights = full_model.train(given, initial=weights)",
    ]  # fmt: skip


def _lines_of_states(view: View, full: FullSettings, start: Start) -> list[str]:
    choice = view.choice
    hidden = (choice.hidden_per_state or 1) * (choice.states or 2)
    plain = 'attention="none"' if not full.noise and full.trainer in ("gd", "flow") else ""
    rest = ", ".join(['output="states"', *([plain] if plain else [])])
    lines = [
        f"arch = full_model.Architecture(d={full.d}, length={full_length(view, full.length)}, "
        f"hidden={hidden},",
        f"                               states={choice.states}, {rest})",
        f"weights = full_model.lift_states(torch.tensor([{(start.y, start.x)!r}]).double(), arch)",
    ]
    if full.noise:
        lines += [
            f"generators = [torch.Generator().manual_seed({full.seed})]",
            f"weights = full_model.with_noise(arch, weights, {full.noise!r}, generators)",
        ]
    return [
        *lines,
        f'settings = full_model.RunSettings(arch, recipe, seeds=({full.seed},), init="given",',
        f"                                  data=model.chain, data_seed={full.seed})",
        "record, weights = full_model.train(settings, initial=weights)",
    ]


def _train_words(view: View, full: FullSettings, start: Start) -> list[str]:
    held = [f"{view.held.get('a', 0.0)!r}"] if view.has_slice else []
    point = ",".join([f"{start.y!r}", f"{start.x!r}", *held])
    words = ["flowsim", "train", *_chain_options(view), "--trainer", full.trainer]
    words += ["--untied"] * is_untied(view)
    words += ["--d", str(full.d), "--length", str(full_length(view, full.length))]
    words += ["--init", "lifted", f"--theta={point}", "--steps", str(full.steps)]
    words += ["--noise", f"{full.noise!r}"] if full.noise else []
    words += ["--learning-rate", f"{full.rate!r}"] if full.rate is not None else []
    return [*words, "--seed", str(full.seed)] if full.seed else words


def _lifted_by_command(view: View) -> bool:
    """Whether ``flowsim train --init lifted`` begins where the explorer does."""
    return view.choice.states is None and not {"u", "b"} & view.held.keys()


def _chain_options(view: View) -> list[str]:
    chances = view.choice.family.data
    return [word for n in chances for word in (f"--{n}", f"{getattr(view, n)!r}")]


def _told(view: View) -> dict[str, Any]:
    """The options of the view's model that are told: sizes, and what is not as usual."""
    if is_own(view.model):
        return dict(view.choice.options)
    usual = view.choice.family.options
    own = view.choice.options.items()
    return {k: v for k, v in own if type(v) is int or v != usual[k].default}


def _model_options(view: View) -> list[str]:
    words = [] if view.choice.name == ModelChoice().name else ["--model", view.choice.name]
    for name, value in _told(view).items():
        if is_own(view.model):
            words += ["--set", f"{name}={value}"]
            continue
        option = "--" + ("untied" if name == "tied" else name.replace("_", "-"))
        words += [option] if isinstance(value, bool) else [option, str(value)]
    return words + [word for n, value in view.fixed for word in ("--fix", f"{n}={value!r}")]


def _model_words(view: View) -> list[str]:
    words = [repr(view.choice.name), *(f"{getattr(view, n)!r}" for n in view.choice.family.data)]
    return words + [f"{name}={value!r}" for name, value in _told(view).items()]


class Stopped(Exception):
    """The record was cancelled: a newer request replaced it."""


def explored_record(
    view: View,
    orbits: Sequence[Orbit],
    runs: Sequence[Run],
    stop: Callable[[], bool] = lambda: False,
) -> xr.Dataset:
    """The portrait of the view's window with its own orbits and training runs in it.

    Every cell is followed anew, as by ``flowsim portrait`` with the same settings. Of planes
    (w, e), ``orbit_e`` and ``orbit_w`` (time, orbit) are the page's orbits, at their own times and
    NaN after their ends, with ``orbit_label``; ``cloud_e``, ``cloud_w`` and ``cloud_label`` are
    where the starts of the cloud end; ``trained_e``, ``trained_w``, ``trained_loss`` and
    ``trained_time`` (look, run) are what full training did. ``command`` draws the plane again,
    ``link`` is the query that brings the page back.

    Raises:
        Stopped: ``stop`` said so.
    """

    def look(_: int) -> None:
        if stop():
            raise Stopped

    model, (x_low, x_high, y_low, y_high) = view.model, view.window
    confirm = None if model.fast else 0
    window = {view.x: (x_low, x_high), view.y: (y_low, y_high)}
    record = portrait_record(
        model, resolution=levels(view)[-1], fixed=view.held, progress=look, confirm=confirm,
        window=window,
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
            record[name] = (("time", "orbit"), _columns(columns))
        ends = ends_of(view).names
        labels = np.array([ends.index(o.kind) for o in orbits], np.int8)
        record["orbit_label"] = ("orbit", labels, flags(ends))
    curves = [list(run.curve) for run in runs if run.curve]
    for name in ("e", "w", "loss", "time") if curves else ():
        values = [np.array([getattr(point, name) for point in curve]) for curve in curves]
        record[f"trained_{name}"] = (("look", "run"), _columns(values))
    _add_cloud(record, view, stop)
    if curves:
        record.attrs["trained"] = "; ".join(_run_words(run) for run in runs if run.curve)
    return record


def _add_cloud(record: xr.Dataset, view: View, stop: Callable[[], bool]) -> None:
    """Where the starts of the view's cloud end, if there is one."""
    shares = list(cloud_shares(view, stop))
    if view.puff is not None:
        if not shares or len(shares[-1].label) < shares[-1].drawn:
            raise Stopped
        found = shares[-1]
        for name, values in ((view.y, found.y), (view.x, found.x)):
            record[f"cloud_{name}"] = ("draw", values)
        record["cloud_label"] = ("draw", found.label, flags(ends_of(view).names))


def saved_file(
    view: View,
    orbits: Sequence[Orbit],
    runs: Sequence[Run],
    suffix: str,
    stop: Callable[[], bool] = lambda: False,
    laid: Mapping[str, np.ndarray] | None = None,
) -> tuple[str, bytes]:
    """A name and the bytes of the figure ("png", "svg") or the record ("nc") of a page.

    ``laid`` are the paths over its plane, each (times, runs, 2), y first, by name.
    """
    record = explored_record(view, orbits, runs, stop)
    record = with_paths(record, laid) if laid else record
    chances = [f"{name}{getattr(view, name):g}" for name in view.choice.family.data]
    words = [view.choice.name.rpartition(":")[2], *chances]
    name = f"explored_{'_'.join(words)}.{suffix}"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        if suffix == "nc":
            store_record(record, path)
        else:
            save_figure(draw(record), path)
        return name, path.read_bytes()


def _run_words(run: Run) -> str:
    s = run.settings
    rate = "" if s.rate is None else f", learning rate {s.rate:g}"
    steps = f", {run.curve[-1].step} steps, {run.outcome.name.lower()}"
    return f"{s.trainer} d={s.d} N={s.length or 'as the model'} noise={s.noise:g}{rate}{steps}"


def _columns(values: Sequence[np.ndarray]) -> np.ndarray:
    """Arrays side by side, shape (longest, n), NaN after their ends."""
    found = np.full((max(map(len, values)), len(values)), np.nan)
    for i, column in enumerate(values):
        found[: len(column), i] = column
    return found
