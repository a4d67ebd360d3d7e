"""Follow many starts: ``flowsim.scan(model, starts)``, in memory or to disk.

>>> import flowsim, numpy as np
>>> axis = np.linspace(-2, 2, 10)
>>> record = flowsim.scan(flowsim.model("canonical", 0.5, 0.8), {"e": axis, "w": axis})
>>> float(record.share.sel(basin="global_minimum"))
0.46
"""

import sys
from types import ModuleType
from typing import Any

from flowsim.public_names import lazy_names, public_object

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "Scan": "scan.plan",
        "cell_centres": "scan.starts",
        "scan_basins": "scan.record",
        "write_scan": "scan.store",
    },
)


class _Scan(ModuleType):
    """The package ``flowsim.scan``, which can be called."""

    def __call__(self, *given: Any, **named: Any) -> Any:
        return public_object("flowsim.scan.store", "scan")(*given, **named)


sys.modules[__name__].__class__ = _Scan
