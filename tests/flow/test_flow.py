import math

import torch

from flowsim import BinaryChain
from flowsim.models import CanonicalModel
from flowsim.reference import integrate

MODEL = CanonicalModel(BinaryChain(0.5, 0.8))
TIMES = torch.linspace(0, 40, 9, dtype=torch.float64)


def test_rows_that_are_not_finite_cost_only_themselves_and_progress_is_the_share_of_times():
    start = torch.tensor([[1.0, -1.0], [math.nan, 0.5]], dtype=torch.float64)
    seen = []
    path = integrate(MODEL, start, TIMES[:3], 1e-9, 1e-10, progress=seen.append)
    assert torch.equal(path[:, 0], integrate(MODEL, start[:1], TIMES[:3], 1e-9, 1e-10)[:, 0])
    assert path[1:, 1].isnan().all() and path[0, 1, 1] == 0.5
    assert seen[0] == 1 / 3 and seen[-1] == 2 / 3 and sorted(seen) == seen
    assert integrate(MODEL, start[1:], TIMES[:2])[1].isnan().all()
