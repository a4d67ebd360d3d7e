"""Every script at a tiny size: the files that it leaves, and what holds at that size."""

import json
from functools import partial
from importlib import import_module
from pathlib import Path

import cuda
import numpy as np
import pytest
import states_ends
import torch
from poles import minima_with

GD = "population gradient descent, d = 8"
ABOVE, BELOW = "p = 0.5, q = 0.8", "p = 0.2, q = 0.3"
FOLDER = Path(__file__).parents[2] / "experiments"
#: Those that draw nothing: a table says it.
TABLES = ("adamw_escape", "agreement_sampled", "balanced_start", "critical_noise",
          "states_agreement", "states_ends", "states_threshold", "width_of_truth")  # fmt: skip
#: Scripts with a stored record that is drawn.
STORED = sorted(
    {path.stem for path in FOLDER.parent.glob("figures/*.nc")}
    & {path.stem for path in FOLDER.glob("*.py")}.difference(TABLES)
)
TURNS = [pytest.mark.slow, pytest.mark.turns]
#: The options of every script, and the names in it that are replaced.
SMALL = {
    "adamw_escape": ("--seeds 1 --steps 210", {"cells": lambda: escape_cells()}),
    "agreement_sampled": ("--cells 2 --seeds 1 --steps 10", {}),
    "am_appendix_d": ("--seeds 2 --length 16 --steps 600", {}),
    "am_fig1_depth": ("--doublings 1 --seeds 1 --length 8 --steps 4 --descent-steps 40", {}),
    "am_fig3_tying": ("--seeds 1 --length 8 --steps 4 --descent-steps 200", {}),
    "am_fig4_square": ("--cells 3 --length 8 --steps 4 --descent-steps 300", {}),
    "balanced_start": ("--seeds 1 --steps 4 --descent-steps 100", {}),
    "critical_noise": ("--paths 4 --seeds 2 --steps 20", {"PRODUCTS": (0.01, 0.02)}),
    "ladder": ("--seeds 16 --horizon 1", {
        "CASES": [(0.5, 0.8, 4)], "WHOLE_D": 2, "WHOLE_LENGTH": 3, "RUNG_LENGTH": 3,
    }),
    "lg_fig1_basins": ("--resolution 6", {}),
    "lg_fig2_attention": ("--length 4 --cloud 2 --cells 4", {}),
    "lg_initialization": ("--seeds 2 --length 8 --steps 4 --descent-steps 200", {}),
    "lg_losses": ("--horizon 20 --step 0.2 --long 16", {}),
    "lg_rank_one_energy": ("--seeds 1 --length 8 --steps 4 --descent-steps 100", {}),
    "memory": ("--seeds 2 --steps 3 --cells 2 --descent 200", {}),
    "poles": ("--seeds 1 --times 3 --steps 1", {
        "SCALES": (1e-8,), "minima_with": partial(minima_with, tries=2),
    }),
    "selective": ("--seeds 1 --steps 1 --fresh 4", {}),
    "states_agreement": ("--side 4 --steps 400", {"CHAINS": [(3, 0.8), (3, 0.5)]}),
    "states_ends": ("--runs 1 --steps 20", {"SETTINGS": [*states_ends.SETTINGS[:28]]}),
    "states_threshold": ("--largest 3 --seeds 2 --steps 60", {}),
    "trap_map": ("--draws 20 --widest 3 --runs 3 --steps 200", {}),
    "width_of_truth": ("--seeds 2 --steps 60", {}),
}  # fmt: skip


def escape_cells():
    Cell = import_module("adamw_escape").Cell
    return [Cell("size", 2, 4, 3), Cell("size", 8, 32, 3, rate=1e-2),
            Cell("descent", 2, 4, 3, "gd", rate=100.0, batch=0)]  # fmt: skip


def ends(line):
    """Where all models of one line end, "mixed" if not all at the same place."""
    words = [word for word in ("bigram", "unigram", "between") if line[word] == line["models"]]
    return words[0] if words else "mixed"


#: What a script must have found.
HOLDS = {
    "adamw_escape": lambda found: [
        line["escaped"] + line["trapped"] + line["open"] + line["diverged"] == line["runs"]
        and (line["diverged"] == line["runs"]) == (line["trainer"] == "gd")
        for line in found["cells"]
    ],
    "am_appendix_d": lambda found: [
        found[BELOW]["reached_the_bigram"] == 2, found[BELOW]["formula_minus_model"]["max"] < 0.1,
    ],
    "am_fig1_depth": lambda found: [
        ends(found[f"{GD}; {layers}"]) == "unigram" for layers in (1, 2)
    ],
    "am_fig3_tying": lambda found: [
        ends(found[f"{GD}; {kind}; {chain}"])
        == ("unigram" if (kind, chain) == ("tied", ABOVE) else "bigram")
        for kind in ("tied", "untied") for chain in (ABOVE, BELOW)
    ],
    "am_fig4_square": lambda found: [
        found["GD; tied"]["p + q > 1"]["unigram"] == 3,
        found["GD; untied"]["p + q > 1"]["bigram"] == 3,
        found["GD; tied"]["p + q < 1"]["bigram"] == 3,
    ],
    "ladder": lambda found: [
        line["keep_k"] == line["full_keep_k"] == 3 for line in found["cases"].values()
    ],
    "lg_fig1_basins": lambda found: [
        found[chain]["oracle_agree"] >= 20 and found[chain]["oracle_wrong"] == 0
        for chain in (ABOVE, BELOW)
    ],
    "lg_fig2_attention": lambda found: [
        found[ABOVE]["learns"]["a = 0, near the origin"] < 0.1,
        found[BELOW]["learns"]["a = 0, near the origin"] == 1,
    ],
    "lg_initialization": lambda found: [
        ends(found[f"{GD}; gaussian"]) == "unigram", ends(found[f"{GD}; matched"]) == "bigram",
    ],
    "lg_losses": lambda found: [
        found[f"{ABOVE}; e = 1.5, w = -0.2"]["canonical_limit"] == "global_minimum",
        found[f"{ABOVE}; e = 1.5, w = -0.2"]["final_loss"]["full, N = 8"] > 0.66,
    ],
    "lg_rank_one_energy": lambda found: [
        found[f"GD; rank-one; {BELOW}"]["energy"]["0.up"]["end_min"] > 1 - 1e-6,
        found[f"GD; gaussian; {BELOW}"]["energy"]["0.up"]["start_median"] < 0.5,
    ],
    "memory": lambda found: [sum([*line.values()][:4]) == 4 for line in found["lifted"].values()],
    "states_agreement": lambda found: [
        line["decided"] + sum(line["open"].values()) == line["starts"] == 8
        for name, line in found.items() if name.startswith("S")
    ],
    "states_ends": lambda found: [
        line["runs"] == line["learned"] + line["open"] + sum(line["at splits"].values())
        for line in found.values() if "at splits" in line
    ],
    "trap_map": lambda found: [
        line["leave" if case.endswith("trap") else "stay"] == 0
        for case, line in found.items() if "descent" in case
    ] + [found["p + q < 1, equal positions, rank < d"]["trapped"] == 0],
    "width_of_truth": lambda found: [found["as stated"]["descent, Gaussian"]["unigram"] == 2],
}  # fmt: skip


@pytest.mark.parametrize("name", [pytest.param(name, marks=TURNS) for name in SMALL])
def test_a_script_leaves_its_files(name, tmp_path, monkeypatch):
    script, (words, replaced) = import_module(name), SMALL[name]
    for other, value in replaced.items():
        monkeypatch.setattr(script, other, value)
    if name == "selective":
        monkeypatch.setattr(script, "CASES", dict([*script.CASES.items()][::9]))
    if name == "width_of_truth":
        few = ("as stated", "three states")
        monkeypatch.setattr(script, "VARIANTS", {word: script.VARIANTS[word] for word in few})
    arguments = ["--out", str(tmp_path), *words.split()]
    assert script.main(arguments) == 0
    assert script.main(arguments) == 2  # nothing is overwritten
    images = [path.read_bytes() for path in tmp_path.glob("*.png")]
    assert bool(images) != (name in TABLES)
    assert all(image.startswith(b"\x89PNG") and len(image) < 300_000 for image in images)
    found = json.loads((tmp_path / f"{name}.json").read_text())
    assert found and all(HOLDS[name](found) if name in HOLDS else [True])


@pytest.mark.parametrize("name", [pytest.param(name, marks=TURNS) for name in STORED])
def test_a_stored_record_is_drawn_again(tmp_path, name):
    """Nothing is computed, and the record stays as it is."""
    assert import_module(name).main(["--redraw", "--out", str(tmp_path)]) == 0
    images = [path.read_bytes() for path in tmp_path.iterdir()]
    assert images and all(image.startswith(b"\x89PNG") for image in images)


def test_switching_chains_forget_at_a_switch():
    script = import_module("selective")
    process = script.switching_chains()
    said = process.next_laws_of_any(np.array([[0, 0, 2, 0, 1, 1]]))[0]
    p, q = (x.ravel() for x in np.meshgrid(script.GRID, script.GRID, indexing="ij"))
    weight = p * (1 - q)  # of 0 → 1 → 1 behind the switch
    moves = (weight * q).sum() / weight.sum()
    assert said[2] == pytest.approx([0.5, 0.5, 0], abs=1e-12)
    assert said[-1] == pytest.approx([0.95 * moves, 0.95 * (1 - moves), 0.05], abs=1e-12)


@pytest.mark.slow
@pytest.mark.turns
def test_coordinates_of_networks_are_counted(tmp_path, monkeypatch):
    script = import_module("reduce_networks")
    few = ("two-layer ReLU, opposite units", "linear attention, second axis", "deep linear, random")
    monkeypatch.setattr(script, "NETWORKS", {name: script.NETWORKS[name] for name in few})
    assert script.main(["--out", str(tmp_path), "--steps", "5", "--until", "1"]) == 0
    found = json.loads((tmp_path / "reduce_networks.json").read_text())
    relu, attention, refused = [*found.values()][2:]
    assert (relu["weights"], relu["coordinates"], relu["allowed"]) == (18, 6, 2)
    assert attention["named"] == ["v", "key", "query"]
    assert attention["conserved"] == ["v² − query²", "key² − query²"]
    assert refused["refused"].startswith("no small model")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so(tmp_path, capsys):
    assert cuda.main(["--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err == (
        "device cuda is asked for, and this machine has no CUDA device\n"
    )
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.turns
def test_every_part_small_on_the_cpu(tmp_path, capsys):
    words = ["--device", "cpu", "--small", "--out", str(tmp_path)]
    assert cuda.main(words) == 0
    records = {part: json.loads((tmp_path / f"cuda_{part}.json").read_text())
               for part in cuda.PARTS}  # fmt: skip
    ends = records["adamw"]["found"]["d = 4"]["ends"]
    assert [end["models"] for end in ends.values()] == [2, 2]
    for part in ("basins_above", "basins_below"):
        (line,) = records[part]["found"].values()
        assert line["decided"] == line["starts"] == 4 and [len(row) for row in line["grid"]] == [
            2,
            2,
        ]
    assert (tmp_path / "cuda_basins.png").stat().st_size < 300_000
    shown = (tmp_path / "cuda.md").read_text()
    assert "gpu none, torch" in shown and "at the bigram" in shown
    (tmp_path / "cuda_adamw.json").unlink()
    capsys.readouterr()
    assert cuda.main(words) == 0
    assert capsys.readouterr().err.startswith("adamw:")  # what was finished stays
