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
# # In context: a new transition matrix for every sequence
#
# So far one chain stood behind all sequences, and a transformer could keep its transition matrix
# (the *kernel*) in its weights. Here every sequence has a kernel of its own. Each of its rows is
# drawn uniformly from all laws, which is called Dirichlet(1), and the only way to know it is to
# count in the sequence.

# %% tags=["remove-cell"]
# a bare environment, such as Colab, gets flowsim here
import subprocess
import sys
from importlib.util import find_spec

if find_spec("flowsim") is None:
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", "flowsim-lab"], check=True)

# %%
import matplotlib.pyplot as plt
import numpy as np

import flowsim
from full_model import Architecture, Recipe, RunSettings, train

prior = flowsim.chains.DirichletPrior(2)
GLOBAL, LOCAL = int(flowsim.Label.GLOBAL_MINIMUM), int(flowsim.Label.LOCAL_MINIMUM)

# %% [markdown]
# ## What can be known after n symbols
#
# Counting the symbols gives the in-context unigram, counting which symbol followed which gives the
# in-context bigram. `prior_losses` has both exactly, beside the losses of Bayes's predictor and of
# an oracle that knows the kernel. With Dirichlet(1) rows add-one counting of pairs is Bayes's
# predictor.

# %%
losses = flowsim.chains.prior_losses(prior, 24)
n = np.arange(1, 25)
figure, ax = plt.subplots(figsize=(6, 3), dpi=80, layout="constrained")
for key, words, style in (("0", "counting symbols", "--"), ("1", "counting pairs = Bayes", "-"),
                          ("kernel", "knowing the kernel", ":")):  # fmt: skip
    ax.plot(n, losses.by_position[key][-24:], style, color="#00537f", label=words)
ax.set(xlabel="symbols seen, n", ylabel="loss of the next (nats)")
ax.legend(frameon=False)
plt.show()

# %% tags=["hide-input"]
pairs, symbols, kernel = (losses.by_position[key] for key in ("1", "0", "kernel"))
assert np.allclose(pairs, losses.by_position["bayes"], atol=1e-12)
assert (pairs[2:] < symbols[2:]).all() and (np.diff(pairs) < 1e-12).all()
assert (kernel < pairs).all() and pairs[-1] - kernel[-1] < 0.3 * (pairs[0] - kernel[0])

# %% [markdown]
# ## The induction head as two numbers
#
# To count pairs, a head must find the places that follow the current symbol. Two layers do that.
# The first writes the previous symbol beside the own one, in shares σ(α) and 1 − σ(α). The second
# attends to places where this mix matches the current symbol, with the score β. Such a pair of
# layers is called an *induction head*:
#
#     position      1   2   3   4   5
#     symbol        0   1   1   0   1      the current symbol is 1
#     before it     –   0   1   1   0      matched at positions 3 and 4: after a 1 came 1 and 0
#
# On this plane the loss is exact again. The line β = 0 is the in-context unigram whatever α is: a
# plateau. A saddle on it decides. To its right orbits go down to the induction head. To its left
# they converge, ever more slowly, to a worse solution in which the head matches the wrong symbol.

# %%
model = flowsim.models.InductionModel(8)
record = flowsim.portrait(model, resolution=32)
figure, ax = plt.subplots(figsize=(6.6, 6.2), dpi=75, layout="constrained")
flowsim.draw(record, ax)
plt.show()
landscape = flowsim.models.induction_landscape(model)
for side, end in sorted(landscape.ends.items()):
    print(f"end at β {'>' if side > 0 else '<'} 0: loss {end.loss:.4f} nats")
print(f"plateau {landscape.plateau:.4f} nats, saddle at α = {landscape.saddles[0]:.3f}")

# %% tags=["hide-input"]
assert set(np.unique(record.label)) <= {GLOBAL, LOCAL}
assert landscape.ends[1].loss < landscape.ends[-1].loss < landscape.plateau
saddle = landscape.saddles[0]
beside = [[saddle + 0.5, 0.0], [saddle - 0.5, 0.0]]
assert flowsim.find_limits(model, beside).label.tolist() == [GLOBAL, LOCAL]

# %% [markdown]
# ## Training: one layer and two
#
# A transformer of one layer of attention has nothing to match with, and stays at the in-context
# unigram. Two layers with feed-forward layers close more than half of the gap between the unigram
# and Bayes within 400 steps of AdamW (d = 16, 16 symbols, batches of 32, one seed).

# %%
records = {}
for layers, hidden in ((1, 0), (2, 64)):
    arch = Architecture(16, 16, layers, states=2, output="states", tied=False, hidden=hidden,
                        positions="relative-values" if hidden else "relative")  # fmt: skip
    recipe = Recipe.named(
        "adamw-papers", steps=400, batch=32, learning_rate=3e-3, schedule="constant"
    )
    settings = RunSettings(arch, recipe, seeds=(0,), data=prior, init_std=0.05, test_batch=256,
                           telemetry_every=20, dtype="float32")  # fmt: skip
    records[layers], _ = train(settings)
figure, ax = plt.subplots(figsize=(6, 3), dpi=80, layout="constrained")
for (layers, run), style in zip(records.items(), ("--", "-"), strict=True):
    words = "one layer" if layers == 1 else "two layers"
    ax.plot(run.step, run.loss[:, 0], style, color="#a33b00", label=words)
levels = dict(zip(run.baseline.values.tolist(), run.baseline_loss.values[0].tolist(), strict=True))
for name in ("unigram", "Bayes"):
    ax.axhline(levels[name], color="0.4", lw=0.8, ls=":")
ax.set(xlabel="step", ylabel="loss (nats)")
ax.set_title("dotted: in-context unigram (upper), Bayes (lower)", fontsize=9)
ax.legend(frameon=False)
plt.show()

# %% tags=["hide-input"]
gap = levels["unigram"] - levels["Bayes"]
last = {layers: float(run.loss[-4:, 0].mean()) for layers, run in records.items()}
assert last[1] > levels["unigram"] - 0.25 * gap
assert levels["Bayes"] - 0.05 * gap < last[2] < levels["unigram"] - 0.5 * gap

# %% [markdown]
# ## What you now know
#
# - Counting pairs is the best under this law and needs two layers (*Constant Depth Suffices*;
#   derivations 15 and 19).

# %% tags=["hide-input"]
assert landscape.ends[1].loss < landscape.plateau
assert last[2] < last[1]
