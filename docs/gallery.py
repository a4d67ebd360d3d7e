"""Draw the gallery: a picture of each published model, and the page that shows them.

    python docs/gallery.py [MODEL ...]

writes figures/gallery/MODEL.png, figures/gallery.json (command or lines, digests of the model's
file and of the picture, shares of the ends or numbers drawn)
and docs/gallery.md. A picture is due again when its model or its line below has changed.
"""

import hashlib
import importlib.util
import json
import sys
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image

import flowsim

ROOT = Path(__file__).parents[1]
FOLDER, RECORD, PAGE = ROOT / "figures/gallery", ROOT / "figures/gallery.json", "docs/gallery.md"
HEAD = """# Gallery

Pictures of the [published models](published.md), each by the command or the lines above it.
Ends are numbered by loss. `python docs/gallery.py` draws all again.
"""

TAIL = """## A state-space layer on a hidden chain

![](../figures/memory.png)

Where p + q > 1 a memory in (0, 1) gets to two symbols, and one in (−1, 1) to the filter
([how](howto/memory.md), [results](results/memory.md)).

## A linear recurrence, pole by pole

![](../figures/poles.png)

`python experiments/poles.py` follows the exact squared loss from small weights.
"""

#: Model, class, options of ``flowsim portrait`` and what the picture shows.
PICTURES = (
    ("linear_network", "LinearNetwork", "--window a=-3:3,b=-2.8:3",
     "The two branches of ab = s attract the two sides of a + b = 0."),
    ("lora", "LoRA", "--set ratio=16 --window a=-3:3,b=-3:3",
     "With a 16 times larger rate for b the boundary turns."),
    ("deep_linear", "DeepLinear", "--set decay=0.35 --fix w3=0.9 --window w1=-2:2,w2=-2:2",
     "The origin (minimum 5) holds what lies between the basins of four balanced minima."),
    ("slow_drift", "SlowDrift", "--set decay=0.1 --window a=-3:3,b=-2.8:3",
     "Orbits fall to ab ≈ 1 and drift along it to the two balanced minima."),
    ("linear_estimator", "LinearEstimator", "--set small=0.05 --window x=-1:1,y=-1:1",
     "The training loss is gone on the vertical axis, the generalization loss only at 0."),
    ("diagonal_net", "DiagonalNet", "--fix v1=0.1 --fix v2=0.1 --window u1=-1:1,u2=-1:1",
     "All minima are one connected set; the start chooses the point."),
    ("edge_of_stability", "EdgeOfStability",
     "--optimizer gd --learning-rate 0.2 --steps 3000 --window x=-3.5:3.5,y=-3.5:3.5",
     "Steps of 0.2 diverge from more than half of the window, and jump between basins at the rim."),
    ("product_stability", "ProductStability",
     "--optimizer gd --learning-rate 3 --steps 3000 --window x=-4:4,y=-3.8:4",
     "Steps of 3 diverge far out, and cross the flow's boundary in places."),
    ("ellipse", "Ellipse",
     "--optimizer gd --learning-rate 0.1 --steps 3000 --window x=-1:1,y=-1.5:1.5",
     "The tips in x are sharper than 2/η = 20 and hold no run; far corners diverge."),
    ("catapult", "Catapult",
     "--optimizer own --steps 2000 --window f=-30:30,lam=0.2:5",
     "Runs below ηλ = 4 are caught at a flatter place; those above diverge."),
    ("self_stabilization", "SelfStabilization",
     "--window x=0.2:2.5,y=-2:2 --resolution 8 --no-orbits",
     "All starts go round the centre (1, 0) and come back."),
    ("simsiam", "SimSiam", "--window p=0:0.2,s=0:0.02",
     "Below the boundary the features collapse."),
    ("dirac_gan", "DiracGAN", "--set penalty=0.5 --window theta=-2:2,psi=-2:2 --no-orbits",
     "With the penalty all starts end at the equilibrium."),
    ("policy_gradient", "PolicyGradient", "--window x=-2:2,y=-2:2 --resolution 8",
     "The only end is at infinity, along (1, −1)."),
    ("separable_logistic", "SeparableLogistic", "--window w1=-2:3,w2=-2:2 --resolution 8",
     "All orbits go to infinity along w₁, the margin's direction."),
    ("superposition", "Superposition", "--window a=-1.5:1.5,b=-1.5:1.5",
     "Two antipodal pairs, and two arcs of compromises with loss ⅓."),
    ("word2vec", "Word2Vec", "--window w1=-1.5:1.5,w2=-1.5:1.5",
     "Four minima; the stronger mode is learned first."),
    ("schedule_free", "ScheduleFree",
     "--optimizer own --steps 3000 --window x1=-2:2,x2=-2:2",
     "Below the threshold every start ends at the minimum."),
    ("two_factor", "TwoFactor", "--window a=-3:3,b=-2.8:3",
     "The minima are the branches of ab = 1; the larger factor keeps its sign."),
    ("linear_attention", "LinearAttention", "--fix q=1 --window v=-2:2,k=-1.9:2",
     "Four surfaces of minima, told apart by the signs of v and k; corners lie at |v| = |k| = q."),
    ("competing_heads", "CompetingHeads", "--fix v11=1 --window s1=0:1,s2=0:1",
     "With a first head that writes for position 1, the second rarely takes it."),
    ("coopetition", "Coopetition",
     "--set alpha=0 --fix b=0.3 --fix c=1 --window a=-2:2,d=-2:2",
     "Without competition both strategies are learned; starts near the boundary pass a saddle."),
    ("value_softmax", "ValueSoftmax",
     "--fix delta=1 --window u1=-2:2,u2=-2:2 --resolution 6",
     "All ends are at infinity: the start decides which entry of the softmax is left."),
)  # fmt: skip

#: Model, lines that draw ``figure``, and what the picture shows: where basins say little.
DRAWN = (
    ("sign_flow", """import matplotlib.pyplot as plt
import numpy as np
import flowsim
from examples.sign_flow import SignFlow
from examples.two_factor import TwoFactor

figure, ax = plt.subplots(figsize=(4.5, 3), layout="constrained")
for small, style in ((0.1, "-"), (0.01, "--"), (0.001, ":")):
    for model, end, colour in ((SignFlow(), 0.999 - small, "k"), (TwoFactor(), 9.0, "0.6")):
        t = np.linspace(0, end, 200)
        theta = flowsim.trajectories(model, [[small, small]], t)[:, 0]
        ax.plot(t, model.loss(theta), style, color=colour)
ax.set(xlabel="time", ylabel="loss", title="ε = 0.1 (—), 0.01 (- -), 0.001 (···)")""",
     "Black: sign flow ends at t = 1 − ε; grey: gradient flow waits for ln(1/ε)."),
    ("scale_invariance", """import matplotlib.pyplot as plt
import torch
from examples.scale_invariance import ScaleInvariance

figure, ax = plt.subplots(figsize=(4.5, 3), layout="constrained")
for rate, colour in ((0.4, "k"), (0.1, "0.4"), (0.02, "0.7")):
    model, radius = ScaleInvariance(decay=0.1, rate=rate), []
    theta = memory = torch.tensor([0.46, 0.11]).double()
    for _ in range(int(80 / rate)):
        radius.append(float(theta[1].exp()))
        theta, memory = model.step(theta, memory)
    ax.semilogy(rate * torch.arange(len(radius)), radius, color=colour, label=f"η = {rate:g}")
    ax.axhline(rate**0.5, color=colour, ls=":")
ax.set(xlabel="steps × η", ylabel="r = |(x, y)|", ylim=(0.02, 1.3))
ax.legend(frameon=False, ncols=3, loc="lower center")""",
     "Decay shrinks r. Below √η (dotted) steps overshoot; later r jumps up, and it starts over."),
    ("label_noise", """import matplotlib.pyplot as plt
import numpy as np
import flowsim
from examples.label_noise import LabelNoise

t = np.linspace(0, 1.5, 61)
starts = [[-2.0], [-1.0], [-0.3], [0.3], [1.0], [2.0]]
s = flowsim.trajectories(LabelNoise(), starts, t)[..., 0]
exact = np.arcsinh(np.sinh(2 * np.array(starts)) * np.exp(-4 * t)) / 2
figure, ax = plt.subplots(figsize=(4.5, 3), layout="constrained")
ax.plot(t, s, "k", lw=2)
ax.plot(t, exact.T, "w:", lw=1)
ax.set(xlabel="time", ylabel="s, on the minima (e^s, e^−s)")""",
     "All drift to the flattest minimum, s = 0; dotted: the closed form."),
    ("adam_power", """import matplotlib.pyplot as plt
import torch
from examples.adam_power import AdamPower

figure, ax = plt.subplots(figsize=(4.5, 3), layout="constrained")
for beta2, style in ((0.999, "k-"), (0.99, "k:"), (0.5, "0.6")):
    model = AdamPower(power=2, rate=0.01, beta1=0.9, beta2=beta2)
    theta, memory, x = torch.ones(2).double(), torch.zeros(4).double(), []
    for _ in range(2000):
        theta, memory = model.step(theta, memory)
        x.append(abs(float(theta[0])))
    ax.semilogy(x, style, lw=0.8, label=f"β₂ = {beta2:g}")
ax.set(xlabel="steps", ylabel="|x|", ylim=(1e-20, 10))
ax.legend(frameon=False)""",
     "Adam on x² at β₁ = 0.9 converges, spikes, or stays within a step, as β₂ decides."),
)  # fmt: skip


def options_of(text):
    """The options of a line, by name."""
    words, found = text.replace(" --no-orbits", "").split(), {}
    for word, value in zip(words[::2], words[1::2], strict=True):
        found[word[2:]] = f"{found[word[2:]]},{value}" if word[2:] in found else value
    return found


def numbers(text):
    return {name: float(x) for name, x in (p.split("=") for p in text.split(",") if p)}


def portrait(name, kind, text):
    """The record of a line, as the command would make it."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    given = options_of(text)
    arguments = {k: int(v) if k == "power" else v for k, v in numbers(given.get("set", "")).items()}
    window = {k: tuple(map(float, v.split(":"))) for k, v in
              (p.split("=") for p in given["window"].split(","))}  # fmt: skip
    optimizer = None
    if "optimizer" in given:
        own = given["optimizer"] == "own"
        rate = {} if own else {"learning_rate": float(given["learning-rate"]), "loss": "population"}
        optimizer = flowsim.OptimizerChoice.named(
            given["optimizer"], steps=int(given["steps"]), **rate
        )
    return flowsim.portrait(
        getattr(module, kind)(**arguments), window=window, fixed=numbers(given.get("fix", "")),
        resolution=int(given.get("resolution", 16)), optimizer=optimizer,
        confirm=None if optimizer else 0,
    )  # fmt: skip


def command(name, kind, text):
    size = "" if "--resolution" in text else " --resolution 16"
    return f"flowsim portrait --model examples/{name}.py:{kind} {text}{size}"


def drawn(code):
    """The figure that lines draw, and the numbers of its curves' last points."""
    scope = {}
    exec(code, scope)
    figure = scope["figure"]
    return figure, [[float(x) for x in line.get_xydata()[-1]] for line in figure.axes[0].lines]


def source(name):
    return hashlib.sha256((ROOT / "examples" / f"{name}.py").read_bytes()).hexdigest()[:16]


def shares(record):
    """The share of the cells that end at each end."""
    codes, counts = np.unique(record["label"].to_numpy(), return_counts=True)
    names = str(record["label"].attrs["flag_meanings"]).split()
    return {
        names[code]: int(n) / counts.sum().item() for code, n in zip(codes, counts, strict=True)
    }


def page():
    """The text of the page."""
    parts = [HEAD]
    shown = [(name, "bash", command(name, kind, text), words)
             for name, kind, text, words in PICTURES]  # fmt: skip
    for name, language, code, words in [*shown, *((n, "python", c, w) for n, c, w in DRAWN)]:
        title = (ROOT / "examples" / f"{name}.py").read_text().split('"""')[1].rstrip(".")
        parts.append(f"## {title}\n\n```{language}\n{code}\n```\n\n"
                     f"![](../figures/gallery/{name}.png)\n\n{words}\n")  # fmt: skip
    return "\n".join([*parts, TAIL])


def about(name, code, figure, **numbers):
    """Save the figure, and say of what it is."""
    path = FOLDER / f"{name}.png"
    figure.savefig(path, dpi=110)
    Image.open(path).convert("RGB").quantize(64).save(path, optimize=True)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    return {"command": code, "source": source(name), "picture": digest, **numbers}


def main(chosen):
    torch.set_num_threads(1)
    sys.path.insert(0, str(ROOT))  # the lines import from examples, as at the root
    FOLDER.mkdir(exist_ok=True)
    known = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    for name, *line in [*PICTURES, *DRAWN]:
        if chosen and name not in chosen:
            continue
        began = time.perf_counter()
        if len(line) == 3:
            kind, text, _ = line
            record = portrait(name, kind, text)
            orbits = "--no-orbits" not in text
            figure = flowsim.draw(record, width=4.5, title=False, orbits=orbits)
            known[name] = about(name, command(name, kind, text), figure, shares=shares(record))
        else:
            figure, last = drawn(line[0])
            known[name] = about(name, line[0], figure, last=last)
        print(f"{name:20} {time.perf_counter() - began:6.1f} s", flush=True)
        RECORD.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
    (ROOT / PAGE).write_text(page())


if __name__ == "__main__":
    main(sys.argv[1:])
