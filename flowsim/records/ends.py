"""Numbers of every end of a record."""

from __future__ import annotations

import re

import numpy as np
import xarray as xr

from flowsim.records.attributes import meanings

#: Names of codes that are no basin begin so.
NO_BASIN = ("unresolved", "saddle")
#: Variables over starts from which these numbers are, and names of the numbers.
_PER_START = ("edge_distance", "settling_time")
_OF_END = re.compile("share|(smallest|median)_distance|(median|largest)_time|by_time_.*")


def with_ends(record: xr.Dataset) -> xr.Dataset:
    """Add the numbers of every end to a record, as variables over ``basin``; see ``per_end``."""
    label = record["label"]
    codes, names, found = label.to_numpy(), meanings(label), {}
    away, times = (record[name].to_numpy() if name in record else None for name in _PER_START)
    for code, name in enumerate(names):
        here = codes == code
        if name.startswith(NO_BASIN) or not here.any():
            continue
        numbers = {"share": float(here.mean())}
        if away is not None:
            numbers["smallest_distance"] = float(np.nanmin(away[here]))
            numbers["median_distance"] = float(np.nanmedian(away[here]))
        if times is not None and np.isfinite(own := times[here]).any():
            numbers["median_time"] = float(np.nanmedian(own))
            numbers["largest_time"] = float(np.nanmax(own))
            numbers |= {f"by_time_{10.0**n:g}": float((own <= 10.0**n).mean())
                        for n in decades(times)}  # fmt: skip
        found[name] = numbers
    names = list(map(str, record["basin"].to_numpy())) if "basin" in record else [*found]
    more = {
        key: ("basin", [found.get(name, {}).get(key, np.nan) for name in names],
              {"long_name": key.replace("_", " ")})
        for key in dict.fromkeys(key for numbers in found.values() for key in numbers)
        if key not in record
    }  # fmt: skip
    return record.assign(more).assign_coords(basin=names)


def per_end(record: xr.Dataset) -> dict[str, dict[str, float]]:
    """Numbers of every end of a portrait or a scan: share, distances to the edge, and times.

    Args:
        record: of a portrait or a scan.

    Returns:
        By the name of the end: ``share`` of the starts; if the record has them,
        ``smallest_distance`` and ``median_distance`` to another end, ``median_time`` and
        ``largest_time`` until the excess loss has fallen (``settling_time``), and ``by_time_T``,
        the part of its starts for which that time is at most T, for powers of ten.

    >>> import flowsim
    >>> model = flowsim.model("canonical", 0.5, 0.8)
    >>> record = flowsim.portrait(model, resolution=8, edge=True)
    >>> found = flowsim.boundary.per_end(record)["local_minimum"]
    >>> found["share"], round(found["smallest_distance"], 3)
    (0.53125, 0.074)
    """
    if "share" not in record:  # no start was decided
        return {}
    kept = [str(name) for name in record if _OF_END.fullmatch(str(name))]
    table = record[kept].mean([dim for dim in record["share"].dims if dim != "basin"])
    found = {}
    for name in map(str, record["basin"].to_numpy()):
        numbers = {key: float(table[key].sel(basin=name)) for key in kept}
        if not name.startswith(NO_BASIN) and numbers["share"]:
            found[name] = {key: value for key, value in numbers.items() if not np.isnan(value)}
    return found


def all_alike(record: xr.Dataset) -> xr.DataArray:
    """Mask of the starts that the flow and all optimizers of a comparison bring to one end."""
    label = record["label"]
    return ((label == label.isel(follower=0)) & (label != 0)).all("follower")


def decades(times: np.ndarray) -> range:
    """Exponents of the powers of ten from the fastest start to the slowest."""
    known = times[np.isfinite(times) & (times > 0)]
    if not len(known):
        return range(0)
    return range(int(np.ceil(np.log10(known.min()))), int(np.ceil(np.log10(known.max()))) + 1)
