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
from flowsim.explorer.plane_layers import levels
from flowsim.explorer.reproduce import command_lines
from flowsim.explorer.training_stream import Run
from flowsim.explorer.view import View
from flowsim.landscape.labels import Label
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

    Every cell is followed anew, as by ``flowsim portrait`` with the same settings; ``orbit_e`` and
    ``orbit_w`` (time, orbit) are the page's orbits, at their own times and NaN after their ends,
    with ``orbit_label``; ``trained_e``, ``trained_w``, ``trained_loss`` and ``trained_time``
    (look, run) what full training did, ``cloud_e``, ``cloud_w`` and ``cloud_label`` where the
    starts of the cloud end. ``command`` draws the plane again, ``link`` is the query
    that brings the page back.

    Raises:
        Stopped: ``stop`` said so.
    """

    def look(_: int) -> None:
        if stop():
            raise Stopped

    model, (w_low, w_high, e_low, e_high) = view.model, view.window
    confirm = None if model.loss_of_gap else 0
    record = portrait_record(
        model, (w_low, w_high), (e_low, e_high), levels(view)[-1], fixed=view.held,
        progress=look, confirm=confirm,
    )  # fmt: skip
    record = record.drop_vars(["orbit_e", "orbit_w"])
    full = runs[-1].settings if runs else FullSettings()
    record.attrs["command"] = command_lines(view, full, ()).splitlines()[0]
    record.attrs["link"] = f"flowsim explore, ?{to_query(view, full)}"
    record.attrs["orbits_unfinished"] = sum(o.label == Label.UNRESOLVED for o in orbits)
    if orbits:
        paths = [(np.append(o.forward.e, o.end[0]), np.append(o.forward.w, o.end[1]))
                 for o in orbits]  # fmt: skip
        record["orbit_e"] = (("time", "orbit"), _columns([e for e, _ in paths]))
        record["orbit_w"] = (("time", "orbit"), _columns([w for _, w in paths]))
        labels = np.array([o.label for o in orbits], np.int8)
        record["orbit_label"] = ("orbit", labels, flags(Label))
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
        record["cloud_e"], record["cloud_w"] = ("draw", found.e), ("draw", found.w)
        record["cloud_label"] = ("draw", found.label, flags(Label))


def saved_file(
    view: View,
    orbits: Sequence[Orbit],
    runs: Sequence[Run],
    suffix: str,
    stop: Callable[[], bool] = lambda: False,
) -> tuple[str, bytes]:
    """A name and the bytes of the figure ("png", "svg") or the record ("nc") of a page."""
    record = explored_record(view, orbits, runs, stop)
    names = ("p",) if view.choice.states is not None else ("p", "q")
    words = [view.choice.name, *(f"{n}{getattr(view, n):g}" for n in names)]
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
