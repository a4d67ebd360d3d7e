"""The full transformer that goes with a start: its architecture, first weights, and place."""

from __future__ import annotations

import torch
from torch import Tensor

from flowsim.errors import InputError
from flowsim.explorer.full_settings import FullSettings
from flowsim.explorer.view import Start, View, full_length
from full_model.comparison.choices import Comparison
from full_model.comparison.comparable import exact_model
from full_model.lift.initial import with_noise
from full_model.lift.lifting import lift_held
from full_model.lift.projection import project
from full_model.lift.states import lift_states, project_states
from full_model.model.architecture import Architecture, Weights
from full_model.model.source import MarkovSource
from full_model.model.transformer import forward

#: 2^N sequences over which the exact loss with attention is still a quick sum.
_MOST_EXACT = 12


def check_training(view: View, settings: FullSettings) -> None:
    """InputError, in a sentence for the page, where this trainer cannot train these sizes."""
    states, n = view.choice.states or 2, full_length(view, settings.length)
    if settings.d < states - 1:
        raise InputError(f"{states} states need a width d of at least {states - 1}")
    attends = view.has_slice or settings.noise > 0
    if attends and settings.trainer in ("gd", "flow") and states**n > 2**_MOST_EXACT:
        raise InputError(
            f"with attention, {settings.trainer} sums over all {states}^{n} sequences: choose a "
            "smaller N, or sgd or adamw"
        )


def full_comparison(view: View, settings: FullSettings) -> Comparison:
    """The settings of training by ``gd`` or ``flow`` in the words of a comparison."""
    choice = view.choice
    return Comparison(
        **{name: getattr(view, name) for name in choice.family.data},
        model=exact_model(choice),
        trainer=settings.trainer,
        d=settings.d,
        length=full_length(view, settings.length),
        noise=settings.noise,
        seed=settings.seed,
        steps=settings.steps,
        learning_rate=settings.rate,
        states=choice.states,
        hidden_per_state=choice.hidden_per_state,
    )


def full_architecture(view: View, settings: FullSettings) -> Architecture:
    """One layer with softmax attention; untied, or with S logits, where the view's model is."""
    choice, n = view.choice, full_length(view, settings.length)
    if choice.states is None:
        return Architecture(settings.d, n, tied=not is_untied(view))
    m = choice.hidden_per_state or 1
    return Architecture(
        settings.d, n, hidden=m * choice.states, states=choice.states, output="states"
    )


def is_untied(view: View) -> bool:
    """Whether the unembedding is a weight of its own."""
    return not view.choice.options.get("tied", view.choice.family.tied)


def first_weights(view: View, settings: FullSettings, start: Start) -> Weights:
    """The start's lift with the noise, one model: where the view's orbit begins too.

    Its unembedding and its bias are those that the view holds; else e, and the best one.
    """
    arch = full_architecture(view, settings)
    point = canonical_point(view, start)
    if view.choice.states is not None:
        clean = lift_states(point, arch)
    else:
        held = view.held.get("u"), view.held.get("b")
        clean = lift_held(point, arch, view.model.chain, *held)
    if not settings.noise:
        return clean
    return with_noise(arch, clean, settings.noise, [torch.Generator().manual_seed(settings.seed)])


def canonical_point(view: View, start: Start) -> Tensor:
    """The start as a canonical point, (1, 2), or (1, 3) with the view's a where it has one."""
    held = [view.held.get("a", 0.0)] if view.has_slice else []
    return torch.tensor([[start.y, start.x, *held]], dtype=torch.float64)


def place(arch: Architecture, weights: Weights) -> tuple[float, float]:
    """(e, w) of the point nearest to one model's weights."""
    if arch.output == "states":
        e, w = project_states(arch, weights, turns=8).canonical[0].tolist()
    else:
        along = weights["bias"].new_full((arch.d,), arch.d**-0.5)
        e, w = project(arch, weights, along).canonical[0, :2].tolist()
    return e, w


def probe_tokens(view: View, settings: FullSettings) -> Tensor:
    """Sequences whose logits are averaged, (32, N)."""
    source = MarkovSource.of(view.model.chain)
    generator = torch.Generator().manual_seed(1)
    return source.repeat(1).sample(32, full_length(view, settings.length), generator)[0][0]


def logit_gap(arch: Architecture, weights: Weights, tokens: Tensor) -> float:
    """How far the logits tell the symbols apart, over all tokens; NaN where none are.

    The mean logit at the ones minus that at the zeros; of S logits that of the current state minus
    the mean of the others.
    """
    with torch.no_grad():
        logit = forward(arch, weights, tokens)[0]
    if arch.output == "states":
        own = logit.gather(-1, tokens[..., None].long())[..., 0]
        others = (logit.sum(-1) - own) / (arch.states - 1)
        return float((own - others).mean())
    one = tokens == 1
    return float(logit[one].mean() - logit[~one].mean())
