import math

import pytest
import torch
from conftest import REFERENCE

from flowsim import BinaryChain
from flowsim.models import CanonicalModel
from flowsim.reference import integrate

MODEL = CanonicalModel(BinaryChain(0.5, 0.8))
TIMES = torch.linspace(0, 40, 9, dtype=torch.float64)


@pytest.mark.parametrize("row", REFERENCE["hitting_time"][:2], ids=lambda r: f"{r['p']},{r['q']}")
def test_physical_time_reaches_the_reference_point(row):
    model = CanonicalModel(BinaryChain(row["p"], row["q"]))
    times = torch.tensor([0.0, row["time"]], dtype=torch.float64)
    end = integrate(model, torch.tensor([row["e0"], row["w0"]], dtype=torch.float64), times)[-1]
    assert abs(end[1] - row["w_at_time"]) < 1e-8
    assert abs(model.loss(end) - row["loss_at_time"]) < 1e-10


def test_rows_that_are_not_finite_cost_only_themselves_and_progress_is_the_share_of_times():
    start = torch.tensor([[1.0, -1.0], [math.nan, 0.5]], dtype=torch.float64)
    seen = []
    path = integrate(MODEL, start, TIMES[:3], 1e-9, 1e-10, progress=seen.append)
    assert torch.equal(path[:, 0], integrate(MODEL, start[:1], TIMES[:3], 1e-9, 1e-10)[:, 0])
    assert path[1:, 1].isnan().all() and path[0, 1, 1] == 0.5
    assert seen[0] == 1 / 3 and seen[-1] == 2 / 3 and sorted(seen) == seen
    assert integrate(MODEL, start[1:], TIMES[:2])[1].isnan().all()
