"""What the command line draws and says of a scan's record."""

from __future__ import annotations

from typing import Any


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
