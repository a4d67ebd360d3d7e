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
# # Reduced flow against full training, from the same start
#
# The two numbers (e, w) of the canonical reduction predict where a transformer's training ends.
# Here full transformers are put at the weights that (e, w) stands for and trained, and the
# prediction is held against what they do. It is mostly right, wrong in a systematic way, and five
# numbers instead of two make it exact.

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
from flowsim.drawing.comparison import draw_disagreements, draw_labels
from full_model import Architecture, Comparison, Recipe, RunSettings, compare, grid_points, train

torch.set_num_threads(1)
ABOVE, BELOW = (0.5, 0.8), (0.2, 0.3)  # (p, q) with p + q above and below one
GLOBAL, LOCAL = int(flowsim.Label.GLOBAL_MINIMUM), int(flowsim.Label.LOCAL_MINIMUM)
chains = {pq: flowsim.BinaryChain(*pq) for pq in (ABOVE, BELOW)}

# %% [markdown]
# ## Three starts
#
# Each (e, w) becomes a transformer with d = 8, 4d hidden units, tied weights and eight positions,
# trained by gradient descent on the exact population loss. At p = 0.5, q = 0.8 the start (0.5,
# −1.2) goes where the reduced flow says; (1.5, −0.2) should reach the bigram and ends at the
# unigram. At p = 0.2, q = 0.3 the start (0.5, −1.2) should end at the unigram; it stays near it for
# long, and then learns the bigram.

# %%
starts = ((0.5, -1.2), (1.5, -0.2), (0.5, -1.2))
pairs = (ABOVE, ABOVE, BELOW)
rate = 0.1
settings = RunSettings(
    Architecture(8, 8),
    Recipe("gd", steps=2500, learning_rate=rate),
    *zip(*pairs, strict=True),
    init="lifted",
    theta=starts,
    telemetry_every=5,
)
record, _ = train(settings)
trained, times = record.loss.to_numpy(), rate * record.step.to_numpy()
reduced = []
for pq, start in zip(pairs, starts, strict=True):
    model = flowsim.models.CanonicalModel(chains[pq])
    orbit = flowsim.reference.integrate(model, torch.tensor(start).double(), torch.tensor(times))
    reduced.append(model.loss(orbit).numpy())
reduced = np.stack(reduced, axis=1)

figure, axes = plt.subplots(1, 3, figsize=(9, 2.9), dpi=75, layout="constrained")
for i, (ax, pq, start) in enumerate(zip(axes, pairs, starts, strict=True)):
    ax.plot(times, trained[:, i], color="#00537f", label="full transformer")
    ax.plot(times, reduced[:, i], "--", color="#a33b00", label="reduced flow")
    for level in (chains[pq].entropy_rate, chains[pq].stationary_entropy):
        ax.axhline(level, color="0.4", lw=0.8, ls=":")
    ax.set_xscale("symlog", linthresh=1)
    ax.set(xlabel="time", xlim=(0, times[-1]))
    ax.set_title(f"p, q = {pq}; (e, w) = {start}", fontsize=9)
axes[0].set_ylabel("loss (nats)")
axes[1].legend(frameon=False, fontsize=8)
figure.suptitle("dotted: unigram (upper) and bigram (lower) loss", fontsize=9)
plt.show()

# %% tags=["hide-input"]
unigram = np.array([chains[pq].stationary_entropy for pq in pairs])
bigram = np.array([chains[pq].entropy_rate for pq in pairs])
learned = np.abs(np.stack([reduced[-1], trained[-1]]) - bigram) < 1e-4
stuck = np.abs(np.stack([reduced[-1], trained[-1]]) - unigram) < 1e-4
assert learned.tolist() == [[True, True, False], [True, False, True]]
assert (stuck == ~learned).all()
near = np.abs(trained[:, 2] - unigram[2]) < 0.2 * (unigram[2] - bigram[2])
assert times[near][-1] > 20 and times[near][0] < 2  # from before time 2 to after time 20

# %% [markdown]
# ## A grid of starts
#
# On 100 starts per chain the canonical prediction is right for 94 % at p + q > 1 and for 88 % at
# p + q < 1, none unresolved. The misses are of one kind in each case. Above one, the reduced flow
# is too hopeful: starts near its border that it sends to the bigram are trapped. Below one, the
# trap that it shows does not exist: every run gets out.

# %%
grid = grid_points(10, 10)
canonical = {pq: compare(Comparison(*pq), grid) for pq in (ABOVE, BELOW)}
figure, axes = plt.subplots(1, 2, figsize=(8, 4.2), dpi=72, sharey=True, layout="constrained")
for ax, (pq, record) in zip(axes, canonical.items(), strict=True):
    draw_labels(record, ax, "outcome")
    draw_disagreements(record, ax)
    ax.set_title(f"p = {pq[0]}, q = {pq[1]}: prediction right for {record.attrs['agreement']:.0%}")
figure.suptitle("what training finds (blue: bigram, orange: trapped); circled: predicted otherwise")
plt.show()

# %% tags=["hide-input"]
for pq, share in ((ABOVE, 0.94), (BELOW, 0.88)):
    attributes = canonical[pq].attrs
    assert attributes["decided"] == 100 and abs(attributes["agreement"] - share) < 0.005
for pq, hoped, found in ((ABOVE, GLOBAL, LOCAL), (BELOW, LOCAL, GLOBAL)):
    record = canonical[pq]
    wrong = record.predicted != record.outcome
    assert (record.predicted[wrong] == hoped).all() and (record.outcome[wrong] == found).all()
assert (canonical[BELOW].outcome == GLOBAL).all()

# %% [markdown]
# ## Why: what full training preserves
#
# (e, w) assumes that position vectors stay at −e/2, that both feed-forward layers move as one,
# and that the bias is always at its best. Training knows nothing of that. What it does preserve
# are the rank-one weights: embedding ε, position ρ, feed-forward w₁ and w₂, and bias b, five
# numbers, which move with a metric of (1, N, 4, 4, 1): the shared position is N times slower than
# the embedding. A full transformer started there stays there to rounding and, trained by gradient
# flow, follows the five-number path to the accuracy of its steps, and so each of the 200 outcomes
# is predicted.

# %%
rank_one = {pq: compare(Comparison(*pq, "rank-one", "flow"), grid) for pq in (ABOVE, BELOW)}
for pq, record in rank_one.items():
    distance, drift = float(record.distance.max()), float(record.drift.max())
    print(f"p, q = {pq}: agreement {record.attrs['agreement']:.0%}, path off by at most")
    print(f"  {distance:.0e}, weights off the rank-one set by at most {drift:.0e} of their size")
    assert record.attrs["agreeing"] == record.attrs["decided"] == 100
    assert distance < 0.01 and drift < 1e-12
model = flowsim.models.RankOneModel(chains[ABOVE], 8)

# %% tags=["hide-input"]
assert model.coordinates == ("e", "rho", "w1", "w2", "b") and model.metric == (1, 8, 4, 4, 1)

# %% [markdown]
# ## How a run leaves the trap that is not there
#
# Take the third start, (0.5, −1.2) at p = 0.2, q = 0.3. First ε shrinks, as in the reduced flow.
# But the position ρ hardly follows, and by time 1 ε has come down to −ρ, where the symbol one no
# longer opens the ReLU. There the run is caught between a push down (ReLU open) and a push up
# (ReLU shut). It slides along ε = −ρ, at the pace of the slow position, and that way leads up,
# all the way to the bigram; w hardly changes. (e, w) cannot see it, having ρ = −e/2 for good.
# Below is the orbit of the flow, sliding exactly; the runs above, in steps, chatter about it.

# %%
model = flowsim.models.RankOneModel(chains[BELOW], 8)
state = model.from_canonical(torch.tensor([[0.5, -1.2]]).double())
times = np.concatenate([[0], np.geomspace(0.1, 300, 120)])
path = flowsim.trajectories(model, state, times)[:, 0]
eps, rho, _, w2, _ = path.T

figure, ax = plt.subplots(figsize=(6, 3), dpi=80, layout="constrained")
ax.plot(times, -rho, color="#56b4e9", lw=3, label="minus the position, −ρ")
ax.plot(times, eps, color="#00537f", lw=1.2, label="embedding ε")
ax.set_xscale("symlog", linthresh=0.5)
ax.set(
    xlabel="time",
    ylabel="coordinate",
    title="p = 0.2, q = 0.3 (p + q < 1), from (e, w) = (0.5, −1.2)",
)
ax.legend(frameon=False)
plt.show()

# %% tags=["hide-input"]
falling, sliding = torch.tensor(times < 0.95), torch.tensor(times > 1.05)
open_after_one = eps + rho  # what the ReLU sees after a one
assert (open_after_one[falling] > 0).all() and (eps[falling].diff() < 0).all()
assert (rho[falling] - rho[0]).abs().max() < 0.2 * (eps[falling] - eps[0]).abs().max()
assert open_after_one[sliding].abs().max() < 0.03
assert (rho[sliding].diff() <= 0).all() and eps[-1] > 5 * eps[sliding][0]
assert (w2 - w2[0]).abs().max() < 0.05
assert abs(float(model.loss(path[-1:])) - chains[BELOW].entropy_rate) < 1e-6
canonical_model = flowsim.models.CanonicalModel(chains[BELOW])
assert flowsim.find_limits(canonical_model, torch.tensor([0.5, -1.2]).double()).label == LOCAL

# %% [markdown]
# ## Real starts are not exactly rank one
#
# Add Gaussian noise of deviation 0.02 to every weight. The prediction of the five numbers still
# holds for at least 97 % of the 100 starts at p = 0.5, q = 0.8.

# %%
noisy = compare(Comparison(*ABOVE, model="rank-one", noise=0.02), grid)
low, high = noisy.attrs["agreement_low"], noisy.attrs["agreement_high"]
print(
    f"{noisy.attrs['agreeing']} of {noisy.attrs['decided']} (95 % interval {low:.1%} to {high:.1%})"
)

# %% tags=["hide-input"]
assert noisy.attrs["decided"] == 100 and noisy.attrs["agreement"] >= 0.97
assert noisy.drift[0].min() > 0.01  # the starts are off the rank-one set

# %% [markdown]
# ## A statement about gradient descent, not about AdamW
#
# All of this is about small steps along the gradient. AdamW divides every weight's step by its
# recent gradients, so a gradient that is nearly zero still moves it. From the same four Gaussian
# starts, at p = 0.5, q = 0.8 and on the same exact loss, gradient descent ends at the unigram and
# AdamW passes it as a plateau on its way to the bigram.

# %%
arch, seeds = Architecture(8, 4), (0, 1, 2, 3)
lines = {}
for name, recipe in (
    ("gradient descent", Recipe("gd", steps=1000, learning_rate=0.5)),
    (
        "AdamW",
        Recipe(
            "adamw", steps=1000, loss="population", beta2=0.95, weight_decay=1e-3, schedule="cosine"
        ),
    ),
):
    settings = RunSettings(arch, recipe, ABOVE[:1], ABOVE[1:], seeds, telemetry_every=20)
    lines[name], _ = train(settings)

figure, ax = plt.subplots(figsize=(6, 3), dpi=80, layout="constrained")
for (name, record), colour in zip(lines.items(), ("#a33b00", "#00537f"), strict=True):
    ax.plot(record.step, record.loss, color=colour, lw=1, label=[name, *[None] * 3])
for level in (chains[ABOVE].entropy_rate, chains[ABOVE].stationary_entropy):
    ax.axhline(level, color="0.4", lw=0.8, ls=":")
ax.set(
    xlabel="step", ylabel="loss (nats)", title="p = 0.5, q = 0.8 (p + q > 1), four Gaussian starts"
)
ax.legend(frameon=False)
plt.show()

# %% tags=["hide-input"]
descent, adamw = (record.loss.to_numpy() for record in lines.values())
assert np.abs(descent[-1] - chains[ABOVE].stationary_entropy).max() < 1e-6
assert np.abs(adamw[-1] - chains[ABOVE].entropy_rate).max() < 1e-3
near = np.abs(adamw - chains[ABOVE].stationary_entropy) < 0.05 * chains[ABOVE].mutual_information
assert (near.sum(axis=0) >= 3).all()  # for at least three readings of 20 steps: the plateau

# %% [markdown]
# ## What you now know
#
# - From rank-one weights the whole transformer moves in five numbers (derivation 7).
# - Two numbers are right for nine starts in ten; their trap at p + q < 1 is not there.

# %% tags=["hide-input"]
assert all(record.attrs["agreement"] == 1 for record in rank_one.values())
assert all(record.attrs["agreement"] < 0.95 for record in canonical.values())
