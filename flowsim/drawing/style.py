"""Words that every figure uses."""

from __future__ import annotations

import xarray as xr


def chain_caption(record: xr.Dataset) -> str:
    """p, q and the regime of a record's chain, as a figure's title says them."""
    p, q = record.attrs["p"], record.attrs["q"]
    sign = record.attrs["regime"].removeprefix("p + q ")
    regime = f"{p + q:.15g} {'' if sign.startswith('=') else sign}".rstrip()
    return f"$p$ = {p:g}, $q$ = {q:g}:  $p + q$ = {regime}"


def attention_caption(record: xr.Dataset) -> str:
    """The kind of attention of a record's model, as a figure's title says it."""
    if "length" in record.attrs:
        return f"uniform attention over $N$ = {record.attrs['length']}"
    return "linear attention"
