"""Loss, gradient and Hessian of the memory at many points, over all words (compiled).

Words of n symbols are those of n − 1 with a symbol more, at the places S w + s, so that the sum
M = Σ_{k<n} κ^k c(x_{n−k}) and its derivatives by κ follow from one another,

    M ← κ M + c(x),   M′ ← κ M′ + M,   M″ ← κ M″ + 2 M′,

in S numbers a word. With f = c e² (u + G ReLU(u)), u = c(x) + a M, and δ = softmax(f) − P,

    ∂L = Σ δ ∂f,   ∂²L = Σ δ ∂²f + Σ p ∂f ∂fᵀ − (Σ p ∂f)(Σ p ∂f)ᵀ.
"""

from __future__ import annotations

import math

import numpy as np

from flowsim.compiled import compiled


@compiled(nrt=True)
def sum_words(axes, theta, signed, states, hidden, length, chances, next_law, found):
    """Write the loss (``axes`` 0), gradient (1) or Hessian (2) at ``theta`` (n, 4) to ``found``.

    ``found`` is (n, 1), (n, 4) or (n, 16). ``chances`` and ``next_law`` are of all words of 1 to
    ``length`` symbols, one length after the other: the weight of a word, and the distribution of
    the next symbol after it.
    """
    S, c = states, states / (states - 1.0)
    memory = np.zeros((S ** (length - 1), 3, S))
    first, second = np.zeros((S, 4)), np.zeros((S, 4, 4))
    logits, mean, before = np.zeros(S), np.zeros(4), np.zeros((3, S))
    for row in range(len(theta)):
        e, w, v, alpha = theta[row, 0], theta[row, 1], theta[row, 2], theta[row, 3]
        if signed:
            kappa = math.tanh(alpha)
            slope = 1.0 - kappa * kappa
            bend = -2.0 * kappa * slope
        else:
            small = math.exp(-abs(alpha))
            kappa = (1.0 if alpha > 0 else small) / (1.0 + small)
            slope = small / (1.0 + small) ** 2
            bend = slope * (1.0 - 2.0 * kappa)
        a, a1, a2 = v * abs(v), 2.0 * abs(v), 2.0 * np.sign(v)
        gain = c * hidden
        G, G1, G2 = gain * w * abs(w), 2.0 * gain * abs(w), 2.0 * gain * np.sign(w)
        found[row] = 0.0
        count, place = 1, 0
        for n in range(length):
            for old in range(max(1, count // S) - 1, -1, -1):  # longer words take their place
                for d in range(3):
                    for t in range(S):
                        before[d, t] = memory[old, d, t] if n > 0 else 0.0
                for x in range(1 if n == 0 else S):
                    word = x if n == 0 else old * S + x
                    weight = chances[place + word]
                    top = -math.inf
                    for t in range(S):
                        own = (1.0 if t == x else 0.0) - 1.0 / S
                        m0 = kappa * before[0, t] + own
                        m1 = kappa * before[1, t] + before[0, t]
                        m2 = kappa * before[2, t] + 2.0 * before[1, t]
                        memory[word, 0, t], memory[word, 1, t], memory[word, 2, t] = m0, m1, m2
                        u = own + a * m0
                        opened = 1.0 if u > 0 else 0.0
                        height, open_u = 1.0 + G * opened, opened * u
                        logits[t] = c * e * e * (u + G * open_u)
                        top = max(top, logits[t])
                        if axes == 0:
                            continue
                        u_v, u_k = a1 * m0, a * slope * m1
                        first[t, 0] = 2.0 * c * e * (u + G * open_u)
                        first[t, 1] = c * e * e * G1 * open_u
                        first[t, 2] = c * e * e * height * u_v
                        first[t, 3] = c * e * e * height * u_k
                        if axes == 1:
                            continue
                        second[t, 0, 0] = 2.0 * c * (u + G * open_u)
                        second[t, 0, 1] = 2.0 * c * e * G1 * open_u
                        second[t, 0, 2] = 2.0 * c * e * height * u_v
                        second[t, 0, 3] = 2.0 * c * e * height * u_k
                        second[t, 1, 1] = c * e * e * G2 * open_u
                        second[t, 1, 2] = c * e * e * G1 * opened * u_v
                        second[t, 1, 3] = c * e * e * G1 * opened * u_k
                        second[t, 2, 2] = c * e * e * height * a2 * m0
                        second[t, 2, 3] = c * e * e * height * a1 * slope * m1
                        bent = bend * m1 + slope * slope * m2
                        second[t, 3, 3] = c * e * e * height * a * bent
                    total = 0.0
                    for t in range(S):
                        total += math.exp(logits[t] - top)
                    log_sum = top + math.log(total)
                    if axes == 0:
                        for t in range(S):
                            found[row, 0] += (
                                weight * next_law[place + word, t] * (log_sum - logits[t])
                            )
                        continue
                    mean[:] = 0.0
                    for t in range(S):
                        chance = math.exp(logits[t] - log_sum)
                        off = chance - next_law[place + word, t]
                        for i in range(4):
                            mean[i] += chance * first[t, i]
                            if axes == 1:
                                found[row, i] += weight * off * first[t, i]
                                continue
                            for j in range(i, 4):
                                found[row, 4 * i + j] += weight * (
                                    off * second[t, i, j] + chance * first[t, i] * first[t, j]
                                )
                    if axes == 2:
                        for i in range(4):
                            for j in range(i, 4):
                                found[row, 4 * i + j] -= weight * mean[i] * mean[j]
            place += count
            count *= S
        if axes == 2:
            for i in range(4):
                for j in range(i):
                    found[row, 4 * i + j] = found[row, 4 * j + i]
