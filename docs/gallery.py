"""Draw the gallery: a picture of each published model, and the page that shows them.

    python docs/gallery.py [MODEL ...]

writes figures/gallery/MODEL.png, figures/gallery.json (command, source, commit, shares of the ends)
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
from flowsim.records.attributes import provenance

ROOT = Path(__file__).parents[1]
FOLDER, RECORD, PAGE = ROOT / "figures/gallery", ROOT / "figures/gallery.json", "docs/gallery.md"
HEAD = """# Gallery

A picture of each of the [published models](published.md), by the command above it. flowsim finds
the ends by itself and numbers them by loss. `python docs/gallery.py` draws all of them again.
"""

#: Model, class, options of ``flowsim portrait`` and what the picture shows.
PICTURES = (
    ("linear_network", "LinearNetwork", "--window a=-3:3,b=-3:3",
     "The two branches of ab = s attract the two sides of a + b = 0."),
    ("lora", "LoRA", "--set ratio=16 --window a=-3:3,b=-3:3",
     "With a 16 times larger rate for b the boundary turns."),
    ("deep_linear", "DeepLinear", "--set decay=0.35 --fix w3=0.9 --window w1=-2:2,w2=-2:2",
     "The origin traps small starts, and those with a negative product."),
    ("slow_drift", "SlowDrift", "--set decay=0.1 --window a=-3:3,b=-3:3",
     "Orbits fall to ab ≈ 1 and drift along it to the two balanced minima."),
    ("linear_estimator", "LinearEstimator", "--set small=0.05 --window x=-1:1,y=-1:1",
     "The training loss is gone on the vertical axis, the generalization loss only at 0."),
    ("diagonal_net", "DiagonalNet", "--fix v1=0.1 --fix v2=0.1 --window u1=-1:1,u2=-1:1",
     "All minima are one connected set; the start chooses the point."),
    ("edge_of_stability", "EdgeOfStability",
     "--optimizer gd --learning-rate 0.2 --steps 3000 --window x=-3.5:3.5,y=-3.5:3.5",
     "Steps of 0.2 rest where the flow would, if that is flat enough."),
    ("product_stability", "ProductStability",
     "--optimizer gd --learning-rate 3 --steps 3000 --window x=-4:4,y=-4:4",
     "At a step of 3 far starts of the flow's basins go elsewhere."),
    ("ellipse", "Ellipse",
     "--optimizer gd --learning-rate 0.1 --steps 3000 --window x=-1:1,y=-1.5:1.5",
     "The tips of the ellipse are sharper than 2/η = 20 and cannot hold a run."),
    ("catapult", "Catapult",
     "--optimizer own --steps 2000 --window f=-30:30,curvature=0.2:5",
     "Runs below ηλ = 4 are caught at a flatter place; those above diverge."),
    ("self_stabilization", "SelfStabilization", "--window x=0.2:2.5,y=-2:2 --resolution 8",
     "All orbits are closed, around the centre (1, 0)."),
    ("simsiam", "SimSiam", "--window p=0:1,s=0:1",
     "Below the boundary the features collapse."),
    ("dirac_gan", "DiracGAN", "--set penalty=0.5 --window theta=-2:2,psi=-2:2",
     "With the penalty orbits spiral into the equilibrium."),
    ("policy_gradient", "PolicyGradient", "--window x=-2:2,y=-2:2 --resolution 8",
     "The only end is at infinity, along (1, −1)."),
    ("separable_logistic", "SeparableLogistic", "--window w1=-2:3,w2=-2:2 --resolution 8",
     "All orbits go to infinity along w₁, the margin's direction."),
    ("superposition", "Superposition", "--window a=-1.5:1.5,b=-1.5:1.5",
     "Two antipodal pairs, and two arcs of compromises with loss ⅓."),
    ("word2vec", "Word2Vec", "--window w1=-1.5:1.5,w2=-1.5:1.5",
     "Four minima; the stronger mode is learned first."),
    ("sign_flow", "SignFlow", "--window a=-2:2,b=-2:2 --resolution 12",
     "Orbits are straight lines to ab = 1."),
    ("adam_power", "AdamPower",
     "--set power=4 --optimizer own --steps 3000 --window x=-2:2,y=-2:2",
     "Adam on a quartic: it stays about the minimum, where the flow crawls."),
    ("schedule_free", "ScheduleFree",
     "--optimizer own --steps 3000 --window x1=-2:2,x2=-2:2",
     "Below the threshold every start ends at the minimum."),
    ("scale_invariance", "ScaleInvariance",
     "--set decay=0 --window x=-2:2,y=-2:2",
     "Without decay orbits are circles, and end on the axis x = 0, which the origin cuts."),
    ("two_factor", "TwoFactor", "--window a=-3:3,b=-2.8:3",
     "The minima are the branches of ab = 1; the larger factor keeps its sign."),
    ("linear_attention", "LinearAttention", "--fix q=1 --window v=-2:2,k=-1.9:2",
     "Four surfaces of minima, told apart by the signs of v and k; corners lie at |v| = |k| = q."),
    ("competing_heads", "CompetingHeads", "--fix v11=1 --window s1=0:1,s2=0:1",
     "With a first head that writes for position 1, the second rarely takes it."),
    ("value_softmax", "ValueSoftmax", "--fix delta=1 --window u1=-3:3,u2=-3:3 --resolution 12",
     "Both ends are at infinity; the second entry wins where u₂ − u₁ > 2 sinh ½."),
    ("coopetition", "Coopetition",
     "--set alpha=0 --fix b=0.3 --fix c=1 --window a=-2:2,d=-2:2",
     "Without competition both strategies are learned; starts near the boundary pass a saddle."),
)  # fmt: skip


def options_of(text):
    """The options of a line, by name."""
    words, found = text.split(), {}
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
    return flowsim.portrait_record(
        getattr(module, kind)(**arguments), window=window, fixed=numbers(given.get("fix", "")),
        resolution=int(given.get("resolution", 16)), optimizer=optimizer,
        confirm=None if optimizer else 0,
    )  # fmt: skip


def command(name, kind, text):
    size = "" if "--resolution" in text else " --resolution 16"
    return f"flowsim portrait --model examples/{name}.py:{kind} {text}{size}"


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
    for name, kind, text, words in PICTURES:
        title = (ROOT / "examples" / f"{name}.py").read_text().split('"""')[1].rstrip(".")
        parts.append(f"## {title}\n\n```bash\n{command(name, kind, text)}\n```\n\n"
                     f"![{words}](../figures/gallery/{name}.png)\n\n{words}\n")  # fmt: skip
    return "\n".join(parts)


def main(chosen):
    torch.set_num_threads(1)
    FOLDER.mkdir(exist_ok=True)
    known = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    for name, kind, text, _ in PICTURES:
        if chosen and name not in chosen:
            continue
        began, path = time.perf_counter(), FOLDER / f"{name}.png"
        record = portrait(name, kind, text)
        flowsim.draw(record, width=4.5).savefig(path, dpi=110)
        Image.open(path).convert("RGB").quantize(64).save(path, optimize=True)
        known[name] = {
            "command": command(name, kind, text), "source": source(name),
            "picture": hashlib.sha256(path.read_bytes()).hexdigest()[:16],
            "commit": provenance({})["commit"], "shares": shares(record),
        }  # fmt: skip
        print(f"{name:20} {time.perf_counter() - began:6.1f} s {path.stat().st_size // 1000} kB "
              f"{known[name]['shares']}", flush=True)  # fmt: skip
        RECORD.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
    (ROOT / PAGE).write_text(page())


if __name__ == "__main__":
    main(sys.argv[1:])
