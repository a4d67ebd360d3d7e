"""What is on the page, outside of it: the command lines and the Python lines that make it again."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from flowsim.explorer.full_settings import FullSettings
from flowsim.explorer.full_start import first_weights, is_untied
from flowsim.explorer.plane_layers import ends_of, levels
from flowsim.explorer.view import DRAWS, FEWER_DRAWS, Start, View, full_length
from flowsim.models.catalogue import ModelChoice
from flowsim.models.own import is_own


def command_lines(view: View, full: FullSettings, trained: Sequence[Start]) -> str:
    """Shell lines: the page again, its figure, its orbits' ends, its cloud, its training."""
    model = [*_chain_options(view), *_model_options(view)]
    x_low, x_high, y_low, y_high = view.window
    window = [f"--window={view.x}={x_low!r}:{x_high!r},{view.y}={y_low!r}:{y_high!r}"]
    window = window if view.axes or view.window != view.usual_window else []
    size = ["--resolution", str(levels(view)[-1])]
    lines = [shlex.join(["flowsim", "portrait", *model, *window, *size])]
    if view.starts:
        rows = "\\n".join([f"{view.y},{view.x}", *(f"{y!r},{x!r}" for y, x in view.starts)])
        lines.append(f"printf '{rows}\\n' > starts.csv")
        lines.append(
            shlex.join(["flowsim", "scan", *model, "--points", "starts.csv", "--out", "orbits.nc"])
        )
    if view.puff is not None:
        lines.append("# a cloud around a point is drawn in Python only, see below")
    if trained and not _lifted_by_command(view):
        lines.append("# training from this lift is begun in Python only, see below")
        trained = ()
    for start in dict.fromkeys(trained):
        lines.append(shlex.join(_train_words(view, full, start)))
    return "\n".join(lines)


def python_lines(view: View, full: FullSettings, trained: Sequence[Start]) -> str:
    """Python that computes and draws what the page shows."""
    x_low, x_high, y_low, y_high = view.window
    lines = ["import flowsim", ""]
    shown = f".showing{view.axes!r}" if view.axes else ""
    lines.append(f"model = flowsim.model({', '.join(_model_words(view))}){shown}")
    held = f", fixed={view.held!r}" if view.held else ""
    lines.append(
        f'window = {{"{view.x}": ({x_low!r}, {x_high!r}), "{view.y}": ({y_low!r}, {y_high!r})}}'
    )
    size = levels(view)[-1]
    lines.append(f"record = flowsim.portrait_record(model, resolution={size}, window=window{held})")
    lines += ['flowsim.draw(record).savefig("explored.png")', 'print(record["label"])']
    if view.starts or view.puff is not None:
        lines += ["", "import torch"]
    if view.starts:
        for name, values in zip("yx", zip(*view.starts, strict=True), strict=True):
            lines.append(f"{name} = torch.tensor({list(values)!r}, dtype=torch.float64)")
        lines += [
            f"starts = model.plane.at(x, y, {view.held!r})",
            "limits = flowsim.find_limits(model, starts)",
            "print([flowsim.Label(int(code)).name for code in limits.label])",
            "orbits = flowsim.trajectories(model, starts, torch.linspace(0, 100, 201))",
        ]
    if view.puff is not None:
        lines += _cloud_lines(view)
    for start in dict.fromkeys(trained):
        lines += ["", *_training_lines(view, full, start)]
    return "\n".join(lines)


def _cloud_lines(view: View) -> list[str]:
    puff = view.puff
    assert puff is not None
    count = DRAWS if view.model.fast else FEWER_DRAWS
    return [
        "import numpy as np",
        f"unit = np.random.Generator(np.random.PCG64(0)).standard_normal(({count}, 2))",
        f"y, x = torch.from_numpy({puff.sigma!r} * unit.T + [[{puff.y!r}], [{puff.x!r}]])",
        f"cloud = flowsim.find_limits(model, model.plane.at(x, y, {view.held!r}))",
        "print((cloud.label == flowsim.Label.LOCAL_MINIMUM).double().mean())"
        if ends_of(view).named
        else "print(cloud.theta.unique(dim=0).shape, cloud.loss.unique())",
    ]


def _training_lines(view: View, full: FullSettings, start: Start) -> list[str]:
    """Training in Python, from the lift that the page trains from."""
    options = [f'"{full.trainer}"', f"steps={full.steps}"]
    options += [] if full.rate is None else [f"learning_rate={full.rate!r}"]
    options += ["clip=1.0"] if full.trainer == "adamw" else []
    recipe = f"recipe = full_model.Recipe({', '.join(options)})"
    how = _lines_of_states if view.choice.states is not None else _lines_of_two_states
    return ["import full_model", recipe, *how(view, full, start), 'print(record["loss"])']


def _lines_of_two_states(view: View, full: FullSettings, start: Start) -> list[str]:
    theta = (start.y, start.x, *([view.held.get("a", 0.0)] if view.has_slice else []))
    untied = ", tied=False" * is_untied(view)
    length = full_length(view, full.length)
    lines = [
        f"arch = full_model.Architecture(d={full.d}, length={length}{untied})",
        "settings = full_model.RunSettings(",
        f'    arch, recipe, ({view.p!r},), ({view.q!r},), ({full.seed},), "lifted",',
        f"    theta=({theta!r},), noise={full.noise!r}, data_seed={full.seed},",
        ")",
    ]
    if _lifted_by_command(view):
        return [*lines, "record, weights = full_model.train(settings)"]
    clean, other = replace(full, noise=0.0), replace(view, fixed=())
    here, usual = (first_weights(v, clean, start) for v in (view, other))
    moved = {n: float((here[n] - usual[n]).flatten()[0]) for n in ("unembedding", "bias")
             if n in here}  # fmt: skip
    return [
        *lines,
        "from dataclasses import replace",
        "weights = full_model.starting_weights(settings)",
        *(f'weights["{n}"] += {x!r}  # to the value that is held, and its best bias'
          for n, x in moved.items()),
        'given = replace(settings, init="given", theta=None, noise=0.0)',
        "record, weights = full_model.train(given, initial=weights)",
    ]  # fmt: skip


def _lines_of_states(view: View, full: FullSettings, start: Start) -> list[str]:
    choice = view.choice
    hidden = (choice.hidden_per_state or 1) * (choice.states or 2)
    plain = 'attention="none"' if not full.noise and full.trainer in ("gd", "flow") else ""
    rest = ", ".join(['output="states"', *([plain] if plain else [])])
    lines = [
        f"arch = full_model.Architecture(d={full.d}, length={full_length(view, full.length)}, "
        f"hidden={hidden},",
        f"                               states={choice.states}, {rest})",
        f"weights = full_model.lift_states(torch.tensor([{(start.y, start.x)!r}]).double(), arch)",
    ]
    if full.noise:
        lines += [
            "from full_model.lift.initial import with_noise",
            f"generators = [torch.Generator().manual_seed({full.seed})]",
            f"weights = with_noise(arch, weights, {full.noise!r}, generators)",
        ]
    return [
        *lines,
        f'settings = full_model.RunSettings(arch, recipe, seeds=({full.seed},), init="given",',
        f"                                  data=model.chain, data_seed={full.seed})",
        "record, weights = full_model.train(settings, initial=weights)",
    ]


def _train_words(view: View, full: FullSettings, start: Start) -> list[str]:
    held = [f"{view.held.get('a', 0.0)!r}"] if view.has_slice else []
    point = ",".join([f"{start.y!r}", f"{start.x!r}", *held])
    words = ["flowsim", "train", *_chain_options(view), "--trainer", full.trainer]
    words += ["--untied"] * is_untied(view)
    words += ["--d", str(full.d), "--length", str(full_length(view, full.length))]
    words += ["--init", "lifted", f"--theta={point}", "--steps", str(full.steps)]
    words += ["--noise", f"{full.noise!r}"] if full.noise else []
    words += ["--learning-rate", f"{full.rate!r}"] if full.rate is not None else []
    return [*words, "--seed", str(full.seed)] if full.seed else words


def _lifted_by_command(view: View) -> bool:
    """Whether ``flowsim train --init lifted`` begins where the explorer does."""
    return view.choice.states is None and not {"u", "b"} & view.held.keys()


def _chain_options(view: View) -> list[str]:
    chances = view.choice.family.data
    return [word for n in chances for word in (f"--{n}", f"{getattr(view, n)!r}")]


def _told(view: View) -> dict[str, Any]:
    """The options of the view's model that are told: sizes, and what is not as usual."""
    if is_own(view.model):
        return dict(view.choice.options)
    usual = view.choice.family.options
    own = view.choice.options.items()
    return {k: v for k, v in own if type(v) is int or v != usual[k].default}


def _model_options(view: View) -> list[str]:
    words = [] if view.choice.name == ModelChoice().name else ["--model", view.choice.name]
    for name, value in _told(view).items():
        if is_own(view.model):
            words += ["--set", f"{name}={value}"]
            continue
        option = "--" + ("untied" if name == "tied" else name.replace("_", "-"))
        words += [option] if isinstance(value, bool) else [option, str(value)]
    return words + [word for n, value in view.fixed for word in ("--fix", f"{n}={value!r}")]


def _model_words(view: View) -> list[str]:
    words = [repr(view.choice.name), *(f"{getattr(view, n)!r}" for n in view.choice.family.data)]
    return words + [f"{name}={value!r}" for name, value in _told(view).items()]
