"""The attention model in slices and in space, for p + q above and below one (LG Fig. 2).

    python experiments/attention_portraits.py [--length 1024]

draws, for uniform attention over N positions and for linear attention, the basins in the slice
a = 0.5 and the orbits in (w, e, a) with the zoom at the origin; then searches for critical points
other than the plane e = 0 and the global minima, and writes what it found to
figures/critical_points.json. About five minutes on one core.

What the paper shows: orbits in (e, w, a) that fall onto the plane of bad minima for p + q > 1 and
leave it for p + q < 1, with the attention dying out at the global minima. We find the same: for
uniform attention every orbit drawn ends at a = 0 on the minima curve or in the plane e = 0,
although a may rise on the way (at N = 2, not drawn, some run off to a = −∞). The plane's saddle
line bends with a, since uniform attention adds C's term in a; with linear attention it is straight,
and e² > 2(1 + a)² escapes whatever w is. Far outside the paper's window the search, 60 starts a
case, uniform attention at N = 64, finds a further saddle, near (e, w, a) = (0.30, −0.52, −21) at
(0.5, 0.8).
"""

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from papers import made

from flowsim import (
    AttentionModel,
    BinaryChain,
    LinearAttentionModel,
    draw,
    phase_space_record,
    portrait_record,
    search_critical_points,
)
from flowsim.drawing.style import save_figure

FIGURES = Path(__file__).parents[1] / "figures"
CHAINS = {"above_one": (0.5, 0.8), "below_one": (0.2, 0.3)}


def main() -> None:
    """Draw the eight figures and run the searches."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--length", type=int, default=1024)
    length = parser.parse_args().length
    command = f"python experiments/attention_portraits.py --length {length}"
    torch.set_num_threads(1)
    found: dict[str, Any] = {"made": made(command)}
    for regime, (p, q) in CHAINS.items():
        chain = BinaryChain(p, q)
        models = {
            "uniform": AttentionModel(chain, length),
            "linear": LinearAttentionModel(chain),
        }
        for name, model in models.items():
            resolution = 96 if name == "uniform" else 208
            record = portrait_record(model, resolution=resolution, fixed={"a": 0.5})
            # orbits leave the slice: projected to it they would end in a basin that is not theirs
            figure = draw(record, orbits=False)
            save_figure(figure, FIGURES / f"slice_{name}_{regime}.png")
            record = phase_space_record(model)
            save_figure(draw(record), FIGURES / f"space_{name}_{regime}.png")
            print(name, regime, {k: v for k, v in record.attrs.items() if "orbits" in k})
        for model in (AttentionModel(chain, 64), models["linear"]):
            search = search_critical_points(model, torch.Generator().manual_seed(1), starts=60)
            found[f"{type(model).__name__} p={p} q={q}"] = {
                "starts": search.starts,
                "half_width": search.half_width,
                "on_plane": search.on_plane,
                "global_minima": search.global_minima,
                "not_found": search.not_found,
                "others": [
                    {"theta": theta, "loss": loss, "curvature": curvature}
                    for theta, loss, curvature in zip(
                        search.theta.tolist(),
                        search.loss.tolist(),
                        search.curvature.tolist(),
                        strict=True,
                    )
                ],
            }
    (FIGURES / "critical_points.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
