"""Records on disk."""

from flowsim.door import front

__getattr__, __dir__, __all__ = front(
    __name__,
    {
        "open_record": "records.netcdf",
    },
)
