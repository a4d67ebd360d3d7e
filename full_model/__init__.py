"""full_model: the full transformer, trained for real from starts that match the reduced models.

Public names load their module on first use, so that importing the package imports no torch.
"""

from flowsim.public_names import lazy_names, names_of

#: The module of every public name.
_HOME = names_of(__file__)

__getattr__, __dir__, __all__ = lazy_names(__name__, _HOME)
