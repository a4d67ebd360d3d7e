"""What the command line draws and says of a scan's record."""

from __future__ import annotations

from typing import Any


def draw(record: Any) -> Any:
    """The figure of a scan: with curves and arrows where it lies in the (w, e) plane."""
    attributes, dims = record.attrs, record["label"].dims
    if "boundary_face" in record:
        from flowsim.drawing.boundary_lines import draw_refined

        return draw_refined(record)
    plain = attributes["model"] in ("canonical", "uniform", "linear")
    if sorted(dims) == ["e", "w"] and plain and "b" not in record.coords:
        from flowsim.drawing.plane import draw_portrait
        from flowsim.drawing.scan_map import check_grid
        from flowsim.portraits.in_plane import portrait_of_scan

        check_grid(record)
        figure = draw_portrait(portrait_of_scan(record))
        if "boundary_e" in record:
            from flowsim.drawing.boundary_lines import overlay_boundary

            overlay_boundary(record, figure.axes[0])
        return figure
    if "boundary_curve" in record:
        from flowsim.drawing.boundary_lines import draw_refined

        return draw_refined(record)
    from flowsim.drawing.scan_map import draw_scan

    return draw_scan(record)


def summarize(record: Any) -> dict[str, Any]:
    """The numbers of a record, of which only the small parts are read."""
    attributes = record.attrs
    names = [str(name) for name in record["basin"].to_numpy()]
    sizes = {str(dim): int(n) for dim, n in record["label"].sizes.items()}
    counts = {name: int(attributes[f"points_{name}"]) for name in names}
    drifts = {k: float(v) for k, v in attributes.items() if k.startswith("largest_drift_")}
    basins = {}
    for name in names[1:3]:
        here = record.sel(basin=name)
        basins[name] = {"fraction": [float(here["share"].min()), float(here["share"].max())]}
        if "share_low" in record:
            low, high = float(here["share_low"].min()), float(here["share_high"].max())
            basins[name]["wilson"] = [low, high]
    return {
        **{name: attributes[name] for name in ("p", "q", "regime", "model") if name in attributes},
        "dimensions": sizes,
        "points": sum(counts.values()),
        **{name: counts[name] for name in names},
        "basins": basins,
        **drifts,
        **{k: _plain(v) for k, v in attributes.items() if k.startswith("refine_")},
    }


def _plain(value: Any) -> float | int | None:
    """A number of a record as JSON has it; None for what is not known."""
    number = value.item() if hasattr(value, "item") else value
    return None if number != number else number


def text(s: dict[str, Any]) -> str:
    if "p" in s and "q" in s:
        chain = f"p = {s['p']:g}, q = {s['q']:g} ({s['regime']})"
    else:
        chain = ", ".join(f"{n} = {s[n]:g}" if n in s else f"{n} varies" for n in "pq")
    sizes = " x ".join(f"{n} {name}" for name, n in s["dimensions"].items())
    drifts = [v for name, v in s.items() if name.startswith("largest_drift_")]
    lines = [
        f"{s['model']}, {chain}: {sizes}",
        f"reaching the global minima             {_share(s['basins']['global_minimum'])}",
        f"trapped in local minima                {_share(s['basins']['local_minimum'])}",
        f"points: saddle {s['saddle']}, unresolved {s['unresolved']}, total {s['points']}",
        "largest drift of a conserved quantity  "
        + (f"{max(drifts):.1e}" if drifts else "none known"),
        *([_boundary(s)] if "refine_levels" in s else []),
        ", ".join(
            [
                *(f"{kind} {s[kind]}" for kind in ("figure", "record") if kind in s),
                f"{s['seconds']:.1f} s",
            ]
        ),
    ]
    return "\n".join(lines)


def _boundary(s: dict[str, Any]) -> str:
    words = (
        f"boundary: {s['refine_evaluated']} starts of {s['refine_full']} in the full grid "
        f"({s['refine_fraction']:.2%})"
    )
    if s["refine_distance"] is None:
        return words
    return f"{words}, {s['refine_distance']:.2f} finest cells from the analytic one"


def _share(basin: dict[str, Any]) -> str:
    low, high = basin["fraction"]
    share = f"{low:.2%}" if low == high else f"{low:.2%} to {high:.2%}"
    if "wilson" not in basin:
        return share
    return f"{share} (95 % interval {basin['wilson'][0]:.2%} to {basin['wilson'][1]:.2%})"
