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
# # The reduced flow and its basins
#
# A single-layer transformer with tied weights reads a binary Markov chain and predicts the next
# symbol. Sometimes it learns the chain, sometimes it stops at predicting the overall frequency of
# the ones. *Local to Global* (arXiv 2406.03072, "LG" below) reduces it to two numbers in which
# that can be seen as a picture.
#
# The transformer has an embedding e and position vectors c_n of shape (d,), one head of softmax
# attention and 4d hidden units. With s_n the symbol at position n,
#
#     x_n = s_n e + c_n
#     y_n = x_n + W_O Σ_{i ≤ n} softmax_i(⟨W_Q x_n, W_K x_i⟩/√d) W_V x_i
#     z_n = y_n + W_2 ReLU(W_1 y_n)
#     logit of "the next symbol is 1" = ⟨e, z_n⟩ + b
#
# The same e stands in the first and in the last line: the weights are tied.

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
from flowsim.drawing.plane import draw_basins, draw_curves, draw_flow
from full_model import Architecture, MarkovSource, PopulationLoss, lift_canonical

torch.set_num_threads(1)
chain = flowsim.BinaryChain(p=0.5, q=0.8)
model = flowsim.models.CanonicalModel(chain)

# %% [markdown]
# ## The task, and its two candidate answers
#
# With p = P(0→1) = 0.5 and q = P(1→0) = 0.8, the best predictor looks at the current symbol (the
# *bigram*: 0.5 after a zero, 0.2 after a one) and its loss is the entropy rate, 0.6190 nats.
# Without looking at anything, the best is the frequency of ones, 0.385 (the *unigram*), at 0.6663
# nats. Everything here is about which of the two losses training ends at.

# %%
x, following = chain.sample(200, 1000, torch.Generator().manual_seed(0))
after_zero, after_one = (following[x == s].double().mean().item() for s in (0, 1))
print(f"frequency of a one after 0: {after_zero:.3f}, after 1: {after_one:.3f}")

# %% tags=["hide-input"]
assert abs(after_zero - 0.5) < 0.005 and abs(after_one - 0.2) < 0.005
assert round(chain.entropy_rate, 4) == 0.6190 and round(chain.stationary_entropy, 4) == 0.6663
assert round(chain.stationary[1], 3) == 0.385
bigram = torch.where(x == 1, 0.2, 0.5)
unigram = torch.full_like(bigram, chain.stationary[1])
for guess, loss in ((bigram, chain.entropy_rate), (unigram, chain.stationary_entropy)):
    measured = torch.nn.functional.binary_cross_entropy(guess, following.to(guess))
    assert abs(measured - loss) < 0.002

# %% [markdown]
# ## Two numbers in place of a transformer
#
# Let every weight matrix be rank one along one direction: an embedding of size e, a feed-forward
# layer of size w, no attention. These weights are those of an ordinary transformer. Its loss over
# all 2⁶ sequences of six symbols equals the two-number formula to rounding, whatever its width.

# %%
points = torch.tensor([[1.2, -0.9], [-0.7, 0.4], [0.3, 1.5]], dtype=torch.float64)
for d in (2, 8):
    arch = Architecture(d, 6)
    weights = lift_canonical(points, arch, bias=model.optimal_bias(points))
    full = PopulationLoss(arch, MarkovSource.of(chain))(weights)
    count = sum(w[0].numel() for w in weights.values())
    print(f"d = {d}, {count} weights: full loss", [round(v, 6) for v in full.tolist()])
    assert (full - model.loss(points)).abs().max() < 1e-13
    matrices = [w for w in weights.values() if w.ndim == 3]
    assert all((torch.linalg.matrix_rank(w) <= 1).all() for w in matrices)

# %% [markdown]
# The loss sees e and w only through the **logit gap** Δ = e²(1 + 2w|w|), by how much the logit
# after a one exceeds that after a zero. At Δ = 0 the model ignores its input: unigram. The bigram
# is at Δ* = log[(1−p)(1−q)/(pq)], negative here because p + q > 1: a one makes another one less
# likely. As e² is never negative, the feed-forward layer has to supply the sign, with w < −1/√2.


# %%
def gap(theta):
    e, w = theta[..., 0], theta[..., 1]
    return e**2 * (1 + 2 * w * w.abs())


target = chain.target_logit_gap
same_gap = torch.tensor([[w_, w_] for w_ in (-1.0, -1.5, -3.0)], dtype=torch.float64)
same_gap[:, 0] = (target / (1 + 2 * same_gap[:, 1] * same_gap[:, 1].abs())).sqrt()
ignoring = torch.tensor([[0.0, 1.0], [0.7, -(0.5**0.5)]], dtype=torch.float64)

# %% tags=["hide-input"]
assert target < 0 < flowsim.BinaryChain(0.2, 0.3).target_logit_gap
assert torch.allclose(gap(same_gap), torch.tensor(target).double())
assert (model.loss(same_gap) - chain.entropy_rate).abs().max() < 1e-14
assert (model.loss(ignoring) - chain.stationary_entropy).abs().max() < 1e-14
assert (gap(torch.tensor([[5.0, -0.7], [0.1, 3.0]])) > 0).all()
assert (gap(torch.tensor([[0.1, -0.71], [5.0, -3.0]])) < 0).all()

# %% [markdown]
# ## Two starts, two ends
#
# Gradient flow is gradient descent with an infinitely small step. From (e, w) = (0.5, −1.2) it
# learns the bigram. From (0.5, 0.5) the embedding dies: e falls to zero and the loss stops at the
# unigram. That end is a true local minimum, not a slow stretch: from time 100 to 1000 nothing
# changes, and moving e costs loss. Along both orbits the energy E = e² − w² − sign(w) log|w|
# keeps its value.

# %%
starts = torch.tensor([[0.5, -1.2], [0.5, 0.5]], dtype=torch.float64)
times = torch.cat([torch.zeros(1), torch.logspace(-1, 3, 81)]).double()
orbit = flowsim.reference.integrate(model, starts, times)
loss = model.loss(orbit)
names = [f"from (e, w) = ({e:g}, {w:g})" for e, w in starts.tolist()]

figure, ax = plt.subplots(figsize=(6, 3), dpi=80, layout="constrained")
for i, (colour, style) in enumerate((("#00537f", "-"), ("#a33b00", "--"))):
    ax.plot(
        times[1:],
        loss[1:, i],
        style,
        color=colour,
        label=f"from (e, w) = {tuple(starts[i].tolist())}",
    )
for value, name in ((chain.stationary_entropy, "unigram"), (chain.entropy_rate, "bigram")):
    ax.axhline(value, color="0.4", lw=0.8, ls=":")
    ax.annotate(name, (0.1, value), va="bottom", fontsize=8)
ax.set(
    xscale="log",
    xlabel="gradient-flow time",
    ylabel="loss (nats)",
    title="p = 0.5, q = 0.8 (p + q > 1)",
)
ax.legend(frameon=False)
plt.show()

# %% tags=["hide-input"]
assert abs(loss[-1, 0] - chain.entropy_rate) < 1e-9
assert abs(loss[-1, 1] - chain.stationary_entropy) < 1e-9 and abs(orbit[-1, 1, 0]) < 1e-6
assert (orbit[-1, 1] - orbit[-21, 1]).abs().max() < 1e-6  # nothing moves from 100 to 1000
bottom = torch.stack([torch.zeros(()).double(), orbit[-1, 1, 1]])
assert (
    flowsim.landscape.curvatures(model, bottom).max() > 0.01
)  # e curves upward; along w the line is flat
assert (flowsim.models.energy(orbit) - flowsim.models.energy(starts)).abs().max() < 1e-9

# %% [markdown]
# ## The basins
#
# Below, every cell is one start, followed to its end, and coloured by where it ended; nothing
# about the answer is assumed. There is a single saddle, at (0, −1/√2). Because E is conserved,
# the level of E that passes through the saddle is the border: the black line, drawn from its
# formula, agrees with every cell that it does not cut. For p + q > 1, 53 % of this window is
# trapped, every start with w > 0 among it; for p + q < 1 it is 18 %, far out at w < −1/√2. That
# second trap belongs to the two numbers only: the next page shows that full training from these
# weights leaves it.

# %%
records = {
    pq: flowsim.portrait(flowsim.models.CanonicalModel(flowsim.BinaryChain(*pq)), resolution=80)
    for pq in ((0.5, 0.8), (0.2, 0.3))
}
figure, axes = plt.subplots(1, 2, figsize=(9, 4.4), dpi=72, sharey=True, layout="constrained")
for (pq, record), ax in zip(records.items(), axes, strict=True):
    draw_basins(record, ax)
    draw_flow(record, ax)
    draw_curves(record, ax)
    ax.set_title(f"p = {pq[0]}, q = {pq[1]} ({record.attrs['regime']})")
figure.suptitle("blue: reaches the bigram (blue curve); hatched: trapped; cross: the saddle")
plt.show()

# %% tags=["hide-input"]
for pq, share in (((0.5, 0.8), 0.53), ((0.2, 0.3), 0.18)):
    found = flowsim.portraits.portrait_summary(records[pq])
    assert found["oracle_agree"] == found["oracle_cells"] > 6000
    assert found["unresolved"] == found["saddle"] == 0
    assert abs(found["fraction"]["local_minimum"] - share) < 0.01
above, below = (records[pq].label for pq in records)
assert (above.where(above.w > 0, drop=True) == flowsim.Label.LOCAL_MINIMUM).all()
assert (below.where(below.w > -(0.5**0.5), drop=True) == flowsim.Label.GLOBAL_MINIMUM).all()

# %% [markdown]
# ## What the chain decides, and what it does not
#
# Only the sign of 1 − p − q matters for the basins: (0.9, 0.9) has exactly those of (0.5, 0.8),
# and (0.1, 0.1) those of (0.2, 0.3). At p + q = 1 the next symbol does not depend on the current
# one, there is nothing to learn and no trap.

# %%
axis = np.linspace(-2.9, 2.9, 40)


def labels(p, q):
    canonical = flowsim.models.CanonicalModel(flowsim.BinaryChain(p, q))
    return flowsim.scan(canonical, {"e": axis, "w": axis}).label.to_numpy()


# %% tags=["hide-input"]
assert (labels(0.5, 0.8) == labels(0.9, 0.9)).all()
assert (labels(0.2, 0.3) == labels(0.1, 0.1)).all()
assert (labels(0.5, 0.8) != labels(0.2, 0.3)).any()
assert (labels(0.3, 0.7) == flowsim.Label.GLOBAL_MINIMUM).all()
assert flowsim.BinaryChain(0.3, 0.7).mutual_information == 0

# %% [markdown]
# ## Tying is what traps
#
# Give the last layer its own weight u instead of reusing e, so that Δ = e u (1 + 2w|w|). From the
# same starts, with u = 0.9 e instead of u = e, none is trapped: e and u may now take opposite
# signs, and the former minimum is a saddle.

# %%
tied = torch.cartesian_prod(*2 * [torch.linspace(-1.9, 1.9, 20).double()])
untied = torch.stack([tied[:, 0], 0.9 * tied[:, 0], tied[:, 1]], dim=-1)
tied_ends = flowsim.find_limits(model, tied)
untied_ends = flowsim.find_limits(flowsim.models.UntiedModel(chain), untied)
trapped = tied_ends.label == flowsim.Label.LOCAL_MINIMUM
still = untied_ends.label == flowsim.Label.LOCAL_MINIMUM
print(f"trapped: tied {int(trapped.sum())} of {len(tied)}, untied {int(still.sum())}")

# %% tags=["hide-input"]
assert flowsim.models.UntiedModel(chain).coordinates == ("e", "u", "w")
assert trapped.sum() > 200
assert (untied_ends.label == flowsim.Label.GLOBAL_MINIMUM).all()
opposite = untied_ends.theta[:, 0] * untied_ends.theta[:, 1] < 0
assert opposite[tied[:, 1] > 0].all()  # w > 0 cannot supply the sign, so e and u do

# %% [markdown]
# ## What you now know
#
# - One saddle and its level of the energy E separate starts that learn from trapped ones.
# - The sign of 1 − p − q alone decides; untied weights have no trap (LG, Sec. 3; AM, Thm. 3).

# %% tags=["hide-input"]
saddle = torch.tensor([[0.0, -(0.5**0.5)]], dtype=torch.float64)
assert abs(float(flowsim.models.energy(saddle)[0]) + (1 + np.log(2)) / 2) < 1e-12
assert flowsim.find_limits(model, saddle).label.tolist() == [flowsim.Label.SADDLE]
