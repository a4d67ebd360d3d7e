"""Seeded forgeries of records: well-formed files, well sealed, that flowsim never wrote."""

import numpy as np
import xarray as xr

#: What an attribute may be replaced with.
ATTRIBUTES = [
    "", "many", "x" * 5000, "[" * 20_000, '{"a": NaN}', "1e400", "../../etc/passwd", "a\nb",
    "\x00é", 0, -1, 10**18, 2.5, np.nan, np.inf, np.array([1.0, 2.0]), np.array([], dtype=float),
    np.array([3, 1, 2]), np.array(["a", "b"], dtype=object), np.zeros((0, 2)).ravel(),
]  # fmt: skip
#: What is done to the values of a variable.
VALUES = {
    "nan": lambda v: np.full(v.shape, np.nan),
    "inf": lambda v: np.full(v.shape, np.inf),
    "zeros": lambda v: np.zeros_like(v),
    "negative": lambda v: -np.abs(v.astype(float)) - 1,
    "huge": lambda v: np.full(v.shape, 1e300),
    "foreign codes": lambda v: np.full(v.shape, 9, np.int8),
    "backwards": lambda v: v[::-1] if v.ndim else v,
    "floats": lambda v: v.astype(float),
    "whole numbers": lambda v: np.nan_to_num(v).astype(np.int64),
    "text": lambda v: np.full(v.shape, "word", dtype=object),
}


def forge(record, draw):
    """A record with one to three forgeries, and what they are.

    Args:
        record: as ``read_record`` gives it.
        draw: random.Random.
    """
    done, record = [], record.copy(deep=True)
    for _ in range(draw.choice([1, 1, 1, 2, 3])):
        kind = draw.choice(list(KINDS))
        try:
            found = KINDS[kind](record, draw)
        except ValueError:  # xarray holds no such record
            continue
        if found is not None:
            record, detail = found
            done.append(f"{kind}: {detail}")
    return record, done


def _attribute(record, draw):
    name = draw.choice(sorted(record.attrs))
    value = draw.choice(ATTRIBUTES)
    return record.assign_attrs({name: value}), f"{name} = {str(value)[:20]!r}"


def _no_attribute(record, draw):
    name = draw.choice(sorted(record.attrs))
    return record.drop_attrs(deep=False).assign_attrs(
        {k: v for k, v in record.attrs.items() if k != name}
    ), name


def _their_attribute(record, draw):
    name = draw.choice(sorted(map(str, record.variables)))
    attributes = record[name].attrs
    if not attributes:
        return None
    key, value = draw.choice(sorted(attributes)), draw.choice(ATTRIBUTES)
    if key in ("scale_factor", "add_offset", "_FillValue"):
        return None
    attributes[key] = value
    return record, f"{name}.{key} = {str(value)[:20]!r}"


def _values(record, draw):
    name = draw.choice(sorted(map(str, record.variables)))
    variable, kind = record.variables[name], draw.choice(sorted(VALUES))
    if variable.dtype.kind not in "iuf":
        return None
    changed = VALUES[kind](variable.to_numpy())
    return _with(record, name, variable.dims, changed), f"{name} {kind}"


def _no_variable(record, draw):
    name = draw.choice(sorted(map(str, record.variables)))
    return record.drop_vars(name), name


def _exchanged(record, draw):
    names = sorted(map(str, record.data_vars))
    if len(names) < 2:
        return None
    one, other = draw.sample(names, 2)
    return record.rename({one: other, other: one}), f"{one} and {other}"


def _renamed(record, draw):
    names = sorted(set(map(str, record.dims)) | set(map(str, record.variables)))
    name = draw.choice(names)
    return record.rename({name: "other"}), name


def _cut(record, draw):
    dim = draw.choice(sorted(map(str, record.dims)))
    size = draw.choice([0, 1, 2])
    return record.isel({dim: slice(0, size)}), f"{dim} to {size}"


def _turned(record, draw):
    names = [str(n) for n, v in record.data_vars.items() if v.ndim > 1]
    if not names:
        return None
    name = draw.choice(sorted(names))
    variable = record.variables[name]
    return _with(record, name, variable.dims[::-1], variable.to_numpy().T), name


def _scalar(record, draw):
    name = draw.choice(sorted(map(str, record.data_vars)))
    return _with(record, name, (), np.float64(draw.choice([0.0, 1.0, -5.0, np.nan]))), name


def _with(record, name, dims, values):
    attributes = record[name].attrs
    return record.drop_vars(name).assign({name: (dims, values, attributes)})


KINDS = {
    "attribute": _attribute,
    "no attribute": _no_attribute,
    "attribute of a variable": _their_attribute,
    "values": _values,
    "no variable": _no_variable,
    "exchanged": _exchanged,
    "renamed": _renamed,
    "cut": _cut,
    "turned": _turned,
    "scalar": _scalar,
}


def write(record, path):
    """Write it as flowsim would, sealed; False if not even NetCDF takes it."""
    from flowsim.records.netcdf import store_record

    try:
        with np.errstate(all="ignore"):
            store_record(record, path)
    except Exception:
        return False
    return isinstance(record, xr.Dataset)
