"""The page as a file: its record, with orbits, training and cloud, and the figure of it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import xarray as xr

from flowsim.drawing.front import draw
from flowsim.drawing.style import save_figure
from flowsim.explorer.clouds import cloud_shares
from flowsim.explorer.full_settings import FullSettings
from flowsim.explorer.link import to_query
from flowsim.explorer.orbits_from_starts import Orbit
from flowsim.explorer.plane_layers import ends_of, levels
from flowsim.explorer.reproduce import command_lines
from flowsim.explorer.training_stream import Run
from flowsim.explorer.view import View
from flowsim.labels import Label
from flowsim.portraits.in_plane import portrait_record
from flowsim.records.netcdf import flags, store_record


class Stopped(Exception):
    """Nobody waits for the record any more."""


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
    record.attrs["command"] = command_lines(view, full, ()).splitlines()[0]
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
) -> tuple[str, bytes]:
    """A name and the bytes of the figure ("png", "svg") or the record ("nc") of a page."""
    record = explored_record(view, orbits, runs, stop)
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
