"""The coordinates of an induction head, read off transformers that are one."""

import pytest
import torch

from flowsim.chains import DirichletPrior, DoublyStochasticPrior, FinitePrior
from flowsim.models import InductionModel
from full_model import Architecture, PriorSource, all_sequences, fit_induction, forward
from full_model.model.sources import sequence_law

N = 7
ARCH = Architecture(6, N, 2, hidden=0, states=2, output="states", tied=False, positions="relative")


def head(alpha, beta, slope=0.0):
    """Weights whose second layer attends as the reduced head, more so to near places by slope."""
    weights = {name: torch.zeros(1, *s, dtype=torch.float64) for name, s in ARCH.shapes.items()}
    eye = torch.eye(2, dtype=torch.float64)
    weights["embedding"][0, :, :2] = eye
    weights["0.relative"][0, 0] = -700.0
    weights["0.relative"][0, 0, :2] = torch.tensor([0.0, alpha])
    weights["0.value"][0, 2:4, :2] = eye  # u
    weights["0.out"][0] = weights["1.out"][0] = torch.eye(6)
    weights["1.query"][0, :2, :2] = beta * 6**0.5 * eye
    weights["1.key"][0, :2, 2:4] = eye
    weights["1.relative"][0, 0] = -slope * torch.arange(N)
    weights["1.value"][0, 4:, :2] = eye
    return weights


@pytest.mark.parametrize(("alpha", "beta", "slope"), [(3.0, 2.0, 0.0), (-1.5, -0.7, 0.3)])
def test_of_a_head_they_are_its_own(alpha, beta, slope):
    found = fit_induction(ARCH, head(alpha, beta, slope), all_sequences(N))
    for values, expected in ((found.alpha, alpha), (found.beta, beta), (found.explained, 1)):
        assert float(values[0]) == pytest.approx(expected, abs=1e-9)
    share = 1 / (1 + torch.exp(torch.tensor(-alpha, dtype=torch.float64)))
    assert float(found.previous[0]) == pytest.approx(float(share), abs=1e-9)


@pytest.mark.parametrize(("prior", "alpha", "beta"), [
    (DirichletPrior(2), 2.0, 1.5), (DirichletPrior(2), -2.0, 2.5), (DirichletPrior(2), 0.0, 0.0),
    (DoublyStochasticPrior(2), 1.25, -0.7), (FinitePrior([[[0.5, 0.5], [0.8, 0.2]]]), 4.0, 40.0),
])  # fmt: skip
def test_the_head_attends_as_the_reduced_model_says(prior, alpha, beta):
    """What its second layer finds, read as shares of counts, has the reduced model's loss."""
    trace, tokens = {}, all_sequences(N)
    forward(ARCH, head(alpha, beta), tokens, trace)
    seen = torch.where(torch.arange(N) > 0, trace["1.pattern"][0, :, 0], 0.0)  # i = 2, …, n
    share = (seen @ tokens.double()[..., None])[..., 0] / seen.sum(-1).clamp(min=1e-300)
    places = torch.arange(N, dtype=torch.float64)  # n − 1
    one = ((places * share + 1) / (places + 2))[:, 1:]
    source = PriorSource(prior)
    laws = source.next_laws(tokens)
    law, after = sequence_law(source, tokens, laws)[0], laws[0, :, 1:, 1]
    each = -(after * one.log() + (1 - after) * (1 - one).log()).mean(-1)
    expected = InductionModel(N, prior).loss([alpha, beta])
    assert float((law * each).sum()) == pytest.approx(float(expected), abs=1e-12)
