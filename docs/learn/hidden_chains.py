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
# # Hidden chains and memory
#
# A chain that is seen through flips is no chain any more: the past says something that the present
# symbol does not. Here are the exact losses, what a model of one symbol sees of it, and what a
# memory of one sign can learn.

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
import flowsim.chains.hidden as hidden

torch.set_default_dtype(torch.float64)

# %% [markdown]
# ## What the past is worth
#
# The chain leaves its state with chance 0.9, and every symbol is flipped with chance 0.2. The best
# loss falls with every symbol more, from the unigram's log 2 to the entropy rate. The best linear
# memory weighs a symbol k steps back by κ^k. Where p + q > 1 its κ is negative.

# %%
flips = hidden.process("flips", p=0.9, q=0.9, epsilon=0.2)
losses = flips.ngram_losses(10)
low, high = flips.entropy_bounds(14)
for n in (1, 2, 3, 10):
    print(f"last {n - 1} symbols: {losses[n - 1]:.6f}")
print(f"entropy rate: {low:.6f} to {high:.6f}, ratio κ = {flips.linear_filter.ratio:.4f}")

# %% tags=["hide-input"]
assert losses == sorted(losses, reverse=True)
assert low <= high < losses[9] and high - low < 1e-5
assert abs(flips.linear_filter.ratio + 0.5805142) < 1e-6

# %% [markdown]
# ## What one symbol sees
#
# A model that reads the present symbol alone has the loss of a chain of first order, with p̃ and q̃
# of neighbouring symbols. Flips weaken the correlation and keep its sign, so the trap is where it
# was: in the plane of the canonical model the boundary does not move, whatever the flips.

# %%
theta = torch.cartesian_prod(torch.linspace(-2, 2, 9), torch.linspace(-2, 2, 9))
basins = []
for epsilon in (0.0, 0.1, 0.3):
    spec = flowsim.ModelSpec("canonical", {"process": f"flips:p=0.9,q=0.9,epsilon={epsilon}"})
    model = spec.build()
    basins.append(model.basin(theta))
    print(f"flips {epsilon}: p̃ = {model.chain.p:.4f}, bigram {model.end_losses().best:.4f}")

# %% tags=["hide-input"]
assert all(bool((basin == basins[0]).all()) for basin in basins)
assert abs(float(model.end_losses().best) - spec.build().chain.process.ngram_loss(2)) < 1e-12

# %% [markdown]
# ## What a memory learns
#
# A state-space layer keeps h ← κh + W_V x beside the residual stream. Four numbers stand for all
# its weights: e, w, the memory's weight v and its decay α. We start on a grid of (α, v), outside
# the unigram's trap, with κ = σ(α) > 0 and with κ = tanh α of both signs.

# %%
figure, panels = plt.subplots(1, 2, figsize=(7, 3), sharey=True)
below = {}
for panel, decay in zip(panels, ("positive", "signed"), strict=True):
    memory = flowsim.model("memory", 0.9, flip=0.2, decay=decay)
    alpha, v = [-1.5, -0.9, -0.5, 0.5, 0.9, 1.5], [-1.0, -0.5, 0.4, 0.9]
    starts = torch.tensor([[0.6, -1.2, y, x] for y in v for x in alpha])
    ends = flowsim.find_limits(memory, starts)
    below[decay] = ends.loss < memory.bigram - 1e-3
    for reached, colour in ((True, "tab:blue"), (False, "tab:gray")):
        here = below[decay] == reached
        name = "two symbols" if reached else "bigram"
        panel.scatter(starts[here, 3], starts[here, 2], c=colour, label=name)
    panel.set(title=f"{decay} decay", xlabel="α at the start")
panels[0].set_ylabel("v at the start")
panels[1].legend()
plt.show()

# %% tags=["hide-input"]
assert bool((below["positive"] == (starts[:, 2] < 0)).all())
assert 0 < int(below["signed"].sum()) < len(starts)
right = starts[:, 2] * starts[:, 3] < 0  # v κ < 0
assert bool((below["signed"] == right).float().mean() > 0.8)

# %% [markdown]
# A positive memory gets below the bigram from v < 0 alone; one of both signs from where v and κ
# differ in sign. With more positions the two part further: `docs/results/memory.md`.

# %% tags=["hide-input"]
assert abs(memory.bigram - losses[1]) < 1e-12
assert memory.bayes < memory.bigram
