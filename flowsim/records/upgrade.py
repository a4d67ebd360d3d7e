"""Records of earlier schemas, as the present one has them."""

from __future__ import annotations

import numpy as np
import xarray as xr

from flowsim.records.provenance import SCHEMA

#: What records of schema 1 (flowsim 0.1.0) call the models.
_FORMER_NAMES = {
    "CanonicalModel": "canonical",
    "AttentionModel": "uniform",
    "LinearAttentionModel": "linear",
    "UntiedModel": "untied",
    "RankOneModel": "rank-one",
    "attention": "uniform",
}


def upgraded(record: xr.Dataset) -> xr.Dataset:
    """A record of schema 1 or of the present one, in the present schema.

    Schema 1 had other names for the models, did not say which bias, attention and unembedding they
    have (their coordinates do), and numbered the basins of its shares instead of naming them.
    """
    if record.attrs.get("schema") == SCHEMA:
        return record
    former = record.attrs
    attributes = {**former, "schema": SCHEMA}
    if "model" in former:
        name = _FORMER_NAMES.get(former["model"], former["model"])
        attributes["model"] = name
        if "coordinates" in former:
            coordinates = [str(c) for c in np.atleast_1d(former["coordinates"])]
            dynamic = name != "rank-one" and coordinates[-1:] == ["b"]
            attributes.setdefault("bias", "dynamic" if dynamic else "optimal")
            attributes.setdefault("attention", int("o" in coordinates))
            attributes.setdefault("tied", int(name != "rank-one" or "c" not in coordinates))
    basin = record.variables.get("basin")
    if basin is not None and basin.dtype.kind in "iu":
        names = str(basin.attrs["flag_meanings"]).split()
        codes = np.atleast_1d(basin.attrs["flag_values"]).tolist()
        named = [names[codes.index(code)] for code in basin.to_numpy().tolist()]
        record = record.assign_coords(basin=np.array(named))
    return record.assign_attrs(attributes)
