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
# # Initializations: what fraction of a Gaussian cloud is trapped
#
# Networks start from Gaussian weights. How many of those starts end at the unigram, the bad
# minimum, as the scale σ and the chain (p, q) vary? Three answers are set side by side: an
# integral over the reduced flow's basin, the flow itself from random starts, and training of full
# transformers.

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
import torch

import flowsim
from flowsim.drawing.curves import draw_probability
from full_model import Architecture, Comparison, Recipe, RunSettings, cloud_points, compare, train

torch.set_num_threads(1)
ABOVE, BELOW = (0.5, 0.8), (0.2, 0.3)  # (p, q) with p + q above and below one
GLOBAL, LOCAL = int(flowsim.Label.GLOBAL_MINIMUM), int(flowsim.Label.LOCAL_MINIMUM)
chains = {pq: flowsim.BinaryChain(*pq) for pq in (ABOVE, BELOW)}

# %% [markdown]
# ## Theory: an integral over the basin
#
# The basin of the bigram in the (e, w) plane has a formula, so the probability that (e, w) ~ N(0,
# σ²I) falls into it is a one-dimensional integral. For p + q > 1 a small start is trapped almost
# surely (at σ = 0.1 all but four in a billion), and even a huge one in half of all cases. For p +
# q < 1 a small start is safe almost surely, and a huge one is trapped in a quarter of the cases.

# %%
above, below = (
    [1 - flowsim.models.gaussian_probability(chains[pq], sigma) for sigma in (0.1, 1e6)]
    for pq in (ABOVE, BELOW)
)
print("trapped at σ = 0.1 and σ = 10⁶: p + q > 1", above, "p + q < 1", below)

# %% tags=["hide-input"]
assert 3e-9 < flowsim.models.gaussian_probability(chains[ABOVE], 0.1) < 5e-9
assert abs(above[1] - 1 / 2) < 1e-5
assert below[0] < 1e-10 and abs(below[1] - 1 / 4) < 1e-5

# %% [markdown]
# ## The scan: following the flow
#
# Now nothing is known about basins: at each of 13 scales, 400 random starts are followed until
# they end. Every single end is the one that the formula gives for its start, and the integral
# lies inside the 95 % intervals of the shares but for one or two of the 26, as it should.

# %%
sigmas = np.geomspace(0.1, 10, 13)
scans = {
    pq: flowsim.gaussian(flowsim.models.CanonicalModel(chain), sigmas, samples=400, seed=1)
    for pq, chain in chains.items()
}
figure, axes = plt.subplots(1, 2, figsize=(9, 3.4), dpi=75, sharey=True, layout="constrained")
for ax, (pq, scan) in zip(axes, scans.items(), strict=True):
    draw_probability(scan, ax)
    ax.set_title(f"p = {pq[0]}, q = {pq[1]} ({scan.attrs['regime']})")
    ax.yaxis.label.set_fontsize(8)
axes[0].legend(frameon=False, fontsize=8)
plt.show()

# %% tags=["hide-input"]
for scan in scans.values():
    assert scan.sizes["sigma"] == 13 and scan.attrs["samples"] == 400
    assert scan.attrs["wrong"] == scan.attrs["unresolved"] == 0
assert sum(scan.attrs["intervals_missed"] for scan in scans.values()) <= 2

# %% [markdown]
# ## Over all chains
#
# At σ = 1, the same 300 starts at 64 pairs (p, q): the trapped share takes two values only, one
# for p + q > 1 and one for p + q < 1, and is zero on p + q = 1. Both are of one draw: the integral
# at p + q > 1 is 0.62. (The whole transformer has no trap for such starts below the diagonal, see
# the last section but one.)

# %%
grid = [0.1, 0.2, 0.3, 0.45, 0.55, 0.7, 0.8, 0.9]
cloud = flowsim.Cloud(("e", "w"), 300, sigma=1.0, seed=3)
trapped = np.empty((len(grid), len(grid)))
for i, p in enumerate(grid):
    for j, q in enumerate(grid):
        found = flowsim.scan(flowsim.models.CanonicalModel(flowsim.BinaryChain(p, q)), cloud)
        assert (found.label != flowsim.Label.UNRESOLVED).all()
        trapped[i, j] = float((found.label == LOCAL).mean())

figure, ax = plt.subplots(figsize=(4.6, 3.8), dpi=75, layout="constrained")
image = ax.imshow(trapped.T, origin="lower", cmap="cividis_r", vmin=0, vmax=1)
for i, j in np.ndindex(trapped.shape):
    ax.text(i, j, f"{trapped[i, j]:.2f}", ha="center", va="center", fontsize=7,
            color="white" if trapped[i, j] > 0.5 else "black")  # fmt: skip
ax.set(xticks=range(8), xticklabels=grid, yticks=range(8), yticklabels=grid, xlabel="p", ylabel="q")
ax.set_title("trapped share of 300 Gaussian starts, σ = 1", fontsize=10)
figure.colorbar(image)
plt.show()

# %% tags=["hide-input"]
side = np.round(np.add.outer(grid, grid) - 1, 12)
for sign, chain in ((1, chains[ABOVE]), (-1, chains[BELOW])):
    values = trapped[np.sign(side) == sign]
    expected = 1 - flowsim.models.gaussian_probability(chain, 1.0)
    assert np.ptp(values) == 0
    assert abs(values[0] - expected) < 3 * (expected * (1 - expected) / 300) ** 0.5
assert (side == 0).sum() == 8 and (trapped[side == 0] == 0).all()

# %% [markdown]
# ## Training: full transformers from the same cloud
#
# Now lift 150 points of each cloud into full transformers (d = 8, eight positions) and train them
# by gradient flow on the exact population loss. For p + q > 1 the trapped share is that of the
# two-number flow to within two per cent or so, but not for the right reason: it errs on up to 8 %
# of the starts, in both directions, and the errors nearly cancel. For p + q < 1 its trap does not
# exist: the integral says 7 % at σ = 0.7, and of the full transformers none is trapped. The
# five-number rank-one model, whose set of weights gradient flow from such starts never leaves, is
# right about every single one of the 900.

# %%
scales = (0.3, 0.5, 0.7)
shares = {}
for pq in (ABOVE, BELOW):
    for sigma in scales:
        points = cloud_points(150, sigma, seed=2)
        run = compare(Comparison(*pq, "rank-one", "flow"), points)
        reduced = flowsim.find_limits(
            flowsim.models.CanonicalModel(chains[pq]), points
        ).label.numpy()
        trained = run.outcome.to_numpy()
        assert run.attrs["unresolved_outcomes"] == run.attrs["unresolved_predictions"] == 0
        assert run.attrs["agreeing"] == 150
        theory = 1 - flowsim.models.gaussian_probability(chains[pq], sigma)
        shares[pq, sigma] = theory, (reduced == LOCAL).mean(), (trained == LOCAL).mean()
        freed = (reduced == LOCAL) & (trained == GLOBAL)
        caught = (reduced == GLOBAL) & (trained == LOCAL)
        if pq == ABOVE:
            assert freed.any() and caught.any() and (freed | caught).mean() <= 0.08
            assert abs(freed.sum() - caught.sum()) <= 0.02 * 150
print("p, q        σ    trapped: integral  flow   training")
for (pq, sigma), (theory, flow, full) in shares.items():
    print(f"{pq!s:10} {sigma:4}           {theory:9.3f} {flow:7.3f} {full:8.3f}")

figure, ax = plt.subplots(figsize=(6, 3.2), dpi=80, layout="constrained")
fine = np.geomspace(0.1, 2, 60)
for pq, colour in ((ABOVE, "#a33b00"), (BELOW, "#00537f")):
    theory = [1 - flowsim.models.gaussian_probability(chains[pq], s) for s in fine]
    name = f"p, q = {pq}"
    ax.plot(fine, theory, color=colour, label=f"{name}: integral")
    values = np.array([shares[pq, s] for s in scales])
    ax.plot(scales, values[:, 1], "o", mfc="none", color=colour, label="flow, 150 starts")
    ax.plot(
        scales, values[:, 2], "x", ms=8, mew=2, color=colour, label="full training, same starts"
    )
ax.set(xscale="log", xlabel="σ of e and w", ylabel="trapped share")
ax.legend(frameon=False, fontsize=7, ncols=2, loc=(0.02, 0.36))
plt.show()

# %% tags=["hide-input"]
for (pq, _), (theory, flow, full) in shares.items():
    assert abs(flow - theory) < 3 * (theory * (1 - theory) / 150) ** 0.5 + 1 / 150
    assert full == 0 or pq == ABOVE
assert abs(shares[BELOW, 0.7][0] - 0.07) < 0.005

# %% [markdown]
# ## Every weight Gaussian
#
# In practice it is not two numbers that are Gaussian but every weight. For 32 transformers each
# (attention included, d = 4, four positions) with all weights from N(0, s²), gradient descent
# ends as the small-σ limit says: for s = 0.02 and 0.1 all at the unigram for p + q > 1, none for
# p + q < 1. At s = 0.3 a first one gets away. (AdamW is another matter: see the notebook on full
# training.)

# %%
for pq in (ABOVE, BELOW):
    chain = chains[pq]
    for s in (0.02, 0.1, 0.3):
        settings = RunSettings(
            Architecture(4, 4), Recipe("gd", steps=800, learning_rate=0.5), pq[:1], pq[1:],
            seeds=tuple(range(32)), init_std=s,
        )  # fmt: skip
        record, _ = train(settings)
        still_open = (record.loss.to_numpy()[-1] - chain.entropy_rate) / chain.mutual_information
        unigram, bigram = int((still_open > 0.95).sum()), int((still_open < 0.05).sum())
        print(f"p, q = {pq}, s = {s}: {unigram} at the unigram, {bigram} at the bigram")
        assert unigram + bigram == 32
        if pq == BELOW:
            assert unigram == 0
        else:
            assert bigram == (0 if s < 0.3 else 1)

# %% [markdown]
# ## What you now know
#
# - At p + q > 1 descent traps small Gaussian weights, almost surely. At p + q < 1 they learn.
# - What to do about it: [choose the first weights](../howto/choose_start.md) (LG, Sec. 5).

# %% tags=["hide-input"]
assert all(shares[ABOVE, sigma][2] > 0.5 for sigma in scales)
assert all(shares[BELOW, sigma][2] == 0 for sigma in scales)
