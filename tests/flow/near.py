"""When arrays agree."""

import numpy as np


def near(found, expected, rel=1e-11, size=0.0):
    """Entries agree to a part of the largest of them, or of ``size``."""
    scale = max(np.abs(expected).max(), size)
    assert np.abs(np.asarray(found) - expected).max() <= rel * scale
