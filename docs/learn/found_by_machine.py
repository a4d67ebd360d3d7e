# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Reduced models found by machine
#
# The other pages use reduced models that people derived. Here a machine finds them. It takes the
# loss of any network and a start, and grows the smallest linear space of weights that gradient
# descent from there never leaves.

# %% tags=["remove-cell"]
# a bare environment, such as Colab, gets flowsim here
import subprocess
import sys
from importlib.util import find_spec

if find_spec("flowsim") is None:
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", "flowsim-lab"], check=True)

# %%
import matplotlib.pyplot as plt
import torch

import flowsim

torch.set_default_dtype(torch.float64)
generator = torch.Generator().manual_seed(0)

# %% [markdown]
# ## Twelve hidden units that are one
#
# A two-layer ReLU network with two inputs has 36 weights if it has twelve hidden units. All units
# start equal. They have equal gradients, so they stay equal, and three numbers say all: the two
# incoming weights of a unit and the outgoing one.

# %%
x, y = torch.randn(20, 2, generator=generator), torch.randn(20, generator=generator)


def least_squares(weights):
    return ((torch.relu(x @ weights["first"].T) @ weights["second"] - y) ** 2).mean()


start = {"first": torch.tensor([[0.5, -0.3]]).repeat(12, 1), "second": torch.full((12,), 0.4)}
model = flowsim.reduce(least_squares, start)
print(f"{model.exactness.weights} weights, coordinates {', '.join(model.coordinates)}")

# %% tags=["hide-input"]
assert model.coordinates == ("first_1", "first_2", "second")
assert model.exactness.weights == 36
assert model.exactness.off_span < 1e-12 and model.exactness.differ < 1e-12

# %% [markdown]
# ## If the units differ there is nothing to find
#
# With random weights every unit goes its own way. The space grows until it has passed the limit,
# and a sentence says so.

# %%
random = {name: torch.randn(w.shape, generator=generator) for name, w in start.items()}
try:
    flowsim.reduce(least_squares, random, most=20)
    refused = ""
except flowsim.InputError as error:
    refused = str(error)
print(refused.split(";")[0])

# %% tags=["hide-input"]
assert "more than 20 of 36 dimensions" in refused
assert "\n" not in refused

# %% [markdown]
# ## Linear attention in context
#
# One head of linear attention learns a regression in context. Its loss over all data is known
# (arXiv 2501.16265). Key and query start along one axis of the data. The machine finds one number
# each for value, key and query, which is the published reduction, and what it conserves.


# %%
def regression(spectrum, length=16):
    law = torch.diag(torch.tensor(spectrum))
    square = (1 + 1 / length) * law @ law + law * law.trace() / length

    def loss(weights):
        u = weights["value"] * torch.outer(weights["key"], weights["query"])
        return law.trace() / 2 - (law @ law @ u).trace() + (square @ u @ law @ u.T).trace() / 2

    return loss


def along(axis):
    unit = torch.eye(4)[axis]
    return {"value": torch.tensor(0.3), "key": 0.5 * unit, "query": 0.2 * unit}


spectra = ([2.0, 1.0, 0.7, 0.4], [1.5, 0.6, 0.3, 0.2])
heads = [flowsim.reduce(regression(spectrum), along(1), steps=20) for spectrum in spectra]
kept = flowsim.reduction.conserved(*heads)
print(", ".join(heads[0].coordinates), "| conserved:", "; ".join(kept.polynomials))

# %% tags=["hide-input"]
v, k, q = theta = torch.tensor([0.7, -0.4, 1.1])
published = 4.1 / 2 - v * k * q + (v * k * q) ** 2 / 2 * (1 + 1 / 16 + 4.1 / 16)
assert heads[0].coordinates == ("value", "key", "query")
assert torch.allclose(heads[0].loss(theta), published)
assert set(kept.polynomials) == {"value² − query²", "key² − query²"} and kept.allowed == 2

# %% [markdown]
# ## Exact is not stable
#
# The space is kept exactly, but what lies beside it can grow. The start above lies along the second
# axis of the data. A small step towards the first axis grows, since more is to be gained there. A
# start along the first axis has nothing of the kind: there all other directions gain less.

# %%
first = flowsim.reduce(regression(spectra[0]), along(0), steps=20)
growths = {
    "first axis": flowsim.reduction.transverse_growth(first, until=20.0, pieces=32),
    "second axis": flowsim.reduction.transverse_growth(heads[0], until=20.0, pieces=32),
}
figure, ax = plt.subplots(figsize=(6, 3), dpi=80, layout="constrained")
for (words, growth), style in zip(growths.items(), ("-", "--"), strict=True):
    ax.semilogy(growth.times, growth.gains, style, color="#00537f", label=f"along the {words}")
ax.set(xlabel="gradient-flow time", ylabel="growth of a small step off")
ax.legend(frameon=False)
plt.show()
print("along the second axis the step grows in", next(iter(growths["second axis"].grown)))

# %% tags=["hide-input"]
assert growths["second axis"].gain > 100 * growths["first axis"].gain
assert growths["first axis"].gain < 10

# %% [markdown]
# ## Training with noise beside it
#
# `agreement` adds noise to every weight, trains all of them, and compares the ends with those of
# the reduced flow. What grows decides: the start along the first axis ends where the reduced flow
# says, the one along the second axis does not.

# %%
shares = {
    words: flowsim.reduction.agreement(found, [found.start], noise=0.01, runs=4, until=200.0)
    for words, found in (("first axis", first), ("second axis", heads[0]))
}
for words, found in shares.items():
    print(f"along the {words}: {int(found.right.sum())} of 4 runs end as the reduced flow does")

# %% tags=["hide-input"]
assert shares["first axis"].right.all() and not shares["first axis"].undecided.any()
assert not shares["second axis"].right.any()

# %% [markdown]
# ## What you now know
#
# - `flowsim.reduce` finds the coordinates in which all weights move, or says why there are none.
# - `transverse_growth` says whether small steps off them grow ([results](../results/reduced.md)).

# %% tags=["hide-input"]
assert model.exactness.off_span < 1e-12
assert kept.independent == 2
