"""The basins of gradient flow and of several optimizers beside each other, from a record."""

from __future__ import annotations

from typing import Any, Unpack

import xarray as xr
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import BoundaryNorm

from flowsim.drawing.plane import draw_basins
from flowsim.drawing.style import OPTIMIZERS, Canvas, Look, edges, percent, title_of
from flowsim.errors import InputError
from flowsim.records.attributes import axes_of
from flowsim.records.ends import all_alike

_NAMES = OPTIMIZERS | {"flow": "gradient flow", "sign": "sign descent"}


def draw_optimizers(record: xr.Dataset, ax: Axes | None = None, **look: Unpack[Look]) -> Any:
    """Draw the basins of the flow and of each optimizer, and how many optimizers end elsewhere."""
    if ax is not None:
        raise InputError("the optimizers are drawn in seven panels: omit ax")
    canvas = Canvas(None, 10.0, 5.6, look)
    shape = (4, 2) if canvas.narrow else (2, 4)
    panels = list(canvas.figure.subplots(*shape, sharex=True, sharey=True).flat)
    handles: dict[str, Any] = {}
    for who, panel in zip(record["follower"].to_numpy(), panels, strict=False):
        one = record.sel(follower=who).drop_vars(("elsewhere", "share_elsewhere"))
        for handle in draw_basins(one, panel):
            handles.setdefault(handle.get_label(), handle)
        share = float(record["share_elsewhere"].sel(follower=who))
        other = "" if who == "flow" else f": {percent(round(1e6 * share), 10**6)} elsewhere"
        if undecided := int((one["label"] == 0).sum()):
            other += f",\n{percent(undecided, one['label'].size)} undecided"
        panel.set_title(f"{_NAMES[str(who)]}{other}", fontsize="small")
        panel.label_outer()
    across, up = axes_of(record)
    x, y = (edges(record[name].to_numpy(), name) for name in (across, up))
    last, most = panels[6], record.sizes["follower"] - 1
    norm = BoundaryNorm([i - 0.5 for i in range(most + 2)], 256)
    image = ScalarMappable(norm, "cividis")
    last.pcolormesh(x, y, record["elsewhere"].transpose(up, across), norm=norm, cmap="cividis",
                    rasterized=True)  # fmt: skip
    last.set_title("how many of those decided end elsewhere", fontsize="small")
    panels[7].set_axis_off()
    bar = panels[7].inset_axes((0.0, 0.0, 0.08, 1.0))
    canvas.figure.colorbar(image, cax=bar, ticks=range(most + 1))
    agree = percent(int(all_alike(record).sum()), record["elsewhere"].size)
    lines = [f"{agree} of the window ends alike, whatever follows it", title_of(record)]
    return canvas.complete(lines, list(handles.values()), columns=3)
