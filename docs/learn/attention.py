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
# # Attention: three numbers, in slices and in space
#
# The first page had an embedding e and a feed-forward weight w, and no attention. Here attention
# averages over the past (W_Q = W_K = 0) and passes the mean on with strength a. With s_n = ±½ for
# the symbol at position n, and m_n the mean of s_i over i ≤ n, canonical weights give
#
#     s = s_n + a m_n
#     logit = e² [s + 4w|w| ReLU(s)] + b
#
# and b is set to its best value (*Local to Global*, Sec. 4). Which starts (e, w, a) learn now?

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
from IPython.display import display
from matplotlib.colors import ListedColormap

import flowsim
from full_model import (
    Architecture,
    MarkovSource,
    PopulationLoss,
    Recipe,
    RunSettings,
    lift_canonical,
    train,
)

torch.set_num_threads(1)
chain = flowsim.BinaryChain(p=0.5, q=0.8)
N = 6
uniform = flowsim.models.UniformAttentionModel(chain, N)
linear = flowsim.models.LinearAttentionModel(chain)
LEARNS, TRAPPED = flowsim.Label.GLOBAL_MINIMUM, flowsim.Label.LOCAL_MINIMUM

# %% [markdown]
# ## The loss is exact
#
# The loss needs the joint law of (s_n, m_n) only, which a recursion over n gives without sampling.
# It is the loss of a transformer whose weights are lifted from (e, w, a), summed over all 2⁶
# sequences. At a = 0 it is the loss of the first page.

# %%
points = torch.tensor([[1.2, -0.9, 0.5], [-0.7, 0.4, -1.5], [0.3, 1.5, 0.0]], dtype=torch.float64)
arch = Architecture(8, N)
weights = lift_canonical(points, arch, bias=uniform.optimal_bias(points))
full = PopulationLoss(arch, MarkovSource.of(chain))(weights)
print("transformer:  ", full.numpy().round(6))
print("three numbers:", uniform.loss(points).numpy().round(6))

# %% tags=["hide-input"]
assert (full - uniform.loss(points)).abs().max() < 1e-12
without = flowsim.models.CanonicalModel(chain).loss(points[2:, :2])
assert (uniform.loss(points[2:]) - without).abs().max() < 1e-12

# %% [markdown]
# ## A linear model with closed forms
#
# Let attention see the current symbol alone, and the feed-forward layer be linear. Only the logit
# gap Δ = e²(1 + a)(1 + 2w|w|) counts then. The flow keeps e² − 2(1 + a)² as it is. At p + q > 1 the
# bigram needs Δ < 0: one of a < −1 and w < −1/√2 has to turn the sign, and not both. Of three
# starts the first stays at the unigram; a turns the sign for the second and w for the third.

# %%
times = torch.linspace(0, 40, 81, dtype=torch.float64)
starts = torch.tensor([[0.8, 0.5, 0.2], [0.8, 0.5, -1.4], [0.8, -1.2, 0.2]], dtype=torch.float64)
orbit = flowsim.reference.integrate(linear, starts, times)
figure, ax = plt.subplots(figsize=(6, 3), dpi=80, layout="constrained")
for i, style in enumerate(("--", "-", ":")):
    name = "(e, w, a) = ({:g}, {:g}, {:g})".format(*starts[i].tolist())
    ax.plot(times, linear.loss(orbit[:, i]), style, color="k", label=name)
for value, name in ((chain.stationary_entropy, "unigram"), (chain.entropy_rate, "bigram")):
    ax.axhline(value, color="0.4", lw=0.8, ls=":")
    ax.annotate(name, (38, value), va="bottom", ha="right", fontsize=8)
ax.set(xlabel="gradient-flow time", ylabel="loss (nats)")
ax.legend(frameon=False, fontsize=8)
plt.show()

# %% tags=["hide-input"]
e, w, a = orbit.unbind(-1)
gap = e**2 * (1 + a) * (1 + 2 * w * w.abs())
kept = e**2 - 2 * (1 + a) ** 2
assert (kept - kept[0]).abs().max() < 1e-6
assert (gap[-1, 1:] - chain.target_logit_gap).abs().max() < 1e-3
assert flowsim.find_limits(linear, starts).label.tolist() == [TRAPPED, LEARNS, LEARNS]

# %% [markdown]
# ## Slices
#
# A slice shows starts with one value of a; from there all three numbers move. In the linear model
# the slices differ much. At a = ½ a third of the starts with w > 0 learn, since a can still cross
# −1 on its way. At a = −1.5 all starts with w > −1/√2 learn, and those next to them with
# w < −1/√2 are the ones that can be trapped.

# %%
side = flowsim.scan.cell_centres(-3.0, 3.0, 24)


def slices(model, values=(-1.5, -0.5, 0.5)):
    """Labels of starts with each value of a."""
    return {at: flowsim.scan(model, {"e": side, "w": side}, fixed={"a": at}) for at in values}


def draw(records, title):
    figure, axes = plt.subplots(1, 3, figsize=(9, 3.3), dpi=72, sharey=True, layout="constrained")
    for (at, record), ax in zip(records.items(), axes, strict=True):
        learns = (record.label == LEARNS).transpose("e", "w")
        ax.pcolormesh(side, side, learns, cmap=ListedColormap(["#e8935a", "#d7e9f5"]))
        ax.set(title=f"starts at a = {at:g}: {float(learns.mean()):.0%} learn", xlabel="w")
    axes[0].set_ylabel("e")
    figure.suptitle(title)
    plt.show()


of_linear = slices(linear)
draw(of_linear, "linear attention, p + q > 1; orange: trapped")

# %% tags=["hide-input"]
share = {at: float((record.label == LEARNS).mean()) for at, record in of_linear.items()}
assert share[0.5] < share[-0.5] < share[-1.5]
right = of_linear[-1.5].sel(w=side[side > -(0.5**0.5)])
assert (right.label == LEARNS).all()
half = of_linear[0.5].sel(w=side[side > 0])
assert 0.28 < float((half.label == LEARNS).mean()) < 0.38
assert all(record.label.isin([LEARNS, TRAPPED]).all() for record in of_linear.values())

# %% [markdown]
# ## The exact model is another matter
#
# With the mean over six positions and the ReLU, attention turns no sign: no start with w > 0
# learns, whatever a, and all with w < −1/√2 do. The three slices are nearly alike, and nearly that
# of the first page: 47 to 48 % learn. A closed form has to be compared before it is believed.

# %%
of_uniform = slices(uniform)
draw(of_uniform, "uniform attention, N = 6, p + q > 1; orange: trapped")

# %% tags=["hide-input"]
for record in of_uniform.values():
    learns = record.label == LEARNS
    assert not learns.sel(w=side[side > 0]).any() and learns.sel(w=side[side < -(0.5**0.5)]).all()
    assert 0.465 < float(learns.mean()) < 0.485
    assert record.label.isin([LEARNS, TRAPPED]).all()

# %% [markdown]
# ## Full training
#
# Eight starts with e = ½ are lifted to transformers with softmax attention, and gradient descent on
# the exact loss moves all their weights. The open share of the gap is 1 at the unigram and 0 at the
# bigram. All eight end where the three numbers say, although training does not stay in them.

# %%
grid = torch.tensor([-1.5, -0.75, 0.75, 1.5]), torch.tensor([-1.5, 0.5])
starts = torch.cartesian_prod(torch.tensor([0.5]), *grid).double()
lifted = lift_canonical(starts, arch, bias=uniform.optimal_bias(starts))
settings = RunSettings(
    arch, Recipe("gd", steps=2000, learning_rate=0.1), (chain.p,) * 8, (chain.q,) * 8,
    init="given", seeds=tuple(range(8)), telemetry_every=500,
)  # fmt: skip
run, _ = train(settings, initial=lifted)
gap = chain.stationary_entropy - chain.entropy_rate
share = (run.loss[-1].to_numpy() - chain.entropy_rate) / gap
predicted = flowsim.find_limits(uniform, starts).label
for (_, w, a), end, left in zip(starts.tolist(), predicted, share, strict=True):
    print(f"w = {w:5}, a = {a:4}: {'learns' if end == LEARNS else 'trapped':7}  open {left:.3f}")

# %% tags=["hide-input"]
assert ((share < 0.05) == (predicted == LEARNS).numpy()).all()
assert ((share > 0.95) == (predicted == TRAPPED).numpy()).all()

# %% [markdown]
# ## In space
#
# Orbits of the linear model in (e, w, a): most that start in this box end on one of the surfaces of
# bigrams, the others on the plane of trapped ends.

# %%
space = flowsim.portraits.phase_space(linear)
figure = flowsim.draw(space)
figure.set_dpi(64)
display(figure)
ends = np.bincount(space.orbit_label, minlength=3)
print(f"{ends[LEARNS]} of {ends.sum()} orbits learn")

# %% tags=["hide-input"]
assert ends[LEARNS] > 2 * ends[TRAPPED] > 0
assert ends[LEARNS] + ends[TRAPPED] == ends.sum()

# %% [markdown]
# ## What you now know
#
# In the linear model a start with a < −1 escapes the trap without a negative w. In the exact one,
# at N = 6, none of these does.

# %% tags=["hide-input"]
at = [[1.0, 0.5, -1.5]]
assert flowsim.find_limits(linear, at).label[0] == LEARNS
assert flowsim.find_limits(uniform, at).label[0] == TRAPPED
