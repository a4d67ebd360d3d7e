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
# # More than two states
#
# A symmetric chain on S states leaves its state with probability p, uniformly to the others. A
# tied transformer with S logits and m hidden units for each state is again reduced to two numbers
# (e, w), now exactly: in exact arithmetic gradient descent of all weights never leaves the plane.
# The threshold p + q = 1 of two states becomes p = (S − 1)/S.

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
from flowsim.drawing.plane import draw_basins, draw_curves, draw_flow

STATES = 5
GLOBAL, LOCAL = int(flowsim.Label.GLOBAL_MINIMUM), int(flowsim.Label.LOCAL_MINIMUM)

# %% [markdown]
# ## What the chain offers to learn
#
# Above the threshold a state is less likely than any other to follow itself, below it more likely.
# At the threshold the next state does not depend on the present one. `MarkovChain` knows this of
# any kernel: two losses, and the eigenvalue whose sign decides whether a tied model's unigram is a
# trap.

# %%
chains = {p: flowsim.MarkovChain.symmetric(STATES, p) for p in (0.9, 0.8, 0.7)}
for p, chain in chains.items():
    print(f"p = {p}: unigram {chain.stationary_entropy:.4f}, bigram {chain.entropy_rate:.4f} nats")
lopsided = flowsim.MarkovChain([[0.1, 0.6, 0.3], [0.2, 0.2, 0.6], [0.7, 0.1, 0.2]])
print("any kernel:", lopsided.regime)

# %% tags=["hide-input"]
assert abs(chains[0.8].mutual_information) < 1e-12
assert all(abs(c.stationary_entropy - np.log(STATES)) < 1e-12 for c in chains.values())
assert chains[0.9].covariance_eigenvalue < 0 < chains[0.7].covariance_eigenvalue
assert lopsided.covariance_eigenvalue < 0 and 0 < lopsided.entropy_rate < np.log(3)

# %% [markdown]
# ## The plane, on both sides of the threshold
#
# The picture is that of two states: one saddle, the curve of global minima, and a trap around a
# part of the line e = 0. Above the threshold, p = 0.9 > 4/5, every start with w > 0 is trapped.
# Below it the trap is one of the plane only: in the whole transformer it is a saddle, which all of
# 366 runs with noise on their weights left (Results, "More than two states").

# %%
records = {
    p: flowsim.portrait(
        flowsim.model("states", p, states=STATES),
        window={"w": (-1.5, 1.5), "e": (-3, 3)},
        resolution=64,
    )
    for p in (0.9, 0.7)
}
figure, axes = plt.subplots(1, 2, figsize=(9, 4.2), dpi=72, sharey=True, layout="constrained")
for (p, record), ax in zip(records.items(), axes, strict=True):
    draw_basins(record, ax)
    draw_flow(record, ax)
    draw_curves(record, ax)
    ax.set_title(f"{STATES} states, p = {p} ({record.attrs['regime']})", fontsize=10)
figure.suptitle("blue: learns the chain; hatched: trapped at the unigram", fontsize=10)
plt.show()

# %% tags=["hide-input"]
above, below = (records[p].label for p in (0.9, 0.7))
assert (above.where(above.w > 0, drop=True) == LOCAL).all()
assert (below.where(below.w > 0, drop=True) == GLOBAL).all() and (below == LOCAL).any()
for record in records.values():
    found = flowsim.portraits.portrait_summary(record)
    assert found["oracle_agree"] == found["oracle_cells"] and found["unresolved"] == 0

# %% [markdown]
# ## The threshold moves with S
#
# The share of 400 starts from N(0, I) that the plane traps jumps at p = (S − 1)/S, from 21 % to
# 64 % of the same starts for 2, 3 and 5 states (four hidden units for each state), and depends on
# nothing else.

# %%
cloud = flowsim.Cloud(("e", "w"), 400, sigma=1.0, seed=5)
probability = np.array([0.3, 0.45, 0.6, 0.72, 0.78, 0.85, 0.95])
trapped = {}
for states in (2, 3, 5):
    shares = []
    for p in probability:
        record = flowsim.scan(flowsim.model("states", p, states=states), cloud)
        shares.append(float(record.share.sel(basin="local_minimum")))
    trapped[states] = np.array(shares)
figure, ax = plt.subplots(figsize=(6, 3), dpi=80, layout="constrained")
looks = {2: ("o", "#00537f", 10), 3: ("s", "#2f6b1f", 7), 5: ("^", "#5b3a80", 3)}
for states, share in trapped.items():
    marker, colour, size = looks[states]
    style = {"marker": marker, "color": colour, "markersize": size, "markerfacecolor": "none"}
    edge = (states - 1) / states
    for on, label in ((probability < edge, None), (probability > edge, f"{states} states")):
        ax.plot(probability[on], share[on], label=label, **style)
    ax.axvline(edge, color="0.6", lw=0.8, ls=":")
ax.set(xlabel="p, probability to leave a state", ylabel="trapped share")
ax.legend(frameon=False, title="dotted: (S − 1)/S", fontsize=8)
plt.show()

# %% tags=["hide-input"]
for states, share in trapped.items():
    side = probability > (states - 1) / states
    assert np.ptp(share[side]) == np.ptp(share[~side]) == 0
    assert abs(share[side][0] - 0.64) < 0.005 and abs(share[~side][0] - 0.21) < 0.005

# %% [markdown]
# ## What you now know
#
# - S logits reduce to two numbers, exactly, with the threshold p = (S − 1)/S, which AM Sec. 4.3
#   leaves open (derivation 13). `MarkovChain` says for any kernel on which side it is.

# %% tags=["hide-input"]
for states in (2, 3, 5):
    at = (states - 1) / states
    assert flowsim.MarkovChain.symmetric(states, at + 0.01).covariance_eigenvalue < 0
    assert flowsim.MarkovChain.symmetric(states, at - 0.01).covariance_eigenvalue > 0
