"""Many starts at once."""

import sys
from types import ModuleType
from typing import Any

from flowsim.errors import InputError


class _Scan(ModuleType):
    """Stand-in for ``flowsim.scan`` once a part of it is loaded; people try to call it."""

    def __call__(self, *_: Any, **__: Any) -> Any:
        meant = sys.modules["flowsim"]._GUESSED["scan"]
        raise InputError(f"flowsim.scan is no function: {meant}")


sys.modules[__name__].__class__ = _Scan
