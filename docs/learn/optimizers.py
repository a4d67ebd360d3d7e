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
# # Optimizers: what AdamW does with the same starts
#
# Basins are a statement about gradient flow. The papers train with AdamW on sampled batches, whose
# step does not shrink with the gradient. From lifted weights each of gd, momentum, adam and adamw
# is a map in the rank-one coordinates, so that their basins can be drawn as well.

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

model = flowsim.model("rank-one", p=0.5, q=0.8, length=8)
chain = model.chain
GLOBAL, LOCAL = int(flowsim.Label.GLOBAL_MINIMUM), int(flowsim.Label.LOCAL_MINIMUM)

# %% [markdown]
# ## One start, four optimizers
#
# From (e, w) = (0.125, −0.125) at p = 0.5, q = 0.8 gradient flow is trapped at the unigram, and
# gradient descent follows it, with momentum or without. Adam and AdamW stay near the unigram for a
# thousand steps and then learn the bigram.

# %%
start = model.from_canonical([[0.125, -0.125]])
looks = np.unique(np.geomspace(1, 4000, 80).astype(int))
papers = {"beta2": 0.95, "schedule": "cosine", "clip": 1.0}  # AdamW decays too, by 1e-3
optimizers = {"gd": {}, "momentum": {}, "adam": papers, "adamw-papers": {}}
runs = {
    name: flowsim.training.ReducedTraining(model, name, steps=4000, **numbers).run(
        start, keep=looks
    )
    for name, numbers in optimizers.items()
}
figure, ax = plt.subplots(figsize=(6, 3), dpi=80, layout="constrained")
for (name, run), style in zip(runs.items(), ("-", "--", "-", "--"), strict=True):
    colour = "#a33b00" if name in ("gd", "momentum") else "#00537f"
    ax.plot(looks, run.path_loss[:, 0], style, color=colour, label=name)
for level in (chain.entropy_rate, chain.stationary_entropy):
    ax.axhline(level, color="0.4", lw=0.8, ls=":")
ax.set(xscale="log", xlabel="step", ylabel="loss (nats)")
ax.set_title("from (0.125, −0.125); dotted: unigram (upper), bigram (lower)", fontsize=9)
ax.legend(frameon=False)
plt.show()

# %% tags=["hide-input"]
assert int(flowsim.find_limits(model, start).label[0]) == LOCAL
assert int(runs["gd"].label[0]) == LOCAL
assert abs(float(runs["gd"].loss[0]) - chain.stationary_entropy) < 1e-6
for name in ("adam", "adamw-papers"):
    assert int(runs[name].label[0]) == GLOBAL and 1000 < float(runs[name].learned_step[0]) < 1500

# %% [markdown]
# ## Many starts
#
# On a grid over |e|, |w| ≤ 2 AdamW, after 4 000 steps at its cosine schedule, has learned wherever
# the flow learns, and from 56 of the 156 starts that the flow traps. What it has not learned by
# then is unresolved, never "trapped": more steps may learn it.
#
# Half of the 56 have w > 0. They learn because starts are displaced by 1e-12, as full training's
# rounding displaces them. Without it (`nudge=0`) the exact map keeps the set w₁ = w₂ on which these
# starts lie, and AdamW learns from the 28 starts with w < 0 alone.

# %%
axis = flowsim.scan.cell_centres(-2.0, 2.0, 16)
grid = np.array([(e, w) for e in axis for w in axis])
lifted = model.from_canonical(grid)
by_flow = np.asarray(flowsim.find_limits(model, lifted).label) == GLOBAL
by_adamw = np.asarray(
    flowsim.training.ReducedTraining(model, "adamw-papers", steps=4000).run(lifted).label
)
learned = by_adamw == GLOBAL
print(f"of {len(grid)} starts the flow learns {by_flow.sum()}, AdamW {learned.sum()}")
print(f"learned by the flow and not by AdamW: {(by_flow & ~learned).sum()}")
exact_map = flowsim.OptimizerChoice.named("adamw-papers", steps=4000, nudge=0)
by_map = np.asarray(flowsim.training.ReducedTraining(model, exact_map).run(lifted).label)
print(f"without a displacement AdamW learns {(by_map == GLOBAL).sum()}")

kinds = by_flow.astype(int) + 2 * learned
figure, ax = plt.subplots(figsize=(4.6, 4.2), dpi=75, layout="constrained")
names = ("neither", "flow only", "AdamW only", "both")
for kind, (marker, colour) in enumerate((("x", "k"), ("v", "#cc79a7"), ("o", "#009e73"),
                                          ("s", "#9ecae1"))):  # fmt: skip
    at = grid[kinds == kind]
    if len(at):
        ax.plot(at[:, 1], at[:, 0], marker, color=colour, ms=5, label=names[kind])
ax.set(xlabel="feed-forward weight w", ylabel="embedding e", title="who learns the bigram")
figure.legend(loc="outside lower center", ncols=4, frameon=False)
plt.show()

# %% tags=["hide-input"]
assert not (by_adamw == LOCAL).any()
assert not (by_flow & ~learned).any() and (~by_flow).sum() == 156
more, of_map = learned & ~by_flow, (by_map == GLOBAL) & ~by_flow
assert more.sum() == 56 and (grid[more][:, 1] < 0).sum() == 28
assert not (by_flow & (by_map != GLOBAL)).any() and not (by_map == LOCAL).any()
assert of_map.sum() == 28 and (grid[of_map][:, 1] < 0).all()

# %% [markdown]
# ## What you now know
#
# - Gradient descent goes where the flow goes. AdamW leaves the unigram from some trapped starts,
#   after a matrix S lost its sign (derivation 18), and loses none that the flow lets learn here.

# %% tags=["hide-input"]
assert not (by_flow & ~learned).any()
assert 0 < (learned & ~by_flow).sum() < (~by_flow).sum()
