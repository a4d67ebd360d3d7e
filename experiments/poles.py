"""Is one pole learned at a time, and is Mess3's triangle of beliefs in the activations?"""

from typing import Any

import numpy as np
import torch
import xarray as xr
from matplotlib.figure import Figure
from papers import BLUE, GREEN, GREY, PINK, experiment, read_linearly, timed
from scipy.optimize import minimize

import flowsim
from flowsim.chains.hidden import hidden_baselines, process
from full_model import (
    Architecture,
    Recipe,
    RunSettings,
    forward,
    initial_weights,
    train,
    wilson,
)
from full_model.model.population import PopulationLoss
from full_model.training.settings import source_of

#: Three independent hidden signals, of these eigenvalues and variances, seen in white noise.
EIGENVALUES, VARIANCES = np.array([0.95, -0.9, 0.5]), np.array([0.5, 0.5, 1.0])
NOISE, CHANNELS, HORIZON = 0.1, 4, 1e5
SCALES = (1e-1, 1e-3, 1e-8)
DECAYS = ("signed", "positive")
MESS3 = {"x": 0.05, "a": 0.85}
MIXERS: dict[str, dict[str, Any]] = {
    "attention": {},
    "state space": {"attention": "ssm", "channels": 31},
}


class Recurrence(flowsim.Model):
    """E (x_{n+1} − Σ_j g_j Σ_k κ_j^k x_{n−k})² with g = ov and κ = tanh α or σ(α).

    The signal has the covariances R(k) = Σ_i ρ_i μ_i^|k| + r 1{k = 0}, so every sum is geometric.
    """

    def __init__(self, channels: int = CHANNELS, decay: str = "signed"):
        self.channels, self.decay = channels, decay
        self.coordinates = tuple(f"{name}_{j}" for name in ("o", "v", "α") for j in range(channels))

    def loss(self, theta: torch.Tensor) -> torch.Tensor:
        o, v, alpha = theta.unflatten(-1, (3, self.channels)).unbind(-2)
        kappa = alpha.tanh() if self.decay == "signed" else alpha.sigmoid()
        g, mu, rho = o * v, torch.from_numpy(EIGENVALUES), torch.from_numpy(VARIANCES)
        ahead = rho / (1 - kappa[..., None] * mu)
        both = ahead.sum(-1)[..., :, None] + ahead.sum(-1)[..., None, :] - rho.sum() + NOISE
        pairs = both / (1 - kappa[..., :, None] * kappa[..., None, :])
        gain = 2 * (ahead @ mu) - (pairs @ g[..., None]).squeeze(-1)
        return rho.sum() + NOISE - (g * gain).sum(-1)


def minima_with(poles: int, decay: str, tries: int = 24) -> list[float]:
    """Losses of the local minima that have so many channels, none of them without weight."""
    draws, found, model = np.random.default_rng(0), [], Recurrence(poles, decay)

    def value_and_slope(x: np.ndarray) -> tuple[float, np.ndarray]:
        theta = torch.from_numpy(x)
        return float(model.loss(theta)), model.gradient(theta).numpy()

    for _ in range(tries):
        start = draws.normal(size=3 * poles)
        with np.errstate(all="ignore"):  # line searches try poles of modulus one
            end = minimize(value_and_slope, start, jac=True, method="BFGS",
                           options={"gtol": 1e-9, "maxiter": 4000})  # fmt: skip
        if (
            np.abs(end.jac).max() < 1e-6
            and np.abs(np.prod(end.x.reshape(3, -1)[:2], 0)).min() > 1e-3
        ):
            found.append(float(end.fun))
    return sorted({round(x, 7) for x in found})


def compute(seeds: int = 20, times: int = 240, steps: int = 250) -> xr.Dataset:
    """Losses and weights along the flow, by decay and scale of the start; beliefs of Mess3."""
    grid = np.geomspace(0.1, HORIZON, times)
    shape = (len(DECAYS), len(SCALES), seeds, times)
    losses, curvatures = np.empty(shape), np.full(shape, np.nan)
    counts = np.zeros(shape, np.int8)
    for place in timed(list(np.ndindex(shape[:2]))):
        model, scale, starts = Recurrence(CHANNELS, DECAYS[place[0]]), SCALES[place[1]], []
        for seed in range(seeds):
            draws = np.random.default_rng(seed)
            starts.append([*scale * draws.normal(size=2 * CHANNELS), *draws.normal(size=CHANNELS)])
        paths = flowsim.trajectories(model, np.array(starts), grid, rtol=1e-6)
        path = torch.from_numpy(paths.swapaxes(0, 1))
        weights = path[..., :CHANNELS] * path[..., CHANNELS : 2 * CHANNELS]
        losses[place] = model.loss(path)
        rests = slowest(losses[place], model.gradient(path).abs().amax(-1).numpy())
        curvatures[place][rests] = torch.linalg.eigvalsh(model.hessian(path[rests]))[..., 0]
        counts[place][rests] = count_with_weight(weights.numpy()[rests])
        if place == (0, len(SCALES) - 1):
            shown = weights[0]
    dims = ("decay", "scale", "seed", "time")
    levels = np.full((len(DECAYS), 4, 3), np.nan)
    for i, decay in enumerate(DECAYS):
        levels[i, 0, 0] = VARIANCES.sum() + NOISE
        for poles in (1, 2, 3):  # without those of fewer poles, of which two are one
            known = levels[i, :poles][np.isfinite(levels[i, :poles])]
            found = [x for x in minima_with(poles, decay) if np.abs(known - x).min() > 1e-5][:3]
            levels[i, poles, : len(found)] = found
    data: dict[str, Any] = {
        "loss": (dims, losses), "curvature": (dims, curvatures),
        "channels_with_weight": (dims, counts), "weight": (("time", "channel"), shown.numpy()),
        "level": (("decay", "poles", "which"), levels),
    }  # fmt: skip
    data |= _beliefs(steps)
    for name in ("weight", "belief", "read_belief"):  # as exact as a figure needs
        held, values = data[name]
        data[name] = (held, values.round(2))
    for name in ("loss", "curvature", "weight", "belief", "read_belief"):
        held, values = data[name]
        data[name] = (held, values.astype(np.float32))
    return xr.Dataset(data, {"decay": list(DECAYS), "scale": list(SCALES), "time": grid,
                             "mixer": list(MIXERS)})  # fmt: skip


def _beliefs(steps: int, seeds: int = 20, length: int = 6) -> dict[str, Any]:
    """Beliefs after every word of Mess3, and those read linearly from two layers' streams."""
    source = process("mess3", **MESS3)
    read, r2, first_r2, loss = [], [], [], []
    for mixer in MIXERS.values():
        arch = Architecture(
            16, length, 2, hidden=32, states=3, output="states", tied=False, **mixer
        )
        recipe = Recipe("adamw", steps=steps, learning_rate=0.01, loss="population",
                        weight_decay=0.0, schedule="cosine")  # fmt: skip
        settings = RunSettings(arch, recipe, data=source, seeds=tuple(range(seeds)), init_std=0.2,
                               telemetry_every=steps, checkpoint_every=steps)  # fmt: skip
        record, trained = train(settings)
        loss.append(record.loss[-1].values)
        exact = PopulationLoss(arch, source_of(source))
        wanted = torch.from_numpy(source.beliefs(exact.tokens.long().numpy())[:, 1:])
        untrained = initial_weights(arch, "gaussian", tuple(range(seeds)), std=0.2)
        fits = []
        for weights in (trained, untrained):
            trace: dict[str, torch.Tensor] = {}
            with torch.no_grad():
                forward(arch, weights, exact.tokens, trace)
            fits.append([read_linearly(y, wanted, exact.probability[0]) for y in trace["1.y"]])
        read.append(fits[0][0][0].numpy())  # of one seed
        r2.append([value for _, value in fits[0]])
        first_r2.append([value for _, value in fits[1]])
    return {
        "belief": (("word", "position", "state"), wanted.numpy()),
        "chance": ("word", exact.probability[0].numpy()),
        "read_belief": (("mixer", "word", "position", "state"), np.array(read)),
        "belief_r2": (("mixer", "run"), np.array(r2)),
        "untrained_r2": (("mixer", "run"), np.array(first_r2)),
        "mess3_loss": (("mixer", "run"), np.array(loss)),
        "mess3_level": ("baseline", np.array([*hidden_baselines(source, length).values()])),
    }


def slowest(loss: np.ndarray, speed: np.ndarray) -> np.ndarray:
    """Mask of the slowest moments of each path, times last, above its end."""
    first, last = loss[..., :1], loss[..., -1:]
    slow = np.zeros(loss.shape, bool)
    middle = speed[..., 1:-1]
    slow[..., 1:-1] = (middle < speed[..., :-2]) & (middle <= speed[..., 2:])
    return slow & (loss > last + 1e-4 * (first - last))


def count_with_weight(weights: np.ndarray) -> np.ndarray:
    """Number of channels, the last axis, whose weight is above a fiftieth of the largest one."""
    size = np.abs(weights)
    return (size > 0.02 * size.max(-1, keepdims=True).clip(0.05)).sum(-1)


def plateaus(
    record: xr.Dataset, decay: str, scale: float, seed: int
) -> list[tuple[int, float, float]]:
    """(channels with weight, loss, least curvature) wherever the flow is slowest before its end."""
    run = record.sel(decay=decay, scale=scale, seed=seed)
    run = run.isel(time=np.flatnonzero(np.isfinite(run.curvature)))
    columns = (run.channels_with_weight, run.loss, run.curvature)
    return list(zip(*(x.values.tolist() for x in columns), strict=True))


def numbers(record: xr.Dataset) -> dict[str, Any]:
    """Numbers of runs at the best losses of one, two and three poles, by scale and decay."""
    found: dict[str, Any] = {}
    for decay in DECAYS:
        level = np.nan_to_num(record.level.sel(decay=decay).values, nan=np.inf)
        whole = level[0, 0] - level.min()
        for scale in SCALES:
            visits = {1: 0, 2: 0, 3: 0}
            for seed in record.seed.values:
                near = {1: False, 2: False, 3: False}
                end = float(record.loss.sel(decay=decay, scale=scale, seed=seed)[-1])
                rests = plateaus(record, decay, scale, seed)
                for loss in [loss for _, loss, _ in rests] + [end]:
                    for poles in near:
                        gaps = np.abs(level[poles] - loss) / whole
                        near[poles] |= bool(gaps.min() < 2e-3)
                for poles, reached in near.items():
                    visits[poles] += reached
            runs = len(record.seed)
            rests_at = {
                poles: [(count, least) for seed in record.seed.values
                        for count, loss, least in plateaus(record, decay, scale, seed)
                        if np.abs(level[poles] - loss).min() < 2e-3 * whole]
                for poles in (1, 2)
            }  # fmt: skip
            found[f"{decay}, {scale:g}"] = {
                "rests_at": visits,
                "intervals": {poles: wilson(n, runs) for poles, n in visits.items()},
                "channels_with_weight": {
                    n: sorted({count for count, _ in at}) for n, at in rests_at.items()
                },
                "rests_that_curve_down": {
                    n: [sum(least < -1e-6 for _, least in at), len(at)]
                    for n, at in rests_at.items()
                },
            }  # fmt: skip
        found[f"{decay}: levels"] = [[float(x) for x in row if np.isfinite(x)] for row in level]
    for mixer in record.mixer.values:
        part = record.sel(mixer=mixer)
        found[f"Mess3, {mixer}"] = {
            "r2": part.belief_r2.values.tolist(),
            "untrained_r2": part.untrained_r2.values.tolist(),
            "loss": part.mess3_loss.values.tolist(),
        }  # fmt: skip
    found["Mess3, levels"] = [float(x) for x in record.mess3_level]
    return found


def draw(record: xr.Dataset) -> Figure:
    """Losses against time from small and large starts, and the triangle of beliefs."""
    figure = Figure(figsize=(10, 7), layout="constrained")
    panels = figure.subplots(2, 3)
    for j, decay in enumerate(DECAYS):
        panel, level = panels[0, j], record.level.sel(decay=decay).values
        for scale, colour in ((SCALES[-1], BLUE), (SCALES[0], PINK)):
            for k, seed in enumerate(record.seed.values[:8]):
                run = record.loss.sel(decay=decay, scale=scale, seed=seed)
                panel.plot(
                    record.time, run, c=colour, lw=0.9, label=f"start {scale:g}" if k == 0 else ""
                )
        named: list[tuple[float, set[int]]] = []  # levels too close to label apart share a label
        for poles, k in np.argwhere(np.isfinite(level)):
            height = float(level[poles, k])
            panel.axhline(height, color=GREY, lw=0.7, ls=":")
            near = [same for at, same in named if abs(at - height) < 0.03]
            near[0].add(int(poles)) if near else named.append((height, {int(poles)}))
        for height, numbers in named:
            name = " and ".join(map(str, sorted(numbers))) + " poles" * (numbers != {1})
            panel.text(3e5, height, name + " pole" * (numbers == {1}), fontsize=7, va="center",
                       color=GREY)  # fmt: skip
        panel.set(xscale="log", title=f"{decay} decays", xlabel="time", ylabel="squared loss")
        panel.legend(fontsize=7)
    panel = panels[0, 2]
    for k, colour in zip(range(CHANNELS), (BLUE, GREY, GREEN, PINK), strict=True):
        panel.plot(record.time, record.weight.isel(channel=k), c=colour)
    panel.set(xscale="log", title="weights of one run", xlabel="time", ylabel="weight")
    size = 4 + 300 * np.repeat(record.chance.values, record.sizes["position"])
    tint = record.belief.values.reshape(-1, 3)
    shown = [("Bayes's beliefs", tint)]
    shown += [
        (f"read from {m}", record.read_belief.sel(mixer=m).values.reshape(-1, 3)) for m in MIXERS
    ]
    for panel, (title, points) in zip(panels[1], shown, strict=True):
        panel.plot([0, 1, 0.5, 0], [0, 0, 3**0.5 / 2, 0], c=GREY, lw=0.7)
        panel.scatter(points[:, 1] + points[:, 2] / 2, points[:, 2] * 3**0.5 / 2, s=size,
                      c=tint.clip(0, 1), linewidths=0)  # fmt: skip
        panel.set(title=title, aspect="equal", xticks=[], yticks=[])
    figure.suptitle("A linear recurrence learns pole by pole; Mess3's triangle of beliefs")
    return figure


main = experiment(__name__, compute, numbers, draw)
