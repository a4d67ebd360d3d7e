"""Loss, gradient and stiffness of many models, one after the other, over the tree of prefixes."""

from __future__ import annotations

import math

import numpy as np

from flowsim.compiled import compiled
from full_model.model.tree.columns import weighted_sum
from full_model.model.tree.outputs import chances, entropies, set_cotangent
from full_model.model.tree.prefixes import (
    BLOCK,
    add_gradient,
    backward,
    forward,
    new_sums,
    new_workspace,
)
from full_model.model.tree.shares import (
    attend,
    attend_vjp,
    columns_of,
    first_prefixes,
    prefix_probabilities,
)
from full_model.model.tree.squares import attended, sizes, trace
from full_model.model.tree.tree_weights import (
    add_applied,
    add_outer,
    read_layer,
    read_places,
    transposed,
)

#: Bits of the requested results.
LOSS, GRADIENT, STIFFNESS = 1, 2, 4


@compiled(no_cpython_wrapper=True)
def _start_block(places, kernel, first, start, count, workspace):
    """Set, in the workspace, Y = X_n and the target law of every prefix of a block."""
    target, states = workspace.outputs.target, kernel.shape[0]
    skipped = states - target.shape[0]
    for q in range(first.shape[0] - 1):
        low, high = columns_of(first, q, start, count)
        if low < high:
            for a in range(target.shape[0]):
                for j in range(low, high):
                    target[a, j] = kernel[q % states, skipped + a]
            for i in range(workspace.y.shape[0]):
                for j in range(low, high):
                    workspace.y[i, j] = places.symbols[q, i]


@compiled(no_cpython_wrapper=True)
def _end_block(first, start, count, workspace, sums):
    """Add to ``sums.places`` a block's ∂L/∂X through the residual stream.

    The sum of a place is Σ ωg over the prefixes that end there.
    """
    for q in range(first.shape[0] - 1):
        low, high = columns_of(first, q, start, count)
        if low < high:
            for i in range(workspace.g.shape[0]):
                sums.places[q, i] += weighted_sum(
                    workspace.outputs.omega, workspace.g[i], low, high
                )


@compiled(no_cpython_wrapper=True, nrt=True)
def _through_attention(layer, places, first, states, mixed, by_symbol, inner):
    """Add the gradients by W_Q, W_K, W_V and W_O to ``inner``, (4, d, d).

    The part through attention to each place's X_s is added to ``by_symbol``, (SN, d).
    """
    count, d = by_symbol.shape
    by_move, by_value = np.zeros((count, d)), np.zeros((count, d))
    by_key, by_query = np.zeros((count, d)), np.zeros((count, d))
    held = np.empty((count, d + 1))
    for q in range(count):
        attend_vjp(first, states, mixed, q, held)
        before = q // states * states
        for step in range(before + 1):
            s = q if step == before else step
            slope = held[s, d]
            for i in range(d):
                slope += held[s, i] * places.moves[s, i]
            slope *= places.weight[q, s]
            for i in range(d):
                by_move[s, i] += places.weight[q, s] * held[s, i]
                by_query[q, i] += slope * places.keys[s, i]
                by_key[s, i] += slope * places.queries[q, i]
    scale = 1.0 / math.sqrt(d)
    add_applied(transposed(layer.out), by_move, 1.0, by_value)
    add_applied(transposed(layer.value), by_value, 1.0, by_symbol)
    add_applied(transposed(layer.query), by_query, scale, by_symbol)
    add_applied(transposed(layer.key), by_key, 1.0, by_symbol)
    add_outer(by_query, places.symbols, scale, inner[0])
    add_outer(by_key, places.symbols, 1.0, inner[1])
    add_outer(by_value, places.symbols, 1.0, inner[2])
    add_outer(by_move, places.values, 1.0, inner[3])


@compiled(no_cpython_wrapper=True)
def _write(layer, sums, inner, hidden, tied, states, out):
    """Write the gradient into ``out``, zeros (K,), in the order of ``Architecture.shapes``."""
    (logits, d), context = layer.embedding.shape, layer.positions.shape[0]
    for s in range(sums.places.shape[0]):
        row = s % states - (states - logits)
        for i in range(d):
            if row >= 0:
                out[row * d + i] += sums.places[s, i]
            out[(logits + s // states) * d + i] += sums.places[s, i]
    at = (logits + context) * d
    for which in range(len(inner)):
        for i in range(d):
            for k in range(d):
                out[at] = inner[which, i, k]
                at += 1
    reader = 0 if tied else at + 2 * hidden * d
    for k in range(hidden):
        for i in range(d):
            out[at + k * d + i] = sums.up[k, i]
            for a in range(logits):
                out[at + hidden * d + i * hidden + k] += layer.reader[a, i] * sums.read[k, a]
                out[reader + a * d + i] += layer.down[i, k] * sums.read[k, a]
    for a in range(logits):
        for i in range(d):
            out[reader + a * d + i] += sums.y[a, i]
        out[out.shape[0] - logits + a] = sums.bias[a]


@compiled(nrt=True)
def evaluate(
    rows, initial, kernels, context, length, d, hidden, logits, tied, what, rounding, attends
):
    """Compute loss (M,), gradient (M, K) and stiffness (M,), for which see ``set_cotangent``.

    Args:
        rows: (M, K) float64, weights in the order of ``Architecture.shapes``.
        initial, kernels: (1 or M, S) and (1 or M, S, S), stationary law and kernel of the chains.
        context, length: positions of a model, and how many of them sequences have.
        d, hidden: dimension and hidden units.
        logits: 1 for S = 2 symbols with the embeddings 0 and e, or S.
        tied: is the reader the embedding.
        what: which of LOSS, GRADIENT and STIFFNESS to compute; the others are zero.
        rounding: half the width over which the kink of ReLU is rounded off, 0 for ReLU itself.
        attends: has it attention. Else ``rows`` have no such weights, and each position stands for
            ``length``/``context`` of N = ``length``.
    """
    models, states, wide = rows.shape[0], kernels.shape[1], hidden + (-hidden) % 4
    positions = length if attends else context
    loss, gradient, stiffness = np.zeros(models), np.zeros(rows.shape), np.zeros(models)
    first = first_prefixes(states, positions, attends)
    count = first[-1]
    probability, mixed = np.empty(count), np.zeros((d + 1, count))
    workspace = new_workspace(d, wide, logits, min(BLOCK, count))
    shares = np.zeros((logits + 1, count))
    aims = 1 + logits if what & STIFFNESS and logits > 1 else int(what != LOSS)
    for i in range(models):
        kernel = kernels[i if kernels.shape[0] > 1 else 0]
        if i == 0 or kernels.shape[0] > 1:
            prefix_probabilities(
                initial[i if kernels.shape[0] > 1 else 0], kernel, first, positions, probability
            )
        layer = read_layer(rows[i], context, d, hidden, logits, tied, rounding, attends)
        places = read_places(layer, states, positions, attends)
        if attends:
            attend(places.weight, places.symbols, first, states, mixed)
            shares = attended(places, first, states, logits)
        else:
            mixed[:d], mixed[d] = 0.0, 1.0
        out_t, value_t = transposed(layer.out), transposed(layer.value)
        gram = np.zeros((logits, logits))
        add_applied(layer.reader, layer.reader, 1.0, gram)
        size_of, sums = sizes(layer, places), new_sums(d, wide, logits, states * positions)
        for start in range(0, count, BLOCK):
            size = min(BLOCK, count - start)
            _start_block(places, kernel, first, start, size, workspace)
            forward(layer, mixed, start, size, workspace)
            if what & LOSS:
                loss[i] += entropies(probability, start, size, workspace.outputs)
            chances(size if aims else 0, workspace.outputs)
            for which in range(aims):
                set_cotangent(which, probability, start, size, workspace.outputs)
                backward(layer, size, workspace)
                if which == 0:
                    add_gradient(mixed, start, size, workspace, sums)
                    _end_block(first, start, size, workspace, sums)
                if what & STIFFNESS and (which > 0 or logits == 1):
                    stiffness[i] += trace(
                        layer, out_t, value_t, gram, size_of, shares, first, states, length, tied,
                        start, size, workspace,
                    )  # fmt: skip
        if what & GRADIENT:
            inner = np.zeros((4 if attends else 0, d, d))
            if attends:
                _through_attention(layer, places, first, states, mixed, sums.places, inner)
            _write(layer, sums, inner, hidden, tied, states, gradient[i])
    return loss, gradient, stiffness
