"""The rank-one flow without attention: field, Jacobian and loss inside one mode of its two units.

With Y_0 = ρ, Y_1 = e + ρ, slope s_x = 1 + 4w₁w₂ where unit x is open (w₁Y_x > 0) and 1 where it is
closed, and u = e (tied) or c (untied), the logits are f_x = u Y_x s_x + b and the loss is
Σ_x π_x CE(f_x). What counts is how far f_x is beyond the logit of its target; rows are followed
with b − log(π₁/π₀) for b, so that next to p + q = 1 nothing cancels.

A unit *slides* where the orbit stays on Y_x = 0: there the flow is the gradient flow of the loss
restricted to that surface, on which Y_x = 0 and e moves with ρ = −e (metric 1 + N) or alone with
ρ = 0. Inside a mode all of this is analytic, also beyond the surface where the
mode ends. Own derivation (docs/derivations/08.md).
"""

from __future__ import annotations

from flowsim.compiled import compiled
from flowsim.elementary import excess_entropy, residual, spread

#: Modes of a unit (``kinks``).
CLOSED, OPEN, SLIDING = range(3)

#: Places in ``Row.reals``: targets t and 1 − t after both symbols, their chances, N; b where the
#: logits are the unigram's, and by how much these are beyond the targets' logits; both losses.
TARGET0, TARGET1, OTHER0, OTHER1, PI0, PI1, LENGTH = range(7)
BIAS, BEYOND0, BEYOND1, ENTROPY_RATE, INFORMATION, LAMBDA = range(7, 13)


@compiled(no_cpython_wrapper=True)
def loss(y, mode, reals):
    """Return the loss in nats at y, unit x being open where ``mode[x]`` is OPEN, else closed."""
    return reals[ENTROPY_RATE] + excess(y, mode, reals)


@compiled(no_cpython_wrapper=True)
def excess(y, mode, reals):
    """Return the loss above the entropy rate: a mean of relative entropies, so nothing cancels."""
    u, way = y[0] if len(y) == 5 else y[5], y[4] - reals[BIAS]
    gain = 1.0 + 4.0 * y[2] * y[3]
    beyond0 = u * y[1] * (gain if mode[0] == OPEN else 1.0) + way + reals[BEYOND0]
    beyond1 = u * (y[0] + y[1]) * (gain if mode[1] == OPEN else 1.0) + way + reals[BEYOND1]
    after_zero = excess_entropy(beyond0, reals[TARGET0], reals[OTHER0])
    after_one = excess_entropy(beyond1, reals[TARGET1], reals[OTHER1])
    return reals[PI0] * after_zero + reals[PI1] * after_one


@compiled(inline=True, no_cpython_wrapper=True)
def inner_value(y, mode, x):
    """Return Y_x, ∂Y_x/∂e and ∂Y_x/∂ρ of unit x, on the surfaces along which units slide."""
    if mode[x] == SLIDING:
        return 0.0, 0.0, 0.0
    if mode[1 - x] == SLIDING:  # the other unit keeps ρ = −e or ρ = 0
        return (-y[0], -1.0, 0.0) if x == 0 else (y[0], 1.0, 0.0)
    return (y[1], 0.0, 1.0) if x == 0 else (y[0] + y[1], 1.0, 1.0)


@compiled(inline=True, no_cpython_wrapper=True)
def residual_at(logit, y, x, reals):
    """Return the residual σ(f_x) − t_x after symbol x, at the logit f_x = ``logit`` + b."""
    beyond = logit + (y[4] - reals[BIAS] + reals[BEYOND0 + x])
    return residual(beyond, reals[TARGET0 + x], reals[OTHER0 + x])


@compiled(inline=True, no_cpython_wrapper=True)
def unit_terms(value, opened, product, u, y, x, reals):
    """Return π_x(σ(f_x) − t_x), the slope s_x and the output Y_x s_x of unit x at Y_x = ``value``.

    ``product`` is 4w₁w₂.
    """
    slope = 1.0 + product if opened else 1.0
    output = value * slope
    return reals[PI0 + x] * residual_at(u * output, y, x, reals), slope, output


@compiled(inline=True, no_cpython_wrapper=True)
def velocity(y, mode, reals, out):
    """Write dy/dt = −G⁻¹∇L at y = (e, ρ, w₁, w₂, b[, c]) to ``out``, units in modes ``mode``."""
    tied, length = len(y) == 5, reals[LENGTH]
    u = y[0] if tied else y[5]
    product = 4.0 * y[2] * y[3]
    y0, e0, rho0 = inner_value(y, mode, 0)
    y1, e1, rho1 = inner_value(y, mode, 1)
    open0, open1 = mode[0] == OPEN and mode[2] == 0, mode[1] == OPEN and mode[2] == 0
    omega0, s0, out0 = unit_terms(y0, open0, product, u, y, 0, reals)
    omega1, s1, out1 = unit_terms(y1, open1, product, u, y, 1, reals)
    by_u = omega0 * out0 + omega1 * out1
    by_e = u * (omega0 * s0 * e0 + omega1 * s1 * e1)
    by_relu = (omega0 * y0 if open0 else 0.0) + (omega1 * y1 if open1 else 0.0)
    if tied:
        by_e += by_u
    else:
        out[5] = -by_u
    if mode[1] == SLIDING and mode[0] != SLIDING:
        out[0] = -by_e / (1.0 + length)
        out[1] = -out[0]
    else:
        out[0] = -by_e
        out[1] = -u * (omega0 * s0 * rho0 + omega1 * s1 * rho1) / length
    out[2] = -u * by_relu * y[3]
    out[3] = -u * by_relu * y[2]
    out[4] = -omega0 - omega1


@compiled(no_cpython_wrapper=True)
def jacobian(y, mode, reals, out):
    """Write ∂(dy/dt)/∂y to ``out`` (k, k): −G⁻¹ Σ_x (v_x ∇f_x ∇f_xᵀ + ω_x ∇²f_x), v = πσ′."""
    k = len(y)
    tied, held = len(y) == 5, mode[2] == 1
    u, u_e = (y[0], 1.0) if tied else (y[5], 0.0)
    w1, w2 = y[2], y[3]
    for i in range(k):
        for j in range(k):
            out[i, j] = 0.0
    for x in range(2):
        value, inner_e, inner_rho = inner_value(y, mode, x)
        gate = 4.0 if mode[x] == OPEN and not held else 0.0
        slope = 1.0 + gate * w1 * w2
        output = value * slope
        beyond = u * output + (y[4] - reals[BIAS] + reals[BEYOND0 + x])
        omega = reals[PI0 + x] * residual(beyond, reals[TARGET0 + x], reals[OTHER0 + x])
        v = reals[PI0 + x] * spread(beyond, reals[TARGET0 + x], reals[OTHER0 + x])
        f0, f1 = u * slope * inner_e + u_e * output, u * slope * inner_rho
        f2, f3 = u * gate * w2 * value, u * gate * w1 * value
        mixed = omega * gate * (u * inner_e + u_e * value)
        out[0, 0] -= v * f0 * f0 + omega * 2.0 * u_e * slope * inner_e
        out[0, 1] -= v * f0 * f1 + omega * u_e * slope * inner_rho
        out[0, 2] -= v * f0 * f2 + mixed * w2
        out[0, 3] -= v * f0 * f3 + mixed * w1
        out[0, 4] -= v * f0
        out[1, 1] -= v * f1 * f1
        out[1, 2] -= v * f1 * f2 + omega * u * gate * w2 * inner_rho
        out[1, 3] -= v * f1 * f3 + omega * u * gate * w1 * inner_rho
        out[1, 4] -= v * f1
        out[2, 2] -= v * f2 * f2
        out[2, 3] -= v * f2 * f3 + omega * u * gate * value
        out[2, 4] -= v * f2
        out[3, 3] -= v * f3 * f3
        out[3, 4] -= v * f3
        out[4, 4] -= v
        if not tied:
            out[0, 5] -= v * f0 * output + omega * slope * inner_e
            out[1, 5] -= v * f1 * output + omega * slope * inner_rho
            out[2, 5] -= v * f2 * output + omega * gate * w2 * value
            out[3, 5] -= v * f3 * output + omega * gate * w1 * value
            out[4, 5] -= v * output
            out[5, 5] -= v * output * output
    for i in range(k):
        for j in range(i):
            out[i, j] = out[j, i]
    together = mode[1] == SLIDING and mode[0] != SLIDING
    length = reals[LENGTH]
    e_mass = 1.0 + length if together else 1.0
    for j in range(k):
        out[0, j] /= e_mass
        out[1, j] = -out[0, j] if together else out[1, j] / length
        out[2, j] *= 0.25
        out[3, j] *= 0.25
