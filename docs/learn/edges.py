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
# # Edges and branches: where basins end, and how they move
#
# Five questions about one loss of two numbers: what separates its basins, how far a start is from
# the edge, how ends and shares move with a parameter, for which parameters there are two ends, and
# what noise does. The same calls take any model.

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


class Tilted(flowsim.Model):
    coordinates = ("x", "y")

    def __init__(self, a: float = 1.0, b: float = 0.1):
        self.a, self.b = a, b

    def loss(self, theta):
        x, y = theta.unbind(-1)
        return x**4 / 4 - self.a * x**2 / 2 + self.b * x + (y - x**2) ** 2 / 2


model, spec = Tilted(), flowsim.ModelSpec(Tilted)
window = {"x": (-2.0, 2.0), "y": (-1.0, 2.0)}

# %% [markdown]
# ## What separates the basins
#
# On the nullclines one component of the flow vanishes; they cross in the critical points. The
# stable manifold of the saddle, grown backwards from it, is the boundary.

# %%
record = flowsim.portrait(model, window=window, resolution=24, curves=["nullclines", "manifolds"])
_, ax = plt.subplots(figsize=(6, 5), dpi=75, layout="constrained")
flowsim.draw(record, ax, orbits=False)
plt.show()

# %% tags=["hide-input"]
(manifold,) = flowsim.boundary.stable_manifolds(model, window)
middle = sorted(np.roots([1, 0, -1, 0.1]).real)[1]
assert abs(float(manifold.saddle[0]) - middle) < 1e-8
ends = flowsim.find_limits(model, manifold.saddle + torch.tensor([[-1e-3, 0], [1e-3, 0]])).theta
assert (ends[:, 0] * torch.tensor([-1, 1]) > 0.8).all()

# %% [markdown]
# ## How far it is to the edge
#
# `edge_distance` gives the distance to the nearest place with another end, and that place.

# %%
starts = np.array([[-1.0, 1.0], [0.0, 0.0], [0.9, 0.8]])
found = flowsim.edge_distance(model, starts, window)
for start, distance in zip(starts, found.distance, strict=True):
    print(start, f"{distance:.6f}")

# %% tags=["hide-input"]
aside = starts + 1.001 * (found.nearest - starts)
before, after = (flowsim.find_limits(model, rows).theta[:, 0] for rows in (starts, aside))
assert (before * after < 0).all()
assert found.distance[1] < found.distance[[0, 2]].min()

# %% [markdown]
# ## How ends and shares move
#
# Continuation over the tilt b: one branch, stable where solid, with folds at ±2/(3√3), and below it
# the share of 60 random starts in each minimum. Before an end disappears its share is small.

# %%
draws = 1.5 * np.random.default_rng(0).standard_normal((60, 2))
moved = flowsim.continuation(spec, "b", np.linspace(-0.6, 0.6, 7), draws)
_, axes = plt.subplots(2, 1, sharex=True, figsize=(6, 6), dpi=75, layout="constrained")
flowsim.draw(moved, axes[0])
for name, style in (("minimum_1", "k-"), ("minimum_2", "k--")):
    axes[1].plot(moved.b, moved.share.sel(basin=name), style, label=name.replace("_", " "))
axes[1].set(xlabel="b", ylabel="share of starts")
axes[1].legend(frameon=False)
plt.show()

# %% tags=["hide-input"]
assert moved.event_kind.values.tolist() == ["fold", "fold"]
assert np.allclose(moved.event_value, [-2 / 27**0.5, 2 / 27**0.5], atol=1e-8)
assert (moved.share.isel(b=[0, -1]).max("basin") == 1).all()

# %% [markdown]
# ## For which parameters there are two ends
#
# Followed over both parameters the folds enclose the wedge 4a³ > 27b², where there are two minima.
# At its cusp the minima and the saddle between them are one point.

# %%
wedge = flowsim.bifurcation.fold_curves(spec, "b", [-1.0, 1.0], "a", [-0.5, 1.5])
_, ax = plt.subplots(figsize=(6, 4), dpi=75, layout="constrained")
flowsim.draw(wedge, ax)
plt.show()

# %% tags=["hide-input"]
assert np.abs(4 * wedge.curve_second**3 - 27 * wedge.curve_value**2).max() < 1e-8
assert wedge.sizes["cusp"] == 1 and abs(float(wedge.cusp_second[0])) < 1e-8

# %% [markdown]
# ## What noise does
#
# Langevin noise of temperature T for the time 10, then the flow: the warmer, the more of the paths
# that begin in the shallow minimum end in the deep one.

# %%
points = flowsim.Points(["x", "y"], np.array([[0.95, 0.9]]))
generator = torch.Generator().manual_seed(0)
noisy = flowsim.noise.end_probabilities(
    model, points, [0.01, 0.03, 0.1], time=10.0, generator=generator, seeds=60
)
_, ax = plt.subplots(figsize=(6, 4), dpi=75, layout="constrained")
flowsim.draw(noisy, ax)
plt.show()

# %% tags=["hide-input"]
chance = noisy.total_share.to_numpy()
shallow = chance[0].argmax()
assert chance[0, shallow] > 0.95
assert (np.diff(chance[:, shallow]) <= 0).all() and chance[-1, shallow] < 0.8

# %% [markdown]
# ## What you now know
#
# - In a plane the boundary is the stable manifold of a saddle; branches go around folds, which an
#   end that is only followed forward does not show.

# %% tags=["hide-input"]
assert abs(found.distance[1] - 0.101545) < 1e-6
assert moved.branch_number.max() == 0
