"""Records on disk."""

from flowsim.public_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, {"open_record": "records.netcdf"})
